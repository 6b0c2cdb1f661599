//! What brokers ask of consumers (`ClientRemotingProcessor`): 220, 221, 307, 309. That
//! members changed (40) is [`Consumer::members_changed`].

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::rebalance::wire_queue;
use super::{Consumer, Effect, Life, MessageQueue, Phase, ReceivedMessage, ReplyTo, push};
use crate::client::core::io::{Now, Outcome};
use crate::wire::body::json;
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};

const MIB: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResetBody {
    #[serde(default)]
    offset_table: Option<BTreeMap<json::MessageQueue, i64>>,
}

/// `ProcessQueueInfo`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueInfo {
    cached_msg_count: usize,
    cached_msg_max_offset: i64,
    cached_msg_min_offset: i64,
    #[serde(rename = "cachedMsgSizeInMiB")]
    cached_msg_size_in_mib: usize,
    commit_offset: i64,
    droped: bool,
    last_consume_timestamp: i64,
    last_lock_timestamp: i64,
    last_pull_timestamp: i64,
    locked: bool,
    transaction_msg_count: usize,
    transaction_msg_max_offset: i64,
    transaction_msg_min_offset: i64,
    try_unlock_times: u64,
}

/// `ConsumeMessageDirectlyResult`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DirectResult<'a> {
    auto_commit: bool,
    consume_result: &'static str,
    order: bool,
    remark: Option<&'a str>,
    spent_time_mills: u64,
}

impl Consumer {
    /// A request of a broker for this group. Each that wants a response gets one by
    /// [`Effect::Respond`].
    pub fn requested(&mut self, now: Now, to: ReplyTo, request: &Request) {
        let response = match request.fixed.code {
            request::RESET_CONSUMER_CLIENT_OFFSET => self.reset_offsets(now.at, request),
            request::GET_CONSUMER_STATUS_FROM_CLIENT => self.consumer_status(request),
            request::GET_CONSUMER_RUNNING_INFO => Response::body(self.running_info(now)),
            request::CONSUME_MESSAGE_DIRECTLY => match self.consume_directly(now.at, to, request) {
                Ok(()) => return,
                Err(refusal) => refusal,
            },
            code => Response::not_supported(code),
        };
        if !request.fixed.is_one_way() {
            self.effects.push(Effect::Respond { to, response });
        }
    }

    /// Goes on at the offsets that an operator set.
    fn reset_offsets(&mut self, now: u64, request: &Request) -> Response {
        let topic = request.get("topic").unwrap_or_default();
        let table: ResetBody = match json::parse(&request.body) {
            Ok(table) => table,
            Err(error) => {
                let remark = format!("offsets to reset: {error}");
                return Response::error(response::SYSTEM_ERROR, remark);
            }
        };
        for (queue, offset) in table.offset_table.unwrap_or_default() {
            let queue = MessageQueue::new(queue.topic, queue.broker_name, queue.queue_id);
            let begun = self.owned.get(&queue);
            let active = begun.is_some_and(|own| matches!(own.phase, Phase::Active));
            if active && offset >= 0 && &*queue.topic == topic {
                self.go_on_at(now, &queue, offset);
                if let Some(own) = self.owned.get_mut(&queue) {
                    own.commit.wanted = true;
                }
                self.commit_soon(&queue);
                self.pull(now, &queue);
            }
        }
        Response::ok()
    }

    fn consumer_status(&self, request: &Request) -> Response {
        let topic = request.get("topic").unwrap_or_default();
        let of_topic = self
            .owned
            .iter()
            .filter(|(queue, _)| &*queue.topic == topic);
        let offsets: BTreeMap<_, _> = of_topic
            .map(|(queue, own)| (wire_queue(queue), own.commit.value))
            .collect();
        let mut out = String::from(r#"{"consumerTable":{},"messageQueueTable":"#);
        json::write_queue_map(&mut out, offsets.iter());
        out.push('}');
        Response::body(out.into_bytes())
    }

    /// What the consumer is at, as tools read it (`ConsumerRunningInfo`).
    fn running_info(&self, now: Now) -> Vec<u8> {
        let wall = |at: u64| now.wall.saturating_sub_unsigned(now.at.saturating_sub(at));
        let mut infos = BTreeMap::new();
        for (queue, own) in &self.owned {
            let (first, last) = own.line.bounds().unwrap_or_default();
            let locked = own.locked_until > now.at;
            let lock = own
                .locked_until
                .saturating_sub(super::rebalance::LOCK_LIVE_MS);
            let info = QueueInfo {
                cached_msg_count: own.line.count(),
                cached_msg_max_offset: last,
                cached_msg_min_offset: first,
                cached_msg_size_in_mib: own.line.bytes() / MIB,
                commit_offset: own.commit.value,
                droped: matches!(own.phase, Phase::Leaving(_)),
                last_consume_timestamp: wall(own.last_consume),
                last_lock_timestamp: wall(lock),
                last_pull_timestamp: wall(own.last_pull),
                locked,
                transaction_msg_count: 0,
                transaction_msg_max_offset: 0,
                transaction_msg_min_offset: 0,
                try_unlock_times: 0,
            };
            infos.insert(wire_queue(queue), info);
        }
        let rules = &self.rules;
        let properties = serde_json::json!({
            "PROP_CONSUME_TYPE": rules.consume_type().name(),
            "PROP_CONSUMEORDERLY": (rules.kind == super::Kind::Orderly).to_string(),
            "PROP_THREADPOOL_CORE_SIZE": rules.threads.to_string(),
            "PROP_CONSUMER_START_TIMESTAMP": wall(self.started).to_string(),
            "PROP_CLIENT_VERSION": concat!("RingMQ ", env!("CARGO_PKG_VERSION")),
            "consumerGroup": &*rules.group,
            "messageModel": rules.message_model().name(),
            "consumeFromWhere": rules.from.name(),
            "consumeMessageBatchMaxSize": rules.batch_max.to_string(),
            "pullThresholdForQueue": rules.thresholds.messages.to_string(),
        });
        let subscriptions: Vec<_> = self.topics.values().map(|t| &t.subscription).collect();
        let mut out = String::from(r#"{"mqTable":"#);
        json::write_queue_map(&mut out, infos.iter());
        out.push_str(r#","properties":"#);
        json::write_value(&mut out, &properties);
        let none = super::rates::Rates::new(now.at);
        let status = self.topics.keys().map(|topic| {
            let rates = self.rates.get(topic).unwrap_or(&none);
            (topic.to_string(), rates.status(now.at))
        });
        out.push_str(r#","statusTable":"#);
        json::write_value(&mut out, &status.collect::<BTreeMap<_, _>>());
        out.push_str(r#","subscriptionSet":"#);
        json::write_value(&mut out, &subscriptions);
        out.push('}');
        out.into_bytes()
    }

    /// Gives a listener the one message that a broker sent along.
    fn consume_directly(
        &mut self,
        now: u64,
        to: ReplyTo,
        request: &Request,
    ) -> Result<(), Response> {
        let refused = |remark: String| Response::error(response::SYSTEM_ERROR, remark);
        if self.rules.kind == super::Kind::Polled || self.life != Life::Running {
            let group = &self.rules.group;
            return Err(refused(format!("group {group} has no listener here")));
        }
        if self.hands.len() >= 2 * self.rules.in_hand_max() {
            return Err(refused("listeners have too much in hand".to_owned()));
        }
        let broker = request.get("brokerName").unwrap_or_default().into();
        let body: &Bytes = &request.body;
        let (mut message, _) = ReceivedMessage::parse(body, &broker, &"".into())
            .map_err(|fault| refused(format!("the message: {fault}")))?;
        super::found::put_topic_back(&mut message);
        let hand = push::direct(message.queue.clone(), to, now);
        self.deliver(hand, vec![message]);
        Ok(())
    }

    pub(super) fn consumed_directly(
        &mut self,
        now: u64,
        to: ReplyTo,
        since: u64,
        outcome: &Outcome,
    ) {
        let consume_result = match outcome {
            Outcome::Success { .. } | Outcome::SuccessUncommitted => "CR_SUCCESS",
            Outcome::ReconsumeLater { .. } | Outcome::SuspendCurrentQueue { .. } => "CR_LATER",
            Outcome::Commit => "CR_COMMIT",
            Outcome::Rollback => "CR_ROLLBACK",
            Outcome::Failed { .. } => "CR_THROW_EXCEPTION",
        };
        let manual = matches!(
            outcome,
            Outcome::Commit | Outcome::Rollback | Outcome::SuccessUncommitted
        );
        let result = DirectResult {
            auto_commit: !manual,
            consume_result,
            order: self.rules.kind == super::Kind::Orderly,
            remark: match outcome {
                Outcome::Failed { what } => Some(what),
                _ => None,
            },
            spent_time_mills: now.saturating_sub(since),
        };
        let response = Response::body(json::encode(&result));
        self.effects.push(Effect::Respond { to, response });
    }
}
