//! Records on their way to an answer.

use bytes::Bytes;

/// Unused bytes that an answer may hold.
const SPARE_BYTES_MAX: usize = 32 * 1024;

/// Records gathered for an answer, in order.
#[derive(Debug, Default)]
pub struct Fetch {
    pieces: Vec<Bytes>,
    copied: Vec<u8>,
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
        if self.copied.is_empty() {
            // A pull that finds one message in the tail mostly finds more.
            self.copied.reserve((first.len() + second.len()) * 4);
        }
        self.copied.extend_from_slice(first);
        self.copied.extend_from_slice(second);
        self.len += first.len() + second.len();
    }

    /// Adds bytes that do not change.
    pub(super) fn slice(&mut self, bytes: Bytes) {
        if !self.copied.is_empty() {
            self.pieces.push(std::mem::take(&mut self.copied).into());
        }
        self.len += bytes.len();
        self.pieces.push(bytes);
    }

    /// The pieces, in order.
    pub fn into_pieces(mut self) -> Vec<Bytes> {
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
