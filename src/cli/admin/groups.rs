//! Consumer groups: settings.

use super::context::{brokers_text, known, set};
use super::topic_changes::forget;
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table};
use clap::{Args, ValueEnum};
use ringmq::client::admin::{Admin, AdminError, Broker, Select};
use ringmq::wire::body::subscription_group::SubscriptionGroupConfig;
use ringmq::wire::codes::response;
use ringmq::wire::names;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `updateSubGroup`. What is not given stays as it is, or has RocketMQ's default in a new group.
#[derive(Debug, Args)]
pub struct UpdateSubGroup {
    #[command(flatten)]
    target: Target,

    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// Whether members may read at all.
    #[arg(short = 's', long, value_name = "true|false")]
    consume_enable: Option<bool>,

    /// Without effect since RocketMQ 4.
    #[arg(short = 'm', long, value_name = "true|false")]
    consume_from_min_enable: Option<bool>,

    /// Whether members may read in broadcast mode.
    #[arg(short = 'd', long, value_name = "true|false")]
    consume_broadcast_enable: Option<bool>,

    /// Whether members read in order.
    #[arg(short = 'o', long, value_name = "true|false")]
    consume_message_orderly: Option<bool>,

    /// Queues of the retry topic; 0 drops what members fail to consume.
    #[arg(short = 'q', long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=65_536))]
    retry_queue_nums: Option<i32>,

    /// How often a message is delivered again before it becomes a dead letter.
    #[arg(short = 'r', long, value_name = "N", value_parser = clap::value_parser!(i32).range(-1..))]
    retry_max_times: Option<i32>,

    /// When a message is delivered again, as JSON.
    #[arg(short = 'p', long, value_name = "JSON")]
    group_retry_policy: Option<String>,

    /// Number of the broker to read from.
    #[arg(short = 'i', long, value_name = "ID")]
    broker_id: Option<i64>,

    /// Number of the broker to read from for members that are far behind.
    #[arg(short = 'w', long, value_name = "ID")]
    which_broker_when_consume_slowly: Option<i64>,

    /// Whether members are told of each other at once.
    #[arg(
        short = 'a',
        long = "notify-consumer-ids-changed",
        value_name = "true|false"
    )]
    notify: Option<bool>,

    /// Attributes: +name=value sets one, -name takes one away; commas between.
    #[arg(long, allow_hyphen_values = true, value_name = "CHANGES")]
    attributes: Option<String>,
}

impl UpdateSubGroup {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        check_group(&self.group)?;
        let policy: Option<Value> = match &self.group_retry_policy {
            Some(text) => Some(
                serde_json::from_str(text)
                    .map_err(|error| Failure::usage(format!("-p {text:?}: {error}")))?,
            ),
            None => None,
        };
        let attributes = match &self.attributes {
            Some(text) => super::topic_changes::attribute_changes(text)?,
            None => BTreeMap::new(),
        };
        let brokers = context.masters(&self.target)?;
        let (done, faults) = context.each(&brokers, |admin, broker| {
            let known = known_config(admin, &broker.address, &self.group)?;
            let mut config = known.unwrap_or_else(|| SubscriptionGroupConfig::new(&self.group));
            self.change(&mut config, policy.as_ref(), &attributes);
            admin.update_group(&broker.address, &config)?;
            Ok(config)
        })?;
        let mut table = Table::new("groups", &GROUP_COLUMNS, "no broker");
        for (broker, config) in done {
            table.row(group_row(&broker.name, &config));
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(&self.group))
            .table(table)
            .faults(faults))
    }

    fn change(
        &self,
        config: &mut SubscriptionGroupConfig,
        policy: Option<&Value>,
        attributes: &BTreeMap<String, String>,
    ) {
        config.group_name.clone_from(&self.group);
        set(&mut config.consume_enable, self.consume_enable);
        set(
            &mut config.consume_from_min_enable,
            self.consume_from_min_enable,
        );
        set(
            &mut config.consume_broadcast_enable,
            self.consume_broadcast_enable,
        );
        set(
            &mut config.consume_message_orderly,
            self.consume_message_orderly,
        );
        set(&mut config.retry_queue_nums, self.retry_queue_nums);
        set(&mut config.retry_max_times, self.retry_max_times);
        set(&mut config.broker_id, self.broker_id);
        set(
            &mut config.which_broker_when_consume_slowly,
            self.which_broker_when_consume_slowly,
        );
        set(&mut config.notify_consumer_ids_changed_enable, self.notify);
        if let Some(policy) = policy {
            config.group_retry_policy = policy.clone();
        }
        config.attributes.clone_from(attributes);
    }
}

/// A group's settings on a broker, which must be sure of it where it has none.
fn known_config(
    admin: &mut Admin,
    broker: &str,
    group: &str,
) -> Result<Option<SubscriptionGroupConfig>, AdminError> {
    let asked =
        admin
            .group_config(broker, group)
            .and_then(|config| match config.group_name.is_empty() {
                true => Err(AdminError::unsound(broker, "settings without a name").group(group)),
                false => Ok(config),
            });
    known(asked, response::SUBSCRIPTION_GROUP_NOT_EXIST, || {
        Ok(admin.group_configs(broker)?.remove(group))
    })
}

fn check_group(group: &str) -> Result<(), Failure> {
    names::check_group(group).map_err(|error| Failure::usage(format!("group {group:?}: {error}")))
}

const GROUP_COLUMNS: [(&str, &str); 9] = [
    ("brokerName", "BROKER"),
    ("consumeEnable", "MAY READ"),
    ("consumeBroadcastEnable", "MAY BROADCAST"),
    ("consumeMessageOrderly", "ORDERLY"),
    ("retryQueueNums", "RETRY QUEUES"),
    ("retryMaxTimes", "RETRIES"),
    ("brokerId", "BROKER ID"),
    ("whichBrokerWhenConsumeSlowly", "ID WHEN SLOW"),
    ("notifyConsumerIdsChangedEnable", "NOTIFIED"),
];

fn group_row(broker: &str, config: &SubscriptionGroupConfig) -> [Cell; 9] {
    [
        Cell::text(broker),
        Cell::Flag(config.consume_enable),
        Cell::Flag(config.consume_broadcast_enable),
        Cell::Flag(config.consume_message_orderly),
        Cell::Count(config.retry_queue_nums.into()),
        Cell::Count(config.retry_max_times.into()),
        Cell::Plain(config.broker_id),
        Cell::Plain(config.which_broker_when_consume_slowly),
        Cell::Flag(config.notify_consumer_ids_changed_enable),
    ]
}

/// `updateSubGroupList`.
#[derive(Debug, Args)]
pub struct UpdateSubGroupList {
    #[command(flatten)]
    target: Target,

    /// A JSON array of groups as RocketMQ writes them (SubscriptionGroupConfig).
    #[arg(short = 'f', long, value_name = "FILE")]
    filename: PathBuf,
}

impl UpdateSubGroupList {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let groups: Vec<SubscriptionGroupConfig> = super::context::read_json(&self.filename)?;
        for group in &groups {
            check_group(&group.group_name)?;
        }
        let brokers = context.masters(&self.target)?;
        let (done, faults) = context.each(&brokers, |admin, broker| {
            admin.update_groups(&broker.address, &groups)
        })?;
        let columns = [("brokerName", "BROKER"), ("group", "GROUP")];
        let mut table = Table::new("groups", &columns, "the file has no groups");
        for (broker, ()) in &done {
            for group in &groups {
                table.row([Cell::text(&broker.name), Cell::text(&group.group_name)]);
            }
        }
        Ok(Document::new().table(table).faults(faults))
    }
}

/// `deleteSubGroup`. From a whole cluster the group goes with its retry and dead letter topics.
#[derive(Debug, Args)]
pub struct DeleteSubGroup {
    #[command(flatten)]
    target: Target,

    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// Also forgets how far it was.
    #[arg(short = 'r', long, default_value_t = false, action = clap::ArgAction::Set,
          value_name = "true|false")]
    remove_offset: bool,
}

impl DeleteSubGroup {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.masters(&self.target)?;
        let offsets = match self.remove_offset {
            true => " and how far it was",
            false => "",
        };
        // A single broker keeps them: others of the cluster may have the group.
        let own = match self.target.broker {
            None => vec![
                names::retry_topic(&self.group),
                names::dlq_topic(&self.group),
            ],
            Some(_) => Vec::new(),
        };
        let with = match own.is_empty() {
            true => String::new(),
            false => format!(", with all messages of its topics {}", own.join(" and ")),
        };
        context.confirm(&format!(
            "This deletes group {:?}{offsets} from {}{with}.",
            self.group,
            brokers_text(&brokers)
        ))?;
        let (done, mut faults) = context.each(&brokers, |admin, broker| {
            admin.delete_group(&broker.address, &self.group, self.remove_offset)
        })?;
        let mut topics = Table::new("topics", &[("topic", "WITH TOPIC")], "and no topic");
        if faults.is_empty() {
            for topic in &own {
                let left = delete_own(context, &brokers, topic);
                if left.is_empty() {
                    topics.row([Cell::text(topic)]);
                }
                faults.extend(left);
            }
        }
        let mut table = Table::new("brokers", &[("brokerName", "DELETED FROM")], "no broker");
        for (broker, ()) in done {
            table.row([Cell::Text(broker.name)]);
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(&self.group))
            .table(table)
            .table(topics)
            .faults(faults))
    }
}

/// Deletes a topic of a group's own, which not every broker has, and lets nameservers forget it:
/// what went wrong.
fn delete_own(context: &mut Context, brokers: &[Broker], topic: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for broker in brokers {
        match context.admin.delete_topic(&broker.address, topic) {
            Err(error) if !error.is_not_found() => {
                faults.push(error.broker(&broker.name).to_string());
            }
            _ => {}
        }
    }
    match faults.is_empty() {
        true => forget(context, brokers, topic),
        false => faults,
    }
}

/// `getConsumerConfig`.
#[derive(Debug, Args)]
pub struct GetConsumerConfig {
    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,
}

impl GetConsumerConfig {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.admin.brokers(Select::All, true)?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            // Asking for one group would make it where groups are made by themselves.
            let mut groups = admin.group_configs(&broker.address)?;
            Ok(groups.remove(&self.group))
        })?;
        let mut table = Table::new("groups", &GROUP_COLUMNS, "no broker");
        for (broker, config) in found {
            if let Some(config) = config {
                table.row(group_row(&broker.name, &config));
            }
        }
        if table.is_empty() {
            return Err(super::brokers::none_found(format!(
                "there is no group {:?}",
                self.group
            )));
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(&self.group))
            .table(table)
            .faults(faults))
    }
}

/// `setConsumeMode`.
#[derive(Debug, Args)]
pub struct SetConsumeMode {
    #[command(flatten)]
    target: Target,

    /// The topic.
    #[arg(short = 't', long = "topic", alias = "topicName")]
    topic: String,

    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// How members are given messages.
    #[arg(short = 'm', long, value_enum, ignore_case = true)]
    mode: Mode,

    /// With POP, to how many members each queue is given at once.
    #[arg(short = 'q', long, default_value_t = 0)]
    pop_share_queue_num: i32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    #[value(name = "PULL")]
    Pull,
    #[value(name = "POP")]
    Pop,
}

impl SetConsumeMode {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.masters(&self.target)?;
        let mode = match self.mode {
            Mode::Pull => "PULL",
            Mode::Pop => "POP",
        };
        let (done, faults) = context.each(&brokers, |admin, broker| {
            let queues = self.pop_share_queue_num;
            admin.set_consume_mode(&broker.address, &self.topic, &self.group, mode, queues)
        })?;
        let columns = [("brokerName", "BROKER"), ("mode", "MODE")];
        let mut table = Table::new("brokers", &columns, "no broker");
        for (broker, ()) in done {
            table.row([Cell::Text(broker.name), Cell::text(mode)]);
        }
        Ok(Document::new().table(table).faults(faults))
    }
}
