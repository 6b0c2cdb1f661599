//! Which brokers there are, and what is asked of one of them as a whole.

use super::body::{ConsumeStatsList, ProducerTable, StatsSpan};
use super::properties_text::{from_properties_text, to_properties_text};
use super::{Admin, AdminError, is_address};
use crate::wire::body::route::{BrokerAddrs, ClusterInfo, KVTable};
use crate::wire::codes::request;
use crate::wire::command::Request;
use serde_json::Value;
use std::collections::BTreeMap;

/// Number of a master among the members of a broker group.
pub const MASTER: i64 = 0;

/// One broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its name; its address where no nameserver knows it.
    pub name: String,
    /// Its number in its group, 0 is the master.
    pub id: i64,
    /// Its cluster; empty where no nameserver knows it.
    pub cluster: String,
    /// `host:port`.
    pub address: String,
}

/// Which brokers are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select<'a> {
    /// All that the nameserver knows.
    All,
    /// Those of a cluster.
    Cluster(&'a str),
    /// One, by name or `host:port`.
    Broker(&'a str),
}

impl Admin {
    /// All brokers and clusters.
    ///
    /// # Errors
    /// As [`Admin::ask_nameserver`].
    pub fn cluster_info(&mut self) -> Result<ClusterInfo, AdminError> {
        self.body_of_nameserver(Request::new(request::GET_BROKER_CLUSTER_INFO))
    }

    /// The brokers that are meant, ordered by cluster, name and number. A broker given by address is
    /// not looked for at a nameserver.
    ///
    /// # Errors
    /// None fits; a nameserver's answer is not sound.
    pub fn brokers(
        &mut self,
        select: Select<'_>,
        masters: bool,
    ) -> Result<Vec<Broker>, AdminError> {
        if let Select::Broker(address) = select
            && is_address(address)
        {
            return Ok(vec![Broker {
                name: address.to_owned(),
                id: MASTER,
                cluster: String::new(),
                address: address.to_owned(),
            }]);
        }
        let info = self.cluster_info()?;
        let found = select_brokers(&info, select, masters)?;
        for broker in &found {
            if !is_address(&broker.address) {
                return Err(AdminError::unsound(
                    &self.nameservers[self.current],
                    format!(
                        "broker {:?} is at {:?}, which is no address",
                        broker.name, broker.address
                    ),
                ));
            }
        }
        Ok(found)
    }

    /// What a broker says of itself, by name of the figure.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn runtime_info(&mut self, broker: &str) -> Result<BTreeMap<String, String>, AdminError> {
        let table: KVTable =
            self.body_of(broker, Request::new(request::GET_BROKER_RUNTIME_INFO))?;
        Ok(table.table)
    }

    /// A broker's settings.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn broker_config(&mut self, broker: &str) -> Result<Vec<(String, String)>, AdminError> {
        let answer = self.ask(broker, Request::new(request::GET_BROKER_CONFIG))?;
        let mut pairs = from_properties_text(&String::from_utf8_lossy(&answer.body));
        pairs.sort();
        Ok(pairs)
    }

    /// Changes settings of a broker while it runs.
    ///
    /// # Errors
    /// As [`Admin::ask`]; a broker refuses keys that cannot be changed.
    pub fn update_broker_config(
        &mut self,
        broker: &str,
        pairs: &[(&str, &str)],
    ) -> Result<(), AdminError> {
        let body = to_properties_text(pairs.iter().copied());
        let change = Request::new(request::UPDATE_BROKER_CONFIG).with_body(body);
        self.ask(broker, change).map(drop)
    }

    /// Deletes queue files of messages that are gone.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn clean_expired_queues(&mut self, broker: &str) -> Result<(), AdminError> {
        let clean = Request::new(request::CLEAN_EXPIRED_CONSUMEQUEUE);
        self.ask(broker, clean).map(drop)
    }

    /// Deletes queue files of topics that are gone.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn clean_unused_topics(&mut self, broker: &str) -> Result<(), AdminError> {
        let clean = Request::new(request::CLEAN_UNUSED_TOPIC);
        self.ask(broker, clean).map(drop)
    }

    /// Deletes segments of the log that are old enough, now.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn delete_expired_commit_log(&mut self, broker: &str) -> Result<(), AdminError> {
        let delete = Request::new(request::DELETE_EXPIRED_COMMITLOG);
        self.ask(broker, delete).map(drop)
    }

    /// One of a broker's counters, such as `TOPIC_PUT_NUMS` of a topic or `GROUP_GET_NUMS` of
    /// `topic@group`.
    ///
    /// # Errors
    /// As [`Admin::ask`]; code 1 where nothing was counted.
    pub fn broker_stats(
        &mut self,
        broker: &str,
        name: &str,
        key: &str,
    ) -> Result<StatsSpan, AdminError> {
        let view = Request::new(request::VIEW_BROKER_STATS_DATA)
            .with("statsName", name)
            .with("statsKey", key);
        self.body_of(broker, view)
    }

    /// How far all groups of a broker are.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn broker_consume_stats(
        &mut self,
        broker: &str,
        orderly: bool,
    ) -> Result<ConsumeStatsList, AdminError> {
        let ask = Request::new(request::GET_BROKER_CONSUME_STATS).with("isOrder", orderly);
        self.body_of(broker, ask)
    }

    /// All producers that are connected to a broker.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn producers(&mut self, broker: &str) -> Result<ProducerTable, AdminError> {
        self.body_of(broker, Request::new(request::GET_ALL_PRODUCER_INFO))
    }

    /// How a broker's replication stands (`HARuntimeInfo`).
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn ha_status(&mut self, broker: &str) -> Result<Value, AdminError> {
        self.body_of(broker, Request::new(request::GET_BROKER_HA_STATUS))
    }
}

/// The address to ask about a broker group: the master's, else the one with the smallest number.
pub(super) fn any_address(members: &BrokerAddrs) -> Option<&str> {
    let master = members.get(&MASTER).or_else(|| members.values().next());
    master.map(String::as_str)
}

fn select_brokers(
    info: &ClusterInfo,
    select: Select<'_>,
    masters: bool,
) -> Result<Vec<Broker>, AdminError> {
    let mut found = Vec::new();
    for (name, data) in &info.broker_addr_table {
        let fits = match select {
            Select::All => true,
            Select::Cluster(cluster) => {
                let names = info.cluster_addr_table.get(cluster);
                data.cluster == cluster || names.is_some_and(|names| names.contains(name))
            }
            Select::Broker(wanted) => name == wanted,
        };
        if !fits {
            continue;
        }
        for (&id, address) in &data.broker_addrs {
            if !masters || id == MASTER {
                found.push(Broker {
                    name: name.clone(),
                    id,
                    cluster: data.cluster.clone(),
                    address: address.clone(),
                });
            }
        }
    }
    found.sort_by(|a, b| (&a.cluster, &a.name, a.id).cmp(&(&b.cluster, &b.name, b.id)));
    match (found.is_empty(), select) {
        (true, Select::Cluster(cluster)) => Err(AdminError::not_found("cluster", cluster)),
        (true, Select::Broker(name)) => Err(AdminError::not_found("broker", name)),
        _ => Ok(found),
    }
}
