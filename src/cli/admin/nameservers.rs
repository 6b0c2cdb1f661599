//! Nameservers: settings, keys, permissions.

use super::Context;
use super::brokers::object;
use crate::cli::show::{Cell, Document, Failure, Outcome, Table};
use clap::Args;
use serde_json::json;

/// `getNamesrvConfig`.
#[derive(Debug, Args)]
pub struct GetNamesrvConfig {
    /// Only this setting.
    #[arg(short = 'k', long)]
    key: Option<String>,
}

impl GetNamesrvConfig {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let columns = [
            ("nameserver", "NAMESERVER"),
            ("key", "KEY"),
            ("value", "VALUE"),
        ];
        let mut table = Table::new("settings", &columns, "no settings").for_people();
        let mut values = Vec::new();
        for (address, mut settings) in context.admin.nameserver_configs()? {
            settings.retain(|(key, _)| self.key.as_ref().is_none_or(|wanted| wanted == key));
            values.push(json!({ "address": address, "settings": object(&settings) }));
            for (key, value) in settings {
                table.row([Cell::text(&address), Cell::Text(key), Cell::Text(value)]);
            }
        }
        match &self.key {
            Some(key) if table.is_empty() => Err(Failure::not_found(format!(
                "no nameserver has the setting {key:?}"
            ))),
            _ => Ok(Document::new()
                .table(table)
                .for_programs("nameservers", values.into())),
        }
    }
}

/// `updateNamesrvConfig`.
#[derive(Debug, Args)]
pub struct UpdateNamesrvConfig {
    /// The setting.
    #[arg(short = 'k', long)]
    key: String,

    /// Its value.
    #[arg(short = 'v', long, allow_hyphen_values = true)]
    value: String,
}

impl UpdateNamesrvConfig {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let pairs = [(self.key.as_str(), self.value.as_str())];
        context.admin.update_nameserver_config(&pairs)?;
        GetNamesrvConfig {
            key: Some(self.key.clone()),
        }
        .run(context)
    }
}

/// `updateKvConfig`.
#[derive(Debug, Args)]
pub struct UpdateKvConfig {
    /// The namespace.
    #[arg(short = 's', long)]
    namespace: String,

    /// The key.
    #[arg(short = 'k', long)]
    key: String,

    /// The value.
    #[arg(short = 'v', long, allow_hyphen_values = true)]
    value: String,
}

impl UpdateKvConfig {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        context
            .admin
            .put_kv(&self.namespace, &self.key, &self.value)?;
        Ok(Document::new()
            .field("namespace", "Namespace", Cell::text(&self.namespace))
            .field("key", "Key", Cell::text(&self.key))
            .field("value", "Value", Cell::text(&self.value)))
    }
}

/// `deleteKvConfig`.
#[derive(Debug, Args)]
pub struct DeleteKvConfig {
    /// The namespace.
    #[arg(short = 's', long)]
    namespace: String,

    /// The key.
    #[arg(short = 'k', long)]
    key: String,
}

impl DeleteKvConfig {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let before = context.admin.get_kv(&self.namespace, &self.key)?;
        let before = before.ok_or_else(|| {
            Failure::not_found(format!(
                "namespace {:?} has no key {:?}",
                self.namespace, self.key
            ))
        })?;
        context.confirm(&format!(
            "This deletes key {:?} of namespace {:?}, which is {before:?}.",
            self.key, self.namespace
        ))?;
        context.admin.delete_kv(&self.namespace, &self.key)?;
        Ok(Document::new()
            .field("namespace", "Namespace", Cell::text(&self.namespace))
            .field("key", "Key", Cell::text(&self.key))
            .field("valueBefore", "Value was", Cell::Text(before)))
    }
}

fn changed_topics(changed: Vec<(String, i64)>) -> Table {
    let columns = [("nameserver", "NAMESERVER"), ("topics", "TOPICS CHANGED")];
    let mut table = Table::new("nameservers", &columns, "no nameserver");
    for (address, count) in changed {
        table.row([Cell::Text(address), Cell::Count(count)]);
    }
    table
}

/// `wipeWritePerm`.
#[derive(Debug, Args)]
pub struct WipeWritePerm {
    /// The broker's name.
    #[arg(short = 'b', long = "broker", aliases = ["brokerName", "broker-name"])]
    broker: String,
}

impl WipeWritePerm {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        known(context, &self.broker)?;
        context.confirm(&format!(
            "Producers will send nothing to broker {:?} any more, in any topic.",
            self.broker
        ))?;
        let changed = context.admin.wipe_write_perm(&self.broker)?;
        Ok(Document::new()
            .field("brokerName", "Broker", Cell::text(&self.broker))
            .table(changed_topics(changed))
            .note("A broker that starts again, or changes a topic, takes it back."))
    }
}

/// `addWritePerm`.
#[derive(Debug, Args)]
pub struct AddWritePerm {
    /// The broker's name.
    #[arg(short = 'b', long = "broker", aliases = ["brokerName", "broker-name"])]
    broker: String,
}

impl AddWritePerm {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        known(context, &self.broker)?;
        let changed = context.admin.add_write_perm(&self.broker)?;
        Ok(Document::new()
            .field("brokerName", "Broker", Cell::text(&self.broker))
            .table(changed_topics(changed)))
    }
}

/// Nameservers answer that they have changed nothing where they do not know a broker.
fn known(context: &mut Context, broker: &str) -> Result<(), Failure> {
    match context
        .admin
        .cluster_info()?
        .broker_addr_table
        .contains_key(broker)
    {
        true => Ok(()),
        false => Err(ringmq::client::admin::AdminError::not_found("broker", broker).into()),
    }
}
