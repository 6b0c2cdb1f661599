//! Messages: found by id, key, place or time, and read.

use super::body::QueueView;
use super::{Admin, AdminError, number_of};
use crate::client::message::ReceivedMessage;
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};
use crate::wire::ids;
use crate::wire::message::{Record, sys_flag};
use crate::wire::properties::{self, name};
use crate::wire::pull_header::pull_flag;
use flate2::read::ZlibDecoder;
use serde_json::Value;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The group that operators read under; every broker has it.
pub const TOOLS_GROUP: &str = "TOOLS_CONSUMER";

/// Longest body that is inflated, in bytes.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Bits of the system flag that tell how a body is compressed.
const COMPRESSION_TYPE: i32 = 0x700;
const COMPRESSION_ZLIB: i32 = 0x300;

/// A message as a broker keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Topic.
    pub topic: String,
    /// Queue number.
    pub queue_id: i32,
    /// Offset in the queue.
    pub queue_offset: i64,
    /// Position in the log of its broker.
    pub physical_offset: i64,
    /// Bytes of its record.
    pub store_size: usize,
    /// The sender's flag.
    pub flag: i32,
    /// The system flag.
    pub sys_flag: i32,
    /// When it was made, ms since 1970 by the sender's clock.
    pub born_time: i64,
    /// Where it came from, `host:port`.
    pub born_host: String,
    /// When it was stored, ms since 1970 by the broker's clock.
    pub store_time: i64,
    /// Address of the broker.
    pub store_host: String,
    /// How often it was given back by consumers.
    pub reconsume_times: i32,
    /// Position of the half message of its transaction.
    pub prepared_offset: i64,
    /// The offset message id.
    pub message_id: String,
    /// Properties in the order in which they are stored.
    pub properties: Vec<(String, String)>,
    /// The body as it was given to the sender; as it is stored where it is compressed in a way that
    /// is not known here.
    pub body: Vec<u8>,
    /// Whether the body's checksum holds.
    pub sound: bool,
}

impl StoredMessage {
    /// Copies a record.
    pub fn from_record(record: &Record<'_>) -> StoredMessage {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        StoredMessage {
            topic: text(record.topic()),
            queue_id: record.queue_id(),
            queue_offset: record.queue_offset(),
            physical_offset: record.physical_offset(),
            store_size: record.bytes().len(),
            flag: record.flag(),
            sys_flag: record.sys_flag(),
            born_time: record.born_timestamp(),
            born_host: record.born_host().to_string(),
            store_time: record.store_timestamp(),
            store_host: record.store_host().to_string(),
            reconsume_times: record.reconsume_times(),
            prepared_offset: record.prepared_offset(),
            message_id: ids::offset_id(record.store_host(), record.physical_offset()),
            properties: properties::iter(record.properties())
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            body: plain_body(record),
            sound: record.verify().is_ok(),
        }
    }

    /// The value of a property.
    pub fn property(&self, name: &str) -> Option<&str> {
        let found = self.properties.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The id that its sender gave it.
    pub fn unique_key(&self) -> Option<&str> {
        self.property(name::UNIQ_KEY)
    }

    /// Its tag.
    pub fn tags(&self) -> Option<&str> {
        self.property(name::TAGS)
    }

    /// Its keys, as they were set: parted by blanks.
    pub fn keys(&self) -> Option<&str> {
        self.property(name::KEYS)
    }
}

fn plain_body(record: &Record<'_>) -> Vec<u8> {
    let stored = record.body();
    let flags = record.sys_flag();
    let is_zlib = matches!(flags & COMPRESSION_TYPE, 0 | COMPRESSION_ZLIB);
    if flags & sys_flag::COMPRESSED != 0 && is_zlib {
        let mut plain = Vec::new();
        let limit = BODY_BYTES_MAX as u64 + 1;
        let inflated = ZlibDecoder::new(stored).take(limit).read_to_end(&mut plain);
        if inflated.is_ok() && plain.len() <= BODY_BYTES_MAX {
            return plain;
        }
    }
    stored.to_vec()
}

/// Reads records that lie behind each other.
///
/// # Errors
/// `Unsound` with the place at which they end.
pub fn parse_messages(from: &str, bytes: &[u8]) -> Result<Vec<StoredMessage>, AdminError> {
    let mut messages = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let record = Record::parse(rest).map_err(|error| {
            let at = bytes.len() - rest.len();
            AdminError::unsound(from, format!("messages that end at byte {at}: {error}"))
        })?;
        rest = &rest[record.bytes().len()..];
        messages.push(StoredMessage::from_record(&record));
    }
    Ok(messages)
}

/// What a broker answers to a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullAnswer {
    /// The messages; none where there are none at that place or the filter lets none through.
    pub messages: Vec<StoredMessage>,
    /// Where to go on.
    pub next: i64,
    /// Lowest readable offset.
    pub min: i64,
    /// One above the highest readable offset.
    pub max: i64,
}

/// What a sender's message id says of it: [`UniqueKey::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    /// Address of the sender's machine.
    pub ip: IpAddr,
    /// The lower half of its process id.
    pub pid: u16,
    /// Ms since the beginning of the month in which it was made, by the sender's local time.
    pub month_ms: u32,
    /// Its number among those of the sender.
    pub counter: u16,
}

impl UniqueKey {
    /// Reads 32 hex digits (IPv4) or 56 (IPv6); `None` for anything else.
    pub fn parse(id: &str) -> Option<UniqueKey> {
        let digits = id.as_bytes();
        let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let pairs = digits.chunks_exact(2);
        let bytes: Option<Vec<u8>> = pairs
            .map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?))
            .collect();
        let bytes = bytes.filter(|_| matches!(digits.len(), 32 | 56))?;
        let (ip, rest) = if digits.len() == 32 {
            let octets: [u8; 4] = bytes[..4].try_into().ok()?;
            (IpAddr::V4(Ipv4Addr::from(octets)), &bytes[4..])
        } else {
            let octets: [u8; 16] = bytes[..16].try_into().ok()?;
            (IpAddr::V6(Ipv6Addr::from(octets)), &bytes[16..])
        };
        Some(UniqueKey {
            ip,
            pid: u16::from_be_bytes(rest[..2].try_into().ok()?),
            month_ms: u32::from_be_bytes(rest[6..10].try_into().ok()?),
            counter: u16::from_be_bytes(rest[10..12].try_into().ok()?),
        })
    }
}

impl Admin {
    /// The message at a position in the log of a broker, which is what an offset message id tells.
    ///
    /// # Errors
    /// `NotFound` where there is none.
    pub fn message_at(
        &mut self,
        broker: &str,
        topic: &str,
        position: i64,
    ) -> Result<StoredMessage, AdminError> {
        let view = Request::new(request::VIEW_MESSAGE_BY_ID)
            .with("offset", position)
            .with("topic", topic);
        let none = || {
            AdminError::not_found("message", format!("at byte {position} of {broker}")).topic(topic)
        };
        let answer = match self.ask(broker, view) {
            Err(error) if error.code() == Some(response::SYSTEM_ERROR) => return Err(none()),
            other => other?,
        };
        let mut found = parse_messages(broker, &answer.body)?;
        if found.is_empty() {
            return Err(none());
        }
        Ok(found.swap_remove(0))
    }

    /// Up to `max` messages of a topic with a key, stored within a time (ms since 1970). With
    /// `unique` the key is the one that the sender gave.
    ///
    /// # Errors
    /// As [`Admin::ask`]; none found is no error.
    pub fn messages_by_key(
        &mut self,
        broker: &str,
        topic: &str,
        key: &str,
        max: i32,
        (begin, end): (i64, i64),
        unique: bool,
    ) -> Result<Vec<StoredMessage>, AdminError> {
        let mut ask = Request::new(request::QUERY_MESSAGE)
            .with("topic", topic)
            .with("key", key)
            .with("maxNum", max)
            .with("beginTimestamp", begin)
            .with("endTimestamp", end);
        if unique {
            ask = ask.with("_UNIQUE_KEY_QUERY", true);
        }
        let answer = match self.ask(broker, ask) {
            Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => return Ok(Vec::new()),
            other => other.map_err(|error| error.topic(topic))?,
        };
        let found = parse_messages(broker, &answer.body)?;
        // The index is of hashes: others may have come along.
        let wanted = |message: &StoredMessage| match unique {
            true => message.unique_key() == Some(key),
            false => message
                .keys()
                .is_some_and(|keys| keys.split(' ').any(|one| one == key)),
        };
        let of_topic = |message: &StoredMessage| message.topic == topic;
        Ok(found
            .into_iter()
            .filter(|message| of_topic(message) && wanted(message))
            .collect())
    }

    /// Messages of a queue from an offset on, as one pull gives them, at most `max`. `expression` are
    /// tags joined by `||`, or `*`. No offset is committed, and nothing is waited for.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn pull(
        &mut self,
        broker: &str,
        group: &str,
        (topic, queue): (&str, i32),
        offset: i64,
        max: i32,
        expression: &str,
    ) -> Result<PullAnswer, AdminError> {
        let places = [(queue, offset)];
        let mut answers = self.pull_all(broker, group, topic, &places, max, expression)?;
        Ok(answers.remove(0))
    }

    /// As [`Admin::pull`], from several queues at their offsets, asked all at once.
    ///
    /// # Errors
    /// As [`Admin::ask`], of the first that fails.
    pub fn pull_all(
        &mut self,
        broker: &str,
        group: &str,
        topic: &str,
        places: &[(i32, i64)],
        max: i32,
        expression: &str,
    ) -> Result<Vec<PullAnswer>, AdminError> {
        let pull = |&(queue, offset): &(i32, i64)| {
            Request::new(request::PULL_MESSAGE)
                .with("consumerGroup", group)
                .with("topic", topic)
                .with("queueId", queue)
                .with("queueOffset", offset)
                .with("maxMsgNums", max)
                .with("sysFlag", pull_flag::SUBSCRIPTION)
                .with("commitOffset", 0)
                .with("suspendTimeoutMillis", 0)
                .with("subscription", expression)
                .with("subVersion", 0)
                .with("expressionType", "TAG")
        };
        let answers = self.ask_all(broker, places.iter().map(pull).collect())?;
        let answers = answers.into_iter();
        answers
            .map(|answer| pull_answer(broker, topic, answer))
            .collect()
    }

    /// Gives a message to one member of a group, and answers with what it made of it
    /// (`ConsumeMessageDirectlyResult`).
    ///
    /// # Errors
    /// As [`Admin::ask`]; code 1 where the member is not connected, 207 where it does not answer.
    pub fn consume_directly(
        &mut self,
        broker: &str,
        group: &str,
        client: &str,
        message: &StoredMessage,
    ) -> Result<Value, AdminError> {
        let give = Request::new(request::CONSUME_MESSAGE_DIRECTLY)
            .with("consumerGroup", group)
            .with("clientId", client)
            .with("topic", &message.topic)
            .with("msgId", &message.message_id);
        self.body_of(broker, give)
            .map_err(|error| error.group(group).topic(&message.topic))
    }

    /// Entries of a ConsumeQueue from an index on, and what a group's filter makes of them.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn queue_entries(
        &mut self,
        broker: &str,
        (topic, queue): (&str, i32),
        index: i64,
        count: i32,
        group: Option<&str>,
    ) -> Result<QueueView, AdminError> {
        let mut ask = Request::new(request::QUERY_CONSUME_QUEUE)
            .with("topic", topic)
            .with("queueId", queue)
            .with("index", index)
            .with("count", count);
        if let Some(group) = group {
            ask = ask.with("consumerGroup", group);
        }
        self.body_of(broker, ask)
            .map_err(|error| error.topic(topic))
    }
}

/// What a broker says to a pull.
fn pull_answer(broker: &str, topic: &str, answer: Response) -> Result<PullAnswer, AdminError> {
    let answer = match answer.code {
        response::PULL_NOT_FOUND
        | response::PULL_RETRY_IMMEDIATELY
        | response::PULL_OFFSET_MOVED => Response {
            body: Default::default(),
            ..answer
        },
        _ => super::succeeded(
            crate::client::remote::resolve(broker)?,
            request::PULL_MESSAGE,
            answer,
        )
        .map_err(|error| error.topic(topic))?,
    };
    Ok(PullAnswer {
        messages: parse_messages(broker, &answer.body)?,
        next: number_of(broker, &answer, "nextBeginOffset")?,
        min: number_of(broker, &answer, "minOffset")?,
        max: number_of(broker, &answer, "maxOffset")?,
    })
}

impl From<&ReceivedMessage> for StoredMessage {
    /// Copies a message that a consumer got.
    fn from(message: &ReceivedMessage) -> StoredMessage {
        let pairs = message.properties();
        StoredMessage {
            topic: message.topic().to_owned(),
            queue_id: message.queue.queue_id,
            queue_offset: message.queue_offset,
            physical_offset: message.physical_offset,
            store_size: message.store_size,
            flag: message.flag,
            sys_flag: message.sys_flag,
            born_time: message.born.timestamp_ms,
            born_host: message.born.host.to_string(),
            store_time: message.stored.timestamp_ms,
            store_host: message.stored.host.to_string(),
            reconsume_times: message.reconsume_times,
            prepared_offset: message.prepared_offset,
            message_id: message.offset_message_id(),
            properties: pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            body: message.body().to_vec(),
            sound: true,
        }
    }
}
