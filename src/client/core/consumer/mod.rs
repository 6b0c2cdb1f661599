//! One consumer of a group, as state and decisions: what it subscribed, which queues it
//! has, what it pulled of them, and how far it came.
//!
//! | file | what it decides |
//! | --- | --- |
//! | [`rules`] | the settings of all kinds of consumers under one roof |
//! | [`effect`] | what it wants done |
//! | [`allocate`] | whose a queue is |
//! | [`rebalance`] | which queues come and go, when it is asked again; locks of queues |
//! | [`start`] | where a queue begins |
//! | [`leave`] | how a queue is given back; stopping |
//! | [`pull`] | when a queue is pulled, and what an answer means |
//! | [`found`] | the messages of an answer, inner batches taken apart |
//! | [`process_queue`] | what is pulled and not yet consumed |
//! | [`push`] | what listeners get, and what becomes of it |
//! | [`orderly`] | the same, in order |
//! | [`retry`] | the way of a failed message to the retry topic |
//! | [`offsets`] | which offsets are stored when |
//! | [`broadcast`] | the file of offsets of a broadcasting consumer |
//! | [`polled`] | the pull consumer: poll, seek, pause, commit |
//! | [`pushed`] | what brokers ask of consumers |
//! | [`rates`] | how fast it goes |
//! | [`timers`] | when something is due |
//!
//! A consumer is driven by its methods, each with the time: ms of a clock that never goes
//! back. What it wants done it leaves in its [`Effect`]s; each [`Effect::Ask`] is answered
//! exactly once, by [`Consumer::answered`]. [`Consumer::next_wake`] says when
//! [`Consumer::tick`] has something to do.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::client::core::io::{Answer, DeliveryId, FileFault, Ticket};
use crate::client::error::{Error, ErrorKind};
use crate::client::message::{MessageQueue, ReceivedMessage};
use crate::wire::body::heartbeat::{ConsumerData, SubscriptionData};
use crate::wire::command::{Request, Response};
use crate::wire::names::RETRY_PREFIX;

pub mod allocate;
pub mod broadcast;
pub mod effect;
mod found;
mod leave;
mod md5;
mod offsets;
mod orderly;
mod polled;
pub mod process_queue;
mod pull;
mod push;
mod pushed;
mod rates;
mod rebalance;
mod retry;
pub mod rules;
mod start;
mod timers;

#[cfg(test)]
mod tests;

pub use effect::{Batch, Effect, Notice, ReplyTo, Target};
pub use polled::subscription;
pub use rules::{Kind, Rules};

use broadcast::OffsetTable;
use leave::Leaving;
use process_queue::{At, ProcessQueue};
use pull::Pulling;
use start::Starting;
use timers::Timer;

/// What a question was about.
#[derive(Debug)]
enum Ask {
    Members {
        topic: Arc<str>,
    },
    Lock {
        broker: Arc<str>,
        queues: Vec<MessageQueue>,
        sent: u64,
    },
    /// A question about a queue, void when its epoch is over.
    Queue {
        queue: MessageQueue,
        epoch: u64,
        what: AskQueue,
    },
    /// The way to the retry topic.
    Return(Box<retry::Return>),
    /// For a caller.
    Lookup(polled::Lookup),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskQueue {
    Pull { offset: i64, sent: u64 },
    ReadOffset,
    Bound,
    Mark { offset: i64 },
    Commit { offset: i64 },
    LastCommit,
    CheckCommitted { offset: i64 },
    Unlock,
}

/// What is wanted of a topic, and what is known of it.
#[derive(Debug)]
struct Topic {
    subscription: SubscriptionData,
    queues: Option<Vec<MessageQueue>>,
    /// Members are being asked for.
    asking: bool,
    /// They are to be asked for again after that.
    again: bool,
    /// How often in a row this consumer was not among them.
    misses: u32,
    /// It has announced itself because of that, and no broker has heard of it yet.
    announcing: bool,
    /// Members at the last look.
    members: usize,
}

#[derive(Debug)]
enum Phase {
    /// Waiting for the broker's lock (orderly).
    Locking,
    /// Finding out where to begin.
    Starting(Starting),
    /// At work.
    Active,
    /// Being given back.
    Leaving(Leaving),
}

/// A queue that this consumer has, or is getting, or is giving back.
#[derive(Debug)]
struct Owned {
    phase: Phase,
    line: ProcessQueue<ReceivedMessage>,
    /// What belongs to an earlier epoch of the queue is void.
    epoch: u64,
    /// The first epoch since it was gained.
    born: u64,
    /// Batches with listeners, of any epoch.
    in_hand: usize,
    /// Messages on their way to the retry topic.
    returning: usize,
    pulling: Pulling,
    /// Id of the broker to pull from.
    broker_id: u64,
    /// The broker is being asked for its lock (orderly).
    lock_asked: bool,
    /// Until when the broker's lock counts, ms (orderly).
    locked_until: u64,
    /// In the line of queues that have something ready.
    in_line: bool,
    /// Before then nothing is handed out, ms (orderly).
    suspended_until: u64,
    paused: bool,
    commit: offsets::Commit,
    /// When it was last asked for messages, ms.
    last_pull: u64,
    /// When something of it was last consumed, ms; when it was gained, before that.
    last_consume: u64,
    /// Given back, but to be had again.
    wanted_again: bool,
}

/// A batch with a listener.
#[derive(Debug)]
struct Hand {
    queue: MessageQueue,
    born: u64,
    epoch: u64,
    places: Vec<At>,
    /// Since when, ms.
    since: u64,
    /// A broker waits for what comes of it.
    direct: Option<ReplyTo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    New,
    /// Waiting for the file of offsets.
    Loading,
    Running,
    Stopping,
    Stopped,
}

/// Counts since the start, for running info and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that listeners consumed.
    pub consumed: u64,
    /// Messages that listeners failed at.
    pub failed: u64,
    /// Pulls put off because of a threshold.
    pub flow_control: u64,
    /// Answers to pulls that made no sense.
    pub bad_answers: u64,
    /// Broadcast messages that were dropped because a listener failed at them.
    pub dropped: u64,
    /// Messages given up to the retry topic because a listener took too long.
    pub overdue: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Consumer {
    rules: Rules,
    life: Life,
    topics: BTreeMap<Arc<str>, Topic>,
    /// Queues named by the application; `None`: queues come by rebalance.
    assigned: Option<BTreeSet<MessageQueue>>,
    owned: BTreeMap<MessageQueue, Owned>,
    asks: HashMap<u64, Ask>,
    hands: HashMap<DeliveryId, Hand>,
    /// Queues with something ready, in turn.
    line: VecDeque<MessageQueue>,
    polls: polled::Polls,
    timers: BTreeSet<(u64, Timer)>,
    /// When each of those is due that are set once at a time, ms.
    single: BTreeMap<Timer, u64>,
    effects: Vec<Effect>,
    /// Offsets of the file (broadcasting).
    file: OffsetTable,
    storing: Option<broadcast::Storing>,
    file_waiters: broadcast::Waiters,
    backup_asked: bool,
    /// What is wrong with the file itself, until the backup is read.
    unread: Option<FileFault>,
    /// Pulls and deliveries pause.
    suspended: bool,
    next_call: u64,
    next_delivery: u64,
    next_epoch: u64,
    persist_round: u32,
    /// The first offset that could not be stored by the stop.
    lost: Option<Error>,
    /// Another member has the same client id, and that was told: answers since it was seen.
    twins_seen: Option<usize>,
    /// Greatest version of a subscription so far.
    newest: i64,
    /// How long the stop may take, ms.
    stop_ms: u64,
    /// When it began, ms.
    started: u64,
    held: usize,
    counts: Counts,
    /// By topic, of those that are subscribed or assigned.
    rates: BTreeMap<Arc<str>, rates::Rates>,
}

impl Consumer {
    /// A consumer that does nothing until it is started.
    pub fn new(rules: Rules) -> Consumer {
        Consumer {
            rules,
            life: Life::New,
            topics: BTreeMap::new(),
            assigned: None,
            owned: BTreeMap::new(),
            asks: HashMap::new(),
            hands: HashMap::new(),
            line: VecDeque::new(),
            polls: polled::Polls::default(),
            timers: BTreeSet::new(),
            single: BTreeMap::new(),
            effects: Vec::new(),
            file: OffsetTable::default(),
            storing: None,
            file_waiters: broadcast::Waiters::default(),
            backup_asked: false,
            unread: None,
            suspended: false,
            next_call: 0,
            next_delivery: 0,
            next_epoch: 0,
            persist_round: 0,
            lost: None,
            twins_seen: None,
            newest: 0,
            stop_ms: 0,
            started: 0,
            held: 0,
            counts: Counts::default(),
            rates: BTreeMap::new(),
        }
    }

    /// Numbers its batches from there on, so that no other consumer uses the same.
    pub fn deliveries_from(&mut self, first: DeliveryId) {
        self.next_delivery = first.0;
    }

    /// What it runs with.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Messages held, of all queues.
    pub fn held(&self) -> usize {
        self.held
    }

    /// What is to be done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether something is to be done, or due at `now`.
    pub fn has_work(&self, now: u64) -> bool {
        !self.effects.is_empty() || self.next_wake().is_some_and(|at| at <= now)
    }

    /// When [`Consumer::tick`] has something to do, ms.
    pub fn next_wake(&self) -> Option<u64> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Topics that it needs routes of.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        let assigned = self.assigned.iter().flatten().map(|queue| &queue.topic);
        self.topics.keys().chain(assigned)
    }

    /// Subscribes a topic, or changes what is wanted of it. Its version is the wall clock, ms,
    /// which tells brokers which of two subscriptions is newer; where that clock stood still or
    /// went back, it is one more than the last one's.
    pub fn subscribe(&mut self, now: u64, topic: &Arc<str>, mut data: SubscriptionData) {
        data.sub_version = data.sub_version.max(self.newest.saturating_add(1));
        self.newest = data.sub_version;
        match self.topics.get_mut(topic) {
            Some(known) => known.subscription = data,
            None => {
                let known = Topic {
                    subscription: data,
                    queues: None,
                    asking: false,
                    again: false,
                    misses: 0,
                    announcing: false,
                    members: 0,
                };
                self.topics.insert(topic.clone(), known);
            }
        }
        if self.life == Life::Running {
            self.effects.push(Effect::Route(topic.clone()));
            self.effects.push(Effect::Heartbeat);
            self.rebalance_topic(now, topic);
        }
    }

    /// Gives a topic up, with its queues.
    pub fn unsubscribe(&mut self, now: u64, topic: &str) {
        if self.topics.remove(topic).is_none() {
            return;
        }
        self.rates.remove(topic);
        let of_topic = self.owned.keys().filter(|queue| &*queue.topic == topic);
        let queues: Vec<_> = of_topic.cloned().collect();
        for queue in queues {
            self.leave(now, &queue);
        }
        if self.life == Life::Running {
            self.effects.push(Effect::Heartbeat);
        }
    }

    /// What heartbeats say of it.
    pub fn heartbeat(&self) -> ConsumerData {
        let subscriptions = self.topics.values().map(|topic| topic.subscription.clone());
        ConsumerData {
            group_name: self.rules.group.to_string(),
            consume_type: self.rules.consume_type(),
            message_model: self.rules.message_model(),
            consume_from_where: self.rules.from,
            subscription_data_set: subscriptions.collect(),
            unit_mode: false,
        }
    }

    /// Begins.
    pub fn start(&mut self, now: u64) {
        if self.life != Life::New {
            return;
        }
        for topic in self.topics.keys() {
            self.effects.push(Effect::Route(topic.clone()));
        }
        if self.rules.broadcast {
            self.life = Life::Loading;
            self.load_file();
        } else {
            self.run(now);
        }
    }

    fn run(&mut self, now: u64) {
        self.life = Life::Running;
        self.started = now;
        self.effects.push(Effect::Heartbeat);
        self.set(now, Timer::Rebalance);
        self.set(now + self.rules.persist_ms, Timer::Persist);
        if self.rules.kind == Kind::Concurrent {
            self.set(now + self.rules.clean_ms(), Timer::Clean);
        }
        if self.rules.locks() {
            self.set(now + rebalance::LOCK_RENEW_MS, Timer::RenewLocks);
        }
        self.update_assigned(now);
    }

    /// Whether it waits for its file of offsets.
    pub fn is_loading(&self) -> bool {
        self.life == Life::Loading
    }

    /// Whether it has begun and not yet ended.
    pub fn is_running(&self) -> bool {
        self.life == Life::Running
    }

    /// What a broker said to a question, or why it said nothing.
    pub fn answered(&mut self, now: u64, call: u64, answer: Result<Response, Error>) {
        let Some(ask) = self.asks.remove(&call) else {
            return;
        };
        match ask {
            Ask::Members { topic } => self.members_answered(now, &topic, answer),
            Ask::Lock {
                broker,
                queues,
                sent,
            } => self.lock_answered(now, &broker, &queues, sent, answer),
            Ask::Return(back) => self.return_answered(now, *back, answer),
            Ask::Lookup(lookup) => self.lookup_answered(now, lookup, answer),
            Ask::Queue { queue, epoch, what } => {
                let current = self.owned.get(&queue).is_some_and(|own| own.epoch == epoch);
                if current {
                    self.queue_answered(now, &queue, what, answer);
                }
            }
        }
    }

    fn queue_answered(
        &mut self,
        now: u64,
        queue: &MessageQueue,
        what: AskQueue,
        answer: Result<Response, Error>,
    ) {
        match what {
            AskQueue::Pull { offset, sent } => self.pull_answered(now, queue, offset, sent, answer),
            AskQueue::ReadOffset | AskQueue::Bound | AskQueue::Mark { .. } => {
                self.start_answered(now, queue, what, answer);
            }
            AskQueue::Commit { offset } => self.commit_answered(queue, offset, answer),
            AskQueue::LastCommit | AskQueue::CheckCommitted { .. } | AskQueue::Unlock => {
                self.leave_answered(now, queue, what, answer);
            }
        }
    }

    fn ask(&mut self, ask: Ask, to: Target, request: Request, timeout_ms: u64) -> u64 {
        self.next_call += 1;
        let call = self.next_call;
        self.asks.insert(call, ask);
        self.effects.push(Effect::Ask {
            call,
            to,
            request,
            timeout_ms,
        });
        call
    }

    fn ask_of(&mut self, queue: &MessageQueue, what: AskQueue, request: Request) {
        let Some(own) = self.owned.get(queue) else {
            return;
        };
        let ask = Ask::Queue {
            queue: queue.clone(),
            epoch: own.epoch,
            what,
        };
        let timeout_ms = self.rules.offset_timeout_ms;
        self.ask(ask, master(queue), request, timeout_ms);
    }

    fn new_epoch(&mut self) -> u64 {
        self.next_epoch += 1;
        self.next_epoch
    }

    /// Counts anew what is held of a queue, after `change` of it.
    fn with_line<T>(
        &mut self,
        queue: &MessageQueue,
        change: impl FnOnce(&mut Owned) -> T,
    ) -> Option<T> {
        let own = self.owned.get_mut(queue)?;
        let before = own.line.count();
        let result = change(own);
        self.held = self.held - before + own.line.count();
        Some(result)
    }

    /// How fast a topic is consumed.
    fn rates_of(&mut self, now: u64, topic: &Arc<str>) -> &mut rates::Rates {
        let rates = self.rates.entry(topic.clone());
        rates.or_insert_with(|| rates::Rates::new(now))
    }

    fn fault(&mut self, error: Error) {
        let error = error.of_group(&self.rules.group);
        self.effects.push(Effect::Notice(Notice::Fault(error)));
    }

    /// What was consumed is not stored, and there is no later time for it: the stop says so.
    fn lose(&mut self, error: Error) {
        if self.life == Life::Stopping {
            let error = error.of_group(&self.rules.group);
            self.lost.get_or_insert(error);
        }
    }

    fn done(&mut self, ticket: Ticket, result: Result<Answer, Error>) {
        let result = result.map_err(|error| error.of_group(&self.rules.group));
        self.effects.push(Effect::Done { ticket, result });
    }
}

/// The master that has a queue.
fn master(queue: &MessageQueue) -> Target {
    Target::Broker {
        name: queue.broker_name.clone(),
        id: 0,
    }
}

fn is_retry(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX)
}

/// A request about a queue, with the names that all of them share.
fn about(code: i32, queue: &MessageQueue) -> Request {
    Request::new(code)
        .with("topic", &queue.topic)
        .with("queueId", queue.queue_id)
        .with("bname", &queue.broker_name)
}

/// An answer with code 0, or the error that it is.
fn successful(answer: Result<Response, Error>, queue: &MessageQueue) -> Result<Response, Error> {
    let response = answer?;
    if response.code == 0 {
        return Ok(response);
    }
    Err(answered(&response, queue))
}

/// The error that a response is.
fn answered(response: &Response, queue: &MessageQueue) -> Error {
    let kind = ErrorKind::Answered {
        code: response.code,
        remark: response.remark.clone().unwrap_or_default(),
    };
    at_queue(Error::new(kind), queue)
}

fn at_queue(error: Error, queue: &MessageQueue) -> Error {
    error.at(crate::client::error::Place {
        topic: Some(queue.topic.clone()),
        broker_name: Some(queue.broker_name.clone()),
        queue_id: Some(queue.queue_id),
        ..Default::default()
    })
}

/// The number in an ext field of an answer.
fn number(response: &Response, field: &str) -> Option<i64> {
    response.get(field)?.parse().ok()
}
