//! `ringmq bench`: loads a broker that speaks RocketMQ's protocol, and measures it.

pub mod compare;
pub mod load;
pub mod report;
pub mod result;
pub mod target;
pub mod workload;

use clap::Subcommand;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
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
            BenchCommand::Compare(compare) => compare.run(),
        }
    }
}
