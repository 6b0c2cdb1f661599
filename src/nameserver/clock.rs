//! The time by which the silence of brokers is measured.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A clock that no setting of the machine's time moves, and that hardly goes on while this
/// process stands still: who was paused together with its brokers has not heard them be silent.
pub(super) struct Clock {
    started: Instant,
    /// Longest time between two looks that counts.
    longest: Duration,
    last_look: Cell<Duration>,
    /// What had counted then.
    counted: Cell<Duration>,
}

impl Clock {
    /// Starts at 0. [`Clock::look`] is to be called each `interval`; what is more than two of them
    /// does not count.
    pub fn new(interval: Duration) -> Clock {
        Clock {
            started: Instant::now(),
            longest: interval * 2,
            last_look: Cell::default(),
            counted: Cell::default(),
        }
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.at(self.started.elapsed()).as_millis() as u64
    }

    /// Notes that the process runs.
    pub fn look(&self) {
        self.look_at(self.started.elapsed());
    }

    fn at(&self, elapsed: Duration) -> Duration {
        let passed = elapsed.saturating_sub(self.last_look.get());
        self.counted.get() + passed.min(self.longest)
    }

    fn look_at(&self, elapsed: Duration) {
        self.counted.set(self.at(elapsed));
        self.last_look.set(elapsed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_as_two_intervals_and_lateness_counts() {
        let clock = Clock::new(Duration::from_secs(5));
        for (at, counted) in [(5, 5), (10, 10), (19, 19), (619, 29), (624, 34)] {
            let at = Duration::from_secs(at);
            let before = clock.at(at);
            clock.look_at(at);
            assert_eq!(
                (before, clock.at(at)),
                (Duration::from_secs(counted), before)
            );
        }
    }
}
