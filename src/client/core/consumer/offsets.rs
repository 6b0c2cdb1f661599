//! Which offsets are stored when (`RemoteBrokerOffsetStore`).
//!
//! What may be committed is told to the broker every 5 s where it changed, with pulls,
//! and before a queue is given back. Answers are waited for: what is not acknowledged is
//! told again. Every minute all are told again, in case a broker lost them.

use super::{
    AskQueue, Consumer, Effect, Life, MessageQueue, Phase, Request, Response, Timer, about,
    is_retry, successful,
};
use crate::client::core::io::Ticket;
use crate::client::error::Error;
use crate::wire::codes::request;

/// All offsets are told at every so many turns.
const ROUNDS_OF_ALL: u32 = 12;

/// How far a queue may be committed, and is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Commit {
    /// The queue has begun here, so that `value` says something. It does not where a lock was
    /// lost, or never had.
    pub begun: bool,
    /// May be.
    pub value: i64,
    /// The broker said that it is.
    pub acked: Option<i64>,
    /// The broker was told, and has not answered.
    pub asked: Option<i64>,
    /// The application has said that it may be stored; only those that commit by hand wait
    /// for that.
    pub wanted: bool,
    /// Callers who wait for it.
    pub waiters: Vec<Ticket>,
}

impl Commit {
    pub fn begin(&mut self, offset: i64, stored: bool) {
        *self = Commit {
            begun: true,
            value: offset,
            acked: stored.then_some(offset),
            asked: None,
            wanted: false,
            waiters: std::mem::take(&mut self.waiters),
        };
    }
}

impl Consumer {
    pub(super) fn persist(&mut self, now: u64) {
        if self.life != Life::Running {
            return;
        }
        self.set(now + self.rules.persist_ms, Timer::Persist);
        if self.rules.broadcast {
            self.store_file();
            return;
        }
        self.persist_round = self.persist_round.wrapping_add(1);
        let all = self.persist_round % ROUNDS_OF_ALL == 0;
        let due = self.owned.iter().filter(|(_, own)| {
            let commit = &own.commit;
            let changed = commit.acked != Some(commit.value);
            matches!(own.phase, Phase::Active) && commit.asked.is_none() && (all || changed)
        });
        let due: Vec<_> = due.map(|(queue, _)| queue.clone()).collect();
        for queue in due {
            if self.may_store(&queue) {
                self.commit(&queue);
            }
        }
    }

    /// A pull consumer that commits by hand stores nothing else, and nobody what has not begun:
    /// that would set the offset back.
    pub(super) fn may_store(&self, queue: &MessageQueue) -> bool {
        let own = self.owned.get(queue);
        own.is_some_and(|own| self.may_store_of(own))
    }

    /// The same of a queue at hand.
    pub(super) fn may_store_of(&self, own: &super::Owned) -> bool {
        let by_hand = self.rules.kind == super::Kind::Polled && !self.rules.auto_commit;
        own.commit.begun && (own.commit.wanted || !by_hand)
    }

    /// Takes over what may be committed after something was consumed.
    pub(super) fn consumed_up_to(&mut self, queue: &MessageQueue) {
        if self.rules.kind == super::Kind::Polled {
            return;
        }
        if let Some(own) = self.owned.get_mut(queue) {
            own.commit.value = own.commit.value.max(own.line.committable());
        }
    }

    /// Tells the broker how far a queue is consumed.
    pub(super) fn commit(&mut self, queue: &MessageQueue) {
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        let offset = own.commit.value;
        own.commit.asked = Some(offset);
        let request = self.commit_request(queue, offset);
        self.ask_of(queue, AskQueue::Commit { offset }, request);
    }

    pub(super) fn commit_request(&self, queue: &MessageQueue, offset: i64) -> Request {
        about(request::UPDATE_CONSUMER_OFFSET, queue)
            .with("consumerGroup", &self.rules.group)
            .with("commitOffset", offset)
    }

    pub(super) fn commit_answered(
        &mut self,
        queue: &MessageQueue,
        offset: i64,
        answer: Result<Response, Error>,
    ) {
        let result = successful(answer, queue);
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        own.commit.asked = None;
        if result.is_ok() {
            own.commit.acked = Some(offset);
        }
        let again = result.is_ok() && own.commit.value != offset && !own.commit.waiters.is_empty();
        if again {
            // Someone waits for more than that.
            self.commit(queue);
            return;
        }
        let waiters = std::mem::take(&mut own.commit.waiters);
        for ticket in waiters {
            self.commit_done(ticket, result.as_ref().err());
        }
        if let Err(error) = result {
            if !is_retry(&queue.topic) {
                self.fault(error);
            }
        }
    }

    /// Tells the broker without waiting for an answer: there is no time left.
    pub(super) fn tell_offset(&mut self, queue: &MessageQueue, offset: i64) {
        let request = self.commit_request(queue, offset);
        let to = super::master(queue);
        self.effects.push(Effect::Tell { to, request });
    }
}
