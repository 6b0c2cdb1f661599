//! The pull consumer: poll, seek, pause, commit (`DefaultLitePullConsumerImpl`).
//!
//! What is polled is consumed as far as holding it goes; what is committed is what was
//! polled before the last poll, or what the application says. Queues come by rebalance,
//! or are named by the application.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::found::place;
use super::{
    Ask, Consumer, Effect, Kind, Life, MessageQueue, Phase, ReceivedMessage, Request, Response,
    Timer, about, answered, at_queue, is_retry, master, number, successful,
};
use crate::client::core::io::{Answer, ConsumerCall, Filter, OffsetOf, Polled, SeekTo, Ticket};
use crate::client::error::{Error, ErrorKind};
use crate::wire::body::heartbeat::{SubscriptionData, TYPE_TAG};
use crate::wire::codes::{request, response};

/// Most calls of poll that wait at a time.
const POLLS_MAX: usize = 10_000;

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Polls {
    /// Each with the time until which it waits, ms.
    waiting: VecDeque<(Ticket, u64)>,
    /// Commits of several queues: how many are left, and what went wrong.
    commits: HashMap<Ticket, (usize, Option<Error>)>,
    next_commit: u64,
}

/// A question for a caller.
#[derive(Debug)]
pub(super) struct Lookup {
    ticket: Ticket,
    queue: MessageQueue,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Offset,
    Committed,
    /// To go on there.
    Seek,
    /// To go on at this offset if it is not below the first.
    SeekMin(i64),
    /// And not above the end; the first is this one.
    SeekMax(i64, i64),
}

/// What is wanted of a topic, as heartbeats say it. `version`: wall clock, ms.
pub fn subscription(topic: &str, filter: &Filter, version: i64) -> SubscriptionData {
    match filter {
        Filter::Tags(tags) => SubscriptionData::new(topic, tags, TYPE_TAG, version),
        Filter::Sql(sql) => SubscriptionData::new(topic, sql, "SQL92", version),
    }
}

impl Consumer {
    /// Does what the application asks for; `wall`: ms since 1970, stamped on subscriptions.
    /// Each ends with one [`Effect::Done`].
    pub fn call(&mut self, now: u64, wall: i64, ticket: Ticket, call: ConsumerCall) {
        if matches!(self.life, Life::Stopping | Life::Stopped) {
            self.done(ticket, Err(ErrorKind::NotRunning.into()));
            return;
        }
        let nothing = Ok(Answer::Nothing);
        match call {
            ConsumerCall::Subscribe { topic, filter } => {
                if self.assigned.is_some() {
                    let what = "queues are assigned; topics cannot be subscribed as well";
                    self.done(ticket, Err(state(what)));
                    return;
                }
                self.subscribe(now, &topic, subscription(&topic, &filter, wall));
                self.done(ticket, nothing);
            }
            ConsumerCall::Unsubscribe { topic } => {
                self.unsubscribe(now, &topic);
                self.done(ticket, nothing);
            }
            ConsumerCall::Suspend => {
                self.suspend();
                self.done(ticket, nothing);
            }
            ConsumerCall::Resume => {
                self.resume(now);
                self.done(ticket, nothing);
            }
            ConsumerCall::Assign(queues) => {
                let result = self.assign(now, queues).map(|()| Answer::Nothing);
                self.done(ticket, result);
            }
            ConsumerCall::Assignment => {
                // The retry topic is no one's business outside.
                let mut queues = self.assignment();
                queues.retain(|queue| !is_retry(&queue.topic));
                self.done(ticket, Ok(Answer::Queues(queues.into())));
            }
            ConsumerCall::FetchQueues { topic, .. } => {
                let known = self
                    .topics
                    .get(&topic)
                    .and_then(|topic| topic.queues.clone());
                let result = known.map(|queues| Answer::Queues(queues.into()));
                let error = || Error::new(ErrorKind::TopicNotFound).of_topic(&topic);
                self.done(ticket, result.ok_or_else(error));
            }
            ConsumerCall::Poll { timeout_ms } => self.poll(now, ticket, timeout_ms),
            ConsumerCall::Pause(queues) => {
                self.set_paused(now, &queues, true);
                self.done(ticket, nothing);
            }
            ConsumerCall::ResumeQueues(queues) => {
                self.set_paused(now, &queues, false);
                self.done(ticket, nothing);
            }
            ConsumerCall::Seek { queue, to } => self.seek(ticket, queue, to),
            ConsumerCall::Commit(offsets) => self.commit_for(ticket, offsets),
            ConsumerCall::Committed(queue) => self.committed(ticket, queue),
            ConsumerCall::Offset { queue, which } => {
                let request = match which {
                    OffsetOf::Min => about(request::GET_MIN_OFFSET, &queue),
                    OffsetOf::Max => about(request::GET_MAX_OFFSET, &queue),
                    OffsetOf::Time(ms) => {
                        about(request::SEARCH_OFFSET_BY_TIMESTAMP, &queue).with("timestamp", ms)
                    }
                };
                self.look_up(ticket, queue, What::Offset, request);
            }
            ConsumerCall::SendBack {
                message,
                delay_level,
            } => self.send_back_for(ticket, *message, delay_level),
        }
    }

    /// The queues it has.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        let gone = |own: &super::Owned| matches!(own.phase, Phase::Leaving(_));
        let owned = self.owned.iter().filter(|(_, own)| !gone(own));
        owned.map(|(queue, _)| queue.clone()).collect()
    }

    fn assign(&mut self, now: u64, queues: Vec<MessageQueue>) -> Result<(), Error> {
        if self.rules.kind != Kind::Polled {
            return Err(state("queues are assigned to pull consumers only"));
        }
        if self.assigned.is_none() && !self.topics.is_empty() {
            return Err(state(
                "topics are subscribed; queues cannot be assigned as well",
            ));
        }
        for queue in &queues {
            self.effects.push(Effect::Route(queue.topic.clone()));
        }
        self.assigned = Some(queues.into_iter().collect());
        self.update_assigned(now);
        Ok(())
    }

    /// Makes the queues those that were named.
    pub(super) fn update_assigned(&mut self, now: u64) {
        let Some(wanted) = self.assigned.clone() else {
            return;
        };
        if self.life == Life::Running {
            let known: Vec<_> = self.owned.keys().cloned().collect();
            self.take_over(now, &known, &wanted);
        }
    }

    fn poll(&mut self, now: u64, ticket: Ticket, timeout_ms: u64) {
        if self.rules.kind != Kind::Polled {
            let what = "a push consumer is not polled: its listener gets the messages";
            self.done(ticket, Err(state(what)));
            return;
        }
        if self.polls.waiting.len() >= POLLS_MAX {
            let limit = POLLS_MAX as u64;
            let what = "polls that wait";
            self.done(
                ticket,
                Err(ErrorKind::TooMuchInFlight { what, limit }.into()),
            );
            return;
        }
        if self.rules.auto_commit && now >= self.polls.next_commit {
            self.polls.next_commit = now + self.rules.auto_commit_ms;
            self.commit_all_polled();
        }
        let until = now.saturating_add(timeout_ms);
        self.polls.waiting.push_back((ticket, until));
        self.set(until, Timer::Poll);
        self.serve_polls(now);
        if timeout_ms == 0 {
            self.poll_due(now);
        }
    }

    /// Gives those who wait what there is.
    pub(super) fn serve_polls(&mut self, now: u64) {
        while !self.polls.waiting.is_empty() {
            let Some(queue) = self.line.pop_front() else {
                return;
            };
            let batch_max = self.rules.batch_max;
            let taken = self.with_line(&queue, |own| {
                own.in_line = false;
                if !matches!(own.phase, Phase::Active) || own.paused {
                    return Vec::new();
                }
                let taken = own.line.take(batch_max, now);
                for taken in &taken {
                    own.line.consumed(taken.at);
                    own.last_consume = now;
                }
                taken
            });
            let messages: Vec<ReceivedMessage> = taken
                .into_iter()
                .flatten()
                .map(|taken| taken.message)
                .collect();
            if messages.is_empty() {
                continue;
            }
            let count = messages.len() as u64;
            self.counts.consumed += count;
            self.rates_of(now, &queue.topic).consumed(now, 0, count, 0);
            if let Some((ticket, _)) = self.polls.waiting.pop_front() {
                let epoch = self.owned.get(&queue).map_or(0, |own| own.epoch);
                let polled = Polled {
                    epoch,
                    messages,
                    ..Polled::NOTHING
                };
                self.done(ticket, Ok(Answer::Messages(polled)));
            }
            self.line_up(now, &queue);
            self.unblock(now, &queue);
        }
    }

    /// What a poll brought did not get to who polled: the next one gets it, and it is not
    /// committed before.
    pub fn unpolled(&mut self, now: u64, polled: Polled) {
        let Polled {
            epoch, messages, ..
        } = polled;
        let Some(queue) = messages.first().map(|message| message.queue.clone()) else {
            return;
        };
        let current =
            |own: &&super::Owned| own.epoch == epoch && matches!(own.phase, Phase::Active);
        if self.owned.get(&queue).filter(current).is_none() {
            return;
        }
        let auto_commit = self.rules.auto_commit;
        self.counts.consumed -= messages.len() as u64;
        self.with_line(&queue, |own| {
            for message in messages {
                let bytes = message.body().len();
                own.line.give_back(place(&message), bytes, message);
            }
            if auto_commit {
                own.commit.value = own.commit.value.min(own.line.committable());
            }
        });
        self.line_up(now, &queue);
        self.hand_out(now);
    }

    pub(super) fn poll_due(&mut self, now: u64) {
        let (over, waiting): (VecDeque<_>, VecDeque<_>) = self
            .polls
            .waiting
            .drain(..)
            .partition(|&(_, until)| until <= now);
        self.polls.waiting = waiting;
        for (ticket, _) in over {
            self.done(ticket, Ok(Answer::Messages(Polled::NOTHING)));
        }
    }

    pub(super) fn end_polls(&mut self) {
        for (ticket, _) in std::mem::take(&mut self.polls.waiting) {
            self.done(ticket, Err(ErrorKind::NotRunning.into()));
        }
    }

    fn set_paused(&mut self, now: u64, queues: &[MessageQueue], paused: bool) {
        for queue in queues {
            let Some(own) = self.owned.get_mut(queue) else {
                continue;
            };
            own.paused = paused;
            if !paused {
                self.line_up(now, queue);
                self.pull(now, queue);
            }
        }
        self.hand_out(now);
    }

    /// What was polled may be committed.
    pub(super) fn commit_polled(&mut self, queue: &MessageQueue) {
        if let Some(own) = self.owned.get_mut(queue) {
            if matches!(own.phase, Phase::Active | Phase::Leaving(_)) {
                own.commit.value = own.commit.value.max(own.line.committable());
                own.commit.wanted = true;
            }
        }
    }

    pub(super) fn commit_polled_if_idle(&mut self, queue: &MessageQueue) {
        if self
            .owned
            .get(queue)
            .is_some_and(|own| own.line.count() == 0)
        {
            self.commit_polled(queue);
        }
    }

    fn commit_all_polled(&mut self) {
        let queues: Vec<_> = self.owned.keys().cloned().collect();
        for queue in queues {
            self.commit_polled(&queue);
            self.commit_soon(&queue);
        }
    }

    fn commit_for(&mut self, ticket: Ticket, offsets: Option<Vec<(MessageQueue, i64)>>) {
        let queues: BTreeSet<MessageQueue> = match offsets {
            None => {
                let queues: Vec<_> = self.owned.keys().cloned().collect();
                if self.rules.kind == Kind::Polled {
                    queues.iter().for_each(|queue| self.commit_polled(queue));
                }
                queues.into_iter().collect()
            }
            Some(offsets) => {
                let bad = offsets.iter().find(|(queue, offset)| {
                    let own = self.owned.get(queue);
                    !own.is_some_and(|own| matches!(own.phase, Phase::Active)) || *offset < 0
                });
                if let Some((queue, offset)) = bad {
                    let what =
                        format!("{offset} cannot be committed: the queue is not this consumer's");
                    self.done(ticket, Err(at_queue(state(&what), queue)));
                    return;
                }
                for (queue, offset) in &offsets {
                    if let Some(own) = self.owned.get_mut(queue) {
                        own.commit.value = *offset;
                        own.commit.wanted = true;
                    }
                }
                offsets.into_iter().map(|(queue, _)| queue).collect()
            }
        };
        let mut left = 0;
        let broadcast = self.rules.broadcast;
        for queue in queues {
            let Some(own) = self.owned.get_mut(&queue) else {
                continue;
            };
            let stored = own.commit.acked == Some(own.commit.value);
            if !matches!(own.phase, Phase::Active) || stored || broadcast {
                continue;
            }
            own.commit.waiters.push(ticket);
            left += 1;
            if own.commit.asked.is_none() {
                self.commit(&queue);
            }
        }
        if broadcast {
            self.store_file_for(ticket);
        } else if left == 0 {
            self.done(ticket, Ok(Answer::Nothing));
        } else {
            self.polls.commits.insert(ticket, (left, None));
        }
    }

    /// One queue of a commit is done.
    pub(super) fn commit_counted(&mut self, ticket: Ticket, result: Result<Answer, Error>) {
        let Some((left, error)) = self.polls.commits.get_mut(&ticket) else {
            return;
        };
        *left -= 1;
        if let Err(new) = result {
            error.get_or_insert(new);
        }
        if *left > 0 {
            return;
        }
        if let Some((_, error)) = self.polls.commits.remove(&ticket) {
            self.done(ticket, error.map_or(Ok(Answer::Nothing), Err));
        }
    }

    fn committed(&mut self, ticket: Ticket, queue: MessageQueue) {
        let known = self.owned.get(&queue).and_then(|own| own.commit.acked);
        if self.rules.broadcast {
            let offset = self.file.get(&queue);
            self.done(ticket, Ok(Answer::Offset(offset)));
        } else if known.is_some() {
            self.done(ticket, Ok(Answer::Offset(known)));
        } else {
            let request = about(request::QUERY_CONSUMER_OFFSET, &queue)
                .with("consumerGroup", &self.rules.group)
                .with("setZeroIfNotFound", false);
            self.look_up(ticket, queue, What::Committed, request);
        }
    }

    fn look_up(&mut self, ticket: Ticket, queue: MessageQueue, what: What, request: Request) {
        let to = master(&queue);
        let lookup = Lookup {
            ticket,
            queue,
            what,
        };
        let timeout_ms = self.rules.offset_timeout_ms;
        self.ask(Ask::Lookup(lookup), to, request, timeout_ms);
    }

    fn seek(&mut self, ticket: Ticket, queue: MessageQueue, to: SeekTo) {
        if !self
            .owned
            .get(&queue)
            .is_some_and(|own| !matches!(own.phase, Phase::Leaving(_)))
        {
            let error = state("the queue is not this consumer's; it may be given to it soon");
            self.done(ticket, Err(at_queue(error, &queue)));
            return;
        }
        let (what, code) = match to {
            SeekTo::Begin => (What::Seek, request::GET_MIN_OFFSET),
            SeekTo::End => (What::Seek, request::GET_MAX_OFFSET),
            SeekTo::Offset(offset) => (What::SeekMin(offset), request::GET_MIN_OFFSET),
        };
        let request = about(code, &queue);
        self.look_up(ticket, queue, what, request);
    }

    pub(super) fn lookup_answered(
        &mut self,
        now: u64,
        lookup: Lookup,
        answer: Result<Response, Error>,
    ) {
        let Lookup {
            ticket,
            queue,
            what,
        } = lookup;
        if let (What::Committed, Ok(response)) = (what, &answer) {
            if response.code == response::QUERY_NOT_FOUND {
                self.done(ticket, Ok(Answer::Offset(None)));
                return;
            }
            if response.code != 0 {
                self.done(ticket, Err(answered(response, &queue)));
                return;
            }
        }
        let found = successful(answer, &queue).and_then(|response| {
            number(&response, "offset").ok_or_else(|| {
                let what = "no offset in the answer".to_owned();
                at_queue(Error::new(ErrorKind::BadAnswer { what }), &queue)
            })
        });
        let offset = match found {
            Ok(offset) => offset,
            Err(error) => {
                self.done(ticket, Err(at_queue(error, &queue)));
                return;
            }
        };
        match what {
            What::Offset | What::Committed => {
                self.done(ticket, Ok(Answer::Offset(Some(offset).filter(|&o| o >= 0))));
            }
            What::SeekMin(wanted) => {
                let request = about(request::GET_MAX_OFFSET, &queue);
                self.look_up(ticket, queue, What::SeekMax(wanted, offset), request);
            }
            What::SeekMax(wanted, min) if !(min..=offset).contains(&wanted) => {
                let what = format!("offset {wanted} is not within {min}..={offset}");
                self.done(ticket, Err(at_queue(state(&what), &queue)));
            }
            What::SeekMax(wanted, _) => self.sought(now, ticket, &queue, wanted),
            What::Seek => self.sought(now, ticket, &queue, offset),
        }
    }

    fn sought(&mut self, now: u64, ticket: Ticket, queue: &MessageQueue, offset: i64) {
        let phase = self.owned.get(queue).map(|own| &own.phase);
        match phase {
            Some(Phase::Active) => {
                let commit = self.owned.get(queue).map(|own| own.commit.clone());
                self.go_on_at(now, queue, offset);
                if let (Some(own), Some(commit)) = (self.owned.get_mut(queue), commit) {
                    // Committed is what was: until something is polled from there.
                    if !self.rules.auto_commit {
                        own.commit.value = commit.value;
                        own.commit.wanted = commit.wanted;
                    }
                    if !own.commit.waiters.is_empty() {
                        self.commit(queue);
                    }
                }
                self.pull(now, queue);
            }
            Some(Phase::Starting(_) | Phase::Locking) => {
                self.activate(now, queue, offset, false);
            }
            _ => {
                let error = state("the queue is not this consumer's any more");
                self.done(ticket, Err(at_queue(error, queue)));
                return;
            }
        }
        self.done(ticket, Ok(Answer::Nothing));
    }
}

fn state(what: &str) -> Error {
    let what = what.to_owned();
    Error::new(ErrorKind::State { what })
}
