//! `ringmq status`: a cluster on one screen.

mod collect;
mod history;
mod screen;

use super::admin::{Common, Context, finish, print, refuse};
use super::show::{Failure, Format, LOOK, Stop, Style, parse_span, terminal_size};
use clap::Args;
use collect::Snapshot;
use history::History;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  ringmq status -n 10.0.0.1:9876
      Refreshed every 2 seconds, until Ctrl-C.
  ringmq status --once
  ringmq status --output json | jq '.groups[] | select(.totalDiff > 1000)'

Exit codes: 0 done; 1 nobody could be asked; 2 the command line is wrong; 4 some brokers did not answer.";

/// Shows brokers, shards, topics, groups and how far they are behind.
///
/// On a terminal it is refreshed until Ctrl-C; elsewhere it is written once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    common: Common,

    /// Time between two refreshes: 2s, 500ms.
    #[arg(short = 'i', long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,

    /// Once, also on a terminal.
    #[arg(long)]
    once: bool,

    /// Also topics that brokers make for themselves, and retry and dead letter topics.
    #[arg(short = 'a', long)]
    all: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    match parse_span(text)? {
        ms @ 100..=3_600_000 => Ok(Duration::from_millis(ms as u64)),
        _ => Err("from 100ms to 1h".to_owned()),
    }
}

impl StatusArgs {
    /// Shows it and says with which code to end.
    pub fn run(&self) -> ExitCode {
        let mut context = match self.common.connect() {
            Ok(context) => context,
            Err(failure) => return refuse(&failure),
        };
        let is_live =
            !self.once && self.common.output == Format::Table && std::io::stdout().is_terminal();
        if is_live {
            return self.live(context);
        }
        let outcome = Snapshot::take(&mut context.admin, self.all);
        finish(
            outcome.map(|snapshot| snapshot.document()),
            self.common.output,
        )
    }

    fn live(&self, context: Context) -> ExitCode {
        let stop = match Stop::on_signals() {
            Ok(stop) => stop,
            Err(failure) => return refuse(&failure),
        };
        let snapshots = Snapshots::of(context, self.all);
        let mut history = History::default();
        let mut shown = print(screen::ENTER);
        while shown.is_ok() && !stop.is_asked() {
            let begin = Instant::now();
            let Some(snapshot) = snapshots.next(&stop) else {
                break;
            };
            if let Ok(snapshot) = &snapshot {
                history.add(snapshot);
            }
            let about = screen::About {
                nameservers: &self.common.nameserver,
                interval: self.interval,
                size: terminal_size(),
                style: Style::of_stdout(),
            };
            shown = print(&screen::draw(&snapshot, &history, &about));
            stop.sleep(self.interval.saturating_sub(begin.elapsed()));
        }
        let left = print(screen::LEAVE);
        match shown.and(left) {
            Ok(()) => ExitCode::SUCCESS,
            Err(code) => code,
        }
    }
}

/// Snapshots, taken by a thread of their own: brokers that are silent hold up nobody who wants to
/// end.
struct Snapshots {
    wanted: Sender<()>,
    taken: Receiver<Result<Snapshot, Failure>>,
}

impl Snapshots {
    fn of(mut context: Context, all: bool) -> Snapshots {
        let (wanted, asked) = mpsc::channel();
        let (give, taken) = mpsc::channel();
        std::thread::spawn(move || {
            while asked.recv().is_ok() {
                if give.send(Snapshot::take(&mut context.admin, all)).is_err() {
                    break;
                }
            }
        });
        Snapshots { wanted, taken }
    }

    /// The next one; `None` where somebody has asked to stop before it was there.
    fn next(&self, stop: &Stop) -> Option<Result<Snapshot, Failure>> {
        self.wanted.send(()).ok()?;
        loop {
            match self.taken.recv_timeout(LOOK) {
                Ok(snapshot) => return Some(snapshot),
                Err(RecvTimeoutError::Timeout) if !stop.is_asked() => {}
                Err(_) => return None,
            }
        }
    }
}
