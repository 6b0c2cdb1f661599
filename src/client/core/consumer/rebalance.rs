//! Which queues come and go (`RebalanceImpl`), and their locks (`ProcessQueue.isLocked`).
//!
//! Every member asks a broker of each topic who the members are, and computes its share.
//! It is asked every 20 s, when a broker says that members changed, and when a route
//! did. A member that does not find itself in the list is not known to that broker yet:
//! it announces itself and asks again before it believes it.
//!
//! An orderly consumer works on a queue only while it holds the broker's lock of it. A
//! lock counts from when it was asked for, half as long here as it does at the broker,
//! so no two members can think that they have it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

use super::allocate::queue_order;
use super::leave::Leaving;
use super::offsets::Commit;
use super::process_queue::ProcessQueue;
use super::pull::Pulling;
use super::{
    Ask, Consumer, Effect, Life, MessageQueue, Notice, Owned, Phase, Request, Response, Target,
    Timer, Topic, is_retry,
};
use crate::client::error::{Error, ErrorKind};
use crate::wire::body::json;
use crate::wire::codes::{request, response};

/// How often locks are renewed, ms (`rocketmq.client.rebalance.lockInterval`).
pub(super) const LOCK_RENEW_MS: u64 = 20_000;
/// How long a lock counts without being renewed, ms; at the broker it is 60 s
/// (`rocketmq.client.rebalance.lockMaxLiveTime`).
pub(super) const LOCK_LIVE_MS: u64 = 30_000;
/// When a lock that another member has is asked for again, ms.
const LOCK_AGAIN_MS: u64 = 500;
/// When a question that failed is asked again, ms.
const ASK_AGAIN_MS: u64 = 1000;
/// When a member that is not in the list looks again, ms: at first, and the longest.
const MISSED_MS: (u64, u64) = (100, 1000);
/// How often it looks before it believes it.
const MISSES_MAX: u32 = 2;
/// Most members that are taken from an answer.
const MEMBERS_MAX: usize = 10_000;
/// Longest name of a member that is taken from an answer, bytes.
const MEMBER_BYTES_MAX: usize = 1024;

/// After so many rounds in which no topic shows another member with the same client id, the
/// next one is told again.
const TWINS_ROUNDS: usize = 10;

#[derive(Deserialize)]
struct Members {
    #[serde(rename = "consumerIdList", default)]
    ids: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Locked {
    #[serde(rename = "lockOKMQSet", default)]
    queues: Option<Vec<json::MessageQueue>>,
}

impl Consumer {
    /// The queues of a topic, as its route has them; `None` while no route is known.
    pub fn routed(&mut self, now: u64, topic: &Arc<str>, queues: Option<Vec<MessageQueue>>) {
        let (Some(known), Some(mut queues)) = (self.topics.get_mut(topic), queues) else {
            return;
        };
        queues.sort_by(queue_order);
        queues.dedup();
        if known.queues.as_ref() != Some(&queues) {
            known.queues = Some(queues);
            self.rebalance_topic(now, topic);
        }
    }

    /// A broker said that the members of the group are others now.
    pub fn members_changed(&mut self, now: u64) {
        self.rebalance_topics(now);
    }

    /// A broker has heard of this consumer: who waited to be known to it looks again.
    pub fn announced(&mut self, now: u64) {
        let mut missed = Vec::new();
        for (name, topic) in &mut self.topics {
            // Who was told often enough, and still knows nothing of it, is asked by the clock.
            if std::mem::take(&mut topic.announcing) && topic.misses <= MISSES_MAX {
                missed.push(name.clone());
            }
        }
        for topic in missed {
            self.rebalance_topic(now, &topic);
        }
    }

    pub(super) fn rebalance_all(&mut self, now: u64) {
        if self.life != Life::Running {
            return;
        }
        self.set(now + self.rules.rebalance_ms, Timer::Rebalance);
        self.rebalance_topics(now);
    }

    fn rebalance_topics(&mut self, now: u64) {
        let topics: Vec<_> = self.topics.keys().cloned().collect();
        for topic in topics {
            self.rebalance_topic(now, &topic);
        }
    }

    pub(super) fn rebalance_topic(&mut self, now: u64, name: &Arc<str>) {
        if self.life != Life::Running || self.assigned.is_some() {
            return;
        }
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        let Some(queues) = &topic.queues else {
            return;
        };
        if self.rules.broadcast {
            let all = queues.clone();
            self.assign_topic(now, name, all);
            return;
        }
        if topic.asking {
            topic.again = true;
            return;
        }
        topic.asking = true;
        let request = Request::new(request::GET_CONSUMER_LIST_BY_GROUP)
            .with("consumerGroup", &self.rules.group);
        let ask = Ask::Members {
            topic: name.clone(),
        };
        let timeout_ms = self.rules.api_timeout_ms;
        self.ask(ask, Target::AnyOf(name.clone()), request, timeout_ms);
    }

    pub(super) fn members_answered(
        &mut self,
        now: u64,
        name: &Arc<str>,
        answer: Result<Response, Error>,
    ) {
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        topic.asking = false;
        let again = std::mem::take(&mut topic.again);
        if self.life != Life::Running {
            return;
        }
        match read_members(answer) {
            Ok(members) => {
                self.share_out(now, name, &members);
                if again {
                    self.rebalance_topic(now, name);
                }
            }
            Err(error) => {
                // Who is there is not known: what is owned stays, and it is asked again.
                let retry = is_retry(name);
                let missed = error.code() == Some(response::SYSTEM_ERROR);
                if missed {
                    // The broker knows no member at all, not even this one.
                    self.missed(now, name);
                } else {
                    let at = now + ASK_AGAIN_MS;
                    self.set_single(at, Timer::RebalanceTopic(name.clone()));
                    if !retry {
                        self.fault(error.of_topic(name));
                    }
                }
            }
        }
    }

    fn missed(&mut self, now: u64, name: &Arc<str>) {
        if let Some(topic) = self.topics.get_mut(name) {
            let delay = (MISSED_MS.0 << topic.misses.min(8)).min(MISSED_MS.1);
            topic.misses = topic.misses.saturating_add(1);
            topic.announcing = true;
            self.set_single(now + delay, Timer::RebalanceTopic(name.clone()));
            self.effects.push(Effect::Heartbeat);
        }
    }

    fn share_out(&mut self, now: u64, name: &Arc<str>, members: &[String]) {
        let me = self.rules.client_id.clone();
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        if !members.iter().any(|member| **member == *me) {
            let believed = topic.misses >= MISSES_MAX;
            self.missed(now, name);
            if !believed {
                return;
            }
        } else {
            topic.misses = 0;
            topic.members = members.len();
            self.look_for_twins(members);
        }
        let Some(queues) = self
            .topics
            .get(name)
            .and_then(|topic| topic.queues.as_ref())
        else {
            return;
        };
        let mine = self.rules.allocation.allocate(&me, queues, members);
        self.assign_topic(now, name, mine);
    }

    /// Tells of another member with the same client id: both get the same queues.
    fn look_for_twins(&mut self, members: &[String]) {
        let me = &self.rules.client_id;
        let same = members.iter().filter(|member| ***member == **me).count();
        if same > 1 {
            if self.twins_seen.replace(0).is_none() {
                let what = format!(
                    "{same} members have the client id {me}: they get the same queues, and every \
                     message of those so often, unless a broker still has a connection of a \
                     member that is gone; give each client an instance_name of its own"
                );
                self.fault(ErrorKind::State { what }.into());
            }
        } else if let Some(answers) = &mut self.twins_seen {
            // Brokers may not agree: one that knows of no twins is not the last word.
            *answers += 1;
            if *answers >= TWINS_ROUNDS * self.topics.len() {
                self.twins_seen = None;
            }
        }
    }

    /// Makes the queues of a topic those in `mine`.
    fn assign_topic(&mut self, now: u64, name: &Arc<str>, mine: Vec<MessageQueue>) {
        let wanted: BTreeSet<_> = mine.iter().cloned().collect();
        let of_topic = self.owned.keys().filter(|queue| queue.topic == *name);
        let known: Vec<_> = of_topic.cloned().collect();
        let changed = self.take_over(now, &known, &wanted);
        if changed {
            let all = self.topics.get(name).and_then(|topic| topic.queues.clone());
            self.effects.push(Effect::Notice(Notice::Assigned {
                topic: name.clone(),
                all: all.unwrap_or_default(),
                mine,
            }));
        }
    }

    /// Makes the queues among `known` and `wanted` those in `wanted`.
    pub(super) fn take_over(
        &mut self,
        now: u64,
        known: &[MessageQueue],
        wanted: &BTreeSet<MessageQueue>,
    ) -> bool {
        let mut changed = false;
        for queue in known {
            if !wanted.contains(queue) {
                changed |= self.leave(now, queue);
            }
        }
        let mut brokers = BTreeSet::new();
        for queue in wanted {
            match self.owned.get(queue) {
                Some(_) => self.want_again(now, queue),
                None => {
                    self.gain(now, queue);
                    brokers.insert(queue.broker_name.clone());
                    changed = true;
                }
            }
        }
        if self.rules.locks() {
            for broker in brokers {
                self.lock_waiting(now, &broker);
            }
        }
        changed
    }

    /// Takes a queue; it begins with its lock where it needs one.
    pub(super) fn gain(&mut self, now: u64, queue: &MessageQueue) {
        let epoch = self.new_epoch();
        let own = Owned {
            phase: Phase::Locking,
            line: ProcessQueue::new(0),
            epoch,
            born: epoch,
            in_hand: 0,
            returning: 0,
            pulling: Pulling::default(),
            broker_id: 0,
            lock_asked: false,
            locked_until: 0,
            in_line: false,
            suspended_until: 0,
            paused: false,
            commit: Commit::default(),
            last_pull: 0,
            last_consume: now,
            wanted_again: false,
        };
        self.owned.insert(queue.clone(), own);
        if !self.rules.locks() {
            self.begin(now, queue);
        }
    }

    /// Asks for the locks that are waited for at a broker.
    pub(super) fn lock_waiting(&mut self, now: u64, broker: &Arc<str>) {
        let waiting = self.owned.iter().filter(|(queue, own)| {
            let waits = matches!(own.phase, Phase::Locking) && !own.lock_asked;
            queue.broker_name == *broker && waits
        });
        let queues: Vec<_> = waiting.map(|(queue, _)| queue.clone()).collect();
        self.lock(now, broker, queues);
    }

    /// Renews all locks, and asks for those that are missing.
    pub(super) fn renew_locks(&mut self, now: u64) {
        self.set(now + LOCK_RENEW_MS, Timer::RenewLocks);
        let mut brokers: BTreeMap<Arc<str>, Vec<MessageQueue>> = BTreeMap::new();
        for (queue, own) in &self.owned {
            // What is not stored before the lock is given back is stored under it.
            let holds = !matches!(own.phase, Phase::Leaving(Leaving::Unlocking));
            if holds {
                let queues = brokers.entry(queue.broker_name.clone()).or_default();
                queues.push(queue.clone());
            }
        }
        for (broker, queues) in brokers {
            self.lock(now, &broker, queues);
        }
    }

    fn lock(&mut self, now: u64, broker: &Arc<str>, queues: Vec<MessageQueue>) {
        if queues.is_empty() || !matches!(self.life, Life::Running | Life::Stopping) {
            return;
        }
        for queue in &queues {
            if let Some(own) = self.owned.get_mut(queue) {
                own.lock_asked = true;
            }
        }
        let body = self.lock_body(&queues);
        let request = Request::new(request::LOCK_BATCH_MQ).with_body(body);
        let ask = Ask::Lock {
            broker: broker.clone(),
            queues,
            sent: now,
        };
        let to = Target::Broker {
            name: broker.clone(),
            id: 0,
        };
        let timeout_ms = self.rules.api_timeout_ms;
        self.ask(ask, to, request, timeout_ms);
    }

    /// The body of requests to lock and to unlock (`LockBatchRequestBody`).
    pub(super) fn lock_body(&self, queues: &[MessageQueue]) -> Vec<u8> {
        let queues: Vec<_> = queues.iter().map(wire_queue).collect();
        json::encode(&serde_json::json!({
            "clientId": &*self.rules.client_id,
            "consumerGroup": &*self.rules.group,
            "mqSet": queues,
            "onlyThisBroker": false,
        }))
    }

    pub(super) fn lock_answered(
        &mut self,
        now: u64,
        broker: &Arc<str>,
        queues: &[MessageQueue],
        sent: u64,
        answer: Result<Response, Error>,
    ) {
        for queue in queues {
            if let Some(own) = self.owned.get_mut(queue) {
                own.lock_asked = false;
            }
        }
        let locked = match read_locked(answer) {
            Ok(locked) => locked,
            Err(error) => {
                let place = crate::client::error::Place {
                    broker_name: Some(broker.clone()),
                    ..Default::default()
                };
                self.fault(error.at(place));
                self.set_single(now + ASK_AGAIN_MS, Timer::LockAgain(broker.clone()));
                return;
            }
        };
        let mut refused = false;
        for queue in queues {
            let Some(own) = self.owned.get_mut(queue) else {
                continue;
            };
            let granted = locked.contains(queue);
            if granted {
                own.locked_until = own.locked_until.max(sent + LOCK_LIVE_MS);
            }
            match own.phase {
                Phase::Locking if granted && own.locked_until > now => self.begin(now, queue),
                Phase::Locking => refused = true,
                Phase::Starting(_) | Phase::Active if !granted => {
                    self.lock_lost(now, queue);
                    refused = true;
                }
                // Whoever has it now goes on from what is stored.
                Phase::Leaving(_) if !granted => self.forget(now, queue),
                Phase::Active => {
                    self.line_up(now, queue);
                }
                _ => {}
            }
        }
        if refused {
            self.set_single(now + LOCK_AGAIN_MS, Timer::LockAgain(broker.clone()));
        }
        self.hand_out(now);
    }

    /// The lock of a queue does not count any more: another member may have it.
    pub(super) fn lock_lost(&mut self, now: u64, queue: &MessageQueue) {
        let epoch = self.new_epoch();
        self.with_line(queue, |own| {
            own.epoch = epoch;
            own.locked_until = 0;
            own.line.reset(0);
            own.phase = Phase::Locking;
            own.pulling = Pulling::default();
            // What is on its way to the retry topic settles nothing here any more.
            own.returning = 0;
            let waiters = std::mem::take(&mut own.commit.waiters);
            own.commit = Commit {
                waiters,
                ..Commit::default()
            };
        });
        self.set_single(now, Timer::LockAgain(queue.broker_name.clone()));
    }
}

impl Topic {
    /// Whether others may have had the queues of this topic a moment ago.
    pub(super) fn has_others(&self) -> bool {
        self.members > 1
    }
}

fn read_members(answer: Result<Response, Error>) -> Result<Vec<String>, Error> {
    let response = answer?;
    if response.code != 0 {
        return Err(Error::new(ErrorKind::Answered {
            code: response.code,
            remark: response.remark.unwrap_or_default(),
        }));
    }
    let bad = |what: String| Error::new(ErrorKind::BadAnswer { what });
    let members: Members =
        json::parse(&response.body).map_err(|error| bad(format!("members: {error}")))?;
    let ids = members.ids.unwrap_or_default();
    if ids.len() > MEMBERS_MAX {
        let count = ids.len();
        return Err(bad(format!(
            "{count} members, at most {MEMBERS_MAX} are taken"
        )));
    }
    if ids.iter().any(|id| id.len() > MEMBER_BYTES_MAX) {
        return Err(bad(format!("a member of over {MEMBER_BYTES_MAX} bytes")));
    }
    Ok(ids)
}

fn read_locked(answer: Result<Response, Error>) -> Result<BTreeSet<MessageQueue>, Error> {
    let response = answer?;
    if response.code != 0 {
        return Err(Error::new(ErrorKind::Answered {
            code: response.code,
            remark: response.remark.unwrap_or_default(),
        }));
    }
    let locked: Locked = json::parse(&response.body).map_err(|error| {
        let what = format!("locked queues: {error}");
        Error::new(ErrorKind::BadAnswer { what })
    })?;
    let queues = locked.queues.unwrap_or_default().into_iter();
    Ok(queues
        .map(|queue| MessageQueue::new(queue.topic, queue.broker_name, queue.queue_id))
        .collect())
}

/// A queue as bodies name it.
pub(super) fn wire_queue(queue: &MessageQueue) -> json::MessageQueue {
    json::MessageQueue {
        broker_name: queue.broker_name.to_string(),
        queue_id: queue.queue_id,
        topic: queue.topic.to_string(),
    }
}
