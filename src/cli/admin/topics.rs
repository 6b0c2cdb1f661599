//! What there is to know of topics.

use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table, permissions};
use clap::Args;
use ringmq::wire::body::route::TopicRouteData;
use std::collections::{BTreeMap, BTreeSet};

/// `topicList`.
#[derive(Debug, Args)]
pub struct TopicList {
    /// Also shows clusters and the groups that read each topic.
    #[arg(short = 'c', long = "cluster-model")]
    with_groups: bool,
}

impl TopicList {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let topics = context.admin.topic_list()?;
        if !self.with_groups {
            let mut table = Table::new("topics", &[("topic", "TOPIC")], "no topics");
            for topic in &topics {
                table.row([Cell::text(topic)]);
            }
            return Ok(Document::new().table(table));
        }
        let columns = [
            ("topic", "TOPIC"),
            ("clusters", "CLUSTERS"),
            ("groups", "GROUPS"),
        ];
        let mut table = Table::new("topics", &columns, "no topics");
        let mut faults = Vec::new();
        for topic in &topics {
            let route = match context.admin.route(topic) {
                Ok(route) => route,
                // It went between the two questions.
                Err(error) if error.is_not_found() => continue,
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            let brokers = addresses(&route);
            let mut groups = BTreeSet::new();
            for address in brokers.values() {
                match context.admin.groups_of_topic(address, topic) {
                    Ok(found) => groups.extend(found),
                    Err(error) => faults.push(error.to_string()),
                }
            }
            table.row([Cell::text(topic), names(clusters(&route)), names(groups)]);
        }
        Ok(Document::new().table(table).faults(faults))
    }
}

fn names(names: BTreeSet<String>) -> Cell {
    Cell::List(names.into_iter().collect())
}

fn clusters(route: &TopicRouteData) -> BTreeSet<String> {
    let brokers = route.broker_datas.iter();
    brokers.map(|broker| broker.cluster.clone()).collect()
}

fn addresses(route: &TopicRouteData) -> BTreeMap<String, String> {
    let brokers = route.broker_datas.iter().filter_map(|broker| {
        let address = broker.broker_addrs.values().next()?;
        Some((broker.broker_name.clone(), address.clone()))
    });
    brokers.collect()
}

/// `topicRoute`.
#[derive(Debug, Args)]
pub struct TopicRoute {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// As a list, which tables are anyway.
    #[arg(short = 'l', long, hide = true)]
    list: bool,
}

impl TopicRoute {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let route = context.admin.route(&self.topic)?;
        let columns = [
            ("cluster", "CLUSTER"),
            ("brokerName", "BROKER"),
            ("brokerId", "ID"),
            ("address", "ADDRESS"),
            ("readQueueNums", "READ QUEUES"),
            ("writeQueueNums", "WRITE QUEUES"),
            ("perm", "PERM"),
        ];
        let mut table = Table::new("brokers", &columns, "no broker has it");
        for broker in &route.broker_datas {
            let queues = route
                .queue_datas
                .iter()
                .find(|queues| queues.broker_name == broker.broker_name);
            for (&id, address) in &broker.broker_addrs {
                table.row([
                    Cell::text(&broker.cluster),
                    Cell::text(&broker.broker_name),
                    Cell::Plain(id),
                    Cell::text(address),
                    Cell::of(queues, |q| Cell::Count(q.read_queue_nums.into())),
                    Cell::of(queues, |q| Cell::Count(q.write_queue_nums.into())),
                    Cell::of(queues, |q| permissions(q.perm)),
                ]);
            }
        }
        let mut document = Document::new().field("topic", "Topic", Cell::text(&self.topic));
        if let Some(order) = route.order_topic_conf.filter(|order| !order.is_empty()) {
            document = document.field("orderTopicConf", "Order", Cell::text(order));
        }
        Ok(document.table(table))
    }
}

/// `topicStatus`.
#[derive(Debug, Args)]
pub struct TopicStatus {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,
}

impl TopicStatus {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: None,
            cluster: self.cluster.clone(),
        };
        let brokers = context.brokers_of_topic(&self.topic, &target)?;
        let (found, faults) = context.each(&brokers, |admin, broker| {
            admin.topic_stats(&broker.address, &self.topic)
        })?;
        let columns = [
            ("brokerName", "BROKER"),
            ("queueId", "QUEUE"),
            ("minOffset", "MIN OFFSET"),
            ("maxOffset", "MAX OFFSET"),
            ("messages", "MESSAGES"),
            ("lastUpdateTimestamp", "LAST MESSAGE"),
        ];
        let mut table = Table::new("queues", &columns, "no queues");
        let (mut total, mut put_tps) = (0i64, 0.0);
        for (_, stats) in &found {
            put_tps += stats.topic_put_tps;
            for (queue, bounds) in &stats.offset_table {
                let messages = bounds.max_offset.saturating_sub(bounds.min_offset);
                total = total.saturating_add(messages);
                table.row([
                    Cell::text(&queue.broker_name),
                    Cell::Plain(queue.queue_id.into()),
                    Cell::Plain(bounds.min_offset),
                    Cell::Plain(bounds.max_offset),
                    Cell::Count(messages),
                    Cell::Time(bounds.last_update_timestamp),
                ]);
            }
        }
        Ok(Document::new()
            .field("topic", "Topic", Cell::text(&self.topic))
            .field("messages", "Messages", Cell::Count(total))
            .field("putTps", "Put rate", Cell::Rate(put_tps))
            .table(table)
            .faults(faults))
    }
}

/// `topicClusterList`.
#[derive(Debug, Args)]
pub struct TopicClusterList {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,
}

impl TopicClusterList {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let route = context.admin.route(&self.topic)?;
        let mut table = Table::new("clusters", &[("cluster", "CLUSTER")], "no clusters");
        for cluster in clusters(&route) {
            table.row([Cell::Text(cluster)]);
        }
        Ok(Document::new().table(table))
    }
}

/// `allocateMQ`.
#[derive(Debug, Args)]
pub struct AllocateMq {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// The clients, with commas between them.
    #[arg(short = 'i', long, value_delimiter = ',', required = true)]
    ip_list: Vec<String>,
}

impl AllocateMq {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let route = context.admin.route(&self.topic)?;
        let mut clients: Vec<&str> = self.ip_list.iter().map(|name| name.trim()).collect();
        clients.retain(|name| !name.is_empty());
        if clients.is_empty() {
            return Err(Failure::usage("-i names no client"));
        }
        let mut queues = Vec::new();
        for data in &route.queue_datas {
            queues.extend((0..data.read_queue_nums).map(|queue| (&data.broker_name, queue)));
        }
        queues.sort();
        let columns = [
            ("client", "CLIENT"),
            ("brokerName", "BROKER"),
            ("queueId", "QUEUE"),
        ];
        let mut table = Table::new("queues", &columns, "the topic has no queues to read");
        for (at, (broker, queue)) in queues.iter().enumerate() {
            table.row([
                Cell::text(clients[owner(queues.len(), clients.len(), at)]),
                Cell::text(broker.as_str()),
                Cell::Plain((*queue).into()),
            ]);
        }
        Ok(Document::new()
            .field("topic", "Topic", Cell::text(&self.topic))
            .field("strategy", "Strategy", Cell::text("AVG"))
            .table(table))
    }
}

/// Index of the client that gets queue `at` where all get as many queues as can be and neighbours
/// stay together (`AllocateMessageQueueAveragely`).
fn owner(queues: usize, clients: usize, at: usize) -> usize {
    let (each, more) = (queues / clients, queues % clients);
    let first = more * (each + 1);
    match at < first {
        true => at / (each + 1),
        false => more + (at - first) / each.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_shared_evenly() {
        let owners = |queues, clients| -> Vec<usize> {
            (0..queues).map(|at| owner(queues, clients, at)).collect()
        };
        assert_eq!(owners(8, 3), [0, 0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(owners(2, 4), [0, 1]);
        assert_eq!(owners(4, 2), [0, 0, 1, 1]);
    }
}
