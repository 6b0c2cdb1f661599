//! The time. What ends, is sent again or waits does so by a clock that never goes back nor jumps;
//! the wall clock is for stamps alone.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::client::core::io::Now;

/// The time, given when the clock began.
pub(super) fn now_since(began: Instant) -> Now {
    Now {
        at: began.elapsed().as_millis() as u64,
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
