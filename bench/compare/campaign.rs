//! The order of a comparison: both brokers started, warmed, and measured cell by cell in turn.
//!
//! Only one of them is loaded at a time. The other's processes are stopped by SIGSTOP meanwhile:
//! they keep their memory and their warmth but use no processor.

use super::broker::{Broker, Flush, Kind, Setup};
use super::cells::{CellPlan, Work};
use super::measure::extra;
use super::{ask_for_space, java};
use crate::bench::report::progress::Progress;
use crate::bench::result::{Report, Run, ServerUse};
use crate::bench::workload::{Spec, Workload, run_workload};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a run that failed is made again. Both runs are in the report.
const REPETITIONS: u32 = 1;

/// Longest time that reading from the start may take, in seconds.
const READING_MAX: f64 = 300.0;

/// Time that a broker is left alone before its memory is looked at.
const IDLE: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Debug)]
pub struct Campaign {
    /// The cells, in order.
    pub cells: Vec<CellPlan>,
    /// Rounds; every cell is measured once in each.
    pub rounds: u32,
    /// Length of a run, in seconds.
    pub seconds: f64,
    /// Longest run in which as much is sent as the broker takes, in seconds.
    pub closed_seconds: f64,
    /// Length of what goes before it and is not counted, in seconds.
    pub warm_up: f64,
    /// Length of the load that each broker gets after its start, in seconds.
    pub first_load: f64,
    /// Messages that are put into a topic before it is read.
    pub messages_to_read: u64,
    /// How the brokers are started.
    pub setup: Setup,
    /// Bytes that a broker's files may take before it is started anew with an empty store.
    pub stored_bytes_max: u64,
}

impl Campaign {
    /// Does all of it. What was measured is in `report`, whether or not it came to its end.
    ///
    /// # Errors
    /// Text: a broker cannot be started.
    pub fn run(&self, report: &mut Report) -> Result<(), String> {
        for flush in [Flush::Async, Flush::Sync] {
            let of_flush = |cell: &&CellPlan| cell.flush == flush;
            let cells: Vec<&CellPlan> = self.cells.iter().filter(of_flush).collect();
            let idle_only = |cell: &&CellPlan| matches!(cell.work, Work::Memory);
            if cells.is_empty() || (flush == Flush::Sync && cells.iter().all(idle_only)) {
                continue;
            }
            let mut pair = Pair::start(self, flush, report)?;
            for round in 1..=self.rounds {
                for (at, cell) in cells.iter().enumerate() {
                    for kind in order(round, at) {
                        pair.measure(cell, kind, round, report)?;
                    }
                }
            }
            pair.stop();
        }
        Ok(())
    }
}

/// Who is measured first alternates from cell to cell and from round to round.
fn order(round: u32, cell: usize) -> [Kind; 2] {
    if (round as usize + cell) % 2 == 1 {
        [Kind::Apache, Kind::RingMq]
    } else {
        [Kind::RingMq, Kind::Apache]
    }
}

/// Both brokers; the one that is not measured is frozen.
struct Pair<'a> {
    campaign: &'a Campaign,
    flush: Flush,
    brokers: Vec<Broker>,
}

impl<'a> Pair<'a> {
    fn start(
        campaign: &'a Campaign,
        flush: Flush,
        report: &mut Report,
    ) -> Result<Pair<'a>, String> {
        let mut pair = Pair {
            campaign,
            flush,
            brokers: Vec::new(),
        };
        let round = report.runs.iter().filter(|run| is_memory(run)).count() as u32 / 2 + 1;
        for kind in [Kind::Apache, Kind::RingMq] {
            let idle_bytes = pair.add(kind, report)?;
            report.runs.push(memory_run(
                campaign.setup.name(kind),
                round,
                idle_bytes as f64,
            ));
        }
        Ok(pair)
    }

    /// Starts a broker with an empty store and warms it; the bytes it held before its first load.
    fn add(&mut self, kind: Kind, report: &mut Report) -> Result<u64, String> {
        let Campaign { setup, .. } = self.campaign;
        for broker in &mut self.brokers {
            broker.freeze();
        }
        // RingMQ measures the device when it starts, and that shall not be busy with the other's
        // files.
        settle(&setup.parent);
        say(&format!(
            "{}, {}: starting",
            setup.name(kind),
            self.flush.setting()
        ));
        let mut broker = Broker::start(kind, self.flush, setup)?;
        std::thread::sleep(IDLE);
        broker.alive()?;
        let idle_bytes = broker.resident_bytes();
        report.notes.extend(broker.way_of_flushing());
        self.campaign.first_load(&broker);
        broker.alive()?;
        broker.freeze();
        self.brokers.push(broker);
        Ok(idle_bytes)
    }

    /// The broker, running alone, with room for what comes.
    fn only(&mut self, kind: Kind, report: &mut Report) -> Result<&mut Broker, String> {
        let at = self.brokers.iter().position(|broker| broker.kind == kind);
        if let Some(at) = at {
            let broker = &mut self.brokers[at];
            let full = broker.stored_bytes() > self.campaign.stored_bytes_max;
            if full || broker.alive().is_err() {
                self.brokers.swap_remove(at).stop();
            }
        }
        if !self.brokers.iter().any(|broker| broker.kind == kind) {
            self.add(kind, report)?;
        }
        for other in self.brokers.iter_mut().filter(|other| other.kind != kind) {
            other.freeze();
        }
        settle(&self.campaign.setup.parent);
        let same = |broker: &&mut Broker| broker.kind == kind;
        let broker = self.brokers.iter_mut().find(same).ok_or("no broker")?;
        broker.thaw()?;
        Ok(broker)
    }

    fn measure(
        &mut self,
        cell: &CellPlan,
        kind: Kind,
        round: u32,
        report: &mut Report,
    ) -> Result<(), String> {
        if matches!(cell.work, Work::Memory | Work::Share(..)) {
            return Ok(());
        }
        let campaign = self.campaign;
        for attempt in 0..=REPETITIONS {
            ask_for_space(&campaign.setup.parent, campaign.stored_bytes_max)?;
            let broker = self.only(kind, report)?;
            let mut run = match &cell.work {
                Work::Load(spec) => load(&campaign.spec(spec), broker),
                Work::JavaProducer(threads) => {
                    let apache = &campaign.setup.apache;
                    java::producer(cell.name, *threads, campaign.seconds, apache, broker)
                }
                Work::Memory | Work::Share(..) => return Ok(()),
            };
            run.round = round;
            run.broker.clone_from(&broker.name);
            if let Err(ended) = broker.alive() {
                let error = run.error.take().unwrap_or_default();
                run.error = Some(format!("{error}\n{ended}").trim().to_owned());
            }
            say(&format!(
                "round {round} of {}: {}",
                campaign.rounds,
                line(&run)
            ));
            let failed = run.error.is_some();
            report.runs.push(run);
            if !failed || attempt == REPETITIONS {
                break;
            }
        }
        Ok(())
    }

    fn stop(self) {
        for broker in self.brokers {
            broker.stop();
        }
    }
}

impl Campaign {
    /// A cell's workload with this campaign's lengths.
    fn spec(&self, of_cell: &Spec) -> Spec {
        let spec = of_cell.clone();
        match spec.workload {
            // It ends when all is read.
            Workload::CatchUp => Spec {
                seconds: READING_MAX,
                warm_up: 0.0,
                fill: Some(self.messages_to_read),
                ..spec
            },
            Workload::Produce if spec.rate.is_none() => Spec {
                seconds: self.seconds.min(self.closed_seconds),
                warm_up: self.warm_up,
                ..spec
            },
            _ => Spec {
                seconds: self.seconds,
                warm_up: self.warm_up,
                ..spec
            },
        }
    }

    /// Loads a broker that was just started: a virtual machine compiles what is used often, and
    /// the first sends of a cold one are refused. What fails here is not counted.
    fn first_load(&self, broker: &Broker) {
        // RingMQ is warm at once, and takes so much that it would fill the file system.
        let most = match broker.kind {
            Kind::RingMq => self.closed_seconds,
            Kind::Apache => f64::INFINITY,
        };
        let spec = |workload, share: f64| Spec {
            workload,
            cell: "first-load".to_owned(),
            seconds: (self.first_load * share).min(most),
            warm_up: 0.0,
            verify: false,
            ..Spec::default()
        };
        let sends = spec(Workload::Produce, 0.5);
        let batches = Spec {
            batch: 32,
            in_flight: 4,
            ..spec(Workload::Produce, 0.15)
        };
        let reads = Spec {
            rate: Some(2_000.0),
            in_flight: 1024,
            ..spec(Workload::EndToEnd, 0.2)
        };
        let pulls = spec(Workload::CatchUp, 0.15);
        for spec in [sends, batches, reads, pulls] {
            let until = Instant::now() + Duration::from_secs_f64(spec.seconds);
            let mut left = spec.seconds;
            let mut told = false;
            // A cold broker may refuse a send, which ends a run early.
            while left > 0.5 {
                let run = load(
                    &Spec {
                        seconds: left,
                        ..spec.clone()
                    },
                    broker,
                );
                if let Some(error) = &run.error {
                    if !told {
                        say(&format!("{}, first load: {error}", broker.name));
                    }
                    told = true;
                    std::thread::sleep(Duration::from_millis(200));
                }
                left = until
                    .saturating_duration_since(Instant::now())
                    .as_secs_f64();
            }
        }
    }
}

fn load(spec: &Spec, broker: &Broker) -> Run {
    let progress = Progress::new();
    progress.part(&format!("{}, {}", spec.cell, broker.name));
    let run = run_workload(spec, &broker.target(), &progress);
    progress.done();
    run
}

fn is_memory(run: &Run) -> bool {
    run.workload == "memory"
}

fn memory_run(broker: String, round: u32, idle_bytes: f64) -> Run {
    let mut run = Run {
        cell: "memory".to_owned(),
        workload: "memory".to_owned(),
        broker,
        round,
        server: Some(ServerUse {
            resident_bytes: idle_bytes as u64,
            ..ServerUse::default()
        }),
        ..Run::default()
    };
    run.extra.insert(extra::IDLE_BYTES.to_owned(), idle_bytes);
    run
}

/// Writes down what the last run left in memory, so that the next one does not pay for it.
fn settle(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        // SAFETY: the descriptor is open for the length of the call.
        unsafe { libc::syncfs(folder.as_raw_fd()) };
    }
}

/// What a run found, in one line.
fn line(run: &Run) -> String {
    use super::units;
    if let Some(error) = &run.error {
        return format!("{}, {}: FAILED: {error}", run.cell, run.broker);
    }
    let mut text = format!(
        "{}, {}: {}/s",
        run.cell,
        run.broker,
        units::count(run.messages as f64 / run.seconds.max(1e-9))
    );
    if let Some(latency) = &run.latency {
        text += &format!(
            ", p50 {}, p99 {}",
            units::duration_us(latency.p50_us as f64),
            units::duration_us(latency.p99_us as f64)
        );
    }
    if run.client.is_the_limit {
        text += ", the harness is the limit";
    }
    text
}

/// Tells people on standard error. That nobody reads it any more ends nothing.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_alternates() {
        for round in 1..4 {
            for cell in 0..4 {
                assert_ne!(order(round, cell), order(round, cell + 1));
                assert_ne!(order(round, cell), order(round + 1, cell));
            }
        }
    }
}
