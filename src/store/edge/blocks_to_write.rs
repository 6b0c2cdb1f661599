//! Whole blocks of the log on their way to the device.

use std::any::Any;
use std::io;
use std::sync::Arc;

use memmap2::MmapMut;

use super::SharedMap;
use crate::store::BLOCK_BYTES;

/// A block of its own, aligned for direct I/O.
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Blocks of a map, in place, and a last one that is padded with zeros. Whoever makes it
/// promises that nobody changes those of the map before they are written.
pub struct BlocksToWrite {
    runs: [(*const u8, usize); 2],
    last: Option<Box<Block>>,
    /// Keeps the map where it is.
    map: Arc<dyn Any + Send + Sync>,
}

impl BlocksToWrite {
    /// `first` and `second` are parts of `map`, whole blocks together with nothing between;
    /// `last` is less than a block, and is copied.
    pub(in crate::store) fn new(
        map: &SharedMap,
        first: &[u8],
        second: &[u8],
        last: (&[u8], &[u8]),
    ) -> BlocksToWrite {
        let inside = map.as_ptr_range();
        for run in [first, second] {
            let run = run.as_ptr_range();
            assert!(inside.start <= run.start && run.end <= inside.end);
        }
        let len = last.0.len() + last.1.len();
        let last = (len > 0).then(|| {
            let mut block = Box::new(Block([0; BLOCK_BYTES]));
            block.0[..last.0.len()].copy_from_slice(last.0);
            block.0[last.0.len()..len].copy_from_slice(last.1);
            block
        });
        BlocksToWrite {
            runs: [
                (first.as_ptr(), first.len()),
                (second.as_ptr(), second.len()),
            ],
            last,
            map: map.keeper(),
        }
    }

    /// Blocks of zeros, of `bytes` bytes, whole blocks.
    ///
    /// # Errors
    /// Those of mapping memory for them.
    pub fn zeros(bytes: usize) -> io::Result<BlocksToWrite> {
        assert!(bytes % BLOCK_BYTES == 0);
        let map = MmapMut::map_anon(bytes)?;
        Ok(BlocksToWrite {
            runs: [(map.as_ptr(), bytes), (map.as_ptr(), 0)],
            last: None,
            map: Arc::new(map),
        })
    }

    /// The first `bytes` bytes of blocks in one run, once more.
    pub fn start(&self, bytes: usize) -> BlocksToWrite {
        let (start, len) = self.runs[0];
        assert!(bytes <= len && bytes % BLOCK_BYTES == 0);
        BlocksToWrite {
            runs: [(start, bytes), (start, 0)],
            last: None,
            map: self.map.clone(),
        }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|(_, len)| len).sum::<usize>() + self.last_len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn last_len(&self) -> usize {
        self.last.as_ref().map_or(0, |_| BLOCK_BYTES)
    }

    /// Where they lie, in order, for as long as `self` lives.
    pub fn iovecs(&self) -> [libc::iovec; 3] {
        let last = self
            .last
            .as_ref()
            .map_or(std::ptr::null(), |block| block.0.as_ptr());
        [self.runs[0], self.runs[1], (last, self.last_len())].map(|(start, len)| libc::iovec {
            iov_base: start.cast_mut().cast(),
            iov_len: len,
        })
    }

    /// A copy of them.
    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        for (start, len) in self.runs {
            // SAFETY: the map lives, is written to by its own thread alone, which is this one
            // (a map's pointers are not sent), and no slice of it is borrowed meanwhile.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
        }
        if let Some(last) = &self.last {
            bytes.extend_from_slice(&last.0);
        }
        bytes
    }
}
