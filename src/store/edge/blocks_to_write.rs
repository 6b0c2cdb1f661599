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

    /// Where they lie behind the first `skip` bytes, in order, for as long as `self` lives.
    pub fn iovecs_from(&self, mut skip: usize) -> Vec<libc::iovec> {
        let last = self
            .last
            .as_ref()
            .map_or(std::ptr::null(), |block| block.0.as_ptr());
        let runs = [self.runs[0], self.runs[1], (last, self.last_len())];
        let mut iovecs = Vec::with_capacity(runs.len());
        for (start, len) in runs {
            let skipped = skip.min(len);
            skip -= skipped;
            if skipped < len {
                iovecs.push(libc::iovec {
                    iov_base: start.wrapping_add(skipped).cast_mut().cast(),
                    iov_len: len - skipped,
                });
            }
        }
        iovecs
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_short_write_is_where_it_stopped() {
        let mut map = MmapMut::map_anon(3 * BLOCK_BYTES).unwrap();
        let (start, len) = (map.as_mut_ptr(), map.len());
        // SAFETY: the map stays where it is, and only the result has it.
        let map = unsafe { SharedMap::new(start, len, Arc::new(map)) };
        let (second, first) = (&map[..BLOCK_BYTES], &map[BLOCK_BYTES..]);
        let blocks = BlocksToWrite::new(&map, first, second, (&[7, 8], &[9]));
        assert_eq!(blocks.len(), 4 * BLOCK_BYTES);
        assert_eq!(blocks.to_vec()[3 * BLOCK_BYTES..][..4], [7, 8, 9, 0]);
        for (skip, lens) in [
            (0, vec![2 * BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES]),
            (512, vec![2 * BLOCK_BYTES - 512, BLOCK_BYTES, BLOCK_BYTES]),
            (2 * BLOCK_BYTES, vec![BLOCK_BYTES, BLOCK_BYTES]),
            (4 * BLOCK_BYTES - 1, vec![1]),
            (4 * BLOCK_BYTES, vec![]),
        ] {
            let rest = blocks.iovecs_from(skip);
            let found: Vec<usize> = rest.iter().map(|run| run.iov_len).collect();
            assert_eq!(found, lens);
        }
    }
}
