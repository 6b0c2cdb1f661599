//! Consumer groups and producers: settings and members.

use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table};
use clap::{Args, ValueEnum};
use ringmq::client::admin::{ConnectionInfo, ConsumerConnection as Members, Select, version_name};
use ringmq::wire::body::subscription_group::SubscriptionGroupConfig;
use ringmq::wire::names;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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
            let mut config = match admin.group_config(&broker.address, &self.group) {
                Ok(config) => config,
                Err(error) if error.code().is_some() => SubscriptionGroupConfig::new(&self.group),
                Err(error) => return Err(error),
            };
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
        fn set<T: Copy>(place: &mut T, value: Option<T>) {
            *place = value.unwrap_or(*place);
        }
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

/// `deleteSubGroup`.
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
        let names: Vec<&str> = brokers.iter().map(|broker| broker.name.as_str()).collect();
        let offsets = match self.remove_offset {
            true => " and how far it was",
            false => "",
        };
        context.confirm(&format!(
            "This deletes group {:?}{offsets} from {}.",
            self.group,
            names.join(", ")
        ))?;
        let (done, faults) = context.each(&brokers, |admin, broker| {
            admin.delete_group(&broker.address, &self.group, self.remove_offset)
        })?;
        let mut table = Table::new("brokers", &[("brokerName", "DELETED FROM")], "no broker");
        for (broker, ()) in done {
            table.row([Cell::Text(broker.name)]);
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(&self.group))
            .table(table)
            .faults(faults))
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

const CLIENT_COLUMNS: [(&str, &str); 4] = [
    ("clientId", "CLIENT"),
    ("clientAddr", "ADDRESS"),
    ("language", "LANGUAGE"),
    ("version", "VERSION"),
];

fn client_row(client: &ConnectionInfo) -> [Cell; 4] {
    [
        Cell::text(&client.client_id),
        Cell::text(&client.client_addr),
        Cell::text(&client.language),
        Cell::Text(version_name(client.version)),
    ]
}

/// The members of a group on all brokers; on which broker and address each was found.
pub(super) fn members(
    context: &mut Context,
    group: &str,
    target: &Target,
) -> Result<(Members, BTreeMap<String, String>, Vec<String>), Failure> {
    let brokers = match target.broker {
        Some(_) => context.brokers(target)?,
        None => context.brokers_of_group(group)?,
    };
    let (found, faults) = context.each(&brokers, |admin, broker| {
        admin.consumer_connection(&broker.address, group)
    })?;
    let mut all = Members::default();
    let mut places = BTreeMap::new();
    for (broker, mut members) in found {
        if members.connection_set.is_empty() {
            continue;
        }
        for member in std::mem::take(&mut members.connection_set) {
            if !places.contains_key(&member.client_id) {
                places.insert(member.client_id.clone(), broker.address.clone());
                all.connection_set.push(member);
            }
        }
        all.consume_type = members.consume_type;
        all.message_model = members.message_model;
        all.consume_from_where = members.consume_from_where;
        all.subscription_table.extend(members.subscription_table);
    }
    if all.connection_set.is_empty() && faults.is_empty() {
        return Err(Failure::not_found(format!(
            "group {group:?} has no members that are connected"
        ))
        .hint("`ringmq admin consumerProgress` shows the groups and how many members each has"));
    }
    all.connection_set
        .sort_by(|a, b| a.client_id.cmp(&b.client_id));
    Ok((all, places, faults))
}

/// `consumerConnection`.
#[derive(Debug, Args)]
pub struct ConsumerConnection {
    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// Only at this broker.
    #[arg(short = 'b', long = "broker", aliases = ["brokerAddr", "broker-addr"])]
    broker: Option<String>,
}

impl ConsumerConnection {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: self.broker.clone(),
            cluster: None,
        };
        let (members, _, faults) = members(context, &self.group, &target)?;
        let mut clients = Table::new("clients", &CLIENT_COLUMNS, "no members");
        for client in &members.connection_set {
            clients.row(client_row(client));
        }
        let columns = [
            ("topic", "TOPIC"),
            ("expressionType", "TYPE"),
            ("subString", "EXPRESSION"),
        ];
        let mut subscriptions = Table::new("subscriptions", &columns, "no subscriptions");
        for (topic, subscription) in &members.subscription_table {
            subscriptions.row([
                Cell::text(topic),
                Cell::text(&subscription.expression_type),
                Cell::text(&subscription.sub_string),
            ]);
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(&self.group))
            .field("consumeType", "Type", Cell::text(members.consume_type))
            .field("messageModel", "Model", Cell::text(members.message_model))
            .field(
                "consumeFromWhere",
                "Begins",
                Cell::text(members.consume_from_where),
            )
            .table(clients)
            .table(subscriptions)
            .faults(faults))
    }
}

/// `consumerStatus`.
#[derive(Debug, Args)]
pub struct ConsumerStatus {
    /// The group.
    #[arg(short = 'g', long = "group", aliases = ["groupName", "consumerGroup"])]
    group: String,

    /// Only this member.
    #[arg(short = 'i', long)]
    client_id: Option<String>,

    /// Only at this broker.
    #[arg(short = 'b', long = "broker", aliases = ["brokerAddr", "broker-addr"])]
    broker: Option<String>,

    /// Also the stacks of its threads.
    #[arg(short = 's', long)]
    jstack: bool,
}

impl ConsumerStatus {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: self.broker.clone(),
            cluster: None,
        };
        let (members, places, mut faults) = members(context, &self.group, &target)?;
        let columns = [
            ("clientId", "CLIENT"),
            ("topic", "TOPIC"),
            ("brokerName", "BROKER"),
            ("queueId", "QUEUE"),
            ("commitOffset", "COMMITTED"),
            ("cachedMessages", "IN HAND"),
            ("lastPullTime", "LAST PULL"),
            ("lastConsumeTime", "LAST CONSUMED"),
        ];
        let mut queues = Table::new("queues", &columns, "no member has a queue");
        let columns = [
            ("clientId", "CLIENT"),
            ("topic", "TOPIC"),
            ("pullTps", "PULLED"),
            ("consumeOkTps", "CONSUMED"),
            ("consumeFailedTps", "FAILED"),
            ("consumeRtMs", "TIME EACH (ms)"),
        ];
        let mut rates = Table::new("rates", &columns, "no rates");
        let mut stacks = String::new();
        let wanted = |id: &str| self.client_id.as_deref().is_none_or(|wanted| wanted == id);
        let ids = members
            .connection_set
            .iter()
            .map(|member| &member.client_id);
        let ids: BTreeSet<&String> = ids.filter(|id| wanted(id)).collect();
        if let (true, Some(wanted)) = (ids.is_empty(), &self.client_id) {
            return Err(Failure::not_found(format!(
                "group {:?} has no member {wanted:?}",
                self.group
            )));
        }
        for id in ids {
            let address = places.get(id).map_or("", String::as_str);
            let status = context
                .admin
                .consumer_status(address, &self.group, id, self.jstack);
            let status = match status {
                Ok(status) => status,
                Err(error) => {
                    faults.push(format!("client {id:?}: {error}"));
                    continue;
                }
            };
            for (queue, at) in status.mq_table {
                let int = |name: &str| at[name].as_i64();
                queues.row([
                    Cell::text(id),
                    Cell::Text(queue.topic),
                    Cell::Text(queue.broker_name),
                    Cell::Plain(queue.queue_id.into()),
                    Cell::of(int("commitOffset"), Cell::Plain),
                    Cell::of(int("cachedMsgCount"), Cell::Count),
                    Cell::of(int("lastPullTimestamp"), Cell::Time),
                    Cell::of(int("lastConsumeTimestamp"), Cell::Time),
                ]);
            }
            for (topic, at) in status.status_table {
                let number = |name: &str| at[name].as_f64();
                rates.row([
                    Cell::text(id),
                    Cell::Text(topic),
                    Cell::of(number("pullTPS"), Cell::Rate),
                    Cell::of(number("consumeOKTPS"), Cell::Rate),
                    Cell::of(number("consumeFailedTPS"), Cell::Rate),
                    Cell::of(number("consumeRT"), |ms| Cell::text(format!("{ms:.1}"))),
                ]);
            }
            if let Some(stack) = status.jstack {
                stacks.push_str(&format!("{id}\n{stack}\n"));
            }
        }
        let mut document = Document::new()
            .field("group", "Group", Cell::text(&self.group))
            .table(queues)
            .table(rates)
            .faults(faults);
        if self.jstack {
            document = document.text("stacks", stacks);
        }
        Ok(document)
    }
}

/// `producerConnection`.
#[derive(Debug, Args)]
pub struct ProducerConnection {
    /// The group of producers.
    #[arg(short = 'g', long = "group", aliases = ["producerGroup", "producer-group"])]
    group: String,

    /// A topic that they send to.
    #[arg(short = 't', long)]
    topic: String,
}

impl ProducerConnection {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers_of_topic(&self.topic, &Target::default())?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            admin.producer_connection(&broker.address, &self.group)
        })?;
        let mut clients: Vec<ConnectionInfo> = Vec::new();
        for (_, producers) in found {
            for client in producers.connection_set {
                if clients
                    .iter()
                    .all(|known| known.client_id != client.client_id)
                {
                    clients.push(client);
                }
            }
        }
        if clients.is_empty() && faults.is_empty() {
            return Err(Failure::not_found(format!(
                "no producer of group {:?} is connected",
                self.group
            ))
            .hint("`ringmq admin producer` shows all producers"));
        }
        let mut table = Table::new("clients", &CLIENT_COLUMNS, "no producers");
        for client in &clients {
            table.row(client_row(client));
        }
        Ok(Document::new()
            .field("group", "Group", Cell::text(&self.group))
            .table(table)
            .faults(faults))
    }
}

/// `producer`.
#[derive(Debug, Args)]
pub struct Producer {
    #[command(flatten)]
    target: Target,
}

impl Producer {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers(&self.target)?;
        let (found, faults) =
            context.each(&brokers, |admin, broker| admin.producers(&broker.address))?;
        let columns = [
            ("brokerName", "BROKER"),
            ("group", "GROUP"),
            ("clientId", "CLIENT"),
            ("clientAddr", "ADDRESS"),
            ("language", "LANGUAGE"),
            ("version", "VERSION"),
            ("lastUpdateTimestamp", "LAST HEARTBEAT"),
        ];
        let mut table = Table::new("producers", &columns, "no producer is connected");
        for (broker, producers) in found {
            for (group, clients) in producers.data {
                for client in clients {
                    table.row([
                        Cell::text(&broker.name),
                        Cell::text(&group),
                        Cell::Text(client.client_id),
                        Cell::Text(client.remote_ip),
                        Cell::Text(client.language),
                        Cell::Text(version_name(client.version)),
                        Cell::Time(client.last_update_timestamp),
                    ]);
                }
            }
        }
        Ok(Document::new().table(table).faults(faults))
    }
}
