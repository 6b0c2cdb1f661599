//! The beginning and the end of a producer, and its detector of brokers.

use std::sync::Arc;

use super::{Faults, Producer, Producers};
use crate::client::core::io::{Answer, Now, Output, ProducerId, Ticket};
use crate::client::core::{Core, Purpose, done};
use crate::client::error::{Error, ErrorKind};
use crate::client::settings::ProducerSettings;
use crate::wire::codes::request;
use crate::wire::command::Request;
use foldhash::{HashMap, HashMapExt};

/// How often the detector looks for a broker that could not be reached, ms
/// (`detectInterval`).
const DETECT_INTERVAL_MS: u64 = 2_000;
/// How long it waits for an answer, ms (`detectTimeout`).
const DETECT_TIMEOUT_MS: u64 = 200;

/// A producer that takes no more sends.
#[derive(Debug)]
pub(super) struct Stopping {
    /// Who waits.
    pub ticket: Option<Ticket>,
    /// Sends are waited for until then, ms.
    pub deadline: u64,
}

impl Producers {
    /// Begins to stop all of them.
    pub fn stop_all(&mut self, deadline: u64) {
        for producer in self.list.iter_mut().flatten() {
            let stopping = producer.stopping.get_or_insert(Stopping {
                ticket: None,
                deadline,
            });
            stopping.deadline = stopping.deadline.min(deadline);
        }
    }
}

impl Core {
    pub(in crate::client::core) fn start_producer(
        &mut self,
        ticket: Ticket,
        id: ProducerId,
        settings: Arc<ProducerSettings>,
        out: &mut Vec<Output>,
    ) {
        if let Err(error) = settings.check() {
            return done(out, ticket, Err(error));
        }
        if self
            .producers
            .groups()
            .any(|group| *group == settings.group)
        {
            let error = Error::new(ErrorKind::GroupExists).of_group(&settings.group);
            return done(out, ticket, Err(error));
        }
        let producer = Producer {
            id,
            faults: Faults::new(&settings),
            settings,
            topics: Vec::new(),
            by_topic: HashMap::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            stopping: None,
            probe_at: 0,
        };
        let list = &mut self.producers.list;
        match list.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(producer),
            None => list.push(Some(producer)),
        }
        self.heartbeats.change();
        done(out, ticket, Ok(Answer::Nothing));
    }

    pub(in crate::client::core) fn stop_producer(
        &mut self,
        now: Now,
        ticket: Ticket,
        id: ProducerId,
        wait_ms: u64,
        out: &mut Vec<Output>,
    ) {
        let place = self.producers.place_of(id);
        let producer = place.map(|place| self.producers.producer(place));
        match producer {
            Some(producer) if producer.stopping.is_none() => {
                producer.stopping = Some(Stopping {
                    ticket: Some(ticket),
                    deadline: now.at.saturating_add(wait_ms),
                });
            }
            _ => done(out, ticket, Err(ErrorKind::NotRunning.into())),
        }
    }

    /// Ends producers that have nothing in flight any longer, or no more time.
    pub(in crate::client::core) fn pass_stopping_producers(
        &mut self,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        for place in 0..self.producers.list.len() as u32 {
            let Some(producer) = &self.producers.list[place as usize] else {
                continue;
            };
            let Some(stopping) = &producer.stopping else {
                continue;
            };
            let over = producer.in_flight == 0 || now.at >= stopping.deadline;
            if !over {
                continue;
            }
            let (ticket, group) = (stopping.ticket, producer.settings.group.clone());
            for id in self.producers.of(place) {
                let error = Error::new(ErrorKind::NotRunning);
                self.end_send(now, id, Err(error), out);
            }
            self.unregister(now, "producerGroup", &group, out);
            self.producers.list[place as usize] = None;
            self.heartbeats.change();
            if let Some(ticket) = ticket {
                done(out, ticket, Ok(Answer::Nothing));
            }
        }
    }

    /// Looks for brokers that could not be reached.
    pub(in crate::client::core) fn pass_probes(&mut self, now: Now, out: &mut Vec<Output>) {
        let mut probes = Vec::new();
        for producer in self.producers.list.iter_mut().flatten() {
            if !producer.detects() || now.at < producer.probe_at {
                continue;
            }
            producer.probe_at = now.at + DETECT_INTERVAL_MS;
            let lost = producer.faults.unreachable();
            probes.extend(lost.map(|broker| (producer.id, broker)));
        }
        for (producer, broker) in probes {
            let known = self.routes.broker(broker);
            let Some(address) = known.and_then(|broker| broker.master()).cloned() else {
                continue;
            };
            let peer = self.peer_to(now, &address, out);
            let request = Request::new(request::GET_BROKER_RUNTIME_INFO);
            let purpose = Purpose::Probe { producer, broker };
            let deadline = now.at + DETECT_TIMEOUT_MS;
            // At the bound of the connection it is looked again the next time.
            let _ = self.ask(now, peer, request, deadline, purpose, out);
        }
    }
}
