//! Topic configuration: on the wire, in `topics.json` and in registrations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::json::null_as_default;

/// Bits of a topic's or a broker's permission (`PermName`).
pub mod perm {
    /// Queues of the topic are ordered by priority; kept, otherwise unused.
    pub const PRIORITY: i32 = 8;
    /// Consumers may read.
    pub const READ: i32 = 4;
    /// Producers may write.
    pub const WRITE: i32 = 2;
    /// New topics take their settings from this one, as they do from `TBW102`.
    pub const INHERIT: i32 = 1;

    /// Whether consumers may read.
    pub const fn is_readable(perm: i32) -> bool {
        perm & READ != 0
    }

    /// Whether producers may write.
    pub const fn is_writeable(perm: i32) -> bool {
        perm & WRITE != 0
    }

    /// Whether new topics take their settings from a topic with this permission.
    pub const fn is_inherited(perm: i32) -> bool {
        perm & INHERIT != 0
    }
}

/// How many tags a message of the topic may have (`TopicFilterType`). Kept as
/// written; only single tags exist in practice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TopicFilterType {
    /// Several tags.
    #[serde(rename = "MULTI_TAG")]
    MultiTag,
    /// One tag; also what an unknown name is read as.
    #[default]
    #[serde(rename = "SINGLE_TAG", other)]
    SingleTag,
}

impl TopicFilterType {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            TopicFilterType::SingleTag => "SINGLE_TAG",
            TopicFilterType::MultiTag => "MULTI_TAG",
        }
    }

    /// The value of a name; an unknown one stands for a single tag.
    pub fn from_name(name: &str) -> TopicFilterType {
        match name {
            "MULTI_TAG" => TopicFilterType::MultiTag,
            _ => TopicFilterType::SingleTag,
        }
    }
}

/// One topic on one broker (`TopicConfig`). Members in the order in which
/// RocketMQ writes them; those that are missing take Java's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// Attributes such as `message.type`, by name.
    #[serde(deserialize_with = "null_as_default")]
    pub attributes: BTreeMap<String, String>,
    /// Whether the topic was made for ordered messages.
    pub order: bool,
    /// Bits of [`perm`].
    pub perm: i32,
    /// Number of queues that consumers read: ids `0..read_queue_nums`.
    pub read_queue_nums: i32,
    /// How many tags a message may have.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_filter_type: TopicFilterType,
    /// Name of the topic.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_name: String,
    /// Bits of `TopicSysFlag`: 1 unit, 2 unit subscription.
    pub topic_sys_flag: i32,
    /// Number of queues that producers write: ids `0..write_queue_nums`.
    pub write_queue_nums: i32,
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            attributes: BTreeMap::new(),
            order: false,
            perm: perm::READ | perm::WRITE,
            read_queue_nums: 16,
            topic_filter_type: TopicFilterType::SingleTag,
            topic_name: String::new(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

impl TopicConfig {
    /// A topic with `queues` queues for reading and for writing.
    pub fn new(name: impl Into<String>, queues: i32, perm: i32) -> TopicConfig {
        TopicConfig {
            perm,
            read_queue_nums: queues,
            topic_name: name.into(),
            write_queue_nums: queues,
            ..TopicConfig::default()
        }
    }
}

/// Which edition of a table this is (`DataVersion`). Two are the same edition
/// only if all three members agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVersion {
    /// Changes so far.
    #[serde(deserialize_with = "null_as_default")]
    pub counter: i64,
    /// Epoch of the broker: grows with its role changes, 0 without a controller.
    pub state_version: i64,
    /// When the table last changed, in milliseconds since 1970.
    pub timestamp: i64,
}

impl DataVersion {
    /// Notes one more change, made at `now_ms`, in milliseconds since 1970.
    pub fn next(&mut self, now_ms: u64) {
        self.counter = self.counter.wrapping_add(1);
        self.timestamp = i64::try_from(now_ms).unwrap_or(i64::MAX);
    }

    /// Whether `other` came later: a later epoch, else more changes, else a later time.
    pub fn is_older_than(&self, other: &DataVersion) -> bool {
        let rank = |v: &DataVersion| (v.state_version, v.counter, v.timestamp);
        rank(self) < rank(other)
    }
}

/// All topics of a broker (`TopicConfigSerializeWrapper`): the content of
/// `topics.json` and the heart of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfigWrapper {
    /// The edition of the table.
    #[serde(deserialize_with = "null_as_default")]
    pub data_version: DataVersion,
    /// The topics by name.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_config_table: BTreeMap<String, TopicConfig>,
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    const TOPICS: &str = concat!(
        r#"{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},"#,
        r#""topicConfigTable":{"T":{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"#,
        r#""readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"#,
        r#""writeQueueNums":4}}}"#
    );

    #[test]
    fn topics_json_is_written_as_rocketmq_writes_it() {
        let topics: TopicConfigWrapper = json::parse(TOPICS.as_bytes()).unwrap();
        assert_eq!(topics.data_version.counter, 3);
        assert_eq!(topics.topic_config_table["T"].write_queue_nums, 4);
        assert_eq!(serde_json::to_string(&topics).unwrap(), TOPICS);
    }

    #[test]
    fn unknown_members_are_ignored_and_missing_ones_are_javas() {
        let text = br#"{"topicName":"T","multiTypeEnable":true,"topicFilterType":"NEW","attributes":null}"#;
        let topic: TopicConfig = json::parse(text).unwrap();
        assert_eq!(topic, TopicConfig::new("T", 16, perm::READ | perm::WRITE));
    }

    #[test]
    fn every_change_is_another_edition() {
        let mut version = DataVersion::default();
        let before = version;
        version.next(5);
        assert_ne!(version, before);
        assert!(before.is_older_than(&version) && !version.is_older_than(&before));
        assert_eq!((version.counter, version.timestamp), (1, 5));
    }
}
