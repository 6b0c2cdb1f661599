//! One shard's store: appends and reads as functions of its state.
//!
//! Nothing here waits. What is not in memory is named as [`Missing`]; the
//! caller has it loaded ([`super::StoreHandle::load`]) and asks again.

use std::collections::VecDeque;

use bytes::Bytes;

use super::blocks::{BlockCache, CACHE_BLOCK_BYTES, Reached};
use super::checkpoint::Vouched;
use super::commit_log::{CommitLog, NoRoom};
use super::consume_queue::{ENTRY_BYTES, Entry, Queue, QueueIndex, Queues};
use super::dispatch::{Acted, DelayTable, is_queued, tags_code};
use super::fetch::Fetch;
use super::idle::Cooling;
use super::index::{IndexGeometry, PendingKeys};
use super::queue_files::{self, WriteJob};
use crate::wire::message::{MAGIC_V1, MAGIC_V2, Parts, Stamp};

/// Bytes that gather before an ASYNC_FLUSH log is written.
const GATHER_BYTES: u64 = 512 * 1024;

/// Entries loaded at once from a queue's file.
const CHUNK_ENTRIES: usize = 1024;

/// Loaded chunks that are kept. At the bound all are dropped: they are a read away.
const CHUNKS_MAX: usize = 256;

/// Entries that are written before their time when so many wait: copying them out holds up
/// a turn by 0.1 ms.
const MANY_ENTRIES: u64 = 16 * 1024;

/// Entries that may be in memory alone, over all queues, while their files cannot be
/// written: 24 MB. At the bound appends are refused.
pub(super) const UNWRITTEN_MAX: u64 = 1 << 20;

/// When a message may be acknowledged, and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckLevel {
    /// ASYNC_FLUSH: its bytes outlive the process.
    Written,
    /// SYNC_FLUSH: the device has promised its bytes.
    Durable,
}

/// What a shard's store is made with.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Bytes of a segment file, a multiple of 4096.
    pub segment_bytes: u64,
    /// Bytes of a ConsumeQueue file, a multiple of 20.
    pub queue_file_bytes: u64,
    /// Bytes of the tail file's ring, a power of two.
    pub tail_bytes: usize,
    /// Bytes of log blocks cached for lagging readers.
    pub cache_bytes: usize,
    /// When a message is acknowledged.
    pub ack: AckLevel,
    /// Under SYNC_FLUSH: the device is asked for its promise after each write; else a
    /// write completes with it.
    pub flush_after_write: bool,
    /// Under ASYNC_FLUSH: time between device flushes, ms.
    pub flush_interval_ms: u64,
    /// Whether the last broker on the store did not stop cleanly: the entries of each
    /// queue's newest file are looked at.
    pub after_crash: bool,
    /// Most bytes that one write gives to the device, a multiple of 4096.
    pub flush_bytes_max: usize,
    /// All queue files are made anew from the log when the store is opened.
    pub rebuild_queues: bool,
    /// Delay levels.
    pub delays: DelayTable,
    /// Size of index files; `None`: keys are not indexed.
    pub index: Option<IndexGeometry>,
}

/// A record to append; its topic and queue id are those of the queue.
pub type NewRecord<'a> = Parts<'a>;

/// Where a run of records went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Queue offset of the first record.
    pub queue_offset: u64,
    /// Position behind the last byte. Acknowledged when the watermark gets here.
    pub end: u64,
}

/// What must be loaded before a read can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A chunk of a queue's entries.
    Entries {
        /// The queue.
        queue: QueueIndex,
        /// First queue offset wanted.
        first: u64,
    },
    /// A block of the log.
    Block {
        /// Position of its first byte.
        position: u64,
    },
}

/// Figures of a store since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFigures {
    /// Messages appended.
    pub put_messages: u64,
    /// Bytes appended.
    pub put_bytes: u64,
}

struct Chunk {
    queue: QueueIndex,
    first: u64,
    entries: Vec<Entry>,
}

/// One shard's store.
pub struct ShardStore {
    pub(super) log: CommitLog,
    pub(super) queues: Queues,
    pub(super) settings: StoreSettings,
    pub(super) blocks: BlockCache,
    /// Keys that the index lacks; `None`: keys are not indexed.
    pending_keys: Option<PendingKeys>,
    chunks: Vec<Chunk>,
    /// Entries that become visible when the log is durable up to a position.
    hidden: VecDeque<(u64, QueueIndex, u64)>,
    arrivals: Vec<QueueIndex>,
    dirty: Vec<QueueIndex>,
    message_timestamp: i64,
    figures: StoreFigures,
    /// Sum of the offsets that come next, over all queues.
    entries: u64,
    /// Sum of the offsets that files begin at, over all queues.
    pub(super) starts: u64,
    /// Entries that the files lack, over all queues.
    pub(super) unwritten: u64,
    /// Why the files lack them, while they cannot be written.
    pub(super) queues_unwritable: Option<String>,
    /// Entries that the files have or are to have, over all queues.
    pub(super) filed: u64,
    /// Bytes that are worth a write to the device.
    pub(super) worth_a_write: u64,
    /// Queues that hold memory for entries that the files have.
    pub(super) cooling: Cooling,
}

impl ShardStore {
    pub(super) fn new(
        log: CommitLog,
        queues: Queues,
        settings: StoreSettings,
        message_timestamp: i64,
    ) -> ShardStore {
        let blocks = BlockCache::new(settings.cache_bytes, log.segment_bytes());
        let worth_a_write = match settings.ack {
            AckLevel::Written => GATHER_BYTES,
            AckLevel::Durable => 0,
        };
        let pending_keys = settings.index.map(|_| PendingKeys::new(log.written()));
        let mut store = ShardStore {
            log,
            pending_keys,
            queues,
            settings,
            blocks,
            chunks: Vec::new(),
            hidden: VecDeque::new(),
            arrivals: Vec::new(),
            dirty: Vec::new(),
            message_timestamp,
            figures: StoreFigures::default(),
            entries: 0,
            starts: 0,
            unwritten: 0,
            queues_unwritable: None,
            filed: 0,
            worth_a_write,
            cooling: Cooling::default(),
        };
        (store.entries, store.starts) = store.queues.sums();
        store.recount();
        for (index, queue) in store.queues.iter_mut() {
            // What a recovery entered again is yet to be written.
            if queue.on_file < queue.next {
                store.dirty.push(index);
            } else if queue.is_warm() {
                store.cooling.push(index, queue);
            }
        }
        store
    }

    /// The log.
    pub fn log(&self) -> &CommitLog {
        &self.log
    }

    /// The settings that the store has.
    pub fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// Keys that the index lacks; `None`: keys are not indexed.
    pub(super) fn pending_keys(&mut self) -> Option<&mut PendingKeys> {
        self.pending_keys.as_mut()
    }

    /// Figures since the start.
    pub fn figures(&self) -> StoreFigures {
        self.figures
    }

    /// Store time of the newest message, ms since 1970; 0 where none is known.
    pub fn message_timestamp(&self) -> i64 {
        self.message_timestamp
    }

    /// Position up to which messages may be acknowledged and read.
    pub fn watermark(&self) -> u64 {
        match self.settings.ack {
            AckLevel::Written => self.log.written(),
            AckLevel::Durable => self.log.durable(),
        }
    }

    /// A queue, if it is there.
    pub fn find_queue(&self, topic: &str, queue_id: i32) -> Option<QueueIndex> {
        self.queues.find(topic, queue_id)
    }

    /// A queue; made where it is missing. `queue_id` is not negative.
    pub fn make_queue(&mut self, topic: &str, queue_id: i32) -> QueueIndex {
        match self.queues.find(topic, queue_id) {
            Some(index) => index,
            None => self.queues.insert(topic, queue_id, 0, 0),
        }
    }

    /// The state of a queue.
    pub fn queue(&self, index: QueueIndex) -> &Queue {
        self.queues.get(index)
    }

    /// The queues of a topic.
    pub fn queues_of(&self, topic: &str) -> impl Iterator<Item = &Queue> {
        let indexes = self.queues.of_topic(topic);
        indexes.map(|index| self.queues.get(index))
    }

    /// All queues that have or had messages: topic and queue number.
    pub fn queue_names(&self) -> Vec<(String, i32)> {
        let mut names = Vec::new();
        for (topic, queues) in self.queues.topics() {
            for index in queues {
                let queue = self.queues.get(index);
                if queue.next > 0 {
                    names.push((topic.to_string(), queue.queue_id));
                }
            }
        }
        names
    }

    /// Removes the queues of a topic. The caller removes their files.
    pub fn remove_topic(&mut self, topic: &str) -> Vec<QueueIndex> {
        for index in self.queues.of_topic(topic) {
            let queue = self.queues.get(index);
            self.entries -= queue.next;
            self.starts -= queue.filed_from;
        }
        let removed = self.queues.remove(topic);
        self.recount();
        removed
    }

    /// Appends records to a queue, one behind the other, and pushes the physical
    /// offset of each to `physical`.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has changed then.
    pub fn append(
        &mut self,
        index: QueueIndex,
        records: &[NewRecord<'_>],
        now_ms: i64,
        physical: &mut Vec<i64>,
    ) -> Result<Appended, NoRoom> {
        let total: usize = records.iter().map(Parts::record_len).sum();
        if self.unwritten > UNWRITTEN_MAX {
            self.room_for_entries()?;
        }
        let mut at = self.log.reserve(total)?;
        let queue = self.queues.get_mut(index);
        let first = queue.next;
        let was_clean = queue.on_file == queue.next;
        for record in records {
            let len = record.record_len();
            let queued = is_queued(record.sys_flag);
            let stamp = Stamp {
                queue_offset: if queued { queue.next as i64 } else { 0 },
                physical_offset: self.log.physical(at),
                store_timestamp: now_ms,
            };
            let mut piece_at = at;
            record.write(&stamp, |piece| {
                self.log.put(piece_at, piece);
                piece_at += piece.len() as u64;
            });
            debug_assert_eq!(piece_at, at + len as u64);
            physical.push(stamp.physical_offset);
            let acted = Acted::of(record.properties);
            if let Some(keys) = &mut self.pending_keys {
                keys.push(record, &acted, &stamp);
            }
            if queued {
                let delays = &self.settings.delays;
                queue.push(Entry {
                    physical: stamp.physical_offset,
                    size: len as i32,
                    tags_code: tags_code(delays, record.topic, &acted, now_ms),
                });
            }
            at += len as u64;
        }
        self.log.advance(total as u64);
        self.message_timestamp = now_ms;
        self.figures.put_messages += records.len() as u64;
        self.figures.put_bytes += total as u64;
        if was_clean && queue.on_file < queue.next {
            self.dirty.push(index);
        }
        let next = queue.next;
        self.entries += next - first;
        self.unwritten += next - first;
        self.filed += next - first;
        match self.settings.ack {
            AckLevel::Written => self.show(index, next),
            AckLevel::Durable => self.hidden.push_back((at, index, next)),
        }
        Ok(Appended {
            queue_offset: first,
            end: at,
        })
    }

    fn show(&mut self, index: QueueIndex, next: u64) {
        let queue = self.queues.get_mut(index);
        queue.visible = next;
        if !std::mem::replace(&mut queue.arrived, true) {
            self.arrivals.push(index);
        }
    }

    /// Shows to readers what the watermark has passed.
    pub(super) fn show_durable(&mut self) {
        let watermark = self.watermark();
        while let Some(&(end, index, next)) = self.hidden.front() {
            if end > watermark {
                break;
            }
            self.hidden.pop_front();
            self.show(index, next);
        }
    }

    /// Moves the queues that readers see more of than at the last call to `out`.
    pub fn take_arrivals(&mut self, out: &mut Vec<QueueIndex>) {
        out.clear();
        std::mem::swap(out, &mut self.arrivals);
        for &index in out.iter() {
            self.queues.get_mut(index).arrived = false;
        }
    }

    /// Whether enough has gathered for a write.
    pub(super) fn is_gathered(&self) -> bool {
        self.log.waiting() >= self.worth_a_write
    }

    /// Reads up to `max` visible entries from queue offset `from` on.
    ///
    /// # Errors
    /// [`Missing`], with nothing put out.
    pub fn entries(
        &mut self,
        index: QueueIndex,
        from: u64,
        max: usize,
        out: &mut Vec<Entry>,
    ) -> Result<(), Missing> {
        let queue = self.queues.get(index);
        let end = queue.visible.min(from.saturating_add(max as u64));
        let mut at = from;
        while at < end {
            if at >= queue.recent_start() {
                out.extend((at..end).filter_map(|offset| queue.recent(offset)));
                return Ok(());
            }
            let chunk = self.chunks.iter().find(|chunk| {
                chunk.queue == index
                    && (chunk.first..chunk.first + chunk.entries.len() as u64).contains(&at)
            });
            let Some(chunk) = chunk else {
                if at > from {
                    // A shorter answer is an answer: the rest is asked for next.
                    return Ok(());
                }
                return Err(Missing::Entries {
                    queue: index,
                    first: at,
                });
            };
            let skip = (at - chunk.first) as usize;
            let take = (end - at) as usize;
            let before = out.len();
            out.extend(chunk.entries.iter().skip(skip).take(take));
            at += (out.len() - before) as u64;
        }
        Ok(())
    }

    /// What to read for a missing chunk: the queue's folder, the file size, and how many
    /// entries.
    pub(super) fn chunk_source(
        &self,
        dir: &std::path::Path,
        index: QueueIndex,
        first: u64,
    ) -> (std::path::PathBuf, u64, usize) {
        let queue = self.queues.get(index);
        // Not what is being written now.
        let on_file = queue.on_file.saturating_sub(first) as usize;
        (
            queue_files::dir(dir, &queue.topic, queue.queue_id),
            self.settings.queue_file_bytes,
            CHUNK_ENTRIES.min(on_file),
        )
    }

    /// Keeps a chunk that was read.
    pub(super) fn insert_chunk(&mut self, queue: QueueIndex, first: u64, entries: Vec<Entry>) {
        if self.chunks.len() >= CHUNKS_MAX {
            self.chunks.clear();
        }
        // One chunk a queue: readers move on.
        self.chunks.retain(|chunk| chunk.queue != queue);
        self.chunks.push(Chunk {
            queue,
            first,
            entries,
        });
    }

    /// Whether a block was read that lies in front of the one at `position`, so that who
    /// reads this one is likely to read on.
    pub(super) fn reads_on(&self, position: u64) -> bool {
        let came_from = position.checked_sub(CACHE_BLOCK_BYTES);
        came_from.is_none_or(|before| self.blocks.contains(before))
    }

    /// How many of the next `blocks` blocks, the first of which begins at `position`, can be
    /// read ahead: they are whole, in one segment, and not there yet.
    pub(super) fn blocks_ahead(&self, position: u64, blocks: u64) -> u64 {
        let segment_bytes = self.log.segment_bytes();
        if position % segment_bytes == 0 {
            return 0;
        }
        let segment_end = position - position % segment_bytes + segment_bytes;
        let end = self.log.flushed().min(segment_end);
        let is_missing = |n: &u64| {
            let start = position + n * CACHE_BLOCK_BYTES;
            start + CACHE_BLOCK_BYTES <= end && !self.blocks.contains(start)
        };
        (0..blocks).take_while(is_missing).count() as u64
    }

    /// Blocks of the log that are kept for readers, at most.
    pub(super) fn blocks_cached_max(&self) -> u64 {
        self.blocks.capacity()
    }

    /// Where a reader has come to blocks that were read ahead.
    pub(super) fn take_reached(&mut self) -> Option<Reached> {
        self.blocks.take_reached()
    }

    /// Keeps a block that was read, the first of `ahead` that nobody asked for yet.
    pub(super) fn insert_block(&mut self, position: u64, bytes: Bytes, ahead: u64) {
        // Its segment may have been deleted while it was read.
        if position >= self.log.min() {
            self.blocks.insert(position, bytes, ahead);
        }
    }

    /// Adds the record of an entry to `out`. `false` where there is no record
    /// (any more, or ever): the reader passes over the entry. That of `later` is likely to
    /// be asked for soon.
    ///
    /// # Errors
    /// [`Missing`], with nothing added.
    pub fn fetch(
        &mut self,
        entry: &Entry,
        later: Option<&Entry>,
        out: &mut Fetch,
    ) -> Result<bool, Missing> {
        let Some(position) = self.log.position(entry.physical) else {
            return Ok(false);
        };
        let len = entry.size as usize;
        let end = position.saturating_add(len as u64);
        if entry.size <= 8 || position < self.log.min() || end > self.watermark() {
            return Ok(false);
        }
        let split = self.split(position, end);
        if split == end {
            let later = later.and_then(|later| self.log.position(later.physical));
            if let Some((block, range)) = self.blocks.slice(position, len, later.unwrap_or(0)) {
                let is_there = is_head_of(&block[range.start..][..8], entry.size);
                if is_there {
                    out.slice(block, range);
                }
                return Ok(is_there);
            }
        }
        if !is_head_of(&self.head(position)?, entry.size) {
            return Ok(false);
        }
        if split > position {
            self.blocks
                .slices(position, (split - position) as usize, |block, range| {
                    out.slice(block, range)
                })
                .map_err(|position| Missing::Block { position })?;
        }
        if split < end {
            if let Some((first, second)) = self.log.in_ring(split, (end - split) as usize) {
                out.copy(first, second);
            }
        }
        Ok(true)
    }

    /// From where on the bytes `position..end` are taken from the ring; what lies
    /// in front is in the segments. A long record may be in parts of both.
    fn split(&self, position: u64, end: u64) -> u64 {
        let ring_start = self.log.ring_start();
        if position >= ring_start {
            position
        } else if end > self.log.flushed() {
            ring_start
        } else {
            end
        }
    }

    /// The 8 bytes at `position`.
    fn head(&mut self, position: u64) -> Result<[u8; 8], Missing> {
        let mut head = [0; 8];
        let split = self.split(position, position + 8);
        let front = (split - position) as usize;
        if front > 0 {
            let mut at = 0;
            self.blocks
                .slices(position, front, |block, range| {
                    let bytes = &block[range];
                    head[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                })
                .map_err(|position| Missing::Block { position })?;
        }
        if let Some((first, second)) = self.log.in_ring(split, 8 - front) {
            for (to, from) in head[front..].iter_mut().zip(first.iter().chain(second)) {
                *to = *from;
            }
        }
        Ok(head)
    }

    /// The 8 bytes that begin the record at a physical offset say how long it
    /// is. `None` where no record begins there.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn record_len(&mut self, physical: i64) -> Result<Option<i32>, Missing> {
        let Some(position) = self.log.position(physical) else {
            return Ok(None);
        };
        if position < self.log.min() || position + 8 > self.watermark() {
            return Ok(None);
        }
        let head = self.head(position)?;
        let size = i32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        Ok(is_head_of(&head, size).then_some(size))
    }

    /// Takes the entries that queue files lack as write jobs of about `bytes_max`
    /// bytes in all. With `all` taken, the files then hold what is returned.
    pub(super) fn take_queue_writes(
        &mut self,
        dir: &std::path::Path,
        bytes_max: usize,
    ) -> (Vec<(QueueIndex, WriteJob)>, Vouched, bool) {
        let vouched = Vouched {
            position: self.log.written(),
            entries: self.entries,
            ..Vouched::default()
        };
        let mut jobs = Vec::new();
        let mut bytes_taken = 0;
        let mut later = Vec::new();
        let mut whole = true;
        for index in std::mem::take(&mut self.dirty) {
            let queue = self.queues.get(index);
            if bytes_taken >= bytes_max {
                later.push(index);
                continue;
            }
            let dir = queue_files::dir(dir, &queue.topic, queue.queue_id);
            let job = WriteJob::of(queue, dir, bytes_max / ENTRY_BYTES);
            if job.entries.is_empty() {
                continue;
            }
            bytes_taken += job.entries.len() * ENTRY_BYTES;
            whole &= job.end() == queue.next;
            jobs.push((index, job));
        }
        let all = later.is_empty() && whole;
        self.dirty = later;
        (jobs, vouched, all)
    }

    /// Whether more entries wait for their files than should be written at once, which
    /// holds up the turns meanwhile.
    pub(super) fn has_many_entries(&self) -> bool {
        self.unwritten >= MANY_ENTRIES
    }

    /// The files hold a queue's entries below `end`, or, after a failed write,
    /// what they held before.
    pub(super) fn queue_written(&mut self, index: QueueIndex, end: Option<u64>) {
        let queue = self.queues.get_mut(index);
        if let Some(end) = end.filter(|end| (queue.on_file..=queue.next).contains(end)) {
            self.unwritten -= end - queue.on_file;
            queue.written(end);
        }
        if queue.on_file < queue.next {
            self.dirty.push(index);
        } else if !queue.cooling {
            self.cooling.push(index, queue);
        }
    }
}

fn is_head_of(head: &[u8], size: i32) -> bool {
    let magic = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    head[..4] == size.to_be_bytes() && (magic == MAGIC_V1 || magic == MAGIC_V2)
}
