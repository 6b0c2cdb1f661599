//! Memory that segments are read into: used again, as fresh memory of this size costs a page
//! fault for every 4 KiB of it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::store::BLOCK_BYTES;
use crate::store::blocks::CACHE_BLOCK_BYTES;

/// Unused buffers that are kept. Answers that wait to be sent may hold more; these are given
/// back when they are done.
const KEPT_MAX: usize = 32;

/// Buffers of [`CACHE_BLOCK_BYTES`]. An answer may end on another shard than it began on, so
/// a buffer comes back from any thread; the lock is taken once a buffer.
#[derive(Clone, Default)]
pub(super) struct BlockPool {
    unused: Arc<Mutex<Vec<Buffer>>>,
}

/// Memory aligned for direct I/O.
pub(super) struct Buffer {
    start: NonNull<u8>,
}

const LAYOUT: Layout = match Layout::from_size_align(CACHE_BLOCK_BYTES as usize, BLOCK_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a size that is bounded, and a power of two"),
};

// SAFETY: the memory belongs to the buffer alone, wherever it goes.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new() -> Buffer {
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(LAYOUT) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(LAYOUT)
        };
        Buffer { start }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its size, in bytes.
    pub(super) fn len(&self) -> usize {
        LAYOUT.size()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and given back once.
        unsafe { dealloc(self.start.as_ptr(), LAYOUT) }
    }
}

/// A buffer on loan.
pub(super) struct Loan {
    buffer: Option<Buffer>,
    /// Bytes of it that were read.
    filled: usize,
    pool: BlockPool,
}

impl BlockPool {
    /// A buffer of [`CACHE_BLOCK_BYTES`].
    pub(super) fn take(&self) -> Loan {
        let kept = self.lock().pop();
        Loan {
            buffer: Some(kept.unwrap_or_else(Buffer::new)),
            filled: 0,
            pool: self.clone(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Buffer>> {
        // A list that was being pushed to or popped from is whole at every step.
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan {
    pub(super) fn buffer(&mut self) -> &mut Buffer {
        self.buffer.as_mut().expect("given back when it is dropped")
    }

    /// The first `filled` bytes, which are given back when the last clone is dropped.
    pub(super) fn into_bytes(mut self, filled: usize) -> Bytes {
        assert!(filled <= self.buffer().len());
        self.filled = filled;
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("given back when it is dropped");
        // SAFETY: the buffer is at least as long, all of it was initialized when it was made,
        // and nobody writes to it as long as it is lent as bytes.
        unsafe { std::slice::from_raw_parts(buffer.start.as_ptr(), self.filled) }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else {
            return;
        };
        let mut unused = self.pool.lock();
        if unused.len() < KEPT_MAX {
            unused.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_lent_again_when_the_last_clone_is_gone_and_never_before() {
        let pool = BlockPool::default();
        let mut loan = pool.take();
        let first = loan.buffer().as_mut_ptr();
        assert_eq!(first as usize % BLOCK_BYTES, 0);
        let bytes = loan.into_bytes(10);
        let part = bytes.slice(3..5);
        drop(bytes);
        let mut other = pool.take();
        assert_ne!(other.buffer().as_mut_ptr(), first);
        std::thread::spawn(move || drop(part)).join().unwrap();
        assert_eq!(pool.take().buffer().as_mut_ptr(), first);
        let many: Vec<Loan> = (0..3 * KEPT_MAX).map(|_| pool.take()).collect();
        drop(many);
        assert_eq!(pool.lock().len(), KEPT_MAX);
    }
}
