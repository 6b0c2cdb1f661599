//! The messages of one queue between being pulled and being consumed (`ProcessQueue`).
//!
//! They are consumed in any order and committed in theirs: the offset that may be
//! committed is that of the lowest message not yet consumed, or where the next pull
//! begins when there is none. Only what is not consumed takes memory.

use std::collections::{BTreeSet, VecDeque};

/// Why a queue is not pulled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// As many messages as may be held (`pullThresholdForQueue`).
    Count,
    /// As many bytes as may be held (`pullThresholdSizeForQueue`).
    Bytes,
    /// Lowest and highest offset are far apart (`consumeConcurrentlyMaxSpan`).
    Span,
}

/// What may be held of one queue. What one pull brings may come on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Messages.
    pub messages: usize,
    /// Bytes of bodies.
    pub bytes: usize,
    /// Highest less lowest offset; `None`: any.
    pub span: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody has it.
    Waiting,
    /// With the listener since then, ms.
    InHand(u64),
    /// On its way to the retry topic.
    Returning,
    /// Consumed, and committed with those after it (orderly, without auto-commit).
    Kept,
    /// Let go without being consumed: someone else's from now on.
    Dropped,
}

#[derive(Debug)]
struct Slot<M> {
    offset: i64,
    bytes: usize,
    /// How often it was tried here in vain, without the broker's knowledge.
    retries: i32,
    state: State,
    message: Option<M>,
}

/// One message for the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<M> {
    /// Its offset in the queue.
    pub offset: i64,
    /// How often it was tried here in vain; to be added to what it says itself.
    pub retries: i32,
    /// The message.
    pub message: M,
}

/// See the module.
#[derive(Debug)]
pub struct ProcessQueue<M> {
    /// What is not consumed, by rising offset.
    slots: VecDeque<Slot<M>>,
    /// Offsets that may be taken, in the order in which they will be.
    ready: VecDeque<i64>,
    /// Offsets that may be taken from a time on, ms.
    later: BTreeSet<(u64, i64)>,
    next_offset: i64,
    count: usize,
    bytes: usize,
}

impl<M: Clone> ProcessQueue<M> {
    /// An empty queue, to be pulled from `next_offset` on.
    pub fn new(next_offset: i64) -> ProcessQueue<M> {
        ProcessQueue {
            slots: VecDeque::new(),
            ready: VecDeque::new(),
            later: BTreeSet::new(),
            next_offset,
            count: 0,
            bytes: 0,
        }
    }

    /// Where the next pull begins.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Sets where the next pull begins, when it went on without messages. Never moves back.
    pub fn advance(&mut self, next_offset: i64) {
        self.next_offset = self.next_offset.max(next_offset);
    }

    /// Adds a pulled message of `bytes`. `false` for one that is known already.
    pub fn put(&mut self, offset: i64, bytes: usize, message: M) -> bool {
        if offset < self.next_offset {
            return false;
        }
        self.slots.push_back(Slot {
            offset,
            bytes,
            retries: 0,
            state: State::Waiting,
            message: Some(message),
        });
        self.ready.push_back(offset);
        self.next_offset = offset.saturating_add(1);
        self.count += 1;
        self.bytes += bytes;
        true
    }

    /// Holds a message again that was consumed, to be taken before those behind it.
    pub fn give_back(&mut self, offset: i64, bytes: usize, message: M) {
        if offset >= self.next_offset {
            return;
        }
        let Err(at) = self.find(offset) else {
            return;
        };
        let slot = Slot {
            offset,
            bytes,
            retries: 0,
            state: State::Waiting,
            message: Some(message),
        };
        self.slots.insert(at, slot);
        self.ready_in_order(offset);
        self.count += 1;
        self.bytes += bytes;
    }

    /// Messages held.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first and the last offset held.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        Some((self.slots.front()?.offset, self.slots.back()?.offset))
    }

    /// Whether a pull would hold too much.
    pub fn full(&self, limits: &Thresholds) -> Option<Full> {
        let span = self.next_offset.saturating_sub(self.committable());
        if self.count > limits.messages {
            Some(Full::Count)
        } else if self.bytes > limits.bytes {
            Some(Full::Bytes)
        } else if limits.span.is_some_and(|limit| span > limit) {
            Some(Full::Span)
        } else {
            None
        }
    }

    /// The offset that may be committed: everything below it is consumed.
    pub fn committable(&self) -> i64 {
        self.slots
            .front()
            .map_or(self.next_offset, |slot| slot.offset)
    }

    /// Whether there is something to take at `now`.
    pub fn has_ready(&self, now: u64) -> bool {
        !self.ready.is_empty() || self.later.first().is_some_and(|&(at, _)| at <= now)
    }

    /// When something waiting may be taken, ms.
    pub fn next_due(&self) -> Option<u64> {
        self.later.first().map(|&(at, _)| at)
    }

    /// Takes up to `max` messages for the listener.
    pub fn take(&mut self, max: usize, now: u64) -> Vec<Taken<M>> {
        while let Some(&(at, offset)) = self.later.first() {
            if at > now {
                break;
            }
            self.later.pop_first();
            self.ready.push_back(offset);
        }
        let mut taken = Vec::with_capacity(max.min(self.ready.len()));
        while taken.len() < max {
            let Some(offset) = self.ready.pop_front() else {
                break;
            };
            let Some(slot) = self.slot(offset) else {
                continue;
            };
            let Some(message) = slot.message.clone() else {
                continue;
            };
            slot.state = State::InHand(now);
            taken.push(Taken {
                offset,
                retries: slot.retries,
                message,
            });
        }
        taken
    }

    /// Marks a message as consumed. `false` where it is not held any more.
    pub fn consumed(&mut self, offset: i64) -> bool {
        let Ok(at) = self.find(offset) else {
            return false;
        };
        if self.slots[at].state == State::Dropped {
            return false;
        }
        if let Some(slot) = self.slots.remove(at) {
            self.count -= 1;
            self.bytes -= slot.bytes;
        }
        true
    }

    /// Marks a message that is in hand as on its way to the retry topic, and gives it.
    pub fn returning(&mut self, offset: i64) -> Option<Taken<M>> {
        let slot = self.slot(offset)?;
        if !matches!(slot.state, State::InHand(_)) {
            return None;
        }
        slot.state = State::Returning;
        Some(Taken {
            offset,
            retries: slot.retries,
            message: slot.message.clone()?,
        })
    }

    /// Lets a message be taken again from `at` on, ms; one try more is counted.
    pub fn again(&mut self, offset: i64, at: u64) {
        if let Some(slot) = self.slot(offset) {
            if matches!(slot.state, State::InHand(_) | State::Returning) {
                slot.state = State::Waiting;
                slot.retries = slot.retries.saturating_add(1);
                self.later.insert((at, offset));
            }
        }
    }

    /// Puts messages back that were in hand, in their place (orderly); one try more is
    /// counted with `tried`.
    pub fn put_back(&mut self, offsets: &[i64], tried: bool) {
        for &offset in offsets {
            if let Some(slot) = self.slot(offset) {
                if matches!(slot.state, State::InHand(_) | State::Returning) {
                    slot.state = State::Waiting;
                    slot.retries = slot.retries.saturating_add(i32::from(tried));
                    self.ready_in_order(offset);
                }
            }
        }
    }

    /// A message that is held, and how often it was tried here in vain.
    pub fn get(&self, offset: i64) -> Option<(&M, i32)> {
        let slot = self.slots.get(self.find(offset).ok()?)?;
        Some((slot.message.as_ref()?, slot.retries))
    }

    /// Keeps a consumed message until [`ProcessQueue::commit_kept`] (orderly).
    pub fn keep(&mut self, offset: i64) {
        if let Some(slot) = self.slot(offset) {
            if matches!(slot.state, State::InHand(_)) {
                slot.state = State::Kept;
            }
        }
    }

    /// What was kept is consumed.
    pub fn commit_kept(&mut self) {
        for offset in self.kept() {
            self.consumed(offset);
        }
    }

    /// What was kept is to be consumed again.
    pub fn roll_back_kept(&mut self) {
        for offset in self.kept() {
            if let Some(slot) = self.slot(offset) {
                slot.state = State::Waiting;
                self.ready_in_order(offset);
            }
        }
    }

    fn ready_in_order(&mut self, offset: i64) {
        let at = self.ready.partition_point(|&other| other < offset);
        self.ready.insert(at, offset);
    }

    fn kept(&self) -> Vec<i64> {
        let kept = self.slots.iter().filter(|slot| slot.state == State::Kept);
        kept.map(|slot| slot.offset).collect()
    }

    /// Offsets in hand for more than `limit_ms`, the lowest `max` of them.
    pub fn overdue(&self, now: u64, limit_ms: u64, max: usize) -> Vec<i64> {
        let old = |slot: &&Slot<M>| match slot.state {
            State::InHand(since) => now.saturating_sub(since) > limit_ms,
            _ => false,
        };
        let overdue = self.slots.iter().filter(old).take(max);
        overdue.map(|slot| slot.offset).collect()
    }

    /// Lets go what nobody works on: it stays unconsumed, and is someone else's.
    pub fn drop_waiting(&mut self) {
        self.ready.clear();
        self.later.clear();
        for slot in &mut self.slots {
            if matches!(slot.state, State::Waiting | State::Kept) {
                slot.state = State::Dropped;
                slot.message = None;
                self.count -= 1;
                self.bytes -= slot.bytes;
            }
        }
        // Behind the first that was let go nothing counts any more.
        let mut seen = false;
        self.slots.retain(|slot| {
            let dropped = slot.state == State::Dropped;
            let first = dropped && !seen;
            seen |= dropped;
            first || !dropped
        });
    }

    /// Forgets everything, to be pulled from `next_offset` on.
    pub fn reset(&mut self, next_offset: i64) {
        *self = ProcessQueue::new(next_offset);
    }

    fn find(&self, offset: i64) -> Result<usize, usize> {
        match self.slots.front() {
            Some(slot) if slot.offset == offset => Ok(0),
            _ => self.slots.binary_search_by_key(&offset, |slot| slot.offset),
        }
    }

    fn slot(&mut self, offset: i64) -> Option<&mut Slot<M>> {
        let at = self.find(offset).ok()?;
        self.slots.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Thresholds = Thresholds {
        messages: 3,
        bytes: 100,
        span: Some(2000),
    };

    fn filled(offsets: impl IntoIterator<Item = i64>) -> ProcessQueue<i64> {
        let mut queue = ProcessQueue::new(0);
        for offset in offsets {
            assert!(queue.put(offset, 10, offset));
        }
        queue
    }

    fn offsets(taken: &[Taken<i64>]) -> Vec<i64> {
        taken.iter().map(|taken| taken.offset).collect()
    }

    #[test]
    fn the_lowest_unconsumed_is_committed_whatever_the_order() {
        let mut queue = filled([5, 6, 9]);
        assert_eq!(queue.committable(), 5);
        queue.take(3, 0);
        assert!(queue.consumed(6));
        assert_eq!(queue.committable(), 5);
        assert!(queue.consumed(5));
        assert_eq!(queue.committable(), 9);
        assert!(queue.consumed(9));
        assert_eq!(queue.committable(), 10);
        assert!(!queue.consumed(9), "twice");
        queue.advance(14);
        queue.advance(3);
        assert_eq!((queue.committable(), queue.bytes()), (14, 0));
    }

    #[test]
    fn what_is_known_is_not_put_again() {
        let mut queue = filled([5]);
        assert!(!queue.put(5, 10, 0) && !queue.put(3, 10, 0));
        assert_eq!((queue.count(), queue.bytes()), (1, 10));
    }

    #[test]
    fn thresholds_are_of_count_bytes_and_span() {
        assert_eq!(filled(0..3).full(&LIMITS), None);
        assert_eq!(filled(0..4).full(&LIMITS), Some(Full::Count));
        let mut heavy = filled([0]);
        heavy.put(1, 91, 1);
        assert_eq!(heavy.full(&LIMITS), Some(Full::Bytes));
        let mut wide = filled([0, 2000]);
        assert_eq!(wide.full(&LIMITS), Some(Full::Span));
        let any = Thresholds {
            span: None,
            ..LIMITS
        };
        assert_eq!(wide.full(&any), None);
        wide.consumed(0);
        assert_eq!(wide.full(&LIMITS), None);
    }

    #[test]
    fn what_failed_here_comes_again_later_with_its_tries_counted() {
        let mut queue = filled([0, 1]);
        queue.take(1, 0);
        assert!(queue.returning(0).is_some());
        assert!(queue.returning(0).is_none(), "on its way already");
        queue.again(0, 5_000);
        assert_eq!(offsets(&queue.take(9, 4_999)), [1]);
        assert_eq!(queue.next_due(), Some(5_000));
        let again = queue.take(9, 5_000);
        assert_eq!((offsets(&again), again[0].retries), (vec![0], 1));
    }

    #[test]
    fn orderly_messages_come_back_in_their_order() {
        let mut queue = filled(0..5);
        queue.take(3, 0);
        queue.put_back(&[0, 1, 2], true);
        let taken = queue.take(2, 0);
        assert_eq!((offsets(&taken), taken[0].retries), (vec![0, 1], 1));
        queue.keep(0);
        queue.keep(1);
        assert_eq!(queue.committable(), 0);
        queue.roll_back_kept();
        assert_eq!(offsets(&queue.take(9, 0)), [0, 1, 2, 3, 4]);
        (0..5).for_each(|offset| queue.keep(offset));
        queue.commit_kept();
        assert_eq!((queue.committable(), queue.count()), (5, 0));
    }

    #[test]
    fn what_is_let_go_is_never_committed() {
        let mut queue = filled(0..6);
        queue.take(2, 0);
        queue.consumed(1);
        queue.drop_waiting();
        assert_eq!((queue.count(), queue.committable()), (1, 0));
        assert!(queue.consumed(0));
        assert_eq!(
            (queue.count(), queue.bytes(), queue.committable()),
            (0, 0, 2)
        );
        assert!(queue.take(9, 99).is_empty() && !queue.has_ready(99));
        assert!(!queue.consumed(3), "let go");
    }

    #[test]
    fn what_is_long_in_hand_is_overdue() {
        let mut queue = filled(0..4);
        queue.take(2, 100);
        queue.take(1, 200);
        assert_eq!(queue.overdue(300, 150, 16), [0, 1]);
        assert_eq!(queue.overdue(300, 150, 1), [0]);
        assert!(queue.overdue(250, 150, 16).is_empty());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Put(i64),
        Take(usize),
        Consume(usize),
        Return(usize),
        Again(usize),
        Drop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0i64..4).prop_map(Step::Put),
            4 => (1usize..4).prop_map(Step::Take),
            4 => (0usize..8).prop_map(Step::Consume),
            1 => (0usize..8).prop_map(Step::Return),
            1 => (0usize..8).prop_map(Step::Again),
            1 => Just(Step::Drop),
        ]
    }

    proptest! {
        /// Whatever happens: nothing unconsumed lies below what may be committed, nothing
        /// is with two listeners, counts are those of what is there.
        #[test]
        fn the_bookkeeping_holds(steps in proptest::collection::vec(step(), 0..200)) {
            let mut queue = ProcessQueue::new(0);
            let (mut now, mut hand, mut open) = (0u64, Vec::new(), BTreeSet::new());
            for step in steps {
                now += 1;
                match step {
                    Step::Put(gap) => {
                        let offset = queue.next_offset() + gap;
                        prop_assert!(queue.put(offset, 7, offset));
                        open.insert(offset);
                    }
                    Step::Take(max) => for taken in queue.take(max, now) {
                        prop_assert!(!hand.contains(&taken.offset), "with two listeners");
                        prop_assert!(open.contains(&taken.offset));
                        hand.push(taken.offset);
                    },
                    Step::Consume(at) if at < hand.len() => {
                        let offset = hand.swap_remove(at);
                        prop_assert!(queue.consumed(offset));
                        open.remove(&offset);
                    }
                    Step::Return(at) if at < hand.len() => {
                        queue.returning(hand[at]);
                    }
                    Step::Again(at) if at < hand.len() => {
                        queue.again(hand.swap_remove(at), now + 3);
                    }
                    Step::Drop => {
                        queue.drop_waiting();
                        prop_assert_eq!(queue.count(), hand.len());
                        if let Some(&lowest) = open.first() {
                            prop_assert!(queue.committable() <= lowest);
                        }
                        break;
                    }
                    _ => {}
                }
                prop_assert_eq!((queue.count(), queue.bytes()), (open.len(), 7 * open.len()));
                let lowest = open.first().copied().unwrap_or(queue.next_offset());
                prop_assert_eq!(queue.committable(), lowest);
            }
        }
    }
}
