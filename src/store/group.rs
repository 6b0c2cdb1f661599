//! Group commit: when a write begins that somebody waits for.
//!
//! Who was just acknowledged often sends again at once. A write that leaves with the first
//! of them makes all others wait for two: its end, and that of the next. So a write waits
//! a moment, if it is known that more take part than are there, and no longer than half of
//! what a write takes.
//!
//! Where many take part they are made two halves: the device works for one while the other
//! sends.

use std::time::Duration;

use super::BLOCK_BYTES;

/// Longest wait for company.
const WAIT_MAX: Duration = Duration::from_micros(200);

/// Bytes that are worth one of two writes, however many more may come. From there on a write
/// takes longer the more there are, and the device would be idle while they gather. Two of
/// that are worth two writes: with less, one write of all wakes fewer threads (measured on two
/// cores, two halves of 72 KiB were a fifth slower).
const WORTH_MAX: u64 = 128 * 1024;

/// But no more than this part of the largest write.
const WORTH_PART: u64 = 8;

/// What the last writes tell of the next.
#[derive(Debug)]
pub(super) struct Group {
    /// Bytes that are worth one of two writes.
    worth_max: u64,
    /// Bytes that were under way together: being written, or waiting for that.
    together: u64,
    /// Time that a write took, averaged.
    took: Duration,
}

/// When the next write begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// Now, with all that there is, or `whole` blocks of it: the next may begin before it ends.
    Now { whole: bool },
    /// With what is there after a wait.
    After(Duration),
    /// When more has come, or a write has ended.
    NotYet,
}

impl Group {
    /// Of writes of up to `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Group {
        Group {
            worth_max: WORTH_MAX.min(bytes_max as u64 / WORTH_PART),
            together: 0,
            took: Duration::ZERO,
        }
    }

    /// A write of `bytes` was promised after `took`; `others` were being written or waited
    /// then.
    pub fn written(&mut self, bytes: u64, others: u64, took: Duration) {
        // Fewer take part from one time to the next: it is found out soon, not at once.
        self.together = (self.together - self.together / 4).max(bytes + others);
        self.took = (self.took * 7 + took) / 8;
    }

    fn is_two(&self) -> bool {
        self.together >= 2 * self.worth_max
    }

    /// Bytes that are worth a write.
    pub fn worth(&self) -> u64 {
        let most = self.together * 7 / 8;
        match self.is_two() {
            true => (most / 2).min(self.worth_max),
            false => most,
        }
    }

    /// Whether a write may begin while so many others are under way.
    pub fn has_place(&self, under_way: usize) -> bool {
        under_way == 0 || (under_way == 1 && self.is_two())
    }

    /// When to begin a write of the `waiting` bytes, while so many others are under way.
    pub fn begin(&self, waiting: u64, under_way: usize) -> Begin {
        if waiting == 0 || !self.has_place(under_way) {
            return Begin::NotYet;
        }
        match waiting >= self.worth() {
            true => Begin::Now {
                // Of so many bytes at least one block is whole.
                whole: self.is_two() && waiting >= 2 * BLOCK_BYTES as u64,
            },
            false if under_way == 0 => Begin::After((self.took / 2).min(WAIT_MAX)),
            false => Begin::NotYet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Duration = Duration::from_micros(120);

    #[test]
    fn one_sender_alone_never_waits() {
        let mut group = Group::new(4 << 20);
        assert_eq!(group.worth(), 0);
        for _ in 0..50 {
            assert_eq!(group.begin(0, 0), Begin::NotYet);
            assert_eq!(group.begin(1000, 0), Begin::Now { whole: false });
            group.written(1000, 0, WRITE);
            assert!(group.worth() <= 1000);
        }
    }

    #[test]
    fn some_wait_for_most_of_them_and_for_half_a_write_at_most() {
        let mut group = Group::new(4 << 20);
        for _ in 0..50 {
            group.written(16_000, 48_000, WRITE);
            group.written(48_000, 0, WRITE);
        }
        assert!((42_000..=56_000).contains(&group.worth()));
        let Begin::After(wait) = group.begin(40_000, 0) else {
            panic!("a wait for company");
        };
        assert!(wait <= WRITE / 2 && wait > WRITE / 3);
        assert_eq!(group.begin(56_000, 0), Begin::Now { whole: false });
        assert_eq!(group.begin(56_000, 1), Begin::NotYet);
        for _ in 0..50 {
            group.written(64_000, 0, Duration::from_millis(30));
        }
        assert_eq!(group.worth(), 56_000);
        assert_eq!(group.begin(1, 0), Begin::After(WAIT_MAX));
    }

    #[test]
    fn many_are_written_in_halves_that_overlap() {
        let mut group = Group::new(4 << 20);
        for _ in 0..50 {
            group.written(128_000, 144_000, WRITE);
        }
        assert_eq!(group.worth(), 119_000);
        assert!(matches!(group.begin(118_000, 0), Begin::After(_)));
        assert_eq!(group.begin(118_000, 1), Begin::NotYet);
        for under_way in [0, 1] {
            assert_eq!(group.begin(119_000, under_way), Begin::Now { whole: true });
        }
        assert_eq!(group.begin(1 << 20, 2), Begin::NotYet);
        group.written(2_000_000, 0, WRITE);
        assert_eq!(group.worth(), WORTH_MAX);
    }

    #[test]
    fn less_than_a_block_is_written_as_it_is() {
        let mut group = Group::new(8192);
        group.written(4000, 0, WRITE);
        assert_eq!(group.begin(4000, 0), Begin::Now { whole: false });
        assert_eq!(group.begin(8192, 0), Begin::Now { whole: true });
    }

    #[test]
    fn that_fewer_take_part_is_found_out_soon() {
        let mut group = Group::new(4 << 20);
        group.written(1 << 20, 0, WRITE);
        for _ in 0..25 {
            group.written(1000, 0, WRITE);
        }
        assert!(group.worth() <= 1000);
    }
}
