//! What brokers hear of this client: every 30 s, after every change, and first of all on
//! every new connection (`MQClientInstance.sendHeartbeatToAllBroker`).

use std::sync::Arc;

use bytes::Bytes;

use super::io::{Now, Output, PeerId};
use super::{Core, Purpose, json_body};
use crate::wire::body::heartbeat::{HeartbeatData, ProducerData};
use crate::wire::codes::request;
use crate::wire::command::Request;

/// When brokers hear of this client next, and what.
#[derive(Debug)]
pub(super) struct Heartbeats {
    next_at: u64,
    /// What they hear; made anew after a change.
    body: Option<Bytes>,
    /// They are to hear of a change at once.
    changed: bool,
    answered: u64,
}

impl Heartbeats {
    pub fn new(next_at: u64) -> Heartbeats {
        Heartbeats {
            next_at,
            body: None,
            changed: false,
            answered: 0,
        }
    }

    pub fn next_wake(&self) -> Option<u64> {
        Some(self.next_at)
    }

    /// Groups or subscriptions have changed.
    pub fn change(&mut self) {
        self.body = None;
        self.changed = true;
    }

    pub fn answered(&mut self) {
        self.answered += 1;
    }
}

impl Core {
    /// Sends heartbeats if they are due.
    pub(super) fn pass_heartbeats(&mut self, now: Now, out: &mut Vec<Output>) {
        let due = now.at >= self.heartbeats.next_at;
        if !due && !self.heartbeats.changed {
            return;
        }
        self.heartbeats.changed = false;
        if due {
            self.heartbeats.next_at = now.at + self.settings.heartbeat_broker_interval_ms;
        }
        if self.heartbeat_body().is_none() {
            return;
        }
        let masters_only = !self.has_consumers();
        let mut addresses: Vec<Arc<str>> = Vec::new();
        for broker in self.routes.brokers() {
            for (&id, address) in &broker.addresses {
                if id == 0 || !masters_only {
                    addresses.push(address.clone());
                }
            }
        }
        addresses.sort();
        addresses.dedup();
        for address in addresses {
            let (peer, new) = self.peers.to(&address, now.at, out);
            // A connection that is yet to be made was given its heartbeat when it was asked
            // for; a change since then is told all the same.
            let _ = new;
            self.heartbeat_to(now, peer, out);
        }
    }

    /// Puts a heartbeat among the frames of a connection.
    pub(super) fn heartbeat_to(&mut self, now: Now, peer: PeerId, out: &mut Vec<Output>) {
        let Some(body) = self.heartbeat_body() else {
            return;
        };
        let request = Request::new(request::HEART_BEAT).with_body(body);
        let deadline = now.at + self.settings.api_timeout_ms;
        // At the bound of the connection there is no lack of life in it.
        let _ = self.ask(now, peer, request, deadline, Purpose::Heartbeat, out);
    }

    /// What brokers hear; `None` where there is neither a producer nor a consumer.
    fn heartbeat_body(&mut self) -> Option<Bytes> {
        if self.heartbeats.body.is_none() {
            let groups = self.producers.groups();
            let data = HeartbeatData {
                client_id: self.client_id.to_string(),
                producer_data_set: groups
                    .map(|group| ProducerData {
                        group_name: group.to_string(),
                    })
                    .collect(),
                consumer_data_set: self.consumer_data(),
                ..HeartbeatData::default()
            };
            if !data.producer_data_set.is_empty() || !data.consumer_data_set.is_empty() {
                self.heartbeats.body = Some(json_body(&data));
            }
        }
        self.heartbeats.body.clone()
    }
}
