//! What a log gives up: its oldest segments, the queue entries that pointed into
//! them, and the queue files that have no others.
//!
//! Order, so that a store opens whatever happens in between: queue files are on the
//! device up to the end of the segments that go; the log begins behind them for
//! readers; the files go, oldest first, each for good before the next; first readable
//! entries move; queue files go, oldest first. The file that holds the entry in front
//! of the first readable one stays: it is on the device and says what comes next in
//! its queue, also where no message is left.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use futures_lite::future;

use super::consume_queue::{ENTRY_BYTES, FirstReadable, NO_MESSAGE, QueueIndex, UNKNOWN};
use super::edge::{Files, Mode, Patience, if_there};
use super::handle::{Shared, StoreHandle};
use super::queue_files;
use super::queue_writer::write_queues;
use super::segment;
use super::shard_store::ShardStore;
use crate::wire::message::stored_at;

/// Segments that one call deletes at most.
pub const SEGMENTS_PER_ROUND: usize = 64;

/// Queues that are looked at in one turn.
const SWEEP_STEP: usize = 1024;

/// Queues whose files are read or removed in one piece of work for the helper thread.
const SWEEP_FILES: usize = 128;

/// Bytes at the start of a segment that tell when its first message was stored.
const HEAD_BYTES: usize = 80;

/// What a log is asked to give up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Segments go when the next one begins with a message that was stored before this
    /// time, ms since 1970; `None`: none goes for its age.
    pub expired_before: Option<i64>,
    /// Bytes of the oldest segments that go whatever their age.
    pub bytes: u64,
    /// Topics whose messages are kept longer, each with the time before which a message
    /// must have been stored to go, ms since 1970.
    pub held: Vec<(Arc<str>, i64)>,
}

/// How many of the oldest segments go. `ends` says of each that may go, oldest first,
/// when the first message behind it was stored, where that is known: all of its own
/// messages are older.
pub fn segments_to_delete(demand: &Demand, ends: &[Option<i64>], segment_bytes: u64) -> usize {
    let by_space = usize::try_from(demand.bytes.div_ceil(segment_bytes)).unwrap_or(usize::MAX);
    let by_age = match demand.expired_before {
        Some(limit) => ends
            .iter()
            .take_while(|end| end.is_some_and(|end| end < limit))
            .count(),
        None => 0,
    };
    by_space.max(by_age).min(ends.len())
}

/// A queue whose first readable entry moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Topic.
    pub topic: Arc<str>,
    /// Queue number.
    pub queue_id: i32,
    /// First readable queue offset before.
    pub from: u64,
    /// And now.
    pub to: u64,
}

/// State of a store's retention.
#[derive(Default)]
pub(super) struct Retention {
    /// Queue files are on the device for all messages in front of this position.
    pub synced: Cell<u64>,
    /// Segment files in front of this position are removed.
    removed: Cell<u64>,
    /// Store time of the first message of segments, by position.
    begins: RefCell<BTreeMap<u64, i64>>,
    /// First readable entries have moved as far as the log.
    swept: Cell<u64>,
}

impl Retention {
    /// Of a log that begins at `min`, whose queue files are on the device up to `synced`.
    pub fn new(min: u64, synced: u64) -> Retention {
        Retention {
            synced: Cell::new(synced),
            removed: Cell::new(min),
            begins: RefCell::default(),
            swept: Cell::new(min),
        }
    }
}

/// A queue to be looked at in its files.
struct Search {
    index: QueueIndex,
    dir: PathBuf,
    range: std::ops::Range<u64>,
}

/// Queue files to be removed: in front of the one that holds entry `until`.
struct Removal {
    index: QueueIndex,
    dir: PathBuf,
    from: u64,
    until: u64,
}

impl ShardStore {
    /// Moves the first readable entries of the queues from `cursor` on, as far as memory
    /// tells; the others are returned. Leaves `cursor` behind the last one looked at.
    fn sweep(
        &mut self,
        dir: &std::path::Path,
        cursor: &mut usize,
        moved: &mut Vec<Moved>,
    ) -> Vec<Search> {
        let limit = self.log.physical(self.log.min());
        let end = self.queues.len().min(*cursor + SWEEP_STEP);
        let mut searches = Vec::new();
        while *cursor < end && searches.len() < SWEEP_FILES {
            let index = QueueIndex(*cursor as u32);
            *cursor += 1;
            let queue = self.queues.get_mut(index);
            if queue.oldest >= limit || queue.min == queue.next {
                continue;
            }
            match queue.first_readable(limit) {
                FirstReadable::At(first) => self.move_first(index, first, moved),
                FirstReadable::InFiles(range) => searches.push(Search {
                    index,
                    dir: queue_files::dir(dir, &queue.topic, queue.queue_id),
                    range,
                }),
            }
        }
        searches
    }

    fn move_first(&mut self, index: QueueIndex, first: Option<(u64, i64)>, moved: &mut Vec<Moved>) {
        let queue = self.queues.get_mut(index);
        // It may have been removed, or moved further, while its files were read.
        if first.is_some_and(|(offset, _)| offset < queue.min) {
            return;
        }
        let from = queue.set_first_readable(first);
        if from < queue.min {
            moved.push(Moved {
                topic: queue.topic.clone(),
                queue_id: queue.queue_id,
                from,
                to: queue.min,
            });
        }
    }

    /// Moves the first readable entry of a queue on to queue offset `to`, with what it
    /// passes unreadable from now on; a restart begins again where the log does.
    pub fn move_first_to(&mut self, index: QueueIndex, to: u64) -> Option<Moved> {
        let queue = self.queues.get_mut(index);
        let to = to.min(queue.visible);
        if to <= queue.min {
            return None;
        }
        let first = (to < queue.next).then_some((to, UNKNOWN));
        let from = queue.set_first_readable(first);
        Some(Moved {
            topic: queue.topic.clone(),
            queue_id: queue.queue_id,
            from,
            to,
        })
    }

    /// Whether one of the topics that are held has a message in front of `end`, a
    /// position, that must stay: all in front of it were stored before `stored_before`.
    fn is_held(&self, held: &[(Arc<str>, i64)], end: u64, stored_before: Option<i64>) -> bool {
        let end = self.log.physical(end);
        held.iter()
            .filter(|(_, limit)| stored_before.is_none_or(|before| before >= *limit))
            .any(|(topic, _)| {
                self.queues_of(topic)
                    .any(|queue| queue.oldest != NO_MESSAGE && queue.oldest < end)
            })
    }

    /// Files of the queues from `cursor` on that have no readable entry.
    fn removals(&self, dir: &std::path::Path, cursor: &mut usize) -> Vec<Removal> {
        let per_file = self.settings.queue_file_bytes / ENTRY_BYTES as u64;
        let end = self.queues.len().min(*cursor + SWEEP_STEP);
        let mut removals = Vec::new();
        while *cursor < end && removals.len() < SWEEP_FILES {
            let index = QueueIndex(*cursor as u32);
            *cursor += 1;
            let queue = self.queues.get(index);
            // Its newest entry that is on the device for sure.
            let Some(last_gone) = queue.min.min(queue.on_file).checked_sub(1) else {
                continue;
            };
            if last_gone / per_file > queue.filed_from / per_file {
                removals.push(Removal {
                    index,
                    dir: queue_files::dir(dir, &queue.topic, queue.queue_id),
                    from: queue.filed_from,
                    until: last_gone / per_file * per_file,
                });
            }
        }
        removals
    }

    /// Takes [`ShardStore::removed_front`] back.
    fn kept_front(&mut self, index: QueueIndex, from: u64, until: u64) {
        let queue = self.queues.get_mut(index);
        if queue.filed_from == until {
            self.filed += until - from;
            self.starts -= until - from;
            queue.filed_from = from;
        }
    }

    fn removed_front(&mut self, index: QueueIndex, until: u64) {
        let queue = self.queues.get_mut(index);
        if queue.filed_from < until {
            self.filed = self.filed.saturating_sub(until - queue.filed_from);
            self.starts += until - queue.filed_from;
            queue.filed_from = until;
        }
    }
}

impl StoreHandle {
    /// Deletes segments as `demand` says, a bounded number of them, and returns how
    /// many. [`StoreHandle::sweep_queues`] is to be called after. One call at a time.
    ///
    /// # Errors
    /// Those of the file system; what is left is deleted by a later call.
    pub async fn delete_segments(&self, demand: &Demand) -> io::Result<usize> {
        let shared = self.shared();
        let segment_bytes = shared.state.borrow().log.segment_bytes();
        let mut count = self.count(demand).await?;
        let min = shared.state.borrow().log.min();
        let wanted = min + count as u64 * segment_bytes;
        if wanted > shared.retention.synced.get() {
            // As far as it got, segments may go.
            let _ = write_queues(shared, true).await;
            let vouched = shared.retention.synced.get().saturating_sub(min) / segment_bytes;
            count = count.min(vouched as usize);
        }
        if count > 0 {
            let end = min + count as u64 * segment_bytes;
            {
                let mut state = shared.state.borrow_mut();
                state.log.set_min(end);
                state.blocks.remove_before(end);
            }
            shared.forget_read_files(end);
            shared
                .retention
                .begins
                .borrow_mut()
                .retain(|&at, _| at >= end);
        }
        self.remove_files().await?;
        Ok(count)
    }

    /// How many segments `demand` means.
    async fn count(&self, demand: &Demand) -> io::Result<usize> {
        let shared = self.shared();
        let (min, end, bytes) = {
            let log = &shared.state.borrow().log;
            (log.min(), log.deletable_end(), log.segment_bytes())
        };
        let deletable = ((end - min) / bytes).min(SEGMENTS_PER_ROUND as u64) as usize;
        let mut ends = vec![None; deletable];
        if demand.expired_before.is_some() {
            for (n, known) in ends.iter_mut().enumerate() {
                let end = min + (n as u64 + 1) * bytes;
                *known = begins_at(shared, end).await?;
                if known.is_none_or(|time| demand.expired_before.is_some_and(|b| time >= b)) {
                    break;
                }
            }
        }
        if !demand.held.is_empty() {
            let state = shared.state.borrow();
            // What a queue has behind its oldest message is known when that is gone:
            // one at a time.
            let is_held = |end| state.is_held(&demand.held, min + bytes, end);
            match ends.first_mut() {
                Some(end) if is_held(*end) => *end = None,
                _ => ends[1.min(deletable)..].fill(None),
            }
        }
        Ok(segments_to_delete(demand, &ends, bytes))
    }

    /// Removes the files of segments in front of the log, oldest first, each for good
    /// before the next: a log without a hole opens.
    async fn remove_files(&self) -> io::Result<()> {
        let shared = self.shared();
        let (min, bytes) = {
            let log = &shared.state.borrow().log;
            (log.min(), log.segment_bytes())
        };
        let first = shared.retention.removed.get();
        let began = shared.edge.now();
        while shared.retention.removed.get() < min {
            let position = shared.retention.removed.get();
            let path = segment::path(&shared.dir, shared.shard, position);
            let files = shared.files.clone();
            let remove = move || remove_for_good(&*files, &path);
            shared.edge.blocking(remove).await?;
            shared.retention.removed.set(position + bytes);
        }
        if first < min {
            let segments = (min - first) / bytes;
            let millis = (shared.edge.now() - began).as_millis() as u64;
            tracing::info!(shard = %shared.shard, segments, log_begins = min, millis, "segments deleted");
        }
        Ok(())
    }

    /// Moves the first readable entries behind what the log has lost, and removes queue
    /// files that have none. Hands over the queues that moved, a bounded number at a
    /// time; other tasks run in between. One call at a time.
    ///
    /// # Errors
    /// Those of the file system; the rest is done by a later call.
    pub async fn sweep_queues(&self, mut on_moved: impl FnMut(&[Moved])) -> io::Result<()> {
        let shared = self.shared();
        let min = shared.state.borrow().log.min();
        if shared.retention.swept.get() == min {
            return Ok(());
        }
        self.remove_index_before(min).await;
        let mut cursor = 0;
        // The others are swept all the same; those that it holds up are next time.
        let mut fault: Option<io::Error> = None;
        let file_bytes = shared.state.borrow().settings.queue_file_bytes;
        let limit = shared.state.borrow().log.physical(min);
        while cursor < shared.state.borrow().queues.len() {
            let mut moved = Vec::new();
            let searches = {
                let mut state = shared.state.borrow_mut();
                state.sweep(&shared.dir, &mut cursor, &mut moved)
            };
            if searches.is_empty() {
                future::yield_now().await;
            } else {
                let files = shared.files.clone();
                let search = move || search_all(&*files, searches, file_bytes, limit);
                let found = shared.edge.blocking(search).await;
                let mut state = shared.state.borrow_mut();
                for (index, end, first) in found {
                    let queue = state.queues.get(index);
                    match first {
                        Ok(None) if queue.recent_start() > end => {
                            // Memory gave up entries meanwhile that nobody has looked at.
                            fault.get_or_insert(io::ErrorKind::Interrupted.into());
                        }
                        Ok(first) => {
                            let first = first.or_else(|| queue.first_recent(limit));
                            state.move_first(index, first, &mut moved);
                        }
                        Err(error) => {
                            fault.get_or_insert(error);
                        }
                    }
                }
            }
            on_moved(&moved);
        }
        self.remove_queue_files(file_bytes).await?;
        match fault {
            Some(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            Some(_) => Ok(()),
            None => {
                shared.retention.swept.set(min);
                Ok(())
            }
        }
    }

    async fn remove_queue_files(&self, file_bytes: u64) -> io::Result<()> {
        let shared = self.shared();
        let mut cursor = 0;
        while cursor < shared.state.borrow().queues.len() {
            let removals = shared.state.borrow().removals(&shared.dir, &mut cursor);
            if removals.is_empty() {
                future::yield_now().await;
                continue;
            }
            for removal in &removals {
                let mut state = shared.state.borrow_mut();
                state.removed_front(removal.index, removal.until);
            }
            // The checkpoint lets them be gone before they are.
            if let Err(error) = write_queues(shared, true).await {
                for removal in &removals {
                    let mut state = shared.state.borrow_mut();
                    state.kept_front(removal.index, removal.from, removal.until);
                }
                return Err(error);
            }
            let files = shared.files.clone();
            let remove = move || remove_all(&*files, &removals, file_bytes);
            shared.edge.blocking(remove).await?;
        }
        Ok(())
    }
}

/// Store time of the first message of the segment at `position`, ms since 1970; `None`
/// where the device has none yet.
async fn begins_at(shared: &Rc<Shared>, position: u64) -> io::Result<Option<i64>> {
    if let Some(&time) = shared.retention.begins.borrow().get(&position) {
        return Ok(Some(time));
    }
    let physical = shared.state.borrow().log.physical(position);
    let path = segment::path(&shared.dir, shared.shard, position);
    let files = shared.files.clone();
    let head = shared.edge.blocking(move || -> io::Result<Vec<u8>> {
        let mut head = vec![0; HEAD_BYTES];
        let file = files.open(&path, Mode::Read)?;
        let read = file.read_at(&mut head, 0, Patience::Wait)?;
        head.truncate(read);
        Ok(head)
    });
    let time = stored_at(&head.await?, physical);
    if let Some(time) = time {
        shared.retention.begins.borrow_mut().insert(position, time);
    }
    Ok(time)
}

fn remove_for_good(files: &dyn Files, path: &std::path::Path) -> io::Result<()> {
    if_there(files.remove_file(path))?;
    files.sync_dir(path.parent().unwrap_or(path))
}

/// The queue, the end of the entries that were looked at, and what was found.
type FirstOf = (QueueIndex, u64, io::Result<Option<(u64, i64)>>);

fn search_all(
    files: &dyn Files,
    searches: Vec<Search>,
    file_bytes: u64,
    limit: i64,
) -> Vec<FirstOf> {
    let first_of = |search: Search| {
        let Search { index, dir, range } = search;
        let end = range.end;
        let first = queue_files::first_readable(files, &dir, file_bytes, range, limit);
        (index, end, first)
    };
    searches.into_iter().map(first_of).collect()
}

fn remove_all(files: &dyn Files, removals: &[Removal], file_bytes: u64) -> io::Result<()> {
    for removal in removals {
        let (from, until) = (removal.from, removal.until);
        // Or they were removed with their topic.
        if_there(queue_files::remove_front(
            files,
            &removal.dir,
            file_bytes,
            from,
            until,
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_oldest_go_and_no_more_than_must(
            mut times in prop::collection::vec(0i64..1000, 0..20), known in 0usize..20,
            expired in prop::option::of(0i64..1000), bytes in 0u64..30_000,
        ) {
            times.sort_unstable();
            let ends: Vec<Option<i64>> = times
                .iter()
                .enumerate()
                .map(|(n, &time)| (n < known).then_some(time))
                .collect();
            let demand = Demand { expired_before: expired, bytes, held: Vec::new() };
            let count = segments_to_delete(&demand, &ends, 1000);
            prop_assert!(count <= ends.len());
            for (n, end) in ends.iter().enumerate() {
                let too_old = matches!((end, expired), (Some(end), Some(limit)) if *end < limit);
                let for_space = (n as u64) * 1000 < bytes;
                prop_assert_eq!(n < count, too_old || for_space, "segment {}", n);
            }
        }
    }
}
