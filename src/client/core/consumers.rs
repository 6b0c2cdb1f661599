//! The consumers of this client: what [`super::consumer`] wants done, done.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::consumer::{Consumer, Rules};
use super::io::{
    Answer, Command, ConsumerCall, ConsumerId, DeliveryId, Filter, Now, Output, ProducerId, Ticket,
};
use super::{Core, done};
use crate::client::error::{Error, ErrorKind, Result};
use crate::client::message::MessageQueue;
use crate::client::settings::ProducerSettings;
use crate::wire::body::heartbeat::ConsumerData;
use crate::wire::command::Response;
use crate::wire::names;

mod asked;
mod effects;
mod watch;

use asked::Asked;
use watch::Watch;

/// The producer by which failed messages go to retry topics, under Java's name for it
/// (`MixAll.CLIENT_INNER_PRODUCER_GROUP`).
const INNER_PRODUCER: (ProducerId, &str) = (ProducerId(u32::MAX), "CLIENT_INNER_PRODUCER");
/// Low half of the tickets of its sends: no place of a waiter.
const INNER_TICKET: u64 = u32::MAX as u64;
/// How long the start of a consumer waits for routes and a broker that hears of it, ms.
const START_MS: u64 = 10_000;
/// How often the route of a topic that is not known yet is asked for, ms.
const UNKNOWN_MS: u64 = 1000;
/// Turns of that; from then on it is asked for like every other.
const UNKNOWN_TURNS: u32 = 10;

/// One consumer.
#[derive(Debug)]
struct Member {
    consumer: Consumer,
    starting: Option<Starting>,
    /// Who waits for its end.
    stopping: Vec<Ticket>,
    /// Who is told of the queues of its topics.
    watch: Option<Watch>,
}

impl Member {
    /// The queues of a topic, as its route has them.
    fn routed(&mut self, now: u64, topic: &Arc<str>, queues: &Arc<[MessageQueue]>) {
        self.consumer.routed(now, topic, Some(queues.to_vec()));
        if let Some(watch) = &mut self.watch {
            if self.consumer.topics().any(|own| own == topic) {
                watch.routed(topic, queues);
            }
        }
        if let Some(starting) = &mut self.starting {
            starting.topics.retain(|waiting| waiting != topic);
        }
    }
}

/// Who waits for the start of a consumer.
#[derive(Debug)]
struct Starting {
    ticket: Ticket,
    deadline: u64,
    /// A broker has heard of it.
    announced: bool,
    /// Topics of which it is not known yet whether there is a route.
    topics: Vec<Arc<str>>,
}

/// A caller who waits for the queues of a topic.
#[derive(Debug)]
struct Fetch {
    ticket: Ticket,
    topic: Arc<str>,
    deadline: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Consumers {
    list: BTreeMap<ConsumerId, Member>,
    /// Sends of the inner producer: whose, and their number there.
    sends: HashMap<Ticket, (ConsumerId, u64)>,
    next_send: u64,
    has_producer: bool,
    /// Requests of brokers that are not answered yet.
    asked: HashMap<u64, Asked>,
    next_asked: u64,
    fetches: Vec<Fetch>,
    /// Topics without a route: when it is asked for again, ms, and how often it was.
    unknown: BTreeMap<Arc<str>, (u64, u32)>,
    /// Whose turn it is among the brokers of a topic.
    turn: u64,
}

impl Consumers {
    pub fn next_wake(&self) -> Option<u64> {
        let members = self.list.values().flat_map(|member| {
            let start = member.starting.as_ref().map(|starting| starting.deadline);
            let watch = member.watch.as_ref().map(|watch| watch.at);
            [member.consumer.next_wake(), start, watch]
        });
        let fetches = self.fetches.iter().map(|fetch| Some(fetch.deadline));
        let unknown = self.unknown.values().map(|&(at, _)| Some(at));
        members.chain(fetches).chain(unknown).flatten().min()
    }

    /// Forgets a consumer, with what brokers asked of it.
    fn remove(&mut self, id: ConsumerId) -> Option<Member> {
        self.asked.retain(|_, asked| asked.whose != id);
        self.list.remove(&id)
    }

    fn of_group(&mut self, group: &str) -> Option<&mut Consumer> {
        self.id_of_group(group).map(|(_, consumer)| consumer)
    }

    fn id_of_group(&mut self, group: &str) -> Option<(ConsumerId, &mut Consumer)> {
        let mut members = self.list.iter_mut();
        let (&id, member) = members.find(|(_, m)| *m.consumer.rules().group == *group)?;
        Some((id, &mut member.consumer))
    }
}

impl Core {
    /// Whether there is one.
    pub(super) fn has_consumers(&self) -> bool {
        !self.consumers.list.is_empty()
    }

    /// What heartbeats say of them.
    pub(super) fn consumer_data(&self) -> Vec<ConsumerData> {
        let members = self.consumers.list.values();
        members.map(|member| member.consumer.heartbeat()).collect()
    }

    /// Begins to stop all of them.
    pub(super) fn stop_consumers(&mut self, now: Now, wait_ms: u64, out: &mut Vec<Output>) {
        for member in self.consumers.list.values_mut() {
            member.consumer.stop(now.at, wait_ms);
        }
        self.pass_consumers(now, out);
    }

    /// Does a command about consumers; gives any other back.
    pub(super) fn consumer_command(
        &mut self,
        now: Now,
        command: Command,
        out: &mut Vec<Output>,
    ) -> Option<Command> {
        match command {
            Command::StartPushConsumer {
                ticket,
                consumer,
                settings,
                subscriptions,
            } => {
                let rules = settings
                    .check()
                    .map(|()| Rules::of_push(&settings, &self.settings, &self.client_id, now.wall));
                self.start_consumer(now, ticket, consumer, rules, subscriptions, out);
            }
            Command::StartPullConsumer {
                ticket,
                consumer,
                settings,
                subscriptions,
            } => {
                let rules = settings
                    .check()
                    .map(|()| Rules::of_pull(&settings, &self.settings, &self.client_id, now.wall));
                self.start_consumer(now, ticket, consumer, rules, subscriptions, out);
                self.watch_queues(now, consumer, &settings);
            }
            Command::StopConsumer {
                ticket,
                consumer,
                wait_ms,
            } => match self.consumers.list.get_mut(&consumer) {
                Some(member) => {
                    member.stopping.push(ticket);
                    member.consumer.stop(now.at, wait_ms);
                }
                None => done(out, ticket, Err(ErrorKind::NotRunning.into())),
            },
            Command::Consumer {
                ticket,
                consumer,
                call,
            } => self.consumer_call(now, ticket, consumer, call, out),
            Command::Consumed {
                consumer,
                delivery,
                outcome,
            } => {
                if let Some(member) = self.consumers.list.get_mut(&consumer) {
                    member.consumer.consumed(now.at, delivery, outcome);
                }
            }
            Command::OffsetsLoaded { consumer, result } => {
                if let Some(member) = self.consumers.list.get_mut(&consumer) {
                    member.consumer.offsets_loaded(now.at, result);
                }
            }
            Command::Unpolled(polled) => {
                if let Some(member) = self.consumers.list.get_mut(&polled.consumer) {
                    member.consumer.unpolled(now.at, polled);
                }
            }
            Command::OffsetsStored { consumer, result } => {
                if let Some(member) = self.consumers.list.get_mut(&consumer) {
                    member.consumer.offsets_stored(now.at, result);
                }
            }
            other => return Some(other),
        }
        None
    }

    fn start_consumer(
        &mut self,
        now: Now,
        ticket: Ticket,
        id: ConsumerId,
        rules: Result<Rules>,
        subscriptions: Vec<(Arc<str>, Filter)>,
        out: &mut Vec<Output>,
    ) {
        let rules = match rules {
            Ok(rules) => rules,
            Err(error) => return done(out, ticket, Err(error)),
        };
        for (topic, _) in &subscriptions {
            if let Err(error) = names::check_topic(topic) {
                let error = Error::setting("subscriptions", error.to_string());
                return done(out, ticket, Err(error));
            }
        }
        let group = rules.group.clone();
        if self.consumers.of_group(&group).is_some() || self.consumers.list.contains_key(&id) {
            let error = Error::new(ErrorKind::GroupExists).of_group(&group);
            return done(out, ticket, Err(error));
        }
        let retries = rules.retries();
        let mut consumer = Consumer::new(rules);
        consumer.deliveries_from(DeliveryId(u64::from(id.0) << 32));
        let mut topics = Vec::new();
        for (topic, filter) in subscriptions {
            let data = super::consumer::subscription(&topic, &filter, now.wall);
            consumer.subscribe(now.at, &topic, data);
            topics.push(topic);
        }
        if retries {
            let topic: Arc<str> = names::retry_topic(&group).into();
            let data = super::consumer::subscription(&topic, &Filter::default(), now.wall);
            consumer.subscribe(now.at, &topic, data);
        }
        // Whatever retries by itself: a caller may give a message back, too.
        if !std::mem::replace(&mut self.consumers.has_producer, true) {
            let settings = Arc::new(ProducerSettings::new(INNER_PRODUCER.1));
            let mut ignored = Vec::new();
            let ticket = Ticket(INNER_TICKET);
            self.start_producer(ticket, INNER_PRODUCER.0, settings, &mut ignored);
        }
        consumer.start(now.at);
        let starting = Starting {
            ticket,
            deadline: now.at + START_MS,
            announced: false,
            topics,
        };
        let member = Member {
            consumer,
            starting: Some(starting),
            stopping: Vec::new(),
            watch: None,
        };
        self.consumers.list.insert(id, member);
        self.heartbeats.change();
        self.starts_on(now, out);
    }

    fn consumer_call(
        &mut self,
        now: Now,
        ticket: Ticket,
        id: ConsumerId,
        call: ConsumerCall,
        out: &mut Vec<Output>,
    ) {
        let Some(member) = self.consumers.list.get_mut(&id) else {
            return done(out, ticket, Err(ErrorKind::NotRunning.into()));
        };
        match call {
            ConsumerCall::FetchQueues { topic, timeout_ms } => {
                self.fetch_queues(now, ticket, topic, timeout_ms, out);
            }
            ConsumerCall::Subscribe { topic, .. } if names::check_topic(&topic).is_err() => {
                let error = names::check_topic(&topic).err();
                let what = error.map(|error| error.to_string()).unwrap_or_default();
                done(out, ticket, Err(Error::setting("subscriptions", what)));
            }
            call => member.consumer.call(now.at, now.wall, ticket, call),
        }
    }

    /// The queues of a topic that can be read, from its route.
    fn fetch_queues(
        &mut self,
        now: Now,
        ticket: Ticket,
        topic: Arc<str>,
        timeout_ms: u64,
        out: &mut Vec<Output>,
    ) {
        if let Some(queues) = self.read_queues(&topic) {
            return done(out, ticket, Ok(Answer::Queues(queues)));
        }
        let deadline = now.at + timeout_ms;
        self.consumers.fetches.push(Fetch {
            ticket,
            topic: topic.clone(),
            deadline,
        });
        self.want_route_of(now, &topic, out);
    }

    fn read_queues(&self, topic: &str) -> Option<Arc<[MessageQueue]>> {
        let known = self.routes.topic(self.routes.find(topic)?);
        (known.known && !known.from_template).then(|| known.read_list.clone())
    }

    fn want_route_of(&mut self, now: Now, topic: &Arc<str>, out: &mut Vec<Output>) {
        match self.routes.topic_id(topic) {
            Some(id) => self.want_route(now, id, out),
            None => {
                let what = "topics of a client";
                let limit = super::routes::TOPICS_MAX as u64;
                let error = Error::new(ErrorKind::TooMuchInFlight { what, limit });
                self.consumers_without_route(now, topic, &error, out);
            }
        }
    }

    /// A route was found, the first one or another one.
    pub(super) fn consumers_with_route(&mut self, now: Now, topic: u32, out: &mut Vec<Output>) {
        let name = self.routes.topic(topic).name.clone();
        let Some(queues) = self.read_queues(&name) else {
            return;
        };
        self.consumers.unknown.remove(&name);
        for member in self.consumers.list.values_mut() {
            member.routed(now.at, &name, &queues);
        }
        self.consumers.fetches.retain(|fetch| {
            let waits = fetch.topic == name;
            if waits {
                done(out, fetch.ticket, Ok(Answer::Queues(queues.clone())));
            }
            !waits
        });
        self.starts_on(now, out);
    }

    /// There is no route, or no one who knows.
    pub(super) fn consumers_without_route(
        &mut self,
        now: Now,
        name: &Arc<str>,
        error: &Error,
        out: &mut Vec<Output>,
    ) {
        self.consumers.fetches.retain(|fetch| {
            let waits = fetch.topic == *name;
            if waits {
                done(out, fetch.ticket, Err(error.clone()));
            }
            !waits
        });
        let missing = *error.kind() == ErrorKind::TopicNotFound;
        let mut failed = Vec::new();
        let mut wanted = false;
        for (&id, member) in &mut self.consumers.list {
            if !member.consumer.topics().any(|topic| topic == name) {
                continue;
            }
            wanted = true;
            if let Some(starting) = &mut member.starting {
                if !starting.topics.contains(name) {
                    continue;
                }
                starting.topics.retain(|topic| topic != name);
                // A topic that does not exist yet is waited for, as in Java.
                if !missing {
                    failed.push(id);
                }
            }
        }
        for id in failed {
            if let Some(member) = self.consumers.remove(id) {
                if let Some(starting) = member.starting {
                    let error = error.clone().of_group(&member.consumer.rules().group);
                    done(out, starting.ticket, Err(error));
                }
                self.heartbeats.change();
            }
        }
        let known = self.routes.find(name).map(|id| self.routes.topic(id));
        if wanted && !known.is_some_and(|topic| topic.known) {
            let unknown = &mut self.consumers.unknown;
            let (at, turns) = unknown.entry(name.clone()).or_insert((0, 0));
            *turns += 1;
            let every = self.settings.poll_name_server_interval_ms;
            let pause = if *turns > UNKNOWN_TURNS {
                every
            } else {
                UNKNOWN_MS.min(every)
            };
            *at = now.at + pause;
        }
        self.starts_on(now, out);
    }

    /// A broker has heard of the consumers.
    pub(super) fn consumers_announced(&mut self, now: Now, out: &mut Vec<Output>) {
        for member in self.consumers.list.values_mut() {
            member.consumer.announced(now.at);
            if let Some(starting) = &mut member.starting {
                starting.announced = true;
            }
        }
        // Brokers make retry topics for those they hear of.
        let mut retry = Vec::new();
        for member in self.consumers.list.values() {
            let topics = member.consumer.topics();
            retry.extend(
                topics
                    .filter(|topic| topic.starts_with(names::RETRY_PREFIX))
                    .cloned(),
            );
        }
        for topic in retry {
            if self.read_queues(&topic).is_none() {
                if let Some(id) = self.routes.topic_id(&topic) {
                    self.doubt_route(now, id, out);
                }
            }
        }
        self.starts_on(now, out);
    }

    /// Ends the start of consumers of which all is known.
    fn starts_on(&mut self, now: Now, out: &mut Vec<Output>) {
        let mut brokers = self.routes.brokers();
        let reachable = brokers.any(|broker| !broker.addresses.is_empty());
        for member in self.consumers.list.values_mut() {
            let Some(starting) = &member.starting else {
                continue;
            };
            let heard = starting.announced || !reachable;
            let over = starting.deadline <= now.at;
            let ready = starting.topics.is_empty() && !member.consumer.is_loading();
            if (ready && heard) || over {
                done(out, starting.ticket, Ok(Answer::Nothing));
                member.starting = None;
            }
        }
    }

    /// The answer to a question of a consumer.
    pub(super) fn consumer_answered(
        &mut self,
        now: Now,
        id: ConsumerId,
        call: u64,
        answer: Result<Response>,
    ) {
        if let Some(member) = self.consumers.list.get_mut(&id) {
            member.consumer.answered(now.at, call, answer);
        }
    }

    /// Does what consumers want done, and what is due of them.
    pub(super) fn pass_consumers(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.consumers.list.is_empty() && self.consumers.fetches.is_empty() {
            return;
        }
        self.consumers_due(now, out);
        loop {
            let mut some = self.inner_sends_ended(now, out);
            let members = self.consumers.list.iter();
            let busy = members.filter(|(_, member)| member.consumer.has_work(now.at));
            let busy: Vec<ConsumerId> = busy.map(|(&id, _)| id).collect();
            for id in busy {
                let Some(member) = self.consumers.list.get_mut(&id) else {
                    continue;
                };
                if member.consumer.next_wake().is_some_and(|at| at <= now.at) {
                    member.consumer.tick(now.at);
                }
                for effect in member.consumer.take_effects() {
                    some = true;
                    self.effect(now, id, effect, out);
                }
            }
            if !some {
                return;
            }
        }
    }

    fn consumers_due(&mut self, now: Now, out: &mut Vec<Output>) {
        let fetches = &mut self.consumers.fetches;
        fetches.retain(|fetch| {
            let over = fetch.deadline <= now.at;
            if over {
                let error = Error::new(ErrorKind::TopicNotFound).of_topic(&fetch.topic);
                done(out, fetch.ticket, Err(error));
            }
            !over
        });
        self.watches_due(now, out);
        let unknown = self.consumers.unknown.iter();
        let due = unknown.filter(|(_, (at, _))| *at <= now.at);
        let due: Vec<Arc<str>> = due.map(|(topic, _)| topic.clone()).collect();
        for topic in due {
            // Entered again if there still is none.
            if let Some((at, _)) = self.consumers.unknown.get_mut(&topic) {
                *at = u64::MAX;
            }
            let mut members = self.consumers.list.values();
            let wanted = members.any(|member| member.consumer.topics().any(|t| *t == topic));
            if wanted {
                self.want_route_of(now, &topic, out);
            } else {
                self.consumers.unknown.remove(&topic);
            }
        }
        self.starts_on(now, out);
    }

    /// Sends of the inner producer that have ended are no one's business outside.
    fn inner_sends_ended(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        if self.consumers.sends.is_empty() {
            return false;
        }
        let mut ended = Vec::new();
        out.retain_mut(|output| match output {
            Output::Done { ticket, result } if ticket.0 & INNER_TICKET == INNER_TICKET => {
                let result = std::mem::replace(result, Ok(Answer::Nothing));
                ended.push((*ticket, result));
                false
            }
            _ => true,
        });
        let some = !ended.is_empty();
        for (ticket, result) in ended {
            if let Some((id, call)) = self.consumers.sends.remove(&ticket) {
                self.consumer_answered(now, id, call, result.map(|_| Response::ok()));
            }
        }
        some
    }
}
