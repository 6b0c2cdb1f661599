//! `ringmq tune`: what the machine does and allows, found out by trying.

use clap::{Args, Subcommand};
use ringmq::probe::io::{Blocks, FREE_BYTES_MIN, Figure, Work, measure};
use ringmq::probe::profile::IoProfile;
use ringmq::probe::ring;
use ringmq::store::{Disk, StoreLock, save_json};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Finds out what the machine does and allows, for RingMQ to make the best of it.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Measures the device of a store, and writes io-profile.json into the store's folder.
    ///
    /// A broker under SYNC_FLUSH takes from it whether it asks the device for its promise by
    /// O_DSYNC or by fdatasync, and how large its writes are, instead of a short probe at each
    /// start. The store's own files are left alone; at most 144 MiB are taken meanwhile, and
    /// given back whatever ends it.
    Io(IoArgs),
    /// Makes a ring (io_uring), as a start does, and says what is in the way if it cannot.
    ///
    /// tuning/check asks this: what filters and settings allow is known only by trying.
    /// Exit codes: 0 a ring was made, 1 it could not be.
    Ring,
}

/// What to measure, for how long.
#[derive(Debug, Args)]
pub struct IoArgs {
    /// Folder of the store; made where it is missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Time that it takes, about; twice that at most on a slow device.
    #[arg(long, value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Where the profile is written, in place of the store's folder.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl TuneCommand {
    /// Does it, with the figures on standard output.
    ///
    /// # Errors
    /// Text with what is in the way.
    pub fn run(&self) -> Result<(), String> {
        match self {
            TuneCommand::Io(args) => args.run(),
            TuneCommand::Ring => {
                ring().map_err(|missing| missing.to_string())?;
                say("a ring was made, with all operations that are used")
            }
        }
    }
}

impl IoArgs {
    fn run(&self) -> Result<(), String> {
        let dir = &self.dir;
        std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let _lock = locked(dir)?;
        say(&format!(
            "{:<38} {:>6} {:>10} {:>10} {:>11} {:>9}",
            "", "depth", "p50 us", "p99 us", "a second", "MiB/s"
        ))?;
        let time = Duration::from_secs(self.seconds);
        // What standard output refuses is told at the end: the profile is worth more than the
        // lines about it.
        let mut told = Ok(());
        let measured = measure(dir, time, |figure| {
            if told.is_ok() {
                told = say(&line(figure));
            }
        });
        let measured = measured.map_err(|error| error.to_string())?;
        let (direct, left_out) = (measured.direct, measured.left_out);
        let profile = IoProfile::new(dir, measured).map_err(|error| error.to_string())?;
        let path = self.output.clone().unwrap_or_else(|| IoProfile::path(dir));
        // So that there is a folder to be named.
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        let text = serde_json::to_vec_pretty(&profile).map_err(|error| error.to_string())?;
        save_json(&Disk, &path, &text).map_err(|error| error.to_string())?;
        told?;
        if !direct {
            say("no direct I/O here: all of this went through the page cache")?;
        }
        if left_out > 0 {
            say(&format!(
                "{left_out} cases were left out: this device is slow, give it more --seconds"
            ))?;
        }
        let choice = &profile.choice;
        say(&format!(
            "choice: {} (4 KiB kept after {:.0} us by O_DSYNC, {:.0} us by fdatasync), writes of \
             up to {} KiB",
            if choice.flush_after_write {
                "fdatasync"
            } else {
                "O_DSYNC"
            },
            choice.write_through_us,
            choice.write_and_flush_us,
            choice.write_bytes / 1024
        ))?;
        say(&format!("profile: {}", path.display()))
    }
}

/// The lock of a store that a broker has used; a folder without one is no store yet.
///
/// Figures that are found beside a broker's load are not those of the device.
fn locked(dir: &Path) -> Result<Option<StoreLock>, String> {
    if !dir.join("lock").exists() {
        return Ok(None);
    }
    match StoreLock::acquire(dir) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) => Err(format!(
            "{error}; stop it first, its load would be measured"
        )),
    }
}

fn line(figure: &Figure) -> String {
    let case = figure.case;
    let work = match case.work {
        Work::Write => "write",
        Work::WriteThrough => "write, O_DSYNC",
        Work::WriteAndFlush => "write, fdatasync",
        Work::Read => "read",
    };
    let blocks = match case.blocks {
        Blocks::Unwritten => ", new blocks",
        Blocks::Overwritten => "",
    };
    let what = format!("{work}, {} KiB{blocks}", case.bytes / 1024);
    format!(
        "{what:<38} {:>6} {:>10.1} {:>10.1} {:>11.0} {:>9.1}",
        case.depth, figure.p50_us, figure.p99_us, figure.per_second, figure.mib_per_second
    )
}

/// A line on standard output. One whose reader has gone, such as `head`, is no fault.
fn say(line: &str) -> Result<(), String> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| format!("standard output: {error}")),
    }
}

const _: () = assert!(FREE_BYTES_MIN == 2 * 144 * 1024 * 1024, "told in the help");
