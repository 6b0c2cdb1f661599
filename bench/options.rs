//! Options of the commands, and the specifications that they make.

use super::load::payload::SizeDistribution;
use super::target::Target;
use super::workload::{Mode, Spec, Workload};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Where the load goes and what becomes of the result.
#[derive(Debug, Args)]
pub struct Common {
    /// The broker, as host:port [default: 127.0.0.1:10911].
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "nameserver")]
    pub broker: Option<String>,

    /// A nameserver: the load goes to all brokers that have the topic, or to all there are.
    #[arg(long, value_name = "HOST:PORT")]
    pub nameserver: Option<String>,

    /// Process of the broker, if it is on this machine [default: the one that listens at its port].
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,

    /// Topic to use, made if it is not there [default: a new one, deleted at the end].
    #[arg(long, value_name = "NAME")]
    pub topic: Option<String>,

    /// Topics; above 1 their names end in -0, -1 and so on.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub topics: u32,

    /// Queues of each topic, on each broker.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub queues: u32,

    /// Threads that send, and as many that read.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,

    /// Longest wait for an answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub timeout: f64,

    /// Does not look for what was acknowledged, nor at what was read.
    #[arg(long)]
    pub no_verify: bool,

    /// Writes the result as JSON into this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Writes the result as a page with plots into this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What is sent.
#[derive(Debug, Args)]
pub struct Sending {
    /// Connections that send.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub connections: usize,

    /// Requests of each connection that wait for their answers, at most
    /// [default: 16; with a rate 1024, fewer on more than 64 connections].
    #[arg(long, value_name = "N")]
    pub in_flight: Option<usize>,

    /// Size of the bodies, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub size: usize,

    /// Bodies of different sizes: uniform:100-2000, exponential:1024, list:128=80,4096=20.
    #[arg(long, value_name = "KIND:SIZES", conflicts_with = "size")]
    pub size_distribution: Option<SizeDistribution>,

    /// Messages of one request; above 1 they are sent as a batch.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: usize,

    /// When the next request is sent.
    #[arg(long, value_enum, default_value_t = SendMode::Pipelined)]
    pub mode: SendMode,

    /// Share of the bodies that compresses to nothing, 0 to 1.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.0,
        num_args = 0..=1,
        default_missing_value = "0.5"
    )]
    pub compressible: f64,

    /// Messages have keys, beside their unique keys.
    #[arg(long)]
    pub keys: bool,

    /// Messages have one of this many tags.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub tags: u32,
}

/// How long.
#[derive(Debug, Args)]
pub struct Duration {
    /// Length of the measured part, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub seconds: f64,

    /// Length of what goes before it and is not counted, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub warm_up: f64,
}

/// What is read.
#[derive(Debug, Args)]
pub struct Reading {
    /// Messages that a pull asks for, at most.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub max: u32,

    /// Connections that read.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub consumers: usize,
}

/// When a producer sends its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SendMode {
    /// One request at a time on each connection.
    Sync,
    /// Up to --in-flight requests at a time on each connection.
    Pipelined,
    /// Without answers.
    Oneway,
}

/// `produce`.
#[derive(Debug, Args)]
pub struct Produce {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub sending: Sending,
    #[command(flatten)]
    pub duration: Duration,
    /// Messages per second, whatever the answers do (open loop): latency counts from the
    /// intended time of each [default: as fast as answers come].
    #[arg(long, value_name = "MESSAGES/S")]
    pub rate: Option<f64>,
}

/// `consume`.
#[derive(Debug, Args)]
pub struct Consume {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub sending: Sending,
    #[command(flatten)]
    pub reading: Reading,
    /// Longest time, in seconds [default: with --tail 10, otherwise until all is read].
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Messages to put into the topic first [default: 200000 if it is empty].
    #[arg(long, value_name = "N", conflicts_with = "tail")]
    pub fill: Option<u64>,
    /// Waits for what others send from now on.
    #[arg(long)]
    pub tail: bool,
}

/// `e2e`.
#[derive(Debug, Args)]
pub struct EndToEnd {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub sending: Sending,
    #[command(flatten)]
    pub duration: Duration,
    #[command(flatten)]
    pub reading: Reading,
    /// Messages per second.
    #[arg(long, value_name = "MESSAGES/S", default_value_t = 1000.0)]
    pub rate: f64,
}

/// `fanout`.
#[derive(Debug, Args)]
pub struct FanOut {
    #[command(flatten)]
    pub end_to_end: EndToEnd,
    /// Consumer groups; each reads everything.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub groups: u32,
}

/// `mixed`.
#[derive(Debug, Args)]
pub struct Mixed {
    #[command(flatten)]
    pub produce: Produce,
    #[command(flatten)]
    pub reading: Reading,
    /// Messages that are there to be read [default: 500000].
    #[arg(long, value_name = "N")]
    pub fill: Option<u64>,
}

/// `restart`.
#[derive(Debug, Args)]
pub struct Restart {
    #[command(flatten)]
    pub produce: Produce,
    /// Shell command that stops or kills the broker and starts it again, run after a third of
    /// the time.
    #[arg(long, value_name = "COMMAND")]
    pub restart_command: String,
}

/// Requests that wait for their answers, at most, in a closed loop.
const IN_FLIGHT: usize = 16;
/// In an open loop: a broker that hesitates must not hold the sender up.
const IN_FLIGHT_OPEN: usize = 1024;
/// The same of all connections together: thousands of them need less each.
const IN_FLIGHT_OPEN_ALL: usize = 64 * 1024;

/// Longest time in which everything is read, in seconds.
const CATCH_UP_MAX: f64 = 3600.0;

impl Common {
    /// Where the load goes.
    pub fn target(&self) -> Target {
        let mut target = match (&self.broker, &self.nameserver) {
            (Some(broker), _) => Target::broker(broker),
            (None, Some(nameserver)) => Target {
                nameserver: Some(nameserver.clone()),
                ..Target::default()
            },
            (None, None) => Target::broker("127.0.0.1:10911"),
        };
        target.server_pid = self.server_pid;
        target
    }

    fn apply(&self, spec: &mut Spec) {
        spec.topic.clone_from(&self.topic);
        spec.topics = self.topics;
        spec.queues = self.queues;
        spec.threads = self.threads;
        spec.timeout = self.timeout;
        spec.verify = !self.no_verify;
    }
}

impl Sending {
    fn apply(&self, spec: &mut Spec) {
        spec.connections = self.connections;
        spec.in_flight = self.in_flight.unwrap_or(match spec.rate {
            Some(_) => {
                (IN_FLIGHT_OPEN_ALL / self.connections.max(1)).clamp(IN_FLIGHT, IN_FLIGHT_OPEN)
            }
            None => IN_FLIGHT,
        });
        let fixed = || SizeDistribution::Fixed(self.size);
        spec.size = self.size_distribution.clone().unwrap_or_else(fixed);
        spec.batch = self.batch;
        spec.mode = match self.mode {
            SendMode::Sync => Mode::Sync,
            SendMode::Pipelined => Mode::Pipelined,
            SendMode::Oneway => Mode::OneWay,
        };
        spec.compressible = self.compressible;
        spec.keys = self.keys;
        spec.tags = self.tags;
    }
}

impl Duration {
    fn apply(&self, spec: &mut Spec) {
        spec.seconds = self.seconds;
        spec.warm_up = self.warm_up;
    }
}

impl Reading {
    fn apply(&self, spec: &mut Spec) {
        spec.max = self.max;
        spec.consumers = self.consumers;
    }
}

impl Produce {
    /// What is asked for.
    pub fn spec(&self) -> Spec {
        let mut spec = Spec {
            rate: self.rate,
            ..Spec::default()
        };
        self.common.apply(&mut spec);
        self.sending.apply(&mut spec);
        self.duration.apply(&mut spec);
        spec
    }
}

impl Consume {
    /// What is asked for.
    pub fn spec(&self) -> Spec {
        let (workload, seconds) = if self.tail {
            (Workload::Tail, Spec::default().seconds)
        } else {
            (Workload::CatchUp, CATCH_UP_MAX)
        };
        let mut spec = Spec {
            workload,
            seconds: self.seconds.unwrap_or(seconds),
            warm_up: 0.0,
            fill: self.fill,
            ..Spec::default()
        };
        self.common.apply(&mut spec);
        self.sending.apply(&mut spec);
        self.reading.apply(&mut spec);
        spec
    }
}

impl EndToEnd {
    /// What is asked for.
    pub fn spec(&self) -> Spec {
        let mut spec = Spec {
            workload: Workload::EndToEnd,
            rate: Some(self.rate),
            ..Spec::default()
        };
        self.common.apply(&mut spec);
        self.sending.apply(&mut spec);
        self.duration.apply(&mut spec);
        self.reading.apply(&mut spec);
        spec
    }
}

impl FanOut {
    /// What is asked for.
    pub fn spec(&self) -> Spec {
        Spec {
            workload: Workload::FanOut,
            groups: self.groups,
            ..self.end_to_end.spec()
        }
    }
}

impl Mixed {
    /// What is asked for.
    pub fn spec(&self) -> Spec {
        let mut spec = self.produce.spec();
        spec.workload = Workload::Mixed;
        spec.fill = self.fill;
        self.reading.apply(&mut spec);
        spec
    }
}

impl Restart {
    /// What is asked for.
    pub fn spec(&self) -> Spec {
        Spec {
            workload: Workload::Restart,
            restart_command: Some(self.restart_command.clone()),
            ..self.produce.spec()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        produce: Produce,
    }

    #[test]
    fn many_connections_of_an_open_loop_have_fewer_requests_each() {
        let in_flight = |options: &[&str]| {
            let all = ["produce"].iter().chain(options);
            Command::parse_from(all).produce.spec().in_flight
        };
        assert_eq!(in_flight(&[]), 16);
        assert_eq!(in_flight(&["--rate", "9"]), 1024);
        assert_eq!(in_flight(&["--rate", "9", "--connections", "2000"]), 32);
        assert_eq!(in_flight(&["--rate", "9", "--connections", "0"]), 1024);
        assert_eq!(in_flight(&["--rate", "9", "--connections", "90000"]), 16);
        assert_eq!(in_flight(&["--rate", "9", "--in-flight", "7"]), 7);
    }
}
