//! Answers that only operators ask for, as they are read: every member may be missing.

use crate::wire::body::heartbeat::SubscriptionData;
use crate::wire::body::json::{MessageQueue, null_as_default};
use crate::wire::body::stats::ConsumeStats;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One client's connection (`Connection`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionInfo {
    /// Where it comes from, `host:port`.
    #[serde(deserialize_with = "null_as_default")]
    pub client_addr: String,
    /// The client's id.
    #[serde(deserialize_with = "null_as_default")]
    pub client_id: String,
    /// The client's language.
    #[serde(deserialize_with = "null_as_default")]
    pub language: String,
    /// The client's version ordinal; see [`version_name`].
    pub version: i32,
}

/// The members of a group that are connected (`ConsumerConnection`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerConnection {
    /// The members.
    #[serde(deserialize_with = "null_as_default")]
    pub connection_set: Vec<ConnectionInfo>,
    /// `CONSUME_FROM_...`.
    #[serde(deserialize_with = "null_as_default")]
    pub consume_from_where: String,
    /// `CONSUME_ACTIVELY` (pull), `CONSUME_PASSIVELY` (push) or `CONSUME_POP`.
    #[serde(deserialize_with = "null_as_default")]
    pub consume_type: String,
    /// `CLUSTERING` or `BROADCASTING`.
    #[serde(deserialize_with = "null_as_default")]
    pub message_model: String,
    /// What the group wants, by topic.
    #[serde(deserialize_with = "null_as_default")]
    pub subscription_table: BTreeMap<String, SubscriptionData>,
}

/// The producers of a group that are connected (`ProducerConnection`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerConnection {
    /// The producers.
    #[serde(deserialize_with = "null_as_default")]
    pub connection_set: Vec<ConnectionInfo>,
}

/// One producer (`ProducerInfo`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerInfo {
    /// The client's id.
    #[serde(deserialize_with = "null_as_default")]
    pub client_id: String,
    /// The client's language.
    #[serde(deserialize_with = "null_as_default")]
    pub language: String,
    /// Its last heartbeat, ms since 1970.
    pub last_update_timestamp: i64,
    /// Where it comes from.
    #[serde(rename = "remoteIP", deserialize_with = "null_as_default")]
    pub remote_ip: String,
    /// The client's version ordinal.
    pub version: i32,
}

/// All producers of a broker, by group (`ProducerTableInfo`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProducerTable {
    /// The producers.
    #[serde(deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, Vec<ProducerInfo>>,
}

/// All groups of a broker and how far they are (`ConsumeStatsList`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStatsList {
    /// The groups.
    #[serde(deserialize_with = "null_as_default")]
    pub consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>>,
}

/// Figures of one span of time (`BrokerStatsItem`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatsItem {
    /// How many in the span.
    pub sum: i64,
    /// How many a second.
    pub tps: f64,
    /// Average of each.
    pub avgpt: f64,
}

/// Figures of a minute, an hour and a day (`BrokerStatsData`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatsSpan {
    /// The last minute.
    #[serde(deserialize_with = "null_as_default")]
    pub stats_minute: StatsItem,
    /// The last hour.
    #[serde(deserialize_with = "null_as_default")]
    pub stats_hour: StatsItem,
    /// The last day.
    #[serde(deserialize_with = "null_as_default")]
    pub stats_day: StatsItem,
}

/// One entry of a ConsumeQueue (`ConsumeQueueData`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueEntry {
    /// Physical offset of the message.
    pub physic_offset: i64,
    /// Its size in bytes.
    pub physic_size: i32,
    /// Hash of its tag.
    pub tags_code: i64,
    /// Whether the group's filter lets it through.
    pub eval: bool,
    /// Why not, or what else there is to say.
    pub msg: Option<String>,
}

/// Some entries of a ConsumeQueue (`QueryConsumeQueueResponseBody`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueView {
    /// One above the highest readable offset.
    pub max_queue_index: i64,
    /// Lowest readable offset.
    pub min_queue_index: i64,
    /// The entries.
    #[serde(deserialize_with = "null_as_default")]
    pub queue_data: Vec<QueueEntry>,
    /// What the group wants of the topic.
    pub subscription_data: Option<SubscriptionData>,
}

/// What a member of a group says of itself (`ConsumerRunningInfo`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerStatus {
    /// Its settings and facts by name.
    #[serde(deserialize_with = "null_as_default")]
    pub properties: BTreeMap<String, Value>,
    /// What it subscribes to.
    #[serde(deserialize_with = "null_as_default")]
    pub subscription_set: Vec<SubscriptionData>,
    /// Its queues and what is under way in each (`ProcessQueueInfo`).
    #[serde(deserialize_with = "null_as_default")]
    pub mq_table: BTreeMap<MessageQueue, Value>,
    /// Its rates by topic (`ConsumeStatus`).
    #[serde(deserialize_with = "null_as_default")]
    pub status_table: BTreeMap<String, Value>,
    /// Stacks of its threads, where they were asked for.
    pub jstack: Option<String>,
}

/// The name of a client's or broker's version, as RocketMQ's tools print it: `V5_3_3`.
pub fn version_name(ordinal: i32) -> String {
    /// Ordinal of 4.0.0. From there on every patch takes two, its snapshot and itself, and there
    /// are ten patches to a minor and ten minors to a major version.
    const V4: i32 = 213;
    const HIGHER: i32 = 612;
    if ordinal >= HIGHER {
        return "newer than V5_9_9".to_owned();
    }
    if ordinal < V4 - 1 {
        return format!("V3 ({ordinal})");
    }
    let release = ordinal + (1 - ordinal % 2);
    let patches = (release - V4) / 2;
    let (major, minor, patch) = (4 + patches / 100, patches / 10 % 10, patches % 10);
    let snapshot = if release == ordinal { "" } else { "_SNAPSHOT" };
    format!("V{major}_{minor}_{patch}{snapshot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_the_names_of_their_ordinals() {
        for (ordinal, name) in [
            (232, "V4_1_0_SNAPSHOT"),
            (317, "V4_5_2"),
            (401, "V4_9_4"),
            (413, "V5_0_0"),
            (479, "V5_3_3"),
            (481, "V5_3_4"),
            (28, "V3 (28)"),
            (612, "newer than V5_9_9"),
        ] {
            assert_eq!(version_name(ordinal), name);
        }
    }
}
