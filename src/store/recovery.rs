//! Opening a shard's store: the log is made whole, the queues are made to match it.
//!
//! 1. What the tail file proves to be in the log is written to the segments.
//! 2. Queue files are cut to what the checkpoint vouches for.
//!    Where they hold less, all of them are made anew from the whole log.
//! 3. From the checkpoint on the log is read, record by record, to its end; each
//!    record is entered into its queue again.
//! 4. What lies behind the end of the log is cleared.
//!
//! The work is bounded by what was written since the last checkpoint. It runs
//! before the shard serves and waits for the disk.

use std::collections::HashSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use memmap2::Mmap;

use super::checkpoint::Checkpoint;
use super::commit_log::{CommitLog, align_down};
use super::consume_queue::{ENTRY_BYTES, Entry, Queue, Queues};
use super::dispatch::{is_queued, tags_code};
use super::queue_files::{self, QUEUES_PER_TOPIC_MAX, WriteJob};
use super::shard_store::StoreSettings;
use super::tail::{Tail, boot_id};
use super::{BLOCK_BYTES, POSITION_BITS, ShardId, segment};
use crate::wire::message::{BLANK_BYTES, MAGIC_BLANK, Record, RecordError};

/// Longest record, in bytes: the largest body that can be set, and room to spare.
const RECORD_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Entries of one queue that a recovery holds in memory before it writes them.
const UNWRITTEN_MAX: u64 = 16 * 1024;

/// Fewest bytes of the log that a message takes: those of one in a batch that is
/// stored as one record. So a queue offset is bounded by the place of its record.
const MESSAGE_BYTES_MIN: u64 = 22;

/// Why a store cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The file system refused.
    Io(io::Error),
    /// The log has a hole or is damaged in front of bytes that are valid.
    Damaged {
        /// The segment file.
        path: PathBuf,
        /// Byte in the file.
        byte: u64,
        /// What was found there.
        reason: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io(error) => error.fmt(f),
            OpenError::Damaged { path, byte, reason } => {
                write!(f, "{}: byte {byte}: {reason}", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::Io(error)
    }
}

/// What a recovery found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Bytes in the log.
    pub log_bytes: u64,
    /// Bytes taken over from the tail file.
    pub from_tail: u64,
    /// Bytes of the log that were read again.
    pub scanned: u64,
    /// Messages entered into their queues again.
    pub indexed: u64,
    /// Queues that have messages.
    pub queues: usize,
    /// Why reading stopped, where it was not at clear space.
    pub stopped_at: Option<String>,
    /// How long it took, ms.
    pub millis: u64,
}

/// What [`open`] hands over.
pub struct Opened {
    pub log: CommitLog,
    pub queues: Queues,
    pub report: RecoveryReport,
    pub message_timestamp: i64,
    /// Queue files written and not synced.
    pub touched: HashSet<PathBuf>,
}

/// Opens the store in a shard's folder, which must have its sub-folders.
pub fn open(dir: &Path, shard: ShardId, settings: &StoreSettings) -> Result<Opened, OpenError> {
    let began = Instant::now();
    let boot = boot_id()?;
    let mut segments = Segments::list(dir, shard, settings.segment_bytes)?;
    let tail_path = dir.join("tail");
    let mut report = RecoveryReport::default();
    // Without a tail file the log may end anywhere behind what was synced.
    let mut proven = 0;
    if let Some(survivor) = Tail::survivor(&tail_path, shard.0)? {
        if segments.contains(survivor.start) {
            segments.write(survivor.start, &survivor.bytes)?;
            report.from_tail = survivor.bytes.len() as u64;
            proven = survivor.start + report.from_tail;
        }
    }
    let checkpoint = dir.join("checkpoint");
    let vouched = Checkpoint::load(&checkpoint, &boot, proven)?;
    let mut from = vouched.position;
    if from < segments.min() || from > segments.end() {
        from = segments.min();
    }
    if !segments.is_boundary(from)? {
        tracing::warn!(%shard, from, "the checkpoint does not point at a message: the whole log is read");
        from = segments.min();
    }
    if !queue_files::fits(dir, settings.queue_file_bytes)? {
        tracing::warn!(%shard, "queue files of another size setting: made anew from the log");
        queue_files::remove_all(dir)?;
        from = segments.min();
    }
    let (mut queues, sound) = load_queues(dir, shard, settings, from)?;
    if !sound {
        tracing::warn!(%shard, "queue files are damaged: made anew from the whole log");
        queue_files::remove_all(dir)?;
        from = segments.min();
        (queues, _) = load_queues(dir, shard, settings, from)?;
    }
    let entries = queues.entries();
    if from > segments.min() && entries != vouched.entries {
        tracing::warn!(
            %shard, entries, expected = vouched.entries,
            "queue files are missing or damaged; they are made anew from the whole log"
        );
        from = segments.min();
        (queues, _) = load_queues(dir, shard, settings, from)?;
    }
    let scan = Scan {
        dir,
        settings,
        segments: &segments,
        queues: &mut queues,
        report: &mut report,
        message_timestamp: 0,
        touched: HashSet::new(),
    };
    let (end, message_timestamp, touched) = scan.run(from)?;
    if report.stopped_at.is_some() {
        segments.set_aside(end)?;
    }
    segments.clear_behind(end, end > from || report.stopped_at.is_some())?;
    Checkpoint::refuse_beyond(&checkpoint, end)?;
    let last_block = segments.read(align_down(end), (end - align_down(end)) as usize)?;
    let tail = Tail::create(&tail_path, settings.tail_bytes, shard.0, end)?;
    for (_, queue) in queues.iter_mut() {
        queue.visible = queue.next;
    }
    report.log_bytes = end - segments.min();
    report.scanned = end - from.min(end);
    report.queues = queues
        .iter_mut()
        .filter(|(_, queue)| queue.next > 0)
        .count();
    report.millis = began.elapsed().as_millis() as u64;
    let log = CommitLog::new(
        shard,
        segments.bytes,
        tail,
        segments.min()..segments.end(),
        end,
        &last_block,
    );
    Ok(Opened {
        log,
        queues,
        report,
        message_timestamp,
        touched,
    })
}

/// The segment files of a shard: adjoining, of one size.
struct Segments<'a> {
    dir: &'a Path,
    shard: ShardId,
    bytes: u64,
    positions: Vec<u64>,
}

impl<'a> Segments<'a> {
    /// Lists the segments; makes the first one in an empty store. A store keeps
    /// the segment size it was made with, whatever the setting says now.
    fn list(dir: &'a Path, shard: ShardId, bytes: u64) -> Result<Segments<'a>, OpenError> {
        let mut segments = Segments {
            dir,
            shard,
            bytes,
            positions: segment::list(dir, shard)?,
        };
        match segments.positions[..] {
            [] => {
                segment::create(dir, shard, 0, bytes)?;
                segments.positions.push(0);
            }
            [first, second, ..] => segments.bytes = second - first,
            [only] => {
                let len = std::fs::metadata(segments.path(only))?.len();
                if len > 0 && len % BLOCK_BYTES as u64 == 0 {
                    segments.bytes = len;
                }
            }
        }
        let bytes = segments.bytes;
        if bytes < BLOCK_BYTES as u64 || bytes % BLOCK_BYTES as u64 != 0 {
            return Err(OpenError::Damaged {
                path: segments.path(segments.positions[segments.positions.len() - 1]),
                byte: 0,
                reason: "the name is not that of a segment".to_owned(),
            });
        }
        for pair in segments.positions.windows(2) {
            if pair[1] - pair[0] != segments.bytes {
                return Err(OpenError::Damaged {
                    path: segments.path(pair[0] + segments.bytes),
                    byte: 0,
                    reason: "the segment is missing".to_owned(),
                });
            }
        }
        // A short file (of a broker that grows its files as it writes) is brought to
        // its size, without taking blocks that may not be there.
        for &position in &segments.positions {
            let file = segments.open(position)?;
            if file.metadata()?.len() < segments.bytes {
                file.set_len(segments.bytes)?;
            }
        }
        Ok(segments)
    }

    fn min(&self) -> u64 {
        self.positions[0]
    }

    fn end(&self) -> u64 {
        self.positions[self.positions.len() - 1] + self.bytes
    }

    fn contains(&self, position: u64) -> bool {
        (self.min()..=self.end()).contains(&position)
    }

    fn base(&self, position: u64) -> u64 {
        position - position % self.bytes
    }

    fn path(&self, base: u64) -> PathBuf {
        segment::path(self.dir, self.shard, base)
    }

    fn open(&self, base: u64) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path(base))
    }

    /// Writes bytes to the log, making segments where they are missing, and
    /// makes them durable.
    fn write(&mut self, start: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (start, bytes);
        while !rest.is_empty() {
            let base = self.base(at);
            if base == self.end() {
                segment::create(self.dir, self.shard, base, self.bytes)?;
                self.positions.push(base);
            }
            let file = self.open(base)?;
            // First of all, as this waits for writes of the killed process.
            let clear = (at - base).next_multiple_of(BLOCK_BYTES as u64);
            segment::clear_from(&file, clear, self.bytes)?;
            let len = rest.len().min((base + self.bytes - at) as usize);
            file.write_all_at(&rest[..len], at - base)?;
            file.sync_all()?;
            at += len as u64;
            rest = &rest[len..];
        }
        Ok(())
    }

    fn read(&self, position: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if len > 0 {
            let base = self.base(position);
            self.open(base)?
                .read_exact_at(&mut bytes, position - base)?;
        }
        Ok(bytes)
    }

    /// Whether a record, a filler or clear space begins at `position`.
    fn is_boundary(&self, position: u64) -> io::Result<bool> {
        if position == self.end() {
            return Ok(true);
        }
        let base = self.base(position);
        let len = (base + self.bytes - position).min(RECORD_BYTES_MAX);
        let bytes = self.read(position, len as usize)?;
        if bytes.len() < BLANK_BYTES || bytes[..BLANK_BYTES] == [0; BLANK_BYTES] {
            return Ok(true);
        }
        Ok(bytes[4..8] == MAGIC_BLANK.to_be_bytes() || self.is_record_at(position, &bytes))
    }

    fn is_record_at(&self, position: u64, bytes: &[u8]) -> bool {
        let physical = u64::from(self.shard.0) << POSITION_BITS | position;
        Record::parse(bytes).is_ok_and(|record| {
            record.physical_offset() as u64 == physical && record.verify().is_ok()
        })
    }

    /// Keeps a copy of what lies behind the end of the log in its segment when
    /// there is a valid record in it: after a power loss that is what the device
    /// wrote out of order and never promised, but a damaged disk looks the same.
    fn set_aside(&self, end: u64) -> io::Result<()> {
        let base = self.base(end);
        if base == self.end() {
            return Ok(());
        }
        let rest = self.read(end, (base + self.bytes - end) as usize)?;
        let magic = crate::wire::message::MAGIC_V1.to_be_bytes();
        let found = memchr::memmem::find_iter(&rest, &magic)
            .filter_map(|at| at.checked_sub(4))
            .find(|&at| self.is_record_at(end + at as u64, &rest[at..]));
        if let Some(at) = found {
            let path = self.dir.join(format!("damaged-{end}"));
            std::fs::write(&path, &rest)?;
            tracing::error!(
                shard = %self.shard,
                end,
                next_valid = end + at as u64,
                copy = %path.display(),
                "valid messages lie behind a damaged place of the log; the log ends in front \
                 of it, and what lies behind was copied"
            );
        }
        Ok(())
    }

    /// Clears all that lies behind the end of the log; `all` without looking
    /// whether it is clear.
    fn clear_behind(&self, end: u64, all: bool) -> io::Result<()> {
        for &base in self.positions.iter().rev() {
            if base + self.bytes <= end {
                break;
            }
            let file = self.open(base)?;
            let from = end.saturating_sub(base);
            let block = from.next_multiple_of(BLOCK_BYTES as u64).min(self.bytes);
            if from < block {
                file.write_all_at(&vec![0; (block - from) as usize], from)?;
            }
            if all || !is_clear(&file, block, self.bytes)? {
                segment::clear_from(&file, block, self.bytes)?;
            }
            file.sync_all()?;
        }
        Ok(())
    }
}

/// Whether the start of a range is clear. Enough where nothing was found behind
/// the checkpoint: the process before this one had cleared it, or never wrote it.
fn is_clear(file: &File, from: u64, bytes: u64) -> io::Result<bool> {
    let mut probe = vec![0; (bytes - from).min(64 * 1024) as usize];
    file.read_exact_at(&mut probe, from)?;
    Ok(probe.iter().all(|&byte| byte == 0))
}

/// Finds the queues on disk, and whether their entries can be true; cut to the entries of messages in front of `from`.
fn load_queues(
    dir: &Path,
    shard: ShardId,
    settings: &StoreSettings,
    from: u64,
) -> Result<(Queues, bool), OpenError> {
    let start = (u64::from(shard.0) << POSITION_BITS) as i64;
    let mut sound = true;
    let limit = (u64::from(shard.0) << POSITION_BITS | from) as i64;
    let mut queues = Queues::default();
    for found in queue_files::scan(dir, settings.queue_file_bytes)? {
        let queue_dir = queue_files::dir(dir, &found.topic, found.queue_id);
        let next = queue_files::partition_tail(
            &queue_dir,
            settings.queue_file_bytes,
            found.first,
            found.next,
            |entry| entry.physical < limit || entry.size == i32::MAX,
        )?;
        if next < found.next {
            queue_files::truncate(&queue_dir, settings.queue_file_bytes, next)?;
        }
        if settings.after_crash {
            let range = found.first..next;
            let file_bytes = settings.queue_file_bytes;
            sound &= queue_files::is_rising(&queue_dir, file_bytes, range, start, limit)?;
        }
        queues.insert(&found.topic, found.queue_id, found.first, next);
    }
    Ok((queues, sound))
}

struct Scan<'a, 'b> {
    dir: &'a Path,
    settings: &'a StoreSettings,
    segments: &'a Segments<'b>,
    queues: &'a mut Queues,
    report: &'a mut RecoveryReport,
    message_timestamp: i64,
    touched: HashSet<PathBuf>,
}

impl Scan<'_, '_> {
    /// Reads the log from `from` to its end, and returns the end.
    fn run(mut self, from: u64) -> Result<(u64, i64, HashSet<PathBuf>), OpenError> {
        let mut at = from;
        while at < self.segments.end() {
            let base = self.segments.base(at);
            let file = File::open(self.segments.path(base))?;
            // SAFETY: the store is locked, so that no one else writes or cuts the
            // file while it is mapped.
            let map = unsafe { Mmap::map(&file)? };
            let bytes = &map[..(self.segments.bytes as usize).min(map.len())];
            let end = self.segment(base, at, bytes)?;
            let Some(next) = end else {
                at = base + self.segments.bytes;
                continue;
            };
            self.refuse_hole(next)?;
            return Ok((next, self.message_timestamp, self.touched));
        }
        Ok((at, self.message_timestamp, self.touched))
    }

    /// Reads one segment from position `at`; `None` where it is full to its end.
    fn segment(&mut self, base: u64, mut at: u64, bytes: &[u8]) -> Result<Option<u64>, OpenError> {
        loop {
            let rest = &bytes[(at - base) as usize..];
            if rest.len() < BLANK_BYTES {
                return Ok(if rest.is_empty() { None } else { Some(at) });
            }
            let word =
                |i: usize| u32::from_be_bytes([rest[i], rest[i + 1], rest[i + 2], rest[i + 3]]);
            if word(4) == MAGIC_BLANK && word(0) as usize == rest.len() {
                return Ok(None);
            }
            if word(0) == 0 && word(4) == 0 {
                return Ok(Some(at));
            }
            let record = Record::parse(rest).and_then(|r| r.verify().map(|()| r));
            let physical = u64::from(self.segments.shard.0) << POSITION_BITS | at;
            match record {
                Ok(record) if record.physical_offset() as u64 == physical => {
                    self.enter(&record)?;
                    at += record.bytes().len() as u64;
                }
                other => {
                    let fault = other
                        .err()
                        .map_or("record of another place".to_owned(), |e: RecordError| {
                            e.to_string()
                        });
                    self.report.stopped_at = Some(format!(
                        "{}: byte {}: {fault}",
                        self.segments.path(base).display(),
                        at - base
                    ));
                    return Ok(Some(at));
                }
            }
        }
    }

    /// The log ends in the segment of `end`. Valid records in a later segment
    /// mean that it was damaged in the middle: nothing is thrown away then.
    fn refuse_hole(&self, end: u64) -> Result<(), OpenError> {
        let base = self.segments.base(end);
        for &later in self.segments.positions.iter().filter(|&&p| p > base) {
            let head = self
                .segments
                .read(later, self.segments.bytes.min(8 << 20) as usize)?;
            let valid = Record::parse(&head).is_ok_and(|record| {
                record.physical_offset() as u64
                    == (u64::from(self.segments.shard.0) << POSITION_BITS | later)
                    && record.verify().is_ok()
            });
            if valid {
                return Err(OpenError::Damaged {
                    path: self.segments.path(base),
                    byte: end - base,
                    reason: format!(
                        "no valid record, but {} has some",
                        self.segments.path(later).display()
                    ),
                });
            }
        }
        Ok(())
    }

    fn enter(&mut self, record: &Record<'_>) -> Result<(), OpenError> {
        self.message_timestamp = record.store_timestamp();
        let Ok(topic) = std::str::from_utf8(record.topic()) else {
            return Ok(());
        };
        let (queue_id, offset) = (record.queue_id(), record.queue_offset());
        let Ok(offset) = u64::try_from(offset) else {
            return Ok(());
        };
        if !is_queued(record.sys_flag()) || queue_id < 0 || !is_path_component(topic) {
            return Ok(());
        }
        // A damaged header must not fill the disk with entries.
        let position = record.physical_offset() as u64 & ((1 << POSITION_BITS) - 1);
        if offset > position / MESSAGE_BYTES_MIN || queue_id >= QUEUES_PER_TOPIC_MAX {
            return Ok(());
        }
        let index = match self.queues.find(topic, queue_id) {
            Some(index) => index,
            None => self.queues.insert(topic, queue_id, offset, offset),
        };
        let queue = self.queues.get_mut(index);
        let file_bytes = self.settings.queue_file_bytes;
        let queue_dir = queue_files::dir(self.dir, topic, queue_id);
        if offset == 0 && queue.next > queue.min {
            // The topic was removed and made anew.
            if queue.on_file > 0 {
                queue_files::truncate(&queue_dir, file_bytes, 0)?;
            }
            queue.cut(0);
        }
        if queue.next == queue.min {
            // All that the queue had before is gone with its segments. Files hold
            // entries from their first byte on.
            let start = offset - offset % (file_bytes / ENTRY_BYTES as u64);
            (queue.min, queue.next, queue.on_file) = (start, start, start);
        }
        if offset < queue.next {
            return Ok(());
        }
        let mut write_some = |queue: &mut Queue| -> io::Result<()> {
            if queue.next - queue.on_file <= UNWRITTEN_MAX {
                return Ok(());
            }
            let (first, bytes) = queue.unwritten(UNWRITTEN_MAX as usize);
            let job = WriteJob {
                dir: queue_dir.clone(),
                first,
                bytes,
            };
            queue_files::write(&job, file_bytes, &mut self.touched)?;
            queue.written(first + UNWRITTEN_MAX);
            Ok(())
        };
        while queue.next < offset {
            // As RocketMQ marks entries without a message.
            queue.push(Entry {
                physical: 0,
                size: i32::MAX,
                tags_code: 0,
            });
            write_some(queue)?;
        }
        queue.push(Entry {
            physical: record.physical_offset(),
            size: record.bytes().len() as i32,
            tags_code: tags_code(
                &self.settings.delays,
                record.topic(),
                record.properties(),
                record.store_timestamp(),
            ),
        });
        write_some(queue)?;
        self.report.indexed += 1;
        Ok(())
    }
}

/// Whether a topic found in the log may name a folder.
fn is_path_component(topic: &str) -> bool {
    !topic.is_empty() && topic != "." && topic != ".." && !topic.contains(['/', '\0'])
}
