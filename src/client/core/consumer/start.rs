//! Where a queue begins (`RebalancePushImpl.computePullFromWhere`).
//!
//! Where the group has an offset, there. Where it has none, as the consumer says: at the
//! end, at the start, or at a time. That place is found once and stored before the first
//! pull: it must not move while nothing is consumed, or messages would be skipped.
//!
//! Another member may just be giving the queue back: what it stores on the way is waited
//! for, unless a lock says that it is done.

use super::pull::Pulling;
use super::{
    AskQueue, Consumer, Kind, MessageQueue, Phase, Response, Timer, about, at_queue, is_retry,
    number, successful,
};
use crate::client::error::{Error, ErrorKind};
use crate::wire::body::heartbeat::ConsumeFromWhere;
use crate::wire::codes::{request, response};

/// How long a member that gives a queue back is waited for, ms.
const HANDOVER_MS: u64 = 500;
/// When a question that failed is asked again, ms.
const AGAIN_MS: u64 = 1000;

/// How far it is known where a queue begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Starting {
    /// Whether those before have been waited for.
    waited: bool,
    /// Where it begins if the group has no offset.
    bound: Option<i64>,
}

impl Consumer {
    /// Finds out where a queue begins.
    pub(super) fn begin(&mut self, now: u64, queue: &MessageQueue) {
        let others = self
            .topics
            .get(&queue.topic)
            .is_some_and(|t| t.has_others());
        let waited = self.rules.locks() || self.assigned.is_some() || !others;
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        own.phase = Phase::Starting(Starting {
            waited,
            bound: None,
        });
        if self.rules.broadcast {
            match self.file.get(queue) {
                Some(offset) => self.activate(now, queue, offset, true),
                None => self.ask_bound(now, queue),
            }
        } else {
            self.read_offset(queue);
        }
    }

    fn read_offset(&mut self, queue: &MessageQueue) {
        let request =
            about(request::QUERY_CONSUMER_OFFSET, queue).with("consumerGroup", &self.rules.group);
        self.ask_of(queue, AskQueue::ReadOffset, request);
    }

    /// Asks for the place that the consumer wants to begin at.
    fn ask_bound(&mut self, now: u64, queue: &MessageQueue) {
        let retry = is_retry(&queue.topic);
        let request = match self.rules.from {
            ConsumeFromWhere::FirstOffset => None,
            ConsumeFromWhere::Timestamp if retry => Some(about(request::GET_MAX_OFFSET, queue)),
            ConsumeFromWhere::Timestamp => {
                let time = self.rules.from_timestamp_ms;
                Some(about(request::SEARCH_OFFSET_BY_TIMESTAMP, queue).with("timestamp", time))
            }
            _ if retry => None,
            _ => Some(about(request::GET_MAX_OFFSET, queue)),
        };
        match request {
            Some(request) => self.ask_of(queue, AskQueue::Bound, request),
            // Repaired by the first pull where the queue begins later.
            None => self.bound_found(now, queue, 0),
        }
    }

    fn bound_found(&mut self, now: u64, queue: &MessageQueue, offset: i64) {
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        let Phase::Starting(starting) = &mut own.phase else {
            return;
        };
        starting.bound = Some(offset);
        let waited = starting.waited;
        if self.rules.broadcast {
            self.activate(now, queue, offset, false);
        } else if !waited {
            self.set_of(now + HANDOVER_MS, queue, Timer::Start);
        } else {
            self.mark(now, queue, offset);
        }
    }

    /// Stores where a queue begins, before anything is read of it.
    fn mark(&mut self, now: u64, queue: &MessageQueue, offset: i64) {
        if self.rules.kind == Kind::Polled && !self.rules.auto_commit {
            // Nothing is stored that the application did not ask for.
            self.activate(now, queue, offset, false);
            return;
        }
        let request = self.commit_request(queue, offset);
        self.ask_of(queue, AskQueue::Mark { offset }, request);
    }

    pub(super) fn start_due(&mut self, now: u64, queue: &MessageQueue) {
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        let Phase::Starting(starting) = &mut own.phase else {
            return;
        };
        starting.waited = true;
        if self.rules.broadcast {
            self.ask_bound(now, queue);
        } else {
            self.read_offset(queue);
        }
    }

    pub(super) fn start_answered(
        &mut self,
        now: u64,
        queue: &MessageQueue,
        what: AskQueue,
        answer: Result<Response, Error>,
    ) {
        let Some(own) = self.owned.get(queue) else {
            return;
        };
        let Phase::Starting(starting) = own.phase else {
            return;
        };
        let answer = successful(answer, queue);
        if let AskQueue::Mark { offset } = what {
            // What is not stored is not begun at: a crash would skip what comes until then.
            match answer {
                Ok(_) => self.activate(now, queue, offset, true),
                Err(error) => self.start_again(now, queue, error),
            }
            return;
        }
        let found = match answer {
            Ok(response) => match number(&response, "offset") {
                Some(offset) if offset >= 0 => Ok(Some(offset)),
                // As if it had none.
                Some(_) if what == AskQueue::ReadOffset => Ok(None),
                _ => {
                    let what = "no offset in the answer".to_owned();
                    Err(at_queue(Error::new(ErrorKind::BadAnswer { what }), queue))
                }
            },
            Err(error)
                if what == AskQueue::ReadOffset
                    && error.code() == Some(response::QUERY_NOT_FOUND) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        };
        match (what, found) {
            (AskQueue::ReadOffset, Ok(Some(offset))) if starting.waited => {
                self.activate(now, queue, offset, true);
            }
            (AskQueue::ReadOffset, Ok(Some(_))) => {
                self.set_of(now + HANDOVER_MS, queue, Timer::Start);
            }
            (AskQueue::ReadOffset, Ok(None)) => match starting.bound {
                Some(offset) => self.mark(now, queue, offset),
                None => self.ask_bound(now, queue),
            },
            (_, Ok(Some(offset))) => self.bound_found(now, queue, offset),
            (_, Ok(None)) => {}
            (_, Err(error)) => self.start_again(now, queue, error),
        }
    }

    /// Not known: guessing would skip messages, or consume them all again.
    fn start_again(&mut self, now: u64, queue: &MessageQueue, error: Error) {
        if !is_retry(&queue.topic) {
            self.fault(error);
        }
        self.set_of(now + AGAIN_MS, queue, Timer::Start);
    }

    /// A queue is at work, from `offset` on.
    pub(super) fn activate(&mut self, now: u64, queue: &MessageQueue, offset: i64, stored: bool) {
        self.with_line(queue, |own| {
            own.phase = Phase::Active;
            own.line.reset(offset);
            own.pulling = Pulling::default();
            own.commit.begin(offset, stored);
        });
        self.pull(now, queue);
    }
}
