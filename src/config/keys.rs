//! The keys that RingMQ uses, each once: name, values, default, when it can change, meaning.

use super::limits::*;
use super::settings::Settings;
use super::value::{Allowed, Value};

/// When a setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Read when the process starts.
    AtStart,
    /// May be changed while the process runs (`UPDATE_BROKER_CONFIG`).
    AtRunTime,
}

/// One key that RingMQ uses.
#[derive(Debug)]
pub struct Key {
    /// Its name in a configuration file, RocketMQ's where it has one.
    pub name: &'static str,
    /// Values it may have.
    pub allowed: Allowed,
    /// When a change takes effect.
    pub change: Change,
    /// What it does, for people.
    pub doc: &'static str,
    pub(super) read: fn(&mut Settings, &str, &Allowed) -> bool,
    pub(super) text: fn(&Settings) -> String,
}

impl Key {
    /// The value in `settings`, as text without escapes; empty where it is not set.
    pub fn text(&self, settings: &Settings) -> String {
        (self.text)(settings)
    }
}

const BOOL: Allowed = Allowed::Bool;
const INTERVAL_MS: Allowed = Allowed::range(1, INTERVAL_MS_MAX);
const NAME: Allowed = Allowed::Form("1 to 127 of the characters a-z A-Z 0-9 - _ . % | @");
const ADDRESS: Allowed = Allowed::Form("an IPv4 or IPv6 address, or empty");
const PERCENT: Allowed = Allowed::range(10, 99);
const BYTES: Allowed = Allowed::range(0, STORE_BYTES_MAX);

macro_rules! keys {
    ($($name:literal $field:ident, $allowed:expr, $change:ident, $doc:literal;)*) => {
        &[$(Key {
            name: $name,
            allowed: $allowed,
            change: Change::$change,
            doc: $doc,
            read: |settings, text, allowed| match Value::read(text, allowed) {
                Some(value) => {
                    settings.$field = value;
                    true
                }
                None => false,
            },
            text: |settings| Value::text(&settings.$field),
        }),*]
    };
}

/// Every key that RingMQ uses.
pub static KEYS: &[Key] = keys! {
    // Who and where.
    "brokerClusterName" broker_cluster_name, NAME, AtStart,
        "cluster that the broker registers in";
    "brokerName" broker_name, NAME, AtStart,
        "name of the broker; the host's name unless set";
    "brokerId" broker_id, Allowed::range(0, 0), AtStart,
        "0: a master, there are no replicas yet";
    "brokerRole" broker_role,
        Allowed::Form("ASYNC_MASTER or SYNC_MASTER; SLAVE is not there yet, RingMQ has no replicas"), AtStart,
        "both masters behave alike as long as there are no replicas";
    "brokerIP1" broker_ip1, ADDRESS, AtStart,
        "address that is given to clients";
    "bindAddress" bind_address, ADDRESS, AtStart,
        "address that the ports are bound to";
    "namesrvAddr" namesrv_addr, Allowed::Form("host:port, up to 64 separated by ;"), AtStart,
        "nameservers that the broker registers with";
    "listenPort" listen_port, Allowed::range(1, 65_535), AtStart,
        "port of the broker, or of `ringmq nameserver`";
    "nameserverPort" nameserver_port, Allowed::range(1, 65_535), AtStart,
        "port of the nameserver inside `ringmq server`";
    "shards" shards, Allowed::range(1, SHARDS_MAX as u64), AtStart,
        "event loops, one a core; unless set all cores, but one fewer below four";
    "busyPollMicros" busy_poll_micros, Allowed::range(0, BUSY_POLL_MICROS_MAX), AtStart,
        "most microseconds that a shard polls before it sleeps, where that pays; 0: never";
    "routeMode" route_mode, Allowed::Form("single or perShard"), AtStart,
        "single: one broker; perShard: shard k is a broker of its own, brokerName-k on listenPort + 10 k";
    "connectionsMax" connections_max, Allowed::range(1, CONNECTIONS_MAX as u64), AtStart,
        "most connections of the process";
    "serverChannelMaxIdleTimeSeconds" server_channel_max_idle_time_s, Allowed::range(1, 86_400), AtStart,
        "seconds after which an idle connection is closed";
    "channelExpiredTimeout" channel_expired_timeout_ms, INTERVAL_MS, AtRunTime,
        "milliseconds after which a client without heartbeat is dropped";
    "registerNameServerPeriod" register_name_server_period_ms,
        Allowed::Clamped { min: REGISTER_PERIOD_MS.0, max: REGISTER_PERIOD_MS.1 }, AtStart,
        "milliseconds between registrations, 10,000 to 60,000";

    // Topics, groups, requests.
    "autoCreateTopicEnable" auto_create_topic_enable, BOOL, AtRunTime,
        "a send to an unknown topic creates it";
    "autoCreateSubscriptionGroup" auto_create_subscription_group, BOOL, AtRunTime,
        "an unknown consumer group is created when it is first seen";
    "defaultTopicQueueNums" default_topic_queue_nums, Allowed::range(1, TOPIC_QUEUES_MAX as u64), AtRunTime,
        "queues of a topic that a send creates, at most";
    "clusterTopicEnable" cluster_topic_enable, BOOL, AtStart,
        "the topic named as the cluster may be written";
    "brokerTopicEnable" broker_topic_enable, BOOL, AtStart,
        "the topic named as the broker may be written";
    "traceTopicEnable" trace_topic_enable, BOOL, AtStart,
        "the trace topic exists from the start";
    "brokerPermission" broker_permission, Allowed::range(0, 7), AtRunTime,
        "what clients may do: 4 read, 2 write, 6 both";
    "longPollingEnable" long_polling_enable, BOOL, AtRunTime,
        "a pull that finds nothing waits as long as the client asks";
    "shortPollingTimeMills" short_polling_time_ms, INTERVAL_MS, AtRunTime,
        "milliseconds that it waits while long polling is off";
    "litePullMessageEnable" lite_pull_message_enable, BOOL, AtRunTime,
        "lite pulls are served";
    "notifyConsumerIdsChangedEnable" notify_consumer_ids_changed_enable, BOOL, AtRunTime,
        "members of a group are told at once when others come or go";
    "enablePropertyFilter" enable_property_filter, BOOL, AtRunTime,
        "SQL92 subscriptions are accepted";
    "rejectTransactionMessage" reject_transaction_message, BOOL, AtRunTime,
        "transactional sends are refused";
    "lockMaxLiveTime" lock_max_live_time_ms, INTERVAL_MS, AtRunTime,
        "milliseconds after which a queue lock that is not renewed is free";
    "regionId" region_id, NAME, AtStart,
        "region that producers put into their traces";
    "traceOn" trace_on, BOOL, AtRunTime,
        "producers are told to trace";
    "messageDelayLevel" message_delay_level,
        Allowed::Form("1 to 256 delays such as 1s 5m 2h 1d, separated by blanks"), AtStart,
        "delay of each level, from level 1";
    "flushConsumerOffsetInterval" flush_consumer_offset_interval_ms, INTERVAL_MS, AtStart,
        "milliseconds between writes of the consumer offsets";
    "flushDelayOffsetInterval" flush_delay_offset_interval_ms, INTERVAL_MS, AtStart,
        "milliseconds between writes of the delay progress";

    // Store.
    "storePathRootDir" store_path_root_dir, Allowed::Form("a path"), AtStart,
        "folder of the store";
    "flushDiskType" flush_disk_type, Allowed::Form("ASYNC_FLUSH or SYNC_FLUSH"), AtStart,
        "what an acknowledgement survives: a crash of the process, or of the machine";
    "syncFlushTimeout" sync_flush_timeout_ms, INTERVAL_MS, AtRunTime,
        "milliseconds that a SYNC_FLUSH acknowledgement may take";
    "flushIntervalCommitLog" flush_interval_commit_log_ms, INTERVAL_MS, AtRunTime,
        "most milliseconds between flushes under ASYNC_FLUSH";
    "mappedFileSizeCommitLog" mapped_file_size_commit_log,
        Allowed::Number { min: SEGMENT_BYTES_MIN, max: SEGMENT_BYTES_MAX, multiple_of: BLOCK_BYTES }, AtStart,
        "bytes of a segment of the CommitLog";
    "mappedFileSizeConsumeQueue" mapped_file_size_consume_queue,
        Allowed::Number { min: QUEUE_FILE_BYTES_MIN, max: QUEUE_FILE_BYTES_MAX, multiple_of: QUEUE_ENTRY_BYTES }, AtStart,
        "bytes of a file of a ConsumeQueue";
    "tailFileBytes" tail_file_bytes,
        Allowed::PowerOfTwo { min: TAIL_FILE_BYTES_MIN as u64, max: TAIL_FILE_BYTES_MAX as u64 }, AtStart,
        "bytes of one shard's ring of append buffers";
    "messageIndexEnable" message_index_enable, BOOL, AtStart,
        "messages can be found by their keys";
    "maxMessageSize" max_message_size,
        Allowed::range(MESSAGE_BYTES_MIN as u64, MESSAGE_BYTES_MAX as u64), AtRunTime,
        "bytes of the longest message body";
    "maxTransferBytesOnMessageInMemory" max_transfer_bytes_on_message_in_memory,
        Allowed::range(TRANSFER_BYTES_MIN as u64, TRANSFER_BYTES_MAX as u64), AtRunTime,
        "most bytes that one pull returns";
    "maxTransferCountOnMessageInMemory" max_transfer_count_on_message_in_memory,
        Allowed::range(1, TRANSFER_COUNT_MAX as u64), AtRunTime,
        "most messages that one pull returns";
    "fileReservedTime" file_reserved_time_h, Allowed::range(1, 1_000_000), AtRunTime,
        "hours that a segment is kept";
    "deleteWhen" delete_when, Allowed::Form("hours of the day from 00 to 23, separated by ;"), AtRunTime,
        "when older segments are deleted";
    "diskMaxUsedSpaceRatio" disk_max_used_space_ratio, PERCENT, AtRunTime,
        "percent of the disk above which they are deleted at any hour";
    "diskSpaceCleanForciblyRatio" disk_space_clean_forcibly_ratio, PERCENT, AtRunTime,
        "percent above which segments are deleted before their time";
    "diskSpaceWarningLevelRatio" disk_space_warning_level_ratio, PERCENT, AtRunTime,
        "percent above which sends are refused";
    "fileReservedBytes" file_reserved_bytes, BYTES, AtRunTime,
        "bytes of all segments above which the oldest are deleted, 0: no limit";
    "diskMaxUsedSpaceBytes" disk_max_used_space_bytes, BYTES, AtRunTime,
        "bytes of the store's files above which older segments are deleted at any hour, 0: off";
    "diskSpaceCleanForciblyBytes" disk_space_clean_forcibly_bytes, BYTES, AtRunTime,
        "bytes of them above which segments are deleted before their time, 0: off";
    "diskSpaceWarningLevelBytes" disk_space_warning_level_bytes, BYTES, AtRunTime,
        "bytes of them above which sends are refused, 0: off";
};

/// Names that older versions of RocketMQ, or its system properties, have for a key.
pub(super) static ALIASES: &[(&str, &str)] = &[
    ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
    ("mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"),
    (
        "rocketmq.broker.rebalance.lockMaxLiveTime",
        "lockMaxLiveTime",
    ),
];

/// Keys of RocketMQ that ask for something RingMQ does not have yet, the values that ask for
/// nothing, and what is missing. They are refused: to run without what was asked for, access
/// control above all, would be worse than not to run.
pub(super) static NOT_YET: &[(&str, &[&str], &str)] = &[
    ("aclEnable", &["false"], "access control"),
    ("authenticationEnabled", &["false"], "access control"),
    ("authorizationEnabled", &["false"], "access control"),
    ("enableDLegerCommitLog", &["false"], "replication"),
    ("enableControllerMode", &["false"], "replication"),
    ("enableControllerInNamesrv", &["false"], "the controller"),
    ("duplicationEnable", &["false"], "replication"),
    ("inSyncReplicas", &["1"], "replication"),
    ("minInSyncReplicas", &["1"], "replication"),
    (
        "enabledAppendPropCRC",
        &["false"],
        "a checksum of properties",
    ),
];

/// Folder of the CommitLog. Here it is always `commitlog` in the store's folder.
pub(super) const COMMIT_LOG_PATH: &str = "storePathCommitLog";

/// RocketMQ's other keys. Accepted, because a file made for RocketMQ is to be read as it is,
/// and without effect: thread pools, page-cache tuning and the like have no counterpart here.
static WITHOUT_EFFECT: &str = include_str!("rocketmq_keys.txt");

/// Every key of RocketMQ that is accepted and has no effect.
pub fn without_effect() -> impl Iterator<Item = &'static str> {
    WITHOUT_EFFECT
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_ascii_whitespace)
}

/// What a name in a configuration stands for.
#[derive(Debug)]
pub(super) enum Lookup {
    /// A key that RingMQ uses.
    Used(&'static Key),
    /// A key whose value may ask for something that is missing: the values that do not, and
    /// what is.
    NotYet(&'static [&'static str], &'static str),
    /// [`COMMIT_LOG_PATH`], which may only repeat what `storePathRootDir` says.
    CommitLogPath,
    /// A key of RocketMQ without effect here.
    WithoutEffect,
    /// Nothing; the known key whose name is nearest, if one is near.
    Unknown(Option<&'static str>),
}

pub(super) fn look_up(name: &str) -> Lookup {
    let alias = ALIASES.iter().find(|(old, _)| *old == name);
    let name = alias.map_or(name, |(_, new)| new);
    if let Some(key) = KEYS.iter().find(|key| key.name == name) {
        Lookup::Used(key)
    } else if let Some((_, harmless, missing)) = NOT_YET.iter().find(|(key, ..)| *key == name) {
        Lookup::NotYet(harmless, missing)
    } else if name == COMMIT_LOG_PATH {
        Lookup::CommitLogPath
    } else if without_effect().any(|key| key == name) {
        Lookup::WithoutEffect
    } else {
        Lookup::Unknown(nearest(name))
    }
}

/// The known key nearest to `name`. Keys that have an effect come first among equals.
fn nearest(name: &str) -> Option<&'static str> {
    // A name far longer than any key is near to none, and measuring is quadratic.
    if name.len() > 2 * NAME_BYTES_MAX {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let used = KEYS.iter().map(|key| key.name);
    let others = NOT_YET.iter().map(|(key, ..)| *key);
    used.chain(others)
        .chain([COMMIT_LOG_PATH])
        .chain(without_effect())
        .map(|key| {
            (
                strsim::damerau_levenshtein(&lower, &key.to_ascii_lowercase()),
                key,
            )
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, key)| *distance <= 1 + key.len() / 4)
        .map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_name_is_known_once() {
        let mut seen = HashSet::new();
        let used = KEYS.iter().map(|key| key.name);
        let not_yet = NOT_YET.iter().map(|(key, ..)| *key);
        let aliases = ALIASES.iter().map(|(old, _)| *old);
        for name in used.chain(not_yet).chain(aliases).chain(without_effect()) {
            assert!(seen.insert(name), "{name} is there twice");
        }
        for (_, new) in ALIASES {
            assert!(KEYS.iter().any(|key| key.name == *new), "{new}");
        }
        assert!(without_effect().count() > 400);
    }

    #[test]
    fn every_default_is_allowed_and_kept() {
        let settings = Settings::default();
        for key in KEYS {
            let text = key.text(&settings);
            let mut copy = settings.clone();
            assert!(
                (key.read)(&mut copy, &text, &key.allowed),
                "{} = {text:?}",
                key.name
            );
            assert_eq!(copy, settings, "{}", key.name);
        }
    }

    #[test]
    fn a_mistyped_key_finds_the_one_meant() {
        let near = |name| match look_up(name) {
            Lookup::Unknown(near) => near,
            other => panic!("{name} is known: {other:?}"),
        };
        assert_eq!(near("listenPrt"), Some("listenPort"));
        assert_eq!(near("brokerip1"), Some("brokerIP1"));
        assert_eq!(near("flushDiskTyp"), Some("flushDiskType"));
        assert_eq!(
            near("autoCreateTopicEnabled"),
            Some("autoCreateTopicEnable")
        );
        assert_eq!(near("whatever"), None);
        assert_eq!(near(&"x".repeat(100_000)), None);
    }
}
