//! The tries of a send (`DefaultMQProducerImpl.sendDefaultImpl`, `sendKernelImpl`).
//!
//! A send is tried at most 1 + retries times, each time at another broker where there is
//! one, all within one deadline. One to a chosen queue keeps its queue: blocking it is tried
//! once, asynchronous it is tried there again. It ends exactly once.

use std::sync::Arc;

use super::hooked::hooked;
use super::select::{by_hash, select};
use super::{Producers, Send, SendId};
use crate::client::core::io::{
    Answer, Destination, Now, Outgoing, Output, PeerId, ProducerId, SendMode, Ticket,
};
use crate::client::core::requests::Pending;
use crate::client::core::routes::Routes;
use crate::client::core::{Core, OneWay, Purpose, done, too_much_out};
use crate::client::error::{Error, ErrorKind, Place, Result, is_retryable_code};
use crate::client::message::{MessageQueue, SendResult, SendStatus};
use crate::wire::codes::{request, response};
use crate::wire::send_request::SendRequest;

impl Core {
    pub(in crate::client::core) fn send(
        &mut self,
        now: Now,
        ticket: Ticket,
        id: ProducerId,
        what: Box<Outgoing>,
        out: &mut Vec<Output>,
    ) {
        let admitted = self.admit(id, &what);
        let (place, topic) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return done(out, ticket, Err(error.of_topic(&what.topic))),
        };
        let producer = self.producers.producer(place);
        producer.in_flight += 1;
        producer.in_flight_bytes += what.bytes();
        let (began, deadline) = (what.began, what.deadline());
        let id = self.producers.insert(Send {
            ticket,
            producer: place,
            topic,
            what,
            began,
            deadline,
            tries: 0,
            try_at: now.at,
            broker: u32::MAX,
            broker_name: None,
            queue_id: 0,
            waited: false,
            one_way: None,
            stored: None,
        });
        self.try_send(now, id, out);
    }

    fn admit(&mut self, id: ProducerId, what: &Outgoing) -> Result<(u32, u32)> {
        let place = self.producers.place_of(id);
        let Some(place) = place else {
            return Err(ErrorKind::NotRunning.into());
        };
        let producer = self.producers.producer(place);
        if producer.stopping.is_some() {
            return Err(ErrorKind::NotRunning.into());
        }
        producer.admit(what.bytes())?;
        Ok((place, self.producer_topic(place, &what.topic)?))
    }

    /// Tries a send, the first time or again.
    pub(super) fn try_send(&mut self, now: Now, id: SendId, out: &mut Vec<Output>) {
        match self.pick(now, id) {
            Pick::Gone => {}
            Pick::Late => {
                let limit_ms = self.producers.get(id).map_or(0, |s| s.what.timeout_ms);
                self.end_send(now, id, Err(ErrorKind::Timeout { limit_ms }.into()), out);
            }
            Pick::NoQueue(topic, what) => {
                let waited = match self.producers.get(id) {
                    Some(send) => std::mem::replace(&mut send.waited, true),
                    None => return,
                };
                if waited {
                    return self.end_send(now, id, Err(ErrorKind::NoQueue { what }.into()), out);
                }
                self.producers.wait(id);
                self.want_route(now, topic, out);
            }
            Pick::Queue(address) => {
                let peer = match address {
                    Reach::Peer(peer) => peer,
                    Reach::Address(address, broker) => {
                        let peer = self.peer_to(now, &address, out);
                        if let Some(broker) = self.routes.broker_mut(broker) {
                            broker.peer = peer;
                        }
                        peer
                    }
                };
                self.put(now, id, peer, out);
            }
        }
    }

    /// Picks the queue of the next try.
    fn pick(&mut self, now: Now, id: SendId) -> Pick {
        let Core {
            producers,
            routes,
            peers,
            ..
        } = self;
        let Producers { list, sends, .. } = producers;
        let slot = &mut sends[id.slot as usize];
        let Some(send) = slot.send.as_mut().filter(|_| slot.epoch == id.epoch) else {
            return Pick::Gone;
        };
        if now.at >= send.deadline {
            return Pick::Late;
        }
        let producer = list[send.producer as usize]
            .as_mut()
            .expect("a producer stays as long as it has sends");
        let own = &mut producer.topics[send.topic as usize];
        let topic = routes.topic(own.topic);
        let last = (send.tries > 0).then_some(send.broker);
        let picked = match &send.what.to {
            Destination::Any => {
                let (queues, faults) = (&topic.publish, &producer.faults);
                let has_master = |id| routes.broker(id).is_some_and(|b| b.master().is_some());
                let cursor = &mut own.cursor;
                let index = select(queues, cursor, last, faults, now.at, has_master);
                index.map(|index| queues[index])
            }
            Destination::Hash(hash) => {
                by_hash(topic.publish.len(), *hash).map(|index| topic.publish[index])
            }
            Destination::Queue(queue) => chosen(routes, queue),
        };
        let reached = picked.and_then(|queue| {
            let broker = routes.broker(queue.broker)?;
            Some((queue, broker, broker.master()?))
        });
        let Some((queue, broker, address)) = reached else {
            let what = match &send.what.to {
                Destination::Queue(queue) => format!("no broker with the queue {queue} is known"),
                _ => "the topic has no queue that can be written".to_owned(),
            };
            return Pick::NoQueue(own.topic, what);
        };
        send.tries += 1;
        send.try_at = now.at;
        send.broker = queue.broker;
        send.queue_id = queue.queue_id;
        if last != Some(queue.broker) || send.broker_name.is_none() {
            send.broker_name = Some(broker.name.clone());
        }
        Pick::Queue(if peers.is_live(broker.peer) {
            Reach::Peer(broker.peer)
        } else {
            Reach::Address(address.clone(), queue.broker)
        })
    }

    /// Writes a try among the frames of a connection.
    fn put(&mut self, now: Now, id: SendId, peer: PeerId, out: &mut Vec<Output>) {
        self.hook_before(now, id, peer);
        let Core {
            producers,
            peers,
            requests,
            settings,
            ..
        } = self;
        let Producers { list, sends, .. } = producers;
        let Some(send) = sends[id.slot as usize].send.as_mut() else {
            return;
        };
        let producer = list[send.producer as usize]
            .as_mut()
            .expect("a producer stays as long as it has sends");
        let own = &producer.topics[send.topic as usize];
        let hooks = &settings.request_hooks;
        let address = if hooks.is_empty() {
            None
        } else {
            peers.address(peer).cloned()
        };
        let Some(buffer) = peers.buffer(peer) else {
            return self.send_failed(now, id, too_much_out(), true, out);
        };
        let more = send.tries <= retries(send, &producer.settings);
        let deadline = match producer.settings.send_timeout_per_try_ms {
            Some(ms) if more => send.deadline.min(now.at + ms),
            _ => send.deadline,
        };
        let one_way = send.what.mode == SendMode::OneWay;
        let opaque = requests.insert(Pending {
            peer,
            sent_at: now.at,
            deadline,
            code: request::SEND_MESSAGE_V2,
            purpose: Purpose::Send(id),
        });
        let what = &send.what;
        let frame = SendRequest {
            opaque,
            one_way,
            queue_id: send.queue_id,
            sys_flag: what.sys_flag,
            born_timestamp: now.wall,
            flag: what.flag,
            properties: &what.properties,
            unique_key: what.key(),
            reconsume: what.reconsume,
            batch: what.batch,
            broker_name: send.broker_name.as_deref().unwrap_or_default(),
            body: &what.body,
        };
        match address {
            None => own.template.encode(buffer, &frame),
            Some(address) => {
                let mut plain = Vec::new();
                own.template.encode(&mut plain, &frame);
                hooked(buffer, &plain, &address, hooks.iter());
            }
        }
        send.one_way = one_way.then_some((opaque, peer));
        peers.said(peer, now.at, out);
        if one_way {
            peers.one_way(peer, OneWay::Send(id));
        }
    }

    /// A send without an answer is written.
    pub(in crate::client::core) fn one_way_written(
        &mut self,
        now: Now,
        id: SendId,
        out: &mut Vec<Output>,
    ) {
        let Some(send) = self.producers.get(id) else {
            return;
        };
        if let Some((opaque, peer)) = send.one_way.take() {
            self.requests.take(opaque, peer);
        }
        self.end_send(now, id, Ok(Answer::Nothing), out);
    }

    /// A broker says that the message is stored, which was noted of the try.
    pub(super) fn send_stored(
        &mut self,
        now: Now,
        id: SendId,
        result: SendResult,
        out: &mut Vec<Output>,
    ) {
        let settled = result.status == SendStatus::SendOk;
        if !settled && self.may_retry(now, id, true) {
            self.hook_after(now, id, Some(&Ok(result.clone())));
            if let Some(send) = self.producers.get(id) {
                send.stored = Some(result);
            }
            return self.try_send(now, id, out);
        }
        self.end_send(now, id, Ok(Answer::Sent(result)), out);
    }

    /// A broker refuses.
    pub(super) fn send_refused(
        &mut self,
        now: Now,
        id: SendId,
        code: i32,
        remark: String,
        out: &mut Vec<Output>,
    ) {
        self.note_try(now, id, true, false);
        if matches!(code, response::TOPIC_NOT_EXIST | response::NO_PERMISSION) {
            // The topic may have been moved, or the broker closed to senders.
            if let Some(topic) = self.topic_of(id) {
                self.doubt_route(now, topic, out);
            }
        }
        let error = Error::new(ErrorKind::Answered { code, remark });
        if is_retryable_code(code) && self.may_retry(now, id, false) {
            self.again(now, id, error, out);
        } else {
            self.end_send(now, id, Err(error), out);
        }
    }

    /// A try has no answer, or none that makes sense.
    pub(in crate::client::core) fn send_failed(
        &mut self,
        now: Now,
        id: SendId,
        error: Error,
        reached: bool,
        out: &mut Vec<Output>,
    ) {
        let Some(send) = self.producers.get(id) else {
            return;
        };
        let mut error = error;
        if matches!(error.kind(), ErrorKind::Timeout { .. }) && now.at >= send.deadline {
            // The time of the whole send is what the caller gave.
            let limit_ms = send.what.timeout_ms;
            error = Error::new(ErrorKind::Timeout { limit_ms }).at(error.place().clone());
        }
        let (place, topic) = (send.producer, send.topic);
        let producer = self.producers.producer(place);
        let topic = producer.topics[topic as usize].topic;
        let detects = producer.detects();
        self.note_try(now, id, true, !detects);
        if *error.kind() == ErrorKind::NotRunning {
            return self.end_send(now, id, Err(error), out);
        }
        let lost = !reached || matches!(error.kind(), ErrorKind::Disconnected { .. });
        if lost {
            self.doubt_route(now, topic, out);
        }
        if self.may_retry(now, id, false) {
            self.again(now, id, error, out);
        } else {
            self.end_send(now, id, Err(error), out);
        }
    }

    fn again(&mut self, now: Now, id: SendId, error: Error, out: &mut Vec<Output>) {
        tracing::debug!(%error, "a send is tried again");
        self.hook_after(now, id, Some(&Err(error)));
        self.try_send(now, id, out);
    }

    /// Whether a send is tried once more. `stored`: it is stored, but not safely enough.
    fn may_retry(&mut self, now: Now, id: SendId, stored: bool) -> bool {
        let Some(send) = self.producers.get(id) else {
            return false;
        };
        let place = send.producer;
        let late = now.at >= send.deadline;
        let settings = self.producers.producer(place).settings.clone();
        let Some(send) = self.producers.get(id) else {
            return false;
        };
        let wanted = !stored || settings.retry_another_broker_when_not_store_ok;
        let elsewhere = !stored || send.what.to == Destination::Any;
        wanted && elsewhere && !late && send.tries <= retries(send, &settings)
    }

    /// The number of the topic of a send.
    fn topic_of(&mut self, id: SendId) -> Option<u32> {
        let send = self.producers.get(id)?;
        let (place, topic) = (send.producer, send.topic);
        let producer = self.producers.producer(place);
        Some(producer.topics[topic as usize].topic)
    }

    /// What a try says about its broker.
    pub(super) fn note_try(&mut self, now: Now, id: SendId, failed: bool, reachable: bool) {
        let Some(send) = self.producers.get(id) else {
            return;
        };
        let (place, broker) = (send.producer, send.broker);
        let latency = now.at.saturating_sub(send.try_at);
        let faults = &mut self.producers.producer(place).faults;
        if faults.is_enabled() && broker != u32::MAX {
            faults.update(broker, latency, failed, reachable, now.at);
        }
    }

    /// The end of a send.
    pub(super) fn end_send(
        &mut self,
        now: Now,
        id: SendId,
        result: Result<Answer>,
        out: &mut Vec<Output>,
    ) {
        let Some(send) = self.producers.get(id) else {
            return;
        };
        let address = match (&result, &send.broker_name) {
            (Err(error), Some(broker)) if error.place().address.is_none() => {
                self.routes.address(broker, 0).cloned()
            }
            _ => None,
        };
        // Stored somewhere is stored.
        let result = match (result, send.stored.take()) {
            (Err(_), Some(stored)) => Ok(Answer::Sent(stored)),
            (result, _) => result,
        };
        let result = result.map_err(|error| {
            let tried = send.tries > 0;
            let place = Place {
                topic: Some(send.what.topic.clone()),
                broker_name: send.broker_name.clone(),
                queue_id: tried.then_some(send.queue_id),
                address,
                ..Place::default()
            };
            let elapsed = now.at.saturating_sub(send.began);
            error.at(place).after(elapsed, send.tries)
        });
        match &result {
            Ok(Answer::Sent(stored)) => {
                if self.has_send_hooks(id) {
                    let stored = Ok(stored.clone());
                    self.hook_after(now, id, Some(&stored));
                }
            }
            Ok(_) => self.hook_after(now, id, None),
            Err(error) => {
                if self.has_send_hooks(id) {
                    let error = Err(error.clone());
                    self.hook_after(now, id, Some(&error));
                }
            }
        }
        self.producers.unwait(id);
        if let Some(send) = self.producers.remove(id) {
            done(out, send.ticket, result);
        }
    }
}

/// What picking a queue came to.
enum Pick {
    /// The send has ended.
    Gone,
    /// There is no time for a try.
    Late,
    /// There is none, in the topic of this number.
    NoQueue(u32, String),
    Queue(Reach),
}

enum Reach {
    Peer(PeerId),
    /// A connection is to be made to the broker of this number.
    Address(Arc<str>, u32),
}

fn chosen(routes: &Routes, queue: &MessageQueue) -> Option<super::super::routes::PublishQueue> {
    Some(super::super::routes::PublishQueue {
        broker: routes.find_broker(&queue.broker_name)?,
        queue_id: queue.queue_id,
    })
}

/// How often a send may be tried again in all.
fn retries(send: &Send, settings: &crate::client::settings::ProducerSettings) -> u32 {
    let any = send.what.to == Destination::Any;
    match send.what.mode {
        SendMode::Sync if any => settings.retry_times_when_send_failed,
        SendMode::Async => settings.retry_times_when_send_async_failed,
        SendMode::Sync | SendMode::OneWay => 0,
    }
}
