//! How long sends take.

use super::Context;
use super::messages::writable;
use super::options::Repeat;
use crate::cli::show::{Cell, Document, Failure, Outcome, Table, clean, local_time, now_ms};
use clap::Args;
use ringmq::client::admin::{Admin, Broker, Outgoing, Select};
use std::time::{Duration, Instant};

/// Most messages of one check.
const MESSAGES_MAX: i64 = 100_000;
/// Longest message of a check, in bytes.
const BYTES_MAX: i64 = 4 << 20;

/// One send after the other, and how long each took.
struct Check {
    took: Vec<Duration>,
    failed: Vec<String>,
}

impl Check {
    fn run(admin: &mut Admin, address: &str, topic: &str, count: usize, bytes: usize) -> Check {
        let body = vec![b'a'; bytes];
        let message = Outgoing {
            topic,
            body: &body,
            ..Outgoing::default()
        };
        let mut check = Check {
            took: Vec::with_capacity(count),
            failed: Vec::new(),
        };
        // The connection is made before anything is measured.
        let _ = admin.runtime_info(address);
        for _ in 0..count {
            let begin = Instant::now();
            match admin.send(address, &message) {
                Ok(receipt) if receipt.status == "SEND_OK" => check.took.push(begin.elapsed()),
                Ok(receipt) => check.failed.push(receipt.status.to_owned()),
                Err(error) => check.failed.push(error.to_string()),
            }
        }
        check.took.sort_unstable();
        check
    }

    fn at(&self, share: f64) -> Cell {
        let index = ((self.took.len() as f64) * share) as usize;
        Cell::of(
            self.took.get(index.min(self.took.len().saturating_sub(1))),
            millis,
        )
    }

    fn average(&self) -> Option<Duration> {
        let sum: Duration = self.took.iter().sum();
        sum.checked_div(self.took.len() as u32)
    }

    /// Sent, failed, average, median, 99 %, longest.
    fn cells(&self) -> [Cell; 6] {
        [
            Cell::Count(self.took.len() as i64),
            Cell::Count(self.failed.len() as i64),
            Cell::of(self.average().as_ref(), millis),
            self.at(0.5),
            self.at(0.99),
            self.at(1.0),
        ]
    }
}

const COLUMNS: [(&str, &str); 6] = [
    ("sent", "SENT"),
    ("failed", "FAILED"),
    ("averageMs", "AVERAGE (ms)"),
    ("p50Ms", "P50 (ms)"),
    ("p99Ms", "P99 (ms)"),
    ("maxMs", "MAX (ms)"),
];

fn millis(took: &Duration) -> Cell {
    let ms = (took.as_secs_f64() * 1e6).round() / 1e3;
    Cell::Json(serde_json::json!(ms))
}

/// The failure of a check in which nothing succeeded, else what failed once each.
fn judge(check: &Check, broker: &str) -> Result<Vec<String>, Failure> {
    let mut failed = check.failed.clone();
    failed.sort();
    failed.dedup();
    match (check.took.is_empty(), failed.first()) {
        (true, Some(first)) => Err(Failure::failed(format!("broker {broker:?}: {first}"))),
        _ => Ok(failed),
    }
}

fn one(
    context: &mut Context,
    topic: &str,
    broker: Option<&str>,
    count: i64,
    bytes: i64,
) -> Outcome {
    let broker = writable(context, topic, broker)?;
    let (count, bytes) = (count as usize, bytes as usize);
    let check = Check::run(&mut context.admin, &broker.address, topic, count, bytes);
    let faults = judge(&check, &broker.name)?;
    let mut table = Table::new("sends", &COLUMNS, "nothing was sent");
    table.row(check.cells());
    Ok(Document::new()
        .field("topic", "Topic", Cell::text(topic))
        .field("brokerName", "Broker", Cell::text(&broker.name))
        .field("size", "Message", Cell::Bytes(bytes as i64))
        .table(table)
        .faults(faults))
}

/// `checkMsgSendRT`.
#[derive(Debug, Args)]
pub struct CheckMsgSendRt {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// How many messages.
    #[arg(short = 'a', long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=MESSAGES_MAX))]
    amount: i64,

    /// Bytes of each.
    #[arg(short = 's', long, default_value_t = 128, value_parser = clap::value_parser!(i64).range(1..=BYTES_MAX))]
    size: i64,
}

impl CheckMsgSendRt {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        one(context, &self.topic, None, self.amount, self.size)
    }
}

/// `sendMsgStatus`.
#[derive(Debug, Args)]
pub struct SendMsgStatus {
    /// The broker, by name; its own topic is sent to.
    #[arg(short = 'b', long = "broker", aliases = ["brokerName", "broker-name"])]
    broker: String,

    /// Bytes of each message.
    #[arg(short = 's', long = "message-size", default_value_t = 128, value_parser = clap::value_parser!(i64).range(1..=BYTES_MAX))]
    size: i64,

    /// How many messages.
    #[arg(short = 'c', long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=MESSAGES_MAX))]
    count: i64,
}

impl SendMsgStatus {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let broker = Some(self.broker.as_str());
        one(context, &self.broker, broker, self.count, self.size)
    }
}

/// `clusterRT`.
#[derive(Debug, Args)]
pub struct ClusterRt {
    /// How many messages to each broker.
    #[arg(short = 'a', long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=MESSAGES_MAX))]
    amount: i64,

    /// Bytes of each.
    #[arg(short = 's', long, default_value_t = 128, value_parser = clap::value_parser!(i64).range(1..=BYTES_MAX))]
    size: i64,

    /// Only this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,

    /// Lines for a log: time, machine room, cluster, broker, and average in whole milliseconds.
    #[arg(short = 'p', long = "print-log", default_value_t = false, action = clap::ArgAction::Set,
          value_name = "true|false")]
    print_log: bool,

    /// The machine room in these lines.
    #[arg(short = 'm', long, default_value = "noname", value_name = "NAME")]
    machine_room: String,

    #[command(flatten)]
    pub(super) repeat: Repeat,
}

impl ClusterRt {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let select = match &self.cluster {
            Some(cluster) => Select::Cluster(cluster),
            None => Select::All,
        };
        let brokers = context.admin.brokers(select, true)?;
        let mut columns = vec![("cluster", "CLUSTER"), ("brokerName", "BROKER")];
        columns.extend(COLUMNS);
        let mut table = Table::new("sends", &columns, "no brokers");
        let (mut lines, mut faults) = (String::new(), Vec::new());
        for broker in brokers {
            // Every broker has a topic that is named as its cluster.
            let check = Check::run(
                &mut context.admin,
                &broker.address,
                &broker.cluster,
                self.amount as usize,
                self.size as usize,
            );
            match judge(&check, &broker.name) {
                Ok(failed) => faults.extend(failed),
                Err(failure) => faults.push(failure.message),
            }
            lines.push_str(&self.log_line(&broker, &check));
            let mut row = vec![Cell::Text(broker.cluster), Cell::Text(broker.name)];
            row.extend(check.cells());
            table.row(row);
        }
        let document = Document::new().faults(faults);
        Ok(match self.print_log {
            true => document.text("log", lines),
            false => document.table(table),
        })
    }

    /// The line of one broker; without an average where nothing was stored.
    fn log_line(&self, broker: &Broker, check: &Check) -> String {
        let time = local_time(now_ms());
        let second = time
            .split_once('.')
            .map_or(time.as_str(), |(second, _)| second);
        let average = check.average();
        let ms = average.map_or(String::new(), |average| {
            format!("{:.0}", average.as_secs_f64() * 1e3)
        });
        let fields = [
            second,
            &self.machine_room,
            &broker.cluster,
            &broker.name,
            &ms,
        ];
        fields.map(clean).join("|") + "\n"
    }
}
