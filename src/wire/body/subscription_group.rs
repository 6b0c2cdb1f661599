//! Settings of consumer groups (`SubscriptionGroupConfig`, `SubscriptionGroupWrapper`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::json::null_as_default;
use super::topic::DataVersion;

/// How often a message is delivered again before it becomes a dead letter.
pub const RETRY_TIMES_MAX: i32 = 16;

/// Settings of one consumer group, with Java's defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupConfig {
    /// Attributes; RocketMQ defines none yet.
    #[serde(deserialize_with = "null_as_default")]
    pub attributes: BTreeMap<String, String>,
    /// Id of the broker to read from.
    pub broker_id: i64,
    /// Whether members may read in broadcast mode.
    pub consume_broadcast_enable: bool,
    /// Whether members may read at all.
    pub consume_enable: bool,
    /// Kept, without effect.
    pub consume_from_min_enable: bool,
    /// Whether members read in order.
    pub consume_message_orderly: bool,
    /// How long a member may work on one message, in minutes.
    pub consume_timeout_minute: i32,
    /// Name of the group.
    #[serde(deserialize_with = "null_as_default")]
    pub group_name: String,
    /// When a message is delivered again; kept as it was written.
    pub group_retry_policy: Value,
    /// Bits that are handed to members with every pull.
    pub group_sys_flag: i32,
    /// Whether members are told of each other at once.
    pub notify_consumer_ids_changed_enable: bool,
    /// How often a message is delivered again before it becomes a dead letter.
    pub retry_max_times: i32,
    /// Queues of the retry topic; none drops what members fail to consume.
    pub retry_queue_nums: i32,
    /// Subscriptions fixed by an operator; kept as they were written.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub subscription_data_set: Value,
    /// Id of the broker to read from for members that are far behind.
    pub which_broker_when_consume_slowly: i64,
}

impl Default for SubscriptionGroupConfig {
    fn default() -> SubscriptionGroupConfig {
        SubscriptionGroupConfig {
            attributes: BTreeMap::new(),
            broker_id: 0,
            consume_broadcast_enable: true,
            consume_enable: true,
            consume_from_min_enable: true,
            consume_message_orderly: false,
            consume_timeout_minute: 15,
            group_name: String::new(),
            group_retry_policy: json!({"type": "CUSTOMIZED"}),
            group_sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: RETRY_TIMES_MAX,
            retry_queue_nums: 1,
            subscription_data_set: Value::Null,
            which_broker_when_consume_slowly: 1,
        }
    }
}

impl SubscriptionGroupConfig {
    /// A group with default settings.
    pub fn new(group: &str) -> SubscriptionGroupConfig {
        SubscriptionGroupConfig {
            group_name: group.to_owned(),
            ..SubscriptionGroupConfig::default()
        }
    }
}

/// Bits that forbid a group to read a topic, by group and topic.
pub type ForbiddenTable = BTreeMap<String, BTreeMap<String, i32>>;

/// All groups of a broker (`SubscriptionGroupWrapper`): `subscriptionGroup.json` as it is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupWrapper {
    /// The edition of the table.
    #[serde(deserialize_with = "null_as_default")]
    pub data_version: DataVersion,
    /// What groups may not read.
    #[serde(deserialize_with = "null_as_default")]
    pub forbidden_table: ForbiddenTable,
    /// The groups by name.
    #[serde(deserialize_with = "null_as_default")]
    pub subscription_group_table: BTreeMap<String, SubscriptionGroupConfig>,
}

/// The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (`SubscriptionGroupList`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupList {
    /// The groups.
    #[serde(deserialize_with = "null_as_default")]
    pub group_config_list: Vec<SubscriptionGroupConfig>,
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    #[test]
    fn a_group_is_written_as_rocketmq_writes_it() {
        let text = r#"{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}"#;
        let group = SubscriptionGroupConfig::new("G");
        assert_eq!(serde_json::to_string(&group).unwrap(), text);
        assert_eq!(
            json::parse::<SubscriptionGroupConfig>(text.as_bytes()).unwrap(),
            group
        );
    }

    #[test]
    fn what_has_no_meaning_here_is_kept() {
        let text = br#"{"groupName":"G","groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5}},"subscriptionDataSet":[{"topic":"T"}],"attributes":null}"#;
        let group: SubscriptionGroupConfig = json::parse(text).unwrap();
        let again = serde_json::to_value(&group).unwrap();
        assert_eq!(
            again["groupRetryPolicy"]["exponentialRetryPolicy"]["initial"],
            5
        );
        assert_eq!(again["subscriptionDataSet"][0]["topic"], "T");
    }
}
