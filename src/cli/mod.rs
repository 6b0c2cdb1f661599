//! The command line.

pub mod admin;
mod manual;
pub mod show;
mod status;
mod store;
mod stream;
mod tune;

use crate::bench::BenchCommand;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use ringmq::config::{Role, Sources};
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

pub use store::StoreCommand;
pub use tune::TuneCommand;

const EXAMPLES: &str = "\
Examples:
  ringmq server
      A nameserver (9876) and a broker (10911) for this machine alone, store in ./ringmq-data.
  ringmq server --set brokerIP1=10.0.0.5
      The same for everyone who can reach 10.0.0.5.
  ringmq nameserver
  ringmq broker -c broker.conf --set namesrvAddr=10.0.0.1:9876
      Apart from each other, with RocketMQ's own configuration file.
  ringmq server --set flushDiskType=SYNC_FLUSH --set autoCreateTopicEnable=false
      Acknowledged messages survive a power loss; topics are made by hand.
  ringmq status -n 10.0.0.1:9876
      Brokers, shards, topics, groups and lag on one screen, of RingMQ or of Apache RocketMQ.
  ringmq admin topicList
      mqadmin's commands under its names.
  seq 1000 | ringmq produce Orders; ringmq consume Orders
      Messages from lines and to lines.
  ringmq store check ./ringmq-data
      Reads a whole store, while no broker uses it, and says what is wrong with it.
  ringmq tune io ./ringmq-data
      Measures the store's device, for the next start with flushDiskType=SYNC_FLUSH.";

const SETTINGS: &str = "\
Settings are those of RocketMQ's broker.conf and namesrv.properties, in the file of -c and with
--set. An unknown key is an error that names the nearest known one. What a machine lacks to run
RingMQ is named at start.

Examples:
  --set listenPort=10911          --set namesrvAddr=a:9876;b:9876
  --set brokerIP1=10.0.0.5        --set bindAddress=0.0.0.0
  --set brokerName=broker-a       --set flushDiskType=SYNC_FLUSH
  --set fileReservedTime=72       --set maxMessageSize=4194304";

/// A message broker and nameserver that speaks Apache RocketMQ's protocol.
///
/// RocketMQ's clients and tools use it unchanged.
#[derive(Debug, Parser)]
#[command(name = "ringmq", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub command: Command,
}

/// What to run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A nameserver and a broker in one process.
    ///
    /// Without a configuration file, bindAddress or brokerIP1 only this machine can connect.
    #[command(after_help = SETTINGS)]
    Server(Run),
    /// A broker that registers with the nameservers of namesrvAddr.
    #[command(after_help = SETTINGS)]
    Broker(Run),
    /// A nameserver alone.
    #[command(after_help = SETTINGS)]
    Nameserver(Run),
    /// Checks or repairs a store while no broker uses it.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Finds out what the machine does and allows, for RingMQ to make the best of it.
    #[command(subcommand)]
    Tune(TuneCommand),
    /// Loads a broker, RingMQ or Apache RocketMQ, and measures it.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Asks brokers and nameservers, RingMQ's or Apache RocketMQ's, under mqadmin's names.
    Admin(admin::AdminArgs),
    /// Shows brokers, shards, topics, groups and how far they are behind.
    Status(status::StatusArgs),
    /// Sends the lines of standard input or of a file as messages.
    Produce(stream::ProduceArgs),
    /// Writes the messages of a topic.
    Consume(stream::ConsumeArgs),
    /// Writes the completions of a shell, to be read by it.
    Completions(manual::CompletionsArgs),
    /// Writes the manual page, or all of them into a folder.
    Man(manual::ManArgs),
}

/// What is asked for: something that runs until it is stopped, or work that ends.
pub enum Job {
    /// What the process runs as, and with which options.
    Run(Role, Run),
    /// Work on a store.
    Store(StoreCommand),
    /// A question to the machine.
    Tune(TuneCommand),
    /// A measurement of a broker.
    Bench(BenchCommand),
    /// A question to brokers and nameservers.
    Admin(admin::AdminArgs),
    /// A cluster on one screen.
    Status(status::StatusArgs),
    /// Messages to send.
    Produce(stream::ProduceArgs),
    /// Messages to read.
    Consume(stream::ConsumeArgs),
    /// Completions of a shell.
    Completions(manual::CompletionsArgs),
    /// Manual pages.
    Man(manual::ManArgs),
}

/// Options of everything that runs.
#[derive(Debug, Args)]
pub struct Run {
    /// RocketMQ's broker.conf or namesrv.properties, as it is.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Folder of the store [default: ./ringmq-data].
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,

    /// Event loops [default: one per core, one fewer below four cores].
    #[arg(long, value_name = "N")]
    pub shards: Option<u16>,

    /// A setting, over the file's; can be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,

    /// How log lines are written to standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Least severe level that is logged: error, warn, info, debug or trace; or one per module,
    /// `info,ringmq::store=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    pub log_level: String,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line for people.
    Text,
    /// One JSON object a line.
    Json,
}

fn log_level(text: &str) -> Result<String, String> {
    for part in text.split(',') {
        // A word that is no level would be taken for a module, and everything else silenced.
        let level = part.rsplit('=').next().unwrap_or(part);
        if level.parse::<LevelFilter>().is_err() {
            return Err(format!("{level:?} is no level"));
        }
    }
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The definition of the command line.
pub fn command() -> clap::Command {
    Cli::command().mut_subcommand("admin", admin::with_aliases)
}

impl Cli {
    /// Reads the process's own command line.
    ///
    /// # Errors
    /// What clap says of it; help and version are errors, too.
    pub fn read() -> Result<Cli, clap::Error> {
        Cli::from_arg_matches(&command().try_get_matches()?)
    }
}

impl Command {
    /// What is asked for.
    pub fn into_job(self) -> Job {
        match self {
            Command::Server(run) => Job::Run(Role::Server, run),
            Command::Broker(run) => Job::Run(Role::Broker, run),
            Command::Nameserver(run) => Job::Run(Role::Nameserver, run),
            Command::Store(command) => Job::Store(command),
            Command::Tune(command) => Job::Tune(command),
            Command::Bench(command) => Job::Bench(command),
            Command::Admin(args) => Job::Admin(args),
            Command::Status(args) => Job::Status(args),
            Command::Produce(args) => Job::Produce(args),
            Command::Consume(args) => Job::Consume(args),
            Command::Completions(args) => Job::Completions(args),
            Command::Man(args) => Job::Man(args),
        }
    }
}

impl Run {
    /// Where the settings come from.
    pub fn sources(&self, role: Role) -> Sources {
        Sources {
            role,
            file: self.config.clone(),
            sets: self.sets.clone(),
            store: self.store.clone(),
            shards: self.shards,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(Role, Run), clap::Error> {
        let job = Cli::try_parse_from(line.split(' '))?.command.into_job();
        let Job::Run(role, run) = job else {
            panic!("{line}: nothing that runs");
        };
        Ok((role, run))
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn options_follow_the_role() {
        let (role, run) = parse(
            "ringmq broker -c b.conf --store /s --shards 2 --set a=1 --set b=c=d --log-format json",
        )
        .expect("valid");
        assert_eq!(role, Role::Broker);
        let sources = run.sources(role);
        assert_eq!(sources.file, Some("b.conf".into()));
        assert_eq!(sources.store, Some("/s".into()));
        assert_eq!(sources.shards, Some(2));
        assert_eq!(sources.sets, ["a=1", "b=c=d"]);
        assert_eq!(run.log_format, LogFormat::Json);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "ringmq",
            "ringmq serve",
            "ringmq server --shards x",
            "ringmq server --log-level loud",
            "ringmq server --log-format xml",
        ] {
            assert_eq!(parse(line).expect_err("refused").exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn levels_can_be_given_by_module() {
        assert!(parse("ringmq server --log-level debug").is_ok());
        assert!(parse("ringmq server --log-level info,ringmq::store=trace").is_ok());
    }
}
