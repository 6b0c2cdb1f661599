//! Hooks of sends.

use std::sync::Arc;

use super::SendId;
use crate::client::core::Core;
use crate::client::core::io::{Now, PeerId};
use crate::client::error::Result;
use crate::client::hooks::{Hooks, RequestHook, SendContext, SendHook};
use crate::client::message::{MessageQueue, SendResult};
use crate::wire::command::Request;
use crate::wire::frame::{self, Split};
use crate::wire::header::{Header, Scratch};
use crate::wire::properties::{self, name};

impl Core {
    pub(super) fn has_send_hooks(&mut self, id: SendId) -> bool {
        let Some(send) = self.producers.get(id) else {
            return false;
        };
        let place = send.producer;
        let hooks = &self.producers.producer(place).settings.send_hooks;
        !hooks.is_empty()
    }

    pub(super) fn hook_before(&mut self, now: Now, id: SendId, peer: PeerId) {
        if self.has_send_hooks(id) {
            let address = self.peers.address(peer).cloned();
            self.with_context(now, id, address, |hooks, context| {
                hooks.iter().for_each(|hook| hook.before_send(context));
            });
        }
    }

    pub(super) fn hook_after(&mut self, now: Now, id: SendId, result: Option<&Result<SendResult>>) {
        if self.has_send_hooks(id) {
            let broker = self.producers.get(id).map_or(u32::MAX, |send| send.broker);
            let broker = self.routes.broker(broker);
            let address = broker.and_then(|broker| broker.master()).cloned();
            self.with_context(now, id, address, |hooks, context| {
                hooks
                    .iter()
                    .for_each(|hook| hook.after_send(context, result));
            });
        }
    }

    fn with_context(
        &mut self,
        now: Now,
        id: SendId,
        address: Option<Arc<str>>,
        call: impl FnOnce(&Hooks<dyn SendHook>, &SendContext<'_>),
    ) {
        let Some(send) = self.producers.get(id) else {
            return;
        };
        let place = send.producer;
        let queue = MessageQueue {
            topic: send.what.topic.clone(),
            broker_name: send.broker_name.clone().unwrap_or_else(|| "".into()),
            queue_id: send.queue_id,
        };
        let settings = self.producers.producer(place).settings.clone();
        let Some(send) = self.producers.get(id) else {
            return;
        };
        let mut properties = send.what.properties.clone();
        if let Some(key) = send.what.key() {
            properties::push(&mut properties, name::UNIQ_KEY, key.as_bytes());
        }
        let context = SendContext {
            group: &settings.group,
            topic: &send.what.topic,
            message_id: &send.what.message_id,
            body_bytes: send.what.body.len(),
            properties: &properties,
            queue: &queue,
            address: address.as_deref().unwrap_or_default(),
            tries: send.tries,
            now_ms: now.wall,
        };
        call(&settings.send_hooks, &context);
    }
}

/// Shows a frame to hooks and appends what they made of it.
pub(super) fn hooked<'a>(
    buffer: &mut Vec<u8>,
    plain: &[u8],
    address: &str,
    hooks: impl Iterator<Item = &'a Arc<dyn RequestHook>>,
) {
    let Ok(Split::Frame(frame, _)) = frame::split(plain) else {
        // Larger than any frame may be: the broker is to say so.
        return buffer.extend_from_slice(plain);
    };
    let mut scratch = Scratch::default();
    match Header::decode(&frame, &mut scratch) {
        Ok(header) => {
            let mut request = Request::from_header(&frame, &header);
            hooks.for_each(|hook| hook.before_request(address, &mut request));
            request.encode(buffer);
        }
        Err(_) => buffer.extend_from_slice(plain),
    }
}
