//! Records on their way to an answer.

use std::ops::Range;

use bytes::Bytes;

use super::blocks::CACHE_BLOCK_BYTES;

/// An answer that waits for a slow reader holds so many times its size in blocks at most.
const HELD_FACTOR: usize = 32;

/// Unused bytes that an answer may hold.
const SPARE_BYTES_MAX: usize = 32 * 1024;

/// Most that is copied into one piece, but for a record that is larger.
const COPIED_MAX: usize = 128 * 1024;

/// Records gathered for an answer, in order.
#[derive(Debug, Default)]
pub struct Fetch {
    pieces: Vec<Bytes>,
    copied: Vec<u8>,
    /// A block, and what of it comes next: records that lie one behind the other in the
    /// log are one piece.
    run: Option<(Bytes, Range<usize>)>,
    len: usize,
    /// How many blocks are held, or more.
    blocks: usize,
}

impl Fetch {
    /// Bytes gathered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds bytes that may change, in two runs.
    pub(super) fn copy(&mut self, first: &[u8], second: &[u8]) {
        self.end_run();
        let len = first.len() + second.len();
        let has_room = self.copied.len() + len <= self.copied.capacity();
        if !has_room && 2 * self.copied.capacity() > COPIED_MAX {
            self.end_copied();
        }
        if self.copied.is_empty() {
            // A pull that finds one message in the tail mostly finds more.
            let most = if self.pieces.is_empty() {
                4 * len
            } else {
                COPIED_MAX
            };
            self.copied.reserve(most.min(COPIED_MAX).max(len));
        }
        self.copied.extend_from_slice(first);
        self.copied.extend_from_slice(second);
        self.len += len;
    }

    fn end_copied(&mut self) {
        if self.copied.is_empty() {
            return;
        }
        let mut copied = std::mem::take(&mut self.copied);
        // What grew by doubling may be half empty, and waits for a slow reader.
        if copied.capacity() - copied.len() > SPARE_BYTES_MAX {
            copied.shrink_to_fit();
        }
        self.pieces.push(copied.into());
    }

    /// Adds bytes of a block, which do not change.
    pub(super) fn slice(&mut self, block: &Bytes, range: Range<usize>) {
        self.len += range.len();
        if let Some((run_block, run)) = &mut self.run
            && run.end == range.start
            && run_block.as_ptr() == block.as_ptr()
        {
            run.end = range.end;
            return;
        }
        let is_same = match &self.run {
            Some((run_block, _)) => run_block.as_ptr() == block.as_ptr(),
            None => false,
        };
        self.blocks += usize::from(!is_same);
        self.end_run();
        self.end_copied();
        self.run = Some((block.clone(), range));
    }

    fn end_run(&mut self) {
        if let Some((block, range)) = self.run.take() {
            self.pieces.push(block.slice(range));
        }
    }

    /// The pieces, in order.
    pub fn into_pieces(mut self) -> Vec<Bytes> {
        self.end_run();
        if self.blocks * CACHE_BLOCK_BYTES as usize > HELD_FACTOR * self.len {
            return self.compact();
        }
        self.end_copied();
        self.pieces
    }

    /// A copy of everything, which holds no blocks.
    fn compact(self) -> Vec<Bytes> {
        let mut all = Vec::with_capacity(self.len);
        for piece in &self.pieces {
            all.extend_from_slice(piece);
        }
        all.extend_from_slice(&self.copied);
        vec![all.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_together_in_a_block_is_one_piece_and_all_stays_in_order() {
        let block: Bytes = (0..100).collect::<Vec<u8>>().into();
        let other = Bytes::copy_from_slice(&block);
        let mut fetch = Fetch::default();
        fetch.slice(&block, 0..10);
        fetch.slice(&block, 10..30);
        fetch.slice(&block, 31..40);
        fetch.slice(&other, 40..50);
        fetch.copy(&[200, 201], &[202]);
        fetch.copy(&[203], &[]);
        fetch.slice(&other, 50..60);
        assert_eq!(fetch.len(), 10 + 20 + 9 + 10 + 4 + 10);
        fetch.blocks = 0;
        let pieces = fetch.into_pieces();
        let lens: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lens, [30, 9, 10, 4, 10]);
        let expected: Vec<u8> = (0..30)
            .chain(31..50)
            .chain(200..204)
            .chain(50..60)
            .collect();
        assert_eq!(pieces.concat(), expected);
    }

    #[test]
    fn what_is_copied_is_in_order_in_pieces_of_bounded_size() {
        for len in [1000, 30_000, 128 * 1024, 300_000] {
            let mut fetch = Fetch::default();
            let mut expected = Vec::new();
            for n in 0..40 {
                let record = vec![n; len];
                fetch.copy(&record[..len / 3], &record[len / 3..]);
                assert!(fetch.copied.capacity() <= COPIED_MAX.max(len));
                expected.extend_from_slice(&record);
            }
            assert_eq!(fetch.len(), expected.len());
            let pieces = fetch.into_pieces();
            assert!(
                pieces.len() <= 1 + expected.len() / (COPIED_MAX / 2),
                "{}",
                pieces.len()
            );
            assert!(pieces.concat() == expected);
        }
    }

    #[test]
    fn a_small_answer_does_not_hold_many_blocks() {
        let mut fetch = Fetch::default();
        let mut expected = Vec::new();
        for n in 0..10u8 {
            let block: Bytes = vec![n; 2000].into();
            fetch.slice(&block, 0..1000);
            expected.extend_from_slice(&[n; 1000]);
        }
        fetch.copy(&[77], &[]);
        expected.push(77);
        let pieces = fetch.into_pieces();
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0], expected);

        let block: Bytes = vec![1; 100_000].into();
        let mut fetch = Fetch::default();
        for n in 0..20 {
            fetch.slice(&block, n * 4000..n * 4000 + 2000);
        }
        assert_eq!(fetch.into_pieces().len(), 20);
    }
}
