//! How long messages are kept, and what happens when the disk fills up
//! (`DefaultMessageStore.CleanCommitLogService`).
//!
//! | setting | above it |
//! | --- | --- |
//! | `fileReservedTime` | segments whose messages are all older are deleted in the hours of `deleteWhen` |
//! | `diskMaxUsedSpaceRatio`, `diskMaxUsedSpaceBytes` | ... at any hour |
//! | `diskSpaceCleanForciblyRatio`, `diskSpaceCleanForciblyBytes`, `fileReservedBytes` | the oldest segments are deleted before their time, until it is below |
//! | `diskSpaceWarningLevelRatio`, `diskSpaceWarningLevelBytes` | sends are refused, with code 14 |
//!
//! What must go is shared among the shards by the size of their logs. The segment
//! that is written to is never deleted.
//!
//! A log holds all topics, so a topic's own time (attribute `reserve.time`, hours) is
//! kept like this: shorter than the log's, its messages become unreadable when it is
//! over, while their bytes stay until their segment goes; after a restart that is so
//! from the first look on. Longer, the oldest segment stays as long as it holds a
//! message of the topic that is within its time, and with it all that comes behind;
//! want of space deletes it all the same.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::runtime_info::Disk;
use super::disk::DiskGauge;
use super::{BrokerShard, now_ms};
use crate::config::Settings;
use crate::shard::sleep;
use crate::store::{Demand, Moved};

/// Time between two looks at what is to be deleted or refused.
const LOOK: Duration = Duration::from_secs(1);

/// Time between two looks at topics with a time of their own.
const TOPICS_LOOK: Duration = Duration::from_secs(60);

/// Least time between two log lines about one group, or about one fault.
const QUIET: Duration = Duration::from_secs(60);

/// Pairs of group and topic whose losses a shard counts one by one. What the others
/// lose is in the total.
const PAIRS_MAX: usize = 4096;

const HOUR_MS: u64 = 3_600_000;

/// What there is of space.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// The file system.
    disk: Disk,
    /// Bytes of the store's files.
    files: u64,
    /// Bytes of all segments.
    logs: u64,
    /// Bytes of this shard's segments.
    own_log: u64,
}

/// What this shard's log is to give up, as the settings say. `hour`: of the day.
fn demand(settings: &Settings, usage: &Usage, now_ms: u64, hour: u8) -> Demand {
    let percent = usage.disk.used_percent();
    let used = usage.disk.total.saturating_sub(usage.disk.free);
    // Where sends are refused, segments go as well: without that they would be for good.
    let force_ratio = settings
        .disk_space_clean_forcibly_ratio
        .min(settings.disk_space_warning_level_ratio);
    let force_bytes = smaller(
        settings.disk_space_clean_forcibly_bytes,
        settings.disk_space_warning_level_bytes,
    );
    let by_ratio = if percent > u64::from(force_ratio) {
        let allowed = u128::from(usage.disk.total) * u128::from(force_ratio) / 100;
        used.saturating_sub(allowed as u64)
    } else {
        0
    };
    let excess = by_ratio
        .max(above(usage.files, force_bytes))
        .max(above(usage.logs, settings.file_reserved_bytes));
    let share = u128::from(excess) * u128::from(usage.own_log);
    let bytes = share.div_ceil(u128::from(usage.logs.max(1))) as u64;
    let any_hour = excess > 0
        || percent > u64::from(settings.disk_max_used_space_ratio)
        || above(usage.files, settings.disk_max_used_space_bytes) > 0;
    let reserved_ms = settings.file_reserved_time_h * HOUR_MS;
    let expired_before = now_ms.saturating_sub(reserved_ms) as i64;
    let now = any_hour || settings.delete_when.0.contains(&hour);
    Demand {
        expired_before: now.then_some(expired_before),
        bytes,
        held: Vec::new(),
    }
}

/// How much `used` is above `limit`; 0 stands for no limit.
fn above(used: u64, limit: u64) -> u64 {
    if limit == 0 {
        0
    } else {
        used.saturating_sub(limit)
    }
}

/// The smaller of two limits; 0 stands for no limit.
fn smaller(a: u64, b: u64) -> u64 {
    if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
}

/// Why sends are refused, if they are: the remark that they are answered with.
fn full(settings: &Settings, usage: &Usage, gauge: &DiskGauge) -> Option<String> {
    let root = gauge.root().display();
    let ratio = settings.disk_space_warning_level_ratio;
    let percent = usage.disk.used_percent();
    if percent > u64::from(ratio) {
        return Some(format!(
            "no space: the file system of {root} is {percent} % full ({} of {} bytes are free), \
             the limit (diskSpaceWarningLevelRatio) is {ratio} %",
            usage.disk.free, usage.disk.total
        ));
    }
    let limit = settings.disk_space_warning_level_bytes;
    (above(usage.files, limit) > 0).then(|| {
        format!(
            "no space: the store in {root} has {} bytes, the limit \
             (diskSpaceWarningLevelBytes) is {limit}",
            usage.files
        )
    })
}

/// The hour of the day here.
fn local_hour(now_ms: u64) -> u8 {
    let seconds = (now_ms / 1000) as libc::time_t;
    // SAFETY: zero is a valid `tm`.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to what they must for the call.
    if unsafe { libc::localtime_r(&seconds, &mut parts) }.is_null() {
        return 0;
    }
    parts.tm_hour.clamp(0, 23) as u8
}

/// Messages that were deleted before a group had read them, on one shard.
#[derive(Default)]
pub(super) struct Purges {
    total: u64,
    /// By group and topic.
    pairs: HashMap<Box<str>, HashMap<Arc<str>, u64>>,
    pairs_count: usize,
    /// By group: what has not been logged yet, and when something was.
    unlogged: HashMap<Box<str>, (u64, Option<Instant>)>,
}

impl Purges {
    /// Of all groups.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// By group and topic.
    pub fn by_group(&self) -> Vec<(String, String, u64)> {
        let groups = self.pairs.iter().flat_map(|(group, topics)| {
            let count = move |(topic, &count): (&Arc<str>, &u64)| {
                (group.to_string(), topic.to_string(), count)
            };
            topics.iter().map(count)
        });
        groups.collect()
    }

    /// A queue's first readable offset moved; a group had committed `committed`.
    fn count(&mut self, moved: &Moved, group: &str, committed: i64) {
        let next = u64::try_from(committed).unwrap_or(0).max(moved.from);
        let lost = moved.to.saturating_sub(next);
        if lost == 0 {
            return;
        }
        self.total += lost;
        if !self.pairs.contains_key(group) && self.pairs_count < PAIRS_MAX {
            self.pairs.insert(group.into(), HashMap::new());
        }
        let Some(topics) = self.pairs.get_mut(group) else {
            return;
        };
        match topics.get_mut(&moved.topic) {
            Some(count) => *count += lost,
            None if self.pairs_count < PAIRS_MAX => {
                self.pairs_count += 1;
                topics.insert(moved.topic.clone(), lost);
            }
            None => {}
        }
        self.unlogged.entry(group.into()).or_default().0 += lost;
    }

    /// Groups that lost messages since they were last logged, and how many, once a
    /// minute each.
    fn take_due(&mut self, now: Instant) -> Vec<(Box<str>, u64)> {
        let mut due = Vec::new();
        for (group, (count, logged)) in &mut self.unlogged {
            let quiet = logged.is_some_and(|at| now.duration_since(at) < QUIET);
            if *count > 0 && !quiet {
                due.push((group.clone(), std::mem::take(count)));
                *logged = Some(now);
            }
        }
        // Who is silent and lost nothing more is forgotten.
        let recent = |at: &Instant| now.duration_since(*at) < QUIET;
        self.unlogged
            .retain(|_, (count, at)| *count > 0 || at.as_ref().is_some_and(recent));
        due
    }
}

/// State of one shard's retention.
#[derive(Default)]
pub(super) struct RetentionState {
    /// Sends are refused.
    full: Cell<bool>,
    /// Why.
    why: RefCell<String>,
    /// What groups lost.
    pub purges: RefCell<Purges>,
}

impl BrokerShard {
    /// Why sends are refused for want of space, if they are.
    pub(super) fn disk_full(&self) -> Option<String> {
        self.retention
            .full
            .get()
            .then(|| self.retention.why.borrow().clone())
    }

    /// The remark of a send that the log has no space for, with what there is of it.
    pub(super) fn no_space(&self, why: &str) -> String {
        let Disk { total, free } = self.disk.disk();
        format!("{why}; {free} of {total} bytes of the file system are free")
    }

    fn usage(&self) -> Usage {
        let (own_log, files) = self
            .store
            .with(|store| (store.log_bytes(), store.file_bytes()));
        self.disk.publish(self.log(), own_log, files);
        Usage {
            disk: self.disk.disk(),
            files: self.disk.file_bytes(),
            logs: self.disk.log_bytes(),
            own_log,
        }
    }

    /// Looks once a second whether sends are to be refused. Waits for nothing else: not
    /// for a deletion that takes long.
    pub(super) async fn watch_disk(self: Rc<Self>) {
        loop {
            let usage = self.usage();
            let why = full(&self.settings.borrow(), &usage, &self.disk);
            let was_full = self.retention.full.replace(why.is_some());
            match (&why, was_full) {
                (Some(why), false) => {
                    tracing::error!(shard = %self.log(), "{why}; sends are refused until there is");
                }
                (None, true) => {
                    tracing::info!(shard = %self.log(), "there is space: sends are taken again");
                }
                _ => {}
            }
            *self.retention.why.borrow_mut() = why.unwrap_or_default();
            sleep(LOOK).await;
        }
    }

    /// Deletes what is too old or too much, as long as the broker runs.
    pub(super) async fn retain_messages(self: Rc<Self>) {
        let mut topics_at: Option<Instant> = None;
        let mut own_times = Vec::new();
        let mut warned_at: Option<Instant> = None;
        while !self.stopping.get() {
            let look_at_topics = topics_at.is_none_or(|at| at.elapsed() >= TOPICS_LOOK);
            if look_at_topics {
                own_times = self.view.borrow().reserve_times();
                topics_at = Some(Instant::now());
            }
            if let Err(error) = self.delete_segments(&own_times).await {
                if warned_at.is_none_or(|at| at.elapsed() >= QUIET) {
                    warned_at = Some(Instant::now());
                    tracing::warn!(shard = %self.log(), %error, "old messages are not deleted; it is tried again");
                }
            }
            if look_at_topics {
                self.expire_topics(&own_times).await;
            }
            let due = self.retention.purges.borrow_mut().take_due(Instant::now());
            for (group, messages) in due {
                tracing::warn!(
                    shard = %self.log(),
                    group = &*group,
                    messages,
                    "messages were deleted before the group had read them"
                );
            }
            sleep(LOOK).await;
        }
    }

    async fn delete_segments(&self, own_times: &[(Arc<str>, u64)]) -> std::io::Result<()> {
        let usage = self.usage();
        let settings = self.settings.borrow().clone();
        let now = now_ms();
        let mut demand = demand(&settings, &usage, now, local_hour(now));
        let longer = own_times
            .iter()
            .filter(|(_, hours)| *hours > settings.file_reserved_time_h);
        demand.held = longer
            .map(|(topic, hours)| (topic.clone(), now.saturating_sub(hours * HOUR_MS) as i64))
            .collect();
        let deleted = self.store.delete_segments(&demand).await;
        let moved = |moved: &[Moved]| self.count_purged(moved);
        self.store.sweep_queues(moved).await?;
        deleted.map(drop)
    }

    /// Ends the time of messages of topics that have one of their own, shorter than the
    /// log's.
    async fn expire_topics(&self, own_times: &[(Arc<str>, u64)]) {
        let log_hours = self.settings.borrow().file_reserved_time_h;
        for (topic, hours) in own_times.iter().filter(|(_, hours)| *hours < log_hours) {
            let before = now_ms().saturating_sub(hours * HOUR_MS) as i64;
            let queues: Vec<i32> = self
                .store
                .with(|store| store.queues_of(topic).map(|queue| queue.queue_id).collect());
            for queue_id in queues {
                let min = self.bounds(topic, queue_id).0;
                let oldest = self.store_time(topic, queue_id, min).await;
                if !(0..before).contains(&oldest) {
                    continue;
                }
                let to = self.offset_by_time(topic, queue_id, before, false).await;
                let moved = self.store.with(|store| {
                    let index = store.find_queue(topic, queue_id)?;
                    store.move_first_to(index, u64::try_from(to).ok()?)
                });
                if let Some(moved) = moved {
                    self.count_purged(&[moved]);
                }
            }
        }
    }

    fn count_purged(&self, moved: &[Moved]) {
        let offsets = self.offsets.borrow();
        let mut purges = self.retention.purges.borrow_mut();
        for queue in moved {
            for (group, committed) in offsets.committed(&queue.topic, queue.queue_id) {
                purges.count(queue, group, committed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_000 * HOUR_MS;

    fn usage(percent: u64, files: u64, logs: u64) -> Usage {
        Usage {
            disk: Disk {
                total: 100_000,
                free: 100_000 - percent * 1000,
            },
            files,
            logs,
            own_log: logs / 2,
        }
    }

    #[test]
    fn each_level_asks_for_more_than_the_one_below() {
        let mut settings = Settings::default();
        let expired = Some((NOW - 72 * HOUR_MS) as i64);
        let asked = |settings: &Settings, usage: Usage, hour| {
            let demand = demand(settings, &usage, NOW, hour);
            (demand.expired_before, demand.bytes)
        };
        assert_eq!(asked(&settings, usage(75, 0, 1000), 3), (None, 0));
        assert_eq!(asked(&settings, usage(75, 0, 1000), 4), (expired, 0));
        assert_eq!(asked(&settings, usage(76, 0, 1000), 3), (expired, 0));
        assert_eq!(asked(&settings, usage(85, 0, 1000), 3), (expired, 0));
        // Half of what is above 85 % is this shard's.
        assert_eq!(asked(&settings, usage(86, 0, 1000), 3), (expired, 500));
        assert_eq!(asked(&settings, usage(99, 0, 1000), 3), (expired, 7000));
        settings.disk_max_used_space_bytes = 100;
        assert_eq!(asked(&settings, usage(1, 100, 1000), 3), (None, 0));
        assert_eq!(asked(&settings, usage(1, 101, 1000), 3), (expired, 0));
        settings.disk_space_warning_level_bytes = 300;
        assert_eq!(asked(&settings, usage(1, 301, 1000), 3), (expired, 1));
        settings.disk_space_clean_forcibly_bytes = 200;
        assert_eq!(asked(&settings, usage(1, 301, 1000), 3), (expired, 51));
        settings.file_reserved_bytes = 600;
        assert_eq!(asked(&settings, usage(1, 150, 1000), 3), (expired, 200));
    }

    proptest! {
        #[test]
        fn what_all_shards_give_up_is_enough_and_little_more(
            logs in prop::collection::vec(0u64..1 << 40, 1..8), limit in 1u64..1 << 41,
        ) {
            let settings = Settings { file_reserved_bytes: limit, ..Settings::default() };
            let sum: u64 = logs.iter().sum();
            let asked: u64 = logs
                .iter()
                .map(|&own_log| {
                    let usage = Usage { own_log, logs: sum, ..Usage::default() };
                    demand(&settings, &usage, NOW, 0).bytes
                })
                .sum();
            let excess = sum.saturating_sub(limit);
            prop_assert!((excess..=excess + logs.len() as u64).contains(&asked));
        }
    }

    #[test]
    fn refusals_say_where_how_much_and_what_the_limit_is() {
        let gauge = DiskGauge::watch(std::path::Path::new("/"), 1).unwrap();
        let mut settings = Settings::default();
        assert_eq!(full(&settings, &usage(90, 0, 0), &gauge), None);
        let why = full(&settings, &usage(91, 0, 0), &gauge).unwrap();
        assert!(
            why.contains("of / is 91 %") && why.contains("is 90 %"),
            "{why}"
        );
        settings.disk_space_warning_level_bytes = 10;
        assert_eq!(full(&settings, &usage(1, 10, 0), &gauge), None);
        let why = full(&settings, &usage(1, 11, 0), &gauge).unwrap();
        assert!(why.contains("11 bytes") && why.contains("is 10"), "{why}");
    }

    #[test]
    fn what_a_group_lost_is_what_it_had_not_read() {
        let mut purges = Purges::default();
        let moved = Moved {
            topic: Arc::from("T"),
            queue_id: 0,
            from: 10,
            to: 30,
        };
        for (group, committed) in [("a", 0), ("b", 25), ("c", 30), ("d", 99), ("e", -1)] {
            purges.count(&moved, group, committed);
        }
        assert_eq!(purges.total(), 20 + 5 + 20);
        let mut counts = purges.by_group();
        counts.sort();
        let named = |group: &str, count| (group.to_owned(), "T".to_owned(), count);
        assert_eq!(counts, [named("a", 20), named("b", 5), named("e", 20)]);
        let now = Instant::now();
        assert_eq!(purges.take_due(now).len(), 3);
        purges.count(&moved, "a", 0);
        assert_eq!(purges.take_due(now), []);
        assert_eq!(purges.take_due(now + QUIET), [("a".into(), 20)]);
        assert_eq!(purges.total(), 65);
    }

    #[test]
    fn hours_are_those_of_this_place() {
        assert!(local_hour(NOW) < 24);
        assert_eq!((local_hour(NOW) + 1) % 24, local_hour(NOW + HOUR_MS));
    }
}
