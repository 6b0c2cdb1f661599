//! `consumerProgress`: how far groups are behind.

use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table};
use clap::Args;
use ringmq::client::admin::{Admin, AdminError, Broker, Select, version_name};
use ringmq::wire::body::stats::ConsumeStats;
use ringmq::wire::names;
use std::collections::{BTreeMap, BTreeSet};

/// `consumerProgress`.
#[derive(Debug, Args)]
pub struct ConsumerProgress {
    /// One group, queue by queue.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: Option<String>,

    /// Only this topic.
    #[arg(short = 't', long = "topic", alias = "topicName", requires = "group")]
    topic: Option<String>,

    /// Also which member has each queue.
    #[arg(short = 's', long = "show-client-ip", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, value_name = "true|false")]
    show_clients: bool,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,
}

/// Messages that a group has not consumed. A queue in which it is beyond the end, as after a broker
/// lost messages, takes nothing away from what it is behind in others.
pub fn total_diff(stats: &ConsumeStats) -> i64 {
    let queues = stats.offset_table.values();
    queues.fold(0, |sum: i64, at| {
        let behind = at.broker_offset.saturating_sub(at.consumer_offset);
        sum.saturating_add(behind.max(0))
    })
}

impl ConsumerProgress {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        match &self.group {
            Some(group) => self.one(context, group),
            None => self.all(context),
        }
    }

    fn one(&self, context: &mut Context, group: &str) -> Outcome {
        let target = Target {
            broker: None,
            cluster: self.cluster.clone(),
        };
        let brokers = match (&self.topic, &self.cluster) {
            (Some(topic), _) => context.brokers_of_topic(topic, &target)?,
            (None, Some(_)) => context.brokers(&target)?,
            (None, None) => context.brokers_of_group(group)?,
        };
        let (found, mut faults) = context.each(&brokers, |admin, broker| {
            admin.consume_stats(&broker.address, group, self.topic.as_deref())
        })?;
        let mut owners = BTreeMap::new();
        if self.show_clients {
            match owners_of(context, group) {
                Ok((found, failed)) => (owners, faults) = (found, [faults, failed].concat()),
                Err(failure) => faults.push(failure.message),
            }
        }
        let mut columns = vec![
            ("topic", "TOPIC"),
            ("brokerName", "BROKER"),
            ("queueId", "QUEUE"),
            ("brokerOffset", "BROKER OFFSET"),
            ("consumerOffset", "CONSUMER OFFSET"),
            ("diff", "BEHIND"),
            ("inflight", "IN FLIGHT"),
            ("lastTimestamp", "LAST CONSUMED WAS STORED"),
        ];
        if self.show_clients {
            columns.push(("clientId", "CLIENT"));
        }
        let mut table = Table::new("queues", &columns, "it has not consumed anything");
        let (mut diff_total, mut inflight_total, mut tps) = (0i64, 0i64, 0.0);
        for (_, stats) in found {
            tps += stats.consume_tps;
            diff_total = diff_total.saturating_add(total_diff(&stats));
            for (queue, at) in stats.offset_table {
                let diff = at.broker_offset.saturating_sub(at.consumer_offset);
                // Where nothing was handed out since the broker's start, it says 0.
                let inflight = at.pull_offset.saturating_sub(at.consumer_offset).max(0);
                inflight_total = inflight_total.saturating_add(inflight);
                let owner = owners.get(&queue).cloned();
                let mut row = vec![
                    Cell::Text(queue.topic),
                    Cell::Text(queue.broker_name),
                    Cell::Plain(queue.queue_id.into()),
                    Cell::Plain(at.broker_offset),
                    Cell::Plain(at.consumer_offset),
                    Cell::Count(diff),
                    Cell::Count(inflight),
                    Cell::Time(at.last_timestamp),
                ];
                if self.show_clients {
                    row.push(Cell::of(owner, Cell::Text));
                }
                table.row(row);
            }
        }
        if table.is_empty() && !self.is_known(context, group)? {
            return Err(Failure::not_found(format!("there is no group {group:?}"))
                .hint("`ringmq admin consumerProgress` shows the groups"));
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(group))
            .field("totalDiff", "Behind", Cell::Count(diff_total))
            .field("totalInflight", "In flight", Cell::Count(inflight_total))
            .field("consumeTps", "Consumed", Cell::Rate(tps))
            .table(table)
            .faults(faults))
    }

    /// Whether some broker has settings for the group, which it has from the first member on.
    fn is_known(&self, context: &mut Context, group: &str) -> Result<bool, Failure> {
        for broker in context.admin.brokers(Select::All, true)? {
            let groups = context.admin.group_configs(&broker.address)?;
            if groups.contains_key(group) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn all(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers(&Target {
            broker: None,
            cluster: self.cluster.clone(),
        })?;
        let masters: Vec<_> = brokers
            .into_iter()
            .filter(|broker| broker.id == 0)
            .collect();
        let groups = all_groups(&mut context.admin, &masters)?;
        let (found, faults) = context.each(&masters, |admin, broker| {
            let stats = admin.consume_stats_of(&broker.address, &groups)?;
            let members = admin.consumer_connections_of(&broker.address, &groups)?;
            Ok((stats, members))
        })?;
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        for group in &groups {
            rows.insert(group, Row::default());
        }
        for (_, (stats, members)) in &found {
            for (group, stats) in stats {
                let row = rows.entry(group).or_default();
                row.diff = row.diff.saturating_add(total_diff(stats));
                row.tps += stats.consume_tps;
            }
            for (group, members) in members {
                let row = rows.entry(group).or_default();
                for member in &members.connection_set {
                    row.clients.insert(&member.client_id, member.version);
                }
                if !members.connection_set.is_empty() {
                    row.kind = &members.consume_type;
                    row.model = &members.message_model;
                }
            }
        }
        let columns = [
            ("group", "GROUP"),
            ("members", "MEMBERS"),
            ("version", "VERSION"),
            ("consumeType", "TYPE"),
            ("messageModel", "MODEL"),
            ("consumeTps", "CONSUMED"),
            ("totalDiff", "BEHIND"),
        ];
        let mut table = Table::new("groups", &columns, "no groups");
        for (group, row) in rows {
            let oldest = row.clients.values().min();
            table.row([
                Cell::text(group),
                Cell::Count(row.clients.len() as i64),
                match oldest {
                    Some(version) => Cell::Text(version_name(*version)),
                    None => Cell::Bad("offline".to_owned()),
                },
                Cell::text(kind_name(row.kind)),
                Cell::text(row.model),
                Cell::Rate(row.tps),
                Cell::Count(row.diff),
            ]);
        }
        Ok(Document::new().table(table).faults(faults))
    }
}

/// All groups: those that brokers have settings of, or a retry topic, which a group has from its
/// first member on. Those that every broker makes for itself are left out.
///
/// # Errors
/// No nameserver answers.
pub fn all_groups(admin: &mut Admin, masters: &[Broker]) -> Result<Vec<String>, AdminError> {
    let mut groups = BTreeSet::new();
    for topic in admin.topic_list()? {
        if let Some(group) = topic.strip_prefix(names::RETRY_PREFIX) {
            groups.insert(group.to_owned());
        }
    }
    for broker in masters {
        // One that cannot be asked is told of later.
        let known = admin.group_configs(&broker.address).unwrap_or_default();
        groups.extend(known.into_keys());
    }
    groups.retain(|group| !names::SYSTEM_GROUPS.contains(&group.as_str()));
    Ok(groups.into_iter().collect())
}

#[derive(Default)]
struct Row<'a> {
    diff: i64,
    tps: f64,
    clients: BTreeMap<&'a str, i32>,
    kind: &'a str,
    model: &'a str,
}

fn kind_name(kind: &str) -> &str {
    match kind {
        "CONSUME_ACTIVELY" => "PULL",
        "CONSUME_PASSIVELY" => "PUSH",
        "CONSUME_POP" => "POP",
        other => other,
    }
}

type Owners = BTreeMap<ringmq::wire::body::json::MessageQueue, String>;

/// Which member has each queue, as the members say.
fn owners_of(context: &mut Context, group: &str) -> Result<(Owners, Vec<String>), Failure> {
    let (members, places, mut faults) =
        super::group_members::members(context, group, &Target::default())?;
    let mut owners = Owners::new();
    for member in members.connection_set {
        let address = places.get(&member.client_id).map_or("", String::as_str);
        let status = context
            .admin
            .consumer_status(address, group, &member.client_id, false);
        match status {
            Ok(status) => {
                for queue in status.mq_table.into_keys() {
                    owners.insert(queue, member.client_id.clone());
                }
            }
            Err(error) => faults.push(format!("client {:?}: {error}", member.client_id)),
        }
    }
    Ok((owners, faults))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmq::wire::body::json;

    #[test]
    fn queues_beyond_their_end_hide_no_lag() {
        let queue = |id: i32, broker: i64, consumer: i64| {
            format!(
                r#"{{"topic":"T","brokerName":"b","queueId":{id}}}:{{"brokerOffset":{broker},"consumerOffset":{consumer}}}"#
            )
        };
        let queues = [queue(0, 10, 4), queue(1, 10, 100), queue(2, 3, 3)].join(",");
        let stats = format!(r#"{{"offsetTable":{{{queues}}}}}"#);
        let stats: ConsumeStats = json::parse(stats.as_bytes()).expect("figures");
        assert_eq!(stats.offset_table.len(), 3);
        assert_eq!(total_diff(&stats), 6);
    }
}
