//! SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE: checks and rewriting, on the
//! shard that holds the connection (`SendMessageProcessor`).

use std::sync::Arc;

use super::message::{AppendJob, Ask, ForwardedAppend, ReplyTo, WantedTopic};
use super::view::TopicEntry;
use super::{BrokerShard, DEFERRED_MAX};
use crate::shard::Flow;
use crate::store::delay_level;
use crate::wire::body::topic::{TopicConfig, TopicFilterType, perm};
use crate::wire::codes::response;
use crate::wire::frame::Frame;
use crate::wire::header::Header;
use crate::wire::message::{TOPIC_BYTES_MAX_V1, sys_flag};
use crate::wire::names::{self, DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC};
use crate::wire::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::wire::send_header::SendHeader;

/// Bytes that the record of a message may have besides its body: the largest
/// properties, topic and hosts, and room to spare (`MessageExtEncoder`).
const RECORD_OVERHEAD_MAX: usize = 64 * 1024;

/// Version from which clients say how often consumption may fail (`V3_4_9`).
const MAX_RECONSUME_VERSION: i32 = 121;

/// System flag of a topic in unit mode (`TopicSysFlag`).
const TOPIC_FLAG_UNIT: i32 = 1;

/// What became of a check.
enum Check<T> {
    /// It passed.
    Pass(T),
    /// The request is answered.
    Answered,
    /// It goes on when a topic or group was made.
    Deferred,
    /// No room for it now.
    Later,
}

impl BrokerShard {
    /// Handles a send: checks it, and appends it or forwards it to its queue.
    pub(super) fn send(&self, to: ReplyTo, frame: &Frame<'_>, header: &Header<'_>) -> Flow {
        let send = match SendHeader::parse(header) {
            Ok(send) => send,
            Err(error) => {
                self.reply(&to, &error.into());
                return Flow::Continue;
            }
        };
        let topic = match self.sendable_topic(&to, frame, &send) {
            Check::Pass(topic) => topic,
            Check::Answered | Check::Deferred => return Flow::Continue,
            Check::Later => return Flow::Later,
        };
        if !send.batch && send.topic.starts_with(RETRY_PREFIX) {
            return self.send_to_retry(to, frame, header, &send);
        }
        self.send_checked(to, frame.body, &send, &topic)
    }

    /// The topic of a send, made first where it is missing and may be made.
    fn sendable_topic(
        &self,
        to: &ReplyTo,
        frame: &Frame<'_>,
        send: &SendHeader<'_>,
    ) -> Check<Arc<TopicEntry>> {
        if names::is_closed_to_senders(send.topic) {
            self.refuse(
                to,
                response::NO_PERMISSION,
                format!("topic {} is the broker's own", send.topic),
            );
            return Check::Answered;
        }
        if let Some(topic) = self.view.borrow().topic(send.topic) {
            return Check::Pass(topic.clone());
        }
        if let Err(error) = names::check_topic(send.topic) {
            self.refuse(to, response::INVALID_PARAMETER, error.to_string());
            return Check::Answered;
        }
        let ask = if send.topic.starts_with(RETRY_PREFIX) {
            Ask::EnsureDerivedTopic(TopicConfig {
                topic_sys_flag: if send.unit_mode { TOPIC_FLAG_UNIT } else { 0 },
                ..TopicConfig::new(send.topic, 1, perm::READ | perm::WRITE)
            })
        } else {
            Ask::EnsureTopic(WantedTopic {
                topic: send.topic.to_owned(),
                template: send.default_topic.to_owned(),
                queues: send.default_topic_queue_nums,
                sys_flag: if send.unit_mode { TOPIC_FLAG_UNIT } else { 0 },
            })
        };
        if self.deferred.get() >= DEFERRED_MAX {
            return Check::Later;
        }
        self.defer(*to, frame, ask);
        Check::Deferred
    }

    /// The rest of the checks, and off to the queue.
    fn send_checked(
        &self,
        mut to: ReplyTo,
        body: &[u8],
        send: &SendHeader<'_>,
        topic: &Arc<TopicEntry>,
    ) -> Flow {
        let illegal = |remark: String| {
            self.refuse(&to, response::MESSAGE_ILLEGAL, remark);
            Flow::Continue
        };
        if send.queue_id >= topic.queues() {
            self.refuse(
                &to,
                response::INVALID_PARAMETER,
                format!(
                    "queue {} of topic {}, which has {} queues",
                    send.queue_id,
                    send.topic,
                    topic.queues()
                ),
            );
            return Flow::Continue;
        }
        if send.batch
            && (send.topic.len() > TOPIC_BYTES_MAX_V1 || send.topic.starts_with(RETRY_PREFIX))
        {
            return illegal(format!(
                "a batch cannot go to topic {}: at most {TOPIC_BYTES_MAX_V1} bytes, and no retry topic",
                send.topic
            ));
        }
        let limit = self.settings.borrow().max_message_size;
        if body.len() > limit {
            return illegal(format!(
                "body of {} bytes, the limit (maxMessageSize) is {limit}",
                body.len()
            ));
        }
        let mut stored = self.properties.borrow_mut();
        let facts = self.rewrite_properties(send, &mut stored);
        let tran_type = send.sys_flag & sys_flag::ROLLBACK;
        if facts.transaction || tran_type == sys_flag::PREPARED {
            self.refuse(
                &to,
                response::NO_PERMISSION,
                "transactional messages are not served by this broker",
            );
            return Flow::Continue;
        }
        if send.batch && (tran_type != 0 || facts.delay_level.is_some()) {
            return illegal("a batch can be neither delayed nor part of a transaction".to_owned());
        }
        if facts.timer && facts.delay_level.is_none() {
            self.refuse(
                &to,
                response::SYSTEM_ERROR,
                "timer messages are not served by this broker; delay levels are",
            );
            return Flow::Continue;
        }
        let mut queue_id = send.queue_id;
        if queue_id < 0 {
            let queues = topic.config.write_queue_nums.max(1);
            queue_id = self.next_queue(queues);
        }
        let mut target = topic.clone();
        if let Some(level) = facts.delay_level {
            let Some(schedule) = self.view.borrow().topic(SCHEDULE_TOPIC).cloned() else {
                self.refuse(&to, response::SYSTEM_ERROR, "the schedule topic is missing");
                return Flow::Continue;
            };
            properties::push(&mut stored, name::REAL_TOPIC, send.topic.as_bytes());
            properties::push(
                &mut stored,
                name::REAL_QUEUE_ID,
                queue_id.to_string().as_bytes(),
            );
            // A level beyond the last is the last: no other queue is looked at.
            let levels = self.store.with(|store| store.settings().delays.levels());
            queue_id = level.min(levels).min(schedule.queues()) - 1;
            target = schedule;
        }
        if stored.len() > PROPERTIES_BYTES_MAX {
            return illegal(format!(
                "properties of {} bytes, the limit is {PROPERTIES_BYTES_MAX}",
                stored.len()
            ));
        }
        debug_assert!(stored.len() + send.topic.len() < RECORD_OVERHEAD_MAX);
        let Some(owner) = target.owner(queue_id) else {
            self.refuse(
                &to,
                response::INVALID_PARAMETER,
                format!("topic {} has no queue {queue_id}", target.name),
            );
            return Flow::Continue;
        };
        let multi_tags = target.config.topic_filter_type == TopicFilterType::MultiTag;
        let job = AppendJob {
            topic: target.name.clone(),
            queue_id,
            flag: send.flag,
            sys_flag: send.sys_flag | if multi_tags { sys_flag::MULTI_TAGS } else { 0 },
            born_timestamp: send.born_timestamp,
            born_host: self.shard.peer(to.conn).unwrap_or(self.store_host),
            reconsume_times: send.reconsume_times,
            body,
            properties: if send.batch { &[][..] } else { &stored[..] },
            batch: send.batch,
            wait: facts.wait,
        };
        if owner == self.id() {
            return match self.append(&job, &to) {
                Ok(()) => Flow::Continue,
                Err(super::append::NoRoomYet) => Flow::Later,
            };
        }
        if !self.may_forward() {
            return Flow::Later;
        }
        let job = Box::new(ForwardedAppend::new(&job));
        self.await_answer(&mut to, 0);
        self.forward(owner, super::Message::Append(job, to));
        Flow::Continue
    }

    /// Puts the properties that are stored into `stored`: the sender's, without
    /// what only brokers may set, and the broker's own.
    fn rewrite_properties(&self, send: &SendHeader<'_>, stored: &mut Vec<u8>) -> Facts {
        let mut facts = Facts {
            wait: true,
            ..Facts::default()
        };
        let mut unique_key = false;
        stored.clear();
        for property in properties::entries(send.properties) {
            let value = property.value;
            match property.name {
                b"UNIQ_KEY" => unique_key = true,
                b"WAIT" => facts.wait = value != b"false",
                b"TRAN_MSG" => facts.transaction = value == b"true",
                b"TIMER_DELAY_SEC" | b"TIMER_DELAY_MS" | b"TIMER_DELIVER_MS" => facts.timer = true,
                b"DELAY" => facts.delay_level = delay_level(send.properties),
                b"POP_CK" | b"MSG_REGION" | b"TRACE_ON" | b"CLUSTER" => continue,
                // Set again below for a message that is delayed (again).
                b"REAL_TOPIC" | b"REAL_QID" => continue,
                _ => {}
            }
            stored.extend_from_slice(property.written);
            stored.push(properties::VALUE_END);
        }
        if !unique_key && !send.batch {
            let key = self.unique_key();
            properties::push(stored, name::UNIQ_KEY, &key);
        }
        stored.extend_from_slice(&self.own_properties);
        facts
    }

    /// A key for a message that its sender gave none: unique to this process.
    fn unique_key(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        match self.store_host.ip() {
            std::net::IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
            std::net::IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
        }
        bytes.extend_from_slice(&(std::process::id() as u16).to_be_bytes());
        bytes.extend_from_slice(&u32::from(self.log().0).to_be_bytes());
        bytes.extend_from_slice(&(super::now_ms() as u32).to_be_bytes());
        bytes.extend_from_slice(&(self.next_unique() as u16).to_be_bytes());
        let mut key = Vec::with_capacity(bytes.len() * 2);
        crate::wire::ids::write_hex(&mut key, &bytes);
        key
    }

    /// One of `queues` queues, each in its turn. Counted apart from the unique keys: a
    /// message that takes a number for its key must not skip every other queue.
    pub(super) fn next_queue(&self, queues: i32) -> i32 {
        let next = self.queue_turn.get().wrapping_add(1);
        self.queue_turn.set(next);
        (next % queues.max(1).unsigned_abs()) as i32
    }

    pub(super) fn next_unique(&self) -> u64 {
        let next = self.unique.get() + 1;
        self.unique.set(next);
        next
    }

    /// A send to a retry topic: what a client does when CONSUMER_SEND_MSG_BACK
    /// failed (`SendMessageProcessor.handleRetryAndDLQ`).
    fn send_to_retry(
        &self,
        to: ReplyTo,
        frame: &Frame<'_>,
        header: &Header<'_>,
        send: &SendHeader<'_>,
    ) -> Flow {
        if self.deferred.get() >= DEFERRED_MAX {
            return Flow::Later;
        }
        let group = send.topic[RETRY_PREFIX.len()..].to_owned();
        let asked = send
            .max_reconsume_times
            .filter(|_| header.fixed.version >= MAX_RECONSUME_VERSION);
        let reconsume_times = send.reconsume_times;
        let copy = super::dispatch::FrameCopy::new(frame);
        let me = self.rc();
        self.spawn_deferred(async move {
            let Some(view) = me.ensure_group(&group).await else {
                me.refuse(
                    &to,
                    response::SUBSCRIPTION_GROUP_NOT_EXIST,
                    format!("subscription group {group} does not exist"),
                );
                return;
            };
            let max = asked.unwrap_or(view.config.retry_max_times);
            let dead = reconsume_times > max || me.has_lock(&group).await;
            let dlq = dead.then(|| [DLQ_PREFIX, &group].concat());
            if let Some(dlq) = &dlq {
                let config = TopicConfig::new(dlq.clone(), 1, perm::READ | perm::WRITE);
                if let Err((code, remark)) = me.ensure_derived_topic(config).await {
                    me.refuse(&to, code, remark);
                    return;
                }
            }
            copy.again(&me, |me, frame, header| {
                me.send_retried(to, frame, header, dlq.as_deref())
            })
            .await;
        });
        Flow::Continue
    }

    fn send_retried(
        &self,
        to: ReplyTo,
        frame: &Frame<'_>,
        header: &Header<'_>,
        dlq: Option<&str>,
    ) -> Flow {
        let Ok(mut send) = SendHeader::parse(header) else {
            return Flow::Continue;
        };
        let without_delay;
        if let Some(dlq) = dlq {
            // To the dead letter topic at once, whatever delay it still carries.
            let mut kept = Vec::new();
            properties::copy_except(&mut kept, send.properties, &[name::DELAY]);
            without_delay = kept;
            send.properties = &without_delay;
            send.topic = dlq;
            send.queue_id = 0;
        }
        let Some(topic) = self.view.borrow().topic(send.topic).cloned() else {
            self.refuse(
                &to,
                response::TOPIC_NOT_EXIST,
                format!("topic {} does not exist", send.topic),
            );
            return Flow::Continue;
        };
        self.send_checked(to, frame.body, &send, &topic)
    }
}

/// What a message's properties say that the broker acts on.
#[derive(Default)]
struct Facts {
    wait: bool,
    transaction: bool,
    timer: bool,
    delay_level: Option<i32>,
}
