//! Options that commands share.

use super::Context;
use crate::cli::show::{Failure, Format, parse_span};
use clap::Args;
use ringmq::client::admin::{Admin, Select};
use std::time::Duration;

/// Options of every command that asks brokers or nameservers.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Nameservers, HOST:PORT with ; between them.
    #[arg(
        short = 'n',
        long = "nameserver",
        alias = "namesrvAddr",
        value_name = "ADDRESSES",
        env = "NAMESRV_ADDR",
        default_value = "127.0.0.1:9876",
        global = true
    )]
    pub nameserver: String,

    /// How the answer is written.
    #[arg(long, value_enum, default_value_t, global = true)]
    pub output: Format,

    /// Does what cannot be undone without asking.
    #[arg(short = 'y', long, global = true)]
    pub yes: bool,

    /// How long each request may take: 5s, 500ms.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout, global = true)]
    pub timeout: Duration,
}

impl Common {
    /// An operator with these options. Nothing is connected yet.
    ///
    /// # Errors
    /// The nameservers are no addresses.
    pub fn connect(&self) -> Result<Context, Failure> {
        let admin = Admin::new(&self.nameserver, self.timeout).map_err(|error| Failure {
            code: crate::cli::show::exit::USAGE,
            ..Failure::from(error)
        })?;
        Ok(Context {
            admin,
            yes: self.yes,
        })
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    match parse_span(text)? {
        ms @ 1..=600_000 => Ok(Duration::from_millis(ms as u64)),
        _ => Err("from 1ms to 600s".to_owned()),
    }
}

/// Which brokers a command is about.
#[derive(Clone, Debug, Default, Args)]
pub struct Target {
    /// A broker, by name or HOST:PORT.
    #[arg(
        short = 'b',
        long = "broker",
        aliases = ["brokerAddr", "brokerName", "broker-addr", "broker-name"],
        value_name = "BROKER"
    )]
    pub broker: Option<String>,

    /// All brokers of a cluster.
    #[arg(
        short = 'c',
        long = "cluster",
        aliases = ["clusterName", "cluster-name"],
        value_name = "CLUSTER",
        conflicts_with = "broker"
    )]
    pub cluster: Option<String>,
}

impl Target {
    /// What is meant; all brokers where nothing is said.
    pub fn select(&self) -> Select<'_> {
        match (&self.broker, &self.cluster) {
            (Some(broker), _) => Select::Broker(broker),
            (None, Some(cluster)) => Select::Cluster(cluster),
            (None, None) => Select::All,
        }
    }
}

/// Whether a command shows its answer again and again.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Repeat {
    /// Again every so many seconds, until Ctrl-C.
    #[arg(short = 'i', long, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
}

impl Repeat {
    /// Time between two answers.
    pub fn interval(&self) -> Option<Duration> {
        self.interval.map(Duration::from_secs)
    }
}

/// The bits of a permission: their sum (`6`), or letters (`rw`).
///
/// # Errors
/// Text with the forms.
pub fn parse_permission(text: &str) -> Result<i32, String> {
    match text {
        "r" => Ok(4),
        "w" => Ok(2),
        "rw" | "wr" => Ok(6),
        _ => match text.parse() {
            Ok(bits @ 0..=7) => Ok(bits),
            _ => Err("6 or rw, 4 or r, 2 or w; with 1 more it is handed on to new topics".into()),
        },
    }
}
