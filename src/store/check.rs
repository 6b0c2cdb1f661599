//! A whole look at a store that no broker uses, and the knife.
//!
//! A start reads what was written since the last checkpoint; [`check_log`] reads
//! everything and changes nothing. [`cut_log`] ends a log in front of its first
//! damaged byte, which a start never does where the device had promised more.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::Stored;
use super::consume_queue::{ENTRY_BYTES, Entry};
use super::dispatch::{Acted, DelayTable, is_queued, tags_code};
use super::edge::{Disk, Files, Patience, if_there};
use super::layout::{checkpoint_file, commit_log_dir, tail_file};
use super::recovery::{of_this_log, take_over_tail};
use super::segments::{Segments, free_name};
use super::shard_store::StoreSettings;
use super::tail::Tail;
use super::{OpenError, ShardId, queue_files, queue_scan};
use crate::wire::message::Record;

/// Entries of a queue that are held while the log is read.
const CHUNK_ENTRIES: usize = 128;

/// Wrong entries that are told one by one.
const TOLD_MAX: usize = 20;

/// Where a log is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The segment file.
    pub path: PathBuf,
    /// Byte in the file.
    pub byte: u64,
    /// What is there.
    pub reason: String,
    /// Whole messages that lie behind it.
    pub messages_behind: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: byte {}: {}; {} whole messages lie behind",
            self.path.display(),
            self.byte,
            self.reason,
            self.messages_behind
        )
    }
}

/// What a log and its queues are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCheck {
    /// Segment files.
    pub segments: usize,
    /// Position of the oldest byte.
    pub start: u64,
    /// Position behind the last message in front of any damage.
    pub end: u64,
    /// Whole messages in front of it.
    pub messages: u64,
    /// The first damage.
    pub fault: Option<Fault>,
    /// Bytes that the tail file holds behind what the segments have; the next start
    /// writes them.
    pub in_tail: u64,
    /// Queues that have files.
    pub queues: usize,
    /// Their entries that are as the log says.
    pub right: u64,
    /// Their entries that are not.
    pub wrong: u64,
    /// The first of them, for people.
    pub told: Vec<String>,
    /// Messages that have no entry; the next start enters those that came last.
    pub without_entry: u64,
    /// Queue files are of another size setting: a start makes them anew.
    pub other_size: bool,
}

impl LogCheck {
    /// Whether a start serves every message, with nothing made anew.
    pub fn is_sound(&self) -> bool {
        self.fault.is_none() && self.wrong == 0 && !self.other_size
    }
}

/// Reads one shard's log and queue files from end to end.
///
/// # Errors
/// [`OpenError`]: a segment is missing, or cannot be read.
pub fn check_log(
    dir: &Path,
    shard: ShardId,
    settings: &StoreSettings,
) -> Result<LogCheck, OpenError> {
    let files: &dyn Files = &Disk;
    let segments = Segments::list(files, dir, shard, settings.segment_bytes)?;
    let mut check = LogCheck {
        segments: segments.positions().len(),
        start: segments.min(),
        ..LogCheck::default()
    };
    let tail = Tail::left(files, &tail_file(dir), shard.0)?;
    let stored = Stored::load(files, &checkpoint_file(dir))?;
    let promised = stored.durable().max(tail.durable).min(segments.end());
    // The next start goes on with the tail file where it is this log's.
    let goes_on = of_this_log(&segments, shard, tail.survivor)?;
    check.in_tail = goes_on.as_ref().map_or(0, |left| left.bytes.len() as u64);
    let mut queues = QueueChecks::open(files, dir, settings)?;
    check.other_size = queues.other_size;
    check.queues = queues.queues.len();
    let end = segments.walk(segments.min(), u64::MAX, &mut |record| {
        check.messages += 1;
        queues.look(record)
    })?;
    check.end = end.position;
    queues.finish(&mut check);
    let behind = messages_behind(&segments, end.position)?;
    let from_tail = match goes_on {
        Some(left) => {
            end.position >= left.start || segments.is_half_promised(end.position, left.start)?
        }
        None => false,
    };
    let half = end.position < promised && segments.is_half_promised(end.position, promised)?;
    let reason = match end.fault {
        _ if from_tail || half => None,
        Some(reason) => Some(reason),
        None if end.position < promised => Some(format!(
            "nothing was written here, but the device had promised the log up to byte {promised}"
        )),
        None => (behind > 0).then(|| "nothing was written here".to_owned()),
    };
    check.fault = reason.map(|reason| {
        let base = segments.base(end.position);
        Fault {
            path: segments.path(base),
            byte: end.position - base,
            reason,
            messages_behind: behind,
        }
    });
    Ok(check)
}

/// Whole messages behind the end of a log.
fn messages_behind(segments: &Segments<'_>, end: u64) -> io::Result<u64> {
    let mut count = 0;
    let mut at = end;
    while at < segments.end() {
        match segments.next_record(at)? {
            None => at = segments.base(at) + segments.bytes(),
            Some(next) => {
                let walked = segments.walk(next, u64::MAX, &mut |_| {
                    count += 1;
                    Ok(())
                })?;
                at = walked.position.max(next + 1);
            }
        }
    }
    Ok(count)
}

/// Writes to the segments what the tail file of a killed process proves to be in the
/// log, as the next start does.
///
/// # Errors
/// [`OpenError`].
pub fn adopt_tail(dir: &Path, shard: ShardId, settings: &StoreSettings) -> Result<(), OpenError> {
    let mut segments = Segments::list(&Disk, dir, shard, settings.segment_bytes)?;
    segments.complete()?;
    take_over_tail(&mut segments, dir, shard)?;
    Ok(())
}

/// Ends a log in front of its first damaged byte. What lies behind is kept: a copy of
/// the rest of the segment as `damaged-<position>`, later segments and the tail file in
/// a folder `damaged`; nothing of an earlier cut is replaced. Returns where the log
/// ends now. To be called after [`adopt_tail`].
///
/// # Errors
/// [`OpenError`]; some of it may have been done, and is not lost by doing it again.
pub fn cut_log(dir: &Path, shard: ShardId, settings: &StoreSettings) -> Result<u64, OpenError> {
    let files: &dyn Files = &Disk;
    let segments = Segments::list(files, dir, shard, settings.segment_bytes)?;
    let end = segments
        .walk(segments.min(), u64::MAX, &mut |_| Ok(()))?
        .position;
    let base = segments.base(end);
    if end < segments.end() {
        segments.set_aside(end)?;
    }
    let aside = free_name(files, &dir.join("damaged"))?;
    files.create_dir_all(&aside)?;
    let later = segments.positions().iter().filter(|&&p| p > base);
    let mut away: Vec<PathBuf> = later.map(|&position| segments.path(position)).collect();
    // The newest first: a log without a hole is left whenever this is stopped.
    away.reverse();
    // These speak of what is cut.
    away.push(tail_file(dir));
    away.push(checkpoint_file(dir));
    for path in away {
        let name = path.file_name().unwrap_or_default();
        if_there(files.rename(&path, &aside.join(name)))?;
    }
    for changed in [&aside, &commit_log_dir(dir), dir] {
        files.sync_dir(changed)?;
    }
    segments.truncate(end)?;
    Ok(end)
}

/// Queue files, held against the log as it is read.
struct QueueChecks<'a> {
    files: &'a dyn Files,
    dir: &'a Path,
    file_bytes: u64,
    delays: &'a DelayTable,
    queues: BTreeMap<(String, i32), QueueCheck>,
    told: Vec<String>,
    without_entry: u64,
    other_size: bool,
}

struct QueueCheck {
    first: u64,
    next: u64,
    /// One above the last queue offset that the log had.
    seen: u64,
    right: u64,
    wrong: u64,
    chunk_first: u64,
    chunk: Vec<Entry>,
}

impl<'a> QueueChecks<'a> {
    fn open(
        files: &'a dyn Files,
        dir: &'a Path,
        settings: &'a StoreSettings,
    ) -> io::Result<QueueChecks<'a>> {
        let file_bytes = settings.queue_file_bytes;
        let found = queue_scan::scan(files, dir, file_bytes, false)?;
        let other_size = found.is_none();
        let queues = found.unwrap_or_default().into_iter().map(|found| {
            let check = QueueCheck {
                first: found.extent.first,
                next: found.extent.next,
                seen: 0,
                right: 0,
                wrong: 0,
                chunk_first: 0,
                chunk: Vec::new(),
            };
            ((found.topic, found.queue_id), check)
        });
        Ok(QueueChecks {
            files,
            dir,
            file_bytes,
            delays: &settings.delays,
            queues: queues.collect(),
            told: Vec::new(),
            without_entry: 0,
            other_size,
        })
    }

    fn look(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Ok(topic) = std::str::from_utf8(record.topic()) else {
            return Ok(());
        };
        let Ok(offset) = u64::try_from(record.queue_offset()) else {
            return Ok(());
        };
        if !is_queued(record.sys_flag()) {
            return Ok(());
        }
        let key = (topic.to_owned(), record.queue_id());
        let Some(queue) = self.queues.get_mut(&key) else {
            self.without_entry += 1;
            return Ok(());
        };
        if offset == 0 && queue.seen > 0 {
            // The topic was removed and made anew.
            (queue.right, queue.wrong) = (0, 0);
        }
        queue.seen = offset + 1;
        if !(queue.first..queue.next).contains(&offset) {
            self.without_entry += 1;
            return Ok(());
        }
        let held = queue.chunk_first..queue.chunk_first + queue.chunk.len() as u64;
        if !held.contains(&offset) {
            let dir = queue_files::dir(self.dir, topic, record.queue_id());
            let (bytes, count) = (self.file_bytes, CHUNK_ENTRIES);
            queue.chunk =
                queue_files::read(self.files, &dir, bytes, offset, count, Patience::Wait)?;
            queue.chunk_first = offset;
        }
        let found = queue.chunk.get((offset - queue.chunk_first) as usize);
        let expected = Entry {
            physical: record.physical_offset(),
            size: record.bytes().len() as i32,
            tags_code: tags_code(
                self.delays,
                record.topic(),
                &Acted::of(record.properties()),
                record.store_timestamp(),
            ),
        };
        if found == Some(&expected) {
            queue.right += 1;
            return Ok(());
        }
        queue.wrong += 1;
        if self.told.len() < TOLD_MAX {
            let dir = queue_files::dir(self.dir, topic, record.queue_id());
            let byte = offset * ENTRY_BYTES as u64;
            self.told.push(format!(
                "{}: entry {offset} (byte {byte}) is {found:?}, the log says {expected:?}",
                dir.display()
            ));
        }
        Ok(())
    }

    fn finish(self, check: &mut LogCheck) {
        check.without_entry = self.without_entry;
        check.told = self.told;
        for ((topic, id), queue) in self.queues {
            check.right += queue.right;
            check.wrong += queue.wrong;
            if queue.seen > 0 && queue.next > queue.seen {
                check.wrong += queue.next - queue.seen;
                if check.told.len() < TOLD_MAX {
                    let (next, seen) = (queue.next, queue.seen);
                    check.told.push(format!(
                        "{topic} queue {id}: entries up to {next}, the log has {seen}"
                    ));
                }
            }
        }
    }
}
