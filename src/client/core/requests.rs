//! Requests whose answers are awaited, by opaque, with their deadlines.
//!
//! Deadlines are kept in a wheel of lists: to add a request or to take it out costs the same
//! however many there are, and a request that was answered leaves nothing behind.

use foldhash::{HashMap, HashMapExt};

use super::io::PeerId;

/// A tick of the wheel is 2^4 ms: so late an answer is missed at most.
const TICK_SHIFT: u32 = 4;
/// Places of the wheel. Deadlines further away than its 8 s stay for another round.
const BUCKETS: usize = 512;
const NONE: u32 = u32::MAX;

/// Requests in flight; `P` is what each is for.
#[derive(Debug)]
pub(super) struct Requests<P> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    by_opaque: HashMap<i32, u32>,
    next_opaque: i32,
    heads: [u32; BUCKETS],
    /// One bit a bucket that has a list.
    occupied: [u64; BUCKETS / 64],
    /// The tick up to which deadlines were looked at.
    seen: u64,
}

#[derive(Debug)]
struct Slot<P> {
    opaque: i32,
    bucket: u32,
    before: u32,
    after: u32,
    pending: Option<Pending<P>>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending<P> {
    /// The connection that it was sent by, and that the answer must come by.
    pub peer: PeerId,
    /// When, ms.
    pub sent_at: u64,
    /// Until when the answer counts, ms.
    pub deadline: u64,
    /// Its code, for hooks.
    pub code: i32,
    /// What it is for.
    pub purpose: P,
}

impl<P> Pending<P> {
    /// The time it was given, ms.
    pub fn limit_ms(&self) -> u64 {
        self.deadline.saturating_sub(self.sent_at)
    }
}

impl<P> Requests<P> {
    pub fn new(now: u64) -> Requests<P> {
        Requests {
            slots: Vec::new(),
            free: Vec::new(),
            by_opaque: HashMap::new(),
            next_opaque: 0,
            heads: [NONE; BUCKETS],
            occupied: [0; BUCKETS / 64],
            seen: now >> TICK_SHIFT,
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_opaque.len()
    }

    /// Enters a request and tells its opaque.
    pub fn insert(&mut self, pending: Pending<P>) -> i32 {
        let opaque = self.new_opaque();
        let tick = (pending.deadline >> TICK_SHIFT).max(self.seen) + 1;
        let bucket = tick as usize % BUCKETS;
        let head = self.heads[bucket];
        let slot = Slot {
            opaque,
            bucket: bucket as u32,
            before: NONE,
            after: head,
            pending: Some(pending),
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        if head != NONE {
            self.slots[head as usize].before = place;
        }
        self.heads[bucket] = place;
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.by_opaque.insert(opaque, place);
        opaque
    }

    /// Numbers go round, leaving out those in use.
    fn new_opaque(&mut self) -> i32 {
        loop {
            let opaque = self.next_opaque;
            self.next_opaque = opaque.checked_add(1).unwrap_or(0);
            if !self.by_opaque.contains_key(&opaque) {
                return opaque;
            }
        }
    }

    /// Takes out the request that an answer with `opaque` from `peer` is for.
    pub fn take(&mut self, opaque: i32, peer: PeerId) -> Option<Pending<P>> {
        let place = *self.by_opaque.get(&opaque)?;
        let pending = self.slots[place as usize].pending.as_ref();
        if pending.is_none_or(|pending| pending.peer != peer) {
            return None;
        }
        self.remove(place)
    }

    fn remove(&mut self, place: u32) -> Option<Pending<P>> {
        let slot = &mut self.slots[place as usize];
        let pending = slot.pending.take()?;
        let (opaque, bucket, before, after) =
            (slot.opaque, slot.bucket as usize, slot.before, slot.after);
        if after != NONE {
            self.slots[after as usize].before = before;
        }
        if before != NONE {
            self.slots[before as usize].after = after;
        } else {
            self.heads[bucket] = after;
            if after == NONE {
                self.occupied[bucket / 64] &= !(1 << (bucket % 64));
            }
        }
        self.by_opaque.remove(&opaque);
        self.free.push(place);
        Some(pending)
    }

    /// Takes out what is past its deadline.
    pub fn expire(&mut self, now: u64, expired: &mut Vec<Pending<P>>) {
        let tick = now >> TICK_SHIFT;
        if tick <= self.seen {
            return;
        }
        let first = self.seen + 1;
        let rounds = (tick - self.seen).min(BUCKETS as u64);
        self.seen = tick;
        for offset in 0..rounds {
            let bucket = (first + offset) as usize % BUCKETS;
            let mut place = self.heads[bucket];
            while place != NONE {
                let slot = &self.slots[place as usize];
                let after = slot.after;
                let pending = slot.pending.as_ref();
                if pending.is_some_and(|pending| pending.deadline <= now) {
                    expired.extend(self.remove(place));
                }
                place = after;
            }
        }
    }

    /// Takes out all requests that were sent by `peer`.
    pub fn drain_peer(&mut self, peer: PeerId, drained: &mut Vec<Pending<P>>) {
        for place in 0..self.slots.len() as u32 {
            let pending = self.slots[place as usize].pending.as_ref();
            if pending.is_some_and(|pending| pending.peer == peer) {
                drained.extend(self.remove(place));
            }
        }
    }

    /// Takes out everything.
    pub fn drain_all(&mut self, drained: &mut Vec<Pending<P>>) {
        for place in 0..self.slots.len() as u32 {
            drained.extend(self.remove(place));
        }
    }

    /// When [`Requests::expire`] may have something to do, ms.
    pub fn next_wake(&self) -> Option<u64> {
        if self.by_opaque.is_empty() {
            return None;
        }
        let start = (self.seen + 1) as usize % BUCKETS;
        let mut distance = 0;
        while distance < BUCKETS {
            let bucket = (start + distance) % BUCKETS;
            let rest = self.occupied[bucket / 64] >> (bucket % 64);
            if rest != 0 {
                let tick = self.seen + 1 + (distance as u64 + u64::from(rest.trailing_zeros()));
                return Some(tick << TICK_SHIFT);
            }
            distance += 64 - bucket % 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PEER: PeerId = PeerId { slot: 0, epoch: 0 };

    fn pending(sent_at: u64, deadline: u64, purpose: u32) -> Pending<u32> {
        Pending {
            peer: PEER,
            sent_at,
            deadline,
            code: 0,
            purpose,
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Answer(usize),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..40_000).prop_map(Step::Insert),
            any::<usize>().prop_map(Step::Answer),
            prop_oneof![0u64..50, 0u64..20_000].prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// Each request ends once: by its answer, or within a tick after its deadline.
        #[test]
        fn every_request_ends_once(steps in prop::collection::vec(step(), 1..200)) {
            let mut requests = Requests::new(1_000);
            let mut now = 1_000;
            let mut live: Vec<(i32, u64, u32)> = Vec::new();
            let mut next = 0;
            for step in steps {
                match step {
                    Step::Insert(limit) => {
                        let opaque = requests.insert(pending(now, now + limit, next));
                        live.push((opaque, now + limit, next));
                        next += 1;
                    }
                    Step::Answer(which) if !live.is_empty() => {
                        let (opaque, _, purpose) = live.swap_remove(which % live.len());
                        prop_assert_eq!(requests.take(opaque, PEER).unwrap().purpose, purpose);
                        prop_assert!(requests.take(opaque, PEER).is_none());
                    }
                    Step::Answer(_) => {}
                    Step::Pass(ms) => {
                        now += ms;
                        let mut expired = Vec::new();
                        requests.expire(now, &mut expired);
                        for gone in &expired {
                            prop_assert!(gone.deadline <= now);
                            live.retain(|&(_, _, purpose)| purpose != gone.purpose);
                        }
                        let tick = 1 << TICK_SHIFT;
                        prop_assert!(live.iter().all(|&(_, deadline, _)| deadline + tick > now));
                    }
                }
                prop_assert_eq!(requests.len(), live.len());
                let earliest = live.iter().map(|&(_, deadline, _)| deadline).min();
                let tick = 1 << TICK_SHIFT;
                match (earliest, requests.next_wake()) {
                    (None, wake) => prop_assert_eq!(wake, None),
                    (Some(deadline), Some(wake)) => prop_assert!(wake <= deadline.max(now) + 2 * tick),
                    (Some(_), None) => prop_assert!(false, "no wake"),
                }
            }
            prop_assert!(requests.slots.len() <= next as usize);
        }
    }

    #[test]
    fn an_answer_by_another_connection_is_not_for_it() {
        let mut requests = Requests::new(0);
        let opaque = requests.insert(pending(0, 10, 1));
        let other = PeerId { slot: 0, epoch: 1 };
        assert!(requests.take(opaque, other).is_none());
        assert!(requests.take(opaque + 1, PEER).is_none());
        assert!(requests.take(opaque, PEER).is_some());
    }

    #[test]
    fn places_are_used_again() {
        let mut requests = Requests::new(0);
        for n in 0..10_000 {
            let opaque = requests.insert(pending(n, n + 3_000, 0));
            requests.take(opaque, PEER);
        }
        assert_eq!(requests.slots.len(), 1);
        assert_eq!(requests.next_wake(), None);
    }

    #[test]
    fn numbers_go_round_and_leave_out_those_in_use() {
        let mut requests = Requests::new(0);
        let first = requests.insert(pending(0, 10, 1));
        requests.next_opaque = i32::MAX;
        assert_eq!(requests.insert(pending(0, 10, 2)), i32::MAX);
        assert_eq!(requests.insert(pending(0, 10, 3)), first + 1);
    }
}
