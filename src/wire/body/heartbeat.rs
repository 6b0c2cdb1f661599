//! What clients tell about themselves (`HeartbeatData`) and what operators ask about them
//! (`ConsumerConnection`, `ProducerConnection`, `ProducerTableInfo`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::null_as_default;
use crate::wire::java_hash::java_hash;

/// The expression of a subscription to all messages of a topic.
pub const SUB_ALL: &str = "*";
/// The expression type of tags; others are evaluated on properties.
pub const TYPE_TAG: &str = "TAG";

macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $type { $($(#[$variant_doc])* $variant,)* }

        impl $type {
            /// The name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }
        }

        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        /// Case does not matter; an unknown name stands for the default.
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let name = Option::<String>::deserialize(from)?.unwrap_or_default();
                Ok(match () {
                    $(() if name.eq_ignore_ascii_case($name) => $type::$variant,)*
                    () => $type::default(),
                })
            }
        }
    };
}

names! {
    /// How a consumer asks for messages (`ConsumeType`).
    ConsumeType {
        /// The application pulls.
        Actively = "CONSUME_ACTIVELY",
        /// The client library pulls and hands messages on.
        #[default]
        Passively = "CONSUME_PASSIVELY",
        /// The broker hands out messages one by one.
        Pop = "CONSUME_POP",
    }
}

names! {
    /// Who of a group gets a message (`MessageModel`).
    MessageModel {
        /// Every member.
        Broadcasting = "BROADCASTING",
        /// One member.
        #[default]
        Clustering = "CLUSTERING",
    }
}

names! {
    /// Where a group without offsets begins (`ConsumeFromWhere`).
    ConsumeFromWhere {
        /// At the end.
        #[default]
        LastOffset = "CONSUME_FROM_LAST_OFFSET",
        /// At the start.
        FirstOffset = "CONSUME_FROM_FIRST_OFFSET",
        /// At a time.
        Timestamp = "CONSUME_FROM_TIMESTAMP",
        /// Deprecated in RocketMQ.
        LastOffsetMinFirst = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        /// Deprecated in RocketMQ.
        MinOffset = "CONSUME_FROM_MIN_OFFSET",
        /// Deprecated in RocketMQ.
        MaxOffset = "CONSUME_FROM_MAX_OFFSET",
    }
}

/// What a group wants of one topic (`SubscriptionData`).
///
/// The set of codes is always made from the expression: Go clients send codes as
/// text, and hash tags otherwise than Java where they are not ASCII.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "RawSubscription")]
pub struct SubscriptionData {
    /// The client filters by code of its own: everything is sent.
    pub class_filter_mode: bool,
    /// Java hashes of the tags; empty when everything matches or the type is not TAG.
    pub code_set: BTreeSet<i32>,
    /// [`TYPE_TAG`] or the name of another language.
    pub expression_type: String,
    /// The expression: tags joined by `||`, or [`SUB_ALL`].
    pub sub_string: String,
    /// Grows with every change; ms since 1970 from Java clients, ns from Go clients.
    pub sub_version: i64,
    /// The tags; empty when everything matches or the type is not TAG.
    pub tags_set: BTreeSet<String>,
    /// Topic.
    pub topic: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSubscription {
    #[serde(deserialize_with = "null_as_default")]
    class_filter_mode: bool,
    expression_type: Option<String>,
    sub_string: Option<String>,
    sub_version: Value,
    #[serde(deserialize_with = "null_as_default")]
    topic: String,
}

impl From<RawSubscription> for SubscriptionData {
    fn from(raw: RawSubscription) -> SubscriptionData {
        let version = match &raw.sub_version {
            Value::String(text) => text.parse().ok(),
            other => other.as_i64(),
        };
        SubscriptionData {
            class_filter_mode: raw.class_filter_mode,
            ..SubscriptionData::new(
                &raw.topic,
                raw.sub_string.as_deref().unwrap_or_default(),
                raw.expression_type.as_deref().unwrap_or_default(),
                version.unwrap_or_default(),
            )
        }
    }
}

impl SubscriptionData {
    /// Makes a subscription from its expression (`FilterAPI.build`). An empty type
    /// stands for [`TYPE_TAG`], an empty expression for [`SUB_ALL`].
    pub fn new(topic: &str, expression: &str, kind: &str, version: i64) -> SubscriptionData {
        let mut data = SubscriptionData {
            expression_type: if kind.is_empty() { TYPE_TAG } else { kind }.to_owned(),
            sub_string: if expression.is_empty() {
                SUB_ALL
            } else {
                expression
            }
            .to_owned(),
            sub_version: version,
            topic: topic.to_owned(),
            ..SubscriptionData::default()
        };
        if data.is_tag_type() && data.sub_string != SUB_ALL {
            for tag in expression
                .split("||")
                .map(str::trim)
                .filter(|t| !t.is_empty())
            {
                data.code_set.insert(java_hash(tag.as_bytes()));
                data.tags_set.insert(tag.to_owned());
            }
        }
        data
    }

    /// Whether the expression is one of tags.
    pub fn is_tag_type(&self) -> bool {
        self.expression_type == TYPE_TAG
    }

    /// Whether two members of a group want the same of the topic.
    pub fn same_filter(&self, other: &SubscriptionData) -> bool {
        self.topic == other.topic
            && self.expression_type == other.expression_type
            && if self.is_tag_type() {
                self.tags_set == other.tags_set
            } else {
                self.sub_string == other.sub_string
            }
    }
}

/// The body of a heartbeat (`HeartbeatData`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatData {
    /// Name of the client process, unique in each of its groups.
    #[serde(rename = "clientID", deserialize_with = "null_as_default")]
    pub client_id: String,
    /// Not 0 in heartbeats of the second version: a digest of the subscriptions.
    #[serde(deserialize_with = "null_as_default")]
    pub heartbeat_fingerprint: i32,
    /// Second version: subscriptions are left out, those known stay.
    #[serde(deserialize_with = "null_as_default")]
    pub without_sub: bool,
    /// Groups that the client produces for.
    #[serde(deserialize_with = "null_as_default")]
    pub producer_data_set: Vec<ProducerData>,
    /// Groups that the client consumes for.
    #[serde(deserialize_with = "null_as_default")]
    pub consumer_data_set: Vec<ConsumerData>,
}

/// One producer of a client (`ProducerData`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerData {
    /// Producer group.
    #[serde(deserialize_with = "null_as_default")]
    pub group_name: String,
}

/// One consumer of a client (`ConsumerData`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerData {
    /// Consumer group.
    #[serde(deserialize_with = "null_as_default")]
    pub group_name: String,
    /// How it asks for messages.
    pub consume_type: ConsumeType,
    /// Who of the group gets a message.
    pub message_model: MessageModel,
    /// Where it begins without an offset.
    pub consume_from_where: ConsumeFromWhere,
    /// What it wants, by topic.
    #[serde(deserialize_with = "null_as_default")]
    pub subscription_data_set: Vec<SubscriptionData>,
    /// Whether it belongs to a unit of a larger installation.
    #[serde(deserialize_with = "null_as_default")]
    pub unit_mode: bool,
}

/// The body of CHECK_CLIENT_CONFIG (`CheckClientRequestBody`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckClientBody {
    /// The client.
    #[serde(deserialize_with = "null_as_default")]
    pub client_id: String,
    /// Its consumer group.
    #[serde(deserialize_with = "null_as_default")]
    pub group: String,
    /// The subscription to check.
    pub subscription_data: Option<SubscriptionData>,
}

/// One connection of a group (`Connection`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionInfo {
    /// `ip:port` of the client.
    pub client_addr: String,
    /// Name of the client process.
    pub client_id: String,
    /// Name of its language.
    pub language: &'static str,
    /// Ordinal of its version.
    pub version: i32,
}

/// The answer to GET_CONSUMER_CONNECTION_LIST (`ConsumerConnection`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerConnection<'a> {
    /// The members.
    pub connection_set: Vec<ConnectionInfo>,
    /// Where the group begins without an offset.
    pub consume_from_where: ConsumeFromWhere,
    /// How it asks for messages.
    pub consume_type: ConsumeType,
    /// Who of it gets a message.
    pub message_model: MessageModel,
    /// What it wants, by topic.
    pub subscription_table: BTreeMap<&'a str, &'a SubscriptionData>,
}

/// The answer to GET_PRODUCER_CONNECTION_LIST (`ProducerConnection`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProducerConnection {
    /// The members.
    pub connection_set: Vec<ConnectionInfo>,
}

/// One producer in the answer to GET_ALL_PRODUCER_INFO (`ProducerInfo`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProducerInfo {
    /// Name of the client process.
    pub client_id: String,
    /// Name of its language.
    pub language: &'static str,
    /// Time of its last heartbeat, ms since 1970.
    pub last_update_timestamp: u64,
    /// `/ip:port` of the client, as Java prints a socket address.
    #[serde(rename = "remoteIP")]
    pub remote_ip: String,
    /// Ordinal of its version.
    pub version: i32,
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    #[test]
    fn java_and_go_heartbeats_mean_the_same() {
        let java = br#"{"clientID":"10.0.0.1@7#1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}"#;
        let go = br#"{"clientID":"10.0.0.1@7#1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"Clustering","subscriptionDataSet":[{"classFilterMode":false,"codeSet":["2598919"],"expressionType":"TAG","subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}],"unitMode":false}],"producerDataSet":null}"#;
        for text in [&java[..], &go[..]] {
            let data: HeartbeatData = json::parse(text).unwrap();
            assert_eq!(data.client_id, "10.0.0.1@7#1");
            let consumer = &data.consumer_data_set[0];
            assert_eq!(consumer.message_model, MessageModel::Clustering);
            assert_eq!(consumer.consume_from_where, ConsumeFromWhere::FirstOffset);
            let sub = &consumer.subscription_data_set[0];
            assert_eq!(sub.code_set, BTreeSet::from([2_598_919]));
            assert_eq!(sub.sub_version, 1_700_000_000_000);
        }
    }

    #[test]
    fn codes_are_hashed_as_java_hashes_whatever_the_client_sent() {
        let text =
            r#"{"topic":"T","subString":" a || 日本 ||","codeSet":["1","2"],"tagsSet":["x"]}"#;
        let sub: SubscriptionData = json::parse(text.as_bytes()).unwrap();
        assert_eq!(sub.code_set, BTreeSet::from([97, 835_047]));
        assert_eq!(sub.tags_set.len(), 2);
        let all: SubscriptionData = json::parse(br#"{"topic":"T"}"#).unwrap();
        assert_eq!((all.sub_string.as_str(), all.code_set.len()), (SUB_ALL, 0));
        let sql = SubscriptionData::new("T", "a > 1", "SQL92", 1);
        assert!(sql.code_set.is_empty() && !sql.is_tag_type());
    }

    #[test]
    fn subscriptions_are_written_as_java_writes_them() {
        let sub = SubscriptionData::new("T", "TagA", "", 5);
        assert_eq!(
            serde_json::to_string(&sub).unwrap(),
            r#"{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":5,"tagsSet":["TagA"],"topic":"T"}"#
        );
    }

    #[test]
    fn the_order_of_tags_is_no_difference() {
        let one = SubscriptionData::new("T", "a||b", "", 5);
        assert!(one.same_filter(&SubscriptionData::new("T", "b || a", "TAG", 6)));
        assert!(!one.same_filter(&SubscriptionData::new("T", "*", "TAG", 6)));
    }
}
