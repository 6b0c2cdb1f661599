//! How far each group is: the offsets of the queues of one shard.
//!
//! Lives on the shard that owns the queues, one on each. What is committed is
//! written to `consumerOffset.json` by the control shard, for all shards in one
//! file; what was handed out, and resets that wait for the next pull, end with the
//! process. Source of the rules: `ConsumerOffsetManager`.

use std::collections::{BTreeMap, HashMap};

use super::limits::OFFSETS_PER_SHARD_MAX;
use crate::broker::peers::OffsetInfo;
use crate::shard::ShardId;
use crate::wire::body::json::{self, JsonError};
use crate::wire::body::offset::{ConsumerOffsets, QueueOffsets};
use crate::wire::body::topic::DataVersion;

/// Stands between topic and group in the keys of the file.
const SEPARATOR: char = '@';

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    committed: Option<i64>,
    pulled: Option<i64>,
    reset: Option<i64>,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It is the committed offset now.
    Stored,
    /// An operator has reset the offset and the group has not yet been told: the
    /// commit is of what it did before, and counts for nothing.
    ResetPending,
    /// [`OFFSETS_PER_SHARD_MAX`] is reached; the offset is not kept.
    Full,
}

type Topics = HashMap<Box<str>, HashMap<i32, Entry>>;

/// The offsets of one shard. Looking up allocates nothing.
#[derive(Debug, Default)]
pub struct OffsetTable {
    groups: HashMap<Box<str>, Topics>,
    entries: usize,
    dirty: bool,
}

impl OffsetTable {
    fn get(&self, group: &str, topic: &str, queue: i32) -> Option<&Entry> {
        self.groups.get(group)?.get(topic)?.get(&queue)
    }

    /// The entry of a queue, made if it is not there and there is room.
    fn entry(&mut self, group: &str, topic: &str, queue: i32) -> Option<&mut Entry> {
        if self.get(group, topic, queue).is_none() {
            if self.entries >= OFFSETS_PER_SHARD_MAX {
                return None;
            }
            self.entries += 1;
        }
        // Names are copied only for what is new, which `entry` of a map cannot do.
        if !self.groups.contains_key(group) {
            self.groups.insert(group.into(), Topics::new());
        }
        let topics = self.groups.get_mut(group)?;
        if !topics.contains_key(topic) {
            topics.insert(topic.into(), HashMap::new());
        }
        Some(topics.get_mut(topic)?.entry(queue).or_default())
    }

    /// Commits an offset for a group. It may be lower than the one before.
    pub fn commit(&mut self, group: &str, topic: &str, queue: i32, offset: i64) -> Commit {
        match self.entry(group, topic, queue) {
            None => Commit::Full,
            Some(entry) if entry.reset.is_some() => Commit::ResetPending,
            Some(entry) => {
                if entry.committed != Some(offset) {
                    entry.committed = Some(offset);
                    self.dirty = true;
                }
                Commit::Stored
            }
        }
    }

    /// The offset that a group is to continue at: of a reset that waits, else what
    /// was committed.
    pub fn query(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        let entry = self.get(group, topic, queue)?;
        entry.reset.or(entry.committed)
    }

    /// Sets a committed offset for an operator. With `reset`, the next pull of the
    /// queue is told of it, and commits until then count for nothing.
    pub fn set(&mut self, group: &str, topic: &str, queue: i32, offset: i64, reset: bool) {
        if let Some(entry) = self.entry(group, topic, queue) {
            entry.committed = Some(offset);
            entry.reset = reset.then_some(offset);
            // What was handed out beyond is handed out again.
            entry.pulled = None;
            self.dirty = true;
        }
    }

    /// Whether a reset waits for the next pull.
    pub fn has_reset(&self, group: &str, topic: &str, queue: i32) -> bool {
        self.get(group, topic, queue)
            .is_some_and(|entry| entry.reset.is_some())
    }

    /// The offset of a reset that waits, which the pull that asks is now told of.
    pub fn take_reset(&mut self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        if !self.has_reset(group, topic, queue) {
            return None;
        }
        self.entry(group, topic, queue)?.reset.take()
    }

    /// Notes up to which offset messages were handed out.
    pub fn pulled(&mut self, group: &str, topic: &str, queue: i32, offset: i64) {
        if let Some(entry) = self.entry(group, topic, queue) {
            entry.pulled = Some(offset);
        }
    }

    /// All offsets of a group.
    pub fn group_offsets(&self, group: &str) -> Vec<OffsetInfo> {
        let mut offsets = Vec::new();
        for (topic, queues) in self.groups.get(group).into_iter().flatten() {
            offsets.extend(queues.iter().map(|(&queue, entry)| OffsetInfo {
                topic: topic.to_string(),
                queue,
                committed: entry.reset.or(entry.committed).unwrap_or(-1),
                pulled: entry.pulled.unwrap_or(-1),
            }));
        }
        offsets
    }

    /// The groups that committed an offset of a topic.
    pub fn groups_of_topic(&self, topic: &str) -> Vec<String> {
        let committed =
            |queues: &HashMap<i32, Entry>| queues.values().any(|e| e.committed.is_some());
        let groups = self.groups.iter();
        groups
            .filter(|(_, topics)| topics.get(topic).is_some_and(committed))
            .map(|(group, _)| group.to_string())
            .collect()
    }

    /// The groups that have committed an offset of a queue, and what.
    pub fn committed<'a>(
        &'a self,
        topic: &'a str,
        queue: i32,
    ) -> impl Iterator<Item = (&'a str, i64)> {
        self.groups.iter().filter_map(move |(group, topics)| {
            let committed = topics.get(topic)?.get(&queue)?.committed?;
            Some((&**group, committed))
        })
    }

    /// Forgets all offsets of a group.
    pub fn drop_group(&mut self, group: &str) {
        if let Some(topics) = self.groups.remove(group) {
            self.entries -= topics.values().map(HashMap::len).sum::<usize>();
            self.dirty = true;
        }
    }

    /// Forgets all offsets of a topic.
    pub fn drop_topic(&mut self, topic: &str) {
        let mut dropped = 0;
        self.groups.retain(|_, topics| {
            dropped += topics.remove(topic).map_or(0, |queues| queues.len());
            !topics.is_empty()
        });
        self.entries -= dropped;
        self.dirty |= dropped > 0;
    }

    /// Whether anything that is written to the file changed since the last call.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// What is committed, for the file.
    pub fn snapshot(&self) -> OffsetSnapshot {
        let mut table = BTreeMap::new();
        for (group, topics) in &self.groups {
            for (topic, queues) in topics {
                let committed = queues.iter().filter_map(|(&q, e)| Some((q, e.committed?)));
                let committed: QueueOffsets = committed.collect();
                if !committed.is_empty() {
                    table.insert(format!("{topic}{SEPARATOR}{group}"), committed);
                }
            }
        }
        OffsetSnapshot { table }
    }

    /// Adds what a snapshot holds.
    pub fn restore(&mut self, snapshot: &OffsetSnapshot) {
        for (key, queues) in &snapshot.table {
            if let Some((topic, group)) = key.split_once(SEPARATOR) {
                for (&queue, &offset) in queues {
                    if let Some(entry) = self.entry(group, topic, queue) {
                        entry.committed = Some(offset);
                    }
                }
            }
        }
    }
}

/// Committed offsets by `topic@group`, on their way between a shard and the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetSnapshot {
    table: BTreeMap<String, QueueOffsets>,
}

impl OffsetSnapshot {
    /// Reads a `consumerOffset.json`. Also returns its edition.
    ///
    /// # Errors
    /// The text is not such a file.
    pub fn parse(text: &[u8]) -> Result<(OffsetSnapshot, DataVersion), JsonError> {
        let file: ConsumerOffsets = json::parse(text)?;
        let table = file.offset_table;
        Ok((OffsetSnapshot { table }, file.data_version))
    }

    /// The text of a `consumerOffset.json`, which is also the answer to
    /// GET_ALL_CONSUMER_OFFSET.
    pub fn to_json(self, data_version: DataVersion) -> Vec<u8> {
        let file = ConsumerOffsets {
            data_version,
            offset_table: self.table,
        };
        file.to_json()
    }

    /// Adds what another shard has.
    pub fn merge(&mut self, other: OffsetSnapshot) {
        for (key, queues) in other.table {
            self.table.entry(key).or_default().extend(queues);
        }
    }

    /// Adds one offset.
    pub fn insert(&mut self, group: &str, topic: &str, queue: i32, offset: i64) {
        let key = format!("{topic}{SEPARATOR}{group}");
        self.table.entry(key).or_default().insert(queue, offset);
    }

    /// Divides it among `shards` shards by who owns a queue. What has no topic and
    /// group goes to the first: it is no one's, but it is in the file.
    pub fn split(self, shards: usize, owner: impl Fn(&str, i32) -> ShardId) -> Vec<OffsetSnapshot> {
        let mut parts = vec![OffsetSnapshot::default(); shards.max(1)];
        for (key, queues) in self.table {
            let topic = key.split_once(SEPARATOR).map(|(topic, _)| topic);
            for (queue, offset) in queues {
                let part = topic.map_or(0, |topic| owner(topic, queue).index());
                let part = part.min(parts.len() - 1);
                let table = &mut parts[part].table;
                match table.get_mut(&key) {
                    Some(queues) => drop(queues.insert(queue, offset)),
                    None => drop(table.insert(key.clone(), QueueOffsets::from([(queue, offset)]))),
                }
            }
        }
        parts
    }

    /// Number of offsets.
    pub fn len(&self) -> usize {
        self.table.values().map(BTreeMap::len).sum()
    }

    /// Whether there is no offset.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_found_again_whatever_it_is() {
        let mut offsets = OffsetTable::default();
        assert_eq!(offsets.query("g", "T", 0), None);
        assert_eq!(offsets.commit("g", "T", 0, 5), Commit::Stored);
        assert_eq!(offsets.commit("g", "T", 0, 3), Commit::Stored);
        assert_eq!(offsets.query("g", "T", 0), Some(3));
        assert_eq!(offsets.query("g", "T", 1), None);
        assert_eq!(offsets.query("T", "g", 0), None);
        assert!(offsets.take_dirty());
        assert_eq!(offsets.commit("g", "T", 0, 3), Commit::Stored);
        assert!(!offsets.take_dirty(), "nothing is new");
    }

    #[test]
    fn a_reset_holds_until_the_next_pull_is_told_of_it() {
        let mut offsets = OffsetTable::default();
        let _ = offsets.commit("g", "T", 0, 50);
        offsets.pulled("g", "T", 0, 60);
        offsets.set("g", "T", 0, 10, true);
        assert_eq!(offsets.query("g", "T", 0), Some(10));
        assert_eq!(offsets.commit("g", "T", 0, 55), Commit::ResetPending);
        assert_eq!(offsets.group_offsets("g")[0].pulled, -1);
        assert_eq!(offsets.take_reset("g", "T", 0), Some(10));
        assert_eq!(offsets.take_reset("g", "T", 0), None);
        assert_eq!(offsets.query("g", "T", 0), Some(10));
        assert_eq!(offsets.commit("g", "T", 0, 12), Commit::Stored);
        assert_eq!(offsets.take_reset("never", "T", 0), None);
        assert_eq!(offsets.entries, 1, "asking makes no entry");
    }

    #[test]
    fn the_file_of_all_shards_comes_back_to_each() {
        let owner = |topic: &str, queue: i32| ShardId((topic.len() as u16 + queue as u16) % 3);
        let mut shards: Vec<OffsetTable> = (0..3).map(|_| OffsetTable::default()).collect();
        for group in ["g", "h"] {
            for topic in ["T", "TT", "%RETRY%g"] {
                for queue in 0..5 {
                    let shard = owner(topic, queue).index();
                    let offset = i64::from(queue) * 10;
                    let _ = shards[shard].commit(group, topic, queue, offset);
                    shards[shard].pulled(group, topic, queue + 100, 1);
                }
            }
        }
        let mut all = OffsetSnapshot::default();
        for shard in &shards {
            all.merge(shard.snapshot());
        }
        assert_eq!(all.len(), 30);
        let version = DataVersion {
            counter: 7,
            ..DataVersion::default()
        };
        let text = all.clone().to_json(version);
        let (read, read_version) = OffsetSnapshot::parse(&text).unwrap();
        assert_eq!((&read, read_version), (&all, version));
        for (shard, part) in shards.iter().zip(read.split(3, owner)) {
            let mut again = OffsetTable::default();
            again.restore(&part);
            assert_eq!(again.snapshot(), shard.snapshot());
            assert!(!again.take_dirty());
        }
    }

    #[test]
    fn what_is_dropped_is_gone_and_nothing_else() {
        let mut offsets = OffsetTable::default();
        for (group, topic) in [("g", "T"), ("g", "U"), ("h", "T")] {
            let _ = offsets.commit(group, topic, 0, 1);
        }
        let mut groups = offsets.groups_of_topic("T");
        groups.sort();
        assert_eq!(groups, ["g", "h"]);
        offsets.drop_topic("T");
        assert_eq!(
            (offsets.query("g", "T", 0), offsets.query("g", "U", 0)),
            (None, Some(1))
        );
        offsets.drop_group("g");
        assert_eq!(offsets.entries, 0);
        assert!(offsets.snapshot().is_empty());
    }

    #[test]
    fn odd_keys_of_a_file_do_no_harm() {
        let text = br#"{"offsetTable":{"nothing":{0:1},"T@g":{"0":5},"@":{1:2}}}"#;
        let (snapshot, _) = OffsetSnapshot::parse(text).unwrap();
        let mut parts = snapshot.split(2, |_, _| ShardId(9));
        let mut offsets = OffsetTable::default();
        offsets.restore(&parts.remove(1));
        assert_eq!(offsets.query("g", "T", 0), Some(5));
        assert!(OffsetSnapshot::parse(b"{").is_err());
    }
}
