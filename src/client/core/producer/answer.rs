//! What a broker's answer to a send means (`MQClientAPIImpl.processSendResponse`).

use std::sync::Arc;

use super::SendId;
use crate::client::core::io::{Answer, Now, Outgoing, Output};
use crate::client::core::{Core, done};
use crate::client::error::{Error, ErrorKind};
use crate::client::message::{MessageId, MessageQueue, SendResult, SendStatus};
use crate::wire::codes::response;
use crate::wire::header::{Header, parse_int};

/// Region of a broker that names none (`MixAll.DEFAULT_TRACE_REGION_ID`).
const DEFAULT_REGION: &str = "DefaultRegion";

/// How far the message got, where it is stored.
fn status(code: i32) -> Option<SendStatus> {
    Some(match code {
        response::SUCCESS => SendStatus::SendOk,
        response::FLUSH_DISK_TIMEOUT => SendStatus::FlushDiskTimeout,
        response::FLUSH_SLAVE_TIMEOUT => SendStatus::FlushSlaveTimeout,
        response::SLAVE_NOT_AVAILABLE => SendStatus::SlaveNotAvailable,
        _ => return None,
    })
}

/// The fields of an answer that says that a message is stored.
struct Fields<'a> {
    message_id: &'a str,
    queue_id: i32,
    queue_offset: i64,
    recall_handle: Option<&'a str>,
    region: &'a [u8],
    trace_on: bool,
}

fn fields<'a>(header: &Header<'a>) -> Result<Fields<'a>, String> {
    let (mut id, mut queue, mut offset) = (None, None, None);
    let (mut recall, mut region, mut trace) = (None, None, None);
    for (key, value) in header.fields() {
        let place = match key {
            b"msgId" => &mut id,
            b"queueId" => &mut queue,
            b"queueOffset" => &mut offset,
            b"recallHandle" => &mut recall,
            b"MSG_REGION" => &mut region,
            b"TRACE_ON" => &mut trace,
            _ => continue,
        };
        *place = Some(value);
    }
    let missing = |name: &str| format!("a stored message without {name}");
    let text =
        |name: &str, bytes| std::str::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8"));
    let id = id
        .filter(|id| !id.is_empty())
        .ok_or_else(|| missing("msgId"))?;
    let queue = queue.ok_or_else(|| missing("queueId"))?;
    let offset = offset.ok_or_else(|| missing("queueOffset"))?;
    let queue_id: i32 = parse_int("queueId", queue).map_err(|error| error.to_string())?;
    let queue_offset: i64 = parse_int("queueOffset", offset).map_err(|error| error.to_string())?;
    if queue_id < 0 || queue_offset < 0 {
        return Err(format!("queue {queue_id} and offset {queue_offset}"));
    }
    let recall = recall.filter(|handle| !handle.is_empty());
    Ok(Fields {
        message_id: text("msgId", id)?,
        queue_id,
        queue_offset,
        recall_handle: recall
            .map(|handle| text("recallHandle", handle))
            .transpose()?,
        region: region.unwrap_or_default(),
        trace_on: trace != Some(&b"false"[..]),
    })
}

impl Fields<'_> {
    /// The result of a send, of which are given its id, its topic and the name of its broker.
    fn result(
        &self,
        status: SendStatus,
        region_id: Arc<str>,
        (message_id, topic, broker_name): (MessageId, Arc<str>, Option<Arc<str>>),
        tries: u32,
    ) -> SendResult {
        SendResult {
            status,
            message_id,
            offset_message_id: self.message_id.into(),
            queue: MessageQueue {
                topic,
                broker_name: broker_name.unwrap_or_else(|| "".into()),
                queue_id: self.queue_id,
            },
            queue_offset: self.queue_offset,
            recall_handle: self.recall_handle.map(str::to_owned),
            region_id,
            trace_on: self.trace_on,
            tries,
        }
    }
}

impl Core {
    /// A broker has answered a send.
    pub(in crate::client::core) fn send_answered(
        &mut self,
        now: Now,
        id: SendId,
        header: &Header<'_>,
        out: &mut Vec<Output>,
    ) {
        let code = header.fixed.code;
        let Some(status) = status(code) else {
            let remark = header.remark().unwrap_or_default();
            let remark = String::from_utf8_lossy(remark).into_owned();
            return self.send_refused(now, id, code, remark, out);
        };
        let fields = match fields(header) {
            Ok(fields) => fields,
            Err(what) => {
                let error = Error::new(ErrorKind::BadAnswer { what });
                return self.send_failed(now, id, error, true, out);
            }
        };
        let region = self.region(fields.region);
        self.note_try(now, id, false, true);
        if status == SendStatus::SendOk && !self.has_send_hooks(id) {
            if let Some(send) = self.producers.remove(id) {
                // Nobody has a use for it any more: what it says goes into the result.
                let (tries, broker) = (send.tries, send.broker_name);
                let Outgoing {
                    message_id, topic, ..
                } = *send.what;
                let result = fields.result(status, region, (message_id, topic, broker), tries);
                done(out, send.ticket, Ok(Answer::Sent(result)));
            }
            return;
        }
        let Some(send) = self.producers.get(id) else {
            return;
        };
        let what = &send.what;
        let of = (
            what.message_id.clone(),
            what.topic.clone(),
            send.broker_name.clone(),
        );
        let result = fields.result(status, region, of, send.tries);
        self.send_stored(now, id, result, out);
    }

    /// The region of a broker; nearly always the same one.
    fn region(&mut self, bytes: &[u8]) -> Arc<str> {
        if bytes.is_empty() {
            return self.region_of(DEFAULT_REGION);
        }
        match std::str::from_utf8(bytes) {
            Ok(region) => self.region_of(region),
            Err(_) => self.region_of(DEFAULT_REGION),
        }
    }

    fn region_of(&mut self, region: &str) -> Arc<str> {
        if *self.producers.region != *region {
            self.producers.region = region.into();
        }
        self.producers.region.clone()
    }
}
