//! Consumers against simulated brokers, a simulated clock and a network that loses,
//! delays and doubles answers, all by seed.

mod broker;
mod cases;
mod polled;
mod properties;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Batch, Consumer, Effect, Kind, Notice, Rules, Target};
use crate::client::core::io::{
    Answer, ConsumerCall, DeliveryId, FileFault, Outcome, Ticket,
};
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
    pub in_hand: BTreeMap<DeliveryId, Batch>,
    pub done: BTreeMap<Ticket, Result<Answer, Error>>,
    pub faults: Vec<Error>,
    pub assigned: BTreeMap<Arc<str>, Vec<MessageQueue>>,
    pub responses: Vec<Response>,
    pub heartbeats: u32,
}

enum Event {
    Request { client: usize, broker: usize, call: u64, request: Request, one_way: bool },
    Answer { client: usize, call: u64, answer: Result<Response, Error> },
    Send { client: usize, call: u64, outgoing: Box<crate::client::core::io::Outgoing> },
    Heartbeat { client: usize, broker: usize },
    Notify { client: usize },
    Done { client: usize, delivery: DeliveryId, outcome: Outcome },
    Route { client: usize, topic: Arc<str> },
    Stored { client: usize, result: Result<(), FileFault> },
    Loaded { client: usize, result: Result<Option<Vec<u8>>, FileFault> },
    Gone { client: usize },
}

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
    pub listener: Box<dyn FnMut(&mut Dice, &Batch) -> Option<Outcome>>,
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
        let ids: Vec<i32> = queues.filter(|(name, _)| name == topic).map(|(_, id)| *id).collect();
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
        self.seq += 1;
        let ticket = Ticket(self.seq);
        let now = self.now;
        self.clients[client].consumer.call(now, 0, ticket, call);
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

    /// Requests on one connection do not overtake each other.
    fn hop_to(&mut self, client: usize, broker: usize) -> u64 {
        let hop = self.hop();
        let last = self.arrivals.entry((client, broker)).or_default();
        *last = (*last).max(self.now + hop);
        *last - self.now
    }

    /// Does what a client wants done.
    pub fn drain(&mut self, client: usize) {
        for effect in self.clients[client].consumer.take_effects() {
            self.effect(client, effect);
        }
    }

    fn effect(&mut self, client: usize, effect: Effect) {
        match effect {
            Effect::Ask { call, to, request, timeout_ms } => {
                *self.requests.entry(request.fixed.code).or_default() += 1;
                let failed = Error::new(ErrorKind::Timeout { limit_ms: timeout_ms });
                self.at(timeout_ms, Event::Answer { client, call, answer: Err(failed) });
                if let Some(broker) = self.target(&to) {
                    if !self.dice.chance(self.faults.lost) {
                        let hop = self.hop_to(client, broker);
                        self.at(hop, Event::Request { client, broker, call, request, one_way: false });
                    }
                }
            }
            Effect::Tell { to, request } => {
                if let Some(broker) = self.target(&to) {
                    let hop = self.hop_to(client, broker);
                    self.at(hop, Event::Request { client, broker, call: 0, request, one_way: true });
                }
            }
            Effect::Send { call, outgoing } => {
                let hop = self.hop();
                self.at(hop, Event::Send { client, call, outgoing });
            }
            Effect::Deliver(batch) => self.deliver(client, batch),
            Effect::Heartbeat => {
                self.clients[client].heartbeats += 1;
                for broker in 0..self.brokers.len() {
                    let hop = self.hop();
                    self.at(hop, Event::Heartbeat { client, broker });
                }
            }
            Effect::Route(topic) => {
                let hop = self.hop();
                self.at(hop, Event::Route { client, topic });
            }
            Effect::LoadOffsets { file } => {
                let result = Ok(self.files.get(&file).cloned());
                self.at(1, Event::Loaded { client, result });
            }
            Effect::StoreOffsets { file, content } => {
                let result = if self.full_disk {
                    let why = "no space left on device".to_owned();
                    Err(FileFault { path: file, why })
                } else {
                    self.files.insert(file, content);
                    Ok(())
                };
                self.at(1, Event::Stored { client, result });
            }
            Effect::Done { ticket, result } => {
                let before = self.clients[client].done.insert(ticket, result);
                assert!(before.is_none(), "{ticket:?} is done twice");
            }
            Effect::Respond { response, .. } => self.clients[client].responses.push(response),
            Effect::Notice(Notice::Fault(error)) => self.clients[client].faults.push(error),
            Effect::Notice(Notice::Assigned { topic, mine, .. }) => {
                self.clients[client].assigned.insert(topic, mine);
            }
            Effect::Stopped => {
                self.clients[client].stopped = true;
                self.clients[client].alive = false;
                self.at(1, Event::Gone { client });
            }
        }
    }

    fn target(&mut self, to: &Target) -> Option<usize> {
        match to {
            Target::Broker { name, .. } => self.brokers.iter().position(|b| b.name == *name),
            Target::AnyOf(topic) => {
                let has = |broker: &Broker| broker.queues.keys().any(|(name, _)| **name == **topic);
                let having: Vec<_> = (0..self.brokers.len()).filter(|&b| has(&self.brokers[b])).collect();
                let count = having.len() as u64;
                (count > 0).then(|| having[self.dice.below(count) as usize])
            }
        }
    }

    fn deliver(&mut self, client: usize, batch: Batch) {
        assert!(!batch.messages.is_empty());
        let rules = self.clients[client].consumer.rules().clone();
        assert!(batch.messages.len() <= rules.batch_max);
        if rules.kind == Kind::Orderly && !rules.broadcast {
            let queue = &batch.queue;
            let broker = self.brokers.iter().find(|b| b.name == queue.broker_name).unwrap();
            let owner = broker.lock_owner(GROUP, &queue.topic, queue.queue_id, self.now);
            let me = &self.clients[client].id;
            assert_eq!(owner, Some(&**me), "{queue} is delivered without its lock");
            for other in self.clients.iter().filter(|other| other.alive) {
                let busy = other.in_hand.values().any(|batch| batch.queue == *queue);
                assert!(!busy, "{queue} is in hand at {} already", other.id);
            }
            let first = batch.messages[0].queue_offset;
            let last = self.last_delivered.get(queue).copied().unwrap_or(-1);
            if self.strict_order {
                assert!(first > last, "{queue}: {first} after {last}");
            }
            let last = batch.messages.last().unwrap().queue_offset;
            self.last_delivered.insert(queue.clone(), last);
        }
        if let Some(outcome) = (self.listener)(&mut self.dice, &batch) {
            let work = self.work_ms.0 + self.dice.below(self.work_ms.1.max(1));
            let delivery = batch.delivery;
            self.at(work, Event::Done { client, delivery, outcome });
        }
        self.clients[client].in_hand.insert(batch.delivery, batch);
    }

    /// A listener is done with a batch.
    pub fn finish(&mut self, client: usize, delivery: DeliveryId, outcome: Outcome) {
        let Some(batch) = self.clients[client].in_hand.remove(&delivery) else {
            return;
        };
        let good = match &outcome {
            Outcome::Success { ack_index: Some(index) } => index + 1,
            Outcome::Success { .. } | Outcome::Commit | Outcome::SuccessUncommitted => usize::MAX,
            _ => 0,
        };
        for message in batch.messages.iter().take(good) {
            *self.ledger.consumed.entry(message.body().to_vec()).or_default() += 1;
        }
        let now = self.now;
        self.clients[client].consumer.consumed(now, delivery, outcome);
        self.drain(client);
    }

    /// Answers pulls that were held.
    fn wake(&mut self, broker: usize) {
        let now = self.now;
        let (mut kept, mut answers) = (Vec::new(), Vec::new());
        for held in std::mem::take(&mut self.brokers[broker].held) {
            let answer = self.brokers[broker].pull(&held.request);
            if answer.code == 19 && held.until > now {
                kept.push(held);
            } else {
                answers.push((held.client, held.call, answer));
            }
        }
        self.brokers[broker].held = kept;
        for (client, call, answer) in answers {
            self.answer(client, call, answer);
        }
    }

    fn answer(&mut self, client: usize, call: u64, mut answer: Response) {
        if self.dice.chance(self.faults.unanswered) {
            return;
        }
        if self.dice.chance(self.faults.garbage) {
            answer = match self.dice.below(3) {
                0 => Response::body(&b"garbage"[..]),
                1 => Response::error(1, "nonsense"),
                _ => Response::ok(),
            };
        }
        let mut delay = self.hop();
        if self.dice.chance(self.faults.late) {
            delay += self.dice.below(40_000);
        }
        if self.dice.chance(self.faults.twice) {
            let answer = Ok(answer.clone());
            self.at(delay + 5, Event::Answer { client, call, answer });
        }
        self.at(delay, Event::Answer { client, call, answer: Ok(answer) });
    }

    /// Lets `ms` pass.
    pub fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        loop {
            let event = self.events.first_key_value().map(|(&(at, _), _)| at);
            let wakes = self.clients.iter().filter(|client| client.alive);
            let wake = wakes.filter_map(|client| client.consumer.next_wake()).min();
            let held = self.brokers.iter().flat_map(|b| b.held.iter().map(|h| h.until)).min();
            let delayed = self.brokers.iter().flat_map(|b| b.delayed.iter().map(|d| d.0)).min();
            let next = [event, wake, held, delayed].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            let now = self.now;
            if event == Some(next) {
                let (_, event) = self.events.pop_first().unwrap();
                self.handle(event);
            } else if held == Some(next) {
                (0..self.brokers.len()).for_each(|broker| self.wake(broker));
            } else if delayed == Some(next) {
                self.release_delayed();
            } else {
                for client in 0..self.clients.len() {
                    if self.clients[client].alive {
                        self.clients[client].consumer.tick(now);
                        let next = self.clients[client].consumer.next_wake();
                        assert!(next.is_none_or(|next| next > now), "a tick leaves work");
                        self.drain(client);
                    }
                }
            }
            self.check_bounds();
        }
        self.now = end;
    }

    fn check_bounds(&self) {
        for client in self.clients.iter().filter(|client| client.alive) {
            let consumer = &client.consumer;
            let rules = consumer.rules();
            let most = rules.thresholds.messages + rules.pull_batch as usize;
            let total: usize = consumer.owned.values().map(|own| own.line.count()).sum();
            assert_eq!(total, consumer.held());
            for (queue, own) in &consumer.owned {
                assert!(own.line.count() <= most, "{queue}: {}", own.line.count());
            }
            assert!(client.in_hand.len() <= 2 * rules.in_hand_max());
            assert!(consumer.timers.len() <= 50 + 20 * consumer.owned.len(), "timers pile up");
        }
    }

    fn release_delayed(&mut self) {
        let now = self.now;
        for broker in 0..self.brokers.len() {
            let delayed = std::mem::take(&mut self.brokers[broker].delayed);
            let (due, rest) = delayed.into_iter().partition(|entry| entry.0 <= now);
            self.brokers[broker].delayed = rest;
            let due: Vec<(u64, String, i32, Vec<u8>, Vec<u8>)> = due;
            for (_, topic, times, body, properties) in due {
                self.brokers[broker].add_topic(&topic, 1);
                self.brokers[broker].put(&topic, 0, times, &body, &properties);
            }
            self.wake(broker);
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Request { client, broker, call, request, one_way } => {
                let ledger = &mut self.ledger;
                let answer = self.brokers[broker].answer(now, client, call, &request, ledger);
                if let (Some(answer), false) = (answer, one_way) {
                    self.answer(client, call, answer);
                }
            }
            Event::Answer { client, call, answer } => {
                if self.clients[client].alive {
                    self.clients[client].consumer.answered(now, call, answer);
                    self.drain(client);
                }
            }
            Event::Send { client, call, outgoing } => {
                let broker = self.dice.below(self.brokers.len() as u64) as usize;
                if self.brokers[broker].refuse_back {
                    let answer = Response::error(14, "full");
                    self.at(1, Event::Answer { client, call, answer: Ok(answer) });
                } else {
                    self.brokers[broker].send(now, &outgoing, &mut self.ledger);
                    self.at(1, Event::Answer { client, call, answer: Ok(Response::ok()) });
                }
            }
            Event::Heartbeat { client, broker } => {
                if self.clients[client].alive {
                    let id = self.clients[client].id.clone();
                    let members = self.brokers[broker].members.entry(GROUP.to_owned()).or_default();
                    if members.insert(id) {
                        self.notify(broker);
                    }
                }
            }
            Event::Notify { client } => {
                if self.clients[client].alive {
                    self.clients[client].consumer.members_changed(now);
                    self.drain(client);
                }
            }
            Event::Done { client, delivery, outcome } => {
                if self.clients[client].alive {
                    self.finish(client, delivery, outcome);
                }
            }
            Event::Route { client, topic } => self.route(client, &topic),
            Event::Stored { client, result } => {
                self.clients[client].consumer.offsets_stored(now, result);
                self.drain(client);
            }
            Event::Loaded { client, result } => {
                self.clients[client].consumer.offsets_loaded(now, result);
                self.drain(client);
            }
            Event::Gone { client } => {
                let id = self.clients[client].id.clone();
                for broker in 0..self.brokers.len() {
                    if self.brokers[broker].forget(GROUP, &id) {
                        self.notify(broker);
                    }
                    self.brokers[broker].held.retain(|held| held.client != client);
                }
            }
        }
    }

    fn notify(&mut self, broker: usize) {
        let members = self.brokers[broker].members.get(GROUP).cloned().unwrap_or_default();
        for client in 0..self.clients.len() {
            if self.clients[client].alive && members.contains(&self.clients[client].id) {
                let hop = self.hop();
                self.at(hop, Event::Notify { client });
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
