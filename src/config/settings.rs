//! What RingMQ runs with.

use super::address::{self, Addresses, Exposure};
use super::limits::{BUSY_POLL_MICROS_DEFAULT, MESSAGE_BYTES_DEFAULT, TAIL_FILE_BYTES_DEFAULT};
use super::value::{BrokerRole, FlushDiskType, Hours, RouteMode, to_name};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What this process runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A nameserver and a broker in one process.
    Server,
    /// A broker that registers with the nameservers of `namesrvAddr`.
    Broker,
    /// A nameserver alone.
    Nameserver,
}

/// All settings of one process. A field is named after its RocketMQ key; the [table of
/// keys](super::KEYS) has the range of each and whether it can change at run time.
///
/// Shared as an `Arc`; a change at run time makes a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Who can reach the ports unless `bindAddress` says otherwise.
    pub exposure: Exposure,
    /// `brokerClusterName`: cluster that the broker registers in.
    pub broker_cluster_name: String,
    /// `brokerName`: unless set, the name of the host.
    pub broker_name: String,
    /// `brokerId`: 0, a master.
    pub broker_id: u64,
    /// `brokerRole`.
    pub broker_role: BrokerRole,
    /// `brokerIP1`: address that is given to clients and stands in every message as its
    /// store host. Unless set, see [`Settings::addresses`].
    pub broker_ip1: Option<IpAddr>,
    /// `bindAddress`: address that the ports are bound to.
    pub bind_address: Option<IpAddr>,
    /// `namesrvAddr`: nameservers to register with, each `host:port`.
    pub namesrv_addr: Vec<String>,
    /// `listenPort`: the broker's port; as [`Role::Nameserver`] the nameserver's.
    pub listen_port: u16,
    /// `nameserverPort`: the nameserver's port. As [`Role::Nameserver`] equal to
    /// `listen_port`.
    pub nameserver_port: u16,
    /// `shards`: shards to run. Unless set, see [`Settings::shard_count`].
    pub shards: Option<u16>,
    /// `busyPollMicros`, in microseconds: see [`BUSY_POLL_MICROS_DEFAULT`].
    ///
    /// [`BUSY_POLL_MICROS_DEFAULT`]: super::limits::BUSY_POLL_MICROS_DEFAULT
    pub busy_poll_micros: u64,
    /// `routeMode`: what the shards are to clients.
    pub route_mode: RouteMode,
    /// `connectionsMax`: most connections of the process.
    pub connections_max: u32,
    /// `serverChannelMaxIdleTimeSeconds`, in seconds: a connection on which nothing was read or
    /// written for so long is closed.
    pub server_channel_max_idle_time_s: u64,
    /// `channelExpiredTimeout`, in milliseconds: a client without a heartbeat for so long is
    /// dropped from its groups.
    pub channel_expired_timeout_ms: u64,
    /// `registerNameServerPeriod`, in milliseconds.
    pub register_name_server_period_ms: u64,

    /// `autoCreateTopicEnable`: a send to an unknown topic creates it.
    pub auto_create_topic_enable: bool,
    /// `autoCreateSubscriptionGroup`: a heartbeat or pull of an unknown group creates it.
    pub auto_create_subscription_group: bool,
    /// `defaultTopicQueueNums`: queues of a topic created by a send, at most.
    pub default_topic_queue_nums: u32,
    /// `clusterTopicEnable`: the topic named as the cluster may be written.
    pub cluster_topic_enable: bool,
    /// `brokerTopicEnable`: the topic named as the broker may be written.
    pub broker_topic_enable: bool,
    /// `traceTopicEnable`: the trace topic exists from the start.
    pub trace_topic_enable: bool,
    /// `brokerPermission`: 4 read, 2 write.
    pub broker_permission: u32,
    /// `longPollingEnable`: pulls that find nothing wait as long as the client asks.
    pub long_polling_enable: bool,
    /// `shortPollingTimeMills`, in milliseconds: their wait while long polling is off.
    pub short_polling_time_ms: u64,
    /// `litePullMessageEnable`: lite pulls are served.
    pub lite_pull_message_enable: bool,
    /// `notifyConsumerIdsChangedEnable`: members of a group are told when others come or go.
    pub notify_consumer_ids_changed_enable: bool,
    /// `enablePropertyFilter`: SQL92 subscriptions are accepted.
    pub enable_property_filter: bool,
    /// `rejectTransactionMessage`: transactional sends are refused.
    pub reject_transaction_message: bool,
    /// `lockMaxLiveTime`, in milliseconds: a queue lock not renewed for so long is free.
    pub lock_max_live_time_ms: u64,
    /// `regionId`: told to producers for tracing.
    pub region_id: String,
    /// `traceOn`: producers are told to trace.
    pub trace_on: bool,
    /// `messageDelayLevel`: delay of level 1, 2, ...
    pub message_delay_level: Vec<Duration>,
    /// `flushConsumerOffsetInterval`, in milliseconds.
    pub flush_consumer_offset_interval_ms: u64,
    /// `flushDelayOffsetInterval`, in milliseconds.
    pub flush_delay_offset_interval_ms: u64,

    /// `storePathRootDir`: folder of the store.
    pub store_path_root_dir: PathBuf,
    /// `flushDiskType`.
    pub flush_disk_type: FlushDiskType,
    /// `syncFlushTimeout`, in milliseconds: longest wait of a `SYNC_FLUSH` acknowledgement.
    pub sync_flush_timeout_ms: u64,
    /// `flushIntervalCommitLog`, in milliseconds: most time between two flushes under
    /// `ASYNC_FLUSH`.
    pub flush_interval_commit_log_ms: u64,
    /// `mappedFileSizeCommitLog`, in bytes: one segment of the CommitLog.
    pub mapped_file_size_commit_log: u64,
    /// `mappedFileSizeConsumeQueue`, in bytes: one file of a ConsumeQueue.
    pub mapped_file_size_consume_queue: u64,
    /// `tailFileBytes`, in bytes: one shard's ring of append buffers.
    pub tail_file_bytes: usize,
    /// `messageIndexEnable`: messages can be found by their keys.
    pub message_index_enable: bool,
    /// `maxMessageSize`, in bytes: longest body of a message.
    pub max_message_size: usize,
    /// `maxTransferBytesOnMessageInMemory`, in bytes: most of one pull.
    pub max_transfer_bytes_on_message_in_memory: usize,
    /// `maxTransferCountOnMessageInMemory`, in messages: most of one pull.
    pub max_transfer_count_on_message_in_memory: u32,
    /// `fileReservedTime`, in hours: segments older than this are deleted.
    pub file_reserved_time_h: u64,
    /// `deleteWhen`: hours of the day at which they are.
    pub delete_when: Hours,
    /// `diskMaxUsedSpaceRatio`, in percent: above it old segments are deleted at any hour.
    pub disk_max_used_space_ratio: u8,
    /// `diskSpaceCleanForciblyRatio`, in percent: above it segments are deleted before their
    /// time.
    pub disk_space_clean_forcibly_ratio: u8,
    /// `diskSpaceWarningLevelRatio`, in percent: above it sends are refused.
    pub disk_space_warning_level_ratio: u8,
    /// `fileReservedBytes`: bytes of all segments above which the oldest are deleted; 0: none.
    pub file_reserved_bytes: u64,
    /// `diskMaxUsedSpaceBytes`: as `diskMaxUsedSpaceRatio`, in bytes of the store's files; 0: off.
    pub disk_max_used_space_bytes: u64,
    /// `diskSpaceCleanForciblyBytes`: as `diskSpaceCleanForciblyRatio`; 0: off.
    pub disk_space_clean_forcibly_bytes: u64,
    /// `diskSpaceWarningLevelBytes`: as `diskSpaceWarningLevelRatio`; 0: off.
    pub disk_space_warning_level_bytes: u64,
}

impl Default for Settings {
    /// RocketMQ's defaults where it has the key; loopback only.
    fn default() -> Self {
        let seconds = [
            1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
        ];
        Settings {
            exposure: Exposure::Loopback,
            broker_cluster_name: "DefaultCluster".to_owned(),
            broker_name: host_name(),
            broker_id: 0,
            broker_role: BrokerRole::AsyncMaster,
            broker_ip1: None,
            bind_address: None,
            namesrv_addr: Vec::new(),
            listen_port: 10_911,
            nameserver_port: 9876,
            shards: None,
            busy_poll_micros: BUSY_POLL_MICROS_DEFAULT,
            route_mode: RouteMode::Single,
            connections_max: 20_000,
            server_channel_max_idle_time_s: 120,
            channel_expired_timeout_ms: 120_000,
            register_name_server_period_ms: 30_000,
            auto_create_topic_enable: true,
            auto_create_subscription_group: true,
            default_topic_queue_nums: 8,
            cluster_topic_enable: true,
            broker_topic_enable: true,
            trace_topic_enable: false,
            broker_permission: 6,
            long_polling_enable: true,
            short_polling_time_ms: 1000,
            lite_pull_message_enable: true,
            notify_consumer_ids_changed_enable: true,
            enable_property_filter: false,
            reject_transaction_message: false,
            lock_max_live_time_ms: 60_000,
            region_id: "DefaultRegion".to_owned(),
            trace_on: true,
            message_delay_level: seconds.map(Duration::from_secs).to_vec(),
            flush_consumer_offset_interval_ms: 5000,
            flush_delay_offset_interval_ms: 10_000,
            store_path_root_dir: PathBuf::from("ringmq-data"),
            flush_disk_type: FlushDiskType::Async,
            sync_flush_timeout_ms: 5000,
            flush_interval_commit_log_ms: 500,
            mapped_file_size_commit_log: 1 << 30,
            mapped_file_size_consume_queue: 6_000_000,
            tail_file_bytes: TAIL_FILE_BYTES_DEFAULT,
            message_index_enable: true,
            max_message_size: MESSAGE_BYTES_DEFAULT,
            max_transfer_bytes_on_message_in_memory: 256 * 1024,
            max_transfer_count_on_message_in_memory: 32,
            file_reserved_time_h: 72,
            delete_when: Hours(vec![4]),
            disk_max_used_space_ratio: 75,
            disk_space_clean_forcibly_ratio: 85,
            disk_space_warning_level_ratio: 90,
            file_reserved_bytes: 0,
            disk_max_used_space_bytes: 0,
            disk_space_clean_forcibly_bytes: 0,
            disk_space_warning_level_bytes: 0,
        }
    }
}

impl Settings {
    /// Shards to run: `shards`, or one for each core that the process may use
    /// (affinity and CPU quota counted).
    ///
    /// With fewer than four cores one of them is left to what works beside the shards:
    /// the kernel's network and flush threads, the nameserver, clients on the same
    /// machine. Measured on two cores: one shard does twice the messages per CPU second
    /// of two, at half the latency, as no request crosses cores.
    pub fn shard_count(&self) -> u16 {
        self.shards.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            default_shards(cores)
        })
    }

    /// The address that the ports are bound to and the one that is given to clients, from the
    /// settings and the interfaces of this machine.
    pub fn addresses(&self) -> Addresses {
        address::choose(
            self.exposure,
            self.bind_address,
            self.broker_ip1,
            &address::interfaces(),
        )
    }
}

fn default_shards(cores: usize) -> u16 {
    const ALL_FROM: usize = 4;
    let shards = if cores < ALL_FROM { cores - 1 } else { cores };
    u16::try_from(shards)
        .unwrap_or(u16::MAX)
        .clamp(1, super::limits::SHARDS_MAX)
}

/// The name of this host as a broker's name; `DEFAULT_BROKER` where it has none.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .and_then(|name| to_name(name.trim()))
        .unwrap_or_else(|| "DEFAULT_BROKER".to_owned())
}

#[cfg(test)]
mod tests {
    use super::default_shards;

    #[test]
    fn small_machines_keep_a_core_for_what_works_beside_the_shards() {
        let shards = [1, 2, 3, 4, 16].map(default_shards);
        assert_eq!(shards, [1, 1, 2, 4, 16]);
    }
}
