//! Memory that segments are read into. Its addresses are reserved at the start, so that reading
//! allocates nothing, and what was read into is used again, as fresh memory of this size costs
//! a page fault for every 4 KiB of it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};

use crate::store::BLOCK_BYTES;
use crate::store::blocks::CACHE_BLOCK_BYTES;

/// Buffers for which addresses are reserved: those of the largest cache, and as many for
/// answers that wait to be sent. More than these come from the allocator.
const RESERVED: usize = 256;

/// Unused buffers that keep their memory.
const KEPT_MAX: usize = 32;

/// Buffers of [`CACHE_BLOCK_BYTES`]. An answer may end on another shard than it began on, so
/// a buffer comes back from any thread; the lock is taken once a buffer.
#[derive(Clone)]
pub(super) struct BlockPool {
    shared: Arc<Shared>,
}

struct Shared {
    unused: Mutex<Unused>,
    /// Where the reserved buffers lie; without it all come from the allocator.
    _reserved: Option<MmapRaw>,
}

/// What nobody uses.
#[derive(Default)]
struct Unused {
    /// Those that were used last, with their memory.
    kept: Vec<Buffer>,
    /// Reserved addresses without memory.
    empty: Vec<NonNull<u8>>,
}

// SAFETY: addresses that nobody uses belong to the list alone, wherever it goes.
unsafe impl Send for Unused {}

/// Memory aligned for direct I/O.
pub(super) struct Buffer {
    start: NonNull<u8>,
    /// Whether its addresses are the pool's.
    is_reserved: bool,
}

const LAYOUT: Layout = match Layout::from_size_align(CACHE_BLOCK_BYTES as usize, BLOCK_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a size that is bounded, and a power of two"),
};

// SAFETY: the memory belongs to the buffer alone, wherever it goes.
unsafe impl Send for Buffer {}

impl Buffer {
    fn allocate() -> Buffer {
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(LAYOUT) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(LAYOUT)
        };
        Buffer {
            start,
            is_reserved: false,
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its size, in bytes.
    pub(super) fn len(&self) -> usize {
        LAYOUT.size()
    }
}

impl Unused {
    fn take(&mut self) -> Option<Buffer> {
        self.kept.pop().or_else(|| {
            let start = self.empty.pop()?;
            Some(Buffer {
                start,
                is_reserved: true,
            })
        })
    }

    /// Keeps a buffer with its memory, or gives it back where there are enough.
    fn keep(&mut self, buffer: Buffer) -> Option<Buffer> {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(buffer);
            return None;
        }
        Some(buffer)
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        let allocated = self.kept.iter().filter(|buffer| !buffer.is_reserved);
        for buffer in allocated {
            // SAFETY: allocated with this layout, and given back once.
            unsafe { dealloc(buffer.start.as_ptr(), LAYOUT) }
        }
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
    /// A pool with addresses of its own, as far as the system has them.
    pub(super) fn new() -> BlockPool {
        let mut options = MmapOptions::new();
        options.len(RESERVED * LAYOUT.size()).no_reserve_swap();
        let reserved = options.map_anon().map(MmapRaw::from).ok();
        let mut unused = Unused::default();
        if let Some(map) = &reserved {
            // The first ones are taken first.
            unused.empty = (0..RESERVED)
                .rev()
                .filter_map(|n| NonNull::new(map.as_mut_ptr().wrapping_add(n * LAYOUT.size())))
                .collect();
        }
        BlockPool {
            shared: Arc::new(Shared {
                unused: Mutex::new(unused),
                _reserved: reserved,
            }),
        }
    }

    /// A buffer of [`CACHE_BLOCK_BYTES`].
    pub(super) fn take(&self) -> Loan {
        let unused = self.lock().take();
        Loan {
            buffer: Some(unused.unwrap_or_else(Buffer::allocate)),
            filled: 0,
            pool: self.clone(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Unused> {
        // The lists are whole at every step.
        let unused = self.shared.unused.lock();
        unused.unwrap_or_else(PoisonError::into_inner)
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
        let Some(buffer) = self.pool.lock().keep(buffer) else {
            return;
        };
        // Outside the lock, which shards wait for.
        if buffer.is_reserved {
            // SAFETY: nobody uses these pages of the pool's own mapping. From now on they
            // read as zeros; where the call fails they stay as they are.
            unsafe {
                libc::madvise(
                    buffer.start.as_ptr().cast(),
                    buffer.len(),
                    libc::MADV_DONTNEED,
                )
            };
            self.pool.lock().empty.push(buffer.start);
        } else {
            // SAFETY: allocated with this layout, and given back once.
            unsafe { dealloc(buffer.start.as_ptr(), LAYOUT) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_lent_again_when_the_last_clone_is_gone_and_never_before() {
        let pool = BlockPool::new();
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
    }

    #[test]
    fn buffers_never_overlap_however_many_there_are_and_few_keep_their_memory() {
        let pool = BlockPool::new();
        for _ in 0..2 {
            let mut many: Vec<Loan> = (0..RESERVED + 10).map(|_| pool.take()).collect();
            for (n, loan) in many.iter_mut().enumerate() {
                let buffer = loan.buffer();
                // SAFETY: the buffer is this long, and on loan here.
                unsafe { std::ptr::write_bytes(buffer.as_mut_ptr(), n as u8, buffer.len()) };
            }
            for (n, loan) in many.into_iter().enumerate() {
                let bytes = loan.into_bytes(LAYOUT.size());
                assert!(bytes.iter().all(|&byte| byte == n as u8), "buffer {n}");
            }
            let unused = pool.lock();
            assert_eq!(
                (unused.kept.len(), unused.empty.len()),
                (KEPT_MAX, RESERVED - KEPT_MAX)
            );
        }
        // What gave its memory back has none but zeros.
        let start = pool.lock().empty.last().copied().expect("an empty one");
        // SAFETY: nobody uses it.
        let first = unsafe { start.as_ptr().read() };
        assert_eq!(first, 0);
    }

    #[test]
    fn as_many_as_are_reserved_allocate_nothing() {
        let pool = BlockPool::new();
        let many: Vec<Loan> = (0..RESERVED).map(|_| pool.take()).collect();
        assert!(
            many.iter()
                .all(|loan| loan.buffer.as_ref().is_some_and(|b| b.is_reserved))
        );
        drop(pool);
        // The addresses live as long as the last loan.
        let bytes: Vec<Bytes> = many.into_iter().map(|loan| loan.into_bytes(1)).collect();
        assert!(bytes.iter().all(|bytes| bytes[0] == 0));
    }
}
