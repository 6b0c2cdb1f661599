//! Time and processor time, in nanoseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One millisecond.
pub const MS: u64 = 1_000_000;
/// One second.
pub const SECOND: u64 = 1_000_000_000;

/// The monotonic clock, the same in all processes of this machine.
pub fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Processor time of the calling thread.
pub fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Time in which the calling thread could have run, but others were on the processors; `None`
/// where the kernel does not count it.
pub fn thread_run_delay() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Processor time of this process, ended threads included.
pub fn process_cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor time of another process; `None` where it is not there.
pub fn cpu_of(pid: u32) -> Option<u64> {
    let mut clock = 0;
    let pid = libc::pid_t::try_from(pid).ok()?;
    // SAFETY: `clock` is a valid place for the result.
    if unsafe { libc::clock_getcpuclockid(pid, &mut clock) } != 0 {
        return None;
    }
    try_read(clock)
}

/// Milliseconds since 1970.
pub fn epoch_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64
}

/// Seconds as nanoseconds.
pub fn nanos(seconds: f64) -> u64 {
    (seconds * SECOND as f64) as u64
}

/// Sleeps until the monotonic clock shows `at`.
pub fn sleep_until(at: u64) {
    let now = now();
    if at > now {
        std::thread::sleep(Duration::from_nanos(at - now));
    }
}

fn read(clock: libc::clockid_t) -> u64 {
    try_read(clock).unwrap_or(0)
}

fn try_read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    (status == 0).then(|| time.tv_sec as u64 * SECOND + time.tv_nsec as u64)
}
