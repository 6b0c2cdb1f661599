//! What was read of connections and is not handled yet.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use crate::wire::frame::{self, Split};

/// Bytes read at once. One buffer serves all connections of a shard.
pub(super) const READ_BYTES: usize = 256 * 1024;

/// What is left of a buffer is copied out of it up to this size; with more left the
/// connection keeps the buffer, and the shard goes on with another one.
pub(super) const COPY_BYTES_MAX: usize = 64 * 1024;

/// Buffers that are there from the start, and kept, for connections that keep one. They take
/// memory when they are first used.
const SPARE_BUFFERS: usize = 32;

/// Frames up to this size are read without asking for room.
const SMALL_FRAME_BYTES: usize = 64 * 1024;

/// Bytes of large frames that a shard is reading. At the bound a connection with
/// the start of one more is not read until one of them is done or given up.
const LARGE_FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes that were read and are not handled yet, for want of room in the log, say.
/// At the bound connections of which nothing was read yet are not read.
const UNHANDLED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A buffer to read into.
pub(super) fn read_buffer() -> Box<[u8]> {
    vec![0; READ_BYTES].into()
}

/// What all connections of a shard hold together.
pub(super) struct Unhandled {
    large: Cell<usize>,
    bytes: Cell<usize>,
    spare: RefCell<Vec<Box<[u8]>>>,
}

impl Unhandled {
    /// Of a shard that has no connections yet.
    pub fn new() -> Unhandled {
        Unhandled {
            large: Cell::default(),
            bytes: Cell::default(),
            spare: RefCell::new((0..SPARE_BUFFERS).map(|_| read_buffer()).collect()),
        }
    }

    /// Whether a connection that holds nothing may be read.
    pub fn has_room(&self) -> bool {
        self.bytes.get() <= UNHANDLED_BYTES_MAX
    }

    /// A buffer in place of one that a connection keeps.
    pub fn lend(&self) -> Box<[u8]> {
        self.bytes.set(self.bytes.get() + READ_BYTES);
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(read_buffer)
    }

    /// Everything in a buffer is handled.
    pub fn give_back(&self, buffer: Box<[u8]>) {
        self.bytes.set(self.bytes.get() - READ_BYTES);
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_BUFFERS {
            spare.push(buffer);
        }
    }
}

/// What one connection holds, counted against the shard's bounds.
pub(super) struct Partial<'a> {
    /// Copied out of the shard's buffer.
    pub bytes: Vec<u8>,
    /// A buffer that it keeps, and what of it comes next, behind `bytes`. Nothing is read
    /// while it is there.
    pub taken: Option<(Box<[u8]>, Range<usize>)>,
    /// Size of the large frame that has room, 0 without one.
    admitted: usize,
    counts: &'a Unhandled,
}

impl<'a> Partial<'a> {
    pub fn new(counts: &'a Unhandled) -> Partial<'a> {
        Partial {
            bytes: Vec::new(),
            taken: None,
            admitted: 0,
            counts,
        }
    }

    /// Whether the frame that has begun may be read to its end.
    pub fn admit(&mut self) -> bool {
        let total = match frame::split(&self.bytes) {
            Ok(Split::Incomplete(total)) => total,
            _ => 0,
        };
        if total <= SMALL_FRAME_BYTES || self.admitted > 0 {
            return true;
        }
        let large = &self.counts.large;
        if large.get() + total > LARGE_FRAME_BYTES_MAX {
            return false;
        }
        large.set(large.get() + total);
        self.admitted = total;
        self.bytes.reserve_exact(total - self.bytes.len());
        true
    }

    pub fn extend(&mut self, bytes: &[u8]) {
        let count = &self.counts.bytes;
        count.set(count.get() + bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    pub fn consume(&mut self, used: usize) {
        if used == 0 {
            return;
        }
        let (bytes, large) = (&self.counts.bytes, &self.counts.large);
        bytes.set(bytes.get() - used);
        large.set(large.get() - self.admitted);
        self.admitted = 0;
        if used == self.bytes.len() {
            self.bytes = Vec::new();
        } else {
            self.bytes.drain(..used);
        }
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        let (bytes, large) = (&self.counts.bytes, &self.counts.large);
        bytes.set(bytes.get() - self.bytes.len());
        large.set(large.get() - self.admitted);
        if let Some((buffer, _)) = self.taken.take() {
            self.counts.give_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connections_hold_is_counted_until_they_let_go_of_it() {
        let counts = Unhandled::new();
        let mut one = Partial::new(&counts);
        one.extend(&[1; 100]);
        one.consume(40);
        assert_eq!((counts.bytes.get(), one.bytes.len()), (60, 60));
        let kept = counts.lend();
        one.taken = Some((kept, 0..READ_BYTES));
        assert_eq!(counts.bytes.get(), READ_BYTES + 60);
        let many: Vec<_> = (0..UNHANDLED_BYTES_MAX / READ_BYTES)
            .map(|_| counts.lend())
            .collect();
        assert!(!counts.has_room());
        for buffer in many {
            counts.give_back(buffer);
        }
        assert!(counts.has_room());
        assert_eq!(counts.spare.borrow().len(), SPARE_BUFFERS);
        drop(one);
        assert_eq!(counts.bytes.get(), 0);
    }
}
