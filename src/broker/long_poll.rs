//! Pulls that wait for messages, on the shard that owns their queue
//! (`PullRequestHoldService`).
//!
//! A pull is parked in the turn in which it found nothing, and woken in the turn
//! in which something arrives: both happen on one thread, so nothing can slip
//! in between.

use foldhash::HashMap;
use std::collections::BTreeMap;

use super::message::{Message, PullJob};
use super::{BrokerShard, now_ms};
use crate::shard::LaneKind;
use crate::store::QueueIndex;

/// Pulls parked on one shard. At the bound a pull is answered at once that there
/// is nothing, and its client asks again.
const PARKED_MAX: usize = 200_000;

/// Time between two looks at the deadlines, ms. A pull is answered up to this much
/// before its time is over, never after.
pub(super) const TICK_MS: u64 = 20;

/// Pulls ended in one turn.
const DUE_MAX: usize = 2000;

struct Parked {
    job: PullJob,
    key: (u64, u64),
}

/// The parked pulls of one shard.
#[derive(Default)]
pub(super) struct LongPolls {
    by_queue: HashMap<QueueIndex, Vec<Parked>>,
    by_deadline: BTreeMap<(u64, u64), QueueIndex>,
    sequence: u64,
}

impl LongPolls {
    fn insert(&mut self, queue: QueueIndex, job: PullJob, deadline: u64) {
        self.sequence += 1;
        let key = (deadline, self.sequence);
        self.by_deadline.insert(key, queue);
        self.by_queue
            .entry(queue)
            .or_default()
            .push(Parked { job, key });
    }

    fn take_queue(&mut self, queue: QueueIndex) -> Vec<Parked> {
        self.by_queue.remove(&queue).unwrap_or_default()
    }

    fn put_back(&mut self, queue: QueueIndex, parked: Parked) {
        self.by_queue.entry(queue).or_default().push(parked);
    }

    fn take_due(&mut self, now: u64) -> Vec<PullJob> {
        let mut due = Vec::new();
        while due.len() < DUE_MAX
            && let Some((&key, &queue)) = self.by_deadline.first_key_value()
        {
            if key.0 > now {
                break;
            }
            self.by_deadline.remove(&key);
            let Some(list) = self.by_queue.get_mut(&queue) else {
                continue;
            };
            if let Some(at) = list.iter().position(|parked| parked.key == key) {
                due.push(list.swap_remove(at).job);
            }
            if list.is_empty() {
                self.by_queue.remove(&queue);
            }
        }
        due
    }

    /// Whether no pull is parked.
    pub fn is_empty(&self) -> bool {
        self.by_deadline.is_empty()
    }
}

impl BrokerShard {
    /// Parks a pull that found nothing.
    pub(super) fn park(&self, mut job: PullJob) {
        if self.polls.borrow().by_deadline.len() >= PARKED_MAX {
            self.end_parked(job);
            return;
        }
        if !self.is_local(&job.reply_to) && !job.parked {
            // It may wait long: it no longer counts as under way.
            let home = job.reply_to.conn.shard;
            self.shard
                .send(home, LaneKind::Reply, Message::Done(job.reply_to));
            job.parked = true;
        }
        let queue = self
            .store
            .with(|store| store.make_queue(&job.topic, job.queue_id));
        let deadline = now_ms() + job.suspend_ms.saturating_sub(TICK_MS);
        self.polls.borrow_mut().insert(queue, job, deadline);
        self.poll_event.notify();
    }

    /// Wakes the pulls of queues to which something was added.
    pub(super) fn wake_arrivals(&self) {
        let mut arrivals = self.arrivals.take();
        self.store.with(|store| store.take_arrivals(&mut arrivals));
        for &queue in &arrivals {
            if self.polls.borrow().by_queue.is_empty() {
                break;
            }
            let parked = self.polls.borrow_mut().take_queue(queue);
            let mut shared = None;
            for Parked { job, key } in parked {
                let outcome = if self.is_full(&job) {
                    Some(job)
                } else {
                    self.try_parked(job, &mut shared)
                };
                match outcome {
                    None => {
                        self.polls.borrow_mut().by_deadline.remove(&key);
                    }
                    Some(job) => self.polls.borrow_mut().put_back(queue, Parked { job, key }),
                }
            }
        }
        self.arrivals.replace(arrivals);
    }

    /// Whether the client of a pull leaves so many answers unread that it gets no
    /// more for now: its pull waits for the next message, or for its time to be over.
    fn is_full(&self, job: &PullJob) -> bool {
        self.is_local(&job.reply_to) && self.shard.is_full(job.reply_to.conn)
    }

    /// Answers the pulls whose time is over.
    pub(super) fn expire_polls(&self) {
        let due = self.polls.borrow_mut().take_due(now_ms());
        for job in due {
            self.end_parked(job);
        }
    }
}
