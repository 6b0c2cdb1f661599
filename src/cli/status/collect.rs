//! What is asked for one screen.

use crate::cli::admin::{Figures, all_groups, total_diff};
use crate::cli::show::{Cell, Document, Failure, Table};
use ringmq::client::admin::{Admin, AdminError, Broker, MASTER, Select};
use ringmq::wire::names;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Most topics, and most groups, that are asked about.
const NAMES_MAX: usize = 2_000;

/// A broker now.
#[derive(Clone, Debug)]
pub struct BrokerNow {
    /// Who it is.
    pub broker: Broker,
    /// Its version; `None`: it does not answer.
    pub version: Option<String>,
    /// Event loops of a RingMQ broker.
    pub shards: Option<i64>,
    /// What it says of each of them, by number.
    pub by_shard: BTreeMap<u16, ShardNow>,
    /// Messages that came since its start, or since midnight.
    pub put: Option<i64>,
    /// Messages that went out.
    pub got: Option<i64>,
    /// Messages that come in a second, as it says.
    pub put_tps: Option<f64>,
    /// Messages that go out in a second, as it says.
    pub get_tps: Option<f64>,
    /// Bytes of its log.
    pub log_bytes: Option<i64>,
    /// Share of the disk that is used.
    pub disk: Option<f64>,
    /// Since when it runs, ms since 1970.
    pub since: Option<i64>,
}

/// One event loop of a RingMQ broker now.
#[derive(Clone, Debug, Default)]
pub struct ShardNow {
    /// Messages stored since its start.
    pub put: Option<i64>,
    /// Bytes of its log.
    pub log_bytes: Option<i64>,
    /// Its connections.
    pub connections: Option<i64>,
    /// Turns that took longer than 10 ms.
    pub long_turns: Option<i64>,
}

impl ShardNow {
    /// All shards that figures are about: `shard.<number>.<figure>`.
    fn all(figures: &Figures<'_>) -> BTreeMap<u16, ShardNow> {
        let mut shards: BTreeMap<u16, ShardNow> = BTreeMap::new();
        for name in figures.0.keys() {
            let parts = name.strip_prefix("shard.");
            let parts = parts.and_then(|rest| rest.split_once('.'));
            let number = parts.and_then(|(number, _)| number.parse().ok());
            let (Some((_, figure)), Some(number)) = (parts, number) else {
                continue;
            };
            let now = shards.entry(number).or_default();
            let place = match figure {
                "putMessages" => &mut now.put,
                "logBytes" => &mut now.log_bytes,
                "connections" => &mut now.connections,
                "longTurns" => &mut now.long_turns,
                _ => continue,
            };
            *place = figures.int(name);
        }
        shards
    }
}

/// A topic now, over all brokers.
#[derive(Clone, Debug, Default)]
pub struct TopicNow {
    /// Queues.
    pub queues: i64,
    /// Messages that can be read.
    pub messages: i64,
    /// Sum of the queues' ends.
    pub end: i64,
    /// Messages that come in a second, as brokers say.
    pub put_tps: f64,
    /// When the last came, ms since 1970.
    pub last: i64,
}

/// A group now, over all brokers.
#[derive(Clone, Debug, Default)]
pub struct GroupNow {
    /// Clients that are connected.
    pub members: BTreeSet<String>,
    /// Topics that it has offsets in.
    pub topics: BTreeSet<String>,
    /// Messages that it has not consumed.
    pub behind: i64,
    /// Sum of its offsets.
    pub consumed: i64,
    /// Messages that it consumes in a second, as brokers say.
    pub tps: f64,
}

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was taken.
    pub at: Instant,
    /// The brokers, ordered by cluster, name and number.
    pub brokers: Vec<BrokerNow>,
    /// The topics by name.
    pub topics: BTreeMap<String, TopicNow>,
    /// The groups by name.
    pub groups: BTreeMap<String, GroupNow>,
    /// What could not be asked.
    pub faults: Vec<String>,
}

impl Snapshot {
    /// Asks everyone.
    ///
    /// # Errors
    /// No nameserver answers. What a broker does not answer is in `faults`.
    pub fn take(admin: &mut Admin, all: bool) -> Result<Snapshot, Failure> {
        let brokers = admin.brokers(Select::All, false)?;
        let mut snapshot = Snapshot {
            at: Instant::now(),
            brokers: Vec::new(),
            topics: BTreeMap::new(),
            groups: BTreeMap::new(),
            faults: Vec::new(),
        };
        let mut topics = admin.topic_list()?;
        let own: BTreeSet<&str> = brokers
            .iter()
            .flat_map(|broker| [broker.name.as_str(), broker.cluster.as_str()])
            .collect();
        topics.retain(|topic| all || is_peoples(topic, &own));
        for broker in &brokers {
            let now = BrokerNow::ask(admin, broker);
            let now = now.unwrap_or_else(|error| {
                let error = error.broker(&broker.name);
                snapshot.faults.push(error.to_string());
                BrokerNow::silent(broker)
            });
            snapshot.brokers.push(now);
        }
        let answering: Vec<Broker> = snapshot
            .brokers
            .iter()
            .filter(|now| now.version.is_some() && now.broker.id == MASTER)
            .map(|now| now.broker.clone())
            .collect();
        let mut groups = all_groups(admin, &answering)?;
        for (what, names) in [("topics", &mut topics), ("groups", &mut groups)] {
            if names.len() > NAMES_MAX {
                let count = names.len();
                let fault = format!("only {NAMES_MAX} of {count} {what} are shown");
                snapshot.faults.push(fault);
                names.truncate(NAMES_MAX);
            }
        }
        for broker in &answering {
            let asked = snapshot
                .add_topics(admin, broker, &topics)
                .and_then(|()| snapshot.add_groups(admin, broker, &groups));
            if let Err(error) = asked {
                snapshot.faults.push(error.broker(&broker.name).to_string());
            }
        }
        Ok(snapshot)
    }

    fn add_topics(
        &mut self,
        admin: &mut Admin,
        broker: &Broker,
        topics: &[String],
    ) -> Result<(), AdminError> {
        for (topic, stats) in admin.topic_stats_of(&broker.address, topics)? {
            let now = self.topics.entry(topic).or_default();
            now.put_tps += stats.topic_put_tps;
            for bounds in stats.offset_table.values() {
                let messages = bounds.max_offset.saturating_sub(bounds.min_offset);
                now.queues += 1;
                now.messages = now.messages.saturating_add(messages);
                now.end = now.end.saturating_add(bounds.max_offset);
                now.last = now.last.max(bounds.last_update_timestamp);
            }
        }
        Ok(())
    }

    fn add_groups(
        &mut self,
        admin: &mut Admin,
        broker: &Broker,
        groups: &[String],
    ) -> Result<(), AdminError> {
        for group in groups {
            self.groups.entry(group.clone()).or_default();
        }
        for (group, stats) in admin.consume_stats_of(&broker.address, groups)? {
            let now = self.groups.entry(group).or_default();
            now.tps += stats.consume_tps;
            now.behind = now.behind.saturating_add(total_diff(&stats));
            for (queue, at) in stats.offset_table {
                now.consumed = now.consumed.saturating_add(at.consumer_offset);
                now.topics.insert(queue.topic);
            }
        }
        for (group, members) in admin.consumer_connections_of(&broker.address, groups)? {
            let members = members.connection_set.into_iter();
            let ids = members.map(|member| member.client_id);
            self.groups.entry(group).or_default().members.extend(ids);
        }
        Ok(())
    }

    /// Sum of what groups are behind.
    pub fn behind(&self) -> i64 {
        let groups = self.groups.values();
        groups.fold(0, |sum: i64, group| sum.saturating_add(group.behind))
    }

    /// Once, for people who do not watch and for programs.
    pub fn document(&self) -> Document {
        let columns = [
            ("cluster", "CLUSTER"),
            ("brokerName", "BROKER"),
            ("brokerId", "ID"),
            ("address", "ADDRESS"),
            ("version", "VERSION"),
            ("state", "STATE"),
            ("shards", "SHARDS"),
            ("putTps", "IN"),
            ("getTps", "OUT"),
            ("logBytes", "LOG"),
            ("diskRatio", "DISK"),
            ("bootTimestamp", "SINCE"),
        ];
        let mut brokers = Table::new("brokers", &columns, "no brokers");
        for now in &self.brokers {
            brokers.row([
                Cell::text(&now.broker.cluster),
                Cell::text(&now.broker.name),
                Cell::Plain(now.broker.id),
                Cell::text(&now.broker.address),
                Cell::of(now.version.as_deref(), Cell::text),
                match now.version {
                    Some(_) => Cell::Good("active".to_owned()),
                    None => Cell::Bad("unreachable".to_owned()),
                },
                Cell::of(now.shards, Cell::Count),
                Cell::of(now.put_tps, Cell::Rate),
                Cell::of(now.get_tps, Cell::Rate),
                Cell::of(now.log_bytes, Cell::Bytes),
                Cell::of(now.disk, Cell::Share),
                Cell::of(now.since, Cell::Time),
            ]);
        }
        let columns = [
            ("brokerName", "BROKER"),
            ("shard", "SHARD"),
            ("putMessages", "STORED"),
            ("logBytes", "LOG"),
            ("connections", "CONNECTIONS"),
            ("longTurns", "LONG TURNS"),
        ];
        let mut shards = Table::new("shards", &columns, "no broker tells of its shards");
        for now in &self.brokers {
            for (number, shard) in &now.by_shard {
                shards.row([
                    Cell::text(&now.broker.name),
                    Cell::Plain((*number).into()),
                    Cell::of(shard.put, Cell::Count),
                    Cell::of(shard.log_bytes, Cell::Bytes),
                    Cell::of(shard.connections, Cell::Count),
                    Cell::of(shard.long_turns, Cell::Count),
                ]);
            }
        }
        let columns = [
            ("topic", "TOPIC"),
            ("queues", "QUEUES"),
            ("messages", "MESSAGES"),
            ("putTps", "IN"),
            ("lastUpdateTimestamp", "LAST MESSAGE"),
        ];
        let mut topics = Table::new("topics", &columns, "no topics");
        for (name, now) in &self.topics {
            topics.row([
                Cell::text(name),
                Cell::Count(now.queues),
                Cell::Count(now.messages),
                Cell::Rate(now.put_tps),
                Cell::Time(now.last),
            ]);
        }
        let columns = [
            ("group", "GROUP"),
            ("members", "MEMBERS"),
            ("topics", "TOPICS"),
            ("consumeTps", "CONSUMED"),
            ("totalDiff", "BEHIND"),
        ];
        let mut groups = Table::new("groups", &columns, "no groups");
        for (name, now) in &self.groups {
            let topics = now.topics.iter();
            let topics = topics.filter(|topic| !topic.starts_with(names::RETRY_PREFIX));
            groups.row([
                Cell::text(name),
                Cell::Count(now.members.len() as i64),
                Cell::List(topics.cloned().collect()),
                Cell::Rate(now.tps),
                Cell::Count(now.behind),
            ]);
        }
        Document::new()
            .table(brokers)
            .table(shards)
            .table(topics)
            .table(groups)
            .faults(self.faults.clone())
    }
}

/// Whether a topic is one that people have made, and no retry or dead letter topic.
fn is_peoples(topic: &str, own: &BTreeSet<&str>) -> bool {
    !names::is_system_topic(topic)
        && !own.contains(topic)
        && !topic.ends_with("_REPLY_TOPIC")
        && !topic.starts_with("RMQ_SYS_")
        && !topic.starts_with(names::RETRY_PREFIX)
        && !topic.starts_with(names::DLQ_PREFIX)
}

impl BrokerNow {
    fn ask(admin: &mut Admin, broker: &Broker) -> Result<BrokerNow, AdminError> {
        let figures = admin.runtime_info(&broker.address)?;
        // Of RingMQ only; a broker that does not tell its settings is shown all the same.
        let settings = admin.broker_config(&broker.address).unwrap_or_default();
        let shards = settings.iter().find(|(key, _)| key == "shards");
        let figures = Figures(&figures);
        let log = figures
            .int("commitLogMaxOffset")
            .zip(figures.int("commitLogMinOffset"));
        let version = figures.0.get("brokerVersionDesc").cloned();
        Ok(BrokerNow {
            broker: broker.clone(),
            version: Some(version.unwrap_or_default()),
            shards: shards.and_then(|(_, count)| count.parse().ok()),
            by_shard: ShardNow::all(&figures),
            put: figures.int("msgPutTotalTodayNow"),
            got: figures.int("msgGetTotalTodayNow"),
            put_tps: figures.first("putTps"),
            get_tps: figures.first("getTransferredTps"),
            log_bytes: log.map(|(end, start)| end.saturating_sub(start.max(0))),
            disk: figures.first("commitLogDiskRatio"),
            since: figures.int("bootTimestamp"),
        })
    }

    fn silent(broker: &Broker) -> BrokerNow {
        BrokerNow {
            broker: broker.clone(),
            version: None,
            shards: None,
            by_shard: BTreeMap::new(),
            put: None,
            got: None,
            put_tps: None,
            get_tps: None,
            log_bytes: None,
            disk: None,
            since: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_told_apart_by_their_number() {
        let figures: BTreeMap<String, String> = [
            ("shard.0.putMessages", "5"),
            ("shard.10.connections", "2"),
            ("shard.10.longTurns", "x"),
            ("shard.10.later", "1"),
            ("shard.x.logBytes", "1"),
            ("shards", "3"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let shards = ShardNow::all(&Figures(&figures));
        assert_eq!(shards.keys().copied().collect::<Vec<_>>(), [0, 10]);
        assert_eq!((shards[&0].put, shards[&0].connections), (Some(5), None));
        let other = &shards[&10];
        assert_eq!((other.connections, other.long_turns), (Some(2), None));
    }

    #[test]
    fn brokers_topics_are_told_from_peoples() {
        let own = BTreeSet::from(["broker-a", "DefaultCluster"]);
        for topic in ["Orders", "RMQ", "broker-b"] {
            assert!(is_peoples(topic, &own), "{topic}");
        }
        for topic in [
            "TBW102",
            "broker-a",
            "DefaultCluster",
            "DefaultCluster_REPLY_TOPIC",
            "%RETRY%g",
            "%DLQ%g",
            "rmq_sys_REVIVE_LOG_DefaultCluster",
            "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        ] {
            assert!(!is_peoples(topic, &own), "{topic}");
        }
    }
}
