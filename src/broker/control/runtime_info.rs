//! GET_BROKER_RUNTIME_INFO: figures of the broker, under the names that RocketMQ's
//! tools print and, in part, insist on reading as numbers.
//!
//! Source of the names: `AdminBrokerProcessor.prepareRuntimeInfo`, `StoreStatsService`.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use super::settings::ControlSettings;
use crate::broker::peers::StoreInfo;
use crate::wire::body::stats::{KvTable, to_body};

/// Time between the samples that rates are made from, in ms.
pub const SAMPLE_MS: u64 = 10_000;
/// The times over which rates are averaged, in ms.
const WINDOWS_MS: [u64; 3] = [10_000, 60_000, 600_000];
/// Samples that the longest of them needs.
const SAMPLES_MAX: usize = (WINDOWS_MS[2] / SAMPLE_MS) as usize + 1;
/// Groups and topics that are listed with what they lost; the others are in the total.
const PURGED_LISTED: usize = 100;
const DAY_MS: u64 = 24 * 3_600_000;
/// The bits of a physical offset that are the position in the log of one shard.
const POSITION_MASK: i64 = (1 << 48) - 1;
/// The version that replies carry, by name.
const VERSION_NAME: &str = "V5_3_3";

/// The file system that the store is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Its size in bytes; 0 where unknown.
    pub total: u64,
    /// What may still be written, in bytes.
    pub free: u64,
}

impl Disk {
    /// Percent in use, rounded up (`UtilAll.getDiskPartitionSpaceUsedPercent`).
    pub fn used_percent(&self) -> u64 {
        let used = u128::from(self.total.saturating_sub(self.free));
        (used * 100).div_ceil(u128::from(self.total.max(1))) as u64
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    at_ms: u64,
    put: u64,
    got: u64,
    found: u64,
    missed: u64,
}

impl Counters {
    fn of(stores: &[StoreInfo], at_ms: u64) -> Counters {
        let sum = |figure: fn(&StoreInfo) -> u64| stores.iter().map(figure).sum();
        Counters {
            at_ms,
            put: sum(|store| store.put_messages),
            got: sum(|store| store.got_messages),
            found: sum(|store| store.pulls_found),
            missed: sum(|store| store.pulls_missed),
        }
    }
}

/// What rates and daily figures are made from, and what only the caller can measure.
#[derive(Debug, Default)]
pub struct Runtime {
    samples: VecDeque<Counters>,
    /// Put and got messages when the day of the last sample began, and the day before.
    today: (u64, u64),
    yesterday: (u64, u64),
    /// The file system that the store is in.
    pub disk: Disk,
}

impl Runtime {
    /// Notes the state of the stores. To be called every [`SAMPLE_MS`].
    pub fn sample(&mut self, stores: &[StoreInfo], now_ms: u64) {
        let now = Counters::of(stores, now_ms);
        if let Some(last) = self.samples.back() {
            // Days begin at midnight UTC.
            if now_ms / DAY_MS != last.at_ms / DAY_MS {
                self.yesterday = self.today;
                self.today = (last.put, last.got);
            }
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(now);
    }

    /// A rate over 10, 60 and 600 s, in messages per second.
    fn rates(&self, now: &Counters, figure: fn(&Counters) -> u64) -> String {
        let rate = |window_ms: u64| {
            let within = |sample: &&Counters| now.at_ms.saturating_sub(sample.at_ms) >= window_ms;
            let since = self
                .samples
                .iter()
                .rev()
                .find(within)
                .or(self.samples.front());
            let since = since.copied().unwrap_or_default();
            let seconds = now.at_ms.saturating_sub(since.at_ms) as f64 / 1000.0;
            let count = figure(now).saturating_sub(figure(&since)) as f64;
            if seconds > 0.0 && since.at_ms > 0 {
                count / seconds
            } else {
                0.0
            }
        };
        let [short, middle, long] = WINDOWS_MS.map(rate);
        format!("{short:.3} {middle:.3} {long:.3}")
    }

    /// The body of the answer.
    pub fn body(&self, stores: &[StoreInfo], settings: &ControlSettings, now_ms: u64) -> Vec<u8> {
        let mut table = BTreeMap::new();
        self.broker(&mut table, settings, now_ms);
        self.traffic(&mut table, stores, now_ms);
        self.store(&mut table, stores);
        purged(&mut table, stores);
        shards(&mut table, stores);
        idle(&mut table);
        to_body(&KvTable { table })
    }

    fn broker(&self, table: &mut Table, settings: &ControlSettings, now_ms: u64) {
        let up = now_ms.saturating_sub(settings.boot_ms) / 1000;
        let (days, hours) = (up / 86_400, up / 3_600 % 24);
        let (minutes, seconds) = (up / 60 % 60, up % 60);
        let runtime =
            format!("[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]");
        put(table, "runtime", runtime);
        put(table, "brokerVersionDesc", VERSION_NAME);
        put(table, "brokerActive", true);
        put(table, "bootTimestamp", settings.boot_ms);
        put(table, "startAcceptSendRequestTimeStamp", settings.boot_ms);
    }

    fn traffic(&self, table: &mut Table, stores: &[StoreInfo], now_ms: u64) {
        let now = Counters::of(stores, now_ms);
        put(table, "putTps", self.rates(&now, |c| c.put));
        put(table, "getTransferredTps", self.rates(&now, |c| c.got));
        put(table, "getFoundTps", self.rates(&now, |c| c.found));
        put(table, "getMissTps", self.rates(&now, |c| c.missed));
        put(
            table,
            "getTotalTps",
            self.rates(&now, |c| c.found + c.missed),
        );
        put(table, "msgPutTotalYesterdayMorning", self.yesterday.0);
        put(table, "msgPutTotalTodayMorning", self.today.0);
        put(table, "msgPutTotalTodayNow", now.put);
        put(table, "msgGetTotalYesterdayMorning", self.yesterday.1);
        put(table, "msgGetTotalTodayMorning", self.today.1);
        put(table, "msgGetTotalTodayNow", now.got);
        let bytes: u64 = stores.iter().map(|store| store.put_bytes).sum();
        let failed: u64 = stores.iter().map(|store| store.put_failed).sum();
        put(table, "putMessageTimesTotal", now.put);
        put(table, "putMessageFailedTimes", failed);
        // RingMQ's own: requests of clients that another shard than the one they came to
        // had to answer; what holds up a shard.
        let sum = |figure: fn(&StoreInfo) -> u64| -> u64 { stores.iter().map(figure).sum() };
        put(table, "forwardedRequests", sum(|store| store.forwarded));
        put(table, "longTurns", sum(|store| store.long_turns));
        put(
            table,
            "largeAllocations",
            sum(|store| store.large_allocations),
        );
        put(table, "putMessageSizeTotal", bytes);
        let average = if now.put == 0 {
            0.0
        } else {
            bytes as f64 / now.put as f64
        };
        put(table, "putMessageAverageSize", format!("{average:.1}"));
    }

    /// Bounds of the log are sums over shards of the positions in each, so that
    /// their difference is what the store holds. Of one shard they are its own.
    fn store(&self, table: &mut Table, stores: &[StoreInfo]) {
        let sum = |figure: fn(&StoreInfo) -> i64| -> i64 { stores.iter().map(figure).sum() };
        put(
            table,
            "commitLogMinOffset",
            sum(|store| store.min_physical & POSITION_MASK),
        );
        put(
            table,
            "commitLogMaxOffset",
            sum(|store| store.max_physical & POSITION_MASK),
        );
        let unflushed = sum(|store| store.unflushed).max(0);
        put(
            table,
            "remainHowManyDataToFlush",
            readable(unflushed as u64),
        );
        put(table, "remainHowManyDataToCommit", readable(0));
        let times = stores.iter().map(|store| store.earliest_timestamp);
        let earliest = times.filter(|&time| time >= 0).min();
        put(table, "earliestMessageTimeStamp", earliest.unwrap_or(-1));
        let Disk { total, free } = self.disk;
        let used = total.saturating_sub(free) as f64;
        let ratio = if total == 0 { 0.0 } else { used / total as f64 };
        put(table, "commitLogDiskRatio", format!("{ratio:.4}"));
        put(table, "consumeQueueDiskRatio", format!("{ratio:.4}"));
        let capacity = format!("Total : {}, Free : {}.", readable(total), readable(free));
        put(table, "commitLogDirCapacity", capacity);
    }
}

/// Messages that were deleted before a group had read them, since the start: of all
/// groups, and of those who lost most. The names are RingMQ's own.
fn purged(table: &mut Table, stores: &[StoreInfo]) {
    let total: u64 = stores.iter().map(|store| store.purged_total).sum();
    put(table, "purgedUnreadTotal", total);
    let mut pairs = BTreeMap::new();
    for (group, topic, count) in stores.iter().flat_map(|store| &store.purged) {
        *pairs.entry((group, topic)).or_insert(0) += count;
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    for ((group, topic), count) in pairs.into_iter().take(PURGED_LISTED) {
        table.insert(
            format!("purgedUnread@{topic}@{group}").into(),
            count.to_string(),
        );
    }
}

/// Each shard by itself, as `shard.<number>.<figure>`: messages stored since the start, bytes of
/// the log, connections, and turns that took long. The names are RingMQ's own.
fn shards(table: &mut Table, stores: &[StoreInfo]) {
    for store in stores {
        let log = store.max_physical.saturating_sub(store.min_physical).max(0);
        for (figure, value) in [
            ("putMessages", store.put_messages),
            ("logBytes", log as u64),
            ("connections", store.connections),
            ("longTurns", store.long_turns),
        ] {
            let name = format!("shard.{}.{figure}", store.shard);
            table.insert(name.into(), value.to_string());
        }
    }
}

type Table = BTreeMap<Cow<'static, str>, String>;

fn put(table: &mut Table, name: &'static str, value: impl ToString) {
    table.insert(name.into(), value.to_string());
}

/// Figures of what this broker has none of: queues before thread pools, a
/// dispatcher that may be behind, a pool of buffers, page locks. Tools read them.
fn idle(table: &mut Table) {
    const ZERO: [&str; 29] = [
        "sendThreadPoolQueueSize",
        "sendThreadPoolQueueCapacity",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueSize",
        "pullThreadPoolQueueCapacity",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "queryThreadPoolQueueSize",
        "queryThreadPoolQueueCapacity",
        "queryThreadPoolQueueHeadWaitTimeMills",
        "ackThreadPoolQueueSize",
        "ackThreadPoolQueueCapacity",
        "ackThreadPoolQueueHeadWaitTimeMills",
        "litePullThreadPoolQueueSize",
        "litePullThreadPoolQueueCapacity",
        "litePullThreadPoolQueueHeadWaitTimeMills",
        "EndTransactionQueueSize",
        "EndTransactionQueueCapacity",
        "EndTransactionThreadPoolQueueCapacity",
        "pageCacheLockTimeMills",
        "dispatchBehindBytes",
        "dispatchMaxBuffer",
        "remainTransientStoreBufferNumbs",
        "putMessageEntireTimeMax",
        "getMessageEntireTimeMax",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "timerEnqueueTps",
        "timerDequeueTps",
    ];
    for name in ZERO {
        let zero = if name.ends_with("Tps") { "0.0" } else { "0" };
        table.insert(name.into(), zero.to_owned());
    }
    table.insert("putMessageDistributeTime".into(), String::new());
}

/// A number of bytes for people (`MixAll.humanReadableByteCount`).
fn readable(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const NOON: u64 = 20_000 * DAY_MS + DAY_MS / 2;

    fn store(put: u64) -> StoreInfo {
        StoreInfo {
            min_physical: 5 << 48 | 100,
            max_physical: 5 << 48 | 300,
            earliest_timestamp: 77,
            put_messages: put,
            put_bytes: put * 10,
            got_messages: put / 2,
            ..StoreInfo::default()
        }
    }

    fn read(runtime: &Runtime, stores: &[StoreInfo], now_ms: u64) -> Value {
        let settings = ControlSettings {
            boot_ms: NOON - 90_061_000,
            ..ControlSettings::default()
        };
        let body = runtime.body(stores, &settings, now_ms);
        serde_json::from_slice::<Value>(&body).unwrap()["table"].take()
    }

    #[test]
    fn every_figure_that_tools_read_as_a_number_is_one_even_when_empty() {
        let table = read(&Runtime::default(), &[], NOON);
        for name in [
            "earliestMessageTimeStamp",
            "commitLogDiskRatio",
            "timerReadBehind",
            "timerOffsetBehind",
            "timerCongestNum",
            "timerEnqueueTps",
            "timerDequeueTps",
            "msgPutTotalYesterdayMorning",
            "msgPutTotalTodayMorning",
            "msgPutTotalTodayNow",
            "msgGetTotalYesterdayMorning",
            "msgGetTotalTodayMorning",
            "msgGetTotalTodayNow",
            "sendThreadPoolQueueSize",
            "pageCacheLockTimeMills",
            "commitLogMaxOffset",
        ] {
            let text = table[name].as_str().unwrap_or_default();
            assert!(text.parse::<f64>().is_ok(), "{name}: {text:?}");
        }
        for name in [
            "putTps",
            "getTransferredTps",
            "getTotalTps",
            "getFoundTps",
            "getMissTps",
        ] {
            assert_eq!(table[name], "0.000 0.000 0.000");
        }
        assert_eq!(table["earliestMessageTimeStamp"], "-1");
        assert_eq!(
            table["runtime"],
            "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
        );
    }

    #[test]
    fn rates_are_averages_over_their_times() {
        let mut runtime = Runtime::default();
        for step in 0..100 {
            runtime.sample(&[store(step * 1000)], NOON + step * SAMPLE_MS);
        }
        assert_eq!(runtime.samples.len(), SAMPLES_MAX);
        let table = read(&runtime, &[store(99_000 + 5_000)], NOON + 100 * SAMPLE_MS);
        assert_eq!(table["putTps"], "500.000 166.667 106.667");
        assert_eq!(table["putMessageAverageSize"], "10.0");
    }

    #[test]
    fn days_begin_with_what_there_was() {
        let mut runtime = Runtime::default();
        for day in 0..3 {
            runtime.sample(&[store(day * 100 + 50)], NOON + day * DAY_MS);
        }
        let table = read(&runtime, &[store(1000)], NOON + 2 * DAY_MS + 1);
        assert_eq!(table["msgPutTotalYesterdayMorning"], "50");
        assert_eq!(table["msgPutTotalTodayMorning"], "150");
        assert_eq!(table["msgPutTotalTodayNow"], "1000");
        assert_eq!(table["msgGetTotalTodayNow"], "500");
    }

    #[test]
    fn what_groups_lost_is_summed_over_shards() {
        let lost = |group: &str, count| (group.to_owned(), "T".to_owned(), count);
        let shard = |purged: Vec<_>| StoreInfo {
            purged_total: 10,
            purged,
            ..StoreInfo::default()
        };
        let stores = [
            shard(vec![lost("g", 3), lost("h", 1)]),
            shard(vec![lost("g", 4)]),
        ];
        let table = read(&Runtime::default(), &stores, NOON);
        assert_eq!(table["purgedUnreadTotal"], "20");
        assert_eq!(table["purgedUnread@T@g"], "7");
        assert_eq!(table["purgedUnread@T@h"], "1");
    }

    #[test]
    fn every_shard_is_told_of_by_itself() {
        let shard = |shard, connections| StoreInfo {
            shard,
            connections,
            long_turns: 2,
            ..store(7)
        };
        let table = read(&Runtime::default(), &[shard(0, 3), shard(12, 0)], NOON);
        for (name, value) in [
            ("shard.0.putMessages", "7"),
            ("shard.0.logBytes", "200"),
            ("shard.0.connections", "3"),
            ("shard.12.connections", "0"),
            ("shard.12.longTurns", "2"),
        ] {
            assert_eq!(table[name], value, "{name}");
        }
        assert!(table.get("shard.1.connections").is_none());
    }

    #[test]
    fn the_log_is_as_large_as_what_all_shards_hold() {
        let disk = Disk {
            total: 4 << 30,
            free: 1 << 30,
        };
        let runtime = Runtime {
            disk,
            ..Runtime::default()
        };
        let table = read(&runtime, &[store(1), store(1)], NOON);
        assert_eq!(table["commitLogMinOffset"], "200");
        assert_eq!(table["commitLogMaxOffset"], "600");
        assert_eq!(table["earliestMessageTimeStamp"], "77");
        assert_eq!(table["commitLogDiskRatio"], "0.7500");
        assert_eq!(
            table["commitLogDirCapacity"],
            "Total : 4.0 GiB, Free : 1.0 GiB."
        );
    }
}
