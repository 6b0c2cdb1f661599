//! Answers to operators: figures of topics and groups, and plain lists.
//!
//! The bodies of `org.apache.rocketmq.remoting.protocol.body` and `.admin` of
//! the same names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::heartbeat::SubscriptionData;
use super::json::{MessageQueue, write_queue_map, write_value};

/// A value as the bytes of a body.
pub fn to_body(value: &impl Serialize) -> Vec<u8> {
    let mut out = String::new();
    write_value(&mut out, value);
    out.into_bytes()
}

/// Bounds of one queue (`TopicOffset`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicOffset {
    /// Store time of the newest message in ms since 1970, 0 where there is none.
    pub last_update_timestamp: i64,
    /// One above the highest readable offset.
    pub max_offset: i64,
    /// Lowest readable offset.
    pub min_offset: i64,
}

/// The answer to GET_TOPIC_STATS_INFO (`TopicStatsTable`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStatsTable {
    /// Bounds by queue.
    pub offset_table: BTreeMap<MessageQueue, TopicOffset>,
    /// Messages put per second.
    pub topic_put_tps: f64,
}

impl TopicStatsTable {
    /// The bytes of the body.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = String::from(r#"{"offsetTable":"#);
        write_queue_map(&mut out, self.offset_table.iter());
        out.push_str(r#","topicPutTps":"#);
        write_value(&mut out, &self.topic_put_tps);
        out.push('}');
        out.into_bytes()
    }
}

/// How far a group is in one queue (`OffsetWrapper`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OffsetWrapper {
    /// One above the highest readable offset.
    pub broker_offset: i64,
    /// Committed offset, 0 where there is none.
    pub consumer_offset: i64,
    /// Store time of the last consumed message in ms since 1970, 0 where unknown.
    pub last_timestamp: i64,
    /// Offset up to which messages were handed out.
    pub pull_offset: i64,
}

/// The answer to GET_CONSUME_STATS (`ConsumeStats`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStats {
    /// Messages handed out per second.
    pub consume_tps: f64,
    /// How far the group is, by queue.
    pub offset_table: BTreeMap<MessageQueue, OffsetWrapper>,
}

impl ConsumeStats {
    /// The bytes of the body.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = String::from(r#"{"consumeTps":"#);
        write_value(&mut out, &self.consume_tps);
        out.push_str(r#","offsetTable":"#);
        write_queue_map(&mut out, self.offset_table.iter());
        out.push('}');
        out.into_bytes()
    }
}

/// New offsets by queue, as the bytes of a `ResetOffsetBody`.
pub fn reset_offset_body(offsets: &BTreeMap<MessageQueue, i64>) -> Vec<u8> {
    let mut out = String::from(r#"{"offsetTable":"#);
    write_queue_map(&mut out, offsets.iter());
    out.push('}');
    out.into_bytes()
}

/// A list of topics (`TopicList`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicList<'a> {
    /// Address of the broker, where the answer names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_addr: Option<&'a str>,
    /// The topics.
    pub topic_list: Vec<&'a str>,
}

/// A list of groups (`GroupList`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupList<'a> {
    /// The groups.
    pub group_list: Vec<&'a str>,
}

/// The answer to GET_CONSUMER_LIST_BY_GROUP (`GetConsumerListByGroupResponseBody`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerIdList<'a> {
    /// The client ids.
    pub consumer_id_list: Vec<&'a str>,
}

/// Figures by name (`KVTable`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KvTable {
    /// The figures.
    pub table: BTreeMap<Cow<'static, str>, String>,
}

/// The answer to QUERY_SUBSCRIPTION_BY_CONSUMER (`QuerySubscriptionResponseBody`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionAnswer<'a> {
    /// The group.
    pub group: &'a str,
    /// What it wants of the topic, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data: Option<&'a SubscriptionData>,
    /// The topic.
    pub topic: &'a str,
}

/// One entry of a ConsumeQueue (`ConsumeQueueData`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumeQueueData {
    /// Whether a filter lets the message through; without one, false.
    pub eval: bool,
    /// Physical offset of the message.
    pub physic_offset: i64,
    /// Its size in bytes.
    pub physic_size: i32,
    /// Hash of its tag.
    pub tags_code: i64,
}

/// The answer to QUERY_CONSUME_QUEUE (`QueryConsumeQueueResponseBody`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumeQueueAnswer<'a> {
    /// What filters on properties know of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_data: Option<String>,
    /// One above the highest readable offset.
    pub max_queue_index: i64,
    /// Lowest readable offset.
    pub min_queue_index: i64,
    /// The entries.
    pub queue_data: Vec<ConsumeQueueData>,
    /// What the group wants of the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data: Option<&'a SubscriptionData>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(queue_id: i32) -> MessageQueue {
        MessageQueue {
            broker_name: "b".into(),
            queue_id,
            topic: "T".into(),
        }
    }

    fn text(body: Vec<u8>) -> String {
        String::from_utf8(body).unwrap()
    }

    #[test]
    fn figures_have_whole_queues_as_keys() {
        let mut stats = TopicStatsTable::default();
        stats.offset_table.insert(queue(0), TopicOffset::default());
        assert_eq!(
            text(stats.to_json()),
            r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},"topicPutTps":0.0}"#
        );
        let mut stats = ConsumeStats::default();
        stats
            .offset_table
            .insert(queue(1), OffsetWrapper::default());
        assert_eq!(
            text(stats.to_json()),
            r#"{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}"#
        );
        let offsets = BTreeMap::from([(queue(1), 5), (queue(2), 6)]);
        assert_eq!(
            text(reset_offset_body(&offsets)),
            r#"{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5,{"brokerName":"b","queueId":2,"topic":"T"}:6}}"#
        );
    }
}
