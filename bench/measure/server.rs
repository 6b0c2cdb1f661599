//! What the broker's process uses, read from `/proc` where it is on this machine.

use crate::bench::load::clock;
use crate::bench::result::ServerUse;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// What a process has used so far.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pid: u32,
    cpu_ns: u64,
    /// Now.
    resident_bytes: u64,
    /// The most since the system's mark was last set back, by [`Usage::begin`] or the start.
    most_resident_bytes: u64,
    /// The mark was set back at this moment.
    is_begin: bool,
    /// `None` where the system does not tell, as of another user's process.
    written_bytes: Option<u64>,
    /// Of each thread that it has, by its id.
    context_switches: HashMap<u32, u64>,
}

impl Usage {
    /// Of this moment, at which a time begins of which the most resident memory is wanted.
    pub fn begin(pid: u32) -> Option<Usage> {
        // Sets the mark `VmHWM` back to what is resident now. Not permitted: of another user's
        // process.
        let is_begin = fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok();
        let now = Usage::of(pid)?;
        Some(Usage { is_begin, ..now })
    }

    /// Of this moment; `None` where there is no such process.
    pub fn of(pid: u32) -> Option<Usage> {
        let resident_bytes = resident(pid)?;
        let most = field(&format!("/proc/{pid}/status"), "VmHWM:");
        Some(Usage {
            pid,
            cpu_ns: clock::cpu_of(pid)?,
            resident_bytes,
            most_resident_bytes: most.map_or(resident_bytes, |most| most * 1024),
            is_begin: false,
            written_bytes: field(&format!("/proc/{pid}/io"), "write_bytes:"),
            context_switches: context_switches(pid),
        })
    }

    /// What was used since `earlier`; `None` where that was another process.
    pub fn since(&self, earlier: &Usage) -> Option<ServerUse> {
        let same = self.pid == earlier.pid;
        same.then(|| ServerUse {
            cpu_seconds: self.cpu_ns.saturating_sub(earlier.cpu_ns) as f64 / clock::SECOND as f64,
            resident_bytes: match earlier.is_begin {
                true => self.most_resident_bytes,
                false => self.resident_bytes.max(earlier.resident_bytes),
            },
            written_bytes: match (self.written_bytes, earlier.written_bytes) {
                (Some(later), Some(earlier)) => Some(later.saturating_sub(earlier)),
                _ => None,
            },
            context_switches: more(&self.context_switches, &earlier.context_switches),
            long_turns: None,
            large_allocations: None,
        })
    }
}

/// The process that listens at this address, if it is on this machine and may be looked at.
pub fn listener(address: SocketAddr) -> Option<u32> {
    // Only an address of this machine can be bound.
    TcpListener::bind((address.ip(), 0)).ok()?;
    let inodes: HashSet<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, address.port()))
        .collect();
    let processes = fs::read_dir("/proc").ok()?;
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .into_iter()
        .find(|&pid: &u32| has_socket(pid, &inodes))
}

/// Inodes of the sockets that listen at a port, of a table in the form of `/proc/net/tcp`.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let inode = |line: &str| {
        let mut columns = line.split_whitespace().skip(1);
        let (local, _, state) = (columns.next()?, columns.next()?, columns.next()?);
        let inode = columns.nth(5)?;
        (local.ends_with(&suffix) && state == LISTENING).then(|| inode.to_owned())
    };
    table.lines().filter_map(inode).collect()
}

fn has_socket(pid: u32, inodes: &HashSet<String>) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .any(|to| {
            let name = to.to_string_lossy();
            let inode = name.strip_prefix("socket:[");
            inode.is_some_and(|inode| inodes.contains(inode.trim_end_matches(']')))
        })
}

/// Resident memory of a process, in bytes; `None` where it is not running.
pub fn resident(pid: u32) -> Option<u64> {
    Some(field(&format!("/proc/{pid}/status"), "VmRSS:")? * 1024)
}

fn context_switches(pid: u32) -> HashMap<u32, u64> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return HashMap::new();
    };
    let of = |status: String| -> u64 {
        let lines = status.lines();
        let counts = lines.filter_map(|line| line.split_once("ctxt_switches:"));
        counts
            .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
            .sum()
    };
    let task = |path: PathBuf| {
        let thread = path.file_name()?.to_str()?.parse().ok()?;
        Some((thread, of(fs::read_to_string(path.join("status")).ok()?)))
    };
    tasks.filter_map(|entry| task(entry.ok()?.path())).collect()
}

/// What the threads of `later` counted since `earlier`. Threads that ended since then are left
/// out: in a sum over the process, all that they ever counted would be missing.
fn more(later: &HashMap<u32, u64>, earlier: &HashMap<u32, u64>) -> u64 {
    let since = |(thread, &count): (&u32, &u64)| {
        let before = earlier.get(thread).copied().unwrap_or(0);
        // Less than before: another thread that got the number of one that ended.
        count.checked_sub(before).unwrap_or(count)
    };
    later.iter().map(since).sum()
}

/// The first number behind `name` in a file of lines.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_listener_is_found_by_its_port() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("bound");
        assert_eq!(listener(address), Some(std::process::id()));
        drop(socket);
        assert_eq!(listener(address), None);
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], address.port()));
        assert_eq!(listener(elsewhere), None);
    }

    #[test]
    fn a_table_of_sockets_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:2A9F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n   \
            1: 0100007F:2A9F 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0\n";
        assert_eq!(listening_inodes(table, 10911), ["4711"]);
        assert!(listening_inodes(table, 10912).is_empty());
    }

    #[test]
    fn a_thread_that_ends_takes_nothing_away() {
        let earlier = HashMap::from([(1, 100), (2, 5000), (3, 70)]);
        let later = HashMap::from([(1, 150), (3, 7), (4, 20)]);
        assert_eq!(more(&later, &earlier), 50 + 7 + 20);
    }

    #[test]
    fn what_the_system_does_not_tell_is_not_zero() {
        let told = |written_bytes| Usage {
            written_bytes,
            ..Usage::default()
        };
        let written = |later, earlier| {
            let used = told(later).since(&told(earlier));
            used.expect("the same process").written_bytes
        };
        assert_eq!(written(Some(7), Some(5)), Some(2));
        assert_eq!(written(None, None), None);
        assert_eq!(written(Some(7), None), None);
    }

    #[test]
    fn memory_is_the_most_between_two_moments() {
        const MIB: u64 = 1 << 20;
        let pid = std::process::id();
        let begin = Usage::begin(pid).expect("this process");
        if !begin.is_begin {
            // Not permitted here, as in some containers: the next test is about that.
            return;
        }
        drop(std::hint::black_box(vec![1_u8; 256 << 20]));
        let end = Usage::of(pid).expect("this process");
        let most = |from: &Usage| end.since(from).expect("the same process").resident_bytes;
        let (now, peak) = (end.resident_bytes, most(&begin));
        assert!(peak >= now + 128 * MIB, "{peak} bytes, {now} at the end");
        // What came before does not count.
        let later = Usage::begin(pid).expect("this process");
        assert!(later.most_resident_bytes < peak - 64 * MIB, "{later:?}");
    }

    #[test]
    fn memory_is_the_more_of_two_moments_where_the_system_does_not_tell_the_most() {
        let at = |resident_bytes| Usage {
            resident_bytes,
            most_resident_bytes: 900,
            ..Usage::default()
        };
        let most = |later: Usage, earlier: &Usage| {
            let used = later.since(earlier).expect("the same process");
            used.resident_bytes
        };
        assert_eq!(most(at(5), &at(7)), 7);
        assert_eq!(most(at(8), &at(7)), 8);
    }

    #[test]
    fn work_shows_in_the_usage() {
        let pid = std::process::id();
        let before = Usage::of(pid).expect("this process");
        let begin = clock::thread_cpu();
        while clock::thread_cpu() - begin < 30 * clock::MS {
            std::hint::spin_loop();
        }
        let used = Usage::of(pid).expect("this process").since(&before);
        let used = used.expect("the same process");
        assert!(used.cpu_seconds >= 0.03, "{used:?}");
        assert!(used.resident_bytes > 1 << 20, "{used:?}");
        let other = Usage { pid: 1, ..before };
        assert!(
            Usage::of(pid)
                .expect("this process")
                .since(&other)
                .is_none()
        );
    }
}
