//! What a consumer runs with: settings of push and pull consumers under one roof.

use std::sync::Arc;

use super::allocate::Allocation;
use super::process_queue::Thresholds;
use crate::client::core::io::DELIVERIES_PER_THREAD;
use crate::client::hooks::{FaultHook, Hooks};
use crate::client::settings::{
    ClientSettings, Listening, PullConsumerSettings, PushConsumerSettings, SetupOfGroup,
};
use crate::wire::body::heartbeat::{ConsumeFromWhere, ConsumeType, MessageModel};

/// How messages reach the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A listener gets them, many at a time, in any order.
    Concurrent,
    /// A listener gets those of a queue one after the other.
    Orderly,
    /// The application polls.
    Polled,
}

const MIB: usize = 1024 * 1024;
/// A group begins so long ago where it begins at a time and none is named, ms
/// (`DefaultMQPushConsumer.consumeTimestamp`).
const HALF_HOUR_MS: i64 = 30 * 60_000;

/// How often an orderly consumer tries a message unless it is told.
const ORDERLY_TRIES: i32 = i32::MAX;

/// How often a concurrent consumer tries a message unless it is told.
const CONCURRENT_TRIES: i32 = 16;

/// See the module. Times are in ms.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Consumer group.
    pub group: Arc<str>,
    /// This client among the members.
    pub client_id: Arc<str>,
    /// This client in the path of the file of offsets: the same after each start.
    pub file_id: Arc<str>,
    /// How messages reach the application.
    pub kind: Kind,
    /// Whether every member gets every message.
    pub broadcast: bool,
    /// Where a queue without an offset begins.
    pub from: ConsumeFromWhere,
    /// The time for [`ConsumeFromWhere::Timestamp`], ms since 1970.
    pub from_timestamp_ms: i64,
    /// How queues are shared out.
    pub allocation: Allocation,
    /// Threads that run the listener.
    pub threads: usize,
    /// Most messages of one batch.
    pub batch_max: usize,
    /// Most messages of one pull.
    pub pull_batch: u32,
    /// Most bytes of one pull.
    pub pull_bytes: u32,
    /// Pause between pulls of a queue that bring something.
    pub pull_interval_ms: u64,
    /// What may be held of a queue.
    pub thresholds: Thresholds,
    /// Messages that may be held of a topic, shared among its queues.
    pub topic_messages: Option<usize>,
    /// Bytes that may be held of a topic, shared among its queues.
    pub topic_bytes: Option<usize>,
    /// Messages that may be held of all queues.
    pub messages_of_all: Option<usize>,
    /// How often consumption may fail; negative: as the kind has it.
    pub max_reconsume_times: i32,
    /// Pause of an orderly queue after a failure.
    pub suspend_ms: u64,
    /// Longest time that a listener may take before the message is given to others.
    pub consume_timeout_ms: u64,
    /// Whether subscriptions are in each pull.
    pub inline_subscription: bool,
    /// How long brokers hold a pull.
    pub broker_suspend_ms: u64,
    /// Time for a pull.
    pub pull_timeout_ms: u64,
    /// How long a stop waits for listeners.
    pub await_ms: u64,
    /// Whether polled messages are committed by later polls.
    pub auto_commit: bool,
    /// How often.
    pub auto_commit_ms: u64,
    /// How often offsets are stored.
    pub persist_ms: u64,
    /// How often queues are shared out.
    pub rebalance_ms: u64,
    /// Time for questions about members.
    pub api_timeout_ms: u64,
    /// Time for questions about offsets, and for sending back.
    pub offset_timeout_ms: u64,
    /// Who is told of faults.
    pub fault_hooks: Hooks<dyn FaultHook>,
}

impl Rules {
    /// Default rules of a member of `group`.
    pub fn new(group: impl Into<Arc<str>>, client_id: impl Into<Arc<str>>, kind: Kind) -> Rules {
        let client_id = client_id.into();
        Rules {
            group: group.into(),
            file_id: client_id.clone(),
            client_id,
            kind,
            broadcast: false,
            from: ConsumeFromWhere::LastOffset,
            from_timestamp_ms: 0,
            allocation: Allocation::Averagely,
            threads: 20,
            batch_max: 1,
            pull_batch: if kind == Kind::Polled { 10 } else { 32 },
            pull_bytes: 256 * 1024,
            pull_interval_ms: 0,
            thresholds: Thresholds {
                messages: 1000,
                bytes: 100 * 1024 * 1024,
                span: (kind != Kind::Orderly).then_some(2000),
            },
            topic_messages: None,
            topic_bytes: None,
            messages_of_all: (kind == Kind::Polled).then_some(10_000),
            max_reconsume_times: -1,
            suspend_ms: 1000,
            consume_timeout_ms: 15 * 60_000,
            inline_subscription: false,
            broker_suspend_ms: if kind == Kind::Polled { 20_000 } else { 15_000 },
            pull_timeout_ms: 30_000,
            await_ms: 10_000,
            auto_commit: true,
            auto_commit_ms: 5000,
            persist_ms: 5000,
            rebalance_ms: 20_000,
            api_timeout_ms: 3000,
            offset_timeout_ms: 5000,
            fault_hooks: Hooks::default(),
        }
    }

    /// The rules of a push consumer; `wall`: ms since 1970.
    pub fn of_push(
        settings: &PushConsumerSettings,
        client: &ClientSettings,
        client_id: &Arc<str>,
        wall: i64,
    ) -> Rules {
        let kind = match settings.listening {
            Listening::Concurrently => Kind::Concurrent,
            Listening::Orderly => Kind::Orderly,
        };
        let span = settings.consume_concurrently_max_span as i64;
        Rules {
            threads: settings.consume_threads,
            batch_max: settings.consume_message_batch_max_size,
            pull_batch: settings.pull_batch_size,
            pull_bytes: settings.pull_batch_size_in_bytes,
            pull_interval_ms: settings.pull_interval_ms,
            thresholds: Thresholds {
                messages: settings.pull_threshold_for_queue,
                bytes: settings.pull_threshold_size_for_queue_mib * MIB,
                span: (kind == Kind::Concurrent).then_some(span),
            },
            topic_messages: settings.pull_threshold_for_topic,
            topic_bytes: settings
                .pull_threshold_size_for_topic_mib
                .map(|mib| mib * MIB),
            max_reconsume_times: settings.max_reconsume_times,
            suspend_ms: settings.suspend_current_queue_time_ms,
            consume_timeout_ms: settings.consume_timeout_minutes * 60_000,
            inline_subscription: settings.post_subscription_when_pull,
            broker_suspend_ms: settings.broker_suspend_ms,
            pull_timeout_ms: settings.pull_timeout_ms,
            ..Rules::of(&settings.setup, kind, client, client_id, wall)
        }
    }

    /// The rules of a pull consumer; `wall`: ms since 1970.
    pub fn of_pull(
        settings: &PullConsumerSettings,
        client: &ClientSettings,
        client_id: &Arc<str>,
        wall: i64,
    ) -> Rules {
        Rules {
            batch_max: settings.poll_batch_max,
            pull_batch: settings.pull_batch_size,
            thresholds: Thresholds {
                messages: settings.pull_threshold_for_queue,
                bytes: settings.pull_threshold_size_for_queue_mib * MIB,
                span: Some(settings.consume_max_span as i64),
            },
            messages_of_all: Some(settings.pull_threshold_for_all),
            auto_commit: settings.auto_commit,
            auto_commit_ms: settings.auto_commit_interval_ms,
            broker_suspend_ms: settings.broker_suspend_ms,
            pull_timeout_ms: settings.pull_timeout_ms,
            ..Rules::of(&settings.setup, Kind::Polled, client, client_id, wall)
        }
    }

    fn of(
        setup: &SetupOfGroup,
        kind: Kind,
        client: &ClientSettings,
        client_id: &Arc<str>,
        wall: i64,
    ) -> Rules {
        Rules {
            broadcast: setup.message_model == MessageModel::Broadcasting,
            from: setup.consume_from_where,
            from_timestamp_ms: setup.consume_timestamp_ms.unwrap_or(wall - HALF_HOUR_MS),
            allocation: (&setup.allocate).into(),
            file_id: file_id(client, client_id),
            fault_hooks: setup.fault_hooks.clone(),
            persist_ms: client.persist_consumer_offset_interval_ms,
            rebalance_ms: client.rebalance_interval_ms,
            api_timeout_ms: client.api_timeout_ms,
            ..Rules::new(setup.group.clone(), client_id.clone(), kind)
        }
    }

    /// Whether failed messages come again by a retry topic.
    pub fn retries(&self) -> bool {
        !self.broadcast && self.kind != Kind::Polled
    }

    /// How it asks for messages.
    pub(super) fn consume_type(&self) -> ConsumeType {
        match self.kind {
            Kind::Polled => ConsumeType::Actively,
            _ => ConsumeType::Passively,
        }
    }

    /// Who of the group gets a message.
    pub(super) fn message_model(&self) -> MessageModel {
        if self.broadcast {
            MessageModel::Broadcasting
        } else {
            MessageModel::Clustering
        }
    }

    /// Whether queues are locked at the broker: order across members. Members of a
    /// broadcasting group do not share, and need none.
    pub(super) fn locks(&self) -> bool {
        self.kind == Kind::Orderly && !self.broadcast
    }

    /// How often a message is tried.
    pub(super) fn tries(&self) -> i32 {
        match (self.max_reconsume_times, self.kind) {
            (times, _) if times >= 0 => times,
            (_, Kind::Orderly) => ORDERLY_TRIES,
            _ => CONCURRENT_TRIES,
        }
    }

    /// Batches that listeners may have.
    pub(super) fn in_hand_max(&self) -> usize {
        self.threads.max(1) * DELIVERIES_PER_THREAD
    }

    /// How often it is looked for messages that take too long.
    pub(super) fn clean_ms(&self) -> u64 {
        self.consume_timeout_ms.clamp(1, 60_000)
    }
}

/// The client in the path of offset files. A client without a name is called `DEFAULT` there,
/// as Java's are when they broadcast: the file is found again after a restart.
fn file_id(client: &ClientSettings, client_id: &Arc<str>) -> Arc<str> {
    if client.instance_name.is_some() {
        return client_id.clone();
    }
    let ip = client_id.split('@').next().unwrap_or_default();
    match &client.unit_name {
        Some(unit) => format!("{ip}@DEFAULT@{unit}").into(),
        None => format!("{ip}@DEFAULT").into(),
    }
}
