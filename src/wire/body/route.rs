//! Routes and the other answers of a nameserver.
//!
//! Members stand in the order in which RocketMQ writes them, absent ones are
//! left out, and the JSON is compact with quoted keys: the Go client splits the
//! address map as text.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{self, null_as_default};

/// Addresses of the members of one broker group, by broker id; 0 is the master.
pub type BrokerAddrs = BTreeMap<i64, String>;

/// Where a topic is (`TopicRouteData`), the answer to `GET_ROUTEINFO_BY_TOPIC`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicRouteData {
    /// The brokers that have queues of the topic.
    #[serde(deserialize_with = "null_as_default")]
    pub broker_datas: Vec<BrokerData>,
    /// Filter servers by broker address; none exist any more.
    #[serde(deserialize_with = "null_as_default")]
    pub filter_server_table: BTreeMap<String, Vec<String>>,
    /// Queues of an ordered topic, as `broker-a:4;broker-b:4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_topic_conf: Option<String>,
    /// The queues of the topic, one entry a broker.
    #[serde(deserialize_with = "null_as_default")]
    pub queue_datas: Vec<QueueData>,
    /// Mapping of the logical queues of a static topic, by broker name; passed on as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_queue_mapping_by_broker: Option<BTreeMap<String, Value>>,
}

/// The queues of a topic on one broker (`QueueData`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueData {
    /// Name of the broker.
    pub broker_name: String,
    /// Bits of [`super::topic::perm`].
    pub perm: i32,
    /// Number of queues that consumers read.
    pub read_queue_nums: i32,
    /// Bits of `TopicSysFlag`.
    pub topic_sys_flag: i32,
    /// Number of queues that producers write.
    pub write_queue_nums: i32,
}

/// A broker group: a master and its slaves under one name (`BrokerData`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerData {
    /// Addresses of the members, `host:port`.
    #[serde(deserialize_with = "null_as_default")]
    pub broker_addrs: BrokerAddrs,
    /// Name of the group.
    pub broker_name: String,
    /// Name of the cluster.
    #[serde(deserialize_with = "null_as_default")]
    pub cluster: String,
    /// Whether the member with the smallest id stands in for a missing master.
    pub enable_acting_master: bool,
    /// Zone of the broker, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_name: Option<String>,
}

/// All brokers and clusters (`ClusterInfo`), the answer to `GET_BROKER_CLUSTER_INFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInfo {
    /// Broker groups by name.
    #[serde(deserialize_with = "null_as_default")]
    pub broker_addr_table: BTreeMap<String, BrokerData>,
    /// Names of the broker groups of each cluster.
    #[serde(deserialize_with = "null_as_default")]
    pub cluster_addr_table: BTreeMap<String, BTreeSet<String>>,
}

/// The members of one broker group (`BrokerMemberGroup`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerMemberGroup {
    /// Addresses of the members; none where the group is unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub broker_addrs: BrokerAddrs,
    /// Name of the group.
    pub broker_name: String,
    /// Name of the cluster.
    pub cluster: String,
}

/// The answer to `GET_BROKER_MEMBER_GROUP` (`GetBrokerMemberGroupResponseBody`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerMemberGroupBody {
    /// The group.
    pub broker_member_group: BrokerMemberGroup,
}

/// Names, mostly of topics (`TopicList`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicList {
    /// Address of some broker; only in the list of system topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_addr: Option<String>,
    /// The names.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_list: Vec<String>,
}

impl TopicList {
    /// The list as JSON, written from borrowed names: there may be very many.
    pub fn encode<'a>(
        names: impl IntoIterator<Item = &'a str>,
        broker_addr: Option<&str>,
    ) -> Vec<u8> {
        let mut out = b"{".to_vec();
        if let Some(addr) = broker_addr {
            out.extend_from_slice(b"\"brokerAddr\":");
            out.extend_from_slice(&json::encode(addr));
            out.push(b',');
        }
        out.extend_from_slice(b"\"topicList\":[");
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            // Writing text into memory does not fail.
            let _ = serde_json::to_writer(&mut out, name);
        }
        out.extend_from_slice(b"]}");
        out
    }
}

/// Pairs of text (`KVTable`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KVTable {
    /// The pairs.
    #[serde(deserialize_with = "null_as_default")]
    pub table: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> TopicRouteData {
        TopicRouteData {
            broker_datas: vec![BrokerData {
                broker_addrs: [(0, "10.0.0.1:10911".into()), (1, "10.0.0.2:10911".into())].into(),
                broker_name: "b".into(),
                cluster: "c".into(),
                ..BrokerData::default()
            }],
            queue_datas: vec![QueueData {
                broker_name: "b".into(),
                perm: 6,
                read_queue_nums: 8,
                topic_sys_flag: 0,
                write_queue_nums: 8,
            }],
            ..TopicRouteData::default()
        }
    }

    #[test]
    fn a_route_is_written_as_every_official_client_reads_it() {
        assert_eq!(
            String::from_utf8(json::encode(&route())).unwrap(),
            concat!(
                r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"#,
                r#""brokerName":"b","cluster":"c","enableActingMaster":false}],"filterServerTable":{},"#,
                r#""queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":8,"topicSysFlag":0,"#,
                r#""writeQueueNums":8}]}"#
            )
        );
    }

    #[test]
    fn a_route_of_an_old_nameserver_is_read() {
        let text = concat!(
            r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"#,
            r#""brokerName":"b","cluster":"c"}],"filterServerTable":null,"#,
            r#""queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":8,"topicSynFlag":0,"writeQueueNums":8}]}"#
        );
        assert_eq!(
            json::parse::<TopicRouteData>(text.as_bytes()).unwrap(),
            route()
        );
    }

    #[test]
    fn lists_are_written_as_rocketmq_writes_them() {
        let list = TopicList::encode(["a", "b\""], Some("h:1"));
        assert_eq!(list, br#"{"brokerAddr":"h:1","topicList":["a","b\""]}"#);
        let back: TopicList = json::parse(&list).unwrap();
        assert_eq!(back.topic_list, ["a", "b\""]);
        assert_eq!(TopicList::encode([], None), br#"{"topicList":[]}"#);
        let table = KVTable {
            table: [("k".into(), "v".into())].into(),
        };
        assert_eq!(json::encode(&table), br#"{"table":{"k":"v"}}"#);
    }
}
