//! Reading a log again: every record is entered into its queue as an append does.

use std::io;
use std::path::Path;

use super::POSITION_BITS;
use super::consume_queue::{ENTRY_BYTES, Entry, Queue, Queues};
use super::dispatch::{Acted, is_queued, tags_code};
use super::edge::Files;
use super::queue_files::{self, Touched, WriteJob};
use super::queue_scan::QUEUES_PER_TOPIC_MAX;
use super::segments::{LogEnd, MESSAGE_BYTES_MIN, Segments};
use super::shard_store::StoreSettings;
use crate::wire::message::Record;

/// Entries of one queue that a recovery holds in memory before it writes them.
const UNWRITTEN_MAX: u64 = 16 * 1024;

/// What a scan works on.
pub struct Scan<'a> {
    pub files: &'a dyn Files,
    pub dir: &'a Path,
    pub settings: &'a StoreSettings,
    pub queues: &'a mut Queues,
    /// Messages entered.
    pub indexed: u64,
    /// Position up to which the log is known to be whole; behind it a record may be torn.
    pub sure: u64,
    /// Store time of the newest message read, ms since 1970.
    pub message_timestamp: i64,
    /// Queue files written and not synced.
    pub touched: Touched,
}

impl Scan<'_> {
    /// Reads the log from `from` to its end.
    ///
    /// # Errors
    /// Those of reading the log and of writing queue files.
    pub fn run(&mut self, segments: &Segments<'_>, from: u64) -> io::Result<LogEnd> {
        segments.walk(from, self.sure, &mut |record| self.enter(record))
    }

    fn enter(&mut self, record: &Record<'_>) -> io::Result<()> {
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
                queue_files::truncate(self.files, &queue_dir, file_bytes, 0)?;
            }
            queue.cut(0);
        }
        if queue.next == queue.min {
            // All that the queue had before is gone with its segments. Files hold
            // entries from their first byte on.
            let start = offset - offset % (file_bytes / ENTRY_BYTES as u64);
            (queue.min, queue.next, queue.on_file) = (start, start, start);
            queue.filed_from = start;
        }
        if offset < queue.next {
            return Ok(());
        }
        let (files, touched) = (self.files, &mut self.touched);
        let mut write_some = |queue: &mut Queue| -> io::Result<()> {
            if queue.next - queue.on_file <= UNWRITTEN_MAX {
                return Ok(());
            }
            let job = WriteJob::of(queue, queue_dir.clone(), UNWRITTEN_MAX as usize);
            queue_files::write(files, &job, file_bytes, touched)?;
            queue.written(job.end());
            Ok(())
        };
        while queue.next < offset {
            queue.push(Entry::NOTHING);
            write_some(queue)?;
        }
        queue.push(Entry {
            physical: record.physical_offset(),
            size: record.bytes().len() as i32,
            tags_code: tags_code(
                &self.settings.delays,
                record.topic(),
                &Acted::of(record.properties()),
                record.store_timestamp(),
            ),
        });
        write_some(queue)?;
        self.indexed += 1;
        Ok(())
    }
}

/// Whether a topic found in the log may name a folder.
fn is_path_component(topic: &str) -> bool {
    !topic.is_empty() && topic != "." && topic != ".." && !topic.contains(['/', '\0'])
}
