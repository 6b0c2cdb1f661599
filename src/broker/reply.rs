//! How answers of the data path are written.

use std::net::SocketAddr;

use crate::wire::codes::response;
use crate::wire::command::response_fixed;
use crate::wire::frame::Serialize;
use crate::wire::header;
use crate::wire::ids::OffsetId;

/// What every answer to a send says besides where the message went.
#[derive(Clone, Debug)]
pub struct SendReplyConstants {
    /// `regionId`.
    pub region: String,
    /// `traceOn`.
    pub trace_on: bool,
    /// The host in offset ids.
    pub store_host: SocketAddr,
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
                    let mut list = Vec::with_capacity(many.len() * 33);
                    for (n, &physical) in many.iter().enumerate() {
                        if n > 0 {
                            list.push(b',');
                        }
                        list.extend_from_slice(id(physical).as_bytes());
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
