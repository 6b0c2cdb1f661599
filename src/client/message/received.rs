//! A message as a consumer gets it (`MessageExt`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::{MessageQueue, PropertiesText, Stamp};
use crate::client::core::producer::compress::{DECOMPRESSED_BYTES_MAX, decompress};
use crate::wire::batch::{self, BatchError};
use crate::wire::ids;
use crate::wire::message::{Record, RecordError, sys_flag};
use crate::wire::properties::{self, name};

/// The body is an encoded batch, to be taken apart (`MessageSysFlag.NEED_UNWRAP_FLAG`).
const NEED_UNWRAP: i32 = 0x40;
/// A batch that was stored as one message (`MessageSysFlag.INNER_BATCH_FLAG`).
const INNER_BATCH: i32 = 0x80;
/// How many messages an inner batch has, and the offset of the first.
const INNER_NUM: &str = "INNER_NUM";
const INNER_BASE: &str = "INNER_BASE";

/// A message as it was stored. Cloning it copies no body.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The queue it was read from; its topic may be a retry topic, see
    /// [`ReceivedMessage::topic`].
    pub queue: MessageQueue,
    /// Its place in the queue.
    pub queue_offset: i64,
    /// Its place in the broker's log.
    pub physical_offset: i64,
    /// Size of the record in the log, in bytes.
    pub store_size: usize,
    /// Who made it, and when.
    pub born: Stamp,
    /// Which broker stored it, and when.
    pub stored: Stamp,
    /// How often its consumption failed.
    pub reconsume_times: i32,
    /// Physical offset of the half message it commits, else 0.
    pub prepared_offset: i64,
    /// The sender's flag.
    pub flag: i32,
    /// Bits of `wire::message::sys_flag`; that of compression is cleared where the body
    /// was decompressed, that of an inner batch to be taken apart (0x40) where it was.
    pub sys_flag: i32,
    /// Which one it is of those that share [`ReceivedMessage::queue_offset`].
    pub(crate) part: u32,
    topic: Arc<str>,
    body: Bytes,
    properties: Bytes,
}

/// Why bytes that a broker answered are no messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// They are no record.
    Record(RecordError),
    /// The body cannot be decompressed, or not within the limit.
    Body(&'static str),
    /// The topic is not UTF-8.
    Topic,
    /// It is no batch.
    Batch(BatchError),
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordFault::Record(error) => write!(f, "{error}"),
            RecordFault::Body(what) => write!(f, "body: {what}"),
            RecordFault::Batch(error) => write!(f, "{error}"),
            RecordFault::Topic => f.write_str("topic is not UTF-8"),
        }
    }
}

impl ReceivedMessage {
    /// Reads the record at the start of `bytes`, which was read from a queue of the broker
    /// `broker_name`; also tells the length of the record. The body stays compressed,
    /// where it is, and shares the memory of `bytes`. `topic` is used again where the
    /// record has the same.
    ///
    /// # Errors
    /// [`RecordFault::Record`] (the CRC is checked) and [`RecordFault::Topic`].
    pub fn parse(
        bytes: &Bytes,
        broker_name: &Arc<str>,
        topic: &Arc<str>,
    ) -> Result<(ReceivedMessage, usize), RecordFault> {
        let record = Record::parse(bytes).map_err(RecordFault::Record)?;
        record.verify().map_err(RecordFault::Record)?;
        let same = record.topic() == topic.as_bytes();
        let topic = if same {
            topic.clone()
        } else {
            let text = std::str::from_utf8(record.topic()).map_err(|_| RecordFault::Topic)?;
            Arc::from(text)
        };
        let len = record.bytes().len();
        let message = ReceivedMessage {
            queue: MessageQueue {
                topic: topic.clone(),
                broker_name: broker_name.clone(),
                queue_id: record.queue_id(),
            },
            queue_offset: record.queue_offset(),
            physical_offset: record.physical_offset(),
            store_size: len,
            born: Stamp {
                timestamp_ms: record.born_timestamp(),
                host: record.born_host(),
            },
            stored: Stamp {
                timestamp_ms: record.store_timestamp(),
                host: record.store_host(),
            },
            reconsume_times: record.reconsume_times(),
            prepared_offset: record.prepared_offset(),
            flag: record.flag(),
            sys_flag: record.sys_flag(),
            part: 0,
            topic,
            body: bytes.slice_ref(record.body()),
            properties: bytes.slice_ref(record.properties()),
        };
        Ok((message, len))
    }

    /// The topic that the application knows: for a message of a retry topic, the one that
    /// it was first sent to, once the consumer has put it back (see
    /// [`ReceivedMessage::set_topic`]).
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Sets the topic that the application sees.
    pub fn set_topic(&mut self, topic: Arc<str>) {
        self.topic = topic;
    }

    /// The body.
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// Sets the body in place of a compressed one.
    pub fn set_body(&mut self, body: Bytes) {
        self.body = body;
        self.sys_flag &= !sys_flag::COMPRESSED;
    }

    /// Whether the body is still compressed.
    pub const fn is_compressed(&self) -> bool {
        self.sys_flag & sys_flag::COMPRESSED != 0
    }

    /// Gets a compressed body back.
    ///
    /// # Errors
    /// [`RecordFault::Body`]; the body stays as it is.
    pub fn unpack(&mut self) -> Result<(), RecordFault> {
        if self.is_compressed() && !self.body.is_empty() {
            let body = decompress(&self.body, self.sys_flag, DECOMPRESSED_BYTES_MAX)
                .map_err(RecordFault::Body)?;
            self.set_body(body);
        }
        Ok(())
    }

    /// Whether the body is a batch that the broker stored as one message.
    pub const fn is_inner_batch(&self) -> bool {
        let both = INNER_BATCH | NEED_UNWRAP;
        self.sys_flag & both == both
    }

    /// Whether it was one of an inner batch.
    pub const fn is_unwrapped(&self) -> bool {
        self.sys_flag & (INNER_BATCH | NEED_UNWRAP) == INNER_BATCH
    }

    /// As many offsets as the broker says that an inner batch takes; `None` where it does
    /// not, or says it of another place.
    pub(crate) fn inner_count(&self) -> Option<i64> {
        let base: i64 = self.property(INNER_BASE)?.parse().ok()?;
        let count: i16 = self.property(INNER_NUM)?.parse().ok()?;
        (base == self.queue_offset && count > 0).then_some(count.into())
    }

    /// The messages of an inner batch, each with the flag, body and properties of its own and
    /// everything else of the batch, its place, too (`MessageDecoder.decodeMessage`). Bodies
    /// share the memory of the batch.
    ///
    /// # Errors
    /// [`RecordFault::Body`] and [`RecordFault::Batch`].
    pub(crate) fn unwrap_batch(&self) -> Result<Vec<ReceivedMessage>, RecordFault> {
        let mut batch = self.clone();
        batch.unpack()?;
        batch.sys_flag &= !NEED_UNWRAP;
        let bytes = &batch.body;
        let items = batch::items(bytes).map(|item| {
            let item = item.map_err(RecordFault::Batch)?;
            Ok(ReceivedMessage {
                flag: item.flag,
                body: bytes.slice_ref(item.body),
                properties: bytes.slice_ref(item.properties),
                ..batch.clone()
            })
        });
        items.collect()
    }

    /// The value of a property, where it has one that is UTF-8.
    pub fn property(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(properties::get(&self.properties, name)?).ok()
    }

    /// The properties, as they are written on the wire.
    pub const fn properties_bytes(&self) -> &Bytes {
        &self.properties
    }

    /// The properties in the order in which they are written; those that are not UTF-8
    /// are left out.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        properties::iter(&self.properties).filter_map(|(name, value)| {
            Some((
                std::str::from_utf8(name).ok()?,
                std::str::from_utf8(value).ok()?,
            ))
        })
    }

    /// The tag.
    pub fn tag(&self) -> Option<&str> {
        self.property(name::TAGS)
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.property(name::KEYS).unwrap_or_default();
        keys.split(' ').filter(|key| !key.is_empty())
    }

    /// The sender's id of the message (`UNIQ_KEY`); the broker's where it has none.
    pub fn message_id(&self) -> String {
        self.property(name::UNIQ_KEY)
            .map_or_else(|| self.offset_message_id(), str::to_owned)
    }

    /// The broker's id of the message, which says where it is stored.
    pub fn offset_message_id(&self) -> String {
        ids::offset_id(self.stored.host, self.physical_offset)
    }
}

impl fmt::Debug for ReceivedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedMessage")
            .field("topic", &self.topic)
            .field("queue", &format_args!("{}", self.queue))
            .field("queue_offset", &self.queue_offset)
            .field("reconsume_times", &self.reconsume_times)
            .field("body_len", &self.body.len())
            .field("properties", &PropertiesText(&self.properties))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::{Parts, Stamp as Placed, body_crc};

    fn record(topic: &str, properties: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let host = ([10, 0, 0, 1], 10911).into();
        let parts = Parts {
            queue_id: 3,
            flag: 7,
            sys_flag: 0,
            born_timestamp: 5,
            born_host: host,
            store_host: host,
            reconsume_times: 2,
            prepared_offset: 0,
            body: b"body",
            body_crc: body_crc(b"body"),
            topic: topic.as_bytes(),
            properties,
        };
        let placed = Placed {
            queue_offset: 11,
            physical_offset: 12,
            store_timestamp: 13,
        };
        parts.write(&placed, |piece| out.extend_from_slice(piece));
        out
    }

    #[test]
    fn a_record_is_read_with_its_neighbour_behind_it() {
        let mut bytes = record("t", b"TAGS\x01x\x02KEYS\x01a b\x02UNIQ_KEY\x01U\x02");
        let first = bytes.len();
        bytes.extend_from_slice(&record("other", b""));
        let bytes = Bytes::from(bytes);
        let (broker, topic) = ("b".into(), "t".into());
        let (message, len) = ReceivedMessage::parse(&bytes, &broker, &topic).unwrap();
        assert_eq!(len, first);
        assert_eq!(message.queue.to_string(), "t/b/3");
        assert_eq!(
            (message.tag(), message.message_id().as_str()),
            (Some("x"), "U")
        );
        assert_eq!(message.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(message.body().as_ref(), b"body");
        let (second, _) = ReceivedMessage::parse(&bytes.slice(len..), &broker, &topic).unwrap();
        assert_eq!(second.topic(), "other");
        assert_eq!(second.message_id(), second.offset_message_id());
    }

    #[test]
    fn a_body_that_was_changed_on_the_way_is_refused() {
        let mut bytes = record("t", b"");
        let at = bytes.windows(4).position(|four| four == b"body").unwrap();
        bytes[at] = b'B';
        let parsed = ReceivedMessage::parse(&bytes.into(), &"b".into(), &"t".into());
        assert_eq!(parsed.unwrap_err(), RecordFault::Record(RecordError::Crc));
    }
}
