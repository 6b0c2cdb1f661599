//! The way of a failed message to the retry topic of its group
//! (`DefaultMQPushConsumerImpl.sendMessageBack`).
//!
//! First the broker that has it is asked to do it; where that fails it is sent like any
//! other message, to any broker; where that fails, too, it is tried here again after 5 s.
//! Until then it counts as not consumed.

use super::{
    Ask, At, Consumer, Effect, Kind, MessageQueue, ReceivedMessage, Request, Response, is_retry,
    master, successful,
};
use crate::client::core::io::{Answer, Destination, Outgoing, SendMode, Ticket};
use crate::client::error::Error;
use crate::wire::codes::request;
use crate::wire::message::sys_flag;
use crate::wire::names::retry_topic;
use crate::wire::properties::{self, name};

/// When a message that could not be sent back is tried again, ms.
const AGAIN_MS: u64 = 5000;
/// Time for sending it as an ordinary message, ms.
const SEND_MS: u64 = 3000;
/// Delay level of the first retry; each further one is a level higher.
const FIRST_LEVEL: i32 = 3;
/// Bits that say how a body is compressed.
const COMPRESSION: i32 = sys_flag::COMPRESSED | 0x700;

/// A message on its way.
#[derive(Debug)]
pub(super) struct Return {
    message: ReceivedMessage,
    /// How often consumption failed, with the tries here.
    times: i32,
    /// It has been sent as an ordinary message.
    sent: bool,
    /// Why the broker that has it did not do it.
    refused: Option<Error>,
    /// Delay level that was asked for; 0: by the number of tries, below: to the dead letters.
    level: i32,
    whose: Whose,
}

#[derive(Debug)]
enum Whose {
    Line {
        queue: MessageQueue,
        born: u64,
        epoch: u64,
        at: At,
    },
    Caller(Ticket),
}

impl Consumer {
    /// Gives a message that is in hand to the retry topic.
    pub(super) fn send_back(&mut self, queue: &MessageQueue, at: At, level: i32) {
        if let Some(back) = self.take_off(queue, at) {
            self.ask_back(back, level);
        }
    }

    /// Gives a message up that was tried often enough (orderly).
    pub(super) fn give_up(&mut self, queue: &MessageQueue, at: At) {
        if let Some(back) = self.take_off(queue, at) {
            self.send_as_message(back);
        }
    }

    /// Gives a message back for a caller.
    pub(super) fn send_back_for(&mut self, ticket: Ticket, message: ReceivedMessage, level: i32) {
        let back = Return {
            times: message.reconsume_times,
            message,
            sent: false,
            refused: None,
            level: 0,
            whose: Whose::Caller(ticket),
        };
        self.ask_back(back, level);
    }

    fn take_off(&mut self, queue: &MessageQueue, at: At) -> Option<Return> {
        let own = self.owned.get_mut(queue)?;
        let taken = own.line.returning(at)?;
        own.returning += 1;
        Some(Return {
            times: taken.message.reconsume_times.saturating_add(taken.retries),
            message: taken.message,
            sent: false,
            refused: None,
            level: 0,
            whose: Whose::Line {
                queue: queue.clone(),
                born: own.born,
                epoch: own.epoch,
                at,
            },
        })
    }

    fn ask_back(&mut self, mut back: Return, level: i32) {
        if back.message.is_unwrapped() {
            // The broker knows the whole batch only, and would give all of it back.
            back.level = level;
            self.send_as_message(back);
            return;
        }
        let message = &back.message;
        let request = Request::new(request::CONSUMER_SEND_MSG_BACK)
            .with("offset", message.physical_offset)
            .with("group", &self.rules.group)
            .with("delayLevel", level)
            .with("originMsgId", message.message_id())
            .with("originTopic", message.topic())
            .with("unitMode", false)
            .with("maxReconsumeTimes", self.rules.tries())
            .with("bname", &message.queue.broker_name);
        let to = master(&message.queue);
        let timeout_ms = self.rules.offset_timeout_ms;
        self.ask(Ask::Return(Box::new(back)), to, request, timeout_ms);
    }

    fn send_as_message(&mut self, mut back: Return) {
        back.sent = true;
        let outgoing = self.outgoing(&back);
        self.next_call += 1;
        let call = self.next_call;
        self.asks.insert(call, Ask::Return(Box::new(back)));
        let outgoing = Box::new(outgoing);
        self.effects.push(Effect::Send { call, outgoing });
    }

    fn outgoing(&self, back: &Return) -> Outgoing {
        let message = &back.message;
        let old = message.properties_bytes();
        let mut properties = Vec::with_capacity(old.len() + 128);
        let changed = [
            name::TRAN_MSG,
            name::DELAY,
            name::WAIT,
            name::RETRY_TOPIC,
            name::ORIGIN_MESSAGE_ID,
            name::REAL_TOPIC,
            name::REAL_QUEUE_ID,
        ];
        properties::copy_except(&mut properties, old, &changed);
        let id = message.message_id();
        let origin = message.property(name::ORIGIN_MESSAGE_ID).unwrap_or(&id);
        let level = match back.level {
            level @ 1.. => level,
            _ => FIRST_LEVEL.saturating_add(back.times),
        };
        let level = level.to_string();
        let tries = self.rules.tries();
        let times = match back.level {
            ..=-1 => back.times.max(tries),
            _ => back.times,
        };
        for (name, value) in [
            (name::RETRY_TOPIC, message.topic()),
            (name::ORIGIN_MESSAGE_ID, origin),
            (name::DELAY, &level),
        ] {
            properties::push(&mut properties, name, value.as_bytes());
        }
        Outgoing {
            topic: retry_topic(&self.rules.group).into(),
            body: message.body().clone(),
            properties,
            key_follows: false,
            flag: message.flag,
            sys_flag: message.sys_flag & COMPRESSION,
            batch: false,
            message_id: id.into(),
            to: Destination::Any,
            mode: SendMode::Sync,
            // When it is handed over.
            began: 0,
            timeout_ms: SEND_MS,
            reconsume: Some((times.saturating_add(1), tries)),
        }
    }

    pub(super) fn return_answered(
        &mut self,
        now: u64,
        mut back: Return,
        answer: Result<Response, Error>,
    ) {
        let mut result = successful(answer, &back.message.queue);
        if let Err(error) = result {
            if !back.sent {
                back.refused = Some(error);
                self.send_as_message(back);
                return;
            }
            // What the broker that has it said comes first.
            result = Err(back.refused.take().unwrap_or(error));
        }
        let (queue, born, epoch, at) = match back.whose {
            Whose::Caller(ticket) => {
                self.done(ticket, result.map(|_| Answer::Nothing));
                return;
            }
            Whose::Line {
                queue,
                born,
                epoch,
                at,
            } => (queue, born, epoch, at),
        };
        let current = |own: &&mut super::Owned| own.born == born && own.epoch == epoch;
        let Some(own) = self.owned.get_mut(&queue).filter(current) else {
            return;
        };
        own.returning = own.returning.saturating_sub(1);
        match result {
            Ok(_) => {
                self.with_line(&queue, |own| own.line.consumed(at));
            }
            Err(error) => {
                if self.rules.kind == Kind::Orderly {
                    self.with_line(&queue, |own| own.line.put_back(&[at], true));
                    self.suspend_queue(now, &queue, None);
                } else {
                    self.with_line(&queue, |own| own.line.again(at, now + AGAIN_MS));
                }
                if !is_retry(&queue.topic) {
                    self.fault(error);
                }
            }
        }
        self.after_settling(now, &queue);
    }
}
