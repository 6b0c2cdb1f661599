//! Brokers as a whole: figures, settings, housekeeping.

use super::context::brokers_text;
use super::options::Repeat;
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table, exit};
use clap::Args;
use ringmq::client::admin::{Admin, AdminError, Broker};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `brokerStatus`.
#[derive(Debug, Args)]
pub struct BrokerStatus {
    #[command(flatten)]
    target: Target,
}

impl BrokerStatus {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers(&self.target)?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            admin.runtime_info(&broker.address)
        })?;
        let columns = [
            ("brokerName", "BROKER"),
            ("brokerId", "ID"),
            ("name", "FIGURE"),
            ("value", "VALUE"),
        ];
        let mut table = Table::new("figures", &columns, "no figures").for_people();
        let mut values = Vec::new();
        for (broker, figures) in found {
            values.push(json!({
                "brokerName": broker.name,
                "brokerId": broker.id,
                "address": broker.address,
                "figures": figures,
            }));
            for (name, value) in figures {
                table.row([
                    Cell::text(&broker.name),
                    Cell::Plain(broker.id),
                    Cell::text(name),
                    Cell::text(value.trim()),
                ]);
            }
        }
        Ok(Document::new()
            .table(table)
            .for_programs("brokers", values.into())
            .faults(faults))
    }
}

/// `getBrokerConfig`.
#[derive(Debug, Args)]
pub struct GetBrokerConfig {
    #[command(flatten)]
    target: Target,

    /// Only this setting.
    #[arg(short = 'k', long)]
    key: Option<String>,
}

impl GetBrokerConfig {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers(&self.target)?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            admin.broker_config(&broker.address)
        })?;
        let columns = [
            ("brokerName", "BROKER"),
            ("brokerId", "ID"),
            ("key", "KEY"),
            ("value", "VALUE"),
        ];
        let mut table = Table::new("settings", &columns, "no settings").for_people();
        let mut values = Vec::new();
        let wanted = |key: &str| self.key.as_deref().is_none_or(|wanted| wanted == key);
        for (broker, mut settings) in found {
            settings.retain(|(key, _)| wanted(key));
            values.push(json!({
                "brokerName": broker.name,
                "brokerId": broker.id,
                "address": broker.address,
                "settings": object(&settings),
            }));
            for (key, value) in settings {
                table.row([
                    Cell::text(&broker.name),
                    Cell::Plain(broker.id),
                    Cell::Text(key),
                    Cell::Text(value),
                ]);
            }
        }
        match &self.key {
            Some(key) if table.is_empty() => Err(Failure::not_found(format!(
                "no broker has the setting {key:?}"
            ))),
            _ => Ok(Document::new()
                .table(table)
                .for_programs("brokers", values.into())
                .faults(faults)),
        }
    }
}

/// Pairs as a JSON object.
pub(super) fn object(pairs: &[(String, String)]) -> Value {
    let pairs = pairs.iter();
    Value::Object(
        pairs
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect(),
    )
}

/// `updateBrokerConfig`.
#[derive(Debug, Args)]
pub struct UpdateBrokerConfig {
    #[command(flatten)]
    target: Target,

    /// Slaves too.
    #[arg(short = 'a', long, default_value_t = false, num_args = 0..=1, require_equals = false,
          default_missing_value = "true", action = clap::ArgAction::Set, value_name = "true|false")]
    update_all_broker: bool,

    /// The setting.
    #[arg(short = 'k', long)]
    key: String,

    /// Its value.
    #[arg(short = 'v', long, allow_hyphen_values = true)]
    value: String,
}

impl UpdateBrokerConfig {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = match self.update_all_broker {
            true => context.brokers(&self.target)?,
            false => context.masters(&self.target)?,
        };
        let (done, faults) = context.each(&brokers, |admin, broker| {
            let pairs = [(self.key.as_str(), self.value.as_str())];
            admin.update_broker_config(&broker.address, &pairs)?;
            // What it is now: brokers of both kinds may take a value and not keep it.
            let settings = admin.broker_config(&broker.address)?;
            let now = settings.into_iter().find(|(key, _)| *key == self.key);
            Ok(now.map(|(_, value)| value))
        })?;
        let columns = [
            ("brokerName", "BROKER"),
            ("brokerId", "ID"),
            ("key", "KEY"),
            ("value", "VALUE NOW"),
        ];
        let mut table = Table::new("settings", &columns, "no broker");
        for (broker, now) in done {
            table.row([
                Cell::Text(broker.name),
                Cell::Plain(broker.id),
                Cell::text(&self.key),
                Cell::of(now, Cell::Text),
            ]);
        }
        Ok(Document::new().table(table).faults(faults))
    }
}

/// Something that brokers are told to do, and answer nothing to.
fn housekeeping(
    context: &mut Context,
    target: &Target,
    what: &str,
    work: impl FnMut(&mut Admin, &Broker) -> Result<(), AdminError>,
) -> Outcome {
    let brokers = context.masters(target)?;
    context.confirm(&format!(
        "This deletes {what} on {}.",
        brokers_text(&brokers)
    ))?;
    let (done, faults) = context.each(&brokers, work)?;
    let mut table = Table::new("brokers", &[("brokerName", "DONE ON")], "no broker");
    for (broker, ()) in done {
        table.row([Cell::Text(broker.name)]);
    }
    Ok(Document::new().table(table).faults(faults))
}

/// `cleanExpiredCQ`.
#[derive(Debug, Args)]
pub struct CleanExpiredCq {
    #[command(flatten)]
    target: Target,
}

impl CleanExpiredCq {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let what = "queue files of messages that are gone";
        housekeeping(context, &self.target, what, |admin, broker| {
            admin.clean_expired_queues(&broker.address)
        })
    }
}

/// `cleanUnusedTopic`.
#[derive(Debug, Args)]
pub struct CleanUnusedTopic {
    #[command(flatten)]
    target: Target,
}

impl CleanUnusedTopic {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let what = "queue files of topics that are gone";
        housekeeping(context, &self.target, what, |admin, broker| {
            admin.clean_unused_topics(&broker.address)
        })
    }
}

/// `deleteExpiredCommitLog`.
#[derive(Debug, Args)]
pub struct DeleteExpiredCommitLog {
    #[command(flatten)]
    target: Target,
}

impl DeleteExpiredCommitLog {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let what = "messages that are older than they need to be kept";
        housekeeping(context, &self.target, what, |admin, broker| {
            admin.delete_expired_commit_log(&broker.address)
        })
    }
}

/// `haStatus`.
#[derive(Debug, Args)]
pub struct HaStatus {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    pub(super) repeat: Repeat,
}

impl HaStatus {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers(&self.target)?;
        let (found, faults) =
            context.each(&brokers, |admin, broker| admin.ha_status(&broker.address))?;
        let columns = [
            ("brokerName", "BROKER"),
            ("brokerId", "ID"),
            ("master", "MASTER"),
            ("maxOffset", "LOG END"),
            ("inSyncSlaves", "IN SYNC"),
        ];
        let mut table = Table::new("brokers", &columns, "no broker");
        let columns = [
            ("brokerName", "BROKER"),
            ("slaveAddress", "SLAVE"),
            ("ackOffset", "CONFIRMED"),
            ("diff", "BEHIND"),
            ("inSync", "IN SYNC"),
            ("bytesPerSecond", "BYTES/S"),
        ];
        let mut slaves = Table::new("slaves", &columns, "no slaves");
        let number = |value: &Value, key: &str| Cell::of(value[key].as_i64(), Cell::Plain);
        for (broker, status) in found {
            let end = match status["master"].as_bool() {
                Some(false) => number(&status["haClientRuntimeInfo"], "maxOffset"),
                _ => number(&status, "masterCommitLogMaxOffset"),
            };
            table.row([
                Cell::text(&broker.name),
                Cell::Plain(broker.id),
                Cell::of(status["master"].as_bool(), Cell::Flag),
                end,
                number(&status, "inSyncSlaveNums"),
            ]);
            for slave in status["haConnectionInfo"].as_array().into_iter().flatten() {
                slaves.row([
                    Cell::text(&broker.name),
                    Cell::text(slave["addr"].as_str().unwrap_or_default()),
                    number(slave, "slaveAckOffset"),
                    Cell::of(slave["diff"].as_i64(), Cell::Bytes),
                    Cell::of(slave["inSync"].as_bool(), Cell::Flag),
                    Cell::of(slave["transferredByteInSecond"].as_i64(), Cell::Bytes),
                ]);
            }
        }
        Ok(Document::new().table(table).table(slaves).faults(faults))
    }
}

/// Figures of a broker that are numbers.
pub struct Figures<'a>(pub &'a BTreeMap<String, String>);

impl Figures<'_> {
    /// A whole number.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.trim().parse().ok()
    }

    /// The first of the numbers that a figure has: rates are of 10, 60 and 600 seconds.
    pub fn first(&self, name: &str) -> Option<f64> {
        let text = self.0.get(name)?.split_whitespace().next()?;
        text.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Text.
    pub fn text(&self, name: &str) -> Cell {
        Cell::of(self.0.get(name), Cell::text)
    }
}

/// Refused where nothing of a kind was found.
pub(super) fn none_found(message: String) -> Failure {
    Failure {
        code: exit::NOT_FOUND,
        message,
        hint: None,
    }
}
