//! Where groups go on.

use super::context::brokers_text;
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table, local_time, parse_time};
use clap::Args;
use ringmq::client::admin::{Admin, AdminError, Broker, QueueReset};
use ringmq::wire::body::json::MessageQueue;
use ringmq::wire::codes::response;
use std::collections::BTreeMap;

/// `resetOffsetByTime`.
#[derive(Debug, Args)]
pub struct ResetOffsetByTime {
    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// To what was stored when: now, milliseconds, -2h (so long ago), 2026-11-30#06:10:11:123; -1 is
    /// the end.
    #[arg(short = 's', long, value_parser = parse_time, allow_hyphen_values = true, value_name = "TIME")]
    timestamp: i64,

    /// Also forward; `false` only goes back.
    #[arg(short = 'f', long, default_value_t = true, action = clap::ArgAction::Set,
          value_name = "true|false")]
    force: bool,

    /// Only this broker, by name or HOST:PORT.
    #[arg(short = 'b', long = "broker", aliases = ["brokerAddr", "broker-addr"])]
    broker: Option<String>,

    /// Only this queue of the broker.
    #[arg(short = 'q', long, requires = "broker", value_parser = clap::value_parser!(i32).range(0..))]
    queue: Option<i32>,

    /// To this offset of the queue, whatever the time.
    #[arg(short = 'o', long, requires = "queue", value_parser = clap::value_parser!(i64).range(0..))]
    offset: Option<i64>,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long, conflicts_with = "broker")]
    cluster: Option<String>,
}

impl ResetOffsetByTime {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: self.broker.clone(),
            cluster: self.cluster.clone(),
        };
        let brokers = context.brokers_of_topic(&self.topic, &target)?;
        let Some(queue) = self.queue else {
            return reset_all(
                context,
                (&self.group, &self.topic),
                &brokers,
                self.timestamp,
                self.force,
                false,
            );
        };
        let broker = &brokers[0];
        let to = match (self.offset, self.timestamp) {
            (Some(offset), _) => offset,
            (None, -1) => context
                .admin
                .max_offset(&broker.address, &self.topic, queue)?,
            (None, time) => {
                context
                    .admin
                    .search_offset(&broker.address, &self.topic, queue, time)?
            }
        };
        context.confirm(&format!(
            "Group {:?} will go on at offset {to} of queue {queue} of {:?} on {}.",
            self.group, self.topic, broker.name
        ))?;
        let done = context.admin.reset_offset_of_queue(
            (&broker.name, &broker.address),
            &self.group,
            &self.topic,
            queue,
            to,
        )?;
        Ok(reset_document(&self.group, &self.topic, vec![done]))
    }
}

/// Sets the offsets of all queues that brokers have of a topic.
fn reset_all(
    context: &mut Context,
    (group, topic): (&str, &str),
    brokers: &[Broker],
    time: i64,
    force: bool,
    offline: bool,
) -> Outcome {
    let place = match time {
        -1 => "at the end".to_owned(),
        time => format!("at what was stored {} and later", local_time(time)),
    };
    context.confirm(&format!(
        "Group {group:?} will go on {place} of topic {topic:?} on {}.",
        brokers_text(brokers)
    ))?;
    let (done, faults) = context.each(brokers, |admin, broker| {
        let broker = (broker.name.as_str(), broker.address.as_str());
        match offline {
            true => admin.reset_offset_offline(broker, group, topic, time, force),
            false => admin.reset_offset_by_time(broker, group, topic, time, force),
        }
    })?;
    let queues = done.into_iter().flat_map(|(_, queues)| queues).collect();
    Ok(reset_document(group, topic, queues).faults(faults))
}

fn reset_document(group: &str, topic: &str, mut queues: Vec<QueueReset>) -> Document {
    queues.sort_by(|a, b| a.queue.cmp(&b.queue));
    let columns = [
        ("brokerName", "BROKER"),
        ("queueId", "QUEUE"),
        ("offsetBefore", "BEFORE"),
        ("offset", "NOW"),
    ];
    let mut table = Table::new("queues", &columns, "no queue was changed");
    for reset in queues {
        table.row([
            Cell::Text(reset.queue.broker_name),
            Cell::Plain(reset.queue.queue_id.into()),
            Cell::of(reset.from, Cell::Plain),
            Cell::Plain(reset.to),
        ]);
    }
    Document::new()
        .field("group", "Group", Cell::text(group))
        .field("topic", "Topic", Cell::text(topic))
        .table(table)
}

/// `resetOffsetByTimeOld`.
#[derive(Debug, Args)]
pub struct ResetOffsetByTimeOld {
    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// To what was stored when; as with resetOffsetByTime.
    #[arg(short = 's', long, value_parser = parse_time, allow_hyphen_values = true, value_name = "TIME")]
    timestamp: i64,

    /// Also forward; `false` only goes back.
    #[arg(short = 'f', long, default_value_t = true, action = clap::ArgAction::Set,
          value_name = "true|false")]
    force: bool,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,
}

impl ResetOffsetByTimeOld {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: None,
            cluster: self.cluster.clone(),
        };
        let brokers = context.brokers_of_topic(&self.topic, &target)?;
        let names = (self.group.as_str(), self.topic.as_str());
        reset_all(context, names, &brokers, self.timestamp, self.force, true)
    }
}

/// `skipAccumulatedMessage`.
#[derive(Debug, Args)]
pub struct SkipAccumulatedMessage {
    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// Always forward; only kept for scripts.
    #[arg(short = 'f', long, default_value_t = true, action = clap::ArgAction::Set, hide = true)]
    force: bool,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,
}

impl SkipAccumulatedMessage {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: None,
            cluster: self.cluster.clone(),
        };
        let brokers = context.brokers_of_topic(&self.topic, &target)?;
        let names = (self.group.as_str(), self.topic.as_str());
        reset_all(context, names, &brokers, -1, self.force, false)
    }
}

/// `cloneGroupOffset`.
#[derive(Debug, Args)]
pub struct CloneGroupOffset {
    /// The group whose offsets are taken.
    #[arg(short = 's', long)]
    src_group: String,

    /// The group that gets them.
    #[arg(short = 'd', long)]
    dest_group: String,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// The groups have no members now.
    #[arg(short = 'o', long, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, value_name = "true|false")]
    offline: bool,
}

impl CloneGroupOffset {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        if self.src_group == self.dest_group {
            return Err(Failure::usage("-s and -d are the same group"));
        }
        let brokers = context.brokers_of_topic(&self.topic, &Target::default())?;
        context.confirm(&format!(
            "Group {:?} will go on in topic {:?} where group {:?} is.",
            self.dest_group, self.topic, self.src_group
        ))?;
        let (done, faults) = context.each(&brokers, |admin, broker| {
            admin.clone_group_offset(
                &broker.address,
                &self.src_group,
                &self.dest_group,
                &self.topic,
                self.offline,
            )?;
            let stats =
                admin.consume_stats(&broker.address, &self.dest_group, Some(&self.topic))?;
            Ok(stats.offset_table)
        })?;
        let columns = [
            ("brokerName", "BROKER"),
            ("queueId", "QUEUE"),
            ("offset", "NOW"),
        ];
        let mut table = Table::new("queues", &columns, "the group had no offsets");
        for (queue, at) in done.into_iter().flat_map(|(_, queues)| queues) {
            table.row([
                Cell::Text(queue.broker_name),
                Cell::Plain(queue.queue_id.into()),
                Cell::Plain(at.consumer_offset),
            ]);
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(&self.dest_group))
            .field("topic", "Topic", Cell::text(&self.topic))
            .table(table)
            .faults(faults))
    }
}

/// `getConsumerStatus`.
#[derive(Debug, Args)]
pub struct GetConsumerStatus {
    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// Only this member.
    #[arg(short = 'i', long = "origin-client-id")]
    client: Option<String>,
}

impl GetConsumerStatus {
    /// Asks the members themselves, where a broker does not do it.
    fn ask_members(
        &self,
        admin: &mut Admin,
        address: &str,
    ) -> Result<BTreeMap<String, BTreeMap<MessageQueue, i64>>, AdminError> {
        let members = admin.consumer_connection(address, &self.group)?;
        let mut found = BTreeMap::new();
        for member in members.connection_set {
            let id = member.client_id;
            if self.client.as_ref().is_some_and(|wanted| *wanted != id) {
                continue;
            }
            let status = admin.consumer_status(address, &self.group, &id, false)?;
            let queues = status.mq_table.into_iter();
            let offsets = queues
                .filter(|(queue, _)| queue.topic == self.topic)
                .filter_map(|(queue, at)| Some((queue, at["commitOffset"].as_i64()?)));
            found.insert(id, offsets.collect());
        }
        Ok(found)
    }

    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers_of_topic(&self.topic, &Target::default())?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            let client = self.client.as_deref();
            match admin.member_offsets(&broker.address, &self.group, &self.topic, client) {
                Err(error) if error.code() == Some(response::REQUEST_CODE_NOT_SUPPORTED) => {
                    self.ask_members(admin, &broker.address)
                }
                other => other,
            }
        })?;
        let columns = [
            ("clientId", "CLIENT"),
            ("brokerName", "BROKER"),
            ("queueId", "QUEUE"),
            ("offset", "OFFSET"),
        ];
        let mut rows = BTreeMap::new();
        for (_, members) in found {
            for (client, queues) in members {
                for (queue, offset) in queues {
                    rows.insert((client.clone(), queue), offset);
                }
            }
        }
        let mut table = Table::new("queues", &columns, "no member has a queue");
        for ((client, queue), offset) in rows {
            table.row([
                Cell::Text(client),
                Cell::Text(queue.broker_name),
                Cell::Plain(queue.queue_id.into()),
                Cell::Plain(offset),
            ]);
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(&self.group))
            .field("topic", "Topic", Cell::text(&self.topic))
            .table(table)
            .faults(faults))
    }
}
