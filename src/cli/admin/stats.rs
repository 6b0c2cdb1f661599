//! Rates and accumulation over all topics and groups.

use super::group_progress::total_diff;
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Outcome, Table};
use clap::Args;
use ringmq::client::admin::{Admin, AdminError, StatsSpan};
use ringmq::wire::body::stats::ConsumeStats;
use ringmq::wire::codes::response;
use ringmq::wire::names;
use std::collections::BTreeMap;
use std::time::Duration;

/// `statsAll`.
#[derive(Debug, Args)]
pub struct StatsAll {
    /// Only topics that something came into or went out of in the last minute.
    #[arg(short = 'a', long)]
    active_topic: bool,

    /// Only this topic.
    #[arg(short = 't', long)]
    topic: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    diff: i64,
    in_tps: f64,
    out_tps: f64,
    in_day: Option<i64>,
    out_day: Option<i64>,
}

impl StatsAll {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let mut topics = context.admin.topic_list()?;
        topics.retain(|topic| match &self.topic {
            Some(wanted) => topic == wanted,
            None => {
                !topic.starts_with(names::RETRY_PREFIX) && !topic.starts_with(names::DLQ_PREFIX)
            }
        });
        if let (true, Some(topic)) = (topics.is_empty(), &self.topic) {
            return Err(AdminError::not_found("topic", topic).into());
        }
        let columns = [
            ("topic", "TOPIC"),
            ("group", "GROUP"),
            ("accumulation", "BEHIND"),
            ("inTps", "IN"),
            ("outTps", "OUT"),
            ("inDay", "IN A DAY"),
            ("outDay", "OUT A DAY"),
        ];
        let mut table = Table::new("rates", &columns, "no topics");
        let mut faults = Vec::new();
        for topic in &topics {
            let rows = match of_topic(&mut context.admin, topic) {
                Ok(rows) => rows,
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            let is_active = |sums: &Sums| sums.in_tps > 0.0 || sums.out_tps > 0.0;
            if self.active_topic && !rows.values().any(is_active) {
                continue;
            }
            for (group, sums) in rows {
                table.row([
                    Cell::text(topic),
                    Cell::of(group, Cell::Text),
                    Cell::Count(sums.diff),
                    Cell::Rate(sums.in_tps),
                    Cell::Rate(sums.out_tps),
                    Cell::of(sums.in_day, Cell::Count),
                    Cell::of(sums.out_day, Cell::Count),
                ]);
            }
        }
        Ok(Document::new().table(table).faults(faults))
    }
}

/// Figures of a topic by group; without a group where nobody reads it.
fn of_topic(admin: &mut Admin, topic: &str) -> Result<BTreeMap<Option<String>, Sums>, AdminError> {
    let mut incoming = Sums::default();
    let mut groups: BTreeMap<Option<String>, Sums> = BTreeMap::new();
    for (_, address) in admin.brokers_of_topic(topic)? {
        let counted = counter(admin, &address, "TOPIC_PUT_NUMS", topic)?;
        match counted {
            Some(span) => {
                incoming.in_tps += span.stats_minute.tps;
                let day = span.stats_day.sum.max(span.stats_minute.sum);
                incoming.in_day = Some(incoming.in_day.unwrap_or(0).saturating_add(day));
            }
            None => incoming.in_tps += admin.topic_stats(&address, topic)?.topic_put_tps,
        }
        for group in admin.groups_of_topic(&address, topic)? {
            let stats = admin.consume_stats(&address, &group, Some(topic))?;
            let key = format!("{topic}@{group}");
            let counted = counter(admin, &address, "GROUP_GET_NUMS", &key)?;
            let sums = groups.entry(Some(group)).or_default();
            sums.diff = sums.diff.saturating_add(total_diff(&stats));
            match counted {
                Some(span) => {
                    sums.out_tps += span.stats_minute.tps;
                    let day = span.stats_day.sum.max(span.stats_minute.sum);
                    sums.out_day = Some(sums.out_day.unwrap_or(0).saturating_add(day));
                }
                None => sums.out_tps += stats.consume_tps,
            }
        }
    }
    if groups.is_empty() {
        groups.insert(None, Sums::default());
    }
    for sums in groups.values_mut() {
        sums.in_tps = incoming.in_tps;
        sums.in_day = incoming.in_day;
    }
    Ok(groups)
}

/// A counter of a broker that counts; `None` of one that does not, or has not yet.
fn counter(
    admin: &mut Admin,
    address: &str,
    name: &str,
    key: &str,
) -> Result<Option<StatsSpan>, AdminError> {
    match admin.broker_stats(address, name, key) {
        Ok(span) => Ok(Some(span)),
        Err(error)
            if matches!(
                error.code(),
                Some(response::SYSTEM_ERROR | response::REQUEST_CODE_NOT_SUPPORTED)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// `brokerConsumeStats`.
#[derive(Debug, Args)]
pub struct BrokerConsumeStats {
    #[command(flatten)]
    target: Target,

    /// Only queues that are so many messages behind, or more.
    #[arg(short = 'l', long, default_value_t = 0)]
    level: i64,

    /// Of ordered topics.
    #[arg(short = 'o', long, default_value_t = false, action = clap::ArgAction::Set,
          value_name = "true|false")]
    order: bool,

    /// How long each request may take, in milliseconds, in place of --timeout.
    #[arg(short = 't', long, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout_millis: Option<u64>,
}

impl BrokerConsumeStats {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        if let Some(ms) = self.timeout_millis {
            context.admin.set_timeout(Duration::from_millis(ms));
        }
        let brokers = context.masters(&self.target)?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            self.groups(admin, &broker.address)
        })?;
        let columns = [
            ("topic", "TOPIC"),
            ("group", "GROUP"),
            ("brokerName", "BROKER"),
            ("queueId", "QUEUE"),
            ("brokerOffset", "BROKER OFFSET"),
            ("consumerOffset", "CONSUMER OFFSET"),
            ("diff", "BEHIND"),
            ("lastTimestamp", "LAST CONSUMED WAS STORED"),
        ];
        let mut table = Table::new("queues", &columns, "no group is that far behind");
        let mut total = 0i64;
        for (_, groups) in found {
            for (group, stats) in groups {
                total = total.saturating_add(total_diff(&stats));
                for (queue, at) in stats.offset_table {
                    let diff = at.broker_offset.saturating_sub(at.consumer_offset);
                    if diff < self.level {
                        continue;
                    }
                    table.row([
                        Cell::Text(queue.topic),
                        Cell::text(&group),
                        Cell::Text(queue.broker_name),
                        Cell::Plain(queue.queue_id.into()),
                        Cell::Plain(at.broker_offset),
                        Cell::Plain(at.consumer_offset),
                        Cell::Count(diff),
                        Cell::Time(at.last_timestamp),
                    ]);
                }
            }
        }
        Ok(Document::new()
            .field("totalDiff", "Behind", Cell::Count(total))
            .table(table)
            .faults(faults))
    }

    /// How far all groups of a broker are: in one answer, or group by group where it has none such.
    fn groups(
        &self,
        admin: &mut Admin,
        address: &str,
    ) -> Result<Vec<(String, ConsumeStats)>, AdminError> {
        match admin.broker_consume_stats(address, self.order) {
            Ok(list) => {
                let by_group = list.consume_stats_list.into_iter().flatten();
                Ok(by_group
                    .flat_map(|(group, stats)| {
                        stats.into_iter().map(move |stats| (group.clone(), stats))
                    })
                    .collect())
            }
            Err(error) if error.code() == Some(response::REQUEST_CODE_NOT_SUPPORTED) => {
                let groups: Vec<String> = admin.group_configs(address)?.into_keys().collect();
                admin.consume_stats_of(address, &groups)
            }
            Err(error) => Err(error),
        }
    }
}
