//! Asks the machine, before anything is started, for what RingMQ needs of it.
//!
//! What is missing is named together with the way to get it, all of it at once, instead of the
//! panic or the bare error number that a ring gives halfway through the start. Runs on the main
//! thread, once.

mod device;
mod flush;
pub mod io;
mod machine;
mod memory;
pub mod profile;
mod ring;
mod store;

pub use device::DeviceIdentity;
pub use flush::{FlushCost, flush_cost};
pub use machine::Kernel;
pub use memory::memory_bytes;
pub use ring::{KERNEL_BETTER, KERNEL_MIN, RingError};
pub use store::{DirectIo, direct_io};

use crate::config::limits::FILES_BESIDE_CONNECTIONS;
use ring::KERNEL_COOPERATIVE;
use std::fmt;
use std::path::{Path, PathBuf};

/// Smallest limit of locked memory with which an executor starts, in bytes
/// (`Reactor::new` of glommio, whatever the capabilities of the process).
pub const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;

/// Locked memory that the rings of one executor take, in bytes, rounded up: 100 KiB of its own
/// ring, 48 KiB of glommio's three, and 192 KiB of buffers that these register.
const MEMLOCK_BYTES_PER_EXECUTOR: u64 = 448 * 1024;

/// Since then a ring's memory counts against the limit of locked memory.
const KERNEL_COUNTS_RINGS: Kernel = Kernel {
    major: 6,
    minor: 14,
};

/// What is going to be started.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Folder of the store; `None` for a nameserver, which has none.
    pub store: Option<&'a Path>,
    /// Executors.
    pub shards: u16,
    /// Connections, at most.
    pub connections_max: u32,
}

/// What the machine has. Everything needed is there.
#[derive(Debug)]
pub struct Report {
    /// The running kernel.
    pub kernel: Kernel,
    /// Limit of locked memory after it was raised as far as allowed, in bytes.
    pub memlock_bytes: u64,
    /// Limit of open files after it was raised as far as allowed.
    pub files: u64,
    /// How the store's file system does direct I/O; `None` without a store.
    pub direct_io: Option<DirectIo>,
    /// What would be better otherwise. RingMQ runs without.
    pub advice: Vec<Advice>,
}

/// Something needed that the machine does not have, and how to get it.
#[derive(Debug)]
pub enum Missing {
    /// The kernel is older than [`KERNEL_MIN`].
    Kernel(Kernel),
    /// No ring can be made.
    Ring(RingError),
    /// The kernel's rings lack these operations.
    Operations(Vec<&'static str>),
    /// The limit of locked memory is too low for the executors.
    Memlock {
        /// What may be locked, in bytes.
        have: u64,
        /// What is needed, in bytes.
        need: u64,
    },
    /// The store's folder cannot be used.
    Store {
        /// The folder.
        path: PathBuf,
        /// What was tried there.
        doing: &'static str,
        /// Why it failed.
        error: std::io::Error,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Kernel(kernel) => write!(
                f,
                "Linux {kernel} is older than {KERNEL_MIN}: its io_uring lacks what is needed; \
                 update the kernel (of the host, if this is a container)"
            ),
            Missing::Ring(error) => error.fmt(f),
            Missing::Operations(names) => write!(
                f,
                "io_uring of this kernel lacks {}: update the kernel, or lift the restriction \
                 that hides them",
                names.join(", ")
            ),
            Missing::Memlock { have, need } => write!(
                f,
                "{} KiB of memory may be locked and {} KiB are needed: `ulimit -l unlimited`, \
                 LimitMEMLOCK=infinity (systemd), or --ulimit memlock=-1 (docker)",
                have / 1024,
                need / 1024
            ),
            Missing::Store { path, doing, error } => write!(
                f,
                "cannot {doing} the store's folder {}: {error}; name another with --store, or \
                 give this user the right to write there",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Missing {}

/// Something that would be better otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The kernel is older than [`KERNEL_BETTER`].
    OldKernel(Kernel),
    /// Fewer files may be open than connections are allowed: files, and files needed.
    FewFiles(u64, u64),
    /// The store is written through the page cache, because of this.
    NoDirectIo(String),
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::OldKernel(kernel) if *kernel < KERNEL_COOPERATIVE => write!(
                f,
                "Linux {kernel} is older than {KERNEL_BETTER}: whatever comes interrupts a busy \
                 shard (since {KERNEL_COOPERATIVE} it waits for the shard's next system call, \
                 since {KERNEL_BETTER} until the shard asks)"
            ),
            Advice::OldKernel(kernel) => write!(
                f,
                "Linux {kernel} is older than {KERNEL_BETTER}: whatever comes is worked on at a \
                 shard's next system call, and not when the shard asks"
            ),
            Advice::FewFiles(have, need) => write!(
                f,
                "{have} files may be open, and connectionsMax asks for {need}: connections above \
                 that are refused (LimitNOFILE, ulimit -n)"
            ),
            Advice::NoDirectIo(reason) => write!(
                f,
                "the store is written through the page cache: {reason}; expect longer pauses \
                 under load"
            ),
        }
    }
}

/// Checks everything, makes the store's folder, and raises the limits of locked memory and
/// open files as far as this user may. Everything that is missing is returned, not only the
/// first.
pub fn run(plan: &Plan<'_>) -> Result<Report, Vec<Missing>> {
    let mut missing = Vec::new();
    let kernel = Kernel::running();
    let memory = machine::raise_memlock();
    let files = machine::raise_files(files_needed(plan));
    if let Err(error) = ring() {
        missing.push(error);
    }
    let need = memlock_needed(plan, kernel, machine::may_lock_memory());
    if memory < need {
        missing.push(Missing::Memlock { have: memory, need });
    }
    let direct_io = match plan.store.map(store::prepare).transpose() {
        Ok(direct_io) => direct_io,
        Err(error) => {
            missing.push(error);
            None
        }
    };
    if !missing.is_empty() {
        return Err(missing);
    }
    Ok(Report {
        advice: advise(plan, kernel, files, direct_io.as_ref()),
        kernel,
        memlock_bytes: memory,
        files,
        direct_io,
    })
}

/// Makes a ring as this process may, and looks whether it can do what RingMQ asks of it.
///
/// # Errors
/// What is in the way: the kernel, a setting of it, or a filter.
pub fn ring() -> Result<(), Missing> {
    let kernel = Kernel::running();
    if kernel < KERNEL_MIN {
        return Err(Missing::Kernel(kernel));
    }
    match ring::operations_missing() {
        Ok(names) if names.is_empty() => Ok(()),
        Ok(names) => Err(Missing::Operations(names)),
        Err(error) => Err(Missing::Ring(error)),
    }
}

/// Bytes that must be allowed to be locked, for the shards and a nameserver beside them.
fn memlock_needed(plan: &Plan<'_>, kernel: Kernel, is_free: bool) -> u64 {
    if is_free || kernel < KERNEL_COUNTS_RINGS {
        return MEMLOCK_BYTES_MIN;
    }
    let executors = u64::from(plan.shards) + 1;
    MEMLOCK_BYTES_MIN.max(executors * MEMLOCK_BYTES_PER_EXECUTOR)
}

fn files_needed(plan: &Plan<'_>) -> u64 {
    u64::from(plan.connections_max) + FILES_BESIDE_CONNECTIONS
}

fn advise(
    plan: &Plan<'_>,
    kernel: Kernel,
    files: u64,
    direct_io: Option<&DirectIo>,
) -> Vec<Advice> {
    let mut advice = Vec::new();
    if kernel < KERNEL_BETTER {
        advice.push(Advice::OldKernel(kernel));
    }
    if files < files_needed(plan) {
        advice.push(Advice::FewFiles(files, files_needed(plan)));
    }
    if let Some(DirectIo::Unsupported(reason)) = direct_io {
        advice.push(Advice::NoDirectIo(reason.clone()));
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan<'static> = Plan {
        store: None,
        shards: 2,
        connections_max: 100,
    };

    fn kernel(text: &str) -> Kernel {
        Kernel::parse(text).expect("a version")
    }

    #[test]
    fn a_good_machine_gets_no_advice() {
        let direct = DirectIo::Aligned(512);
        let all = advise(&PLAN, kernel("6.1.0"), 1 << 20, Some(&direct));
        assert_eq!(all, []);
    }

    #[test]
    fn an_older_kernel_is_told_what_it_lacks() {
        let text = |release| {
            let all = advise(&PLAN, kernel(release), 1 << 20, None);
            all.iter().map(Advice::to_string).collect::<String>()
        };
        assert!(text("5.13").contains("interrupts"));
        assert!(text("5.18").contains("interrupts"));
        assert!(!text("5.19").contains("interrupts") && !text("5.19").is_empty());
        assert!(text("6.0").contains("next system call"));
        assert_eq!(text("6.1"), "");
    }

    #[test]
    fn what_is_worse_is_named_and_does_not_stop_the_start() {
        let direct = DirectIo::Unsupported("tmpfs".to_owned());
        let all = advise(&PLAN, kernel("5.15"), 1024, Some(&direct));
        let text: Vec<String> = all.iter().map(Advice::to_string).collect();
        assert!(text[0].starts_with("Linux 5.15 is older than 6.1"));
        assert!(text[1].starts_with("1024 files may be open, and connectionsMax asks for 4196"));
        assert!(text[2].contains("page cache: tmpfs"));
    }

    #[test]
    fn rings_need_locked_memory_where_the_kernel_counts_it() {
        let need = |release, is_free| memlock_needed(&PLAN, kernel(release), is_free);
        assert_eq!(need("6.12", false), MEMLOCK_BYTES_MIN);
        assert_eq!(need("6.18", true), MEMLOCK_BYTES_MIN);
        let executors = u64::from(PLAN.shards) + 1;
        assert_eq!(need("6.14", false), executors * 448 * 1024);
        let small = Plan { shards: 0, ..PLAN };
        let one = memlock_needed(&small, kernel("6.14"), false);
        assert_eq!(one, MEMLOCK_BYTES_MIN);
    }

    #[test]
    fn what_is_missing_comes_with_a_remedy() {
        let old = Missing::Kernel(kernel("5.10.0-28-amd64"));
        assert!(old.to_string().starts_with("Linux 5.10 is older than 5.13"));
        let (have, need) = (64 * 1024, MEMLOCK_BYTES_MIN);
        let memory = Missing::Memlock { have, need }.to_string();
        assert!(memory.starts_with("64 KiB") && memory.contains("LimitMEMLOCK"));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let plan = Plan {
            store: Some(Path::new("/proc/ringmq")),
            ..PLAN
        };
        let missing = run(&plan).expect_err("nothing can be made there");
        let text = missing[missing.len() - 1].to_string();
        assert!(
            text.starts_with("cannot create the store's folder /proc/ringmq"),
            "{text}"
        );
    }
}
