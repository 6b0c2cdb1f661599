//! What brokers ask of the consumers of this client, until it is answered.

use super::Consumers;
use crate::client::core::Core;
use crate::client::core::consumer::ReplyTo;
use crate::client::core::io::{ConsumerId, Now, PeerId};
use crate::wire::codes::request;
use crate::wire::command::Request;

/// Most requests of brokers that wait for listeners.
const ASKED_MAX: usize = 10_000;

/// A request of a broker that is not answered yet.
#[derive(Debug)]
pub(super) struct Asked {
    pub whose: ConsumerId,
    pub peer: PeerId,
    pub request: Request,
}

impl Consumers {
    /// A connection has ended: who asked by it waits no more.
    pub(in crate::client::core) fn end_peer(&mut self, peer: PeerId) {
        self.asked.retain(|_, asked| asked.peer != peer);
    }
}

impl Core {
    /// A request of a broker; `false` where it is not about consumers of this client.
    pub(in crate::client::core) fn consumer_requested(
        &mut self,
        now: Now,
        peer: PeerId,
        request: &Request,
    ) -> bool {
        let field = match request.fixed.code {
            request::NOTIFY_CONSUMER_IDS_CHANGED => {
                let group = request.get("consumerGroup").unwrap_or_default();
                if let Some(consumer) = self.consumers.of_group(group) {
                    consumer.members_changed(now.at);
                }
                return true;
            }
            request::RESET_CONSUMER_CLIENT_OFFSET | request::GET_CONSUMER_STATUS_FROM_CLIENT => {
                "group"
            }
            request::GET_CONSUMER_RUNNING_INFO | request::CONSUME_MESSAGE_DIRECTLY => {
                "consumerGroup"
            }
            _ => return false,
        };
        let group = request.get(field).unwrap_or_default().to_owned();
        let consumers = &mut self.consumers;
        consumers.next_asked += 1;
        let number = consumers.next_asked;
        let full = consumers.asked.len() >= ASKED_MAX;
        let Some((whose, consumer)) = consumers.id_of_group(&group) else {
            return false;
        };
        if full {
            // The broker asks again.
            return true;
        }
        consumer.requested(now, ReplyTo(number), request);
        if !request.fixed.is_one_way() {
            let mut request = request.clone();
            request.body = Default::default();
            let asked = Asked {
                whose,
                peer,
                request,
            };
            consumers.asked.insert(number, asked);
        }
        true
    }
}
