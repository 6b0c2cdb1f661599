//! Where topics are: the topics that are known, their queues, and the brokers that have
//! them (`MQClientInstance.topicRouteTable`, `brokerAddrTable`).

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use super::io::PeerId;
use super::route_check::{self, Checked};
use crate::client::message::MessageQueue;
use crate::wire::body::topic::perm;

/// Most topics of a client.
pub(super) const TOPICS_MAX: usize = 65_536;

/// No connection yet.
const NO_PEER: PeerId = PeerId {
    slot: u32::MAX,
    epoch: 0,
};

/// One queue that can be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishQueue {
    /// Number of its broker in the client's table.
    pub broker: u32,
    /// Its own number there.
    pub queue_id: i32,
}

/// A broker group.
#[derive(Debug)]
pub(super) struct Broker {
    pub name: Arc<str>,
    /// By id; 0 is the master.
    pub addresses: BTreeMap<i64, Arc<str>>,
    /// The connection that its master was reached by the last time.
    pub peer: PeerId,
    /// How many topics have queues here, as their routes say.
    topics: u32,
    /// How often it is in the order of a topic whose route does not have it.
    orders: u32,
}

impl Broker {
    /// Address of its master.
    pub fn master(&self) -> Option<&Arc<str>> {
        self.addresses.get(&0)
    }
}

/// A topic that the client has to do with.
#[derive(Debug)]
pub(super) struct Topic {
    pub name: Arc<str>,
    /// Queues to send to, by broker's name and number, or as the order of the topic has them.
    pub publish: Vec<PublishQueue>,
    /// The same for applications.
    pub publish_list: Arc<[MessageQueue]>,
    /// Queues to read.
    pub read_list: Arc<[MessageQueue]>,
    /// Brokers of its route.
    brokers: Vec<u32>,
    /// Brokers that are in its order only: they are away.
    away: Vec<u32>,
    /// Whether a route was ever found.
    pub known: bool,
    /// Whether it is that of the template, because the topic is yet to be made.
    pub from_template: bool,
    /// Whether a nameserver is being asked.
    pub asking: bool,
    /// When it was asked the last time, ms.
    pub asked_at: u64,
    /// Whether changes of its queues are told to the facade.
    pub announced: bool,
    /// Topic and most queues of a template, of the producer that first sent to it.
    pub template: Option<(Arc<str>, u32)>,
}

/// What a new route changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Queues to send to.
    pub publish: bool,
    /// Queues to read.
    pub read: bool,
    /// Brokers that no route has any longer.
    pub gone: Vec<u32>,
    /// Addresses that were not known.
    pub new_addresses: bool,
}

/// All topics and brokers.
#[derive(Debug)]
pub(super) struct Routes {
    topics: Vec<Topic>,
    by_name: HashMap<Arc<str>, u32>,
    brokers: Vec<Option<Broker>>,
    free: Vec<u32>,
    by_broker: HashMap<Arc<str>, u32>,
}

impl Routes {
    pub fn new() -> Routes {
        Routes {
            topics: Vec::new(),
            by_name: HashMap::new(),
            brokers: Vec::new(),
            free: Vec::new(),
            by_broker: HashMap::new(),
        }
    }

    /// The number of a topic, which is a new one where it was not known; `None` at the bound.
    pub fn topic_id(&mut self, name: &Arc<str>) -> Option<u32> {
        if let Some(&id) = self.by_name.get(name) {
            return Some(id);
        }
        if self.topics.len() >= TOPICS_MAX {
            return None;
        }
        let id = self.topics.len() as u32;
        self.topics.push(Topic {
            name: name.clone(),
            publish: Vec::new(),
            publish_list: Arc::from([]),
            read_list: Arc::from([]),
            brokers: Vec::new(),
            away: Vec::new(),
            known: false,
            from_template: false,
            asking: false,
            asked_at: 0,
            announced: false,
            template: None,
        });
        self.by_name.insert(name.clone(), id);
        Some(id)
    }

    /// The number of a topic that is known.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// A topic by its number.
    pub fn topic(&self, id: u32) -> &Topic {
        &self.topics[id as usize]
    }

    /// The same, to be changed.
    pub fn topic_mut(&mut self, id: u32) -> &mut Topic {
        &mut self.topics[id as usize]
    }

    /// Numbers of all topics.
    pub fn topic_ids(&self) -> std::ops::Range<u32> {
        0..self.topics.len() as u32
    }

    /// A broker by its number, while it is there.
    pub fn broker(&self, id: u32) -> Option<&Broker> {
        self.brokers.get(id as usize)?.as_ref()
    }

    /// The same, to be changed.
    pub fn broker_mut(&mut self, id: u32) -> Option<&mut Broker> {
        self.brokers.get_mut(id as usize)?.as_mut()
    }

    /// The number of a broker.
    pub fn find_broker(&self, name: &str) -> Option<u32> {
        self.by_broker.get(name).copied()
    }

    /// All brokers.
    pub fn brokers(&self) -> impl Iterator<Item = &Broker> {
        self.brokers.iter().flatten()
    }

    /// The address of a broker: that with this id where it is there, else the master's, else
    /// any (`findBrokerAddressInSubscribe`).
    pub fn address(&self, name: &str, id: i64) -> Option<&Arc<str>> {
        let broker = self.broker(self.find_broker(name)?)?;
        let wanted = broker.addresses.get(&id).or_else(|| broker.master());
        wanted.or_else(|| broker.addresses.values().next())
    }

    /// The address of any broker that has queues of the topic; `turn` picks among them.
    pub fn any_address(&self, topic: &str, turn: u64) -> Option<&Arc<str>> {
        let brokers = &self.topic(self.find(topic)?).brokers;
        let count = brokers.len();
        let picked = (0..count).map(|step| brokers[(turn as usize % count + step) % count]);
        let mut found = picked.filter_map(|id| self.broker(id)?.addresses.values().next());
        found.next()
    }

    /// Takes over a checked route. Brokers that are in no route any longer are gone; those that
    /// are in the order of a topic keep their number.
    pub fn install(&mut self, id: u32, route: Checked, from_template: bool) -> Change {
        let mut change = Change::default();
        let topic_name = self.topics[id as usize].name.clone();
        let mut brokers = Vec::with_capacity(route.brokers.len());
        for broker in &route.brokers {
            let (number, new) = self.put_broker(broker);
            change.new_addresses |= new;
            brokers.push(number);
        }
        let (mut publish, mut written, mut read) = (Vec::new(), Vec::new(), Vec::new());
        for queues in &route.queues {
            let number = brokers[queues.broker];
            let name = &route.brokers[queues.broker].name;
            let queue = |queue_id| MessageQueue {
                topic: topic_name.clone(),
                broker_name: name.clone(),
                queue_id,
            };
            let writeable = perm::is_writeable(queues.perm) && route.ordered.is_empty();
            if writeable && route.brokers[queues.broker].has_master() {
                for queue_id in 0..queues.write {
                    publish.push(PublishQueue {
                        broker: number,
                        queue_id,
                    });
                    written.push(queue(queue_id));
                }
            }
            if perm::is_readable(queues.perm) && !from_template {
                read.extend((0..queues.read).map(queue));
            }
        }
        let mut away = Vec::new();
        for (name, count) in &route.ordered {
            let known = route.brokers.iter().position(|broker| broker.name == *name);
            let number = match known {
                Some(index) => brokers[index],
                None => {
                    // It is away; its queues are not, or the others would be in its order's place.
                    let number = self.broker_named(name);
                    away.push(number);
                    number
                }
            };
            for queue_id in 0..*count {
                publish.push(PublishQueue {
                    broker: number,
                    queue_id,
                });
                written.push(MessageQueue {
                    topic: topic_name.clone(),
                    broker_name: name.clone(),
                    queue_id,
                });
            }
        }
        for &number in &brokers {
            if let Some(broker) = self.broker_mut(number) {
                broker.topics += 1;
            }
        }
        for &number in &away {
            if let Some(broker) = self.broker_mut(number) {
                broker.orders += 1;
            }
        }
        let topic = &mut self.topics[id as usize];
        let before = std::mem::replace(&mut topic.brokers, brokers);
        let away_before = std::mem::replace(&mut topic.away, away);
        change.publish = *topic.publish_list != *written;
        change.read = *topic.read_list != *read;
        topic.known = true;
        topic.from_template = from_template;
        if change.publish || topic.publish != publish {
            topic.publish = publish;
            topic.publish_list = written.into();
        }
        if change.read {
            topic.read_list = read.into();
        }
        for (left, of_order) in [(before, false), (away_before, true)] {
            for number in left {
                if self.leave_broker(number, of_order) {
                    change.gone.push(number);
                }
            }
        }
        change
    }

    fn put_broker(&mut self, known: &route_check::Broker) -> (u32, bool) {
        if let Some(&number) = self.by_broker.get(&known.name) {
            let broker = self.brokers[number as usize].as_mut().expect("it is named");
            let new = broker.addresses != known.addresses;
            if new {
                broker.addresses.clone_from(&known.addresses);
                broker.peer = NO_PEER;
            }
            return (number, new);
        }
        let number = self.broker_named(&known.name);
        if let Some(broker) = self.broker_mut(number) {
            broker.addresses.clone_from(&known.addresses);
        }
        (number, true)
    }

    /// The number of a broker, which has no addresses yet where it was not known.
    fn broker_named(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&number) = self.by_broker.get(name) {
            return number;
        }
        let broker = Broker {
            name: name.clone(),
            addresses: BTreeMap::new(),
            peer: NO_PEER,
            topics: 0,
            orders: 0,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.brokers[number as usize] = Some(broker);
                number
            }
            None => {
                self.brokers.push(Some(broker));
                self.brokers.len() as u32 - 1
            }
        };
        self.by_broker.insert(name.clone(), number);
        number
    }

    /// A topic has a broker in its route, or only in its order, no longer; whether the broker
    /// is gone by that.
    fn leave_broker(&mut self, number: u32, of_order: bool) -> bool {
        let Some(broker) = self.broker_mut(number) else {
            return false;
        };
        if of_order {
            broker.orders -= 1;
        } else {
            broker.topics -= 1;
        }
        if broker.topics > 0 {
            return false;
        }
        if broker.orders > 0 {
            // It may be anywhere when it comes back.
            broker.addresses.clear();
            broker.peer = NO_PEER;
            return !of_order;
        }
        if let Some(broker) = self.brokers[number as usize].take() {
            self.by_broker.remove(&broker.name);
            self.free.push(number);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, addresses by id, queues, permission.
    type BrokerOf = (&'static str, &'static [(i64, &'static str)], i32, i32);

    fn checked(brokers: &[BrokerOf]) -> Checked {
        let mut route = Checked::default();
        for (index, &(name, addresses, queues, perm)) in brokers.iter().enumerate() {
            route.brokers.push(route_check::Broker {
                name: name.into(),
                addresses: addresses.iter().map(|&(id, a)| (id, a.into())).collect(),
            });
            route.queues.push(route_check::Queues {
                broker: index,
                perm,
                read: queues,
                write: queues,
            });
        }
        route
    }

    fn shown(list: &[MessageQueue]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn queues_are_those_of_masters_that_can_be_written() {
        let mut routes = Routes::new();
        let topic = routes.topic_id(&"t".into()).unwrap();
        let route = checked(&[
            ("a", &[(0, "h:1"), (1, "h:2")], 2, 6),
            ("b", &[(1, "h:3")], 2, 6),
            ("c", &[(0, "h:4")], 1, 4),
        ]);
        let change = routes.install(topic, route, false);
        assert!(change.publish && change.read && change.new_addresses);
        assert_eq!(shown(&routes.topic(topic).publish_list), ["t/a/0", "t/a/1"]);
        let read = shown(&routes.topic(topic).read_list);
        assert_eq!(read, ["t/a/0", "t/a/1", "t/b/0", "t/b/1", "t/c/0"]);
        assert_eq!(&**routes.address("a", 1).unwrap(), "h:2");
        assert_eq!(&**routes.address("a", 7).unwrap(), "h:1");
        assert_eq!(&**routes.address("b", 0).unwrap(), "h:3");
        assert!(routes.address("x", 0).is_none());
    }

    /// Readers have what the brokers say.
    #[test]
    fn queues_of_an_ordered_topic_are_those_of_its_order() {
        let mut routes = Routes::new();
        let topic = routes.topic_id(&"t".into()).unwrap();
        let brokers: &[BrokerOf] = &[("a", &[(0, "h:1")], 2, 6), ("b", &[(1, "h:2")], 2, 4)];
        let mut route = checked(brokers);
        route.ordered = vec![("b".into(), 1), ("away".into(), 1), ("a".into(), 2)];
        let change = routes.install(topic, route.clone(), false);
        assert!(change.publish && change.read);
        let publish = ["t/b/0", "t/away/0", "t/a/0", "t/a/1"];
        assert_eq!(shown(&routes.topic(topic).publish_list), publish);
        let read = shown(&routes.topic(topic).read_list);
        assert_eq!(read, ["t/a/0", "t/a/1", "t/b/0", "t/b/1"]);
        assert!(routes.address("away", 0).is_none());
        assert_eq!(routes.install(topic, route, false), Change::default());
        // It comes back, and the order goes.
        let back: &[BrokerOf] = &[("a", &[(0, "h:1")], 1, 6), ("away", &[(0, "h:3")], 1, 6)];
        let change = routes.install(topic, checked(back), false);
        assert!(change.publish && change.new_addresses && change.gone.len() == 1);
        assert_eq!(&**routes.address("away", 0).unwrap(), "h:3");
        assert_eq!(routes.brokers().count(), 2);
    }

    /// Its number stays as long as an order has its name; where it was reached does not.
    #[test]
    fn a_broker_that_only_an_order_has_left_is_gone() {
        let mut routes = Routes::new();
        let topic = routes.topic_id(&"t".into()).unwrap();
        let other = routes.topic_id(&"u".into()).unwrap();
        let both: &[BrokerOf] = &[("a", &[(0, "h:1")], 1, 6), ("b", &[(0, "h:2")], 1, 6)];
        let ordered = |brokers| {
            let ordered = vec![("a".into(), 1), ("b".into(), 1)];
            let route = checked(brokers);
            Checked { ordered, ..route }
        };
        routes.install(topic, ordered(both), false);
        routes.install(other, checked(both), false);
        let number = routes.find_broker("b").unwrap();
        routes.broker_mut(number).unwrap().peer = PeerId { slot: 3, epoch: 1 };
        let change = routes.install(topic, ordered(&both[..1]), false);
        assert!(change.gone.is_empty(), "the other topic has it");
        assert!(routes.broker(number).unwrap().master().is_some());
        let asked = |turn| routes.any_address("t", turn).unwrap();
        assert!(
            (0..4).all(|turn| **asked(turn) == *"h:1"),
            "not of this topic"
        );

        let change = routes.install(other, checked(&both[..1]), false);
        assert_eq!(change.gone, [number]);
        let broker = routes.broker(number).unwrap();
        assert!(broker.addresses.is_empty() && broker.peer == NO_PEER);
        let publish = shown(&routes.topic(topic).publish_list);
        assert_eq!(publish, ["t/a/0", "t/b/0"]);
        // It is told once, and comes back under the same number.
        assert_eq!(
            routes.install(topic, ordered(&both[..1]), false),
            Change::default()
        );
        assert!(routes.install(topic, ordered(both), false).new_addresses);
        assert_eq!(routes.find_broker("b"), Some(number));
        let change = routes.install(topic, checked(&both[..1]), false);
        assert_eq!((change.gone, routes.brokers().count()), (vec![number], 1));
    }

    #[test]
    fn a_broker_that_no_topic_has_is_dropped() {
        let mut routes = Routes::new();
        let one = routes.topic_id(&"t".into()).unwrap();
        let two = routes.topic_id(&"u".into()).unwrap();
        let both: &[BrokerOf] = &[("a", &[(0, "h:1")], 1, 6), ("b", &[(0, "h:2")], 1, 6)];
        routes.install(one, checked(both), false);
        routes.install(two, checked(both), false);
        assert!(
            routes
                .install(one, checked(&both[..1]), false)
                .gone
                .is_empty()
        );
        assert!(routes.address("b", 0).is_some(), "the other topic has it");
        let gone = routes.install(two, checked(&both[..1]), false).gone;
        assert_eq!(gone.len(), 1);
        assert!(routes.address("b", 0).is_none());
        assert_eq!(routes.brokers().count(), 1);
        // The same route again changes nothing.
        let same = routes.install(two, checked(&both[..1]), false);
        assert_eq!(same, Change::default());
    }

    #[test]
    fn the_number_of_topics_is_bounded() {
        let mut routes = Routes::new();
        for n in 0..TOPICS_MAX {
            assert!(routes.topic_id(&n.to_string().into()).is_some());
        }
        assert!(routes.topic_id(&"one more".into()).is_none());
        assert!(routes.topic_id(&"7".into()).is_some());
    }
}
