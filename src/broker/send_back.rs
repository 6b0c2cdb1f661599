//! CONSUMER_SEND_MSG_BACK: a message whose consumption failed goes to its group's
//! retry topic, delayed, or to the dead letter topic
//! (`AbstractSendMessageProcessor.consumerSendMsgBack`).

use std::sync::Arc;

use super::BrokerShard;
use super::message::{AppendJob, AppendOutcome};
use crate::wire::body::topic::{TopicConfig, perm};
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};
use crate::wire::ids;
use crate::wire::message::Record;
use crate::wire::names::{SCHEDULE_TOPIC, dlq_topic, retry_topic};
use crate::wire::properties::{self, PROPERTIES_BYTES_MAX, name};

/// Version from which clients say how often consumption may fail (`V3_4_9`).
const MAX_RECONSUME_VERSION: i32 = 121;

/// Delay level of the first retry; each further one is a level higher.
const FIRST_RETRY_LEVEL: i32 = 3;

impl BrokerShard {
    /// Answers the request; any shard may.
    pub(super) async fn send_back(&self, request: &Request) -> Response {
        match self.try_send_back(request).await {
            Ok(()) => Response::ok(),
            Err(refusal) => refusal,
        }
    }

    async fn try_send_back(&self, request: &Request) -> Result<(), Response> {
        let physical: i64 = request.int("offset")?;
        let group = request.str("group")?;
        let delay_level: i32 = request.int("delayLevel")?;
        let asked_max: i32 = request.int_or("maxReconsumeTimes", -1)?;
        let Some(view) = self.ensure_group(group).await else {
            return Err(Response::error(
                response::SUBSCRIPTION_GROUP_NOT_EXIST,
                format!("subscription group {group} does not exist"),
            ));
        };
        if !perm::is_writeable(self.settings.borrow().broker_permission as i32) {
            return Err(Response::error(
                response::NO_PERMISSION,
                "the broker is not writeable",
            ));
        }
        let queues = view.config.retry_queue_nums;
        if queues <= 0 {
            // The group wants no retries.
            return Ok(());
        }
        let Some(bytes) = self.record(physical).await else {
            return Err(Response::error(
                response::SYSTEM_ERROR,
                format!("no message at physical offset {physical} of this broker"),
            ));
        };
        let record = Record::parse(&bytes)
            .map_err(|error| Response::error(response::SYSTEM_ERROR, error.to_string()))?;
        let max = if request.fixed.version >= MAX_RECONSUME_VERSION && asked_max >= 0 {
            asked_max
        } else {
            view.config.retry_max_times
        };
        let dead = record.reconsume_times() >= max || delay_level < 0;
        let (topic, topic_queues) = if dead {
            (dlq_topic(group), 1)
        } else {
            (retry_topic(group), queues)
        };
        let config = TopicConfig::new(topic.clone(), topic_queues, perm::READ | perm::WRITE);
        self.ensure_derived_topic(config)
            .await
            .map_err(|(code, remark)| Response::error(code, remark))?;
        let known = self.view.borrow().topic(&topic).map(|t| t.config.clone());
        if known.is_some_and(|config| !perm::is_writeable(config.perm)) {
            return Err(Response::error(
                response::NO_PERMISSION,
                format!("topic {topic} is not writeable"),
            ));
        }
        let level = if delay_level == 0 {
            FIRST_RETRY_LEVEL + record.reconsume_times()
        } else {
            delay_level
        };
        let queue_id = self.next_queue(topic_queues);
        let job = self.retry_job(&record, &topic, queue_id, (!dead).then_some(level));
        if job.properties.len() > PROPERTIES_BYTES_MAX {
            return Err(Response::error(
                response::MESSAGE_ILLEGAL,
                format!(
                    "properties of {} bytes, the limit is {PROPERTIES_BYTES_MAX}",
                    job.properties.len()
                ),
            ));
        }
        match self.put(job).await {
            AppendOutcome::Stored => Ok(()),
            AppendOutcome::Refused(_, why) => Err(Response::error(response::SYSTEM_ERROR, why)),
        }
    }

    /// The message as it is stored again: for the retry topic it first waits in the
    /// schedule topic, at delay level `level`.
    fn retry_job(
        &self,
        record: &Record<'_>,
        topic: &str,
        queue_id: i32,
        level: Option<i32>,
    ) -> AppendJob {
        let old = record.properties();
        let mut stored = Vec::with_capacity(old.len() + 128);
        properties::copy_except(
            &mut stored,
            old,
            &[
                name::DELAY,
                name::WAIT,
                name::REAL_TOPIC,
                name::REAL_QUEUE_ID,
                name::POP_CK,
            ],
        );
        if properties::get(old, name::RETRY_TOPIC).is_none() {
            properties::push(&mut stored, name::RETRY_TOPIC, record.topic());
        }
        if properties::get(old, name::ORIGIN_MESSAGE_ID).is_none() {
            let id = ids::offset_id(record.store_host(), record.physical_offset());
            properties::push(&mut stored, name::ORIGIN_MESSAGE_ID, id.as_bytes());
        }
        properties::push(&mut stored, name::WAIT, b"false");
        let (mut target, mut target_queue): (Arc<str>, i32) = (Arc::from(topic), queue_id);
        if let Some(level) = level {
            let levels = self.store.with(|store| store.settings().delays.levels());
            let level = level.clamp(1, levels.max(1));
            properties::push(&mut stored, name::DELAY, level.to_string().as_bytes());
            properties::push(&mut stored, name::REAL_TOPIC, topic.as_bytes());
            properties::push(
                &mut stored,
                name::REAL_QUEUE_ID,
                queue_id.to_string().as_bytes(),
            );
            (target, target_queue) = (Arc::from(SCHEDULE_TOPIC), level - 1);
        }
        AppendJob {
            topic: target,
            queue_id: target_queue,
            flag: record.flag(),
            sys_flag: record.sys_flag(),
            born_timestamp: record.born_timestamp(),
            born_host: record.born_host(),
            reconsume_times: record.reconsume_times() + 1,
            body: record.body().to_vec().into(),
            properties: stored.into(),
            batch: false,
            wait: false,
        }
    }
}
