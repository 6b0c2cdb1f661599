//! Settings, topics, groups and figures in a file.

use super::brokers::object;
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, now_ms};
use clap::Args;
use ringmq::wire::names;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Writes a value into a file of that name in a folder, or at the path itself where it ends in
/// `.json`.
fn write(path: &Path, name: &str, value: &Value) -> Result<Document, Failure> {
    let is_file = path.extension().is_some_and(|end| end == "json");
    let file = match is_file {
        true => path.to_owned(),
        false => path.join(name),
    };
    let failed = |error| Failure::failed(format!("{}: {error}", file.display()));
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(value).expect("a JSON value can be written") + "\n";
    std::fs::write(&file, text).map_err(failed)?;
    let file = file.to_string_lossy();
    Ok(Document::new().field("file", "Written", Cell::text(file)))
}

/// `exportConfigs`.
#[derive(Debug, Args)]
pub struct ExportConfigs {
    /// The cluster.
    #[arg(short = 'c', long = "cluster", aliases = ["clusterName", "cluster-name"])]
    cluster: String,

    /// A folder, or a file that ends in .json.
    #[arg(
        short = 'f',
        long,
        default_value = "/tmp/rocketmq/export",
        value_name = "PATH"
    )]
    file_path: PathBuf,
}

impl ExportConfigs {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: None,
            cluster: Some(self.cluster.clone()),
        };
        let brokers = context.brokers(&target)?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            admin.broker_config(&broker.address)
        })?;
        let mut configs = Map::new();
        for (broker, settings) in found {
            let key = match broker.id {
                0 => broker.name,
                id => format!("{}-{id}", broker.name),
            };
            configs.insert(key, object(&settings));
        }
        let mut nameservers = Map::new();
        for (address, settings) in context.admin.nameserver_configs()? {
            nameservers.insert(address, object(&settings));
        }
        let value = json!({
            "clusterName": self.cluster,
            "exportTime": now_ms(),
            "brokerConfigs": configs,
            "nameServers": nameservers,
        });
        Ok(write(&self.file_path, "configs.json", &value)?.faults(faults))
    }
}

/// `exportMetadata`.
#[derive(Debug, Args)]
pub struct ExportMetadata {
    #[command(flatten)]
    target: Target,

    /// A folder, or a file that ends in .json.
    #[arg(
        short = 'f',
        long,
        default_value = "/tmp/rocketmq/export",
        value_name = "PATH"
    )]
    file_path: PathBuf,

    /// Only topics.
    #[arg(short = 't', long)]
    topic: bool,

    /// Only groups.
    #[arg(short = 'g', long, conflicts_with = "topic")]
    subscription_group: bool,

    /// Also retry and dead letter topics.
    #[arg(short = 's', long)]
    special_topic: bool,
}

impl ExportMetadata {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.masters(&self.target)?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            let topics = admin.topic_configs(&broker.address)?;
            let groups = admin.group_configs(&broker.address)?;
            Ok((topics, groups))
        })?;
        let is_wanted = |topic: &str| {
            let derived =
                topic.starts_with(names::RETRY_PREFIX) || topic.starts_with(names::DLQ_PREFIX);
            !names::is_system_topic(topic) && (self.special_topic || !derived)
        };
        let (mut topics, mut groups) = (Map::new(), Map::new());
        for (_, (of_broker, groups_of_broker)) in found {
            for (name, config) in of_broker {
                if is_wanted(&name) && !topics.contains_key(&name) {
                    topics.insert(name, json!(config));
                }
            }
            for (name, config) in groups_of_broker {
                groups.entry(name).or_insert_with(|| json!(config));
            }
        }
        let counts = (topics.len() as i64, groups.len() as i64);
        let mut value = json!({ "exportTime": now_ms() });
        if !self.subscription_group {
            value["topicConfigTable"] = Value::Object(topics);
        }
        if !self.topic {
            value["subscriptionGroupTable"] = Value::Object(groups);
        }
        Ok(write(&self.file_path, "metadata.json", &value)?
            .field("topics", "Topics", Cell::Count(counts.0))
            .field("groups", "Groups", Cell::Count(counts.1))
            .faults(faults))
    }
}

/// `exportMetrics`.
#[derive(Debug, Args)]
pub struct ExportMetrics {
    /// The cluster.
    #[arg(short = 'c', long = "cluster", aliases = ["clusterName", "cluster-name"])]
    cluster: String,

    /// A folder, or a file that ends in .json.
    #[arg(
        short = 'f',
        long,
        default_value = "/tmp/rocketmq/export",
        value_name = "PATH"
    )]
    file_path: PathBuf,
}

impl ExportMetrics {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: None,
            cluster: Some(self.cluster.clone()),
        };
        let brokers = context.brokers(&target)?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            admin.runtime_info(&broker.address)
        })?;
        let mut figures = Map::new();
        for (broker, table) in found {
            figures.insert(format!("{}:{}", broker.name, broker.id), json!(table));
        }
        let value = json!({
            "clusterName": self.cluster,
            "exportTime": now_ms(),
            "brokers": figures,
        });
        Ok(write(&self.file_path, "metrics.json", &value)?.faults(faults))
    }
}
