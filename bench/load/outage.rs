//! How long a broker was away, as its producers saw it.

use super::clock::MS;
use crate::bench::measure::recorder::Window;

/// Length of the intervals in which acknowledgements are counted, in ns.
const INTERVAL_NS: u64 = 100 * MS;

/// Share of the rate before the outage at which the broker has recovered.
const RECOVERED: f64 = 0.9;

/// Acknowledgements in time, and the greatest gap between two of them.
#[derive(Clone, Debug)]
pub struct Outage {
    window: Window,
    first_loss: Option<u64>,
    last: Option<u64>,
    gap: (u64, u64),
    intervals: Vec<u64>,
    lost_in_flight: u64,
    longest_wait: u64,
}

impl Outage {
    /// Nothing seen yet.
    pub fn new(window: Window) -> Outage {
        Outage {
            window,
            first_loss: None,
            last: None,
            gap: (0, 0),
            intervals: Vec::new(),
            lost_in_flight: 0,
            longest_wait: 0,
        }
    }

    /// Messages were acknowledged.
    pub fn acknowledged(&mut self, now: u64, messages: u64) {
        if let Some(last) = self.last.replace(now) {
            if now - last > self.gap.1 - self.gap.0 {
                self.gap = (last, now);
            }
        }
        if self.window.contains(now) {
            let at = ((now - self.window.from) / INTERVAL_NS) as usize;
            if self.intervals.len() <= at {
                self.intervals.resize(at + 1, 0);
            }
            self.intervals[at] += messages;
        }
    }

    /// A connection was lost, with requests under way that were due at these times. Returns the
    /// first of those that count.
    pub fn lost(&mut self, now: u64, dues: impl Iterator<Item = u64>) -> Option<u64> {
        self.first_loss.get_or_insert(now);
        let counts = dues.filter(|&due| self.window.contains(due));
        counts.inspect(|_| self.lost_in_flight += 1).min()
    }

    /// Its sender has a connection again, or has ended. What was lost was first due at `due`.
    pub fn connected(&mut self, now: u64, due: u64) {
        self.longest_wait = self.longest_wait.max(now.saturating_sub(due));
    }

    /// Requests due in the window of which no latency is known: they were under way when their
    /// connection was lost.
    pub fn lost_in_flight(&self) -> u64 {
        self.lost_in_flight
    }

    /// The longest time from when one of them was due until its sender had a connection again, in
    /// ms.
    pub fn longest_wait_ms(&self) -> f64 {
        self.longest_wait as f64 / MS as f64
    }

    /// Whether a connection was ever lost.
    pub fn was_lost(&self) -> bool {
        self.first_loss.is_some()
    }

    /// Whether anything was acknowledged after the loss.
    pub fn is_over(&self) -> bool {
        self.last > self.first_loss
    }

    /// Greatest time between two acknowledgements, in ms.
    pub fn downtime_ms(&self) -> f64 {
        (self.gap.1 - self.gap.0) as f64 / MS as f64
    }

    /// From the first loss to the end of the first interval with at least 90 % of the rate
    /// before it, in ms; `None` where that never came.
    pub fn recovery_ms(&self) -> Option<f64> {
        let loss = self.first_loss?.checked_sub(self.window.from)?;
        let whole = (loss / INTERVAL_NS) as usize;
        let before = self.intervals.get(..whole)?;
        let rate = before.iter().sum::<u64>() as f64 / whole.max(1) as f64;
        let after = self.intervals.iter().enumerate().skip(whole + 1);
        let recovered = after
            .into_iter()
            .find(|&(_, &count)| count > 0 && count as f64 >= rate * RECOVERED);
        let (at, _) = recovered?;
        let end = (at as u64 + 1) * INTERVAL_NS;
        Some((end - loss) as f64 / MS as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_the_downtime() {
        let from = 1_000 * MS;
        let mut outage = Outage::new(Window {
            from,
            until: from + 10_000 * MS,
        });
        let mut at = from;
        while at < from + 2_000 * MS {
            outage.acknowledged(at, 1);
            at += 10 * MS;
        }
        assert!(!outage.was_lost());
        let dues = [from + 2_001 * MS, from - 1, from + 1_990 * MS];
        let first = outage.lost(from + 2_005 * MS, dues.into_iter());
        assert_eq!(first, Some(from + 1_990 * MS));
        assert_eq!(outage.lost(from + 2_006 * MS, [].into_iter()), None);
        outage.connected(from + 2_500 * MS, from + 1_990 * MS);
        outage.connected(from + 2_400 * MS, from + 1_995 * MS);
        // Of the warm-up there are no latencies either.
        assert_eq!(outage.lost_in_flight(), 2);
        assert_eq!(outage.longest_wait_ms(), 510.0);
        assert!(!outage.is_over());
        // Half the rate at first.
        for step in 0..50 {
            outage.acknowledged(from + 3_000 * MS + step * 20 * MS, 1);
        }
        assert!(outage.is_over());
        assert_eq!(outage.recovery_ms(), None);
        for step in 0..100 {
            outage.acknowledged(from + 4_000 * MS + step * 10 * MS, 1);
        }
        assert_eq!(outage.downtime_ms(), 1_010.0);
        assert_eq!(outage.recovery_ms(), Some(2_095.0));
    }
}
