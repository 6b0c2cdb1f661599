//! How answers of the data path are written.

use std::net::SocketAddr;

use crate::wire::codes::response;
use crate::wire::command::response_fixed;
use crate::wire::frame::{self, Serialize};
use crate::wire::header;
use crate::wire::ids::{self, OffsetId};
use memchr::memmem;

/// What every answer to a send says besides where the message went.
#[derive(Clone, Debug)]
pub struct SendReplyConstants {
    region: String,
    trace_on: bool,
    store_host: SocketAddr,
    plain: PlainForm,
}

/// The JSON answer with code 0 to the send of one message, in parts between which stand
/// the physical offset, the queue number, the queue offset and the opaque.
#[derive(Clone, Debug, Default)]
struct PlainForm([Vec<u8>; 5]);

impl SendReplyConstants {
    /// With `regionId`, `traceOn` and the host in offset ids.
    pub fn new(region: String, trace_on: bool, store_host: SocketAddr) -> SendReplyConstants {
        let mut constants = SendReplyConstants {
            region,
            trace_on,
            store_host,
            plain: PlainForm::default(),
        };
        constants.plain = PlainForm::new(&constants);
        constants
    }
}

impl PlainForm {
    /// Cut out of an answer as [`write_any_reply`] writes it.
    fn new(constants: &SendReplyConstants) -> PlainForm {
        const MARK: i32 = 1_000_000_007;
        let mark = i64::from(MARK);
        let reply = SendReply {
            queue_id: MARK,
            queue_offset: u64::from(MARK.unsigned_abs()),
            physical: &[mark],
        };
        let success = response::SUCCESS;
        let mut whole = Vec::new();
        write_any_reply(
            &mut whole,
            Serialize::Json,
            MARK,
            success,
            constants,
            &reply,
        );
        let digits = MARK.to_string();
        let mut rest = &whole[..];
        let mut part = |name: &str, value: &str| {
            let text = format!("{name}{value}");
            let at = memmem::find(rest, text.as_bytes()).map_or(0, |at| at + name.len());
            let part = rest[..at].to_vec();
            rest = &rest[at + value.len()..];
            part
        };
        let id = OffsetId::new(constants.store_host, mark);
        let (host, offset) = id.as_bytes().split_at(id.as_bytes().len() - 16);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let parts = [
            part(&format!("\"msgId\":\"{}", text(host)), &text(offset)),
            part("\"queueId\":\"", &digits),
            part("\"queueOffset\":\"", &digits),
            part("\"opaque\":", &digits),
        ];
        let [physical, queue, offset, opaque] = parts;
        PlainForm([physical, queue, offset, opaque, rest.to_vec()])
    }

    fn write(&self, out: &mut Vec<u8>, opaque: i32, reply: &SendReply<'_>, physical: i64) {
        let start = out.len();
        let [to_physical, to_queue, to_offset, to_opaque, rest] = &self.0;
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(to_physical);
        out.extend_from_slice(&ids::hex_digits(physical));
        out.extend_from_slice(to_queue);
        out.extend_from_slice(number.format(reply.queue_id).as_bytes());
        out.extend_from_slice(to_offset);
        out.extend_from_slice(number.format(reply.queue_offset as i64).as_bytes());
        out.extend_from_slice(to_opaque);
        out.extend_from_slice(number.format(opaque).as_bytes());
        out.extend_from_slice(rest);
        frame::finish(out, start, Serialize::Json, 0);
    }
}

/// Where a message or batch went.
#[derive(Clone, Copy, Debug)]
pub struct SendReply<'a> {
    /// Queue number.
    pub queue_id: i32,
    /// Queue offset of the first message.
    pub queue_offset: u64,
    /// Physical offset of each message.
    pub physical: &'a [i64],
}

/// Appends the answer to a send: code 0, or 10 where it is stored but the device
/// did not promise in time (`SendMessageResponseHeader`).
pub fn write_send_reply(
    out: &mut Vec<u8>,
    serialize: Serialize,
    opaque: i32,
    code: i32,
    constants: &SendReplyConstants,
    reply: &SendReply<'_>,
) {
    match (serialize, code, reply.physical) {
        (Serialize::Json, response::SUCCESS, &[physical]) => {
            constants.plain.write(out, opaque, reply, physical);
        }
        _ => write_any_reply(out, serialize, opaque, code, constants, reply),
    }
}

fn write_any_reply(
    out: &mut Vec<u8>,
    serialize: Serialize,
    opaque: i32,
    code: i32,
    constants: &SendReplyConstants,
    reply: &SendReply<'_>,
) {
    let remark = (code == response::FLUSH_DISK_TIMEOUT)
        .then_some("stored, but the device did not promise it in time");
    header::encode(
        out,
        serialize,
        &response_fixed(code, opaque),
        remark,
        |w| {
            let id = |physical: i64| OffsetId::new(constants.store_host, physical);
            match reply.physical {
                &[one] => w.plain("msgId", id(one).as_bytes()),
                many => {
                    // They differ in the last digits only.
                    let zero = id(0);
                    let host = &zero.as_bytes()[..zero.as_bytes().len() - 16];
                    let mut list = Vec::with_capacity(many.len() * (host.len() + 17));
                    for (n, &physical) in many.iter().enumerate() {
                        if n > 0 {
                            list.push(b',');
                        }
                        list.extend_from_slice(host);
                        list.extend_from_slice(&ids::hex_digits(physical));
                    }
                    w.plain("msgId", &list);
                }
            }
            w.int("queueId", i64::from(reply.queue_id));
            w.int("queueOffset", reply.queue_offset as i64);
            w.str("MSG_REGION", &constants.region);
            w.bool("TRACE_ON", constants.trace_on);
        },
        0,
    );
}

/// What an answer to a pull says about the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullReply {
    /// Response code.
    pub code: i32,
    /// Name of the status, as RocketMQ puts it into the remark.
    pub remark: &'static str,
    /// Offset for the next pull.
    pub next: i64,
    /// First readable offset.
    pub min: i64,
    /// One above the last readable offset.
    pub max: i64,
    /// Broker to pull from.
    pub suggest_broker: i64,
    /// Flags of the topic.
    pub topic_sys_flag: i32,
    /// Flags of the group.
    pub group_sys_flag: i32,
}

/// Appends the head of the answer to a pull; the body follows
/// (`PullMessageResponseHeader`).
pub fn write_pull_reply(
    out: &mut Vec<u8>,
    serialize: Serialize,
    opaque: i32,
    reply: &PullReply,
    body_len: usize,
) {
    header::encode(
        out,
        serialize,
        &response_fixed(reply.code, opaque),
        Some(reply.remark),
        |w| {
            w.int("suggestWhichBrokerId", reply.suggest_broker);
            w.int("nextBeginOffset", reply.next);
            w.int("minOffset", reply.min);
            w.int("maxOffset", reply.max);
            w.int("topicSysFlag", i64::from(reply.topic_sys_flag));
            w.int("groupSysFlag", i64::from(reply.group_sys_flag));
        },
        body_len,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_plain_form_says_what_the_general_one_says(
            opaque: i32, queue_id: i32, offset in 0..=i64::MAX as u64, physical: i64, v6: bool,
            region in ".*", before in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let host = if v6 { "[2001:db8::3b9a:ca07]:10911" } else { "127.0.0.1:10911" };
            let constants = SendReplyConstants::new(region, true, host.parse().unwrap());
            let reply = SendReply { queue_id, queue_offset: offset, physical: &[physical] };
            let (mut plain, mut general) = (before.clone(), before);
            write_send_reply(&mut plain, Serialize::Json, opaque, 0, &constants, &reply);
            write_any_reply(&mut general, Serialize::Json, opaque, 0, &constants, &reply);
            prop_assert_eq!(plain, general);
        }
    }
}
