//! The messages of one producer to one queue, in the order in which they are read.

use super::bits::Bits;
use super::stamp::Stamp;

/// What was seen of them so far.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Sequences below are not kept.
    base: u32,
    seen: Bits,
    /// One above the highest sequence seen.
    next: u32,
    /// Highest floor seen: all acknowledged ones below must have come before.
    floor: u32,
}

/// How a message stands to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Behind all that were sent before it.
    InOrder,
    /// Behind one that was sent later, while both waited for their answers.
    Overtaken,
    /// Behind one that was sent after it had been answered.
    Behind,
    /// Seen before.
    Doubled,
}

impl Order {
    /// Nothing seen yet; sequences below `base` are told from none.
    pub fn from(base: u32) -> Order {
        Order {
            base,
            ..Order::default()
        }
    }

    /// The next message.
    pub fn note(&mut self, stamp: &Stamp) -> Standing {
        let sequence = stamp.sequence;
        let kept = sequence.checked_sub(self.base);
        if kept.is_some_and(|kept| !self.seen.insert(kept)) {
            return Standing::Doubled;
        }
        let standing = if sequence < self.floor {
            Standing::Behind
        } else if sequence < self.next {
            Standing::Overtaken
        } else {
            Standing::InOrder
        };
        self.next = self.next.max(sequence.saturating_add(1));
        self.floor = self.floor.max(stamp.floor);
        standing
    }

    /// Sequences below are not kept any more.
    pub fn forget_below(&mut self, base: u32) {
        (self.base, self.seen) = (base, Bits::default());
    }

    /// The lowest sequence that is kept.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Sequences seen, above the base.
    pub fn seen(&self) -> &Bits {
        &self.seen
    }

    /// Adds sequences that were seen elsewhere, with the same base.
    pub fn merge(&mut self, other: &Order) {
        self.seen.merge(&other.seen);
    }
}
