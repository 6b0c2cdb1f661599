//! What consumers want done, done.

use std::sync::Arc;

use super::asked::Asked;
use super::{INNER_PRODUCER, INNER_TICKET};
use crate::client::core::consumer::{Consumer, Effect, Notice, Target};
use crate::client::core::io::{Answer, ConsumerId, Delivery, Now, Output, Ticket};
use crate::client::core::{Core, Purpose, done};
use crate::client::error::{Error, ErrorKind, Result};

impl Core {
    pub(super) fn effect(
        &mut self,
        now: Now,
        id: ConsumerId,
        effect: Effect,
        out: &mut Vec<Output>,
    ) {
        match effect {
            Effect::Ask {
                call,
                to,
                request,
                timeout_ms,
            } => {
                let asked = self.target(now, &to, out).and_then(|address| {
                    let peer = self.peer_to(now, &address, out);
                    let deadline = now.at + timeout_ms;
                    let purpose = Purpose::Consumer { consumer: id, call };
                    self.ask(now, peer, request, deadline, purpose, out)
                });
                if let Err(error) = asked {
                    self.consumer_answered(now, id, call, Err(error));
                }
            }
            Effect::Tell { to, request } => {
                if let Ok(address) = self.target(now, &to, out) {
                    let peer = self.peer_to(now, &address, out);
                    // Nobody waits for what comes of it.
                    let _ = self.tell(now, peer, request, out);
                }
            }
            Effect::Send { call, mut outgoing } => {
                outgoing.began = now.at;
                self.consumers.next_send += 1;
                let ticket = Ticket(self.consumers.next_send << 32 | INNER_TICKET);
                self.consumers.sends.insert(ticket, (id, call));
                self.send(now, ticket, INNER_PRODUCER.0, outgoing, out);
            }
            Effect::Deliver(batch) => out.push(Output::Deliver(Delivery {
                consumer: id,
                delivery: batch.delivery,
                queue: batch.queue,
                messages: batch.messages,
            })),
            Effect::Heartbeat => self.heartbeats.change(),
            Effect::Route(topic) => match self.read_queues(&topic) {
                Some(queues) => {
                    if let Some(member) = self.consumers.list.get_mut(&id) {
                        member.routed(now.at, &topic, &queues);
                    }
                    if let Some(topic) = self.routes.find(&topic) {
                        self.doubt_route(now, topic, out);
                    }
                }
                None => self.want_route_of(now, &topic, out),
            },
            Effect::LoadOffsets { file } => out.push(Output::LoadOffsets { consumer: id, file }),
            Effect::StoreOffsets { file, content } => out.push(Output::StoreOffsets {
                consumer: id,
                file,
                content,
            }),
            Effect::Done { ticket, mut result } => {
                if let Ok(Answer::Messages(polled)) = &mut result {
                    polled.consumer = id;
                }
                done(out, ticket, result);
            }
            Effect::Respond { to, response } => {
                if let Some(Asked { peer, request, .. }) = self.consumers.asked.remove(&to.0) {
                    self.answer_broker(now, peer, &request, &response, out);
                }
            }
            Effect::Notice(Notice::Fault(error)) => {
                tracing::warn!(%error, "a consumer goes on after an error");
                if let Some(member) = self.consumers.list.get(&id) {
                    tell_fault(&member.consumer, &error);
                }
            }
            Effect::Notice(Notice::Assigned { topic, all, mine }) => {
                let (all, mine) = (all.len(), mine.len());
                tracing::debug!(topic = &*topic, all, mine, "queues were shared out");
            }
            Effect::Failed(error) => self.consumer_failed(id, error, out),
            Effect::Stopped { lost } => self.consumer_stopped(now, id, lost, out),
        }
    }

    fn consumer_failed(&mut self, id: ConsumerId, error: Error, out: &mut Vec<Output>) {
        let Some(member) = self.consumers.remove(id) else {
            return;
        };
        self.heartbeats.change();
        match member.starting {
            Some(starting) => done(out, starting.ticket, Err(error)),
            None => {
                tracing::error!(%error, "a consumer has ended");
                tell_fault(&member.consumer, &error);
            }
        }
        for ticket in member.stopping {
            done(out, ticket, Ok(Answer::Nothing));
        }
    }

    fn consumer_stopped(
        &mut self,
        now: Now,
        id: ConsumerId,
        lost: Option<Error>,
        out: &mut Vec<Output>,
    ) {
        let Some(member) = self.consumers.remove(id) else {
            return;
        };
        let group = member.consumer.rules().group.clone();
        self.unregister(now, "consumerGroup", &group, out);
        self.heartbeats.change();
        if let Some(starting) = member.starting {
            done(out, starting.ticket, Err(ErrorKind::NotRunning.into()));
        }
        for ticket in member.stopping {
            let result = lost.clone().map_or(Ok(Answer::Nothing), Err);
            done(out, ticket, result);
        }
    }

    /// The address of a broker that a consumer asks.
    fn target(&mut self, now: Now, to: &Target, out: &mut Vec<Output>) -> Result<Arc<str>> {
        let (found, what) = match to {
            Target::Broker { name, id } => {
                let id = i64::try_from(*id).unwrap_or(0);
                (
                    self.routes.address(name, id),
                    format!("broker {name} is in no route"),
                )
            }
            Target::AnyOf(topic) => {
                self.consumers.turn = self.consumers.turn.wrapping_add(1);
                let turn = self.consumers.turn;
                let what = format!("no broker of topic {topic} is in a route");
                (self.routes.any_address(topic, turn), what)
            }
        };
        if let Some(address) = found {
            return Ok(address.clone());
        }
        if let Target::AnyOf(topic) = to {
            if let Some(topic) = self.routes.find(topic) {
                self.doubt_route(now, topic, out);
            }
        }
        Err(Error::new(ErrorKind::NoQueue { what }))
    }
}

/// Tells the application of what goes wrong behind its calls.
fn tell_fault(consumer: &Consumer, error: &Error) {
    for hook in consumer.rules().fault_hooks.iter() {
        hook.fault(error);
    }
}
