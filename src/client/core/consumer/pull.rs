//! When a queue is pulled, and what an answer means (`DefaultMQPushConsumerImpl.pullMessage`,
//! `PullAPIWrapper`).
//!
//! One pull of a queue is on its way at any time. The broker holds it for 15 s where it
//! has nothing, so the next one follows at once; where a threshold is reached it waits
//! until something is consumed. A broker that answers at once that it has nothing is
//! asked less and less often, up to once a second.

use super::found::{self, Found, place};
use super::process_queue::{Full, Thresholds};
use super::{
    AskQueue, Consumer, Effect, Kind, Life, MessageQueue, Phase, Request, Response, Target, Timer,
    answered, at_queue, is_retry, number,
};
use crate::client::error::{Error, ErrorKind};
use crate::wire::body::heartbeat::{SUB_ALL, SubscriptionData, TYPE_TAG};
use crate::wire::codes::{request, response};
use crate::wire::pull_header::pull_flag;

/// Pause after an error, ms (`pullTimeDelayMillsWhenException`).
const ERROR_MS: u64 = 3000;
/// Pause when the broker does not know the subscription yet, or not its newest form, ms.
const SUBSCRIPTION_MS: u64 = 1000;
/// Pause when the broker asks for one, ms (`PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL`).
const BROKER_FLOW_MS: u64 = 20;
/// Pause of a queue whose offsets are far apart, ms
/// (`PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL`).
const SPAN_MS: u64 = 50;
/// An answer without messages within this time, ms, was not held.
const QUICK_MS: u64 = 100;
/// So many of those are no reason to slow down: a wake-up may have come for nothing.
const QUICK_MAX: u32 = 3;
/// First and longest pause of a queue whose broker does not hold pulls, ms.
const SLOW_MS: (u64, u64) = (10, 1000);
/// Flow control of the broker (`FLOW_CONTROL`).
const FLOW_CONTROL: i32 = 215;
/// The pull is one of a pull consumer (`PullSysFlag.FLAG_LITE_PULL_MESSAGE`).
const LITE_PULL: i32 = 0x10;

/// What is on its way for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pulling {
    /// Being asked for.
    pub asked: bool,
    /// Not before then, ms.
    pub not_before: u64,
    /// Nothing, answered at once, so many times in a row.
    pub quick: u32,
    /// Waits for something to be consumed.
    pub blocked: bool,
    /// Has waited because its offsets are far apart.
    pub slowed: bool,
}

impl Consumer {
    pub(super) fn pull_due(&mut self, now: u64, queue: &MessageQueue) {
        self.pull(now, queue);
    }

    /// Pulls a queue, unless something is against it.
    pub(super) fn pull(&mut self, now: u64, queue: &MessageQueue) {
        if self.life != Life::Running || self.suspended {
            return;
        }
        let limits = self.limits(&queue.topic);
        let over_all = self
            .rules
            .messages_of_all
            .is_some_and(|max| self.held > max);
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        if !matches!(own.phase, Phase::Active) || own.pulling.asked || own.paused {
            return;
        }
        if own.pulling.not_before > now {
            return;
        }
        match own.line.full(&limits) {
            // As in Java: such a queue goes on slowly, or one slow message would stop it.
            Some(Full::Span) => {
                let held = own.line.bounds().map_or(0, |(first, last)| last - first);
                let wide = limits.span.is_some_and(|limit| held > limit);
                if wide || !own.pulling.slowed {
                    own.pulling.slowed = true;
                    own.pulling.not_before = now + SPAN_MS;
                    self.counts.flow_control += 1;
                    self.set(now + SPAN_MS, Timer::Pull(queue.clone()));
                    return;
                }
            }
            Some(Full::Count | Full::Bytes) => {
                own.pulling.blocked = true;
                self.counts.flow_control += 1;
                return;
            }
            None if over_all => {
                own.pulling.blocked = true;
                self.counts.flow_control += 1;
                return;
            }
            None => {}
        }
        own.pulling.blocked = false;
        own.pulling.slowed = false;
        own.pulling.asked = true;
        own.last_pull = now;
        let (offset, commit) = (own.line.next_offset(), own.commit.value);
        let id = own.broker_id;
        let Some(request) = self.pull_request(queue, offset, commit, id) else {
            if let Some(own) = self.owned.get_mut(queue) {
                own.pulling.asked = false;
            }
            self.pull_later(now, queue, ERROR_MS);
            return;
        };
        let Some(own) = self.owned.get(queue) else {
            return;
        };
        let ask = super::Ask::Queue {
            queue: queue.clone(),
            epoch: own.epoch,
            what: AskQueue::Pull { offset, sent: now },
        };
        let to = Target::Broker {
            name: queue.broker_name.clone(),
            id,
        };
        let timeout_ms = self.rules.pull_timeout_ms;
        self.ask(ask, to, request, timeout_ms);
    }

    /// What may be held of one queue of a topic.
    fn limits(&self, topic: &str) -> Thresholds {
        let mut limits = self.rules.thresholds;
        let of_topic = || {
            let queues = self.owned.keys().filter(|queue| &*queue.topic == topic);
            queues.count().max(1)
        };
        if let Some(messages) = self.rules.topic_messages {
            limits.messages = (messages / of_topic()).max(1);
        }
        if let Some(bytes) = self.rules.topic_bytes {
            limits.bytes = (bytes / of_topic()).max(1);
        }
        limits
    }

    fn pull_request(
        &self,
        queue: &MessageQueue,
        offset: i64,
        commit: i64,
        broker_id: u64,
    ) -> Option<Request> {
        let rules = &self.rules;
        let subscription = self.subscription(&queue.topic)?;
        let polled = rules.kind == Kind::Polled;
        let inline = rules.inline_subscription || polled;
        let mut flags = pull_flag::SUSPEND;
        // A replica keeps no offsets.
        let commits = commit > 0 && !rules.broadcast && !polled && broker_id == 0;
        if commits {
            flags |= pull_flag::COMMIT_OFFSET;
        }
        if inline {
            flags |= pull_flag::SUBSCRIPTION;
        }
        let (mut code, mut version) = (request::PULL_MESSAGE, subscription.sub_version);
        if polled {
            code = request::LITE_PULL_MESSAGE;
            flags |= LITE_PULL;
            if subscription.is_tag_type() {
                version = 0;
            }
        }
        let mut request = super::about(code, queue)
            .with("consumerGroup", &rules.group)
            .with("queueOffset", offset)
            .with("maxMsgNums", rules.pull_batch)
            .with("sysFlag", flags)
            .with("commitOffset", if commits { commit } else { 0 })
            .with("suspendTimeoutMillis", rules.broker_suspend_ms)
            .with("subVersion", version)
            .with("maxMsgBytes", rules.pull_bytes)
            .with("expressionType", &subscription.expression_type);
        if inline {
            request = request.with("subscription", &subscription.sub_string);
        }
        Some(request)
    }

    /// What is wanted of a topic; everything of one whose queues were named.
    fn subscription(&self, topic: &str) -> Option<SubscriptionData> {
        match self.topics.get(topic) {
            Some(topic) => Some(topic.subscription.clone()),
            None if self.assigned.is_some() => {
                Some(SubscriptionData::new(topic, SUB_ALL, TYPE_TAG, 0))
            }
            None => None,
        }
    }

    fn pull_later(&mut self, now: u64, queue: &MessageQueue, delay_ms: u64) {
        if let Some(own) = self.owned.get_mut(queue) {
            own.pulling.not_before = now + delay_ms;
            if delay_ms > 0 {
                self.set(now + delay_ms, Timer::Pull(queue.clone()));
            }
        }
        if delay_ms == 0 {
            self.pull(now, queue);
        }
    }

    pub(super) fn pull_answered(
        &mut self,
        now: u64,
        queue: &MessageQueue,
        offset: i64,
        sent: u64,
        answer: Result<Response, Error>,
    ) {
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        own.pulling.asked = false;
        if !matches!(own.phase, Phase::Active) {
            return;
        }
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                own.broker_id = 0;
                self.pull_failed(now, queue, at_queue(error, queue), ERROR_MS);
                return;
            }
        };
        let suggested = number(&response, "suggestWhichBrokerId");
        let next = number(&response, "nextBeginOffset");
        match response.code {
            0
            | response::PULL_NOT_FOUND
            | response::PULL_RETRY_IMMEDIATELY
            | response::PULL_OFFSET_MOVED => {
                own.broker_id = suggested.and_then(|id| id.try_into().ok()).unwrap_or(0);
            }
            _ => own.broker_id = 0,
        }
        match response.code {
            0 => self.found(now, queue, (offset, sent), next, response),
            response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY => {
                // Beyond the end there is nothing that could have been passed over.
                let max = number(&response, "maxOffset");
                let next = next
                    .unwrap_or(offset)
                    .min(max.unwrap_or(offset).max(offset));
                let quick = now.saturating_sub(sent) < QUICK_MS && next <= offset;
                own.line.advance(next);
                own.pulling.quick = if quick { own.pulling.quick + 1 } else { 0 };
                let delay = pause(own.pulling.quick);
                self.consumed_up_to(queue);
                self.pull_later(now, queue, delay);
            }
            response::PULL_OFFSET_MOVED => self.moved(now, queue, offset, next),
            response::SUBSCRIPTION_NOT_EXIST
            | response::SUBSCRIPTION_NOT_LATEST
            | response::SUBSCRIPTION_PARSE_FAILED => {
                self.effects.push(Effect::Heartbeat);
                let error = answered(&response, queue);
                if response.code == response::SUBSCRIPTION_PARSE_FAILED {
                    self.pull_failed(now, queue, error, ERROR_MS);
                } else {
                    self.pull_later(now, queue, SUBSCRIPTION_MS);
                }
            }
            FLOW_CONTROL => self.pull_later(now, queue, BROKER_FLOW_MS),
            code => {
                if matches!(
                    code,
                    response::TOPIC_NOT_EXIST | response::INVALID_PARAMETER
                ) {
                    self.effects.push(Effect::Route(queue.topic.clone()));
                }
                self.pull_failed(now, queue, answered(&response, queue), ERROR_MS);
            }
        }
    }

    fn pull_failed(&mut self, now: u64, queue: &MessageQueue, error: Error, delay_ms: u64) {
        if !is_retry(&queue.topic) {
            self.fault(error);
        }
        self.pull_later(now, queue, delay_ms);
    }

    /// Messages came.
    fn found(
        &mut self,
        now: u64,
        queue: &MessageQueue,
        (offset, sent): (i64, u64),
        next: Option<i64>,
        response: Response,
    ) {
        let shifted = number(&response, "offsetDelta").unwrap_or(0);
        let tags = match self.subscription(&queue.topic) {
            Some(data) if data.is_tag_type() && !data.class_filter_mode => data.tags_set,
            _ => Default::default(),
        };
        let read = found::read(response.body, queue, offset, next, shifted);
        let Found {
            mut messages,
            next,
            fault,
            batch_faults,
        } = read;
        // The broker compares hashes, which may be the same for other tags, and those of a
        // batch as a whole.
        if !tags.is_empty() {
            messages.retain(|message| message.tag().is_some_and(|tag| tags.contains(tag)));
        }
        let came = !messages.is_empty();
        let took = now.saturating_sub(sent);
        let rates = self.rates_of(now, &queue.topic);
        rates.pulled(now, took, messages.len());
        self.with_line(queue, |own| {
            own.pulling.quick = 0;
            for message in messages {
                let bytes = message.body().len();
                own.line.put(place(&message), bytes, message);
            }
            own.line.advance(next);
        });
        self.consumed_up_to(queue);
        if came {
            self.line_up(now, queue);
            self.hand_out(now);
        }
        for what in batch_faults {
            self.fault(at_queue(ErrorKind::InnerBatch { what }.into(), queue));
        }
        match fault {
            Some(what) => {
                self.counts.bad_answers += 1;
                let error = at_queue(Error::new(ErrorKind::BadAnswer { what }), queue);
                self.pull_failed(now, queue, error, ERROR_MS);
            }
            None => {
                let pause = if came { self.rules.pull_interval_ms } else { 0 };
                self.pull_later(now, queue, pause);
            }
        }
    }

    /// The queue does not have the offset that was asked for.
    fn moved(&mut self, now: u64, queue: &MessageQueue, offset: i64, next: Option<i64>) {
        let Some(next) = next.filter(|&next| next >= 0) else {
            let what = "no place to go on at in the answer".to_owned();
            let error = at_queue(Error::new(ErrorKind::BadAnswer { what }), queue);
            self.counts.bad_answers += 1;
            self.pull_failed(now, queue, error, ERROR_MS);
            return;
        };
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        own.pulling.quick += 1;
        let delay = pause(own.pulling.quick);
        if next >= offset {
            // Messages were deleted; what was pulled before is consumed as it would be.
            own.line.advance(next);
            self.consumed_up_to(queue);
            if self.rules.kind == Kind::Polled && self.rules.auto_commit {
                self.commit_polled_if_idle(queue);
            }
        } else {
            // The broker lost what was pulled, or the topic is another one now.
            self.go_on_at(now, queue, next);
        }
        self.commit_soon(queue);
        self.pull_later(now, queue, delay);
    }

    /// Forgets what was pulled of a queue, and goes on elsewhere. What listeners still have
    /// of it is void.
    pub(super) fn go_on_at(&mut self, now: u64, queue: &MessageQueue, offset: i64) {
        let epoch = self.new_epoch();
        self.with_line(queue, |own| {
            let quick = own.pulling.quick;
            own.epoch = epoch;
            own.line.reset(offset);
            own.pulling = Pulling {
                quick,
                ..Pulling::default()
            };
            own.commit.asked = None;
            own.commit.value = offset;
            // Who waits for a commit waits for the next one.
            own.commit.wanted &= !own.commit.waiters.is_empty();
            own.returning = 0;
        });
        self.unblock_all(now);
    }

    /// Tells a broker how far a queue is consumed, where that can be told.
    pub(super) fn commit_soon(&mut self, queue: &MessageQueue) {
        let due = self.owned.get(queue).is_some_and(|own| {
            own.commit.asked.is_none() && own.commit.acked != Some(own.commit.value)
        });
        if due && !self.rules.broadcast && self.may_store(queue) {
            self.commit(queue);
        }
    }

    /// Pulls a queue again that waited for something to be consumed.
    pub(super) fn unblock(&mut self, now: u64, queue: &MessageQueue) {
        if self.owned.get(queue).is_some_and(|own| own.pulling.blocked) {
            self.pull(now, queue);
        }
        self.unblock_all(now);
    }

    /// Pulls the queues again that waited for less to be held of all.
    pub(super) fn unblock_all(&mut self, now: u64) {
        let Some(max) = self.rules.messages_of_all else {
            return;
        };
        if self.held <= max {
            let blocked = self.owned.iter().filter(|(_, own)| own.pulling.blocked);
            let blocked: Vec<_> = blocked.map(|(queue, _)| queue.clone()).collect();
            for queue in blocked {
                self.pull(now, &queue);
            }
        }
    }
}

/// Pause after `quick` answers in a row that should have been held.
fn pause(quick: u32) -> u64 {
    match quick.checked_sub(QUICK_MAX) {
        None | Some(0) => 0,
        Some(more) => (SLOW_MS.0 << (more - 1).min(10)).min(SLOW_MS.1),
    }
}
