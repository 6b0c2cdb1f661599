//! `clusterList`.

use super::brokers::Figures;
use super::options::Repeat;
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Outcome, Table, now_ms};
use clap::Args;
use std::collections::BTreeMap;

/// `clusterList`.
#[derive(Debug, Args)]
pub struct ClusterList {
    /// Only this cluster.
    #[arg(short = 'c', long = "cluster", aliases = ["clusterName", "cluster-name"])]
    cluster: Option<String>,

    /// Also how many messages came and went yesterday and today.
    #[arg(short = 'm', long)]
    more_stats: bool,

    #[command(flatten)]
    pub(super) repeat: Repeat,
}

impl ClusterList {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: None,
            cluster: self.cluster.clone(),
        };
        let brokers = context.brokers(&target)?;
        let mut columns = vec![
            ("cluster", "CLUSTER"),
            ("brokerName", "BROKER"),
            ("brokerId", "ID"),
            ("address", "ADDRESS"),
            ("version", "VERSION"),
            ("state", "STATE"),
            ("putTps", "IN"),
            ("getTps", "OUT"),
            ("sendQueue", "SENDS WAITING"),
            ("pullQueue", "PULLS WAITING"),
            ("keptMs", "KEPT SINCE"),
            ("diskRatio", "DISK"),
        ];
        if self.more_stats {
            columns.extend([
                ("putYesterday", "IN YESTERDAY"),
                ("getYesterday", "OUT YESTERDAY"),
                ("putToday", "IN TODAY"),
                ("getToday", "OUT TODAY"),
            ]);
        }
        let mut table = Table::new("brokers", &columns, "no brokers");
        let mut faults = Vec::new();
        for broker in brokers {
            let figures = match context.admin.runtime_info(&broker.address) {
                Ok(figures) => figures,
                Err(error) => {
                    faults.push(error.broker(&broker.name).to_string());
                    BTreeMap::new()
                }
            };
            let figures = Figures(&figures);
            let earliest = figures.int("earliestMessageTimeStamp");
            let kept = earliest
                .filter(|&time| time > 0)
                .map(|time| now_ms().saturating_sub(time));
            let state = match figures.0.get("brokerActive").map(String::as_str) {
                Some("true") => Cell::Good("active".to_owned()),
                Some(_) => Cell::Bad("starting".to_owned()),
                None => Cell::Bad("unreachable".to_owned()),
            };
            let mut row = vec![
                Cell::Text(broker.cluster),
                Cell::Text(broker.name),
                Cell::Plain(broker.id),
                Cell::Text(broker.address),
                figures.text("brokerVersionDesc"),
                state,
                Cell::of(figures.first("putTps"), Cell::Rate),
                Cell::of(figures.first("getTransferredTps"), Cell::Rate),
                Cell::of(figures.int("sendThreadPoolQueueSize"), Cell::Count),
                Cell::of(figures.int("pullThreadPoolQueueSize"), Cell::Count),
                Cell::of(kept, Cell::Span),
                Cell::of(figures.first("commitLogDiskRatio"), Cell::Share),
            ];
            if self.more_stats {
                let between = |from: &str, to: &str| {
                    let (from, to) = (figures.int(from), figures.int(to));
                    Cell::of(from.zip(to), |(from, to)| {
                        Cell::Count(to.saturating_sub(from))
                    })
                };
                row.extend([
                    between("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning"),
                    between("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning"),
                    between("msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
                    between("msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
                ]);
            }
            table.row(row);
        }
        Ok(Document::new().table(table).faults(faults))
    }
}
