//! Records on their way to an answer.

use std::ops::Range;

use bytes::Bytes;

/// Unused bytes that an answer may hold.
const SPARE_BYTES_MAX: usize = 32 * 1024;

/// Records gathered for an answer, in order.
#[derive(Debug, Default)]
pub struct Fetch {
    pieces: Vec<Bytes>,
    copied: Vec<u8>,
    /// A block, and what of it comes next: records that lie one behind the other in the
    /// log are one piece.
    run: Option<(Bytes, Range<usize>)>,
    len: usize,
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
        if self.copied.is_empty() {
            // A pull that finds one message in the tail mostly finds more.
            self.copied.reserve((first.len() + second.len()) * 4);
        }
        self.copied.extend_from_slice(first);
        self.copied.extend_from_slice(second);
        self.len += first.len() + second.len();
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
        self.end_run();
        if !self.copied.is_empty() {
            self.pieces.push(std::mem::take(&mut self.copied).into());
        }
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
        if !self.copied.is_empty() {
            // What grew by doubling may be half empty, and waits for a slow reader.
            if self.copied.capacity() - self.copied.len() > SPARE_BYTES_MAX {
                self.copied.shrink_to_fit();
            }
            self.pieces.push(self.copied.into());
        }
        self.pieces
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
}
