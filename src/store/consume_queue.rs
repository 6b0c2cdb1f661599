//! ConsumeQueues: for each queue of a topic, where its messages lie in the log.

use foldhash::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::pieces::Pieces;

/// Bytes of one entry: physical offset i64, size i32, tags code i64.
pub const ENTRY_BYTES: usize = 20;

/// Entries kept in memory behind those that the files lack, for readers that keep up.
const RECENT_MAX: usize = 2048;

/// One entry of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Physical offset of the message.
    pub physical: i64,
    /// Size of its record, in bytes.
    pub size: i32,
    /// Hash of its tag, or when a delayed message is due.
    pub tags_code: i64,
}

impl Entry {
    /// What RocketMQ writes where a queue offset has no message (any more).
    pub const NOTHING: Entry = Entry {
        physical: 0,
        size: i32::MAX,
        tags_code: 0,
    };

    /// Reads an entry from its 20 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Entry {
        let i64_at = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            i64::from_be_bytes(value)
        };
        Entry {
            physical: i64_at(0),
            size: i32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            tags_code: i64_at(12),
        }
    }

    /// The entry as it lies in its file.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.physical.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    /// Whether there is no message (any more) at its queue offset.
    pub fn is_nothing(&self) -> bool {
        self.size == i32::MAX
    }

    /// Whether this is an entry and not the zeros behind the last one.
    pub fn is_set(&self) -> bool {
        self.physical >= 0 && self.size > 0
    }
}

/// Number of a queue within its shard; never used for another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueIndex(pub u32);

/// One queue.
#[derive(Debug)]
pub struct Queue {
    /// Topic.
    pub topic: Arc<str>,
    /// Queue number in its topic.
    pub queue_id: i32,
    /// First readable queue offset.
    pub min: u64,
    /// Queue offset of the next message.
    pub next: u64,
    /// Readers see entries below this one.
    pub visible: u64,
    /// Entries below this one are in the files.
    pub on_file: u64,
    /// First queue offset that the files have an entry for.
    pub filed_from: u64,
    /// Physical offset of the message at `min`: [`NO_MESSAGE`] where there is none,
    /// [`UNKNOWN`] where it must be looked for.
    pub oldest: i64,
    /// It is among the queues that readers see more of since they last looked.
    pub arrived: bool,
    /// It is among the queues whose memory is given back when they are idle.
    pub cooling: bool,
    recent: Pieces<Entry>,
}

/// A queue's `oldest` where it has no message.
pub const NO_MESSAGE: i64 = i64::MAX;

/// A queue's `oldest` where it has not been looked for.
pub const UNKNOWN: i64 = -1;

/// Where a queue's first readable entry is.
#[derive(Debug, PartialEq, Eq)]
pub enum FirstReadable {
    /// At this queue offset, with this physical offset; `None`: there is none.
    At(Option<(u64, i64)>),
    /// Among these entries in the files; where they have none, as
    /// [`Queue::first_recent`] says.
    InFiles(Range<u64>),
}

impl Queue {
    /// Appends an entry and returns its queue offset.
    pub fn push(&mut self, entry: Entry) -> u64 {
        let offset = self.next;
        if self.min == offset {
            self.oldest = if entry.is_nothing() {
                UNKNOWN
            } else {
                entry.physical
            };
        }
        self.recent.push(entry);
        self.next += 1;
        offset
    }

    /// Queue offset of the oldest entry in memory.
    pub fn recent_start(&self) -> u64 {
        self.next - self.recent.len() as u64
    }

    /// The entry at `offset`, if it is in memory.
    pub fn recent(&self, offset: u64) -> Option<Entry> {
        let index = offset.checked_sub(self.recent_start())?;
        self.recent.get(index as usize).copied()
    }

    /// Takes a copy of the entries that the files lack, from `on_file` on, `max` at most.
    pub(super) fn unwritten(&self, max: usize) -> Pieces<[u8; ENTRY_BYTES]> {
        let skip = (self.on_file - self.recent_start().min(self.on_file)) as usize;
        let count = (self.recent.len() - skip).min(max);
        let entries = self.recent.range(skip..skip + count);
        entries.map(|entry| entry.to_bytes()).collect()
    }

    /// Entries below `end` are in the files now: those that memory need not keep go.
    pub fn written(&mut self, end: u64) {
        self.on_file = end;
        let keep = RECENT_MAX.max((self.next - end) as usize);
        self.recent
            .drop_front(self.recent.len().saturating_sub(keep));
    }

    /// Gives the memory back of what the files have.
    pub fn cool(&mut self) {
        let keep = (self.next - self.on_file) as usize;
        self.recent
            .drop_front(self.recent.len().saturating_sub(keep));
        self.recent.shrink();
    }

    /// Whether it holds entries in memory that the files have.
    pub fn is_warm(&self) -> bool {
        self.recent_start() < self.on_file || self.recent.is_allocated()
    }

    /// Where the first entry is whose message lies at or behind physical offset `limit`.
    pub fn first_readable(&self, limit: i64) -> FirstReadable {
        let split = self.recent_start().clamp(self.min, self.next);
        let behind = self
            .recent
            .range(0..usize::MAX)
            .find(|entry| !entry.is_nothing());
        if split == self.min || behind.is_some_and(|entry| entry.physical < limit) {
            return FirstReadable::At(self.first_recent(limit));
        }
        FirstReadable::InFiles(self.min..split)
    }

    /// The first entry in memory whose message lies at or behind physical offset
    /// `limit`: its queue offset and its physical offset.
    pub fn first_recent(&self, limit: i64) -> Option<(u64, i64)> {
        let start = self.recent_start();
        let range = start.max(self.min)..self.next;
        let found = first_at(range, limit, |range| {
            let skip = (range.start - start) as usize;
            let take = (range.end - range.start) as usize;
            let entries = self.recent.range(skip..skip + take);
            let mut numbered = range.zip(entries.copied());
            Ok(numbered.find(|(_, entry)| !entry.is_nothing()))
        });
        // Memory can be read.
        found.unwrap_or_default()
    }

    /// Moves the first readable entry on: to this queue offset and physical offset, or
    /// behind the last entry. Returns where it was.
    pub fn set_first_readable(&mut self, first: Option<(u64, i64)>) -> u64 {
        let before = self.min;
        let (min, oldest) = first.unwrap_or((self.next, NO_MESSAGE));
        debug_assert!(min >= before && min <= self.next);
        (self.min, self.oldest) = (min, oldest);
        before
    }

    /// Forgets all entries from queue offset `next` on.
    pub fn cut(&mut self, next: u64) {
        let keep = next.saturating_sub(self.recent_start()) as usize;
        self.recent.truncate(keep);
        self.next = next;
        self.min = self.min.min(next);
        self.visible = self.visible.min(next);
        self.on_file = self.on_file.min(next);
        self.filed_from = self.filed_from.min(next);
        self.oldest = UNKNOWN;
    }
}

/// Binary search in the entries of a queue, which rise but for those that stand for
/// nothing: queue offset and physical offset of the first one in `range` whose message
/// lies at or behind physical offset `limit`. `next` finds the first message of a
/// range, passing over what stands for nothing.
///
/// # Errors
/// Those of `next`.
pub fn first_at(
    range: Range<u64>,
    limit: i64,
    mut next: impl FnMut(Range<u64>) -> io::Result<Option<(u64, Entry)>>,
) -> io::Result<Option<(u64, i64)>> {
    let (mut low, mut high) = (range.start, range.end);
    let mut found = None;
    // Mostly it is the first one, or there is none.
    let mut probes = [Some(low), high.checked_sub(1)].into_iter().flatten();
    while low < high {
        let at = match probes.next() {
            Some(probe) => probe.clamp(low, high - 1),
            None => low.midpoint(high),
        };
        match next(at..high)? {
            Some((offset, entry)) if entry.physical < limit => low = offset + 1,
            Some((offset, entry)) => {
                found = Some((offset, entry.physical));
                high = at;
            }
            None => high = at,
        }
    }
    Ok(found)
}

/// All queues of one shard.
#[derive(Debug, Default)]
pub struct Queues {
    by_topic: HashMap<Arc<str>, Vec<Option<QueueIndex>>>,
    list: Vec<Queue>,
}

impl Queues {
    /// Number of a queue, if it is there.
    pub fn find(&self, topic: &str, queue_id: i32) -> Option<QueueIndex> {
        let queues = self.by_topic.get(topic)?;
        *queues.get(usize::try_from(queue_id).ok()?)?
    }

    /// Adds a queue whose entries `first..next` are in files.
    pub fn insert(&mut self, topic: &str, queue_id: i32, first: u64, next: u64) -> QueueIndex {
        let index = QueueIndex(self.list.len() as u32);
        let topic = match self.by_topic.get_key_value(topic) {
            Some((topic, _)) => topic.clone(),
            None => Arc::from(topic),
        };
        let slots = self.by_topic.entry(topic.clone()).or_default();
        let slot = queue_id as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        slots[slot] = Some(index);
        self.list.push(Queue {
            topic,
            queue_id,
            min: first,
            next,
            visible: next,
            on_file: next,
            filed_from: first,
            oldest: if first < next { UNKNOWN } else { NO_MESSAGE },
            arrived: false,
            cooling: false,
            recent: Pieces::default(),
        });
        index
    }

    /// A queue by its number.
    pub fn get(&self, index: QueueIndex) -> &Queue {
        &self.list[index.0 as usize]
    }

    /// A queue by its number.
    pub fn get_mut(&mut self, index: QueueIndex) -> &mut Queue {
        &mut self.list[index.0 as usize]
    }

    /// Number of queues, also those of removed topics: numbers are below it.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// All queues, also those of removed topics.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (QueueIndex, &mut Queue)> {
        let indexed = self.list.iter_mut().enumerate();
        indexed.map(|(index, queue)| (QueueIndex(index as u32), queue))
    }

    /// Topics with their queues.
    pub fn topics(&self) -> impl Iterator<Item = (&Arc<str>, impl Iterator<Item = QueueIndex>)> {
        self.by_topic
            .iter()
            .map(|(topic, slots)| (topic, slots.iter().copied().flatten()))
    }

    /// The queues of a topic.
    pub fn of_topic(&self, topic: &str) -> impl Iterator<Item = QueueIndex> {
        let slots = self.by_topic.get(topic).map_or(&[][..], Vec::as_slice);
        slots.iter().copied().flatten()
    }

    /// Removes a topic and returns its queues. Their numbers stay taken.
    pub fn remove(&mut self, topic: &str) -> Vec<QueueIndex> {
        let slots = self.by_topic.remove(topic).unwrap_or_default();
        let removed: Vec<_> = slots.into_iter().flatten().collect();
        for &index in &removed {
            let queue = self.get_mut(index);
            // Nothing is left to write for it, to read or to delete.
            queue.on_file = queue.next;
            queue.filed_from = queue.next;
            queue.set_first_readable(None);
            queue.recent = Pieces::default();
        }
        removed
    }

    /// Sums over the queues: of the offsets that come next, and of those that their
    /// files begin at.
    pub fn sums(&self) -> (u64, u64) {
        let indexes = self.topics().flat_map(|(_, indexes)| indexes);
        let queues = indexes.map(|index| self.get(index));
        queues.fold((0, 0), |(next, first), queue| {
            (next + queue.next, first + queue.filed_from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_survives_its_bytes(physical: i64, size: i32, tags_code: i64) {
            let entry = Entry { physical, size, tags_code };
            prop_assert_eq!(Entry::from_bytes(&entry.to_bytes()), entry);
        }

        #[test]
        fn memory_holds_all_that_the_files_lack(
            start in 0u64..10, steps in prop::collection::vec((0u64..3000, 0u64..3000), 1..8),
        ) {
            let mut queues = Queues::default();
            let index = queues.insert("T", 0, 0, start);
            let queue = queues.get_mut(index);
            for (push, write) in steps {
                for _ in 0..push {
                    let physical = queue.next as i64;
                    queue.push(Entry { physical, size: 1, tags_code: 0 });
                }
                let (first, entries) = (queue.on_file, queue.unwritten(write as usize));
                for (n, entry) in entries.range(0..usize::MAX).enumerate() {
                    prop_assert_eq!(Entry::from_bytes(entry).physical as u64, first + n as u64);
                }
                queue.written(first + entries.len() as u64);
                if write % 3 == 0 {
                    queue.cool();
                    prop_assert_eq!(queue.recent_start(), queue.on_file);
                }
                for offset in queue.on_file..queue.next {
                    prop_assert_eq!(queue.recent(offset).unwrap().physical as u64, offset);
                }
                prop_assert!(queue.recent(queue.next).is_none());
                prop_assert!(
                    queue.next - queue.recent_start()
                        <= (RECENT_MAX as u64).max(queue.next - queue.on_file)
                );
            }
        }

        #[test]
        fn the_first_readable_entry_is_that_of_a_linear_search(
            start in 0u64..5, gaps in prop::collection::vec(prop_oneof![2 => Just(0i64), 3 => 1i64..50], 0..60),
            part in 0u64..60, limit in 0i64..1500,
        ) {
            // A gap of 0 stands for nothing.
            let mut queues = Queues::default();
            let index = queues.insert("T", 0, start, start);
            let queue = queues.get_mut(index);
            let mut physical = 7;
            let mut all = Vec::new();
            for gap in gaps {
                physical += gap;
                let entry = Entry { physical, size: 1, tags_code: 0 };
                let entry = if gap == 0 { Entry::NOTHING } else { entry };
                let offset = queue.push(entry);
                all.push((offset, entry));
            }
            let linear = all
                .iter()
                .find(|(_, entry)| !entry.is_nothing() && entry.physical >= limit)
                .map(|&(offset, entry)| (offset, entry.physical));
            prop_assert_eq!(queue.first_recent(limit), linear);
            // The same with the front in files.
            let split = (start + part).min(queue.next);
            queue.written(split);
            queue.cool();
            let found = match queue.first_readable(limit) {
                FirstReadable::At(found) => found,
                FirstReadable::InFiles(range) => {
                    prop_assert_eq!(&range, &(start..split));
                    let in_files = first_at(range, limit, |range| {
                        let mut inside = all.iter().filter(|(offset, _)| range.contains(offset));
                        Ok(inside.find(|(_, entry)| !entry.is_nothing()).copied())
                    });
                    in_files.unwrap().or(queue.first_recent(limit))
                }
            };
            prop_assert_eq!(found, linear);
            prop_assert_eq!(queue.set_first_readable(found), start);
            prop_assert!(queue.min <= queue.next);
        }
    }
}
