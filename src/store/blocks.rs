//! A bounded cache of the log's blocks, for readers behind the tail.
//!
//! Several lagging queues read the same stretch of the log, as it holds all
//! topics: each block is read from the device once for all of them. What was
//! read once is not kept for long: the cache is small and forgets the block
//! that was not used for the longest time.

use std::ops::Range;

use foldhash::{HashMap, HashMapExt};

use bytes::Bytes;

/// Bytes of one cached block of the log.
pub const CACHE_BLOCK_BYTES: u64 = 256 * 1024;

/// The cache. Blocks are named by the position of their first byte.
pub struct BlockCache {
    blocks: HashMap<u64, Cached>,
    capacity: usize,
    segment_bytes: u64,
    clock: u64,
}

struct Cached {
    bytes: Bytes,
    used: u64,
}

impl BlockCache {
    /// A cache of at most `bytes` bytes, and of at least 32 blocks, so that the
    /// largest message fits.
    pub fn new(bytes: usize, segment_bytes: u64) -> BlockCache {
        BlockCache {
            blocks: HashMap::new(),
            capacity: (bytes / CACHE_BLOCK_BYTES as usize).max(32),
            segment_bytes,
            clock: 0,
        }
    }

    /// The `len` bytes at `position`, handed out in order: blocks, and what of them.
    ///
    /// # Errors
    /// The position of the first block that is missing or too short.
    pub fn slices(
        &mut self,
        position: u64,
        len: usize,
        mut out: impl FnMut(&Bytes, Range<usize>),
    ) -> Result<(), u64> {
        let (mut at, end) = (position, position + len as u64);
        // Nothing is handed out before all of it is known to be there.
        let mut check = self.block_start(position);
        while check < end {
            let stop = end.min(check + CACHE_BLOCK_BYTES);
            let cached = self.blocks.get(&check);
            if cached.is_none_or(|c| check + (c.bytes.len() as u64) < stop) {
                return Err(check);
            }
            check += CACHE_BLOCK_BYTES;
        }
        while at < end {
            let start = self.block_start(at);
            let stop = end.min(start + CACHE_BLOCK_BYTES);
            self.clock += 1;
            if let Some(cached) = self.blocks.get_mut(&start) {
                cached.used = self.clock;
                let range = (at - start) as usize..(stop - start) as usize;
                out(&cached.bytes, range);
            }
            at = stop;
        }
        Ok(())
    }

    /// Blocks are counted from the start of a segment, so that none spans two.
    fn block_start(&self, position: u64) -> u64 {
        position - position % self.segment_bytes % CACHE_BLOCK_BYTES
    }

    /// Whether the block is in the cache.
    pub fn contains(&self, start: u64) -> bool {
        self.blocks.contains_key(&start)
    }

    /// Forgets what lies in front of `position`.
    pub fn remove_before(&mut self, position: u64) {
        self.blocks.retain(|&start, _| start >= position);
    }

    /// Puts a block that was read into the cache.
    pub fn insert(&mut self, start: u64, bytes: Bytes) {
        self.clock += 1;
        let used = self.clock;
        self.blocks.insert(start, Cached { bytes, used });
        if self.blocks.len() > self.capacity {
            let oldest = self.blocks.iter().min_by_key(|(_, cached)| cached.used);
            if let Some(&oldest) = oldest.map(|(start, _)| start) {
                self.blocks.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_span_blocks_and_name_the_missing_one() {
        let mut cache = BlockCache::new(0, 1 << 30);
        let block = CACHE_BLOCK_BYTES;
        let mut out = Vec::new();
        assert_eq!(
            cache.slices(block - 10, 20, |b, range| out.push(b.slice(range))),
            Err(0)
        );
        cache.insert(0, vec![1; block as usize].into());
        assert_eq!(
            cache.slices(block - 10, 20, |b, range| out.push(b.slice(range))),
            Err(block)
        );
        cache.insert(block, vec![2; 9].into());
        assert_eq!(
            cache.slices(block - 10, 20, |b, range| out.push(b.slice(range))),
            Err(block)
        );
        assert!(out.is_empty());
        cache.insert(block, vec![2; 10].into());
        assert_eq!(
            cache.slices(block - 10, 20, |b, range| out.push(b.slice(range))),
            Ok(())
        );
        assert_eq!(out.concat(), [[1; 10], [2; 10]].concat());
        for n in 2..200 {
            cache.insert(n * block, Bytes::new());
        }
        assert!(cache.blocks.len() <= 32);
        cache.remove_before(198 * block);
        assert!(!cache.contains(197 * block) && cache.contains(198 * block));
        assert_eq!(cache.blocks.len(), 2);
    }

    #[test]
    fn no_block_spans_two_segments() {
        let mut cache = BlockCache::new(0, 1_000_000);
        assert_eq!(cache.slices(999_999, 1, |_, _| ()), Err(786_432));
        assert_eq!(cache.slices(1_000_001, 1, |_, _| ()), Err(1_000_000));
    }
}
