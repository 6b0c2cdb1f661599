//! The queues of a store that is opened: taken over from their files as far as the
//! checkpoint vouches for them, or made anew.

use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::{Checkpoint, Stored};
use super::consume_queue::{ENTRY_BYTES, Entry, Queues};
use super::edge::{Files, if_there};
use super::layout::{checkpoint_file, consume_queue_root};
use super::queue_files::{self, Touched, WriteJob};
use super::queue_scan::{self, Found};
use super::segments::{self, Segments};
use super::shard_store::StoreSettings;
use super::{POSITION_BITS, ShardId};
use crate::wire::message::Record;

/// Entries that are written at once.
const PIECE_ENTRIES: u64 = 16 * 1024;

/// A store whose log is whole and whose queues are yet to be found.
pub struct QueueRecovery<'a> {
    pub files: &'a dyn Files,
    pub dir: &'a Path,
    pub shard: ShardId,
    pub settings: &'a StoreSettings,
    pub segments: &'a Segments<'a>,
    /// What the checkpoint said.
    pub stored: &'a Stored,
    /// Position up to which the log of this boot is known to be whole.
    pub proven: u64,
    /// Position up to which the device had promised the log.
    pub promised: u64,
}

/// Queues, and what is to be done for them.
pub struct Recovered {
    pub queues: Queues,
    /// Position from which the log is read again.
    pub from: u64,
    /// Queue files written and not synced.
    pub touched: Touched,
    /// All of them are made anew: the checkpoint vouches for nothing any more.
    pub anew: bool,
}

impl QueueRecovery<'_> {
    fn physical(&self, position: u64) -> i64 {
        self.segments.physical(position) as i64
    }

    /// The queues as their files have them, cut to the messages in front of the
    /// position from which the log is read again; and that position.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn run(&self) -> io::Result<Recovered> {
        let (files, shard) = (self.files, self.shard);
        let file_bytes = self.settings.queue_file_bytes;
        if_there(files.remove_dir_all(&self.gone_root()))?;
        if files.exists(&self.old_root())? {
            return self.anew("a start was stopped while it made them anew");
        }
        if self.settings.rebuild_queues {
            return self.anew("asked for");
        }
        let Some(found) = queue_scan::scan(files, self.dir, file_bytes, true)? else {
            return self.anew("queue files of another size setting");
        };
        let vouched = self.stored.vouched(&files.boot_id()?, self.proven);
        let theirs = match self.stored.foreign() {
            Some(time) => self.foreign_start(&found, time)?,
            None => 0,
        };
        let from = vouched.position.max(theirs);
        let min = self.segments.min();
        if from < min || from > self.segments.end() {
            return self.anew("the checkpoint vouches for nothing");
        }
        if !self.segments.is_boundary(from)? {
            return self.anew("the checkpoint does not point at a message");
        }
        let (queues, sound) = self.load(&found, from)?;
        if !sound {
            return self.anew("queue files are damaged");
        }
        // Files that were to be deleted may still be there.
        let (entries, starts) = queues.sums();
        let whole = entries == vouched.entries && starts <= self.stored.starts();
        if theirs <= vouched.position && from > min && !whole {
            tracing::warn!(%shard, entries, starts, ?vouched, "entries are missing");
            return self.anew("queue files are missing or damaged");
        }
        Ok(Recovered {
            queues,
            from,
            touched: Touched::after_crash(self.settings.after_crash),
            anew: false,
        })
    }

    /// Where queue files lie that new ones are made from.
    fn old_root(&self) -> PathBuf {
        self.dir.join("consumequeue-old")
    }

    /// Where queue files lie that are being removed.
    fn gone_root(&self) -> PathBuf {
        self.dir.join("consumequeue-gone")
    }

    /// Removes all queue files: they are made anew from the whole log. A queue whose
    /// messages are all gone with their segments goes on at the offset it had, where
    /// its last entry can be true. A start that is stopped in between does it again.
    fn anew(&self, why: &str) -> io::Result<Recovered> {
        let (files, root, old) = (self.files, consume_queue_root(self.dir), self.old_root());
        let mut queues = Queues::default();
        let mut touched = Touched::after_crash(self.settings.after_crash);
        let interrupted = files.exists(&old)?;
        if interrupted || queue_scan::has_queues(files, &root)? {
            tracing::warn!(
                shard = %self.shard,
                "{why}: queues are made anew from the whole log"
            );
            // What is removed is vouched for no more.
            let checkpoint = Checkpoint {
                durable: self.promised,
                ..Checkpoint::default()
            };
            let (path, boot) = (checkpoint_file(self.dir), files.boot_id()?);
            checkpoint.save(files, &path, &boot, true)?;
            if interrupted {
                files.remove_dir_all(&root)?;
            } else {
                files.rename(&root, &old)?;
            }
            files.create_dir_all(&root)?;
            files.sync_dir(self.dir)?;
            let min = self.segments.min();
            let gone = self.physical(0)..self.physical(min);
            for (topic, queue_id, next) in queue_scan::ends(files, &old, &gone)? {
                // As with entries of the log: no more than it had room for.
                if next <= min / segments::MESSAGE_BYTES_MIN {
                    self.keep_offset(&topic, queue_id, next, &mut queues, &mut touched)?;
                }
            }
            queue_files::sync(files, self.dir, &mut touched)?;
            // As a whole: half of it must not be taken for all that there was.
            files.rename(&old, &self.gone_root())?;
            files.sync_dir(self.dir)?;
            files.remove_dir_all(&self.gone_root())?;
        }
        Ok(Recovered {
            queues,
            from: self.segments.min(),
            touched,
            anew: true,
        })
    }

    /// Writes the file that says what comes next in a queue without messages. Where the
    /// log has some after all, their offsets count.
    fn keep_offset(
        &self,
        topic: &str,
        queue_id: i32,
        next: u64,
        queues: &mut Queues,
        touched: &mut Touched,
    ) -> io::Result<()> {
        let file_bytes = self.settings.queue_file_bytes;
        let last = next - 1;
        let first = last - last % (file_bytes / ENTRY_BYTES as u64);
        let mut at = first;
        while at < next {
            let count = PIECE_ENTRIES.min(next - at);
            let job = WriteJob {
                dir: queue_files::dir(self.dir, topic, queue_id),
                first: at,
                entries: std::iter::repeat_n(Entry::NOTHING.to_bytes(), count as usize).collect(),
            };
            queue_files::write(self.files, &job, file_bytes, touched)?;
            at += count;
        }
        let index = queues.insert(topic, queue_id, first, next);
        queues.get_mut(index).min = next;
        Ok(())
    }

    /// From where on the log of another broker's store is read again. After a clean
    /// stop its queue files hold everything; after another one, everything in front
    /// of the newest segment that begins with a message of `time` or before.
    fn foreign_start(&self, found: &[Found], time: i64) -> io::Result<u64> {
        if !self.settings.after_crash {
            let mut end = 0;
            for queue in found
                .iter()
                .filter(|queue| queue.extent.next > queue.extent.first)
            {
                let newest = queue.extent.newest.filter(|entry| !entry.is_nothing());
                let Some(entry) = newest else {
                    continue;
                };
                if !self.is_last_of(&entry, queue)? {
                    tracing::warn!(
                        shard = %self.shard,
                        topic = queue.topic,
                        queue = queue.queue_id,
                        "the last entry is not that of the queue's message: not believed"
                    );
                    return Ok(0);
                }
                end = end.max(entry.physical + i64::from(entry.size));
            }
            return Ok(end as u64 & ((1 << POSITION_BITS) - 1));
        }
        for &base in self.segments.positions().iter().rev() {
            if let segments::Found::Record(record) = self.segments.reader(base)?.at(base)? {
                if record.store_timestamp() <= time {
                    return Ok(base);
                }
            }
        }
        Ok(0)
    }

    /// Whether the newest entry of a queue points at its message, or at one that is gone
    /// with its segment. A broker that was killed can have left entries of messages that
    /// the log lacks, and another one opened the store since.
    fn is_last_of(&self, entry: &Entry, queue: &Found) -> io::Result<bool> {
        let segments = self.segments;
        let position = entry.physical as u64 & ((1 << POSITION_BITS) - 1);
        let size = entry.size as u64;
        if self.physical(position) != entry.physical || position >= segments.end() {
            return Ok(false);
        }
        // Entries of light queues point at messages of other topics.
        if position < segments.min() || queue.topic.starts_with("%LMQ%") {
            return Ok(true);
        }
        let room = segments.base(position) + segments.bytes() - position;
        if size > room.min(segments::RECORD_BYTES_MAX as u64) {
            return Ok(false);
        }
        let bytes = segments.read(position, size as usize)?;
        Ok(Record::parse(&bytes).is_ok_and(|record| {
            record.topic() == queue.topic.as_bytes()
                && record.queue_id() == queue.queue_id
                && record.queue_offset() as u64 == queue.extent.next - 1
        }))
    }

    /// Takes over the queues that were found, cut to the entries of messages in
    /// front of `from`; and whether these can be true.
    fn load(&self, found: &[Found], from: u64) -> io::Result<(Queues, bool)> {
        let file_bytes = self.settings.queue_file_bytes;
        let (start, limit) = (self.physical(0), self.physical(from));
        let mut sound = true;
        let mut queues = Queues::default();
        for found in found {
            let dir = queue_files::dir(self.dir, &found.topic, found.queue_id);
            let before = |entry: &Entry| entry.physical < limit || entry.is_nothing();
            let next = if found.extent.newest.as_ref().is_some_and(before) {
                found.extent.next
            } else {
                let range = found.extent.first..found.extent.next;
                queue_files::partition(self.files, &dir, file_bytes, range, before)?
            };
            if next < found.extent.next || found.extent.is_longer {
                queue_files::truncate(self.files, &dir, file_bytes, next)?;
            }
            if self.settings.after_crash && next > found.extent.first {
                // A crash harms what was being written: the newest file.
                let newest = (next - 1) - (next - 1) % (file_bytes / ENTRY_BYTES as u64);
                let range = newest.max(found.extent.first)..next;
                sound &= queue_files::is_rising(self.files, &dir, file_bytes, range, start, limit)?;
            }
            let index = queues.insert(&found.topic, found.queue_id, found.extent.first, next);
            if let Some(oldest) = found.extent.oldest.filter(|entry| !entry.is_nothing()) {
                if found.extent.first < next {
                    queues.get_mut(index).oldest = oldest.physical;
                }
            }
        }
        Ok((queues, sound))
    }
}
