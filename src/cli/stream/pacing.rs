//! So many messages a second.

use std::time::{Duration, Instant};

/// When each message may go, so that there are no more than so many a second.
#[derive(Debug)]
pub struct Pacing {
    begin: Instant,
    per_second: Option<f64>,
    done: u64,
}

impl Pacing {
    /// Begins now; `None` is as fast as it goes.
    pub fn new(per_second: Option<f64>) -> Pacing {
        Pacing {
            begin: Instant::now(),
            per_second,
            done: 0,
        }
    }

    /// How long the next message has to wait at `now`, which counts it.
    pub fn wait(&mut self, now: Instant) -> Duration {
        let Some(per_second) = self.per_second else {
            return Duration::ZERO;
        };
        let due = Duration::from_secs_f64(self.done as f64 / per_second);
        self.done += 1;
        let late = now
            .saturating_duration_since(self.begin)
            .saturating_sub(due);
        if late > Duration::from_secs(1) {
            // What was missed for longer is not caught up with.
            self.begin = now;
            self.done = 1;
            return Duration::ZERO;
        }
        due.saturating_sub(now.saturating_duration_since(self.begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_spread_over_the_second() {
        let mut pacing = Pacing::new(Some(10.0));
        let begin = pacing.begin;
        assert_eq!(pacing.wait(begin), Duration::ZERO);
        assert_eq!(pacing.wait(begin), Duration::from_millis(100));
        assert_eq!(
            pacing.wait(begin + Duration::from_millis(150)),
            Duration::from_millis(50)
        );
        // A pause of the input does not end in a burst.
        let late = begin + Duration::from_secs(60);
        assert_eq!(pacing.wait(late), Duration::ZERO);
        assert_eq!(pacing.wait(late), Duration::from_millis(100));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacing = Pacing::new(None);
        assert!((0..1000).all(|_| pacing.wait(Instant::now()).is_zero()));
    }
}
