//! The time by which the silence of brokers is measured.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A clock that no setting of the machine's time moves, and that stands still while this
/// process does: who was paused together with its brokers has not heard them be silent.
pub(super) struct Clock {
    started: Instant,
    /// Time between two looks.
    interval: Duration,
    last_look: Cell<Duration>,
    /// Time that does not count.
    lost: Cell<Duration>,
}

impl Clock {
    /// Starts at 0; [`Clock::look`] is to be called each `interval`.
    pub fn new(interval: Duration) -> Clock {
        Clock {
            started: Instant::now(),
            interval,
            last_look: Cell::default(),
            lost: Cell::default(),
        }
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.at(self.started.elapsed())
    }

    /// Notes that the process runs. When it has not for a whole interval, what is
    /// more than one does not count.
    pub fn look(&self) {
        self.look_at(self.started.elapsed());
    }

    fn at(&self, elapsed: Duration) -> u64 {
        elapsed.saturating_sub(self.lost.get()).as_millis() as u64
    }

    fn look_at(&self, elapsed: Duration) {
        let passed = elapsed.saturating_sub(self.last_look.replace(elapsed));
        if passed > self.interval * 2 {
            self.lost.set(self.lost.get() + passed - self.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_pause_counts_as_one_interval_and_lateness_counts() {
        let clock = Clock::new(seconds(5));
        for at in [5, 10, 19] {
            clock.look_at(seconds(at));
            assert_eq!(clock.at(seconds(at)), at * 1000);
        }
        clock.look_at(seconds(19 + 600));
        assert_eq!(clock.at(seconds(619)), 24_000);
        clock.look_at(seconds(624));
        assert_eq!(clock.at(seconds(624)), 29_000);
    }
}
