//! What the runs were made on.

use crate::bench::result::Machine;
use std::fs;

/// The machine as it describes itself; what it does not tell is empty.
pub fn machine() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    });
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        processor: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_bytes: ringmq::probe::memory_bytes(),
        kernel: release.trim().to_owned(),
        file_system: String::new(),
    }
}

/// Raises the limit of open files as far as allowed, for `connections` and some more.
///
/// # Errors
/// Text with the limit, where it is too low.
pub fn allow_connections(connections: usize) -> Result<(), String> {
    const BESIDE: u64 = 64;
    let wanted = connections as u64 + BESIDE;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the result.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Ok(());
    }
    if limit.rlim_cur < wanted && limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a valid limit for the length of the call.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
    if limit.rlim_cur < wanted {
        return Err(format!(
            "{connections} connections need {wanted} open files and {} are allowed: ulimit -n",
            limit.rlim_cur
        ));
    }
    Ok(())
}
