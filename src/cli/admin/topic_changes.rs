//! Topics are made, changed and deleted.

use super::context::{brokers_text, known, set};
use super::options::parse_permission;
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table, permissions};
use clap::{Args, ValueEnum};
use ringmq::client::admin::{Admin, AdminError, Broker, ORDER_TOPIC_CONFIG};
use ringmq::wire::body::topic::{TopicConfig, perm};
use ringmq::wire::codes::response;
use ringmq::wire::names;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Queues of a new topic.
const QUEUES: i32 = 8;

/// `updateTopic`. What is not given stays as it is, or has its default in a new topic.
#[derive(Debug, Args)]
pub struct UpdateTopic {
    #[command(flatten)]
    target: Target,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// Queues that consumers read; 8 in a new topic.
    #[arg(short = 'r', long, value_name = "N",
          value_parser = clap::value_parser!(i32).range(0..=65_536))]
    read_queue_nums: Option<i32>,

    /// Queues that producers write; 8 in a new topic.
    #[arg(short = 'w', long, value_name = "N",
          value_parser = clap::value_parser!(i32).range(0..=65_536))]
    write_queue_nums: Option<i32>,

    /// Who may use it: 6 or rw, 4 or r, 2 or w; 6 in a new topic.
    #[arg(short = 'p', long, value_parser = parse_permission)]
    perm: Option<i32>,

    /// Whether it is for ordered messages; nameservers then keep its queues.
    #[arg(short = 'o', long, value_name = "true|false")]
    order: Option<bool>,

    /// Whether it is a unit topic.
    #[arg(short = 'u', long, value_name = "true|false")]
    unit: Option<bool>,

    /// Whether it has unit subscriptions.
    #[arg(short = 's', long, value_name = "true|false")]
    has_unit_sub: Option<bool>,

    /// Attributes: +name=value sets one, -name takes one away; commas between.
    #[arg(short = 'a', long, allow_hyphen_values = true, value_name = "CHANGES")]
    attributes: Option<String>,
}

impl UpdateTopic {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        check_topic(&self.topic)?;
        let brokers = context.masters(&self.target)?;
        let attributes = attribute_changes(self.attributes.as_deref().unwrap_or_default())?;
        let (done, mut faults) = context.each(&brokers, |admin, broker| {
            let known = known_config(admin, &broker.address, &self.topic)?;
            let new = || TopicConfig::new(&self.topic, QUEUES, perm::READ | perm::WRITE);
            let mut config = known.unwrap_or_else(new);
            self.change(&mut config, &attributes);
            admin.update_topic(&broker.address, &config)?;
            Ok(config)
        })?;
        let mut document = Document::new().field("topic", "Topic", Cell::text(&self.topic));
        let is_ordered = done.iter().any(|(_, config)| config.order);
        if is_ordered && (self.order.is_some() || self.write_queue_nums.is_some()) {
            // For a single broker, or where one failed, the others keep what they have.
            let is_part = self.target.broker.is_some() || !faults.is_empty();
            match self.put_order(context, &done, is_part) {
                Ok(order) => {
                    document = document.field("orderTopicConf", "Order", Cell::text(order));
                }
                Err(failure) => faults.push(failure.message),
            }
        }
        Ok(document.table(written(&done)).faults(faults))
    }

    fn change(&self, config: &mut TopicConfig, attributes: &BTreeMap<String, String>) {
        set(&mut config.read_queue_nums, self.read_queue_nums);
        set(&mut config.write_queue_nums, self.write_queue_nums);
        set(&mut config.perm, self.perm);
        set(&mut config.order, self.order);
        for (bit, value) in [(1, self.unit), (2, self.has_unit_sub)] {
            match value {
                Some(true) => config.topic_sys_flag |= bit,
                Some(false) => config.topic_sys_flag &= !bit,
                None => {}
            }
        }
        config.attributes.clone_from(attributes);
    }

    /// Tells nameservers the queues of brokers that have the topic in order.
    fn put_order(
        &self,
        context: &mut Context,
        done: &[(Broker, TopicConfig)],
        is_part: bool,
    ) -> Result<String, Failure> {
        let mut order = match is_part {
            true => context.admin.get_kv(ORDER_TOPIC_CONFIG, &self.topic)?,
            false => None,
        };
        for (broker, config) in done {
            let name = context.broker_name(broker)?;
            let before = order.unwrap_or_default();
            order = Some(merged_order(&before, &name, config.write_queue_nums));
        }
        let order = order.unwrap_or_default();
        context
            .admin
            .put_kv(ORDER_TOPIC_CONFIG, &self.topic, &order)?;
        Ok(order)
    }
}

/// A topic's settings on a broker, which must be sure of it where it has none.
fn known_config(
    admin: &mut Admin,
    broker: &str,
    topic: &str,
) -> Result<Option<TopicConfig>, AdminError> {
    let asked =
        admin
            .topic_config(broker, topic)
            .and_then(|config| match config.topic_name.is_empty() {
                true => Err(AdminError::unsound(broker, "settings without a name").topic(topic)),
                false => Ok(config),
            });
    known(asked, response::TOPIC_NOT_EXIST, || {
        Ok(admin.topic_configs(broker)?.remove(topic))
    })
}

/// An order configuration with a broker's queues in it.
fn merged_order(order: &str, broker: &str, queues: i32) -> String {
    let is_other = |part: &&str| match part.rsplit_once(':') {
        Some((name, _)) => name != broker,
        None => !part.is_empty(),
    };
    let others = order.split(';').filter(is_other).map(str::to_owned);
    let own = std::iter::once(format!("{broker}:{queues}"));
    let mut parts: Vec<String> = others.chain(own).collect();
    parts.sort();
    parts.join(";")
}

fn check_topic(topic: &str) -> Result<(), Failure> {
    names::check_topic(topic).map_err(|error| Failure::usage(format!("topic {topic:?}: {error}")))
}

/// What stands on each broker now.
fn written(done: &[(Broker, TopicConfig)]) -> Table {
    let columns = [
        ("brokerName", "BROKER"),
        ("address", "ADDRESS"),
        ("readQueueNums", "READ QUEUES"),
        ("writeQueueNums", "WRITE QUEUES"),
        ("perm", "PERM"),
    ];
    let mut table = Table::new("brokers", &columns, "no broker");
    for (broker, config) in done {
        table.row([
            Cell::text(&broker.name),
            Cell::text(&broker.address),
            Cell::Count(config.read_queue_nums.into()),
            Cell::Count(config.write_queue_nums.into()),
            permissions(config.perm),
        ]);
    }
    table
}

/// `+a=b,-c` as the changes that go to a broker, with their signs.
pub(super) fn attribute_changes(text: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut changes = BTreeMap::new();
    for change in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let bad = |why| Failure::usage(format!("attribute {change:?}: {why}"));
        let (name, value) = match (change.strip_prefix('+'), change.split_once('=')) {
            (Some(_), Some((name, value))) => (name, value),
            (Some(_), None) => return Err(bad("a value is missing, +name=value")),
            (None, None) if change.starts_with('-') => (change, ""),
            _ => return Err(bad("it is +name=value or -name")),
        };
        if name.len() < 2 {
            return Err(bad("the name is missing"));
        }
        if changes.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(bad("it is there twice"));
        }
    }
    Ok(changes)
}

/// `updateTopicList`.
#[derive(Debug, Args)]
pub struct UpdateTopicList {
    #[command(flatten)]
    target: Target,

    /// A JSON array of topics as RocketMQ writes them (TopicConfig).
    #[arg(short = 'f', long, value_name = "FILE")]
    filename: PathBuf,
}

impl UpdateTopicList {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let topics: Vec<TopicConfig> = super::context::read_json(&self.filename)?;
        for topic in &topics {
            check_topic(&topic.topic_name)?;
        }
        let brokers = context.masters(&self.target)?;
        let (done, faults) = context.each(&brokers, |admin, broker| {
            admin.update_topics(&broker.address, &topics)
        })?;
        let columns = [("brokerName", "BROKER"), ("topic", "TOPIC")];
        let mut table = Table::new("topics", &columns, "the file has no topics");
        for (broker, ()) in &done {
            for topic in &topics {
                table.row([Cell::text(&broker.name), Cell::text(&topic.topic_name)]);
            }
        }
        Ok(Document::new().table(table).faults(faults))
    }
}

/// `updateTopicPerm`.
#[derive(Debug, Args)]
pub struct UpdateTopicPerm {
    #[command(flatten)]
    target: Target,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// Who may use it: 6 or rw, 4 or r, 2 or w.
    #[arg(short = 'p', long, value_parser = parse_permission)]
    perm: i32,
}

impl UpdateTopicPerm {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers_of_topic(&self.topic, &self.target)?;
        let (done, faults) = context.each(&brokers, |admin, broker| {
            let mut config = admin.topic_config(&broker.address, &self.topic)?;
            let before = config.perm;
            if before != self.perm {
                config.perm = self.perm;
                // They stay as they are where none is given.
                config.attributes.clear();
                admin.update_topic(&broker.address, &config)?;
            }
            Ok(before)
        })?;
        let columns = [
            ("brokerName", "BROKER"),
            ("permBefore", "BEFORE"),
            ("perm", "NOW"),
        ];
        let mut table = Table::new("brokers", &columns, "no broker");
        for (broker, before) in done {
            table.row([
                Cell::Text(broker.name),
                permissions(before),
                permissions(self.perm),
            ]);
        }
        Ok(Document::new()
            .field("topic", "Topic", Cell::text(&self.topic))
            .table(table)
            .faults(faults))
    }
}

/// `deleteTopic`.
#[derive(Debug, Args)]
pub struct DeleteTopic {
    #[command(flatten)]
    target: Target,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,
}

impl DeleteTopic {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers_of_topic(&self.topic, &self.target)?;
        context.confirm(&format!(
            "This deletes topic {:?} and all its messages from {}.",
            self.topic,
            brokers_text(&brokers)
        ))?;
        let (done, mut faults) = context.each(&brokers, |admin, broker| {
            admin.delete_topic(&broker.address, &self.topic)
        })?;
        // A nameserver forgets it for a whole cluster; for a single broker it finds out by itself.
        if self.target.broker.is_none() && faults.is_empty() {
            faults.extend(forget(context, &brokers, &self.topic));
        }
        let mut table = Table::new("brokers", &[("brokerName", "DELETED FROM")], "no broker");
        for (broker, ()) in done {
            table.row([Cell::Text(broker.name)]);
        }
        Ok(Document::new()
            .field("topic", "Topic", Cell::text(&self.topic))
            .table(table)
            .faults(faults))
    }
}

/// Lets nameservers forget a topic of the brokers' clusters: what went wrong.
pub(super) fn forget(context: &mut Context, brokers: &[Broker], topic: &str) -> Vec<String> {
    let mut clusters: Vec<&str> = brokers.iter().map(|one| one.cluster.as_str()).collect();
    clusters.sort_unstable();
    clusters.dedup();
    let forgotten = clusters
        .into_iter()
        .map(|cluster| context.admin.forget_topic(cluster, topic));
    forgotten
        .filter_map(Result::err)
        .map(|error| error.to_string())
        .collect()
}

/// `updateOrderConf`.
#[derive(Debug, Args)]
pub struct UpdateOrderConf {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// What to do.
    #[arg(short = 'm', long, value_enum)]
    method: Method,

    /// Queues by broker: broker-a:4;broker-b:4.
    #[arg(short = 'v', long = "order-conf", value_name = "QUEUES")]
    order_conf: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Method {
    Get,
    Put,
    Delete,
}

impl UpdateOrderConf {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let conf = match (self.method, &self.order_conf) {
            (Method::Get, _) => {
                let conf = context.admin.get_kv(ORDER_TOPIC_CONFIG, &self.topic)?;
                Some(conf.ok_or_else(|| {
                    Failure::not_found(format!("topic {:?} has no order", self.topic))
                })?)
            }
            (Method::Put, Some(conf)) if is_order(conf) => {
                context
                    .admin
                    .put_kv(ORDER_TOPIC_CONFIG, &self.topic, conf)?;
                Some(conf.clone())
            }
            (Method::Put, Some(_)) => {
                return Err(Failure::usage(
                    "-v is BROKER:QUEUES, with ; between several",
                ));
            }
            (Method::Put, None) => return Err(Failure::usage("put needs -v BROKER:QUEUES")),
            (Method::Delete, _) => {
                context.confirm(&format!(
                    "This deletes the order of topic {:?}.",
                    self.topic
                ))?;
                context.admin.delete_kv(ORDER_TOPIC_CONFIG, &self.topic)?;
                None
            }
        };
        Ok(Document::new()
            .field("topic", "Topic", Cell::text(&self.topic))
            .field("orderTopicConf", "Order", Cell::of(conf, Cell::Text)))
    }
}

fn is_order(conf: &str) -> bool {
    conf.split(';').all(|part| {
        part.rsplit_once(':')
            .is_some_and(|(broker, queues)| !broker.is_empty() && queues.parse::<u32>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_changes() {
        let changes = attribute_changes("+message.type=FIFO, -cleanup.policy").unwrap();
        assert_eq!(changes["+message.type"], "FIFO");
        assert_eq!(changes["-cleanup.policy"], "");
        for bad in ["a=b", "+a", "-a=b", "+", "-", "+=b", "+a=b,+a=c"] {
            assert!(attribute_changes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_order_keeps_what_other_brokers_have() {
        assert_eq!(merged_order("", "a", 4), "a:4");
        assert_eq!(merged_order("b:8;a:2", "a", 4), "a:4;b:8");
        assert_eq!(merged_order("b:8;c:1;", "a", 4), "a:4;b:8;c:1");
    }

    #[test]
    fn an_order_names_brokers_and_queues() {
        assert!(is_order("a:4;b:8"));
        for bad in ["", "a", "a:", ":4", "a:4;", "a:-1"] {
            assert!(!is_order(bad), "{bad}");
        }
    }
}
