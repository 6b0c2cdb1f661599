//! `ringmq bench compare`: RingMQ and Apache RocketMQ under the same load, in turn, on this machine.

mod apache;
mod ask;
mod broker;
mod campaign;
mod cells;
mod figures;
mod java;
pub mod judge;
mod measure;
mod notes;
mod process;
mod space;
pub mod statistics;
pub mod table;
pub mod units;

use crate::bench::load::clock::epoch_ms;
use crate::bench::measure::machine::machine;
use crate::bench::report::html;
use crate::bench::result::{Machine, Report, Run};
use apache::Apache;
use broker::{Kind, Setup};
use campaign::Campaign;
use cells::CellPlan;
use clap::Args;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const GIB: u64 = 1 << 30;

/// Heap of Apache's broker where the machine has [`MEMORY_BYTES_WANTED`].
const HEAP_BYTES: u64 = 4 * GIB;

/// Memory below which Apache's broker gets a smaller heap.
const MEMORY_BYTES_WANTED: u64 = 12 * GIB;

/// Heap in the quick form, which is about errors and not about figures.
const HEAP_BYTES_QUICK: u64 = GIB;

/// Smallest heap with which Apache's broker is started.
const HEAP_BYTES_MIN: u64 = GIB / 2;

/// Most bytes that a broker's files may take before it gets an empty store.
const STORED_BYTES_MAX: u64 = 12 * GIB;

/// Share of the free space that both brokers' files and one run more may take.
const SPACE_PARTS: u64 = 4;

/// Bytes a second that a store grows by, at most, where as much is sent as the broker takes.
const STORED_PER_SECOND_MAX: f64 = 1.8e9;

/// Shortest such run, in seconds, however little space there is: where it does not last, sends are
/// refused, and the run fails.
const CLOSED_SECONDS_MIN: f64 = 2.0;

/// Least free space with which a run begins.
const SPACE_BYTES_MIN: u64 = 3 * GIB;

/// Rate at which a fast broker is read from the start, messages a second.
const READ_PER_SECOND: f64 = 700e3;

/// Share of a run's length that reading shall take at that rate.
const READING_PART: f64 = 0.2;

/// Shortest reading at that rate, in seconds.
const READING_MIN: f64 = 3.0;

/// Most messages that are read from the start.
const MESSAGES_TO_READ_MAX: f64 = 5e6;

/// The same in the quick form.
const MESSAGES_TO_READ_QUICK: u64 = 100_000;

/// Bytes that a message to be read takes in a store, with its index entries.
const STORED_BYTES_PER_MESSAGE: u64 = 1200;

/// Share of a store's greatest size that messages to be read may take.
const READ_PARTS: u64 = 3;

/// Greatest length that can be asked for, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// Options of `ringmq bench compare`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Compare {
    /// Rounds; each measures every cell once on both brokers.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,

    /// Cells: names or parts of names with commas between, `*` for anything.
    #[arg(long, value_name = "PATTERN")]
    pub cells: Option<String>,

    /// Length of a run, in seconds [default: 20; quick 3].
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub seconds: Option<f64>,

    /// Length of the load that each broker gets after its start, in seconds [default: 40; quick 6].
    ///
    /// A virtual machine is cold without it.
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub first_load: Option<f64>,

    /// One short round of a few cells: whether everything works, not how fast.
    #[arg(long)]
    pub quick: bool,

    /// A distribution of Apache RocketMQ or a folder with its jars, instead of Maven's.
    #[arg(long, value_name = "DIR")]
    pub apache_dir: Option<PathBuf>,

    /// Where both stores are made, each in a folder of its own that is deleted at the end [default:
    /// the working directory].
    ///
    /// A file system in memory must be named: SYNC_FLUSH measures no device there.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Writes everything that was measured.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Writes it as a page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Writes the table of figures as Markdown.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// Shows the cells and what is asked for in them, and measures nothing.
    #[arg(long)]
    pub list: bool,

    /// Shows what an earlier run wrote with --json, and measures nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "list", "cells"])]
    pub from: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  ringmq bench compare --html compare.html --json compare.json
      All cells, three rounds of 20 s: about an hour and a half.
  ringmq bench compare --cells 'async-4x16,e2e' --rounds 1 --seconds 10
  ringmq bench compare --quick
      Two minutes. Fails on a refused send, a lost message, a broker that died.
  ringmq bench compare --from compare.json --html compare.html --markdown table.md

Needs Java 17, and Maven unless --apache-dir is given. Nothing else should run on the machine.
Exit code: 1 if anything failed. A figure never fails.";

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "{text:?} is no number of seconds from 1 to {SECONDS_MAX}"
        )),
    }
}

impl Compare {
    /// Does it. Returns whether every cell was measured without an error.
    ///
    /// # Errors
    /// Text with what is in the way.
    pub fn run(&self) -> Result<bool, String> {
        if self.list {
            print(&list(&self.plans()?));
            return Ok(true);
        }
        if let Some(file) = &self.from {
            return self.show(&read(file)?);
        }
        let plans = self.plans()?;
        let parent = self.dir.clone().unwrap_or_else(|| PathBuf::from("."));
        fs::create_dir_all(&parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        // Before anything is measured: a report that cannot be written is an hour for nothing.
        for file in [&self.json, &self.html, &self.markdown]
            .into_iter()
            .flatten()
        {
            can_be_written(file)?;
        }
        let machine = Machine {
            file_system: space::file_system(&parent),
            ..machine()
        };
        let in_memory = space::in_memory(&machine.file_system, &parent, self.dir.is_some())?;
        process::clean_up_at_a_sudden_end()?;
        let campaign = self.campaign(plans, &parent, machine.memory_bytes)?;
        let floor = notes::floor(if self.quick { 1 } else { 4 })?;
        let mut report = Report {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            began_ms: epoch_ms(),
            notes: self
                .notes(&campaign)
                .into_iter()
                .chain([floor])
                .chain(in_memory)
                .collect(),
            machine,
            ..Report::default()
        };
        let outcome = campaign.run(&mut report);
        report.cells = figures::cells(&campaign.cells, &report.runs);
        report.notes.extend(notes::of_runs(&report.runs));
        let sound = self.show(&report)?;
        outcome?;
        Ok(sound)
    }

    fn plans(&self) -> Result<Vec<CellPlan>, String> {
        let all = cells::all();
        match &self.cells {
            Some(pattern) => cells::matching(pattern, all),
            None if self.quick => Ok(all.into_iter().filter(|cell| cell.quick).collect()),
            None => Ok(all),
        }
    }

    fn campaign(
        &self,
        cells: Vec<CellPlan>,
        parent: &Path,
        memory_bytes: u64,
    ) -> Result<Campaign, String> {
        let apache = Apache::find(self.apache_dir.as_deref())?;
        let free = space::free_bytes(parent).unwrap_or(u64::MAX);
        let quick = self.quick;
        let seconds = self.seconds.unwrap_or(if quick { 3.0 } else { 20.0 });
        let stored_bytes_max = STORED_BYTES_MAX.min(free / SPACE_PARTS);
        let warm_up = if quick { 1.0 } else { 3.0 };
        Ok(Campaign {
            cells,
            rounds: if quick { 1 } else { self.rounds },
            seconds,
            closed_seconds: closed_seconds(free, warm_up),
            warm_up,
            first_load: self.first_load.unwrap_or(if quick { 6.0 } else { 40.0 }),
            messages_to_read: if quick {
                MESSAGES_TO_READ_QUICK
            } else {
                messages_to_read(seconds, stored_bytes_max)
            },
            setup: Setup {
                apache,
                // Both brokers start elsewhere.
                parent: fs::canonicalize(parent)
                    .map_err(|error| format!("{}: {error}", parent.display()))?,
                heap_bytes: heap_bytes(memory_bytes, quick),
                // A broker that is hardly warm refuses sends that waited 200 ms.
                apache_settings: if quick {
                    vec!["waitTimeMillsInSendQueue=5000".to_owned()]
                } else {
                    Vec::new()
                },
            },
            stored_bytes_max,
        })
    }

    /// What a reader must know.
    fn notes(&self, campaign: &Campaign) -> Vec<String> {
        let setup = &campaign.setup;
        let heap = gib(setup.heap_bytes);
        let mut notes = vec![
            notes::versions(&setup.apache.java),
            format!(
                "{} has a heap of {heap} and the JVM flags of its runbroker.sh ({}); both brokers have their \
                 default settings otherwise, the same flushDiskType, and a store in the same file system.",
                setup.name(Kind::Apache),
                broker::jvm(setup.heap_bytes).join(" ")
            ),
            format!(
                "Each broker was loaded for {:.0} s after its start. While one is measured, the other's processes \
                 are stopped (SIGSTOP), and before each start and each run all files are written to the device. A new topic for each run. \
                 Client and broker share the machine.",
                campaign.first_load
            ),
            "CPU-seconds are those of the broker's process, user and system. Resident memory counts mapped files \
             of the store that are in memory, too."
                .to_owned(),
        ];
        if !self.quick && setup.heap_bytes < HEAP_BYTES {
            notes.push(format!(
                "The machine has less than {}: the heap is smaller than the {} of a full comparison.",
                gib(MEMORY_BYTES_WANTED),
                gib(HEAP_BYTES)
            ));
        }
        if campaign.closed_seconds < campaign.seconds {
            notes.push(format!(
                "Closed loops of sends were run for {:.1} s: in longer ones a fast broker would fill the file \
                 system.",
                campaign.closed_seconds
            ));
        }
        if self.quick {
            notes.push(
                "Quick form: a smaller heap, waitTimeMillsInSendQueue=5000 at Apache's broker, and runs that are \
                 too short to judge figures by."
                    .to_owned(),
            );
        }
        notes
    }

    /// Prints and writes a report; whether nothing in it failed for good.
    fn show(&self, report: &Report) -> Result<bool, String> {
        let mut text = table::text(report);
        for note in &report.notes {
            text += &format!("{note}\n");
        }
        print(&text);
        let write = |file: &Option<PathBuf>, text: &dyn Fn() -> Result<String, String>| {
            let Some(file) = file else { return Ok(()) };
            fs::write(file, text()?).map_err(|error| format!("{}: {error}", file.display()))
        };
        write(&self.json, &|| {
            serde_json::to_string_pretty(report).map_err(|error| error.to_string())
        })?;
        write(&self.html, &|| Ok(html::page(report)))?;
        write(&self.markdown, &|| Ok(table::markdown(report)))?;
        Ok(sound(report))
    }
}

/// Longest run for which a part of the free space is enough, whatever the broker takes, after a
/// warm-up.
fn closed_seconds(free: u64, warm_up: f64) -> f64 {
    let enough = (free / SPACE_PARTS) as f64 / STORED_PER_SECOND_MAX;
    (enough - warm_up).max(CLOSED_SECONDS_MIN)
}

/// Whether every cell was measured, and nothing failed; a run that went well when it was made
/// again is told but does not count.
fn sound(report: &Report) -> bool {
    let made_again = |failed: &Run| {
        report.runs.iter().any(|run| {
            run.error.is_none()
                && run.cell == failed.cell
                && run.round == failed.round
                && run.broker == failed.broker
        })
    };
    let mut failed = report.runs.iter().filter(|run| run.error.is_some());
    failed.all(made_again)
}

/// On standard output. That nobody reads it any more must not keep files from being written.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// That a report can be written to `file`, of which the old content stays until then.
fn can_be_written(file: &Path) -> Result<(), String> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(false).open(file);
    let told = |error| format!("{}: {error}", file.display());
    opened.map(|_| ()).map_err(told)
}

/// Messages that are put into a topic before it is read, for runs of this length.
fn messages_to_read(seconds: f64, stored_bytes_max: u64) -> u64 {
    let reading = (seconds * READING_PART).max(READING_MIN);
    let wanted = (reading * READ_PER_SECOND).min(MESSAGES_TO_READ_MAX);
    let room = stored_bytes_max / READ_PARTS / STORED_BYTES_PER_MESSAGE;
    (wanted as u64).min(room.max(MESSAGES_TO_READ_QUICK))
}

fn heap_bytes(memory_bytes: u64, quick: bool) -> u64 {
    let whole = |bytes: u64| (bytes >> 28) << 28;
    let heap = if memory_bytes >= MEMORY_BYTES_WANTED {
        HEAP_BYTES
    } else {
        whole(memory_bytes / 4).clamp(HEAP_BYTES_MIN, HEAP_BYTES)
    };
    if quick {
        heap.min(HEAP_BYTES_QUICK)
    } else {
        heap
    }
}

/// Memory as it is sold and configured: `4 GiB`, `0.5 GiB`.
fn gib(bytes: u64) -> String {
    format!("{} GiB", bytes as f64 / GIB as f64)
}

/// That there is room for a run.
fn ask_for_space(folder: &Path, stored_bytes_max: u64) -> Result<(), String> {
    let wanted = SPACE_BYTES_MIN.max(stored_bytes_max / 2);
    match space::free_bytes(folder) {
        Some(free) if free < wanted => Err(format!(
            "{} has {} free, and a run may need {}: choose another folder with --dir",
            folder.display(),
            units::bytes(free as f64),
            units::bytes(wanted as f64)
        )),
        _ => Ok(()),
    }
}

fn read(file: &Path) -> Result<Report, String> {
    let told = |error: String| format!("{}: {error}", file.display());
    let text = fs::read(file).map_err(|error| told(error.to_string()))?;
    let mut report: Report =
        serde_json::from_slice(&text).map_err(|error| told(error.to_string()))?;
    // Older files have rounds of cells alone.
    for cell in &mut report.cells {
        for figure in &mut cell.figures {
            if figure.is_measured() && figure.rounds == 0 {
                figure.rounds = cell.rounds;
            }
        }
    }
    Ok(report)
}

/// The cells with what is asked for.
fn list(plans: &[CellPlan]) -> String {
    let mut text = String::new();
    for plan in plans {
        let quick = if plan.quick { " (quick)" } else { "" };
        text += &format!("{}{quick}\n    {}\n", plan.name, plan.title);
        for asked in &plan.asked {
            let figure = crate::bench::result::Figure {
                unit: asked.measure.unit().to_owned(),
                more_is_better: asked.measure.more_is_better(),
                bar: asked.bar,
                limit: asked.limit,
                ..Default::default()
            };
            let line = format!("    {:<26}{}", asked.measure.name(), judge::asked(&figure));
            text += line.trim_end();
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_get_a_small_heap() {
        for (memory, quick, heap) in [
            (24 * GIB, false, 4 * GIB),
            (12 * GIB, false, 4 * GIB),
            (8 * GIB, false, 2 * GIB),
            (GIB, false, GIB / 2),
            (24 * GIB, true, GIB),
            (2 * GIB, true, GIB / 2),
        ] {
            assert_eq!(heap_bytes(memory, quick), heap, "{memory} {quick}");
        }
    }

    #[test]
    fn lengths_have_bounds() {
        for text in ["0", "0.9", "-3", "nan", "inf", "1e300", "86401", "x"] {
            assert!(positive(text).is_err(), "{text}");
        }
        for (text, seconds) in [("1", 1.0), ("2.5", 2.5), ("86400", 86_400.0)] {
            assert_eq!(positive(text), Ok(seconds));
        }
    }

    #[test]
    fn reading_lasts_three_seconds_where_there_is_room() {
        for (seconds, stored_bytes_max, messages) in [
            (1.0, STORED_BYTES_MAX, 2_100_000),
            (20.0, STORED_BYTES_MAX, 2_800_000),
            (600.0, 100 * GIB, 5_000_000),
            (20.0, 1_800_000_000, 500_000),
            (20.0, 0, MESSAGES_TO_READ_QUICK),
        ] {
            let found = messages_to_read(seconds, stored_bytes_max);
            assert_eq!(found, messages, "{seconds} {stored_bytes_max}");
        }
    }

    #[test]
    fn runs_of_closed_loops_are_as_long_as_a_part_of_the_space_lasts() {
        for (free, seconds) in [(u64::MAX, 1e9), (72_000_000_000, 7.0), (1 << 30, 2.0)] {
            let found = closed_seconds(free, 3.0);
            assert_eq!(found.min(1e9), seconds, "{free}");
        }
    }

    #[test]
    fn an_old_report_stays_until_there_is_a_new_one() {
        let folder = process::Folder::new_in(&std::env::temp_dir(), "test-report").expect("one");
        let file = folder.path().join("report.json");
        fs::write(&file, "old").expect("a file");
        can_be_written(&file).expect("it can");
        assert_eq!(fs::read_to_string(&file).expect("the file"), "old");
        let nowhere = folder.path().join("none/report.json");
        assert!(can_be_written(&nowhere).is_err_and(|error| error.contains("none/report.json")));
    }

    #[test]
    fn a_failure_counts_unless_the_repetition_went_well() {
        let run = |broker: &str, error: Option<&str>| Run {
            cell: "one".to_owned(),
            broker: broker.to_owned(),
            error: error.map(str::to_owned),
            ..Run::default()
        };
        let report = |runs| Report {
            runs,
            ..Report::default()
        };
        assert!(sound(&report(vec![run("a", None)])));
        assert!(!sound(&report(vec![run("a", None), run("b", Some("x"))])));
        assert!(sound(&report(vec![run("b", Some("x")), run("b", None)])));
    }

    #[test]
    fn the_list_has_every_cell_and_bar() {
        let text = list(&cells::all());
        for part in [
            "async-4x16 (quick)",
            "≥ 12x",
            "own ≥ 0.85",
            "own ≤ 100 MB",
            "sync-1x1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
