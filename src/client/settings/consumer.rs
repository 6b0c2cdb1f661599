//! Settings of consumers (`DefaultMQPushConsumer`, `DefaultLitePullConsumer`).

use super::{
    Arc, ConsumeHook, Error, FaultHook, HOUR_MS, Hooks, MessageQueue, QueueHook, Result,
    check_group, check_range,
};
use crate::wire::body::heartbeat::{ConsumeFromWhere, MessageModel};

/// How the queues of a topic are shared out among the members of a group
/// (`AllocateMessageQueueStrategy`). All members must use the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllocateStrategy {
    /// Runs of queues, as equal as can be (`AVG`).
    #[default]
    Averagely,
    /// One after the other in turn (`AVG_BY_CIRCLE`).
    AveragelyByCircle,
    /// By a ring of hashes, on which each member has so many places (`CONSISTENT_HASH`).
    ConsistentHash {
        /// Places of each member, 1 to 1,000; Java's is 10.
        virtual_nodes: u32,
    },
    /// These queues, whatever the others do (`CONFIG`).
    ByConfiguration(Vec<MessageQueue>),
}

impl AllocateStrategy {
    fn check(&self) -> Result<()> {
        match self {
            AllocateStrategy::ConsistentHash { virtual_nodes } => {
                let nodes = u64::from(*virtual_nodes);
                check_range("allocate.virtual_nodes", nodes, 1..=1_000)
            }
            _ => Ok(()),
        }
    }
}

/// What push and pull consumers have in common: how the group begins and shares.
#[derive(Clone, Debug)]
pub struct SetupOfGroup {
    /// Consumer group, 1 to 120 bytes of `%|a-zA-Z0-9_-`.
    pub group: Arc<str>,
    /// Whether one member gets a message, or every one (clustering).
    pub message_model: MessageModel,
    /// Where a group without offsets begins (at the end).
    pub consume_from_where: ConsumeFromWhere,
    /// The time for [`ConsumeFromWhere::Timestamp`], ms since 1970; half an hour before the
    /// start where it is not set.
    pub consume_timestamp_ms: Option<i64>,
    /// How queues are shared out (averagely).
    pub allocate: AllocateStrategy,
    /// Are told what goes wrong behind the calls of the application.
    pub fault_hooks: Hooks<dyn FaultHook>,
}

impl SetupOfGroup {
    fn new(group: Arc<str>) -> SetupOfGroup {
        SetupOfGroup {
            group,
            message_model: MessageModel::Clustering,
            consume_from_where: ConsumeFromWhere::LastOffset,
            consume_timestamp_ms: None,
            allocate: AllocateStrategy::default(),
            fault_hooks: Hooks::default(),
        }
    }

    fn check(&self) -> Result<()> {
        check_group(&self.group)?;
        if &*self.group == "DEFAULT_CONSUMER" {
            return Err(Error::setting(
                "group",
                "DEFAULT_CONSUMER is no group of anyone's own",
            ));
        }
        self.allocate.check()
    }
}

/// How a listener gets messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// Many at once, in any order (`MessageListenerConcurrently`).
    #[default]
    Concurrently,
    /// Those of a queue one after the other (`MessageListenerOrderly`).
    Orderly,
}

/// Settings of a push consumer.
#[derive(Clone, Debug)]
pub struct PushConsumerSettings {
    /// The group.
    pub setup: SetupOfGroup,
    /// How the listener gets messages.
    pub listening: Listening,
    /// Threads that run the listener, 1 to 1,000 (20).
    pub consume_threads: usize,
    /// Most messages of one call of the listener, 1 to 1,024 (1).
    pub consume_message_batch_max_size: usize,
    /// Most messages of one pull, 1 to 1,024 (32).
    pub pull_batch_size: u32,
    /// Most bytes of one pull, 1 to 16 MiB (256 KiB).
    pub pull_batch_size_in_bytes: u32,
    /// Pause between two pulls of a queue, 0 to 65,535 (0).
    pub pull_interval_ms: u64,
    /// Most messages of a queue that wait to be consumed, 1 to 65,535 (1,000).
    pub pull_threshold_for_queue: usize,
    /// Most MiB of them, 1 to 1,024 (100).
    pub pull_threshold_size_for_queue_mib: usize,
    /// The same for the queues of a topic together, divided among them, 1 to 6,553,500;
    /// `None`: not used.
    pub pull_threshold_for_topic: Option<usize>,
    /// The same in MiB, 1 to 102,400.
    pub pull_threshold_size_for_topic_mib: Option<usize>,
    /// Greatest distance of offsets that wait, 1 to 65,535 (2,000), concurrent only.
    pub consume_concurrently_max_span: u64,
    /// How often consumption may fail before a message is given up; -1: 16 times
    /// (concurrent) or without end (orderly).
    pub max_reconsume_times: i32,
    /// Pause of a queue whose listener asks for one without saying how long, 10 to 30,000
    /// (1,000), orderly only.
    pub suspend_current_queue_time_ms: u64,
    /// Time after which a message in consumption is sent back, 1 to 1,440 minutes (15).
    pub consume_timeout_minutes: u64,
    /// Whether subscriptions are in each pull rather than in heartbeats only (`false`).
    pub post_subscription_when_pull: bool,
    /// How long a broker holds a pull for which there is nothing, 1 to 600,000 (15,000).
    pub broker_suspend_ms: u64,
    /// Time for such a pull, longer than `broker_suspend_ms` (30,000).
    pub pull_timeout_ms: u64,
    /// How long `shutdown` waits for listeners that have a batch in hand, 0 to 3,600,000
    /// (10,000).
    pub await_termination_ms: u64,
    /// See every batch.
    pub consume_hooks: Hooks<dyn ConsumeHook>,
}

impl PushConsumerSettings {
    /// Default settings of a member of `group`.
    pub fn new(group: impl Into<Arc<str>>) -> PushConsumerSettings {
        PushConsumerSettings {
            setup: SetupOfGroup::new(group.into()),
            listening: Listening::default(),
            consume_threads: 20,
            consume_message_batch_max_size: 1,
            pull_batch_size: 32,
            pull_batch_size_in_bytes: 256 * 1024,
            pull_interval_ms: 0,
            pull_threshold_for_queue: 1_000,
            pull_threshold_size_for_queue_mib: 100,
            pull_threshold_for_topic: None,
            pull_threshold_size_for_topic_mib: None,
            consume_concurrently_max_span: 2_000,
            max_reconsume_times: -1,
            suspend_current_queue_time_ms: 1_000,
            consume_timeout_minutes: 15,
            post_subscription_when_pull: false,
            broker_suspend_ms: 15_000,
            pull_timeout_ms: 30_000,
            await_termination_ms: 10_000,
            consume_hooks: Hooks::default(),
        }
    }

    /// Checks every bound.
    ///
    /// # Errors
    /// [`super::super::error::ErrorKind::Settings`] for the first value out of its bounds.
    pub fn check(&self) -> Result<()> {
        self.setup.check()?;
        let batch = self.consume_message_batch_max_size as u64;
        for (name, value, bounds) in [
            ("consume_threads", self.consume_threads as u64, 1..=1_000),
            ("consume_message_batch_max_size", batch, 1..=1_024),
            ("pull_batch_size", self.pull_batch_size.into(), 1..=1_024),
            (
                "pull_batch_size_in_bytes",
                self.pull_batch_size_in_bytes.into(),
                1..=16 * 1024 * 1024,
            ),
            ("pull_interval_ms", self.pull_interval_ms, 0..=65_535),
            (
                "pull_threshold_for_queue",
                self.pull_threshold_for_queue as u64,
                1..=65_535,
            ),
            (
                "pull_threshold_size_for_queue_mib",
                self.pull_threshold_size_for_queue_mib as u64,
                1..=1_024,
            ),
            (
                "pull_threshold_for_topic",
                self.pull_threshold_for_topic.unwrap_or(1) as u64,
                1..=6_553_500,
            ),
            (
                "pull_threshold_size_for_topic_mib",
                self.pull_threshold_size_for_topic_mib.unwrap_or(1) as u64,
                1..=102_400,
            ),
            (
                "consume_concurrently_max_span",
                self.consume_concurrently_max_span,
                1..=65_535,
            ),
            (
                "suspend_current_queue_time_ms",
                self.suspend_current_queue_time_ms,
                10..=30_000,
            ),
            (
                "consume_timeout_minutes",
                self.consume_timeout_minutes,
                1..=1_440,
            ),
            (
                "await_termination_ms",
                self.await_termination_ms,
                0..=HOUR_MS,
            ),
        ] {
            check_range(name, value, bounds)?;
        }
        check_waits(self.broker_suspend_ms, self.pull_timeout_ms)
    }
}

fn check_waits(suspend_ms: u64, timeout_ms: u64) -> Result<()> {
    check_range("broker_suspend_ms", suspend_ms, 1..=super::TIMEOUT_MS_MAX)?;
    check_range(
        "pull_timeout_ms",
        timeout_ms,
        suspend_ms + 1..=super::TIMEOUT_MS_MAX + 1,
    )
}

/// Settings of a pull consumer.
#[derive(Clone, Debug)]
pub struct PullConsumerSettings {
    /// The group.
    pub setup: SetupOfGroup,
    /// Whether offsets are committed without being asked to (`true`).
    pub auto_commit: bool,
    /// How often, 100 to 3,600,000 (5,000).
    pub auto_commit_interval_ms: u64,
    /// Most messages of one pull, 1 to 1,024 (10).
    pub pull_batch_size: u32,
    /// Most messages of all queues that wait to be polled, 1 to 1,000,000 (10,000).
    pub pull_threshold_for_all: usize,
    /// Most messages of a queue that wait to be polled, 1 to 65,535 (1,000).
    pub pull_threshold_for_queue: usize,
    /// Most MiB of them, 1 to 1,024 (100).
    pub pull_threshold_size_for_queue_mib: usize,
    /// Greatest distance of offsets that wait, 1 to 65,535 (2,000).
    pub consume_max_span: u64,
    /// Most messages that one poll answers, 1 to 65,535 (those of one pull).
    pub poll_batch_max: usize,
    /// Time of a poll that names none, 0 to 600,000 (5,000).
    pub poll_timeout_ms: u64,
    /// How long a broker holds a pull for which there is nothing, 1 to 600,000 (20,000).
    pub broker_suspend_ms: u64,
    /// Time for such a pull, longer than `broker_suspend_ms` (30,000).
    pub pull_timeout_ms: u64,
    /// Are told when the queues of a topic that is subscribed or assigned are others.
    pub queue_hooks: Hooks<dyn QueueHook>,
    /// How often it is looked for those whether they are, 1,000 to 3,600,000 (30,000).
    pub topic_metadata_check_interval_ms: u64,
}

impl PullConsumerSettings {
    /// Default settings of a member of `group`.
    pub fn new(group: impl Into<Arc<str>>) -> PullConsumerSettings {
        PullConsumerSettings {
            setup: SetupOfGroup::new(group.into()),
            auto_commit: true,
            auto_commit_interval_ms: 5_000,
            pull_batch_size: 10,
            pull_threshold_for_all: 10_000,
            pull_threshold_for_queue: 1_000,
            pull_threshold_size_for_queue_mib: 100,
            consume_max_span: 2_000,
            poll_batch_max: 10,
            poll_timeout_ms: 5_000,
            broker_suspend_ms: 20_000,
            pull_timeout_ms: 30_000,
            queue_hooks: Hooks::default(),
            topic_metadata_check_interval_ms: 30_000,
        }
    }

    /// Checks every bound.
    ///
    /// # Errors
    /// [`super::super::error::ErrorKind::Settings`] for the first value out of its bounds.
    pub fn check(&self) -> Result<()> {
        self.setup.check()?;
        for (name, value, bounds) in [
            (
                "auto_commit_interval_ms",
                self.auto_commit_interval_ms,
                100..=HOUR_MS,
            ),
            ("pull_batch_size", self.pull_batch_size.into(), 1..=1_024),
            (
                "pull_threshold_for_all",
                self.pull_threshold_for_all as u64,
                1..=1_000_000,
            ),
            (
                "pull_threshold_for_queue",
                self.pull_threshold_for_queue as u64,
                1..=65_535,
            ),
            (
                "pull_threshold_size_for_queue_mib",
                self.pull_threshold_size_for_queue_mib as u64,
                1..=1_024,
            ),
            ("consume_max_span", self.consume_max_span, 1..=65_535),
            ("poll_batch_max", self.poll_batch_max as u64, 1..=65_535),
            ("poll_timeout_ms", self.poll_timeout_ms, 0..=600_000),
            (
                "topic_metadata_check_interval_ms",
                self.topic_metadata_check_interval_ms,
                1_000..=HOUR_MS,
            ),
        ] {
            check_range(name, value, bounds)?;
        }
        check_waits(self.broker_suspend_ms, self.pull_timeout_ms)
    }
}
