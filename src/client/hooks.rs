//! Places where an application looks on, for traces, or steps in, for signatures.
//!
//! Hooks run on the client's own thread, between the messages of everyone, or on that of whoever
//! sends: they must be quick, and must neither wait, call the client nor panic.

use std::fmt;
use std::sync::Arc;

use super::error::Error;
use super::message::{MessageQueue, ReceivedMessage, SendResult};
use crate::wire::command::{Request, Response};

/// Sees each request before it is sent, and each answer (`RPCHook`).
///
#[doc = example!("sign_requests")]
pub trait RequestHook: Send + Sync {
    /// Before `request` goes to `address`: ext fields may be added, as a signature is.
    fn before_request(&self, address: &str, request: &mut Request) {
        let _ = (address, request);
    }

    /// After the answer to a request with `code` came from `address`.
    fn after_answer(&self, address: &str, code: i32, answer: &Response) {
        let _ = (address, code, answer);
    }
}

/// What a send is about, for [`SendHook`].
#[derive(Clone, Copy, Debug)]
pub struct SendContext<'a> {
    /// Producer group.
    pub group: &'a Arc<str>,
    /// Topic.
    pub topic: &'a Arc<str>,
    /// The client's id of the message.
    pub message_id: &'a str,
    /// Body on the wire, bytes.
    pub body_bytes: usize,
    /// Properties, as on the wire.
    pub properties: &'a [u8],
    /// Queue of this try.
    pub queue: &'a MessageQueue,
    /// Address of its broker.
    pub address: &'a str,
    /// 1 for the first try.
    pub tries: u32,
    /// Wall clock, ms since 1970.
    pub now_ms: i64,
}

/// Sees each try of a send, and what it came to (`SendMessageHook`).
///
#[doc = example!("count_tries")]
pub trait SendHook: Send + Sync {
    /// Before a try.
    fn before_send(&self, context: &SendContext<'_>) {
        let _ = context;
    }

    /// After a try. `result` is `None` for one that is not answered (one-way).
    fn after_send(&self, context: &SendContext<'_>, result: Option<&Result<SendResult, Error>>) {
        let _ = (context, result);
    }
}

/// What a consumption is about, for [`ConsumeHook`].
#[derive(Clone, Copy, Debug)]
pub struct ConsumeContext<'a> {
    /// Consumer group.
    pub group: &'a Arc<str>,
    /// Queue.
    pub queue: &'a MessageQueue,
    /// The messages.
    pub messages: &'a [ReceivedMessage],
    /// Wall clock, ms since 1970.
    pub now_ms: i64,
}

/// Sees each batch that goes to a listener, and what it came to (`ConsumeMessageHook`).
pub trait ConsumeHook: Send + Sync {
    /// Before the listener has it.
    fn before_consume(&self, context: &ConsumeContext<'_>) {
        let _ = context;
    }

    /// After the listener is done with it.
    fn after_consume(&self, context: &ConsumeContext<'_>, success: bool) {
        let _ = (context, success);
    }
}

/// Is told what goes wrong behind the calls of a consumer: offsets that cannot be stored, pulls
/// that fail. Each is tried again, unless the consumer stops; the log has them as warnings.
///
/// ```
/// use ringmq::client::hooks::FaultHook;
/// use ringmq::client::{Error, ErrorKind, PushConsumerSettings};
/// use std::sync::Arc;
///
/// struct FullDisk;
///
/// impl FaultHook for FullDisk {
///     fn fault(&self, error: &Error) {
///         if let ErrorKind::OffsetFile { path, why } = error.kind() {
///             eprintln!("{path}: {why}");
///         }
///     }
/// }
///
/// let mut settings = PushConsumerSettings::new("billing");
/// settings.setup.fault_hooks.push(Arc::new(FullDisk));
/// ```
pub trait FaultHook: Send + Sync {
    /// After `error`, which names the group and whatever else is known of the place.
    fn fault(&self, error: &Error);
}

/// Is told when topics of a pull consumer have other queues, for those that assign them by
/// themselves (`TopicMessageQueueChangeListener`).
pub trait QueueHook: Send + Sync {
    /// After the queues of `topic` that can be read have become `queues`.
    fn queues_changed(&self, topic: &Arc<str>, queues: &[MessageQueue]);
}

/// A list of hooks of one kind; settings are shown without what is in it.
pub struct Hooks<H: ?Sized>(pub Vec<Arc<H>>);

impl<H: ?Sized> Default for Hooks<H> {
    fn default() -> Hooks<H> {
        Hooks(Vec::new())
    }
}

impl<H: ?Sized> Hooks<H> {
    /// Adds one, behind those that are there.
    pub fn push(&mut self, hook: Arc<H>) {
        self.0.push(hook);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hooks in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<H>> {
        self.0.iter()
    }
}

impl<H: ?Sized> Clone for Hooks<H> {
    fn clone(&self) -> Hooks<H> {
        Hooks(self.0.clone())
    }
}

impl<H: ?Sized> fmt::Debug for Hooks<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hooks", self.0.len())
    }
}
