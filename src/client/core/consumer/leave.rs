//! How a queue is given back, and how a consumer stops.
//!
//! Nothing more is handed out; what listeners have in hand is waited for; what was
//! consumed is stored; then, and not before, an orderly consumer gives the lock back: the
//! next owner goes on exactly there. Without locks the next owner does not wait, so what
//! is consumed is stored at once, and what comes of the rest only where that does not
//! set the offset back.

use super::{
    AskQueue, Consumer, Effect, Life, MessageQueue, Owned, Phase, Request, Response, Timer, about,
    at_queue, is_retry, number, successful,
};
use crate::client::core::io::{Answer, Ticket};
use crate::client::error::{Error, ErrorKind};
use crate::wire::codes::request;

/// When a question that failed is asked again, ms.
const AGAIN_MS: u64 = 1000;
/// How long a queue that is wanted again waits for listeners that still have something of
/// it, ms.
const WANTED_MS: u64 = 2000;
/// How often storing an offset is tried before a queue is given up.
const TRIES: u32 = 3;

/// How far a queue is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Listeners have something in hand.
    Waiting,
    /// The offset is being stored, for this time.
    Storing(u32),
    /// The offset that the broker has is being read.
    Checking,
    /// The lock is being given back.
    Unlocking,
}

impl Consumer {
    /// Gives a queue back. `false` where that is under way.
    pub(super) fn leave(&mut self, now: u64, queue: &MessageQueue) -> bool {
        let Some(own) = self.owned.get(queue) else {
            return false;
        };
        match own.phase {
            Phase::Leaving(_) => {
                if let Some(own) = self.owned.get_mut(queue) {
                    own.wanted_again = false;
                }
                return false;
            }
            Phase::Active => {}
            // Nothing was consumed, so there is nothing to store.
            Phase::Locking | Phase::Starting(_) if own.in_hand == 0 => {
                if self.rules.locks() {
                    self.unlock(queue);
                } else {
                    self.forget(now, queue);
                }
                return true;
            }
            Phase::Locking | Phase::Starting(_) => {}
        }
        let begun = matches!(own.phase, Phase::Active);
        self.with_line(queue, |own| {
            own.phase = Phase::Leaving(Leaving::Waiting);
            own.line.drop_waiting();
            own.pulling = super::pull::Pulling::default();
        });
        self.unblock_all(now);
        if self.rules.kind == super::Kind::Polled && self.rules.auto_commit {
            self.commit_polled(queue);
        }
        let shares = !self.rules.locks() && !self.rules.broadcast && self.life == Life::Running;
        let busy = self.owned.get(queue).is_some_and(Owned::is_busy);
        if begun && shares && busy {
            // The next owner is not going to wait.
            self.commit(queue);
        }
        if self.rules.locks() {
            // As long as a listener may take: then the others have waited long enough.
            let at = now + self.rules.consume_timeout_ms;
            self.set_of(at, queue, Timer::Leave);
        }
        self.leave_on(now, queue);
        true
    }

    /// Goes on giving a queue back, if nothing is in hand any more.
    pub(super) fn leave_on(&mut self, now: u64, queue: &MessageQueue) {
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        if !matches!(own.phase, Phase::Leaving(Leaving::Waiting)) || own.is_busy() {
            return;
        }
        if self.rules.kind != super::Kind::Polled {
            own.commit.value = own.commit.value.max(own.line.committable());
        }
        let value = own.commit.value;
        if !self.may_store(queue) {
            self.stored(now, queue);
            return;
        }
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        if self.rules.broadcast {
            self.file.set(queue, value);
            self.forget(now, queue);
        } else if own.commit.acked == Some(value) && own.commit.asked.is_none() {
            self.stored(now, queue);
        } else if self.rules.locks() || own.commit.acked.is_none() || self.life != Life::Running {
            self.store_last(queue, 1);
        } else if own.commit.asked == Some(value) && own.commit.waiters.is_empty() {
            // Told already, when it was given back.
            self.stored(now, queue);
        } else {
            own.phase = Phase::Leaving(Leaving::Checking);
            let request = about(request::QUERY_CONSUMER_OFFSET, queue)
                .with("consumerGroup", &self.rules.group)
                .with("setZeroIfNotFound", false);
            self.ask_of(queue, AskQueue::CheckCommitted { offset: value }, request);
        }
    }

    fn store_last(&mut self, queue: &MessageQueue, time: u32) {
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        own.phase = Phase::Leaving(Leaving::Storing(time));
        let offset = own.commit.value;
        let request = self.commit_request(queue, offset);
        self.ask_of(queue, AskQueue::LastCommit, request);
    }

    /// What was consumed is stored.
    fn stored(&mut self, now: u64, queue: &MessageQueue) {
        if self.rules.locks() {
            self.unlock(queue);
        } else {
            self.forget(now, queue);
        }
    }

    fn unlock(&mut self, queue: &MessageQueue) {
        let body = self.lock_body(std::slice::from_ref(queue));
        let request = Request::new(request::UNLOCK_BATCH_MQ).with_body(body);
        if let Some(own) = self.owned.get_mut(queue) {
            own.phase = Phase::Leaving(Leaving::Unlocking);
        }
        self.ask_of(queue, AskQueue::Unlock, request);
    }

    pub(super) fn leave_answered(
        &mut self,
        now: u64,
        queue: &MessageQueue,
        what: AskQueue,
        answer: Result<Response, Error>,
    ) {
        let answer = successful(answer, queue);
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        let Phase::Leaving(leaving) = own.phase else {
            return;
        };
        match (what, leaving) {
            (AskQueue::LastCommit, Leaving::Storing(time)) => match answer {
                Ok(_) => {
                    own.commit.acked = Some(own.commit.value);
                    self.stored(now, queue);
                }
                Err(error) => {
                    // The topic of retries may not be there yet: then there is nothing to lose.
                    let known = !is_retry(&queue.topic) || own.commit.acked.is_some();
                    if known {
                        self.fault(error.clone());
                    }
                    if time >= TRIES {
                        if known {
                            self.lose(error);
                        }
                        self.stored(now, queue);
                    } else {
                        let time = time + 1;
                        if let Some(own) = self.owned.get_mut(queue) {
                            own.phase = Phase::Leaving(Leaving::Storing(time));
                        }
                        self.set_of(now + AGAIN_MS, queue, Timer::Leave);
                    }
                }
            },
            (AskQueue::CheckCommitted { offset }, Leaving::Checking) => {
                let known = answer.map(|response| number(&response, "offset"));
                match known {
                    Ok(Some(known)) if known < offset => self.store_last(queue, TRIES),
                    Ok(known) => {
                        if known.is_some() {
                            // The next owner is further on.
                            own.commit.acked = Some(own.commit.value);
                        }
                        self.forget(now, queue);
                    }
                    Err(error) => {
                        let error = at_queue(error, queue);
                        self.fault(error.clone());
                        self.lose(error);
                        self.forget(now, queue);
                    }
                }
            }
            // Not unlocked: the lock ends by itself.
            (AskQueue::Unlock, Leaving::Unlocking) => self.forget(now, queue),
            _ => {}
        }
    }

    /// A queue that is being given back is this consumer's again. Listeners that still have
    /// something of it are waited for, but not for ever: without locks nothing else bounds it.
    pub(super) fn want_again(&mut self, now: u64, queue: &MessageQueue) {
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        if !matches!(own.phase, Phase::Leaving(_)) {
            return;
        }
        let news = !std::mem::replace(&mut own.wanted_again, true);
        if news && !self.rules.locks() {
            self.set_of(now + WANTED_MS, queue, Timer::Leave);
        }
    }

    pub(super) fn leave_due(&mut self, now: u64, queue: &MessageQueue) {
        let Some(own) = self.owned.get(queue) else {
            return;
        };
        match own.phase {
            Phase::Leaving(Leaving::Storing(time)) => self.store_last(queue, time),
            // A listener took longer than it may: what it does is void.
            Phase::Leaving(Leaving::Waiting) if self.rules.locks() && self.may_store(queue) => {
                self.store_last(queue, 1);
            }
            Phase::Leaving(Leaving::Waiting) if self.rules.locks() => self.stored(now, queue),
            // What it has comes again: the queue cannot wait for it any longer.
            Phase::Leaving(Leaving::Waiting) if own.wanted_again => {
                let born = self.new_epoch();
                if let Some(own) = self.owned.get_mut(queue) {
                    own.born = born;
                    own.in_hand = 0;
                    own.returning = 0;
                }
                self.leave_on(now, queue);
            }
            _ => {}
        }
    }

    /// The queue is someone else's; or this consumer's again, from the beginning.
    pub(super) fn forget(&mut self, now: u64, queue: &MessageQueue) {
        let Some(own) = self.owned.remove(queue) else {
            return;
        };
        self.held -= own.line.count();
        self.unblock_all(now);
        let unstored = own.unstored(queue);
        if let Some(error) = unstored.as_ref().filter(|_| self.has_to_store(queue, &own)) {
            self.lose(error.clone());
        }
        for ticket in own.commit.waiters {
            self.commit_done(ticket, unstored.as_ref());
        }
        self.line.retain(|waiting| waiting != queue);
        if own.wanted_again && self.life == Life::Running {
            self.gain(now, queue);
            if self.rules.locks() {
                self.lock_waiting(now, &queue.broker_name.clone());
            }
        }
        self.stop_on();
    }

    /// Whether there is an offset of a queue that has ended here, and a broker should have it.
    fn has_to_store(&self, queue: &MessageQueue, own: &Owned) -> bool {
        // The topic of retries may not be there yet, nor the queue begun.
        let known = !is_retry(&queue.topic) || own.commit.acked.is_some();
        let begun = own.commit.value > 0 && matches!(own.phase, Phase::Leaving(_));
        begun && known && !self.rules.broadcast && self.may_store_of(own)
    }

    /// Ends: nothing new is begun, what is in hand is finished for `wait_ms` at most.
    /// [`Effect::Stopped`] follows, with the first offset that is not stored.
    pub fn stop(&mut self, now: u64, wait_ms: u64) {
        match self.life {
            Life::Stopping | Life::Stopped => return,
            Life::New | Life::Loading => {
                self.end();
                return;
            }
            Life::Running => {}
        }
        self.life = Life::Stopping;
        self.stop_ms = wait_ms;
        self.set(now + wait_ms, Timer::StopDeadline);
        self.line.clear();
        self.end_polls();
        let queues: Vec<_> = self.owned.keys().cloned().collect();
        for queue in queues {
            self.leave(now, &queue);
        }
        self.stop_on();
    }

    /// Stops once every queue is given back.
    pub(super) fn stop_on(&mut self) {
        if self.life != Life::Stopping || !self.owned.is_empty() || self.storing.is_some() {
            return;
        }
        if self.rules.broadcast && self.file.is_changed() {
            self.store_file();
            return;
        }
        self.end();
    }

    /// There is no more time: what is consumed is told to the brokers, and that is all.
    pub(super) fn stop_now(&mut self, now: u64) {
        if self.life != Life::Stopping {
            return;
        }
        let owned = std::mem::take(&mut self.owned);
        let mut unlock = Vec::new();
        for (queue, own) in owned {
            let polled = self.rules.kind == super::Kind::Polled;
            let value = if polled {
                own.commit.value
            } else {
                own.commit.value.max(own.line.committable())
            };
            if self.rules.broadcast {
                if self.may_store_of(&own) {
                    self.file.set(&queue, value);
                }
            } else if matches!(own.phase, Phase::Leaving(_))
                && own.commit.acked != Some(value)
                && self.may_store_of(&own)
            {
                let guarded = self.rules.locks() && own.locked_until <= now;
                if !guarded {
                    self.tell_offset(&queue, value);
                }
                // Nobody answers to that.
                let limit_ms = self.stop_ms;
                let error = at_queue(ErrorKind::Timeout { limit_ms }.into(), &queue);
                if !is_retry(&queue.topic) || own.commit.acked.is_some() {
                    self.fault(error.clone());
                    self.lose(error);
                }
            }
            let unstored = own.unstored(&queue);
            for ticket in own.commit.waiters {
                self.commit_done(ticket, unstored.as_ref());
            }
            if self.rules.locks() {
                unlock.push(queue);
            }
        }
        for queue in unlock {
            let body = self.lock_body(std::slice::from_ref(&queue));
            let request = Request::new(request::UNLOCK_BATCH_MQ).with_body(body);
            let to = super::master(&queue);
            self.effects.push(Effect::Tell { to, request });
        }
        self.held = 0;
        self.stop_on();
    }

    pub(super) fn end(&mut self) {
        self.life = Life::Stopped;
        self.timers.clear();
        self.single.clear();
        self.asks.clear();
        self.hands.clear();
        self.end_polls();
        self.give_up_file_waiters();
        let lost = self.lost.take();
        self.effects.push(Effect::Stopped { lost });
    }

    pub(super) fn commit_done(&mut self, ticket: Ticket, error: Option<&Error>) {
        let result = match error {
            None => Ok(Answer::Nothing),
            Some(error) => Err(error.clone()),
        };
        self.commit_counted(ticket, result);
    }
}

impl Owned {
    /// Whether listeners, or the way to the retry topic, have something of it.
    pub(super) fn is_busy(&self) -> bool {
        self.in_hand > 0 || self.returning > 0
    }

    /// What those are told who wait for the offset of a queue that is given up; `None` where
    /// it is stored.
    fn unstored(&self, queue: &MessageQueue) -> Option<Error> {
        let what = "the queue was given up before its offset was stored".to_owned();
        let stored = self.commit.acked == Some(self.commit.value);
        (!stored).then(|| at_queue(ErrorKind::State { what }.into(), queue))
    }
}
