//! What stands under a comparison: what it ran with, and what of its figures is the machine's.

use super::figures::is_ours;
use super::units::{self, count};
use crate::bench::load::pacing::precise_timers;
use crate::bench::measure::floor as measure;
use crate::bench::report::table::stalls_text;
use crate::bench::result::{Run, Stalls};
use std::collections::BTreeMap;
use std::fs;
use std::thread;

/// Which programs these were: versions alone do not tell one build from the next.
pub fn versions(java: &str) -> String {
    let binary = fs::read("/proc/self/exe").map(|bytes| crc32fast::hash(&bytes));
    let binary = binary.map_or_else(|error| error.to_string(), |crc| format!("CRC-32 {crc:08x}"));
    format!(
        "RingMQ {} (binary: {binary}); {java}.",
        env!("CARGO_PKG_VERSION")
    )
}

/// What the runs tell of the machine and of RingMQ's loops.
pub fn of_runs(runs: &[Run]) -> impl Iterator<Item = String> {
    [stalls(runs), loops(runs)].into_iter().flatten()
}

/// What the machine itself takes, at the rates of the cells from end to end.
pub fn floor(seconds: u32) -> Result<String, String> {
    let mut text = "Without a broker, an echo of 8 bytes over loopback, from the intended send \
                    time:"
        .to_owned();
    for rate in [1_000, 5_000] {
        let found = thread::spawn(move || {
            precise_timers();
            measure::floor(rate, seconds)
        });
        let found = found.join().map_err(|_| "an echo panicked".to_owned())?;
        let found = found.map_err(|error| format!("an echo: {error}"))?;
        let [p50, p99, p999, max] = [found.p50_us, found.p99_us, found.p999_us, found.max_us]
            .map(|us| units::duration_us(us as f64));
        text += &format!(" at {rate}/s p50 {p50}, p99 {p99}, p99.9 {p999}, max {max};");
    }
    text.pop();
    Ok(text + ".")
}

/// When the machine stood still, for each broker; nothing if it never did.
fn stalls(runs: &[Run]) -> Option<String> {
    let mut of_brokers: BTreeMap<&str, Stalls> = BTreeMap::new();
    for run in runs {
        let stalls = of_brokers.entry(&run.broker).or_default();
        stalls.add(&run.client.stalls);
    }
    let texts: Vec<String> = of_brokers
        .iter()
        .filter_map(|(broker, stalls)| Some(format!("{broker}: {}", stalls_text(stalls)?)))
        .collect();
    (!texts.is_empty()).then(|| {
        format!(
            "In the runs of a broker the machine itself (seen by a thread that only sleeps, and that \
             nobody else's turn on a processor held up) {}. Latencies of those times are the \
             machine's, whoever is measured.",
            texts.join("; ")
        )
    })
}

/// What RingMQ's loops counted: under no load has a turn above 10 ms to be, nor an allocation
/// above 128 KiB. Turns in which the machine stood still are not told apart by the broker.
fn loops(runs: &[Run]) -> Option<String> {
    let ours = || {
        runs.iter()
            .filter(|run| is_ours(run) && run.error.is_none())
    };
    let mut texts = Vec::new();
    let mut is_counted = false;
    for run in ours() {
        let Some(server) = &run.server else { continue };
        let (Some(turns), Some(allocations)) = (server.long_turns, server.large_allocations) else {
            continue;
        };
        is_counted = true;
        if turns + allocations > 0 {
            texts.push(format!(
                "{}, round {}: {} turns, {} allocations{}",
                run.cell,
                run.round,
                count(turns as f64),
                count(allocations as f64),
                match run.client.stalls.count {
                    0 => String::new(),
                    times => format!(" (the machine stood still {} times)", count(times as f64)),
                }
            ));
        }
    }
    is_counted.then(|| match texts.is_empty() {
        true => "RingMQ's loops had no turn above 10 ms and no allocation above 128 KiB in any \
                 run."
            .to_owned(),
        false => format!(
            "OVER THE LIMIT: RingMQ's loops had turns above 10 ms or allocations above 128 KiB in {}.",
            texts.join("; ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::ServerUse;

    #[test]
    fn when_the_machine_stood_still_is_told_of_the_broker_that_was_measured() {
        let run = |broker: &str, late_us| {
            let mut run = Run {
                broker: broker.to_owned(),
                ..Run::default()
            };
            run.client.stalls.late(late_us, 0);
            run
        };
        assert_eq!(stalls(&[run("A", 0), run("B", 900)]), None);
        let note = stalls(&[run("A", 0), run("B", 20_000), run("B", 30_000)]).unwrap();
        assert!(
            note.contains(") B: stood still 2 times, for 50 ms"),
            "{note}"
        );
    }

    #[test]
    fn what_the_loops_counted_is_told_of_our_broker() {
        let run = |broker: &str, turns, allocations| Run {
            cell: "one".to_owned(),
            round: 1,
            broker: broker.to_owned(),
            server: Some(ServerUse {
                long_turns: turns,
                large_allocations: allocations,
                ..ServerUse::default()
            }),
            ..Run::default()
        };
        let (ours, theirs) = ("RingMQ 1", "Apache RocketMQ 5");
        assert_eq!(loops(&[run(theirs, Some(1), Some(1))]), None);
        assert_eq!(loops(&[run(ours, None, None)]), None);
        let none = loops(&[run(ours, Some(0), Some(0))]).expect("a note");
        assert!(none.contains("no turn above 10 ms"), "{none}");
        let some = loops(&[run(ours, Some(0), Some(0)), run(ours, Some(2), Some(1_234))]);
        let some = some.expect("a note");
        assert!(some.starts_with("OVER THE LIMIT"), "{some}");
        assert!(
            some.contains("in one, round 1: 2 turns, 1,234 allocations."),
            "{some}"
        );
    }
}
