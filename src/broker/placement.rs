//! Which shard owns a queue. A queue that has messages never changes its log.

use std::collections::HashMap;

use crate::shard::ShardId;

/// Owners of queues: those found in logs, and a rule for all others.
#[derive(Debug)]
pub struct Placement {
    shards: u16,
    /// Queues that lie elsewhere than the rule says, as the store once had
    /// another number of shards.
    found: HashMap<String, HashMap<i32, ShardId>>,
}

impl Placement {
    /// Owners for `shards` shards, given the queues that the log of each has.
    pub fn new(
        shards: u16,
        logs: impl IntoIterator<Item = (ShardId, Vec<(String, i32)>)>,
    ) -> Placement {
        let mut placement = Placement {
            shards,
            found: HashMap::new(),
        };
        for (shard, queues) in logs {
            for (topic, queue) in queues {
                if placement.by_rule(&topic, queue) != shard {
                    let queues = placement.found.entry(topic).or_default();
                    queues.insert(queue, shard);
                }
            }
        }
        placement
    }

    /// The owner of a queue.
    pub fn owner(&self, topic: &str, queue: i32) -> ShardId {
        let found = self.found.get(topic).and_then(|queues| queues.get(&queue));
        found.copied().unwrap_or_else(|| self.by_rule(topic, queue))
    }

    /// Neighbouring queues of a topic go to neighbouring shards; topics with one
    /// queue are spread by their names.
    fn by_rule(&self, topic: &str, queue: i32) -> ShardId {
        let start = topic.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let shards = u64::from(self.shards);
        ShardId(((start % shards + queue.unsigned_abs() as u64) % shards) as u16)
    }

    /// Number of shards.
    pub fn shards(&self) -> u16 {
        self.shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_a_topic_are_spread_evenly_and_stay_where_they_are() {
        let rule = Placement::new(4, []);
        let mut count = [0; 4];
        for queue in 0..16 {
            count[rule.owner("T", queue).index()] += 1;
        }
        assert_eq!(count, [4; 4]);
        let old: Vec<_> = (0..8).map(|queue| ("T".to_owned(), queue)).collect();
        let grown = Placement::new(4, [(ShardId(0), old)]);
        for queue in 0..8 {
            assert_eq!(grown.owner("T", queue), ShardId(0));
        }
        assert_eq!(grown.owner("U", 3), rule.owner("U", 3));
    }
}
