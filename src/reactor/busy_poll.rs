//! Whether a thread that has nothing to do polls for a moment before it sleeps: to be woken costs
//! it, and whoever wakes it, more than that, above all on a virtual machine, where it takes an
//! interrupt of another processor.

use std::cell::Cell;
use std::time::Duration;

/// Most waits in a row that are slept through, after polling was not worth it again and again.
const PAUSE_MAX: u32 = 4096;

/// Most credit, in waits: so long polling may be in vain, once it has long been worth it.
const PATIENCE: i64 = 10;

/// Polling is for threads to whom something comes soon nearly each time, as from clients that
/// send the next request upon an answer. A wait is worth three fifths of the longest time that it
/// may be polled: what is spent less is credit, and where that is used up the thread sleeps, the next
/// time it waits, and each time that this happens again twice as many times.
#[derive(Default)]
pub(super) struct BusyPoll {
    /// Longest time that one wait is polled, in nanoseconds; 0: never.
    longest: Cell<i64>,
    /// What has been spent less than it was worth, in nanoseconds.
    credit: Cell<i64>,
    /// Waits to come that are slept through, and how many they were when there began to be some.
    pause: Cell<u32>,
    last_pause: Cell<u32>,
}

impl BusyPoll {
    /// From now on each wait is polled for so long at most.
    pub fn set_longest(&self, longest: Duration) {
        self.longest.set(longest.as_nanos() as i64);
    }

    /// A wait begins: how long it is to be polled at most, if at all.
    pub fn begin(&self) -> Option<Duration> {
        match (self.longest.get(), self.pause.get()) {
            (0, _) => None,
            (longest, 0) => Some(Duration::from_nanos(longest as u64)),
            (_, pause) => {
                self.pause.set(pause - 1);
                None
            }
        }
    }

    /// So long was polled until something came, or in vain.
    pub fn end(&self, spent: Duration) {
        let worth = self.longest.get() * 3 / 5;
        let full = worth * PATIENCE;
        let credit = self.credit.get() + worth - spent.as_nanos() as i64;
        if credit < 0 {
            let pause = (self.last_pause.get() * 2).clamp(1, PAUSE_MAX);
            self.pause.set(pause);
            self.last_pause.set(pause);
        } else if credit >= full {
            self.last_pause.set(0);
        }
        self.credit.set(credit.clamp(0, full));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(40);

    /// Of so many waits, each of which lasts so long, those that are polled.
    fn polled(poll: &BusyPoll, waits: u32, each: Duration) -> u32 {
        let polled = (0..waits).filter(|_| match poll.begin() {
            Some(longest) => {
                poll.end(each.min(longest));
                true
            }
            None => false,
        });
        polled.count() as u32
    }

    #[test]
    fn short_waits_are_polled_and_long_ones_hardly_ever() {
        let poll = BusyPoll::default();
        assert_eq!(polled(&poll, 100, Duration::ZERO), 0, "not unless asked to");
        poll.set_longest(LONGEST);
        let (short, long) = (Duration::from_micros(12), Duration::from_millis(1));
        assert_eq!(polled(&poll, 1000, short), 1000);
        // Few of them change nothing.
        assert_eq!(polled(&poll, 9, long), 9);
        assert_eq!(polled(&poll, 1000, short), 1000);
        let begun = polled(&poll, 100_000, long);
        assert!((20..60).contains(&begun), "{begun}");
        // And short ones are found again.
        let again = polled(&poll, 20_000, short);
        assert!(again > 10_000, "{again}");
    }

    #[test]
    fn what_is_polled_costs_no_more_than_it_is_worth() {
        let poll = BusyPoll::default();
        poll.set_longest(LONGEST);
        let (waits, mut spent) = (100_000, Duration::ZERO);
        // One in three comes at once.
        for wait in 0..waits {
            if poll.begin().is_some() {
                let took = if wait % 3 == 0 {
                    Duration::ZERO
                } else {
                    LONGEST
                };
                spent += took;
                poll.end(took);
            }
        }
        assert!(spent < LONGEST / 2 * waits / 100, "{spent:?}");
    }
}
