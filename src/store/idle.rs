//! What a shard's store gives back when it is idle, and what it does when its queue
//! files cannot be written.

use std::collections::VecDeque;

use super::commit_log::NoRoom;
use super::consume_queue::{ENTRY_BYTES, Queue, QueueIndex};
use super::shard_store::ShardStore;

/// Calls of [`ShardStore::cool_queues`] for which a queue keeps memory after the last append:
/// 10 s.
const WARM_ROUNDS: u64 = 40;

/// Queues that are looked at in one round.
const COOL_STEP: usize = 4096;

/// Queues that hold memory for entries that the files have, those that were looked at
/// first in front.
#[derive(Debug, Default)]
pub struct Cooling {
    round: u64,
    /// The queue, what came next in it when it was looked at, and in which round.
    queues: VecDeque<(QueueIndex, u64, u64)>,
}

impl Cooling {
    /// Adds a queue that is not among them.
    pub fn push(&mut self, index: QueueIndex, queue: &mut Queue) {
        queue.cooling = true;
        self.queues.push_back((index, queue.next, self.round));
    }
}

impl ShardStore {
    /// Gives the memory back of queues that nothing was appended to for 10 s: their
    /// readers then find the entries in files. To be called four times a second; the work
    /// of a call is bounded.
    pub(super) fn cool_queues(&mut self) {
        self.cooling.round += 1;
        for _ in 0..COOL_STEP {
            let Some(&(index, next, round)) = self.cooling.queues.front() else {
                return;
            };
            if round + WARM_ROUNDS > self.cooling.round {
                return;
            }
            self.cooling.queues.pop_front();
            let queue = self.queues.get_mut(index);
            queue.cooling = false;
            if queue.next == next && queue.on_file == next {
                queue.cool();
            } else {
                self.cooling.push(index, queue);
            }
        }
    }

    /// Why queue entries cannot be written, or that they can. Returns whether that is
    /// news.
    pub(super) fn set_queues_unwritable(&mut self, why: Option<String>) -> bool {
        let before = std::mem::replace(&mut self.queues_unwritable, why);
        before.is_some() != self.queues_unwritable.is_some()
    }

    /// Counts the entries that the files lack, and all of them.
    pub(super) fn recount(&mut self) {
        (self.unwritten, self.filed) = (0, 0);
        for (_, queue) in self.queues.iter_mut() {
            self.unwritten += queue.next - queue.on_file;
            self.filed += queue.next - queue.filed_from;
        }
    }

    /// Refuses entries where too many wait for files that cannot be written.
    ///
    /// # Errors
    /// [`NoRoom::NoSpace`].
    pub(super) fn room_for_entries(&self) -> Result<(), NoRoom> {
        match &self.queues_unwritable {
            Some(why) => Err(NoRoom::NoSpace(why.clone())),
            // They are on their way.
            None => Ok(()),
        }
    }

    /// Bytes of the shard's files: segments in their full length, the tail file, and
    /// queue files as long as their entries.
    pub fn file_bytes(&self) -> u64 {
        self.log_bytes() + self.settings.tail_bytes as u64 + self.filed * ENTRY_BYTES as u64
    }

    /// Bytes of the segment files.
    pub fn log_bytes(&self) -> u64 {
        self.log.prepared_end() - self.log.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::consume_queue::{Entry, Queues};

    #[test]
    fn an_idle_queue_keeps_no_entries_and_little_memory() {
        assert!(size_of::<Queue>() <= 128);
        let mut queues = Queues::default();
        let index = queues.insert("T", 0, 0, 0);
        let queue = queues.get_mut(index);
        for n in 0..3000 {
            queue.push(Entry {
                physical: n,
                size: 1,
                tags_code: 0,
            });
        }
        queue.written(2990);
        queue.cool();
        assert_eq!(queue.recent_start(), 2990, "the files lack ten");
        queue.written(3000);
        queue.cool();
        assert!(!queue.is_warm());
        assert_eq!(queue.recent_start(), 3000);
    }
}
