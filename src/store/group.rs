//! Group commit: how long a write that somebody waits for waits for company.
//!
//! Who was just acknowledged often sends again at once. A write that leaves with the first
//! of them makes all others wait for two: its end, and that of the next. So a write waits
//! a moment, if it is known that more take part than are there, and no longer than half of
//! what a write takes.

use std::time::Duration;

/// Longest wait for company.
const WAIT_MAX: Duration = Duration::from_micros(200);

/// Bytes that are worth a write, however many more may come. From there on a write takes
/// longer the more there are, and the device would be idle while they gather.
const WORTH_MAX: u64 = 256 * 1024;

/// What the last writes tell of the next.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Bytes that were under way together: being written, or waiting for that.
    together: u64,
    /// Time that a write took, averaged.
    took: Duration,
}

impl Group {
    /// A write of `bytes` was promised after `took`; `waiting` bytes had come meanwhile.
    pub fn written(&mut self, bytes: u64, waiting: u64, took: Duration) {
        // Fewer take part from one time to the next: it is found out soon, not at once.
        self.together = (self.together - self.together / 4).max(bytes + waiting);
        self.took = (self.took * 7 + took) / 8;
    }

    /// Bytes that are worth a write.
    pub fn worth(&self) -> u64 {
        (self.together * 7 / 8).min(WORTH_MAX)
    }

    /// Longest time to wait for them.
    pub fn patience(&self) -> Duration {
        (self.took / 2).min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Duration = Duration::from_micros(120);

    #[test]
    fn one_sender_alone_never_waits() {
        let mut group = Group::default();
        assert_eq!((group.worth(), group.patience()), (0, Duration::ZERO));
        for _ in 0..50 {
            group.written(1000, 0, WRITE);
            assert!(group.worth() <= 1000);
        }
    }

    #[test]
    fn many_senders_wait_for_most_of_them_and_for_half_a_write_at_most() {
        let mut group = Group::default();
        for _ in 0..50 {
            group.written(16_000, 48_000, WRITE);
            group.written(48_000, 0, WRITE);
        }
        assert!((42_000..=56_000).contains(&group.worth()));
        assert!(group.patience() <= WRITE / 2 && group.patience() > WRITE / 3);
        for _ in 0..50 {
            group.written(64_000, 0, Duration::from_millis(30));
        }
        assert_eq!((group.worth(), group.patience()), (56_000, WAIT_MAX));
        group.written(2_000_000, 0, WRITE);
        assert_eq!(group.worth(), WORTH_MAX);
    }

    #[test]
    fn that_fewer_take_part_is_found_out_soon() {
        let mut group = Group::default();
        group.written(1 << 20, 0, WRITE);
        for _ in 0..25 {
            group.written(1000, 0, WRITE);
        }
        assert!(group.worth() <= 1000);
    }
}
