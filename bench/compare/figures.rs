//! From runs to cells.

use super::cells::{CellPlan, Work};
use super::measure::Measure;
use super::statistics::compare;
use crate::bench::result::{Cell, Figure, Run};

/// Beginning of RingMQ's name in runs; what begins otherwise is the other broker.
const OURS: &str = "RingMQ";

/// Whether a run is RingMQ's.
pub fn is_ours(run: &Run) -> bool {
    run.broker.starts_with(OURS)
}

/// The cells of `plans`, from all runs that were made.
pub fn cells(plans: &[CellPlan], runs: &[Run]) -> Vec<Cell> {
    plans.iter().map(|plan| cell(plan, runs)).collect()
}

fn cell(plan: &CellPlan, runs: &[Run]) -> Cell {
    let mut figures = Vec::new();
    let mut rounds = 0;
    for asked in &plan.asked {
        let pairs = pairs(plan, asked.measure, runs);
        let more_is_better = asked.measure.more_is_better();
        let mut figure = Figure {
            name: asked.measure.name().to_owned(),
            unit: asked.measure.unit().to_owned(),
            more_is_better,
            bar: asked.bar,
            limit: asked.limit,
            only_limit: asked.measure.only_limit(),
            harness_was_limit: harness_was_limit(plan, asked.measure, runs),
            ..Figure::default()
        };
        // What was asked for and has no value stays, as not measured.
        if let Some(compared) = compare(&pairs, more_is_better) {
            figure.ours = compared.ours;
            figure.theirs = compared.theirs;
            figure.factor = compared.factor;
            figure.spread = compared.spread;
            figure.rounds = compared.rounds;
        }
        rounds = rounds.max(figure.rounds);
        figures.push(figure);
    }
    Cell {
        name: plan.name.to_owned(),
        title: plan.title.to_owned(),
        figures,
        rounds,
        failures: failures(plan.name, runs),
    }
}

fn failures(cell: &str, runs: &[Run]) -> Vec<String> {
    let failed = runs.iter().filter(|run| run.cell == cell);
    let told = failed.filter_map(|run| {
        let error = run.error.as_ref()?;
        Some(format!("{}, round {}: {error}", run.broker, run.round))
    });
    told.collect()
}

/// The good run of a cell, a round and a broker; the last one where it was made again.
fn good<'a>(cell: &str, round: u32, ours: bool, runs: &'a [Run]) -> Option<&'a Run> {
    runs.iter().rev().find(|run| {
        run.cell == cell && run.round == round && is_ours(run) == ours && run.error.is_none()
    })
}

/// (RingMQ's value, the other's) of every round in which both have one.
fn pairs(plan: &CellPlan, measure: Measure, runs: &[Run]) -> Vec<(f64, f64)> {
    if measure == Measure::LoadMemory {
        let most = |ours| most_resident(ours, runs);
        return most(true).zip(most(false)).into_iter().collect();
    }
    let value = |round, ours| match plan.work {
        Work::Share(of, over) => {
            let rate = |cell| Measure::Rate.of(good(cell, round, ours, runs)?);
            Some(rate(of)? / rate(over)?)
        }
        _ => measure.of(good(plan.name, round, ours, runs)?),
    };
    let last = runs.iter().map(|run| run.round).max().unwrap_or(0);
    let pair = |round| Some((value(round, true)?, value(round, false)?));
    (1..=last).filter_map(pair).collect()
}

/// Whether a rate is, in a run that it is made from, what the harness could do and not the broker.
fn harness_was_limit(plan: &CellPlan, measure: Measure, runs: &[Run]) -> bool {
    let of_cells = match plan.work {
        Work::Share(of, over) => vec![of, over],
        _ => vec![plan.name],
    };
    measure.is_rate()
        && runs.iter().any(|run| {
            run.client.is_the_limit && run.error.is_none() && of_cells.contains(&run.cell.as_str())
        })
}

/// The most resident memory of a broker in any run in which it was loaded.
fn most_resident(ours: bool, runs: &[Run]) -> Option<f64> {
    let of_broker = runs.iter().filter(|run| is_ours(run) == ours);
    let loaded = of_broker.filter(|run| run.error.is_none() && run.messages > 0);
    let resident = loaded.filter_map(|run| Some(run.server.as_ref()?.resident_bytes as f64));
    resident.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::cells;
    use super::*;
    use crate::bench::result::{Latency, ServerUse};

    fn run(cell: &str, broker: &str, round: u32, messages: u64) -> Run {
        Run {
            cell: cell.to_owned(),
            broker: broker.to_owned(),
            round,
            seconds: 1.0,
            messages,
            latency: Some(Latency {
                p50_us: 1_000_000 / messages,
                ..Latency::default()
            }),
            server: Some(ServerUse {
                cpu_seconds: 1.0,
                resident_bytes: messages * 1000,
                ..ServerUse::default()
            }),
            ..Run::default()
        }
    }

    fn judged(name: &str, runs: &[Run]) -> Cell {
        let plans = cells::matching(name, cells::all()).expect("a cell");
        let cells = super::cells(&plans, runs);
        let named = cells.into_iter().find(|cell| cell.name == name);
        named.expect("the cell of that name")
    }

    fn figure<'a>(cell: &'a Cell, name: &str) -> &'a Figure {
        let found = cell.figures.iter().find(|figure| figure.name == name);
        found.unwrap_or_else(|| panic!("no {name}: {cell:?}"))
    }

    #[test]
    fn rounds_are_paired_and_bars_come_along() {
        let mut runs = Vec::new();
        for (round, ours, theirs) in [(1, 2_000, 100), (2, 1_000, 100), (3, 3_000, 100)] {
            runs.push(run("async-4x16", "RingMQ 1", round, ours));
            runs.push(run("async-4x16", "Apache RocketMQ 5", round, theirs));
        }
        let cell = judged("async-4x16", &runs);
        assert_eq!(cell.rounds, 3);
        let per_cpu = figure(&cell, "messages per CPU-second");
        assert_eq!((per_cpu.factor, per_cpu.spread), (20.0, (10.0, 30.0)));
        assert_eq!(per_cpu.bar, Some(12.0));
        let p50 = figure(&cell, "p50");
        assert!(!p50.more_is_better && p50.factor > 19.0 && p50.ours < p50.theirs);
    }

    #[test]
    fn a_failed_run_is_told_and_not_used_and_the_repetition_counts() {
        let mut failed = run("async-4x16", "RingMQ 1", 1, 1);
        failed.error = Some("closed".to_owned());
        let runs = [
            failed,
            run("async-4x16", "RingMQ 1", 1, 500),
            run("async-4x16", "Apache RocketMQ 5", 1, 100),
            run("async-4x16", "RingMQ 1", 2, 9_999),
        ];
        let cell = judged("async-4x16", &runs);
        assert_eq!(cell.failures, ["RingMQ 1, round 1: closed"]);
        assert_eq!(cell.rounds, 1);
        assert_eq!(figure(&cell, "messages").factor, 5.0);
    }

    #[test]
    fn a_share_is_of_each_broker_by_itself() {
        let runs = [
            run("async-4x256", "RingMQ 1", 1, 1_000),
            run("sync-4x256", "RingMQ 1", 1, 900),
            run("async-4x256", "Apache RocketMQ 5", 1, 100),
            run("sync-4x256", "Apache RocketMQ 5", 1, 45),
        ];
        let cell = judged("sync-share-4x256", &runs);
        let share = figure(&cell, "share of rate");
        assert_eq!((share.ours, share.theirs), (0.9, 0.45));
        assert_eq!((share.factor, share.limit), (2.0, Some(0.85)));
        let half = judged("sync-share-4x256", &runs[..3]);
        assert!(!figure(&half, "share of rate").is_measured());
    }

    #[test]
    fn what_has_no_value_stays_as_not_measured() {
        let mut runs = [
            run("async-4x16", "RingMQ 1", 1, 500),
            run("async-4x16", "Apache RocketMQ 5", 1, 100),
            run("async-4x16", "RingMQ 1", 2, 500),
            run("async-4x16", "Apache RocketMQ 5", 2, 100),
        ];
        runs[3].server = None;
        let per_cpu = |runs: &[Run]| {
            let cell = judged("async-4x16", runs);
            assert_eq!((cell.rounds, figure(&cell, "messages").rounds), (2, 2));
            figure(&cell, "messages per CPU-second").clone()
        };
        assert_eq!(per_cpu(&runs).rounds, 1);
        runs[0].server = None;
        let none = per_cpu(&runs);
        assert_eq!((none.rounds, none.bar), (0, Some(12.0)));
        assert!(!none.is_measured());
    }

    #[test]
    fn rates_at_the_limit_of_the_harness_are_marked() {
        let mut runs = [
            run("async-4x256", "RingMQ 1", 1, 1_000),
            run("sync-4x256", "RingMQ 1", 1, 900),
            run("async-4x256", "Apache RocketMQ 5", 1, 100),
            run("sync-4x256", "Apache RocketMQ 5", 1, 45),
        ];
        let marked = |runs: &[Run], cell: &str, name: &str| {
            figure(&judged(cell, runs), name).harness_was_limit
        };
        assert!(!marked(&runs, "async-4x256", "messages"));
        runs[0].client.is_the_limit = true;
        assert!(marked(&runs, "async-4x256", "messages"));
        assert!(marked(&runs, "sync-share-4x256", "share of rate"));
        assert!(!marked(&runs, "async-4x256", "p50"));
        assert!(!marked(&runs, "sync-4x256", "messages"));
    }

    #[test]
    fn memory_under_load_is_the_most_of_all_runs() {
        let mut runs = vec![
            run("async-4x16", "RingMQ 1", 1, 200),
            run("e2e-1000", "RingMQ 1", 1, 300),
            run("async-4x16", "Apache RocketMQ 5", 1, 6_000),
        ];
        for (broker, bytes) in [("RingMQ 1", 50.0), ("Apache RocketMQ 5", 4_000.0)] {
            let mut idle = run("memory", broker, 1, 1);
            idle.messages = 0;
            idle.extra.insert("idle_bytes".to_owned(), bytes);
            runs.push(idle);
        }
        let cell = judged("memory", &runs);
        assert_eq!(figure(&cell, "idle").factor, 80.0);
        let load = figure(&cell, "under load");
        assert_eq!((load.ours, load.theirs), (300_000.0, 6_000_000.0));
    }
}
