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
    reached: Option<Reached>,
}

struct Cached {
    bytes: Bytes,
    used: u64,
    /// Blocks that were read ahead from this one on, until it is used.
    ahead: u64,
}

/// Who reads on has come to blocks that were read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Position of the first block behind them.
    pub next: u64,
    /// How many there are.
    pub blocks: u64,
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
            reached: None,
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
            if let Some(bytes) = self.used(start) {
                let range = (at - start) as usize..(stop - start) as usize;
                out(bytes, range);
            }
            at = stop;
        }
        Ok(())
    }

    /// The `len` bytes at `position` where they lie in one block: the block, and what of it.
    /// What lies at `later` is likely to be asked for soon.
    pub fn slice(
        &mut self,
        position: u64,
        len: usize,
        later: u64,
    ) -> Option<(&Bytes, Range<usize>)> {
        let start = self.block_start(position);
        let from = (position - start) as usize;
        let bytes = self.used(start)?;
        if let Some(later) = later
            .checked_sub(start)
            .filter(|&at| at < bytes.len() as u64)
        {
            prefetch(bytes.as_ptr().wrapping_add(later as usize));
        }
        (from + len <= bytes.len()).then_some((bytes, from..from + len))
    }

    /// The block that begins at `start`.
    fn used(&mut self, start: u64) -> Option<&Bytes> {
        let cached = self.blocks.get_mut(&start)?;
        self.clock += 1;
        cached.used = self.clock;
        let blocks = std::mem::take(&mut cached.ahead);
        if blocks > 0 {
            let next = start + blocks * CACHE_BLOCK_BYTES;
            self.reached = Some(Reached { next, blocks });
        }
        Some(&cached.bytes)
    }

    /// What was reached since the last call.
    pub fn take_reached(&mut self) -> Option<Reached> {
        self.reached.take()
    }

    /// Blocks are counted from the start of a segment, so that none spans two.
    fn block_start(&self, position: u64) -> u64 {
        position - position % self.segment_bytes % CACHE_BLOCK_BYTES
    }

    /// Blocks that it holds at most.
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Whether the block is in the cache.
    pub fn contains(&self, start: u64) -> bool {
        self.blocks.contains_key(&start)
    }

    /// Forgets what lies in front of `position`.
    pub fn remove_before(&mut self, position: u64) {
        self.blocks.retain(|&start, _| start >= position);
    }

    /// Puts a block that was read into the cache; `ahead` blocks were read from it on before
    /// they were asked for.
    pub fn insert(&mut self, start: u64, bytes: Bytes, ahead: u64) {
        self.clock += 1;
        let used = self.clock;
        self.blocks.insert(start, Cached { bytes, used, ahead });
        if self.blocks.len() > self.capacity {
            let oldest = self.blocks.iter().min_by_key(|(_, cached)| cached.used);
            if let Some(&oldest) = oldest.map(|(start, _)| start) {
                self.blocks.remove(&oldest);
            }
        }
    }
}

/// Asks the processor for the bytes at an address.
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which fails at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
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
        cache.insert(0, vec![1; block as usize].into(), 0);
        assert_eq!(
            cache.slices(block - 10, 20, |b, range| out.push(b.slice(range))),
            Err(block)
        );
        cache.insert(block, vec![2; 9].into(), 0);
        assert_eq!(
            cache.slices(block - 10, 20, |b, range| out.push(b.slice(range))),
            Err(block)
        );
        assert!(out.is_empty());
        cache.insert(block, vec![2; 10].into(), 0);
        assert_eq!(
            cache.slices(block - 10, 20, |b, range| out.push(b.slice(range))),
            Ok(())
        );
        assert_eq!(out.concat(), [[1; 10], [2; 10]].concat());
        for n in 2..200 {
            cache.insert(n * block, Bytes::new(), 0);
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

    #[test]
    fn that_blocks_read_ahead_are_reached_is_told_once() {
        let mut cache = BlockCache::new(0, 1 << 30);
        let block = CACHE_BLOCK_BYTES;
        let bytes = |byte| Bytes::from(vec![byte; block as usize]);
        cache.insert(0, bytes(0), 0);
        cache.insert(block, bytes(1), 2);
        cache.insert(2 * block, bytes(2), 0);
        let (found, range) = cache.slice(100, 50, block).expect("it is there");
        assert_eq!(found.slice(range), [0; 50][..]);
        assert_eq!(cache.take_reached(), None);
        // In two blocks.
        assert_eq!(cache.slice(block - 10, 20, 0), None);
        assert_eq!(cache.take_reached(), None);
        let (found, range) = cache.slice(block + 5, 7, u64::MAX).expect("it is there");
        assert_eq!((found[0], range), (1, 5..12));
        let next = 3 * block;
        assert_eq!(cache.take_reached(), Some(Reached { next, blocks: 2 }));
        assert!(cache.slice(block, 7, 0).is_some() && cache.slice(next, 1, 0).is_none());
        assert_eq!(cache.take_reached(), None);
    }
}
