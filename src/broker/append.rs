//! Messages into their queue, on the shard that owns it.

use super::message::{AppendJob, Message, ReplyTo, Sent};
use super::reply::{SendReply, write_send_reply};
use super::{BrokerShard, count};
use crate::shard::LaneKind;
use crate::store::{Appended, NewRecord, NoRoom};
use crate::wire::batch;
use crate::wire::codes::response;
use crate::wire::message::body_crc;
use crate::wire::names::SCHEDULE_TOPIC;
use crate::wire::properties::PROPERTIES_BYTES_MAX;

/// The log has no room now: the request waits, and is handed over again.
pub(super) struct NoRoomYet;

/// Why a message is not stored.
pub(super) enum Refusal {
    /// It will be when there is room.
    Later,
    /// Never: response code and remark.
    Code(i32, String),
}

impl BrokerShard {
    /// Appends a message or batch of a client and answers, at once or when its
    /// ack level is reached.
    pub(super) fn append<B: AsRef<[u8]>>(
        &self,
        job: &AppendJob<B>,
        to: &ReplyTo,
    ) -> Result<(), NoRoomYet> {
        let mut physical = self.physical.borrow_mut();
        match self.store_job(job, &mut physical) {
            Ok(appended) => {
                let watermark = self.store.with(|store| store.watermark());
                if job.wait && appended.end > watermark {
                    let mut acks = self.acks.borrow_mut();
                    acks.push(*to, job.queue_id, appended, &physical);
                } else {
                    let reply = SendReply {
                        queue_id: job.queue_id,
                        queue_offset: appended.queue_offset,
                        physical: &physical,
                    };
                    self.reply_to_send(to, response::SUCCESS, &reply);
                }
                Ok(())
            }
            Err(Refusal::Later) => Err(NoRoomYet),
            Err(Refusal::Code(code, remark)) => {
                count(&self.counters.put_failed, 1);
                self.refuse(to, code, remark);
                Ok(())
            }
        }
    }

    pub(super) fn reply_to_send(&self, to: &ReplyTo, code: i32, reply: &SendReply<'_>) {
        if let (&[physical], false, false) = (reply.physical, self.is_local(to), to.one_way) {
            let sent = Sent {
                code,
                queue_id: reply.queue_id,
                queue_offset: reply.queue_offset,
                physical,
            };
            let message = Message::Sent(*to, sent);
            self.shard.send(to.conn.shard, LaneKind::Reply, message);
            return;
        }
        self.reply_with(to, |out| {
            write_send_reply(out, to.serialize, to.opaque, code, &self.constants, reply);
        });
    }

    /// Writes the answer to a send that another shard has stored.
    pub(super) fn write_sent(&self, to: &ReplyTo, sent: &Sent) {
        let reply = SendReply {
            queue_id: sent.queue_id,
            queue_offset: sent.queue_offset,
            physical: &[sent.physical],
        };
        self.reply_to_send(to, sent.code, &reply);
    }

    /// Puts a message or batch into its queue; the physical offsets go to `physical`.
    pub(super) fn store_job<B: AsRef<[u8]>>(
        &self,
        job: &AppendJob<B>,
        physical: &mut Vec<i64>,
    ) -> Result<Appended, Refusal> {
        physical.clear();
        let parts = job.parts(self.store_host);
        if !job.batch {
            return self.store_records(job, &[parts], physical);
        }
        let mut records = Vec::new();
        for item in batch::items(job.body.as_ref()) {
            let item =
                item.map_err(|error| Refusal::Code(response::MESSAGE_ILLEGAL, error.to_string()))?;
            records.push(NewRecord {
                flag: item.flag,
                body: item.body,
                body_crc: body_crc(item.body),
                properties: item.properties,
                ..parts
            });
        }
        let limit = self.settings.borrow().max_message_size;
        let total: usize = records.iter().map(NewRecord::record_len).sum();
        if records.is_empty() || total > limit {
            return Err(Refusal::Code(
                response::MESSAGE_ILLEGAL,
                format!(
                    "batch of {} messages with {total} bytes in all, the limit (maxMessageSize) is {limit}",
                    records.len()
                ),
            ));
        }
        debug_assert!(
            records
                .iter()
                .all(|r| r.properties.len() <= PROPERTIES_BYTES_MAX)
        );
        self.store_records(job, &records, physical)
    }

    fn store_records<B>(
        &self,
        job: &AppendJob<B>,
        records: &[NewRecord<'_>],
        physical: &mut Vec<i64>,
    ) -> Result<Appended, Refusal> {
        if let Some(why) = self.disk_full() {
            return Err(Refusal::Code(response::SERVICE_NOT_AVAILABLE, why));
        }
        let appended = self.store.with(|store| {
            let queue = store.make_queue(&job.topic, job.queue_id);
            store.append(queue, records, self.turn_ms() as i64, physical)
        });
        if &*job.topic == SCHEDULE_TOPIC {
            self.delay.arrived();
        }
        appended.map_err(|no_room| match no_room {
            NoRoom::Later => Refusal::Later,
            NoRoom::Never { .. } => Refusal::Code(response::MESSAGE_ILLEGAL, no_room.to_string()),
            NoRoom::NoSpace(why) => {
                Refusal::Code(response::SERVICE_NOT_AVAILABLE, self.no_space(&why))
            }
            NoRoom::Failed(why) => Refusal::Code(response::SERVICE_NOT_AVAILABLE, why),
        })
    }
}
