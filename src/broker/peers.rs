//! What the control shard may ask of the shards and of clients: the one door
//! between control requests and everything that lives elsewhere.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::BrokerShard;
use super::control::view::GroupChange;
use super::message::{Answer, Ask, Message};
use crate::shard::{ConnId, LaneKind, ShardId};
use crate::wire::body::topic::TopicConfig;
use crate::wire::command::{Request, Response};

/// One queue's bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Queue number.
    pub queue: i32,
    /// Lowest readable queue offset.
    pub min: i64,
    /// One above the highest readable queue offset.
    pub max: i64,
    /// Store time of the newest message in ms, 0 where there is none.
    pub last_timestamp: i64,
}

/// One committed (or pulled) offset of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetInfo {
    /// Topic.
    pub topic: String,
    /// Queue number.
    pub queue: i32,
    /// Committed offset, -1 where none.
    pub committed: i64,
    /// Highest offset pulled in this process's life, -1 where none.
    pub pulled: i64,
}

/// One entry of a ConsumeQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Physical offset.
    pub physical: i64,
    /// Size in bytes.
    pub size: i32,
    /// Tags code.
    pub tags_code: i64,
    /// Store time in ms, -1 where unknown.
    pub store_timestamp: i64,
}

/// Figures of one shard's store, for runtime info.
#[derive(Clone, Debug, Default)]
pub struct StoreInfo {
    /// Number of the shard in the process.
    pub shard: u16,
    /// Physical offset of the oldest byte of the log.
    pub min_physical: i64,
    /// Physical offset behind the newest one.
    pub max_physical: i64,
    /// Bytes not yet on the device.
    pub unflushed: i64,
    /// Earliest store time in ms, -1 when empty.
    pub earliest_timestamp: i64,
    /// Messages appended since the start.
    pub put_messages: u64,
    /// Their bytes.
    pub put_bytes: u64,
    /// Messages refused since the start.
    pub put_failed: u64,
    /// Messages read since the start.
    pub got_messages: u64,
    /// Pulls that found messages.
    pub pulls_found: u64,
    /// Pulls that found none.
    pub pulls_missed: u64,
    /// Requests of clients that went to another shard.
    pub forwarded: u64,
    /// Turns of the shard that took longer than 10 ms.
    pub long_turns: u64,
    /// Allocations above 128 KiB of the shard's thread.
    pub large_allocations: u64,
    /// Connections of the shard.
    pub connections: u64,
    /// Messages deleted before a group had read them, of all groups.
    pub purged_total: u64,
    /// The same by group and topic, those that are counted by themselves.
    pub purged: Vec<(String, String, u64)>,
}

/// Why a client did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The connection is gone.
    Gone,
    /// No answer in time.
    Timeout,
}

/// Asks shards and clients on behalf of control requests.
#[derive(Clone)]
pub struct Peers {
    shard: Rc<BrokerShard>,
}

impl BrokerShard {
    /// The door, from this shard.
    pub(super) fn peers(&self) -> Peers {
        Peers { shard: self.rc() }
    }
}

impl Peers {
    /// Every queue of `topic` that exists in a log, on all shards, by queue number.
    pub async fn queues(&self, topic: &str) -> Vec<QueueInfo> {
        let answers = self.shard.ask_all(|| Ask::Queues(topic.to_owned())).await;
        let mut queues: Vec<QueueInfo> = answers
            .into_iter()
            .filter_map(|answer| match answer {
                Answer::Queues(queues) => Some(queues),
                _ => None,
            })
            .flatten()
            .collect();
        queues.sort_by_key(|queue| queue.queue);
        queues
    }

    /// All offsets of `group` on all shards.
    pub async fn group_offsets(&self, group: &str) -> Vec<OffsetInfo> {
        let answers = self
            .shard
            .ask_all(|| Ask::GroupOffsets(group.to_owned()))
            .await;
        let offsets = answers.into_iter().filter_map(|answer| match answer {
            Answer::Offsets(offsets) => Some(offsets),
            _ => None,
        });
        offsets.flatten().collect()
    }

    /// The groups that committed an offset of `topic`, sorted.
    pub async fn groups_of_topic(&self, topic: &str) -> Vec<String> {
        let answers = self
            .shard
            .ask_all(|| Ask::GroupsOfTopic(topic.to_owned()))
            .await;
        let names = answers.into_iter().filter_map(|answer| match answer {
            Answer::Names(names) => Some(names),
            _ => None,
        });
        let mut names: Vec<String> = names.flatten().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Sets a committed offset; with `reset`, also makes the next pull of that
    /// queue answer OFFSET_RESET.
    pub async fn set_offset(&self, group: &str, topic: &str, queue: i32, offset: i64, reset: bool) {
        let ask = Ask::SetOffset {
            group: group.to_owned(),
            topic: topic.to_owned(),
            queue,
            offset,
            reset,
        };
        let owner = self.shard.owner_of(topic, queue);
        self.shard.ask(owner, ask).await;
    }

    /// Forgets all offsets of a group.
    pub async fn drop_group(&self, group: &str) {
        self.shard
            .ask_all(|| Ask::DropGroup(group.to_owned()))
            .await;
    }

    /// Removes the queues and offsets of a topic on all shards.
    pub async fn drop_topic(&self, topic: &str) {
        let name: Arc<str> = Arc::from(topic);
        self.shard.broadcast(|| Message::TopicGone(name.clone()));
        self.shard
            .ask_all(|| Ask::DropTopic(topic.to_owned()))
            .await;
        self.shard.save_tables().await;
    }

    /// First offset of the queue whose store time is at or after `timestamp` (ms);
    /// one above the last when there is none.
    pub async fn offset_by_time(&self, topic: &str, queue: i32, timestamp: i64) -> i64 {
        let ask = Ask::OffsetByTime(topic.to_owned(), queue, timestamp);
        self.number(topic, queue, ask).await.unwrap_or(0)
    }

    /// Store time in ms of the message at a queue offset, -1 where there is none.
    pub async fn store_time(&self, topic: &str, queue: i32, offset: i64) -> i64 {
        let ask = Ask::StoreTime(topic.to_owned(), queue, offset);
        self.number(topic, queue, ask).await.unwrap_or(-1)
    }

    async fn number(&self, topic: &str, queue: i32, ask: Ask) -> Option<i64> {
        match self.shard.ask(self.shard.owner_of(topic, queue), ask).await {
            Answer::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Up to `count` entries from `from`.
    pub async fn queue_entries(
        &self,
        topic: &str,
        queue: i32,
        from: i64,
        count: usize,
    ) -> Vec<QueueEntry> {
        let ask = Ask::QueueEntries(topic.to_owned(), queue, from, count);
        match self.shard.ask(self.shard.owner_of(topic, queue), ask).await {
            Answer::Entries(entries) => entries,
            _ => Vec::new(),
        }
    }

    /// The record at a physical offset, checked; `None` when there is none.
    pub async fn record(&self, physical: i64) -> Option<Bytes> {
        self.shard.record(physical).await
    }

    /// Figures of every shard's store, by shard.
    pub async fn store_info(&self) -> Vec<StoreInfo> {
        let answers = self.shard.ask_all(|| Ask::StoreInfo).await;
        let stores = answers.into_iter().filter_map(|answer| match answer {
            Answer::Store(store) => Some(store),
            _ => None,
        });
        stores.collect()
    }

    /// Sends a request that wants no answer to a client.
    pub fn notify(&self, conn: ConnId, request: Request) {
        if conn.shard == self.shard.id() {
            self.shard.notify_client(conn, request);
        } else {
            let message = Message::Notify(conn, Box::new(request));
            self.shard.shard.send(conn.shard, LaneKind::Reply, message);
        }
    }

    /// Sends a request to a client and waits for its answer.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        conn: ConnId,
        request: Request,
        timeout: Duration,
    ) -> Result<Response, CallError> {
        let ask = Ask::Call(conn, request, timeout);
        match self.shard.ask(conn.shard, ask).await {
            Answer::Client(answer) => answer,
            _ => Err(CallError::Gone),
        }
    }

    /// Tells all shards of a made or changed topic, writes the table and registers
    /// the topic with all nameservers before it returns.
    pub async fn publish_topics(&self, topics: &[TopicConfig]) {
        let topics: Vec<_> = topics.iter().cloned().map(Arc::new).collect();
        self.shard.publish_topics(&topics).await;
    }

    /// Replaces every shard's copy of these groups. Returns at once; each shard sees
    /// the changes in order, and before whatever the caller sends it next.
    pub fn publish_groups(&self, groups: &[GroupChange]) {
        for group in groups {
            self.shard.broadcast(|| Message::Group(group.clone()));
        }
    }
}

impl BrokerShard {
    /// The record at a physical offset of any log of this broker; `None` when there is none.
    pub(super) async fn record(&self, physical: i64) -> Option<Bytes> {
        if physical < 0 {
            return None;
        }
        // The first of this broker's logs.
        let first = self.log().0 - self.id().0;
        let log = ShardId::of_physical(physical);
        let owner = ShardId(log.0.checked_sub(first)?);
        if owner.0 >= self.shards() {
            return None;
        }
        match self.ask(owner, Ask::Record(physical)).await {
            Answer::Record(record) => record,
            _ => None,
        }
    }
}
