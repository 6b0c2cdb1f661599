//! How fast a topic is pulled and consumed, as tools read it (`ConsumerStatsManager`,
//! `ConsumeStatus`): of the last minute, failures of the last hour.

use serde::Serialize;

/// Parts of a window: so much of it, one part, comes and goes at once.
const PARTS: u64 = 6;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// Sums over a time that moves on.
#[derive(Clone, Debug)]
struct Window<const SUMS: usize> {
    part_ms: u64,
    /// Each with its number since the clock began.
    parts: [(u64, [u64; SUMS]); PARTS as usize],
}

impl<const SUMS: usize> Window<SUMS> {
    fn new(long_ms: u64) -> Window<SUMS> {
        Window {
            part_ms: long_ms / PARTS,
            parts: [(0, [0; SUMS]); PARTS as usize],
        }
    }

    fn add(&mut self, now: u64, values: [u64; SUMS]) {
        let number = now / self.part_ms;
        let part = &mut self.parts[(number % PARTS) as usize];
        if part.0 != number {
            *part = (number, [0; SUMS]);
        }
        for (sum, value) in part.1.iter_mut().zip(values) {
            *sum = sum.saturating_add(value);
        }
    }

    fn sums(&self, now: u64) -> [u64; SUMS] {
        let last = now / self.part_ms;
        let mut sums = [0_u64; SUMS];
        let parts = self.parts.iter();
        for (_, part) in parts.filter(|(number, _)| number + PARTS > last) {
            for (sum, value) in sums.iter_mut().zip(part) {
                *sum = sum.saturating_add(*value);
            }
        }
        sums
    }
}

/// What happens to the messages of one topic.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// Since when it is counted, ms.
    since: u64,
    /// Pulls that brought something, the time that they took, ms, and what they brought.
    pulls: Window<3>,
    /// Batches that listeners had, the time that they took, ms, and what became of the messages:
    /// consumed, failed.
    batches: Window<4>,
    failed: Window<1>,
}

/// `ConsumeStatus`; times in ms, the others per second, failures of an hour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Status {
    #[serde(rename = "consumeFailedMsgs")]
    consume_failed_msgs: u64,
    #[serde(rename = "consumeFailedTPS")]
    consume_failed_tps: f64,
    #[serde(rename = "consumeOKTPS")]
    consume_ok_tps: f64,
    #[serde(rename = "consumeRT")]
    consume_rt: f64,
    #[serde(rename = "pullRT")]
    pull_rt: f64,
    #[serde(rename = "pullTPS")]
    pull_tps: f64,
}

impl Rates {
    pub fn new(now: u64) -> Rates {
        Rates {
            since: now,
            pulls: Window::new(MINUTE_MS),
            batches: Window::new(MINUTE_MS),
            failed: Window::new(HOUR_MS),
        }
    }

    /// A pull brought so many messages.
    pub fn pulled(&mut self, now: u64, took_ms: u64, messages: usize) {
        self.pulls.add(now, [1, took_ms, messages as u64]);
    }

    /// A listener had a batch, of which so many messages were consumed and so many failed.
    pub fn consumed(&mut self, now: u64, took_ms: u64, good: u64, bad: u64) {
        self.batches.add(now, [1, took_ms, good, bad]);
        if bad > 0 {
            self.failed.add(now, [bad]);
        }
    }

    pub fn status(&self, now: u64) -> Status {
        let [pulls, pull_ms, pulled] = self.pulls.sums(now);
        let [batches, batch_ms, good, bad] = self.batches.sums(now);
        let [failed] = self.failed.sums(now);
        let seconds = now.saturating_sub(self.since).clamp(1_000, MINUTE_MS) as f64 / 1_000.0;
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        Status {
            consume_failed_msgs: failed,
            consume_failed_tps: bad as f64 / seconds,
            consume_ok_tps: good as f64 / seconds,
            consume_rt: mean(batch_ms, batches),
            pull_rt: mean(pull_ms, pulls),
            pull_tps: pulled as f64 / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_minute_and_failures_those_of_the_last_hour() {
        let began = 1_000_000;
        let mut rates = Rates::new(began);
        assert_eq!(rates.status(began).pull_tps, 0.0);
        rates.pulled(began + 1_000, 30, 32);
        rates.pulled(began + 2_000, 10, 8);
        rates.consumed(began + 2_000, 100, 3, 1);
        let at = began + 20_000;
        let status = rates.status(at);
        assert_eq!((status.pull_rt, status.pull_tps), (20.0, 2.0));
        assert_eq!((status.consume_rt, status.consume_ok_tps), (100.0, 0.15));
        assert_eq!(
            (status.consume_failed_tps, status.consume_failed_msgs),
            (0.05, 1)
        );
        let status = rates.status(began + 2 * MINUTE_MS);
        assert_eq!((status.pull_tps, status.consume_rt), (0.0, 0.0));
        assert_eq!(status.consume_failed_msgs, 1);
        assert_eq!(rates.status(began + 2 * HOUR_MS).consume_failed_msgs, 0);
        // A steady stream is what it is.
        let mut rates = Rates::new(0);
        for second in 0..600 {
            rates.consumed(second * 1_000, 5, 10, 0);
        }
        let tps = rates.status(599_000).consume_ok_tps;
        assert!((8.0..=10.0).contains(&tps), "{tps}");
    }
}
