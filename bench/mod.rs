//! `ringmq bench`: loads a broker that speaks RocketMQ's protocol, and measures it.

pub mod compare;
pub mod load;
pub mod measure;
pub mod options;
pub mod report;
pub mod result;
pub mod target;
pub mod verify;
pub mod workload;

use clap::Subcommand;
use load::clock;
use options::{Common, Consume, EndToEnd, FanOut, Mixed, Produce, Restart};
use report::progress::Progress;
use report::{html, table};
use result::Report;
use std::fs;
use std::io::Write;
use workload::{Spec, run_workload};

const PRODUCE: &str = "\
Examples:
  ringmq bench produce
      As fast as answers come: 4 connections, 16 requests each, 1 KiB, for 10 seconds.
  ringmq bench produce --broker 10.0.0.5:10911 --connections 64 --mode sync
      One request at a time on each of 64 connections.
  ringmq bench produce --rate 10000 --seconds 60
      10,000 messages a second, whatever the answers do: latency from the intended time.
  ringmq bench produce --batch 32 --size-distribution list:128=80,4096=20 --json run.json
      Batches of small messages with some larger ones; the result as a file, too.
  ringmq bench produce --nameserver 10.0.0.1:9876 --topics 100 --queues 4 --connections 2000";

const CONSUME: &str = "\
Examples:
  ringmq bench consume --fill 1000000
      Puts a million messages into a new topic, then reads it from the start.
  ringmq bench consume --topic orders --queues 8
      Reads what is there.
  ringmq bench consume --topic orders --queues 8 --tail --seconds 30
      Waits for what others send: with `bench produce` on this machine with its latency.";

const END_TO_END: &str = "\
Examples:
  ringmq bench e2e --rate 5000
      From the intended time of a send until a waiting consumer has the message.
  ringmq bench e2e --rate 1000 --queues 1 --consumers 1 --seconds 60";

const FAN_OUT: &str = "\
Example:
  ringmq bench fanout --groups 10 --rate 2000
      Each message is sent once and received ten times.";

const MIXED: &str = "\
Example:
  ringmq bench mixed --rate 20000 --fill 2000000
      Latency of sends alone, and beside a consumer that reads two million old messages.";

const RESTART: &str = "\
Examples:
  ringmq bench restart --topic T --restart-command 'systemctl restart ringmq' --seconds 30
  ringmq bench restart --topic T --restart-command 'kill -9 $(cat pid); ./start-broker'
      How long sends stand still, and whether anything acknowledged was lost.";

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Sends messages, then reads every acknowledged one back.
    #[command(after_help = PRODUCE)]
    Produce(Produce),
    /// Reads a topic from the start, or with --tail what others send.
    #[command(after_help = CONSUME)]
    Consume(Consume),
    /// Sends at a rate and receives with consumers that wait: latency from end to end.
    #[command(after_help = END_TO_END)]
    E2e(EndToEnd),
    /// The same with several groups that read everything each.
    #[command(after_help = FAN_OUT)]
    Fanout(FanOut),
    /// Sends without and with a consumer beside that reads old messages.
    #[command(after_help = MIXED)]
    Mixed(Mixed),
    /// Sends while the broker is stopped and started again.
    #[command(after_help = RESTART)]
    Restart(Restart),
    /// Sets RingMQ against Apache RocketMQ under the same load, in turn, on this machine.
    Compare(compare::Compare),
}

impl BenchCommand {
    /// Does it. Returns whether all went well; figures never make it fail.
    ///
    /// # Errors
    /// Text with what is in the way.
    pub fn run(&self) -> Result<bool, String> {
        match self {
            BenchCommand::Produce(produce) => measure(&produce.common, &produce.spec()),
            BenchCommand::Consume(consume) => measure(&consume.common, &consume.spec()),
            BenchCommand::E2e(e2e) => measure(&e2e.common, &e2e.spec()),
            BenchCommand::Fanout(fanout) => measure(&fanout.end_to_end.common, &fanout.spec()),
            BenchCommand::Mixed(mixed) => measure(&mixed.produce.common, &mixed.spec()),
            BenchCommand::Restart(restart) => measure(&restart.produce.common, &restart.spec()),
            BenchCommand::Compare(compare) => compare.run(),
        }
    }
}

/// Runs one workload, and shows and writes what it found.
fn measure(common: &Common, spec: &Spec) -> Result<bool, String> {
    let mut report = Report {
        command: std::env::args().collect::<Vec<_>>().join(" "),
        began_ms: clock::epoch_ms(),
        machine: measure::machine::machine(),
        ..Report::default()
    };
    let run = run_workload(spec, &common.target(), &Progress::new());
    let (text, error) = (table::text(&run), run.error.clone());
    report.runs.push(run);
    // Files first: whoever reads the output may be gone, as with `| head`.
    let written = write_files(common, &report);
    let _ = std::io::stdout().write_all(text.as_bytes());
    match (error, written) {
        (None, Ok(())) => Ok(true),
        (Some(error), Ok(())) | (None, Err(error)) => Err(error),
        (Some(error), Err(also)) => Err(format!("{error}; {also}")),
    }
}

/// Writes the files that were asked for.
fn write_files(common: &Common, report: &Report) -> Result<(), String> {
    if let Some(path) = &common.json {
        let text = serde_json::to_string_pretty(report)
            .map_err(|error| format!("the result is no JSON: {error}"))?;
        fs::write(path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    if let Some(path) = &common.html {
        fs::write(path, html::page(report))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}
