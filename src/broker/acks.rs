//! Acknowledgements that wait for the device (SYNC_FLUSH).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::BrokerShard;
use super::message::ReplyTo;
use super::reply::SendReply;
use crate::shard::turn_began;
use crate::store::Appended;
use crate::wire::codes::response;

struct Ack {
    end: u64,
    since: Instant,
    to: ReplyTo,
    queue_id: i32,
    queue_offset: u64,
    physical: Physical,
}

/// The physical offset of each message of a send.
enum Physical {
    One([i64; 1]),
    Many(Box<[i64]>),
}

impl Physical {
    fn of(physical: &[i64]) -> Physical {
        match *physical {
            [one] => Physical::One([one]),
            _ => Physical::Many(physical.into()),
        }
    }

    fn as_slice(&self) -> &[i64] {
        match self {
            Physical::One(one) => one,
            Physical::Many(many) => many,
        }
    }
}

/// Answers in the order of the log. As many as messages under way: bounded by
/// what the tail file takes before the device must take it.
#[derive(Default)]
pub(super) struct Acks {
    waiting: VecDeque<Ack>,
}

impl Acks {
    pub fn push(&mut self, to: ReplyTo, queue_id: i32, appended: Appended, physical: &[i64]) {
        self.waiting.push_back(Ack {
            end: appended.end,
            since: turn_began(),
            to,
            queue_id,
            queue_offset: appended.queue_offset,
            physical: Physical::of(physical),
        });
    }

    /// Whether no answer waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn pop(&mut self, watermark: u64) -> Option<Ack> {
        let reached = self.waiting.front()?.end <= watermark;
        reached.then(|| self.waiting.pop_front()).flatten()
    }

    fn pop_late(&mut self, limit: Duration) -> Option<Ack> {
        let late = self.waiting.front()?.since.elapsed() > limit;
        late.then(|| self.waiting.pop_front()).flatten()
    }
}

impl BrokerShard {
    /// Answers the sends that the watermark has reached.
    pub(super) fn release_acks(&self) {
        let (watermark, failed) = self
            .store
            .with(|store| (store.watermark(), store.log().failure().is_some()));
        loop {
            let ack = self.acks.borrow_mut().pop(watermark);
            match ack {
                Some(ack) => self.answer(&ack, response::SUCCESS),
                None => break,
            }
        }
        if failed {
            // What still waits is in the tail, so it may not be refused, and the
            // device will never promise it.
            loop {
                let ack = self.acks.borrow_mut().pop(u64::MAX);
                match ack {
                    Some(ack) => self.answer(&ack, response::FLUSH_DISK_TIMEOUT),
                    None => return,
                }
            }
        }
    }

    /// Answers the sends that have waited longer than `syncFlushTimeout`: they are
    /// stored, but not yet promised.
    pub(super) fn expire_acks(&self) {
        let limit = Duration::from_millis(self.settings.borrow().sync_flush_timeout_ms);
        loop {
            let ack = self.acks.borrow_mut().pop_late(limit);
            match ack {
                Some(ack) => self.answer(&ack, response::FLUSH_DISK_TIMEOUT),
                None => return,
            }
        }
    }

    fn answer(&self, ack: &Ack, code: i32) {
        let reply = SendReply {
            queue_id: ack.queue_id,
            queue_offset: ack.queue_offset,
            physical: ack.physical.as_slice(),
        };
        self.reply_to_send(&ack.to, code, &reply);
    }
}
