//! Offsets of queues and of groups in them.

use super::{Admin, AdminError, number_of};
use crate::wire::body::json::MessageQueue;
use crate::wire::codes::{request, response};
use crate::wire::command::Request;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A queue whose offset was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReset {
    /// The queue.
    pub queue: MessageQueue,
    /// Where the group was; `None` where the broker does not say.
    pub from: Option<i64>,
    /// Where it goes on.
    pub to: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Offsets {
    offset_table: Option<BTreeMap<MessageQueue, i64>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Statuses {
    consumer_table: Option<BTreeMap<String, BTreeMap<MessageQueue, i64>>>,
    message_queue_table: Option<BTreeMap<MessageQueue, i64>>,
}

impl Admin {
    /// One above a queue's highest offset.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn max_offset(&mut self, broker: &str, topic: &str, queue: i32) -> Result<i64, AdminError> {
        self.bound(broker, of_queue(request::GET_MAX_OFFSET, topic, queue))
    }

    /// A queue's lowest offset.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn min_offset(&mut self, broker: &str, topic: &str, queue: i32) -> Result<i64, AdminError> {
        self.bound(broker, of_queue(request::GET_MIN_OFFSET, topic, queue))
    }

    /// The first offset of a queue whose message was stored at `time` (ms since 1970) or later.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn search_offset(
        &mut self,
        broker: &str,
        topic: &str,
        queue: i32,
        time: i64,
    ) -> Result<i64, AdminError> {
        let ask = of_queue(request::SEARCH_OFFSET_BY_TIMESTAMP, topic, queue);
        self.bound(broker, ask.with("timestamp", time))
    }

    /// When a queue's first message was stored, ms since 1970; `None` where it has none.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn earliest_time(
        &mut self,
        broker: &str,
        topic: &str,
        queue: i32,
    ) -> Result<Option<i64>, AdminError> {
        let ask = of_queue(request::GET_EARLIEST_MSG_STORETIME, topic, queue);
        let answer = self.ask(broker, ask)?;
        let time = number_of(broker, &answer, "timestamp")?;
        Ok(Some(time).filter(|&time| time >= 0))
    }

    fn bound(&mut self, broker: &str, ask: Request) -> Result<i64, AdminError> {
        let answer = self.ask(broker, ask)?;
        Ok(number_of(broker, &answer, "offset")?.max(0))
    }

    /// The offset that a group has committed; `None` where it has none.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn committed_offset(
        &mut self,
        broker: &str,
        group: &str,
        topic: &str,
        queue: i32,
    ) -> Result<Option<i64>, AdminError> {
        let ask = of_queue(request::QUERY_CONSUMER_OFFSET, topic, queue)
            .with("consumerGroup", group)
            .with("setZeroIfNotFound", false);
        match self.ask(broker, ask) {
            Ok(answer) => number_of(broker, &answer, "offset").map(Some),
            Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => Ok(None),
            Err(error) => Err(error.group(group).topic(topic)),
        }
    }

    /// Sets the offset that a group has committed. A member that is connected does not notice.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn commit_offset(
        &mut self,
        broker: &str,
        group: &str,
        topic: &str,
        queue: i32,
        offset: i64,
    ) -> Result<(), AdminError> {
        let set = of_queue(request::UPDATE_CONSUMER_OFFSET, topic, queue)
            .with("consumerGroup", group)
            .with("commitOffset", offset);
        self.ask(broker, set)
            .map(drop)
            .map_err(|error| error.group(group).topic(topic))
    }

    /// Lets a group go on at what was stored at `time` (ms since 1970) in all queues that one broker
    /// has of a topic; -1 is the end. Without `force` it never goes forward.
    ///
    /// Where the broker wants members to be connected and none is, the offsets are set one by one.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn reset_offset_by_time(
        &mut self,
        broker: (&str, &str),
        group: &str,
        topic: &str,
        time: i64,
        force: bool,
    ) -> Result<Vec<QueueReset>, AdminError> {
        let (name, address) = broker;
        let reset = Request::new(request::INVOKE_BROKER_TO_RESET_OFFSET)
            .with("topic", topic)
            .with("group", group)
            .with("queueId", -1)
            .with("timestamp", time)
            .with("isForce", force);
        let before = self.committed(address, group, topic);
        match self.body_of::<Offsets>(address, reset) {
            Ok(body) => {
                let offsets = body.offset_table.unwrap_or_default().into_iter();
                Ok(offsets
                    .map(|(queue, to)| QueueReset {
                        from: before.get(&queue.queue_id).copied(),
                        queue,
                        to,
                    })
                    .collect())
            }
            Err(error) if error.code() == Some(response::CONSUMER_NOT_ONLINE) => {
                self.reset_offset_offline((name, address), group, topic, time, force)
            }
            Err(error) => Err(error.group(group).topic(topic).broker(name)),
        }
    }

    /// The same without the members of the group: offsets are set one by one.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn reset_offset_offline(
        &mut self,
        broker: (&str, &str),
        group: &str,
        topic: &str,
        time: i64,
        force: bool,
    ) -> Result<Vec<QueueReset>, AdminError> {
        let (name, address) = broker;
        let about = |error: AdminError| error.group(group).topic(topic).broker(name);
        let before = self.committed(address, group, topic);
        let queues = self.topic_stats(address, topic).map_err(about)?;
        let mut done = Vec::new();
        for (queue, bounds) in queues.offset_table {
            let to = match time {
                -1 => bounds.max_offset,
                time => self
                    .search_offset(address, topic, queue.queue_id, time)
                    .map_err(about)?,
            };
            let from = before.get(&queue.queue_id).copied();
            if !force && from.is_some_and(|from| to > from) {
                continue;
            }
            self.commit_offset(address, group, topic, queue.queue_id, to)
                .map_err(about)?;
            done.push(QueueReset { queue, from, to });
        }
        Ok(done)
    }

    /// Lets a group go on at an offset of one queue.
    ///
    /// # Errors
    /// As [`Admin::ask`]; an offset outside of the queue is refused.
    pub fn reset_offset_of_queue(
        &mut self,
        broker: (&str, &str),
        group: &str,
        topic: &str,
        queue: i32,
        offset: i64,
    ) -> Result<QueueReset, AdminError> {
        let (name, address) = broker;
        let about = |error: AdminError| error.group(group).topic(topic).broker(name);
        let from = self
            .committed_offset(address, group, topic, queue)
            .map_err(about)?;
        self.commit_offset(address, group, topic, queue, offset)
            .map_err(about)?;
        let reset = Request::new(request::INVOKE_BROKER_TO_RESET_OFFSET)
            .with("topic", topic)
            .with("group", group)
            .with("queueId", queue)
            .with("offset", offset)
            .with("timestamp", 0)
            .with("isForce", true);
        match self.ask(address, reset) {
            Err(error) if error.code() != Some(response::CONSUMER_NOT_ONLINE) => {
                return Err(about(error));
            }
            _ => {}
        }
        Ok(QueueReset {
            queue: MessageQueue {
                broker_name: name.to_owned(),
                queue_id: queue,
                topic: topic.to_owned(),
            },
            from,
            to: offset,
        })
    }

    /// Gives a group the offsets of another in one topic on one broker: by the broker, or one by one
    /// where it cannot. Returns how many were set one by one.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn clone_group_offset(
        &mut self,
        broker: &str,
        from: &str,
        to: &str,
        topic: &str,
        offline: bool,
    ) -> Result<Option<usize>, AdminError> {
        let clone = Request::new(request::CLONE_GROUP_OFFSET)
            .with("srcGroup", from)
            .with("destGroup", to)
            .with("topic", topic)
            .with("offline", offline);
        match self.ask(broker, clone) {
            Ok(_) => return Ok(None),
            Err(error) if error.code() == Some(response::REQUEST_CODE_NOT_SUPPORTED) => {}
            Err(error) => return Err(error.group(from).topic(topic)),
        }
        let offsets = self.consume_stats(broker, from, Some(topic))?.offset_table;
        let mut count = 0;
        for (queue, offset) in offsets {
            if queue.topic == topic {
                let offset = offset.consumer_offset;
                self.commit_offset(broker, to, topic, queue.queue_id, offset)?;
                count += 1;
            }
        }
        Ok(Some(count))
    }

    /// The offsets that members of a group hold in their memory, by client id.
    ///
    /// # Errors
    /// As [`Admin::ask`]; code 206 where nobody is connected.
    pub fn member_offsets(
        &mut self,
        broker: &str,
        group: &str,
        topic: &str,
        client: Option<&str>,
    ) -> Result<BTreeMap<String, BTreeMap<MessageQueue, i64>>, AdminError> {
        let mut ask = Request::new(request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
            .with("topic", topic)
            .with("group", group);
        if let Some(client) = client {
            ask = ask.with("clientAddr", client);
        }
        let statuses: Statuses = self
            .body_of(broker, ask)
            .map_err(|error| error.group(group).topic(topic))?;
        let mut members = statuses.consumer_table.unwrap_or_default();
        if let Some(alone) = statuses.message_queue_table
            && !alone.is_empty()
        {
            members.insert(client.unwrap_or_default().to_owned(), alone);
        }
        Ok(members)
    }

    /// Offsets committed by queue; empty where the broker does not tell.
    fn committed(&mut self, broker: &str, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        let stats = self.consume_stats(broker, group, Some(topic));
        let table = stats.map(|stats| stats.offset_table).unwrap_or_default();
        let of_topic = table.into_iter().filter(|(queue, _)| queue.topic == topic);
        of_topic
            .map(|(queue, offset)| (queue.queue_id, offset.consumer_offset))
            .collect()
    }
}

fn of_queue(code: i32, topic: &str, queue: i32) -> Request {
    Request::new(code)
        .with("topic", topic)
        .with("queueId", queue)
}
