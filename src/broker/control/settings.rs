//! The settings that control requests depend on.

/// What the control shard needs to know of the broker's configuration. Passed in
/// with every request, so that what may change at run time does.
#[derive(Clone, Debug)]
pub struct ControlSettings {
    /// `brokerName`.
    pub broker_name: String,
    /// `brokerClusterName`.
    pub cluster_name: String,
    /// `brokerIP1:listenPort`, the address that clients are given.
    pub broker_addr: String,
    /// `autoCreateTopicEnable`: a send may create its topic.
    pub auto_create_topic: bool,
    /// `autoCreateSubscriptionGroup`: a client may create its group.
    pub auto_create_group: bool,
    /// `defaultTopicQueueNums`: queues of the template of created topics.
    pub default_topic_queue_nums: i32,
    /// `clusterTopicEnable`: the topic named as the cluster may be used.
    pub cluster_topic: bool,
    /// `brokerTopicEnable`: the topic named as the broker may be used.
    pub broker_topic: bool,
    /// `traceTopicEnable`: the topic of message traces exists.
    pub trace_topic: bool,
    /// `timerWheelEnable`: the topic of timer messages exists.
    pub timer_wheel: bool,
    /// `reviveQueueNum`: queues of the topic that POP revives from.
    pub revive_queue_nums: i32,
    /// `enableMixedMessageType`: topics may have messages of all types.
    pub mixed_message_type: bool,
    /// `enablePropertyFilter`: subscriptions may be other than tags.
    pub property_filter: bool,
    /// `notifyConsumerIdsChangedEnable`: members are told of each other at once.
    pub notify_consumers: bool,
    /// `channelExpiredTimeout`: a client that is silent for longer is no member, in ms.
    pub client_expiry_ms: u64,
    /// Delay levels of `messageDelayLevel`, each with a queue of the schedule topic;
    /// at least RocketMQ's 18.
    pub delay_levels: i32,
    /// When this process began to serve, in ms since 1970.
    pub boot_ms: u64,
}

impl Default for ControlSettings {
    fn default() -> ControlSettings {
        ControlSettings {
            broker_name: "broker-a".to_owned(),
            cluster_name: "DefaultCluster".to_owned(),
            broker_addr: "127.0.0.1:10911".to_owned(),
            auto_create_topic: true,
            auto_create_group: true,
            default_topic_queue_nums: 8,
            cluster_topic: true,
            broker_topic: true,
            trace_topic: false,
            timer_wheel: true,
            revive_queue_nums: 8,
            mixed_message_type: false,
            property_filter: false,
            notify_consumers: true,
            client_expiry_ms: 120_000,
            delay_levels: 18,
            boot_ms: 0,
        }
    }
}
