//! What was sent and acknowledged: two bits a message, and a fingerprint a queue.

use super::bits::Bits;
use super::mix;

/// Most pairs of a producer and a place.
pub const PAIRS_MAX: usize = 1 << 21;

/// Everything that the producers of one run sent.
#[derive(Clone, Debug)]
pub struct Sent {
    places: usize,
    pairs: Vec<Pair>,
    ends: Vec<Queue>,
}

/// Messages of one producer to one place.
#[derive(Clone, Debug, Default)]
struct Pair {
    next: u32,
    /// All below are answered.
    floor: u32,
    acknowledged: Bits,
    /// Refused, or without an answer: may be there or not.
    unknown: Bits,
}

/// Acknowledged messages of one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    /// Messages.
    pub count: u64,
    /// Sum of the fingerprints of (queue offset, message).
    pub fingerprint: u64,
    /// One above the highest queue offset that was answered.
    pub end: i64,
}

impl Queue {
    pub(super) fn add(&mut self, offset: i64, pair: usize, sequence: u32) {
        self.count += 1;
        self.fingerprint = self
            .fingerprint
            .wrapping_add(fingerprint(offset, pair, sequence));
        self.end = self.end.max(offset + 1);
    }

    pub(super) fn merge(&mut self, other: &Queue) {
        self.count += other.count;
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
        self.end = self.end.max(other.end);
    }
}

fn fingerprint(offset: i64, pair: usize, sequence: u32) -> u64 {
    mix(mix(offset as u64) ^ ((pair as u64) << 32 | u64::from(sequence)))
}

impl Sent {
    /// Nothing sent yet.
    ///
    /// # Errors
    /// More than [`PAIRS_MAX`] pairs.
    pub fn new(producers: usize, places: usize) -> Result<Sent, String> {
        let pairs = Sent::check(producers, places)?;
        Ok(Sent {
            places,
            pairs: vec![Pair::default(); pairs],
            ends: vec![Queue::default(); places],
        })
    }

    /// `count` messages are about to be sent: the sequence of the first, and the floor.
    pub fn begin(&mut self, producer: u32, place: u32, count: u32) -> (u32, u32) {
        let pair = self.pair_mut(producer, place);
        let first = pair.next;
        pair.next += count;
        (first, pair.floor)
    }

    /// Whether so many orders can be verified. Returns their number.
    ///
    /// # Errors
    /// Text with the limit.
    pub fn check(producers: usize, places: usize) -> Result<usize, String> {
        let pairs = producers.saturating_mul(places);
        if pairs > PAIRS_MAX {
            return Err(format!(
                "{producers} connections times {places} queues are {pairs} orders to verify, \
                 above the limit of {PAIRS_MAX}: take fewer, or --no-verify"
            ));
        }
        Ok(pairs)
    }

    /// They were acknowledged; the first of them is at this queue offset. Neither it nor those
    /// behind it may be beyond [`i64::MAX`].
    pub fn acknowledge(&mut self, producer: u32, place: u32, first: u32, count: u32, offset: i64) {
        let index = self.index(producer, place);
        let (pair, queue) = (&mut self.pairs[index], &mut self.ends[place as usize]);
        for step in 0..count {
            pair.acknowledged.insert(first + step);
            queue.add(offset + i64::from(step), index, first + step);
        }
        pair.raise_floor();
    }

    /// It is not known whether they are stored.
    pub fn give_up(&mut self, producer: u32, place: u32, first: u32, count: u32) {
        let pair = self.pair_mut(producer, place);
        for step in 0..count {
            pair.unknown.insert(first + step);
        }
        pair.raise_floor();
    }

    /// Adds what another thread sent for other producers.
    pub fn merge(&mut self, other: &Sent) {
        for (mine, theirs) in self.pairs.iter_mut().zip(&other.pairs) {
            mine.next = mine.next.max(theirs.next);
            mine.acknowledged.merge(&theirs.acknowledged);
            mine.unknown.merge(&theirs.unknown);
            mine.raise_floor();
        }
        for (mine, theirs) in self.ends.iter_mut().zip(&other.ends) {
            mine.merge(theirs);
        }
    }

    /// Messages of which it is not known whether they are stored.
    pub fn unknown(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.unknown.count()).sum()
    }

    /// One above the highest queue offset that was answered, for each place; 0 for none.
    pub fn ends(&self) -> Vec<i64> {
        self.ends.iter().map(|queue| queue.end).collect()
    }

    /// Whether a message was acknowledged.
    pub fn is_acknowledged(&self, pair: usize, sequence: u32) -> bool {
        self.pairs[pair].acknowledged.contains(sequence)
    }

    pub(super) fn acknowledged_of(&self, pair: usize) -> &Bits {
        &self.pairs[pair].acknowledged
    }

    pub(super) fn queue(&self, place: usize) -> &Queue {
        &self.ends[place]
    }

    /// Pairs of producers and places.
    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Producers.
    pub fn producers(&self) -> usize {
        self.pairs.len() / self.places.max(1)
    }

    /// Places.
    pub fn places(&self) -> usize {
        self.places
    }

    fn index(&self, producer: u32, place: u32) -> usize {
        producer as usize * self.places + place as usize
    }

    fn pair_mut(&mut self, producer: u32, place: u32) -> &mut Pair {
        let index = self.index(producer, place);
        &mut self.pairs[index]
    }
}

impl Pair {
    fn raise_floor(&mut self) {
        while self.acknowledged.contains(self.floor) || self.unknown.contains(self.floor) {
            self.floor += 1;
        }
    }
}
