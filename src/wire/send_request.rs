//! A send as a client writes it: request 310 or 320 with letters for names.
//!
//! All messages of a producer to one topic have most of their header in common: that part
//! is written once and copied for each of them.

use super::codes::request;
use super::frame::{self, Serialize};
use super::header::{FLAG_ONE_WAY, VERSION};
use super::header_json::{write_escaped, write_string};

/// Code of a client's language, Rust, in headers.
pub const LANGUAGE_RUST: u8 = 12;

/// What the sends of one producer to one topic have in common.
#[derive(Clone, Debug)]
pub struct SendTemplate {
    /// From behind the code to the number of the queue.
    head: Vec<u8>,
}

/// What is particular to one send.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Number that pairs the response with it.
    pub opaque: i32,
    /// Whether no answer is wanted.
    pub one_way: bool,
    /// Queue number.
    pub queue_id: i32,
    /// System flag.
    pub sys_flag: i32,
    /// When it is sent, ms since 1970.
    pub born_timestamp: i64,
    /// User flag.
    pub flag: i32,
    /// Properties, UTF-8.
    pub properties: &'a [u8],
    /// The unique key that follows them, where they have none: digits.
    pub unique_key: Option<&'a str>,
    /// How often consumption failed, and how often it may, in a send to a retry topic.
    pub reconsume: Option<(i32, i32)>,
    /// Whether the body is a batch.
    pub batch: bool,
    /// Name of the broker.
    pub broker_name: &'a str,
    /// Body.
    pub body: &'a [u8],
}

impl SendTemplate {
    /// Of the sends of `group` to `topic`, which is made with the settings of
    /// `default_topic` and that many queues where it is unknown.
    pub fn new(
        group: &str,
        topic: &str,
        default_topic: &str,
        default_topic_queue_nums: u32,
    ) -> SendTemplate {
        let mut head = b",\"extFields\":{\"a\":".to_vec();
        write_string(&mut head, group.as_bytes());
        head.extend_from_slice(b",\"b\":");
        write_string(&mut head, topic.as_bytes());
        head.extend_from_slice(b",\"c\":");
        write_string(&mut head, default_topic.as_bytes());
        head.extend_from_slice(b",\"d\":\"");
        let mut digits = itoa::Buffer::new();
        head.extend_from_slice(digits.format(default_topic_queue_nums).as_bytes());
        head.extend_from_slice(b"\",\"e\":\"");
        SendTemplate { head }
    }

    /// Appends a send as a frame.
    pub fn encode(&self, out: &mut Vec<u8>, send: &SendRequest<'_>) {
        out.reserve(self.head.len() + send.properties.len() * 2 + send.body.len() + 320);
        let start = frame::begin(out);
        let mut digits = itoa::Buffer::new();
        let code = if send.batch {
            request::SEND_BATCH_MESSAGE
        } else {
            request::SEND_MESSAGE_V2
        };
        out.extend_from_slice(b"{\"code\":");
        out.extend_from_slice(digits.format(code).as_bytes());
        out.extend_from_slice(&self.head);
        out.extend_from_slice(digits.format(send.queue_id).as_bytes());
        out.extend_from_slice(b"\",\"f\":\"");
        out.extend_from_slice(digits.format(send.sys_flag).as_bytes());
        out.extend_from_slice(b"\",\"g\":\"");
        out.extend_from_slice(digits.format(send.born_timestamp).as_bytes());
        out.extend_from_slice(b"\",\"h\":\"");
        out.extend_from_slice(digits.format(send.flag).as_bytes());
        out.extend_from_slice(b"\",\"i\":\"");
        write_escaped(out, send.properties);
        if let Some(key) = send.unique_key {
            out.extend_from_slice(b"UNIQ_KEY\\u0001");
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\\u0002");
        }
        out.push(b'"');
        match send.reconsume {
            None => out.extend_from_slice(b",\"j\":\"0\",\"k\":\"false\""),
            Some((times, max)) => {
                out.extend_from_slice(b",\"j\":\"");
                out.extend_from_slice(digits.format(times).as_bytes());
                out.extend_from_slice(b"\",\"k\":\"false\",\"l\":\"");
                out.extend_from_slice(digits.format(max).as_bytes());
                out.push(b'"');
            }
        }
        out.extend_from_slice(if send.batch {
            b",\"m\":\"true\",\"n\":"
        } else {
            b",\"m\":\"false\",\"n\":"
        });
        write_string(out, send.broker_name.as_bytes());
        out.extend_from_slice(b"},\"flag\":");
        let flag = if send.one_way { FLAG_ONE_WAY } else { 0 };
        out.extend_from_slice(digits.format(flag).as_bytes());
        out.extend_from_slice(b",\"language\":\"RUST\",\"opaque\":");
        out.extend_from_slice(digits.format(send.opaque).as_bytes());
        out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
        out.extend_from_slice(digits.format(VERSION).as_bytes());
        out.push(b'}');
        frame::finish(out, start, Serialize::Json, send.body.len());
        out.extend_from_slice(send.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::Split;
    use crate::wire::header::{Header, LANGUAGES, Scratch};
    use crate::wire::send_header::SendHeader;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_what_a_broker_reads(
            opaque: i32, queue_id: i32, sys_flag: i32, born: i64, flag: i32, batch: bool,
            one_way: bool, reconsume: Option<(i32, i32)>,
            group in "[a-z%]{1,9}", topic in "[a-z|]{1,9}", properties in "\\PC{0,30}",
            body in prop::collection::vec(any::<u8>(), 0..50), nums in 0u32..1000,
            broker in "\\PC{0,9}", key in prop::option::of("[0-9A-F]{32}"), before in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut properties = format!("TAGS\u{1}{properties}\u{2}");
            let mut out = before.clone();
            SendTemplate::new(&group, &topic, "TBW102", nums).encode(&mut out, &SendRequest {
                opaque, one_way, queue_id, sys_flag, born_timestamp: born, flag,
                properties: properties.as_bytes(), unique_key: key.as_deref(), reconsume, batch,
                broker_name: &broker, body: &body,
            });
            if let Some(key) = key {
                properties += &format!("UNIQ_KEY\u{1}{key}\u{2}");
            }
            let bytes = &out[before.len()..];
            let Ok(Split::Frame(frame, used)) = frame::split(bytes) else { panic!("no frame") };
            prop_assert_eq!((used, frame.body), (bytes.len(), &body[..]));
            let mut scratch = Scratch::default();
            let header = Header::decode(&frame, &mut scratch).unwrap();
            prop_assert_eq!(header.fixed.code, if batch { 320 } else { 310 });
            prop_assert_eq!((header.fixed.opaque, header.fixed.is_one_way()), (opaque, one_way));
            prop_assert_eq!(LANGUAGES[usize::from(LANGUAGE_RUST)], "RUST");
            prop_assert_eq!(header.fixed.language, LANGUAGE_RUST);
            prop_assert_eq!(header.get("n"), Some(broker.as_bytes()));
            let read = SendHeader::parse(&header).unwrap();
            prop_assert_eq!(read, SendHeader {
                producer_group: group.as_bytes(), topic: &topic, default_topic: "TBW102",
                default_topic_queue_nums: nums as i32, queue_id, sys_flag, born_timestamp: born,
                flag, properties: properties.as_bytes(),
                reconsume_times: reconsume.map_or(0, |(times, _)| times),
                max_reconsume_times: reconsume.map(|(_, max)| max), unit_mode: false, batch,
            });
        }
    }
}
