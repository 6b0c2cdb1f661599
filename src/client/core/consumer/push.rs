//! What listeners get, and what becomes of it (`ConsumeMessageConcurrentlyService`).
//!
//! Queues with something ready take turns, a batch each; listeners have as many batches as
//! their threads can be kept busy with, so that little is in hand when a queue is given
//! back or the consumer stops.

use super::{
    At, Batch, Consumer, Effect, Hand, Kind, Life, MessageQueue, Phase, ReceivedMessage, ReplyTo,
    Timer,
};
use crate::client::core::io::{DeliveryId, Outcome};

/// Most messages of a queue that are given up in one look because they take too long.
const OVERDUE_MAX: usize = 16;
/// Delay level of those.
const OVERDUE_LEVEL: i32 = 3;

impl Consumer {
    /// Puts a queue in the line of those that have something ready.
    pub(super) fn line_up(&mut self, now: u64, queue: &MessageQueue) {
        let serial = self.rules.kind == Kind::Orderly;
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        if !matches!(own.phase, Phase::Active) || own.in_line || own.paused {
            return;
        }
        if serial && (own.in_hand > 0 || own.returning > 0) {
            return;
        }
        if serial && own.suspended_until > now {
            let at = own.suspended_until;
            self.set(at, Timer::Ready(queue.clone()));
            return;
        }
        if own.line.has_ready(now) {
            own.in_line = true;
            self.line.push_back(queue.clone());
        } else if let Some(at) = own.line.next_due() {
            self.set(at, Timer::Ready(queue.clone()));
        }
    }

    /// Gives listeners what they can take.
    pub(super) fn hand_out(&mut self, now: u64) {
        if self.rules.kind == Kind::Polled {
            self.serve_polls(now);
            return;
        }
        while self.life == Life::Running
            && !self.suspended
            && self.hands.len() < self.rules.in_hand_max()
        {
            let Some(queue) = self.line.pop_front() else {
                return;
            };
            self.hand_out_of(now, &queue);
        }
    }

    fn hand_out_of(&mut self, now: u64, queue: &MessageQueue) {
        let locks = self.rules.locks();
        let batch_max = self.rules.batch_max;
        let Some(own) = self.owned.get_mut(queue) else {
            return;
        };
        own.in_line = false;
        if !matches!(own.phase, Phase::Active) || own.paused {
            return;
        }
        if locks && own.locked_until <= now {
            self.lock_lost(now, queue);
            return;
        }
        let taken = own.line.take(batch_max, now);
        if taken.is_empty() {
            return;
        }
        own.in_hand += 1;
        let hand = Hand {
            queue: queue.clone(),
            born: own.born,
            epoch: own.epoch,
            places: taken.iter().map(|taken| taken.at).collect(),
            since: now,
            direct: None,
        };
        let messages = taken.into_iter().map(|taken| {
            let mut message: ReceivedMessage = taken.message;
            message.reconsume_times = message.reconsume_times.saturating_add(taken.retries);
            message
        });
        let messages = messages.collect();
        self.deliver(hand, messages);
        self.line_up(now, queue);
    }

    pub(super) fn deliver(&mut self, hand: Hand, messages: Vec<ReceivedMessage>) {
        self.next_delivery += 1;
        let delivery = DeliveryId(self.next_delivery);
        self.effects.push(Effect::Deliver(Batch {
            delivery,
            queue: hand.queue.clone(),
            messages,
        }));
        self.hands.insert(delivery, hand);
    }

    /// A listener is done with a batch.
    pub fn consumed(&mut self, now: u64, delivery: DeliveryId, outcome: Outcome) {
        let Some(hand) = self.hands.remove(&delivery) else {
            return;
        };
        if let Some(to) = hand.direct {
            self.consumed_directly(now, to, hand.since, &outcome);
            self.hand_out(now);
            return;
        }
        let queue = &hand.queue;
        let Some(own) = self.owned.get_mut(queue) else {
            self.hand_out(now);
            return;
        };
        if own.born != hand.born {
            self.hand_out(now);
            return;
        }
        own.in_hand = own.in_hand.saturating_sub(1);
        own.last_consume = now;
        if own.epoch == hand.epoch {
            let before = self.counts;
            match self.rules.kind {
                Kind::Orderly => self.settle_orderly(now, queue, &hand.places, outcome),
                _ => self.settle(queue, &hand.places, outcome),
            }
            let good = self.counts.consumed - before.consumed;
            let bad = self.counts.failed - before.failed;
            let took = now.saturating_sub(hand.since);
            let rates = self.rates_of(now, &queue.topic);
            rates.consumed(now, took, good, bad);
        }
        self.after_settling(now, queue);
    }

    /// Goes on with a queue after something of it was consumed, or sent back.
    pub(super) fn after_settling(&mut self, now: u64, queue: &MessageQueue) {
        let leaving = self
            .owned
            .get(queue)
            .is_some_and(|own| matches!(own.phase, Phase::Leaving(_)));
        if leaving {
            // What failed on the way is the next owner's.
            self.with_line(queue, |own| own.line.drop_waiting());
            self.consumed_up_to(queue);
            self.leave_on(now, queue);
        } else {
            self.consumed_up_to(queue);
            self.line_up(now, queue);
            self.unblock(now, queue);
        }
        self.hand_out(now);
    }

    fn settle(&mut self, queue: &MessageQueue, places: &[At], outcome: Outcome) {
        let (good, delay_level) = match outcome {
            Outcome::Success { ack_index: None }
            | Outcome::Commit
            | Outcome::SuccessUncommitted => (places.len(), 0),
            Outcome::Success {
                ack_index: Some(index),
            } => (places.len().min(index.saturating_add(1)), 0),
            Outcome::ReconsumeLater { delay_level } => (0, delay_level),
            Outcome::SuspendCurrentQueue { .. } | Outcome::Rollback | Outcome::Failed { .. } => {
                (0, 0)
            }
        };
        let (good, bad) = places.split_at(good);
        self.counts.consumed += good.len() as u64;
        self.counts.failed += bad.len() as u64;
        self.with_line(queue, |own| {
            for &at in good {
                own.line.consumed(at);
            }
        });
        if self.rules.broadcast {
            // There is no one to give it to: it is dropped, as in Java.
            self.counts.dropped += bad.len() as u64;
            self.with_line(queue, |own| {
                for &at in bad {
                    own.line.consumed(at);
                }
            });
            return;
        }
        for &at in bad {
            self.send_back(queue, at, delay_level);
        }
    }

    /// Gives messages up that listeners have had for too long (`cleanExpiredMsg`).
    pub(super) fn clean(&mut self, now: u64) {
        if self.life != Life::Running {
            return;
        }
        self.set(now + self.rules.clean_ms(), Timer::Clean);
        if self.rules.broadcast {
            return;
        }
        let limit = self.rules.consume_timeout_ms;
        let queues: Vec<_> = self.owned.keys().cloned().collect();
        for queue in queues {
            let overdue = match self.owned.get(&queue) {
                Some(own) => own.line.overdue(now, limit, OVERDUE_MAX),
                None => continue,
            };
            for at in overdue {
                self.counts.overdue += 1;
                self.send_back(&queue, at, OVERDUE_LEVEL);
            }
        }
    }

    /// Pulls and deliveries pause.
    pub(super) fn suspend(&mut self) {
        self.suspended = true;
    }

    /// And go on.
    pub(super) fn resume(&mut self, now: u64) {
        self.suspended = false;
        let queues: Vec<_> = self.owned.keys().cloned().collect();
        for queue in queues {
            self.line_up(now, &queue);
            self.pull(now, &queue);
        }
        self.hand_out(now);
    }
}

/// A batch that a broker asked for.
pub(super) fn direct(queue: MessageQueue, to: ReplyTo, now: u64) -> Hand {
    Hand {
        queue,
        born: 0,
        epoch: 0,
        places: Vec::new(),
        since: now,
        direct: Some(to),
    }
}
