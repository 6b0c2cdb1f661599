//! Opening a shard's store: the log is made whole, the queues are made to match it.
//!
//! 1. What the tail file proves to be in the log is written to the segments.
//! 2. Queue files are cut to what the checkpoint vouches for.
//!    Where they hold less, all of them are made anew from the whole log.
//! 3. From the checkpoint on the log is read, record by record, to its end; each
//!    record is entered into its queue again.
//! 4. What lies behind the end of the log is cleared, unless the device had
//!    promised it: then nothing is touched and the store is not opened.
//!
//! The work is bounded by what was written since the last checkpoint. It runs
//! before the shard serves and waits for the disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::checkpoint::Stored;
use super::commit_log::CommitLog;
use super::consume_queue::Queues;
use super::edge::{Files, if_there};
use super::index::IndexStart;
use super::layout::{checkpoint_file, commit_log_dir, consume_queue_root, tail_file};
use super::queue_files::{self, Touched};
use super::queue_recovery::{QueueRecovery, Recovered};
use super::scan::Scan;
use super::segments::{Found, LogEnd, Segments};
use super::shard_store::StoreSettings;
use super::tail::{Survivor, Tail};
use super::{ShardId, align_down, segment};

/// Why a store cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The file system refused.
    Io(io::Error),
    /// The log has a hole or is damaged where the device had promised it, or in
    /// front of bytes that are valid.
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
    /// Who had the store open last, as the checkpoint tells: "RingMQ", "another
    /// broker" or, without a checkpoint, "nobody".
    pub left_by: &'static str,
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
    pub touched: Touched,
    /// Position up to which the checkpoint on the device vouches for queue files.
    pub synced: u64,
    /// From where the index goes on.
    pub index: IndexStart,
}

/// Opens the store in a shard's folder, which must have its sub-folders.
///
/// # Errors
/// [`OpenError`].
pub fn open(
    files: &dyn Files,
    dir: &Path,
    shard: ShardId,
    settings: &StoreSettings,
) -> Result<Opened, OpenError> {
    let began = Instant::now();
    files.create_dir_all(&commit_log_dir(dir))?;
    files.create_dir_all(&consume_queue_root(dir))?;
    // A killed process may have made files and not promised their names.
    for made_in in [dir, &commit_log_dir(dir)] {
        files.sync_dir(made_in)?;
    }
    if_there(files.remove_file(&segment::unfinished(dir)))?;
    let mut segments = Segments::list(files, dir, shard, settings.segment_bytes)?;
    segments.complete()?;
    let tail = take_over_tail(&mut segments, dir, shard)?;
    let checkpoint = checkpoint_file(dir);
    let stored = Stored::load(files, &checkpoint).unwrap_or_else(|error| {
        tracing::warn!(%shard, %error, "the checkpoint cannot be read: the whole log is");
        Stored::default()
    });
    let mut report = RecoveryReport {
        left_by: stored.left_by(),
        from_tail: tail.taken,
        ..RecoveryReport::default()
    };
    let promised = stored.durable().min(segments.end()).max(tail.promised);
    let recovered = QueueRecovery {
        files,
        dir,
        shard,
        settings,
        segments: &segments,
        stored: &stored,
        proven: tail.proven,
        promised,
    };
    let Recovered {
        mut queues,
        from,
        touched,
        anew,
    } = recovered.run()?;
    let mut scan = Scan {
        files,
        dir,
        settings,
        queues: &mut queues,
        indexed: 0,
        sure: match settings.after_crash {
            true => promised.max(tail.proven),
            false => u64::MAX,
        },
        message_timestamp: 0,
        touched,
    };
    let end = scan.run(&segments, from)?;
    report.indexed = scan.indexed;
    let (message_timestamp, touched) = (scan.message_timestamp, scan.touched);
    refuse_damage(&segments, &end, promised)?;
    if let Some(fault) = &end.fault {
        report.stopped_at = Some(set_aside(&segments, shard, end.position, fault)?);
    }
    let end = end.position;
    let (beyond, boot) = (stored.is_beyond(end), files.boot_id()?);
    let synced = if beyond || anew {
        0
    } else {
        stored.synced().position
    };
    if beyond || end < promised {
        // These would be taken for true when the log has grown as long again.
        for path in [&checkpoint, &tail_file(dir)] {
            if_there(files.remove_file(path))?;
        }
        files.sync_dir(dir)?;
    } else if let Some(less) = stored
        .without_written(&boot, tail.proven)
        .filter(|_| settings.after_crash && !anew)
    {
        less.save(files, &checkpoint, &boot, true)?;
    }
    // A killed process may have left writes in flight, which clearing waits for.
    let all = settings.after_crash || end > from || report.stopped_at.is_some();
    segments.settle(promised, end, all)?;
    let left = stored.index(&boot, settings.after_crash, tail.proven, end);
    // What lies in front of the log's first segment is gone.
    let oldest = segments.physical(segments.min()) as i64;
    queue_files::find_first_readable(files, dir, settings.queue_file_bytes, &mut queues, oldest)?;
    let last_block = segments.read(align_down(end), (end - align_down(end)) as usize)?;
    let tail = Tail::create(files, &tail_file(dir), settings.tail_bytes, shard.0, end)?;
    for (_, queue) in queues.iter_mut() {
        queue.visible = queue.next;
    }
    report.log_bytes = end - segments.min();
    report.scanned = end - from.min(end);
    if report.left_by == "RingMQ" && !settings.after_crash && report.scanned > 0 {
        // RingMQ reads all of the log into its checkpoint when it stops; a broker that
        // wrote a few messages leaves the times in it as they were.
        report.left_by = "another broker";
    }
    report.queues = queues
        .iter_mut()
        .filter(|(_, queue)| queue.next > 0)
        .count();
    report.millis = began.elapsed().as_millis() as u64;
    let log = CommitLog::new(
        shard,
        segments.bytes(),
        tail,
        segments.min()..segments.end(),
        end,
        &last_block,
    );
    let index = IndexStart {
        left,
        foreign: stored.foreign().is_some(),
        min: segments.min(),
        end,
        segment_bytes: segments.bytes(),
    };
    Ok(Opened {
        log,
        index,
        queues,
        report,
        message_timestamp,
        touched,
        synced,
    })
}

/// What the tail file of the process before says of the log.
pub(super) struct TailProof {
    /// Bytes taken over from it.
    pub taken: u64,
    /// Position up to which the log of this boot is known to be whole; without a
    /// tail file it may end anywhere behind what was synced.
    pub proven: u64,
    /// Position up to which the device had promised the log, at least.
    pub promised: u64,
}

/// Writes to the segments what the tail file proves to be in the log.
pub(super) fn take_over_tail(
    segments: &mut Segments<'_>,
    dir: &Path,
    shard: ShardId,
) -> io::Result<TailProof> {
    let left = Tail::left(segments.files, &tail_file(dir), shard.0)?;
    let mut proof = TailProof {
        taken: 0,
        proven: 0,
        promised: left.durable.min(segments.end()),
    };
    if let Some(survivor) = of_this_log(segments, shard, left.survivor)? {
        // What lies in front first: a power loss must not leave a hole.
        segments.promise(proof.promised, survivor.start)?;
        segments.write(survivor.start, &survivor.bytes)?;
        proof.taken = survivor.bytes.len() as u64;
        proof.proven = survivor.start + proof.taken;
    }
    Ok(proof)
}

/// What a killed process left in its tail file, where that is of this log and has its
/// place there still.
pub(super) fn of_this_log(
    segments: &Segments<'_>,
    shard: ShardId,
    survivor: Option<Survivor>,
) -> io::Result<Option<Survivor>> {
    let Some(survivor) = survivor.filter(|s| segments.contains(s.start)) else {
        return Ok(None);
    };
    let before = survivor.start.saturating_sub(survivor.before.len() as u64);
    if !segments.holds(before, &survivor.before)? {
        tracing::warn!(%shard, "the tail file is not of this log, or the log is damaged: not used");
        return Ok(None);
    }
    if !survivor.bytes.is_empty() && segments.has_another(survivor.start, &survivor.bytes)? {
        tracing::error!(
            %shard,
            bytes = survivor.bytes.len(),
            "another broker has written to the log behind what is in it: what a killed process \
             left in the tail file has no place there any more"
        );
        return Ok(None);
    }
    Ok(Some(survivor))
}

/// Nothing is thrown away that the device had promised, or that lies in front
/// of valid records of a later segment.
fn refuse_damage(segments: &Segments<'_>, end: &LogEnd, promised: u64) -> Result<(), OpenError> {
    let base = segments.base(end.position);
    let damaged = |reason: String| OpenError::Damaged {
        path: segments.path(base),
        byte: end.position - base,
        reason: format!(
            "{}, {reason}",
            end.fault.as_deref().unwrap_or("nothing was written here")
        ),
    };
    if end.position < promised && !segments.is_half_promised(end.position, promised)? {
        return Err(damaged(format!(
            "but the device had promised the log up to byte {promised}"
        )));
    }
    for &later in segments.positions().iter().filter(|&&p| p > base) {
        if let Found::Record(_) = segments.reader(later)?.at(later)? {
            return Err(damaged(format!(
                "but {} has messages",
                segments.path(later).display()
            )));
        }
    }
    Ok(())
}

/// Says where and why the log ends; keeps a copy of what lies behind where
/// there is a valid record in it: after a power loss that is what the device
/// wrote out of order and never promised, but a damaged disk looks the same.
fn set_aside(segments: &Segments<'_>, shard: ShardId, end: u64, fault: &str) -> io::Result<String> {
    let base = segments.base(end);
    if let Some(next) = segments.next_record(end)? {
        let copy = segments.set_aside(end)?;
        tracing::error!(
            %shard,
            end,
            next_valid = next,
            copy = %copy.display(),
            "valid messages lie behind a damaged place of the log; the log ends in front \
             of it, and what lies behind was copied"
        );
    }
    let path = segments.path(base);
    Ok(format!("{}: byte {}: {fault}", path.display(), end - base))
}
