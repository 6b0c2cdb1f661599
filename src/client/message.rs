//! Messages: what is sent, what is received, and what a send came to.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::wire::properties::{self, name};

mod id;
mod received;

pub use id::MessageId;
pub use received::{ReceivedMessage, RecordFault};

/// Property that a message is ordered by (`MessageConst.PROPERTY_SHARDING_KEY`).
pub const SHARDING_KEY: &str = "__SHARDINGKEY";

/// Names that are the client's or the broker's own, which [`Message::property`] does not
/// set (`MessageConst.STRING_HASH_SET`, the part of it that changes what happens).
pub const RESERVED: [&str; 17] = [
    name::KEYS,
    name::TAGS,
    name::WAIT,
    name::DELAY,
    name::RETRY_TOPIC,
    name::REAL_TOPIC,
    name::REAL_QUEUE_ID,
    name::TRAN_MSG,
    name::UNIQ_KEY,
    name::MSG_REGION,
    name::TRACE_ON,
    name::CLUSTER,
    name::POP_CK,
    name::ORIGIN_MESSAGE_ID,
    name::TIMER_DELAY_SEC,
    name::TIMER_DELAY_MS,
    name::TIMER_DELIVER_MS,
];

/// A message to be sent.
///
/// What is wrong with it is told when it is sent, by an error that names it.
///
/// ```
/// use ringmq::client::Message;
///
/// let message = Message::new("orders", "one coffee")
///     .tag("new")
///     .key("order-4711")
///     .property("shop", "Fürth");
/// assert_eq!(message.body_bytes().as_ref(), b"one coffee");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    topic: Arc<str>,
    body: Bytes,
    flag: i32,
    /// As they are on the wire, each name once.
    properties: Vec<u8>,
    fault: Option<PropertyFault>,
}

/// Why a property cannot be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyFault {
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub what: &'static str,
}

impl Message {
    /// A message for `topic` (1 to 127 bytes of `%|a-zA-Z0-9_-`) with `body` (1 byte to
    /// the producer's `max_message_size`).
    pub fn new(topic: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Message {
        Message {
            topic: topic.into(),
            body: body.into(),
            flag: 0,
            properties: Vec::new(),
            fault: None,
        }
    }

    /// Sets the tag that consumers filter by.
    #[must_use]
    pub fn tag(mut self, tag: impl AsRef<str>) -> Message {
        self.set(name::TAGS, tag.as_ref());
        self
    }

    /// Sets the one key that the message is found by.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<str>) -> Message {
        self.set(name::KEYS, key.as_ref());
        self
    }

    /// Sets the keys that the message is found by; a space within a key parts it in two.
    #[must_use]
    pub fn keys<K: AsRef<str>>(mut self, keys: impl IntoIterator<Item = K>) -> Message {
        let mut joined = String::new();
        for key in keys {
            if !joined.is_empty() {
                joined.push(' ');
            }
            joined.push_str(key.as_ref());
        }
        self.set(name::KEYS, &joined);
        self
    }

    /// Sets the user flag: a number that nothing but the application looks at.
    #[must_use]
    pub const fn flag(mut self, flag: i32) -> Message {
        self.flag = flag;
        self
    }

    /// Sets a property of the application's own. Neither name nor value may be empty or
    /// hold the characters U+0001 and U+0002, which part them on the wire; names that
    /// RocketMQ uses itself are refused.
    #[must_use]
    pub fn property(mut self, name: &str, value: impl AsRef<str>) -> Message {
        if RESERVED.contains(&name) || name == SHARDING_KEY {
            self.refuse(name, "is RocketMQ's own; it has a setter of its own");
        } else if name.trim().is_empty() || value.as_ref().trim().is_empty() {
            self.refuse(name, "has a blank name or value");
        } else {
            self.set(name, value.as_ref());
        }
        self
    }

    /// Delays the delivery by a level of the broker's `messageDelayLevel`: 1 is 1 s, 3 is
    /// 10 s, 18 is 2 h unless the broker says otherwise; 0 is no delay.
    ///
    #[doc = example!("send_later")]
    #[must_use]
    pub fn delay_level(mut self, level: u32) -> Message {
        self.unset(name::DELAY);
        if level > 0 {
            self.set(name::DELAY, itoa::Buffer::new().format(level));
        }
        self
    }

    /// Delays the delivery by `ms` milliseconds, where the broker has timers.
    #[must_use]
    pub fn delay_ms(mut self, ms: u64) -> Message {
        self.set(name::TIMER_DELAY_MS, itoa::Buffer::new().format(ms));
        self
    }

    /// Delivers at a time, ms since 1970, where the broker has timers.
    #[must_use]
    pub fn deliver_at_ms(mut self, ms: u64) -> Message {
        self.set(name::TIMER_DELIVER_MS, itoa::Buffer::new().format(ms));
        self
    }

    /// Messages with the same sharding key go to the same queue, as long as the topic's
    /// queues stay the same, and are in order there. The queue is the one that Java's
    /// `SelectMessageQueueByHash` picks for the same text.
    ///
    #[doc = example!("send_in_order")]
    #[must_use]
    pub fn sharding_key(mut self, key: impl AsRef<str>) -> Message {
        self.set(SHARDING_KEY, key.as_ref());
        self
    }

    /// Whether the broker acknowledges only what is flushed and replicated as its settings
    /// ask for; `true` unless it is set.
    #[must_use]
    pub fn wait_store(mut self, wait: bool) -> Message {
        self.set(name::WAIT, if wait { "true" } else { "false" });
        self
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The body.
    pub const fn body_bytes(&self) -> &Bytes {
        &self.body
    }

    /// The user flag.
    pub const fn user_flag(&self) -> i32 {
        self.flag
    }

    /// The value of a property; tag and keys are properties, too.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = properties::get(&self.properties, name)?;
        std::str::from_utf8(value).ok()
    }

    /// The properties as they are written on the wire.
    pub fn properties_bytes(&self) -> &[u8] {
        &self.properties
    }

    /// The first property that could not be set.
    pub const fn fault(&self) -> Option<&PropertyFault> {
        self.fault.as_ref()
    }

    /// Topic, body and properties, taken apart.
    pub fn into_parts(self) -> (Arc<str>, Bytes, Vec<u8>) {
        (self.topic, self.body, self.properties)
    }

    fn set(&mut self, name: &str, value: &str) {
        let parted = |text: &str| {
            let ends = (properties::NAME_END, properties::VALUE_END);
            memchr::memchr2(ends.0, ends.1, text.as_bytes()).is_some()
        };
        if parted(name) || parted(value) {
            self.refuse(name, "holds U+0001 or U+0002, which part properties");
            return;
        }
        self.unset(name);
        if !value.is_empty() {
            properties::push(&mut self.properties, name, value.as_bytes());
        }
    }

    fn unset(&mut self, name: &str) {
        if properties::get(&self.properties, name).is_some() {
            let mut kept = Vec::with_capacity(self.properties.len());
            properties::copy_except(&mut kept, &self.properties, &[name]);
            self.properties = kept;
        }
    }

    fn refuse(&mut self, name: &str, what: &'static str) {
        self.fault.get_or_insert_with(|| PropertyFault {
            name: name.to_owned(),
            what,
        });
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("body_len", &self.body.len())
            .field("flag", &self.flag)
            .field("properties", &PropertiesText(&self.properties))
            .finish_non_exhaustive()
    }
}

/// Properties for people.
pub(crate) struct PropertiesText<'a>(pub &'a [u8]);

impl fmt::Debug for PropertiesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy;
        let pairs = properties::iter(self.0).map(|(name, value)| (text(name), text(value)));
        f.debug_map().entries(pairs).finish()
    }
}

/// One queue of a topic (`MessageQueue`). Queues are ordered by topic, broker and number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageQueue {
    /// The topic.
    pub topic: Arc<str>,
    /// Name of the broker (group) that has the queue.
    pub broker_name: Arc<str>,
    /// Its number there, from 0.
    pub queue_id: i32,
}

impl MessageQueue {
    /// The queue `queue_id` of `topic` on the broker `broker_name`.
    pub fn new(
        topic: impl Into<Arc<str>>,
        broker_name: impl Into<Arc<str>>,
        queue_id: i32,
    ) -> MessageQueue {
        MessageQueue {
            topic: topic.into(),
            broker_name: broker_name.into(),
            queue_id,
        }
    }
}

impl fmt::Display for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.broker_name, self.queue_id)
    }
}

/// How far a stored message got (`SendStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendStatus {
    /// As far as the broker's settings ask for.
    SendOk,
    /// Stored, but not flushed in time.
    FlushDiskTimeout,
    /// Stored, but not replicated in time.
    FlushSlaveTimeout,
    /// Stored, but there is no slave to replicate to.
    SlaveNotAvailable,
}

impl SendStatus {
    /// The name in RocketMQ.
    pub const fn name(self) -> &'static str {
        match self {
            SendStatus::SendOk => "SEND_OK",
            SendStatus::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
            SendStatus::FlushSlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
            SendStatus::SlaveNotAvailable => "SLAVE_NOT_AVAILABLE",
        }
    }
}

impl fmt::Display for SendStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a broker answered to a send: the message is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendResult {
    /// How far it got.
    pub status: SendStatus,
    /// The client's own id of the message, `UNIQ_KEY`; of a batch, the ids of its
    /// messages joined by commas.
    pub message_id: MessageId,
    /// The broker's id, which says where it is stored; of a batch, joined by commas.
    pub offset_message_id: MessageId,
    /// The queue it is in.
    pub queue: MessageQueue,
    /// Its place in the queue; of a batch, that of the first message.
    pub queue_offset: i64,
    /// What a message that waits in the broker's timer can be called back by.
    pub recall_handle: Option<String>,
    /// Region of the broker.
    pub region_id: Arc<str>,
    /// Whether the broker wants messages to be traced.
    pub trace_on: bool,
    /// How often it was tried, 1 where the first try was enough.
    pub tries: u32,
}

/// Where and when a received message was made and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When, ms since 1970.
    pub timestamp_ms: i64,
    /// By whom.
    pub host: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_has_one_value() {
        let message = Message::new("t", "b").tag("a").key("k").tag("b");
        assert_eq!(message.get("TAGS"), Some("b"));
        assert_eq!(message.properties_bytes(), b"KEYS\x01k\x02TAGS\x01b\x02");
        let keys = Message::new("t", "b").keys(["k1", "k2"]);
        assert_eq!(keys.get("KEYS"), Some("k1 k2"));
        let delayed = Message::new("t", "b").delay_level(3);
        assert_eq!(delayed.get("DELAY"), Some("3"));
        assert_eq!(delayed.delay_level(0).get("DELAY"), None);
    }

    #[test]
    fn a_property_that_cannot_be_written_is_told() {
        for (name, value) in [
            ("", "v"),
            ("n", " "),
            ("UNIQ_KEY", "v"),
            ("n", "a\u{2}b"),
            ("a\u{1}", "v"),
        ] {
            let message = Message::new("t", "b").property(name, value);
            assert_eq!(message.fault().map(|fault| fault.name.as_str()), Some(name));
            assert_eq!(message.properties_bytes(), b"", "{name:?}");
        }
        let fault = Message::new("t", "b").tag("a\u{1}").tag("b");
        assert!(fault.fault().is_some(), "a later tag does not mend it");
    }

    #[test]
    fn queues_are_ordered_as_java_orders_them() {
        let mut queues = [
            MessageQueue::new("t", "b", 0),
            MessageQueue::new("t", "a", 10),
            MessageQueue::new("s", "z", 0),
            MessageQueue::new("t", "a", 2),
        ];
        queues.sort();
        let shown: Vec<String> = queues.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["s/z/0", "t/a/2", "t/a/10", "t/b/0"]);
    }
}
