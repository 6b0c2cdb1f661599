//! The CommitLog of one shard: where the next message goes, and what is safe.
//!
//! Positions count the bytes of this log from 0, over all its segments; a
//! position and the shard together are the physical offset on the wire. This
//! file decides; the bytes move in [`super::tail`] and [`super::flush`].

use std::fmt;
use std::ops::Range;

use super::edge::BlocksToWrite;
use super::tail::Tail;
use super::{BLOCK_BYTES, POSITION_BITS, ShardId, align_down};
use crate::wire::message::{BLANK_BYTES, MAGIC_BLANK};

/// Furthest that a segment is made ahead of its need, in bytes.
const AHEAD_MAX: u64 = 512 * 1024 * 1024;

/// Why nothing can be appended now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The tail file is full of bytes that the device has not taken yet, or the
    /// next segment is not there yet. The sender waits; nothing is refused.
    Later,
    /// The message does not fit into a segment or the tail file at all.
    Never {
        /// Size of the records, in bytes.
        bytes: usize,
        /// Largest size that fits, in bytes.
        limit: usize,
    },
    /// The next segment file cannot be made, or what is in memory cannot be written
    /// to its file, as for want of space. Tried again every second; appends go on
    /// when it is done.
    NoSpace(String),
    /// An earlier write or flush failed. Final for this log.
    Failed(String),
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRoom::Later => f.write_str("the log waits for the device"),
            NoRoom::Never { bytes, limit } => {
                write!(f, "records of {bytes} bytes, the limit is {limit}")
            }
            NoRoom::NoSpace(why) | NoRoom::Failed(why) => f.write_str(why),
        }
    }
}

/// One shard's log.
pub struct CommitLog {
    shard: ShardId,
    segment_bytes: u64,
    tail: Tail,
    /// Lowest position that the ring holds.
    ring_start: u64,
    /// Position of the first byte of the oldest segment.
    min: u64,
    written: u64,
    /// Position up to which writes to the device have begun.
    begun: u64,
    flushed: u64,
    durable: u64,
    /// End of the newest segment file that exists.
    prepared_end: u64,
    /// Where zeros are being written.
    zeroed: Option<u64>,
    unprepared: Option<String>,
    unwritable: Option<String>,
    failed: Option<String>,
    closed: bool,
}

impl CommitLog {
    /// A log whose bytes up to `end` are on the device. `tail` starts there, and
    /// `last_block` is what the segment holds of the block that `end` lies in.
    pub(super) fn new(
        shard: ShardId,
        segment_bytes: u64,
        mut tail: Tail,
        segments: Range<u64>,
        end: u64,
        last_block: &[u8],
    ) -> CommitLog {
        let block_start = align_down(end);
        assert_eq!(last_block.len() as u64, end - block_start);
        tail.write(block_start, last_block);
        CommitLog {
            shard,
            segment_bytes,
            tail,
            ring_start: block_start,
            min: segments.start,
            written: end,
            begun: end,
            flushed: end,
            durable: end,
            prepared_end: segments.end,
            zeroed: None,
            unprepared: None,
            unwritable: None,
            failed: None,
            closed: false,
        }
    }

    /// The physical offset of a position of this log.
    pub fn physical(&self, position: u64) -> i64 {
        (u64::from(self.shard.0) << POSITION_BITS | position) as i64
    }

    /// The position of a physical offset; `None` when it lies in another log.
    pub fn position(&self, physical: i64) -> Option<u64> {
        let physical = u64::try_from(physical).ok()?;
        (physical >> POSITION_BITS == u64::from(self.shard.0))
            .then_some(physical & ((1 << POSITION_BITS) - 1))
    }

    /// Position of the oldest byte.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Position behind the newest byte: everything in front of it outlives the process.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Position up to which the device has been given the bytes.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Position up to which the device has promised to keep the bytes.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Position behind the newest segment file.
    pub fn prepared_end(&self) -> u64 {
        self.prepared_end
    }

    /// Size of a segment, in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Why the log takes nothing any more, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Largest run of records that one append may write, in bytes.
    fn append_bytes_max(&self) -> usize {
        // A ring with everything flushed but the block that the flush stands in.
        (self.tail.capacity() - BLOCK_BYTES).min(self.segment_bytes as usize - BLANK_BYTES)
    }

    /// Finds the place for `bytes` bytes of records that must lie in one
    /// segment; rolls to the next segment where they do not fit in this one.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing of the records has been written then.
    pub fn reserve(&mut self, bytes: usize) -> Result<u64, NoRoom> {
        if let Some(why) = &self.failed {
            return Err(NoRoom::Failed(why.clone()));
        }
        if self.closed {
            return Err(NoRoom::Failed("the broker is stopping".to_owned()));
        }
        if let Some(why) = &self.unwritable {
            return Err(NoRoom::NoSpace(why.clone()));
        }
        let limit = self.append_bytes_max();
        if bytes > limit {
            return Err(NoRoom::Never { bytes, limit });
        }
        let left = self.segment_bytes - self.written % self.segment_bytes;
        if (bytes + BLANK_BYTES) as u64 > left {
            self.roll(left)?;
        }
        self.room_for(bytes as u64)?;
        Ok(self.written)
    }

    fn room_for(&self, bytes: u64) -> Result<(), NoRoom> {
        if self.written + bytes > self.prepared_end {
            return Err(match &self.unprepared {
                Some(why) => NoRoom::NoSpace(why.clone()),
                None => NoRoom::Later,
            });
        }
        let is_clear = self.zeroed.is_none_or(|at| self.written + bytes <= at);
        if is_clear && self.ring_has_room(bytes) {
            Ok(())
        } else {
            Err(NoRoom::Later)
        }
    }

    fn ring_has_room(&self, bytes: u64) -> bool {
        self.written + bytes - align_down(self.flushed) <= self.tail.capacity() as u64
    }

    /// Ends the segment: a filler that says how much of it is unused. What the
    /// ring holds behind the filler's 8 bytes goes to the segment as it is:
    /// readers pass over it.
    fn roll(&mut self, left: u64) -> Result<(), NoRoom> {
        self.room_for(left)?;
        let mut blank = [0; BLANK_BYTES];
        blank[..4].copy_from_slice(&(left as i32).to_be_bytes());
        blank[4..].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
        self.tail.write(self.written, &blank);
        self.advance(left);
        Ok(())
    }

    /// Copies part of a record to a reserved place.
    pub fn put(&mut self, position: u64, bytes: &[u8]) {
        self.tail.write(position, bytes);
    }

    /// Makes `bytes` bytes from the reserved place part of the log.
    pub fn advance(&mut self, bytes: u64) {
        self.written += bytes;
        self.ring_start = self
            .ring_start
            .max(self.written.saturating_sub(self.tail.capacity() as u64));
        self.tail.set_written(self.written);
    }

    /// Lowest position that the ring holds; the segments have all in front of it.
    pub fn ring_start(&self) -> u64 {
        self.ring_start
    }

    /// The `len` bytes at `position`, if the ring still holds them.
    pub fn in_ring(&self, position: u64, len: usize) -> Option<(&[u8], &[u8])> {
        let held = position >= self.ring_start && position + len as u64 <= self.written;
        held.then(|| self.tail.read(position, len))
    }

    /// Bytes that no write to the device has begun for.
    pub fn waiting(&self) -> u64 {
        self.written - self.begun
    }

    /// What the device should be given next: at most `bytes_max` bytes, within one segment,
    /// from the block that holds the first byte that no write has begun for; with `whole`,
    /// whole blocks.
    ///
    /// Writes may be under way at the same time, as the device may end them in any order:
    /// no two have a block in common, and they are of one segment, so that what a power loss
    /// leaves behind a missing one lies in the segment that the log then ends in.
    pub fn next_flush(&self, bytes_max: usize, whole: bool) -> Option<FlushPlan> {
        if self.failed.is_some() || self.begun == self.written {
            return None;
        }
        let start = align_down(self.begun);
        let is_under_way = self.begun > self.flushed;
        if is_under_way && (start < self.begun || start % self.segment_bytes == 0) {
            return None;
        }
        let segment = start - start % self.segment_bytes;
        let end = self
            .written
            .min(start + bytes_max as u64)
            .min(segment + self.segment_bytes);
        let end = if whole { align_down(end) } else { end };
        (end > self.begun).then_some(FlushPlan {
            segment,
            start,
            end,
        })
    }

    /// The write of a plan begins.
    pub fn begin(&mut self, plan: &FlushPlan) {
        debug_assert!((self.begun + 1..=self.written).contains(&plan.end));
        self.begun = plan.end;
    }

    /// What the device has not been given is given to it once more; no write is under way.
    pub fn begin_again(&mut self) {
        self.begun = self.flushed;
    }

    /// The bytes of a plan: whole blocks where they lie in the ring, in which they stay as they
    /// are until the plan is [`CommitLog::set_flushed`], and a copy of the last block where it
    /// goes on growing, padded with zeros.
    pub fn blocks(&self, plan: &FlushPlan) -> BlocksToWrite {
        self.tail.blocks(plan.start, plan.end)
    }

    /// The device has been given everything in front of `position`.
    pub fn set_flushed(&mut self, position: u64) {
        debug_assert!((self.flushed..=self.begun).contains(&position));
        self.flushed = position;
        self.tail.set_flushed(position);
    }

    /// The device has promised to keep everything in front of `position`.
    pub fn set_durable(&mut self, position: u64) {
        debug_assert!((self.durable..=self.flushed).contains(&position));
        self.durable = position;
        self.tail.set_durable(position);
    }

    /// Whether the next segment is to be made: the log comes near the end of the last one.
    pub fn needs_segment(&self) -> bool {
        let ahead = (self.segment_bytes / 2).min(AHEAD_MAX);
        self.written + ahead > self.prepared_end
    }

    /// A segment file that ends at `end` is there.
    pub fn set_prepared(&mut self, end: u64) {
        self.prepared_end = end;
        self.unprepared = None;
    }

    /// Zeros are being written behind the log's end, from a position on: until that is done
    /// nothing is appended that would come to lie there.
    pub fn set_zeroed(&mut self, from: Option<u64>) {
        debug_assert!(from.is_none_or(|from| from >= self.written));
        self.zeroed = from;
    }

    /// Whether zeros are being written.
    pub fn is_zeroed(&self) -> bool {
        self.zeroed.is_some()
    }

    /// The next segment file could not be made. Returns whether that is news.
    pub fn set_unprepared(&mut self, why: String) -> bool {
        self.unprepared.replace(why).is_none()
    }

    /// The file system has no room for what is to be written, or has again. Returns
    /// whether that is news.
    pub fn set_unwritable(&mut self, why: Option<String>) -> bool {
        let before = std::mem::replace(&mut self.unwritable, why);
        before.is_some() != self.unwritable.is_some()
    }

    /// Position behind the last segment that may be deleted: the device has promised
    /// it, nothing is written to it any more, and a newer file is there. The newest
    /// file always stays, as its name says where the log goes on.
    pub fn deletable_end(&self) -> u64 {
        let whole = self.durable - self.durable % self.segment_bytes;
        whole
            .min(self.prepared_end - self.segment_bytes)
            .max(self.min)
    }

    /// What lies in front of `position`, the start of a segment, is gone.
    pub fn set_min(&mut self, position: u64) {
        debug_assert!((self.min..=self.deletable_end()).contains(&position));
        self.min = position;
    }

    /// Nothing is appended any more; what is in the log is still flushed.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// A write or flush failed: nothing is appended any more.
    pub fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }
}

/// One write to a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushPlan {
    /// Position of the segment's first byte.
    pub segment: u64,
    /// First position to write, at the start of a block.
    pub start: u64,
    /// Position behind the last byte to write.
    pub end: u64,
}
