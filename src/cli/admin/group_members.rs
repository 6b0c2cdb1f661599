//! Who is connected: members of consumer groups, and producers.

use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table};
use clap::Args;
use ringmq::client::admin::{ConnectionInfo, ConsumerConnection as Members, version_name};
use std::collections::{BTreeMap, BTreeSet};

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

/// Members, the address of the broker that each is connected to, and who could not be asked.
type Found = (Members, BTreeMap<String, String>, Vec<String>);

/// The members of a group on all brokers.
pub(super) fn members(
    context: &mut Context,
    group: &str,
    target: &Target,
) -> Result<Found, Failure> {
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
