//! The route table: topic -> broker -> queues, and broker -> addresses.
//!
//! Every entry of the first names a broker of the second: entries go with the
//! last address of their broker, and a topic goes with its last entry. Should an
//! entry be left over all the same, the rest of its topic is answered without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::wire::body::json;
use crate::wire::body::register::TopicsAndMappings;
use crate::wire::body::route::{
    BrokerAddrs, BrokerData, BrokerMemberGroup, ClusterInfo, QueueData, TopicRouteData,
};
use crate::wire::body::topic::{TopicConfig, perm};

use super::config::Switches;
use super::kv::{Kv, ORDER_TOPIC_CONFIG};

/// Most topics. At the bound a registration that brings new ones is refused as a
/// whole, with code 1.
pub const TOPICS_MAX: usize = 500_000;

/// Broker id of a master.
pub(super) const MASTER_ID: i64 = 0;

/// Topics through which Apache's brokers find the members of their own group.
const MEMBER_GROUP_PREFIX: &str = "%SYNC_BROKER_MEMBER_";

/// The mark of an entry that no full registration removes.
const LISTED_FOREVER: u64 = u64::MAX;

/// The queues of a topic on one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Queues {
    broker: Arc<str>,
    read: i32,
    write: i32,
    perm: i32,
    sys_flag: i32,
    /// [`Broker::full_registrations`] when the broker last listed the topic.
    listed: u64,
}

#[derive(Default)]
struct Topic {
    /// Sorted by broker.
    queues: Vec<Queues>,
    mappings: BTreeMap<Arc<str>, Value>,
    /// The answer to 105 and the edition it is good for.
    answer: Option<(u64, Bytes)>,
}

impl Topic {
    fn of(&self, broker: &str) -> Option<&Queues> {
        let at = self.position(broker).ok()?;
        self.queues.get(at)
    }

    fn position(&self, broker: &str) -> Result<usize, usize> {
        self.queues.binary_search_by(|q| (*q.broker).cmp(broker))
    }

    fn put(&mut self, queues: Queues) {
        self.answer = None;
        match self.position(&queues.broker) {
            Ok(at) => self.queues[at] = queues,
            Err(at) => self.queues.insert(at, queues),
        }
    }

    fn remove(&mut self, broker: &str) {
        if let Ok(at) = self.position(broker) {
            self.queues.remove(at);
            self.mappings.remove(broker);
            self.answer = None;
        }
    }
}

/// A broker group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Broker {
    cluster: String,
    addrs: BrokerAddrs,
    acting_master: bool,
    zone: Option<String>,
    full_registrations: u64,
}

/// One member of a broker group as a registration describes it.
pub(super) struct Member<'a> {
    pub cluster: &'a str,
    pub broker: &'a str,
    pub id: i64,
    pub addr: &'a str,
    pub acting_master: bool,
    pub zone: Option<&'a str>,
}

/// How a registration is taken into the table.
#[derive(Clone, Copy)]
pub(super) struct Apply {
    /// The table may differ from what was registered before: change what is known.
    pub changed: bool,
    /// Take the write permission from every topic: a slave stands in for its master.
    pub read_only: bool,
    /// Forget what it does not list.
    pub forget: Forget,
}

/// Which topics of a broker go because a registration does not list them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Forget {
    /// None: it is a part of the broker's table.
    None,
    /// Those that no registration has listed since the last full one. A table
    /// that comes in several parts is complete by then.
    NotListedLately,
    /// All that it does not list.
    NotListed,
}

#[derive(Default)]
pub(super) struct Routes {
    topics: BTreeMap<Arc<str>, Topic>,
    brokers: BTreeMap<Arc<str>, Broker>,
    /// Grows with every change that may show in the route of any topic.
    edition: u64,
}

impl Routes {
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// Makes every cached answer out of date.
    pub fn forget_answers(&mut self) {
        self.edition += 1;
    }

    pub fn knows_broker(&self, broker: &str) -> bool {
        self.brokers.contains_key(broker)
    }

    pub fn address(&self, broker: &str, id: i64) -> Option<&str> {
        let addr = self.brokers.get(broker)?.addrs.get(&id)?;
        Some(addr)
    }

    /// The smallest id of a broker group.
    pub fn least_id(&self, broker: &str) -> Option<i64> {
        self.brokers.get(broker)?.addrs.keys().next().copied()
    }

    /// Number of topics that there would be with `names` added.
    pub fn count_with<'a>(&self, names: impl Iterator<Item = &'a str>) -> usize {
        self.topics.len()
            + names
                .filter(|&name| !self.topics.contains_key(name))
                .count()
    }

    /// Enters the address of a member; an address has one id and an id one address.
    pub fn put_member(&mut self, member: &Member<'_>) {
        let before = self.brokers.get(member.broker);
        let mut broker = before.cloned().unwrap_or_default();
        broker.cluster = member.cluster.to_owned();
        broker.acting_master = member.acting_master;
        broker.zone = member.zone.map(str::to_owned);
        broker.addrs.retain(|_, addr| addr != member.addr);
        broker.addrs.insert(member.id, member.addr.to_owned());
        if before != Some(&broker) {
            self.brokers.insert(member.broker.into(), broker);
            self.edition += 1;
        }
    }

    /// Removes an address, with the last one the broker and what it had.
    /// Returns whether the address was known.
    pub fn remove_member(&mut self, name: &str, id: i64, addr: &str) -> bool {
        let Some(broker) = self.brokers.get_mut(name) else {
            return false;
        };
        if broker.addrs.get(&id).is_none_or(|known| known != addr) {
            return false;
        }
        broker.addrs.remove(&id);
        self.edition += 1;
        if broker.addrs.is_empty() {
            self.brokers.remove(name);
            self.retain(name, |_| false);
        } else if broker.acting_master && !broker.addrs.contains_key(&MASTER_ID) {
            self.set_perm(name, |perm| perm & !perm::WRITE);
        }
        true
    }

    /// Takes over what a registration of `name` lists.
    pub fn apply(&mut self, name: &str, listed: &TopicsAndMappings, how: Apply) {
        let Some((name, broker)) = self.brokers.get_key_value(name) else {
            return;
        };
        let name = name.clone();
        let mut mark = broker.full_registrations;
        if how.forget != Forget::None {
            mark += 1;
        }
        for (key, config) in &listed.topic_config_table {
            let mut queues = Queues {
                broker: name.clone(),
                read: config.read_queue_nums,
                write: config.write_queue_nums,
                perm: config.perm,
                sys_flag: config.topic_sys_flag,
                listed: mark,
            };
            if how.read_only {
                queues.perm &= !perm::WRITE;
            }
            let topic = topic_name(key, config);
            let Some(topic) = self.topics.get_mut(topic) else {
                let entry = self.topics.entry(topic.into()).or_default();
                entry.put(queues);
                continue;
            };
            match topic.position(&name) {
                Ok(at) => {
                    let known = &mut topic.queues[at];
                    known.listed = mark;
                    if how.changed && *known != queues {
                        topic.put(queues);
                    }
                }
                Err(_) => topic.put(queues),
            }
        }
        if how.changed {
            for (topic, mapping) in &listed.topic_queue_mapping_info_map {
                if let Some(topic) = self.topics.get_mut(topic.as_str()) {
                    topic.mappings.insert(name.clone(), mapping.clone());
                    topic.answer = None;
                }
            }
        }
        match how.forget {
            Forget::None => return,
            Forget::NotListedLately => self.retain(&name, |q| q.listed >= mark - 1),
            Forget::NotListed => self.retain(&name, |q| q.listed >= mark),
        }
        if let Some(broker) = self.brokers.get_mut(&name) {
            broker.full_registrations = mark;
        }
    }

    /// Enters the queues that an administrator names; every broker must be known.
    pub fn put_topic(&mut self, topic: &str, queues: &[QueueData]) {
        let known = queues.iter().filter_map(|q| {
            let (broker, _) = self.brokers.get_key_value(q.broker_name.as_str())?;
            Some(Queues {
                broker: broker.clone(),
                read: q.read_queue_nums,
                write: q.write_queue_nums,
                perm: q.perm,
                sys_flag: q.topic_sys_flag,
                listed: LISTED_FOREVER,
            })
        });
        for queues in known {
            self.topics.entry(topic.into()).or_default().put(queues);
        }
    }

    /// Removes a topic, or what it has in one cluster.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let Some(cluster) = cluster else {
            self.topics.remove(topic);
            return;
        };
        let brokers = self.brokers_of(cluster);
        if let Some(entry) = self.topics.get_mut(topic) {
            for broker in &brokers {
                entry.remove(broker);
            }
            if entry.queues.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    /// Changes the permission of every topic on a broker; returns how many there are.
    pub fn set_perm(&mut self, broker: &str, change: impl Fn(i32) -> i32) -> usize {
        let mut count = 0;
        for topic in self.topics.values_mut() {
            if let Ok(at) = topic.position(broker) {
                let queues = &mut topic.queues[at];
                let perm = change(queues.perm);
                if queues.perm != perm {
                    queues.perm = perm;
                    topic.answer = None;
                }
                count += 1;
            }
        }
        count
    }

    /// Keeps those topics of a broker for which `keep` holds, and all of others.
    fn retain(&mut self, broker: &str, keep: impl Fn(&Queues) -> bool) {
        self.topics.retain(|_, topic| {
            if topic.of(broker).is_some_and(|queues| !keep(queues)) {
                topic.remove(broker);
            }
            !topic.queues.is_empty()
        });
    }

    /// The answer to 105 as JSON. `None` where no broker has the topic.
    pub fn answer(&mut self, topic: &str, switches: &Switches, kv: &Kv) -> Option<Bytes> {
        let entry = self.topics.get(topic)?;
        if let Some((edition, answer)) = &entry.answer
            && *edition == self.edition
        {
            return Some(answer.clone());
        }
        let mut data = self.route(topic, entry, switches)?;
        if switches.order_message_enable {
            data.order_topic_conf = kv.get(ORDER_TOPIC_CONFIG, topic).map(str::to_owned);
        }
        let answer = Bytes::from(json::encode(&data));
        let edition = self.edition;
        if let Some(entry) = self.topics.get_mut(topic) {
            entry.answer = Some((edition, answer.clone()));
        }
        Some(answer)
    }

    fn route(&self, name: &str, topic: &Topic, switches: &Switches) -> Option<TopicRouteData> {
        let mut data = TopicRouteData::default();
        for queues in &topic.queues {
            let Some(broker) = self.brokers.get(&queues.broker) else {
                continue;
            };
            let mut addrs = broker.addrs.clone();
            let acts = switches.support_acting_master
                && broker.acting_master
                && !perm::is_writeable(queues.perm)
                && !addrs.contains_key(&MASTER_ID)
                && !name.starts_with(MEMBER_GROUP_PREFIX);
            if acts && let Some((_, addr)) = addrs.pop_first() {
                addrs.insert(MASTER_ID, addr);
            }
            data.broker_datas.push(BrokerData {
                broker_addrs: addrs,
                ..broker_data(&queues.broker, broker)
            });
            data.queue_datas.push(QueueData {
                broker_name: queues.broker.to_string(),
                perm: queues.perm,
                read_queue_nums: queues.read,
                topic_sys_flag: queues.sys_flag,
                write_queue_nums: queues.write,
            });
        }
        if !topic.mappings.is_empty() {
            let mappings = topic.mappings.iter();
            let mappings = mappings.map(|(broker, m)| (broker.to_string(), m.clone()));
            data.topic_queue_mapping_by_broker = Some(mappings.collect());
        }
        (!data.broker_datas.is_empty()).then_some(data)
    }

    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(|name| &**name)
    }

    /// Topics whose flags, on the first of their brokers, fit.
    pub fn topics_by_flag(&self, fits: impl Fn(i32) -> bool) -> impl Iterator<Item = &str> {
        self.topics.iter().filter_map(move |(name, topic)| {
            let first = topic.queues.first()?;
            fits(first.sys_flag).then_some(&**name)
        })
    }

    pub fn topics_of(&self, cluster: &str) -> impl Iterator<Item = &str> {
        let brokers = self.brokers_of(cluster);
        self.topics.iter().filter_map(move |(name, topic)| {
            let mut queues = topic.queues.iter();
            queues
                .any(|q| brokers.contains(&q.broker))
                .then_some(&**name)
        })
    }

    fn brokers_of(&self, cluster: &str) -> BTreeSet<Arc<str>> {
        let brokers = self.brokers.iter();
        brokers
            .filter(|(_, broker)| broker.cluster == cluster)
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub fn cluster_info(&self) -> ClusterInfo {
        let mut info = ClusterInfo::default();
        for (name, broker) in &self.brokers {
            let names = info
                .cluster_addr_table
                .entry(broker.cluster.clone())
                .or_default();
            names.insert(name.to_string());
            info.broker_addr_table
                .insert(name.to_string(), broker_data(name, broker));
        }
        info
    }

    pub fn member_group(&self, cluster: &str, broker: &str) -> BrokerMemberGroup {
        let known = self.brokers.get(broker);
        BrokerMemberGroup {
            broker_addrs: known.map(|b| b.addrs.clone()).unwrap_or_default(),
            broker_name: broker.to_owned(),
            cluster: cluster.to_owned(),
        }
    }
}

/// The name under which a topic of a registration is entered: its own, or its
/// key where it has none.
pub(super) fn topic_name<'a>(key: &'a str, config: &'a TopicConfig) -> &'a str {
    match config.topic_name.as_str() {
        "" => key,
        name => name,
    }
}

fn broker_data(name: &str, broker: &Broker) -> BrokerData {
    BrokerData {
        broker_addrs: broker.addrs.clone(),
        broker_name: name.to_owned(),
        cluster: broker.cluster.clone(),
        enable_acting_master: broker.acting_master,
        zone_name: broker.zone.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_two_brokers() -> Routes {
        let mut routes = Routes::default();
        let topics = [("T".to_owned(), TopicConfig::new("T", 4, 6))].into();
        let listed = TopicsAndMappings {
            topic_config_table: topics,
            ..TopicsAndMappings::default()
        };
        for broker in ["a", "b"] {
            routes.put_member(&Member {
                cluster: "c",
                broker,
                id: MASTER_ID,
                addr: &format!("{broker}:1"),
                acting_master: false,
                zone: None,
            });
            let how = Apply {
                changed: true,
                read_only: false,
                forget: Forget::None,
            };
            routes.apply(broker, &listed, how);
        }
        routes
    }

    #[test]
    fn an_entry_without_a_broker_does_not_hide_the_others() {
        let mut routes = with_two_brokers();
        routes.brokers.remove("a");
        let answer = routes.answer("T", &Switches::default(), &Kv::default());
        let answer: TopicRouteData = serde_json::from_slice(&answer.unwrap()).unwrap();
        assert_eq!(answer.queue_datas.len(), 1);
        assert_eq!(answer.broker_datas[0].broker_name, "b");
        assert!(routes.remove_member("b", MASTER_ID, "b:1"));
        assert!(
            routes
                .answer("T", &Switches::default(), &Kv::default())
                .is_none()
        );
        // Nothing trips over what is left.
        assert!(!routes.remove_member("a", MASTER_ID, "a:1"));
        assert_eq!(routes.set_perm("a", |perm| perm), 1);
        routes.delete_topic("T", Some("c"));
        routes.delete_topic("T", None);
        assert_eq!(routes.topic_count(), 0);
    }

    #[test]
    fn an_answer_is_made_once_and_again_only_after_a_change() {
        let mut routes = with_two_brokers();
        let ask = |routes: &mut Routes| {
            routes
                .answer("T", &Switches::default(), &Kv::default())
                .unwrap()
        };
        let first = ask(&mut routes);
        assert_eq!(first.as_ptr(), ask(&mut routes).as_ptr());
        routes.set_perm("a", |perm| perm & !perm::WRITE);
        let second = ask(&mut routes);
        assert_ne!(first, second);
        routes.remove_member("b", MASTER_ID, "b:1");
        assert_ne!(second, ask(&mut routes));
    }
}
