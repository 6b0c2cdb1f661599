//! Consumers against simulated brokers, a simulated clock and a network that loses,
//! delays and doubles answers, all by seed.

mod batches;
mod broker;
mod cases;
mod moments;
mod network;
mod outages;
mod polled;
mod properties;
mod pushed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Batch, Consumer, Effect, Kind, Notice, Rules, Target};
use crate::client::core::io::{Answer, ConsumerCall, DeliveryId, FileFault, Outcome, Ticket};
use crate::client::error::{Error, ErrorKind};
use crate::client::message::MessageQueue;
use crate::wire::body::heartbeat::{ConsumeFromWhere, SubscriptionData};
use crate::wire::command::{Request, Response};
use crate::wire::message::Record;
use crate::wire::names::retry_topic;
use crate::wire::properties as props;

use broker::Broker;

pub const GROUP: &str = "g";
/// A topic of which the group wants the tag `Aa` only, whose hash is that of `BB`.
pub const TAGGED: &str = "tagged";

/// The tags that the group wants of a topic.
pub fn tags_of(topic: &str, subscription: &str) -> Vec<String> {
    match (topic, subscription) {
        (TAGGED, _) => vec!["Aa".to_owned()],
        (_, "*") => Vec::new(),
        (_, tags) => tags.split("||").map(str::to_owned).collect(),
    }
}

/// What was consumed, by whom, and what became of the rest.
#[derive(Default)]
pub struct Ledger {
    /// Listeners were successful with it so many times.
    pub consumed: BTreeMap<Vec<u8>, u32>,
    /// Records that brokers put on their way to the retry topic: broker, physical offset.
    pub returned: BTreeSet<(Arc<str>, i64)>,
    /// Messages that were sent to the retry topic.
    pub sent: BTreeSet<Vec<u8>>,
    pub dead: BTreeSet<Vec<u8>>,
    /// Offsets may be committed whatever was consumed.
    pub lenient: bool,
}

impl Ledger {
    fn must_be_consumed(&self, broker: &Arc<str>, record: &Record<'_>, offset: i64) {
        let (body, at) = (record.body(), record.physical_offset());
        let tag = props::get(record.properties(), "TAGS").unwrap_or_default();
        // Tag BB is of no interest to anyone.
        let wanted = tag != b"BB" && tag != b"other";
        let done = self.consumed.contains_key(body)
            || self.sent.contains(body)
            || self.returned.contains(&(broker.clone(), at));
        let text = String::from_utf8_lossy(body);
        assert!(
            self.lenient || done || !wanted,
            "offset {offset} was committed, {text} is not consumed"
        );
    }
}

/// A small generator of numbers that look random.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What the network does, percent of requests.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// The request is lost.
    pub lost: u64,
    /// It is done, and the answer is lost.
    pub unanswered: u64,
    /// The answer comes late, perhaps after its time.
    pub late: u64,
    /// The answer comes twice.
    pub twice: u64,
    /// The answer is garbage.
    pub garbage: u64,
}

pub struct Client {
    pub id: String,
    pub consumer: Consumer,
    pub alive: bool,
    pub stopped: bool,
    /// What its stop says that is not stored.
    pub lost: Option<Error>,
    pub in_hand: BTreeMap<DeliveryId, Batch>,
    pub done: BTreeMap<Ticket, Result<Answer, Error>>,
    pub faults: Vec<Error>,
    pub assigned: BTreeMap<Arc<str>, Vec<MessageQueue>>,
    pub responses: Vec<Response>,
    pub heartbeats: u32,
}

enum Event {
    Request {
        client: usize,
        broker: usize,
        call: u64,
        request: Request,
        one_way: bool,
    },
    Answer {
        client: usize,
        call: u64,
        answer: Result<Response, Error>,
    },
    Send {
        client: usize,
        call: u64,
        outgoing: Box<crate::client::core::io::Outgoing>,
    },
    Heartbeat {
        client: usize,
        broker: usize,
    },
    /// The client hears that a broker has heard of it.
    Heard {
        client: usize,
    },
    Notify {
        client: usize,
    },
    Done {
        client: usize,
        delivery: DeliveryId,
        outcome: Outcome,
    },
    Route {
        client: usize,
        topic: Arc<str>,
    },
    Stored {
        client: usize,
        result: Result<(), FileFault>,
    },
    Loaded {
        client: usize,
        result: Result<Option<Vec<u8>>, FileFault>,
    },
    Gone {
        client: usize,
    },
}

/// What a listener answers to a batch.
pub type Listener = dyn FnMut(&mut Dice, &Batch) -> Option<Outcome>;

pub struct World {
    pub now: u64,
    pub dice: Dice,
    pub faults: Faults,
    pub brokers: Vec<Broker>,
    pub clients: Vec<Client>,
    pub ledger: Ledger,
    pub files: BTreeMap<String, Vec<u8>>,
    pub full_disk: bool,
    /// How long listeners take, ms: at least, and so much more.
    pub work_ms: (u64, u64),
    /// What listeners answer; `None`: nothing yet.
    pub listener: Box<Listener>,
    events: BTreeMap<(u64, u64), Event>,
    seq: u64,
    arrivals: BTreeMap<(usize, usize), u64>,
    /// Of each queue, the next offset that an orderly group must get at most.
    pub last_delivered: BTreeMap<MessageQueue, i64>,
    pub strict_order: bool,
    pub sent: u64,
    pub requests: BTreeMap<i32, u64>,
}

pub fn rules(kind: Kind, client: usize) -> Rules {
    let mut rules = Rules::new(GROUP, format!("10.0.0.{client}@1"), kind);
    rules.from = ConsumeFromWhere::FirstOffset;
    rules
}

impl World {
    pub fn new(seed: u64, brokers: usize) -> World {
        let names = (0..brokers).map(|n| Broker::new(&format!("broker-{n}")));
        World {
            now: 1000,
            dice: Dice(seed),
            faults: Faults::default(),
            brokers: names.collect(),
            clients: Vec::new(),
            ledger: Ledger::default(),
            files: BTreeMap::new(),
            full_disk: false,
            work_ms: (1, 10),
            listener: Box::new(|_, _| Some(Outcome::Success { ack_index: None })),
            events: BTreeMap::new(),
            seq: 0,
            arrivals: BTreeMap::new(),
            last_delivered: BTreeMap::new(),
            strict_order: false,
            sent: 0,
            requests: BTreeMap::new(),
        }
    }

    pub fn topic(&mut self, topic: &str, queues: i32) {
        for broker in &mut self.brokers {
            broker.add_topic(topic, queues);
        }
    }

    /// Sends a message to a queue of a topic, by chance.
    pub fn send(&mut self, topic: &str, tag: &str) {
        let broker = self.dice.below(self.brokers.len() as u64) as usize;
        let queues = self.brokers[broker].queues.keys();
        let ids: Vec<i32> = queues
            .filter(|(name, _)| name == topic)
            .map(|(_, id)| *id)
            .collect();
        let id = ids[self.dice.below(ids.len() as u64) as usize];
        self.send_to(broker, topic, id, tag);
    }

    pub fn send_to(&mut self, broker: usize, topic: &str, id: i32, tag: &str) {
        self.sent += 1;
        let body = format!("{topic} {}", self.sent);
        let mut properties = Vec::new();
        if !tag.is_empty() {
            props::push(&mut properties, "TAGS", tag.as_bytes());
        }
        self.brokers[broker].put(topic, id, 0, body.as_bytes(), &properties);
        self.wake(broker);
    }

    /// Adds a consumer of `topics`.
    pub fn join(&mut self, rules: Rules, topics: &[&str]) -> usize {
        let index = self.clients.len();
        let mut consumer = Consumer::new(rules.clone());
        let now = self.now;
        let mut subscribe = |topic: &str, tags: &str| {
            let data = SubscriptionData::new(topic, tags, "TAG", 1);
            consumer.subscribe(now, &topic.into(), data);
        };
        for topic in topics {
            subscribe(topic, if *topic == TAGGED { "Aa" } else { "*" });
        }
        if !rules.broadcast && rules.kind != Kind::Polled {
            let retry = retry_topic(GROUP);
            subscribe(&retry, "*");
            self.brokers[0].add_topic(&retry, 1);
        }
        consumer.start(now);
        self.clients.push(Client {
            id: rules.client_id.to_string(),
            consumer,
            alive: true,
            stopped: false,
            lost: None,
            in_hand: BTreeMap::new(),
            done: BTreeMap::new(),
            faults: Vec::new(),
            assigned: BTreeMap::new(),
            responses: Vec::new(),
            heartbeats: 0,
        });
        self.drain(index);
        index
    }

    pub fn call(&mut self, client: usize, call: ConsumerCall) -> Ticket {
        self.call_at(client, 0, call)
    }

    /// A call while the wall clock says this.
    pub fn call_at(&mut self, client: usize, wall: i64, call: ConsumerCall) -> Ticket {
        self.seq += 1;
        let ticket = Ticket(self.seq);
        let now = self.now;
        self.clients[client].consumer.call(now, wall, ticket, call);
        self.drain(client);
        ticket
    }

    /// The client ends gracefully.
    pub fn leave(&mut self, client: usize, wait_ms: u64) {
        let now = self.now;
        self.clients[client].consumer.stop(now, wait_ms);
        self.drain(client);
    }

    /// The client is gone without a word; brokers see its connection end.
    pub fn crash(&mut self, client: usize) {
        self.clients[client].alive = false;
        self.clients[client].in_hand.clear();
        self.at(50, Event::Gone { client });
    }

    fn at(&mut self, delay: u64, event: Event) {
        self.seq += 1;
        self.events.insert((self.now + delay, self.seq), event);
    }

    fn hop(&mut self) -> u64 {
        1 + self.dice.below(3)
    }

    /// Tells all clients the routes of all they want.
    pub fn route_all(&mut self) {
        for client in 0..self.clients.len() {
            let topics: Vec<_> = self.clients[client].consumer.topics().cloned().collect();
            for topic in topics {
                self.route(client, &topic);
            }
        }
    }

    /// Tells a client the route of a topic.
    pub fn route(&mut self, client: usize, topic: &Arc<str>) {
        let mut queues = Vec::new();
        for broker in &self.brokers {
            for (name, id) in broker.queues.keys() {
                if **name == **topic {
                    queues.push(MessageQueue::new(topic.clone(), broker.name.clone(), *id));
                }
            }
        }
        let queues = (!queues.is_empty()).then_some(queues);
        let now = self.now;
        if self.clients[client].alive {
            self.clients[client].consumer.routed(now, topic, queues);
            self.drain(client);
        }
    }

    /// Messages of a topic that the group wants.
    pub fn wanted(&self, topic: &str) -> BTreeSet<Vec<u8>> {
        let mut wanted = BTreeSet::new();
        for broker in &self.brokers {
            for ((name, _), queue) in &broker.queues {
                if name != topic {
                    continue;
                }
                for record in &queue.records {
                    let record = Record::parse(record).unwrap();
                    let tag = props::get(record.properties(), "TAGS").unwrap_or_default();
                    if tag != b"BB" && tag != b"other" {
                        wanted.insert(record.body().to_vec());
                    }
                }
            }
        }
        wanted
    }

    /// Every message of a topic was consumed; with `once`, none twice.
    pub fn assert_consumed(&self, topic: &str, once: bool) {
        for body in self.wanted(topic) {
            let text = String::from_utf8_lossy(&body);
            let count = self.ledger.consumed.get(&body).copied().unwrap_or(0);
            let dead = self.ledger.dead.contains(&body);
            assert!(count > 0 || dead, "{text} is not consumed");
            assert!(!once || count == 1, "{text} is consumed {count} times");
        }
    }

    /// What brokers have as committed of a topic.
    pub fn committed(&self, topic: &str) -> BTreeMap<(Arc<str>, i32), i64> {
        let mut committed = BTreeMap::new();
        for broker in &self.brokers {
            for ((_, name, id), offset) in &broker.offsets {
                if name == topic {
                    committed.insert((broker.name.clone(), *id), *offset);
                }
            }
        }
        committed
    }

    /// The ends of the queues of a topic.
    pub fn ends(&self, topic: &str) -> BTreeMap<(Arc<str>, i32), i64> {
        let mut ends = BTreeMap::new();
        for broker in &self.brokers {
            for ((name, id), queue) in &broker.queues {
                if name == topic {
                    ends.insert((broker.name.clone(), *id), queue.max());
                }
            }
        }
        ends
    }
}
