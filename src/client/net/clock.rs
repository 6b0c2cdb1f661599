//! The time. What ends, is sent again or waits does so by a clock that never goes back nor jumps,
//! and that goes on while the machine is suspended, as brokers do, whose locks end meanwhile; the
//! wall clock is for stamps alone.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::client::core::io::Now;

/// The client's clock, ms since the machine was started.
pub(crate) fn clock_ms() -> u64 {
    clock_ns() / NS_PER_MS
}

/// The same, rounded up: what begins then has the whole of its time.
pub(crate) fn clock_ms_up() -> u64 {
    clock_ns().div_ceil(NS_PER_MS)
}

const NS_PER_MS: u64 = 1_000_000;

fn clock_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to `time`. Every Linux with io_uring has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000 * NS_PER_MS + time.tv_nsec as u64
}

/// The time by both clocks.
pub(super) fn now() -> Now {
    Now {
        at: clock_ms(),
        wall: wall_ms(),
    }
}

/// Wall clock, ms since 1970; 0 before.
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let wall = since.map_or(0, |since| since.as_millis() as i64);
    #[cfg(test)]
    let wall = wall.saturating_add(JUMPED_MS.load(std::sync::atomic::Ordering::Relaxed));
    wall
}

/// By how much somebody has set the wall clock of this process's clients, ms.
#[cfg(test)]
pub(super) static JUMPED_MS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    /// The time that the machine is up, suspended or not, as the system says it.
    #[test]
    fn the_clock_counts_the_time_for_which_the_machine_was_suspended() {
        let up = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
            (seconds * 1_000.0) as u64
        };
        let (before, at, after) = (up(), clock_ms(), up());
        // The system says hundredths.
        assert!(before <= at && at <= after + 10, "{before} {at} {after}");
    }
}
