//! What becomes of messages that are consumed in order (`ConsumeMessageOrderlyService`).
//!
//! One batch of a queue is in hand at any time, and only while the queue's lock counts. A
//! queue gives way to the others after each batch, so none keeps a listener for longer.

use super::{At, Consumer, MessageQueue};
use crate::client::core::io::Outcome;

/// Shortest and longest pause of a queue, ms.
const SUSPEND_MS: (u64, u64) = (10, 30_000);

impl Consumer {
    pub(super) fn settle_orderly(
        &mut self,
        now: u64,
        queue: &MessageQueue,
        places: &[At],
        outcome: Outcome,
    ) {
        let count = places.len() as u64;
        match outcome {
            Outcome::Success { .. } | Outcome::Commit => {
                self.counts.consumed += count;
                self.keep(queue, places);
                self.commit_kept(queue);
            }
            Outcome::SuccessUncommitted => {
                self.counts.consumed += count;
                self.keep(queue, places);
            }
            Outcome::Rollback => {
                self.with_line(queue, |own| {
                    own.line.put_back(places, false);
                    own.line.roll_back_kept();
                });
                self.suspend_queue(now, queue, None);
            }
            Outcome::SuspendCurrentQueue { pause_ms } => {
                self.counts.failed += count;
                self.try_again(now, queue, places, pause_ms);
            }
            Outcome::ReconsumeLater { .. } | Outcome::Failed { .. } => {
                self.counts.failed += count;
                self.try_again(now, queue, places, None);
            }
        }
    }

    fn keep(&mut self, queue: &MessageQueue, places: &[At]) {
        self.with_line(queue, |own| {
            for &at in places {
                own.line.keep(at);
            }
        });
    }

    fn commit_kept(&mut self, queue: &MessageQueue) {
        self.with_line(queue, |own| own.line.commit_kept());
    }

    /// The same messages come again after a pause; those that were tried often enough are
    /// given up to the retry topic, from where the broker takes them to the dead letters.
    fn try_again(&mut self, now: u64, queue: &MessageQueue, places: &[At], pause_ms: Option<u64>) {
        let tries = self.rules.tries();
        if self.rules.broadcast {
            self.with_line(queue, |own| own.line.put_back(places, true));
            self.suspend_queue(now, queue, pause_ms);
            return;
        }
        let (mut again, mut given_up) = (Vec::new(), Vec::new());
        if let Some(own) = self.owned.get(queue) {
            for &at in places {
                let Some((message, more)) = own.line.get(at) else {
                    continue;
                };
                if message.reconsume_times.saturating_add(more) >= tries {
                    given_up.push(at);
                } else {
                    again.push(at);
                }
            }
        }
        for at in given_up {
            self.give_up(queue, at);
        }
        if !again.is_empty() {
            self.with_line(queue, |own| own.line.put_back(&again, true));
            self.suspend_queue(now, queue, pause_ms);
        }
    }

    pub(super) fn suspend_queue(&mut self, now: u64, queue: &MessageQueue, ms: Option<u64>) {
        let ms = ms.unwrap_or(self.rules.suspend_ms);
        if let Some(own) = self.owned.get_mut(queue) {
            own.suspended_until = now + ms.clamp(SUSPEND_MS.0, SUSPEND_MS.1);
        }
    }
}
