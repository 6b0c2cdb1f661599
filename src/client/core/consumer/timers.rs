//! When something is due.

use std::sync::Arc;

use super::{Consumer, MessageQueue};

/// When something is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Rebalance,
    RebalanceTopic(Arc<str>),
    Persist,
    Clean,
    RenewLocks,
    LockAgain(Arc<str>),
    Pull(MessageQueue),
    /// Of an epoch of the queue.
    Start(MessageQueue, u64),
    Ready(MessageQueue),
    /// Of an epoch of the queue.
    Leave(MessageQueue, u64),
    Poll,
    StopDeadline,
}

impl Consumer {
    /// Does what is due.
    pub fn tick(&mut self, now: u64) {
        while self.timers.first().is_some_and(|&(at, _)| at <= now) {
            let Some((_, timer)) = self.timers.pop_first() else {
                return;
            };
            self.single.remove(&timer);
            match timer {
                Timer::Rebalance => self.rebalance_all(now),
                Timer::RebalanceTopic(topic) => self.rebalance_topic(now, &topic),
                Timer::Persist => self.persist(now),
                Timer::Clean => self.clean(now),
                Timer::RenewLocks => self.renew_locks(now),
                Timer::LockAgain(broker) => self.lock_waiting(now, &broker),
                Timer::Pull(queue) => self.pull_due(now, &queue),
                Timer::Start(queue, epoch) if self.is_of(&queue, epoch) => {
                    self.start_due(now, &queue);
                }
                Timer::Ready(queue) => {
                    self.line_up(now, &queue);
                    self.hand_out(now);
                }
                Timer::Leave(queue, epoch) if self.is_of(&queue, epoch) => {
                    self.leave_due(now, &queue);
                }
                // Of an earlier stint of the queue.
                Timer::Start(..) | Timer::Leave(..) => {}
                Timer::Poll => self.poll_due(now),
                Timer::StopDeadline => self.stop_now(now),
            }
        }
    }

    fn is_of(&self, queue: &MessageQueue, epoch: u64) -> bool {
        self.owned.get(queue).is_some_and(|own| own.epoch == epoch)
    }

    /// Sets a timer that is void when this epoch of the queue is over.
    pub(super) fn set_of(
        &mut self,
        at: u64,
        queue: &MessageQueue,
        timer: fn(MessageQueue, u64) -> Timer,
    ) {
        if let Some(own) = self.owned.get(queue) {
            let epoch = own.epoch;
            self.set(at, timer(queue.clone(), epoch));
        }
    }

    pub(super) fn set(&mut self, at: u64, timer: Timer) {
        self.timers.insert((at, timer));
    }

    /// Sets a timer of which one is enough: the earlier one stays.
    pub(super) fn set_single(&mut self, at: u64, timer: Timer) {
        if let Some(&set) = self.single.get(&timer) {
            if set <= at {
                return;
            }
            self.timers.remove(&(set, timer.clone()));
        }
        self.single.insert(timer.clone(), at);
        self.set(at, timer);
    }
}
