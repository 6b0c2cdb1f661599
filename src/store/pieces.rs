//! A queue in memory that grows piece by piece.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a piece, about.
const PIECE_BYTES: usize = 32 * 1024;

/// Values in order, appended at the end and dropped from the front. However many there
/// are, no append moves those that are there or asks for more than a piece of memory, as a
/// vector would do in the middle of a turn.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    /// All but the last are full.
    pieces: VecDeque<Vec<T>>,
    /// Values of the first piece that were dropped.
    dropped: usize,
    len: usize,
}

impl<T> Default for Pieces<T> {
    fn default() -> Pieces<T> {
        Pieces {
            pieces: VecDeque::new(),
            dropped: 0,
            len: 0,
        }
    }
}

impl<T: Copy> FromIterator<T> for Pieces<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Pieces<T> {
        let mut pieces = Pieces::default();
        values.into_iter().for_each(|value| pieces.push(value));
        pieces
    }
}

impl<T: Copy> Pieces<T> {
    /// Values of a full piece.
    const FULL: usize = PIECE_BYTES / size_of::<T>();

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it holds memory.
    pub fn is_allocated(&self) -> bool {
        !self.pieces.is_empty()
    }

    pub fn push(&mut self, value: T) {
        match self.pieces.back_mut() {
            Some(last) if last.len() < Self::FULL => last.push(value),
            // The first one grows with what it holds: most queues hold little.
            None => self.pieces.push_back(vec![value]),
            Some(_) => {
                let mut piece = Vec::with_capacity(Self::FULL);
                piece.push(value);
                self.pieces.push_back(piece);
            }
        }
        self.len += 1;
    }

    pub fn get(&self, index: usize) -> Option<&T> {
        let at = self.dropped + index;
        self.pieces.get(at / Self::FULL)?.get(at % Self::FULL)
    }

    /// The values in a range of indexes, as far as they are there.
    pub fn range(&self, range: Range<usize>) -> impl Iterator<Item = &T> {
        (range.start..range.end.min(self.len)).map_while(|index| self.get(index))
    }

    /// All values, piece by piece.
    pub fn slices(&self) -> impl Iterator<Item = &[T]> {
        let skip = self.dropped;
        let pieces = self.pieces.iter().enumerate();
        pieces.map(move |(n, piece)| &piece[if n == 0 { skip } else { 0 }..])
    }

    /// Drops the first `count`.
    pub fn drop_front(&mut self, count: usize) {
        let count = count.min(self.len);
        self.dropped += count;
        self.len -= count;
        while self.dropped >= Self::FULL {
            self.pieces.pop_front();
            self.dropped -= Self::FULL;
        }
        if self.len == 0 {
            // The memory stays, for what comes next.
            self.pieces.truncate(1);
            if let Some(only) = self.pieces.front_mut() {
                only.clear();
            }
            self.dropped = 0;
        }
    }

    /// Keeps the first `count` only.
    pub fn truncate(&mut self, count: usize) {
        if count == 0 {
            self.drop_front(self.len);
            return;
        }
        self.len = self.len.min(count);
        let end = self.dropped + self.len;
        self.pieces.truncate(end.div_ceil(Self::FULL));
        if let Some(last) = self.pieces.back_mut() {
            last.truncate((end - 1) % Self::FULL + 1);
        }
    }

    /// Gives back the memory that no value needs.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            *self = Pieces::default();
        } else if let Some(last) = self.pieces.back_mut() {
            last.shrink_to_fit();
        }
        self.pieces.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_like_a_deque(steps in prop::collection::vec((0u8..5, 0usize..4000), 1..60)) {
            let mut pieces = Pieces::<u64>::default();
            let mut model = VecDeque::new();
            let mut next = 0;
            for (step, count) in steps {
                match step {
                    0 | 1 => for _ in 0..count {
                        pieces.push(next);
                        model.push_back(next);
                        next += 1;
                    },
                    2 => {
                        pieces.drop_front(count);
                        model.drain(..count.min(model.len()));
                    }
                    3 => {
                        let keep = model.len().saturating_sub(count);
                        pieces.truncate(keep);
                        model.truncate(keep);
                    }
                    _ => {
                        pieces.shrink();
                        prop_assert_eq!(pieces.is_allocated(), !model.is_empty());
                    }
                }
                prop_assert_eq!(pieces.len(), model.len());
                prop_assert!(pieces.range(0..usize::MAX).eq(model.iter()));
                prop_assert!(pieces.slices().flatten().eq(model.iter()));
                let middle = model.len() / 2;
                prop_assert_eq!(pieces.get(middle), model.get(middle));
                prop_assert_eq!(pieces.get(model.len()), None);
                prop_assert!(pieces.range(middle..middle + 3).eq(model.iter().skip(middle).take(3)));
            }
        }
    }
}
