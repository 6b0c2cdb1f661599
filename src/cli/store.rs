//! `ringmq store`: work on a store while no broker uses it.

use clap::{Args, Subcommand};
use ringmq::broker::offline::{self, LogRepair, StoreCheck};
use ringmq::config::{Role, Settings, Sources};
use std::path::PathBuf;

/// Work on a store while no broker uses it.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Reads a whole store and says what is wrong with it; changes nothing.
    ///
    /// Exit codes: 0 sound, 1 not sound or not to be read.
    Check(StoreArgs),
    /// Makes all queue files anew from the log.
    ///
    /// A damaged log is only cut when --cut says so.
    Repair {
        /// Ends a damaged log in front of the damage. What lies behind is kept in the
        /// store's folder, as damaged-POSITION and in damaged/.
        #[arg(long)]
        cut: bool,
        #[command(flatten)]
        args: StoreArgs,
    },
}

/// Which store.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Folder of the store.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// The broker.conf that the store is run with, for its delay levels and file sizes.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// A setting, over the file's; can be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

impl StoreCommand {
    /// Where the settings come from.
    pub fn sources(&self) -> Sources {
        let (StoreCommand::Check(args) | StoreCommand::Repair { args, .. }) = self;
        Sources {
            role: Role::Broker,
            file: args.config.clone(),
            sets: args.sets.clone(),
            store: Some(args.dir.clone()),
            shards: None,
        }
    }

    /// Does it, and returns whether the store is sound now.
    ///
    /// # Errors
    /// Text with what is in the way.
    pub fn run(&self, settings: &Settings) -> Result<bool, String> {
        match self {
            StoreCommand::Check(_) => {
                let check = offline::check(settings).map_err(|error| error.to_string())?;
                print!("{}", check_text(&check));
                Ok(check.is_sound())
            }
            StoreCommand::Repair { cut, .. } => {
                let repairs = offline::repair(settings, *cut).map_err(|error| error.to_string())?;
                print!("{}", repair_text(&repairs));
                Ok(true)
            }
        }
    }
}

fn check_text(check: &StoreCheck) -> String {
    let mut lines = Vec::new();
    for (shard, log) in check.logs.iter().enumerate() {
        let log = match log {
            Ok(log) => log,
            Err(why) => {
                lines.push(format!("log {shard}: damaged: {why}"));
                continue;
            }
        };
        lines.push(format!(
            "log {shard}: {} segments, bytes {} to {}, {} messages",
            log.segments, log.start, log.end, log.messages
        ));
        if log.in_tail > 0 {
            lines.push(format!(
                "  {} bytes more in the tail file, for the next start",
                log.in_tail
            ));
        }
        if let Some(fault) = &log.fault {
            lines.push(format!("  damaged: {fault}"));
        }
        lines.push(format!(
            "  {} queues, {} entries right, {} wrong; {} messages without an entry",
            log.queues, log.right, log.wrong, log.without_entry
        ));
        if log.other_size {
            lines.push("  queue files of another size setting: made anew by a start".to_owned());
        }
        lines.extend(log.told.iter().map(|told| format!("  wrong: {told}")));
    }
    for (path, fault) in &check.config_faults {
        lines.push(format!("{}: {fault}", path.display()));
    }
    if check.after_crash {
        lines.push("the last broker did not stop cleanly: the next start recovers".to_owned());
    }
    lines.push(
        if check.is_sound() {
            "sound"
        } else {
            "not sound"
        }
        .to_owned(),
    );
    lines.join("\n") + "\n"
}

fn repair_text(repairs: &[LogRepair]) -> String {
    let mut text = String::new();
    for (shard, repair) in repairs.iter().enumerate() {
        if let Some(position) = repair.cut_at {
            text += &format!("log {shard}: cut at byte {position}; what lay behind was kept\n");
        }
        let report = &repair.report;
        text += &format!(
            "log {shard}: {} bytes read, {} messages entered into {} queues\n",
            report.scanned, report.indexed, report.queues
        );
    }
    text
}
