//! The cells of a comparison: what is done, what is measured of it, what is asked for.

use super::broker::Flush;
use super::measure::Measure;
use crate::bench::load::payload::SizeDistribution;
use crate::bench::workload::{Spec, Workload};

/// Requests of one connection that an open loop lets wait: so many that the broker, not this,
/// decides how long a message takes.
const IN_FLIGHT_OPEN: usize = 1024;

/// One cell.
#[derive(Clone, Debug)]
pub struct CellPlan {
    /// Its name, for `--cells`.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// How the brokers run.
    pub flush: Flush,
    /// What is done.
    pub work: Work,
    /// What is measured.
    pub asked: Vec<Asked>,
    /// Part of the quick form.
    pub quick: bool,
}

/// What is done in a cell.
#[derive(Clone, Debug)]
pub enum Work {
    /// A workload of this harness.
    Load(Box<Spec>),
    /// RocketMQ's own benchmark `Producer` with this many threads.
    JavaProducer(u32),
    /// Nothing: memory is looked at before and during all others.
    Memory,
    /// Nothing: the runs of the first cell are set against those of the second.
    Share(&'static str, &'static str),
}

/// A figure, and what is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The figure.
    pub measure: Measure,
    /// The factor that is asked for.
    pub bar: Option<f64>,
    /// What is asked of RingMQ's own value.
    pub limit: Option<f64>,
}

impl CellPlan {
    fn new(name: &'static str, title: &'static str, flush: Flush, work: Work) -> CellPlan {
        CellPlan {
            name,
            title,
            flush,
            work,
            asked: Vec::new(),
            quick: false,
        }
    }

    fn load(name: &'static str, title: &'static str, flush: Flush, spec: Spec) -> CellPlan {
        let spec = Spec {
            cell: name.to_owned(),
            ..spec
        };
        CellPlan::new(name, title, flush, Work::Load(Box::new(spec)))
    }

    /// Measures these too, with nothing asked for unless [`CellPlan::bar`] follows.
    fn measures(mut self, all: &[Measure]) -> CellPlan {
        self.asked.extend(all.iter().map(|&measure| Asked {
            measure,
            bar: None,
            limit: None,
        }));
        self
    }

    fn entry(&mut self, measure: Measure) -> &mut Asked {
        let at = self.asked.iter().position(|asked| asked.measure == measure);
        &mut self.asked[at.expect("bars are for what is measured")]
    }

    fn bar(mut self, measure: Measure, factor: f64) -> CellPlan {
        self.entry(measure).bar = Some(factor);
        self
    }

    fn limit(mut self, measure: Measure, value: f64) -> CellPlan {
        self.entry(measure).limit = Some(value);
        self
    }

    fn quick(mut self) -> CellPlan {
        self.quick = true;
        self
    }
}

/// Of a closed loop: the rate is what the broker makes of it.
const CLOSED: &[Measure] = &[
    Measure::Rate,
    Measure::PerCpu,
    Measure::P50,
    Measure::P99,
    Measure::P999,
    Measure::Max,
];

/// Of an open loop: the rate is given.
const OPEN: &[Measure] = &[
    Measure::PerCpu,
    Measure::P50,
    Measure::P99,
    Measure::P999,
    Measure::Max,
];

/// All cells, in the order in which they are run and shown.
pub fn all() -> Vec<CellPlan> {
    let mut cells = async_sends();
    cells.extend(reads());
    cells.extend(sync_sends());
    cells.push(memory());
    cells
}

fn closed(connections: usize, in_flight: usize) -> Spec {
    Spec {
        connections,
        in_flight,
        ..Spec::default()
    }
}

fn async_sends() -> Vec<CellPlan> {
    let sends = |name, title, spec| CellPlan::load(name, title, Flush::Async, spec);
    vec![
        sends(
            "async-4x16",
            "ASYNC_FLUSH, 1 KiB, 4 connections with 16 requests in flight each",
            closed(4, 16),
        )
        .measures(CLOSED)
        .bar(Measure::PerCpu, 12.0)
        .bar(Measure::P999, 15.0)
        .quick(),
        sends(
            "async-4x256",
            "ASYNC_FLUSH, 1 KiB, 4 connections with 256 requests in flight each",
            closed(4, 256),
        )
        .measures(CLOSED)
        .bar(Measure::PerCpu, 18.0)
        .bar(Measure::P99, 8.0),
        sends(
            "async-64x1",
            "ASYNC_FLUSH, 1 KiB, 64 connections with one request in flight each",
            closed(64, 1),
        )
        .measures(CLOSED)
        .bar(Measure::PerCpu, 6.0)
        .bar(Measure::P99, 6.0),
        sends(
            "async-128B-4x16",
            "ASYNC_FLUSH, 128 bytes, 4 connections with 16 requests in flight each",
            Spec {
                size: SizeDistribution::Fixed(128),
                ..closed(4, 16)
            },
        )
        .measures(CLOSED)
        .bar(Measure::PerCpu, 10.0),
        sends(
            "async-1x1",
            "ASYNC_FLUSH, 1 KiB, one connection with one request in flight",
            closed(1, 1),
        )
        .measures(CLOSED)
        .bar(Measure::P50, 2.0)
        .bar(Measure::P999, 5.0)
        .bar(Measure::PerCpu, 2.0),
        sends(
            "async-batch32-4x4",
            "ASYNC_FLUSH, batches of 32 messages of 1 KiB, 4 connections with 4 batches in flight each",
            Spec {
                batch: 32,
                ..closed(4, 4)
            },
        )
        .measures(CLOSED)
        .bar(Measure::PerCpu, 12.0),
        sends(
            "async-open-10k",
            "ASYNC_FLUSH, 1 KiB, open loop of 10,000 messages a second on 4 connections",
            Spec {
                rate: Some(10_000.0),
                ..closed(4, IN_FLIGHT_OPEN)
            },
        )
        .measures(OPEN)
        .bar(Measure::P99, 50.0)
        .bar(Measure::P999, 15.0),
        CellPlan::new(
            "java-producer-64",
            "RocketMQ's own benchmark Producer, 64 threads, 1 KiB, ASYNC_FLUSH",
            Flush::Async,
            Work::JavaProducer(64),
        )
        .measures(&[Measure::Rate, Measure::PerCpu, Measure::MeanTrip])
        .bar(Measure::Rate, 1.8),
    ]
}

fn reads() -> Vec<CellPlan> {
    let end_to_end = |name, title, rate| {
        let spec = Spec {
            workload: Workload::EndToEnd,
            rate: Some(rate),
            ..closed(4, IN_FLIGHT_OPEN)
        };
        CellPlan::load(name, title, Flush::Async, spec)
            .measures(OPEN)
            .bar(Measure::P50, 3.0)
            .bar(Measure::P99, 10.0)
            .bar(Measure::P999, 8.0)
    };
    vec![
        CellPlan::load(
            "catch-up-pull",
            "reading from the start: 1 KiB, 8 queues, 4 connections, 32 messages a pull",
            Flush::Async,
            Spec {
                workload: Workload::CatchUp,
                // How they are put there, which is not measured.
                batch: 32,
                ..closed(4, 4)
            },
        )
        .measures(&[Measure::Rate, Measure::PerCpu])
        .bar(Measure::PerCpu, 8.0)
        .quick(),
        end_to_end(
            "e2e-1000",
            "from the intended send to the receipt by long poll: 1,000 messages a second, 1 KiB, 8 queues",
            1_000.0,
        )
        .quick(),
        end_to_end(
            "e2e-5000",
            "from the intended send to the receipt by long poll: 5,000 messages a second, 1 KiB, 8 queues",
            5_000.0,
        ),
        CellPlan::load(
            "mixed",
            "5,000 sends a second, alone and beside a consumer that reads old messages from the start",
            Flush::Async,
            Spec {
                workload: Workload::Mixed,
                rate: Some(5_000.0),
                ..closed(4, IN_FLIGHT_OPEN)
            },
        )
        .measures(&[
            Measure::MixedRatio,
            Measure::P99,
            Measure::P999,
            Measure::ReaderRate,
        ])
        .limit(Measure::MixedRatio, 2.0),
    ]
}

fn sync_sends() -> Vec<CellPlan> {
    let sends = |name, title, spec| CellPlan::load(name, title, Flush::Sync, spec);
    vec![
        sends(
            "sync-4x16",
            "SYNC_FLUSH, 1 KiB, 4 connections with 16 requests in flight each",
            closed(4, 16),
        )
        .measures(CLOSED)
        .bar(Measure::Rate, 10.0)
        .bar(Measure::PerCpu, 15.0)
        .quick(),
        sends(
            "sync-1x1",
            "SYNC_FLUSH, 1 KiB, one connection with one request in flight",
            closed(1, 1),
        )
        .measures(CLOSED)
        .bar(Measure::P50, 3.0),
        sends(
            "sync-4x256",
            "SYNC_FLUSH, 1 KiB, 4 connections with 256 requests in flight each",
            closed(4, 256),
        )
        .measures(CLOSED),
        CellPlan::new(
            "sync-share-4x256",
            "what of the rate of async-4x256 is left in sync-4x256, of each broker by itself",
            Flush::Sync,
            Work::Share("sync-4x256", "async-4x256"),
        )
        .measures(&[Measure::ShareOfRate])
        .limit(Measure::ShareOfRate, 0.85),
    ]
}

fn memory() -> CellPlan {
    CellPlan::new(
        "memory",
        "resident memory of the broker: after its start, and the most of all runs",
        Flush::Async,
        Work::Memory,
    )
    .measures(&[Measure::IdleMemory, Measure::LoadMemory])
    .limit(Measure::IdleMemory, 100e6)
    .limit(Measure::LoadMemory, 1e9)
    .quick()
}

/// The cells that a pattern names: parts between commas, each a name, a part of names, or with
/// `*` for anything whole names. Cells that these are made from come along.
///
/// # Errors
/// Text with a part that names no cell.
pub fn matching(pattern: &str, cells: Vec<CellPlan>) -> Result<Vec<CellPlan>, String> {
    let parts: Vec<&str> = pattern.split(',').map(str::trim).collect();
    for part in &parts {
        if part.is_empty() || !cells.iter().any(|cell| matches(part, cell.name)) {
            return Err(format!("{part:?} names no cell; --list shows them all"));
        }
    }
    // A whole name means this cell alone, though it may be a part of other names.
    let names: Vec<&str> = cells.iter().map(|cell| cell.name).collect();
    let named = |cell: &CellPlan| {
        parts.iter().any(|part| match names.contains(part) {
            true => *part == cell.name,
            false => matches(part, cell.name),
        })
    };
    let shares = cells.iter().filter(|cell| named(cell));
    let needed: Vec<&str> = shares
        .flat_map(|cell| match cell.work {
            Work::Share(of, over) => vec![of, over],
            _ => Vec::new(),
        })
        .collect();
    let wanted = |cell: &CellPlan| named(cell) || needed.contains(&cell.name);
    Ok(cells.into_iter().filter(wanted).collect())
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return name.contains(pattern);
    };
    let Some(mut left) = name.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = rest.split('*').collect();
    let (last, inner) = parts.split_last().expect("split gives at least one part");
    for part in inner {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str) -> Vec<&'static str> {
        let cells = matching(pattern, all()).expect("cells");
        cells.iter().map(|cell| cell.name).collect()
    }

    #[test]
    fn names_are_unique_and_shares_are_of_cells() {
        let cells = all();
        for (at, cell) in cells.iter().enumerate() {
            assert!(cells[..at].iter().all(|other| other.name != cell.name));
            assert!(!cell.asked.is_empty(), "{}", cell.name);
            if let Work::Share(of, over) = cell.work {
                for name in [of, over] {
                    assert!(cells.iter().any(|cell| cell.name == name), "{name}");
                }
            }
        }
    }

    #[test]
    fn patterns_name_cells() {
        assert_eq!(names("async-1x1"), ["async-1x1"]);
        assert_eq!(names("sync-1x1"), ["sync-1x1"]);
        assert_eq!(names("nc-1x1"), ["async-1x1", "sync-1x1"]);
        assert_eq!(names("e2e"), ["e2e-1000", "e2e-5000"]);
        assert_eq!(
            names("*-4x16"),
            ["async-4x16", "async-128B-4x16", "sync-4x16"]
        );
        assert_eq!(names("a*c-*x1"), ["async-64x1", "async-1x1"]);
        assert_eq!(names("mixed, memory"), ["mixed", "memory"]);
        assert_eq!(names("*").len(), all().len());
    }

    #[test]
    fn a_share_brings_the_cells_that_it_is_of() {
        assert_eq!(
            names("sync-share-4x256"),
            ["async-4x256", "sync-4x256", "sync-share-4x256"]
        );
        assert_eq!(names("sync-4x256"), ["sync-4x256"]);
    }

    #[test]
    fn a_part_that_names_nothing_is_told() {
        for pattern in ["", "e2e,", "e2e,asink", "async*y"] {
            assert!(matching(pattern, all()).is_err(), "{pattern:?}");
        }
    }
}
