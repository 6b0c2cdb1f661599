//! The messages of one queue between being pulled and being consumed (`ProcessQueue`).
//!
//! They are consumed in any order and committed in theirs: the offset that may be
//! committed is that of the lowest message not yet consumed, or where the next pull
//! begins when there is none. Only what is not consumed takes memory.
//!
//! Several messages may share an offset, where a broker counts what it stores as one and
//! it is several: the offset is consumed with the last of them.

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

/// The place of a message in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Its offset.
    pub offset: i64,
    /// Which one it is of those that share the offset.
    pub part: u32,
}

impl From<i64> for At {
    fn from(offset: i64) -> At {
        At { offset, part: 0 }
    }
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
    at: At,
    bytes: usize,
    /// How often it was tried here in vain, without the broker's knowledge.
    retries: i32,
    state: State,
    message: Option<M>,
}

/// One message for the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<M> {
    /// Its place in the queue.
    pub at: At,
    /// How often it was tried here in vain; to be added to what it says itself.
    pub retries: i32,
    /// The message.
    pub message: M,
}

/// See the module.
#[derive(Debug)]
pub struct ProcessQueue<M> {
    /// What is not consumed, in the order of the queue.
    slots: VecDeque<Slot<M>>,
    /// What may be taken, in the order in which it will be.
    ready: VecDeque<At>,
    /// What may be taken from a time on, ms.
    later: BTreeSet<(u64, At)>,
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
    pub fn put(&mut self, at: At, bytes: usize, message: M) -> bool {
        let beside = |slot: &Slot<M>| slot.at.offset == at.offset && slot.at.part < at.part;
        if at.offset < self.next_offset && !self.slots.back().is_some_and(beside) {
            return false;
        }
        self.slots.push_back(Slot {
            at,
            bytes,
            retries: 0,
            state: State::Waiting,
            message: Some(message),
        });
        self.ready.push_back(at);
        self.next_offset = self.next_offset.max(at.offset.saturating_add(1));
        self.count += 1;
        self.bytes += bytes;
        true
    }

    /// Holds a message again that was consumed, to be taken before those behind it.
    pub fn give_back(&mut self, at: At, bytes: usize, message: M) {
        if at.offset >= self.next_offset {
            return;
        }
        let Err(index) = self.find(at) else {
            return;
        };
        let slot = Slot {
            at,
            bytes,
            retries: 0,
            state: State::Waiting,
            message: Some(message),
        };
        self.slots.insert(index, slot);
        self.ready_in_order(at);
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
        Some((self.slots.front()?.at.offset, self.slots.back()?.at.offset))
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
            .map_or(self.next_offset, |slot| slot.at.offset)
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
        while let Some(&(due, at)) = self.later.first() {
            if due > now {
                break;
            }
            self.later.pop_first();
            self.ready.push_back(at);
        }
        let mut taken = Vec::with_capacity(max.min(self.ready.len()));
        while taken.len() < max {
            let Some(at) = self.ready.pop_front() else {
                break;
            };
            let Some(slot) = self.slot(at) else {
                continue;
            };
            let Some(message) = slot.message.clone() else {
                continue;
            };
            slot.state = State::InHand(now);
            taken.push(Taken {
                at,
                retries: slot.retries,
                message,
            });
        }
        taken
    }

    /// Marks a message as consumed. `false` where it is not held any more.
    pub fn consumed(&mut self, at: At) -> bool {
        let Ok(index) = self.find(at) else {
            return false;
        };
        if self.slots[index].state == State::Dropped {
            return false;
        }
        if let Some(slot) = self.slots.remove(index) {
            self.count -= 1;
            self.bytes -= slot.bytes;
        }
        true
    }

    /// Marks a message that is in hand as on its way to the retry topic, and gives it.
    pub fn returning(&mut self, at: At) -> Option<Taken<M>> {
        let slot = self.slot(at)?;
        if !matches!(slot.state, State::InHand(_)) {
            return None;
        }
        slot.state = State::Returning;
        Some(Taken {
            at,
            retries: slot.retries,
            message: slot.message.clone()?,
        })
    }

    /// Lets a message be taken again from `due` on, ms; one try more is counted.
    pub fn again(&mut self, at: At, due: u64) {
        if let Some(slot) = self.slot(at) {
            if matches!(slot.state, State::InHand(_) | State::Returning) {
                slot.state = State::Waiting;
                slot.retries = slot.retries.saturating_add(1);
                self.later.insert((due, at));
            }
        }
    }

    /// Puts messages back that were in hand, in their place (orderly); one try more is
    /// counted with `tried`.
    pub fn put_back(&mut self, places: &[At], tried: bool) {
        for &at in places {
            if let Some(slot) = self.slot(at) {
                if matches!(slot.state, State::InHand(_) | State::Returning) {
                    slot.state = State::Waiting;
                    slot.retries = slot.retries.saturating_add(i32::from(tried));
                    self.ready_in_order(at);
                }
            }
        }
    }

    /// A message that is held, and how often it was tried here in vain.
    pub fn get(&self, at: At) -> Option<(&M, i32)> {
        let slot = self.slots.get(self.find(at).ok()?)?;
        Some((slot.message.as_ref()?, slot.retries))
    }

    /// Keeps a consumed message until [`ProcessQueue::commit_kept`] (orderly).
    pub fn keep(&mut self, at: At) {
        if let Some(slot) = self.slot(at) {
            if matches!(slot.state, State::InHand(_)) {
                slot.state = State::Kept;
            }
        }
    }

    /// What was kept is consumed.
    pub fn commit_kept(&mut self) {
        for at in self.kept() {
            self.consumed(at);
        }
    }

    /// What was kept is to be consumed again.
    pub fn roll_back_kept(&mut self) {
        for at in self.kept() {
            if let Some(slot) = self.slot(at) {
                slot.state = State::Waiting;
                self.ready_in_order(at);
            }
        }
    }

    fn ready_in_order(&mut self, at: At) {
        let index = self.ready.partition_point(|&other| other < at);
        self.ready.insert(index, at);
    }

    fn kept(&self) -> Vec<At> {
        let kept = self.slots.iter().filter(|slot| slot.state == State::Kept);
        kept.map(|slot| slot.at).collect()
    }

    /// What is in hand for more than `limit_ms`, the first `max` of it.
    pub fn overdue(&self, now: u64, limit_ms: u64, max: usize) -> Vec<At> {
        let old = |slot: &&Slot<M>| match slot.state {
            State::InHand(since) => now.saturating_sub(since) > limit_ms,
            _ => false,
        };
        let overdue = self.slots.iter().filter(old).take(max);
        overdue.map(|slot| slot.at).collect()
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

    fn find(&self, at: At) -> Result<usize, usize> {
        match self.slots.front() {
            Some(slot) if slot.at == at => Ok(0),
            _ => self.slots.binary_search_by_key(&at, |slot| slot.at),
        }
    }

    fn slot(&mut self, at: At) -> Option<&mut Slot<M>> {
        let index = self.find(at).ok()?;
        self.slots.get_mut(index)
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
            assert!(queue.put(offset.into(), 10, offset));
        }
        queue
    }

    fn offsets(taken: &[Taken<i64>]) -> Vec<i64> {
        taken.iter().map(|taken| taken.at.offset).collect()
    }

    #[test]
    fn the_lowest_unconsumed_is_committed_whatever_the_order() {
        let mut queue = filled([5, 6, 9]);
        assert_eq!(queue.committable(), 5);
        queue.take(3, 0);
        assert!(queue.consumed(6.into()));
        assert_eq!(queue.committable(), 5);
        assert!(queue.consumed(5.into()));
        assert_eq!(queue.committable(), 9);
        assert!(queue.consumed(9.into()));
        assert_eq!(queue.committable(), 10);
        assert!(!queue.consumed(9.into()), "twice");
        queue.advance(14);
        queue.advance(3);
        assert_eq!((queue.committable(), queue.bytes()), (14, 0));
    }

    #[test]
    fn what_is_known_is_not_put_again() {
        let mut queue = filled([5]);
        assert!(!queue.put(5.into(), 10, 0) && !queue.put(3.into(), 10, 0));
        assert_eq!((queue.count(), queue.bytes()), (1, 10));
    }

    #[test]
    fn an_offset_is_consumed_with_the_last_that_share_it() {
        let mut queue = filled([4]);
        let part = |part| At { offset: 5, part };
        // The first of them is of no interest.
        assert!(queue.put(part(1), 10, 1) && queue.put(part(2), 10, 2));
        assert!(!queue.put(part(2), 10, 2) && !queue.put(part(0), 10, 0));
        assert!(queue.put(6.into(), 10, 6));
        assert_eq!(queue.take(9, 0).len(), 4);
        assert!(queue.consumed(4.into()) && queue.consumed(part(2)));
        assert_eq!((queue.committable(), queue.count()), (5, 2));
        queue.put_back(&[part(1)], true);
        assert_eq!(queue.take(9, 0)[0].at, part(1));
        assert!(queue.consumed(part(1)));
        assert_eq!(queue.committable(), 6);
        queue.give_back(part(2), 10, 2);
        assert_eq!((queue.committable(), queue.take(9, 0)[0].at), (5, part(2)));
    }

    #[test]
    fn thresholds_are_of_count_bytes_and_span() {
        assert_eq!(filled(0..3).full(&LIMITS), None);
        assert_eq!(filled(0..4).full(&LIMITS), Some(Full::Count));
        let mut heavy = filled([0]);
        heavy.put(1.into(), 91, 1);
        assert_eq!(heavy.full(&LIMITS), Some(Full::Bytes));
        let mut wide = filled([0, 2000]);
        assert_eq!(wide.full(&LIMITS), Some(Full::Span));
        let any = Thresholds {
            span: None,
            ..LIMITS
        };
        assert_eq!(wide.full(&any), None);
        wide.consumed(0.into());
        assert_eq!(wide.full(&LIMITS), None);
    }

    #[test]
    fn what_failed_here_comes_again_later_with_its_tries_counted() {
        let mut queue = filled([0, 1]);
        queue.take(1, 0);
        assert!(queue.returning(0.into()).is_some());
        assert!(queue.returning(0.into()).is_none(), "on its way already");
        queue.again(0.into(), 5_000);
        assert_eq!(offsets(&queue.take(9, 4_999)), [1]);
        assert_eq!(queue.next_due(), Some(5_000));
        let again = queue.take(9, 5_000);
        assert_eq!((offsets(&again), again[0].retries), (vec![0], 1));
    }

    #[test]
    fn orderly_messages_come_back_in_their_order() {
        let mut queue = filled(0..5);
        queue.take(3, 0);
        queue.put_back(&[0, 1, 2].map(At::from), true);
        let taken = queue.take(2, 0);
        assert_eq!((offsets(&taken), taken[0].retries), (vec![0, 1], 1));
        queue.keep(0.into());
        queue.keep(1.into());
        assert_eq!(queue.committable(), 0);
        queue.roll_back_kept();
        assert_eq!(offsets(&queue.take(9, 0)), [0, 1, 2, 3, 4]);
        (0..5).for_each(|offset| queue.keep(offset.into()));
        queue.commit_kept();
        assert_eq!((queue.committable(), queue.count()), (5, 0));
    }

    #[test]
    fn what_is_let_go_is_never_committed() {
        let mut queue = filled(0..6);
        queue.take(2, 0);
        queue.consumed(1.into());
        queue.drop_waiting();
        assert_eq!((queue.count(), queue.committable()), (1, 0));
        assert!(queue.consumed(0.into()));
        assert_eq!(
            (queue.count(), queue.bytes(), queue.committable()),
            (0, 0, 2)
        );
        assert!(queue.take(9, 99).is_empty() && !queue.has_ready(99));
        assert!(!queue.consumed(3.into()), "let go");
    }

    #[test]
    fn what_is_long_in_hand_is_overdue() {
        let mut queue = filled(0..4);
        queue.take(2, 100);
        queue.take(1, 200);
        assert_eq!(queue.overdue(300, 150, 16), [0, 1].map(At::from));
        assert_eq!(queue.overdue(300, 150, 1), [At::from(0)]);
        assert!(queue.overdue(250, 150, 16).is_empty());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Put(i64),
        /// One more at the last offset.
        PutPart,
        Take(usize),
        Consume(usize),
        Return(usize),
        Again(usize),
        Drop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0i64..4).prop_map(Step::Put),
            1 => Just(Step::PutPart),
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
            let (mut now, mut hand, mut open) = (0u64, Vec::new(), BTreeSet::<At>::new());
            let mut last = At::from(-1);
            for step in steps {
                now += 1;
                match step {
                    Step::Put(gap) => {
                        let at = At::from(queue.next_offset() + gap);
                        prop_assert!(queue.put(at, 7, at.offset));
                        last = at;
                        open.insert(at);
                    }
                    // What shares an offset comes with one answer, before any is consumed.
                    Step::PutPart if open.last() == Some(&last) => {
                        last.part += 1;
                        prop_assert!(queue.put(last, 7, last.offset));
                        open.insert(last);
                    }
                    Step::Take(max) => for taken in queue.take(max, now) {
                        prop_assert!(!hand.contains(&taken.at), "with two listeners");
                        prop_assert!(open.contains(&taken.at));
                        hand.push(taken.at);
                    },
                    Step::Consume(at) if at < hand.len() => {
                        let at = hand.swap_remove(at);
                        prop_assert!(queue.consumed(at));
                        open.remove(&at);
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
                            prop_assert!(queue.committable() <= lowest.offset);
                        }
                        break;
                    }
                    _ => {}
                }
                prop_assert_eq!((queue.count(), queue.bytes()), (open.len(), 7 * open.len()));
                let lowest = open.first().map_or(queue.next_offset(), |at| at.offset);
                prop_assert_eq!(queue.committable(), lowest);
            }
        }
    }
}
