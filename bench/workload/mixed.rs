//! Producers alone, then beside a consumer that lags behind and reads old messages.

use super::consume::{by_themselves, fill, group};
use super::phase::{Consumers, Ledger, Measured, Phase, Produced, Producers};
use super::produce::{conclude, faults, fill_in, read_back, starts};
use super::session::Session;
use crate::bench::load::consumer::{Aim, Check};
use crate::bench::result::{Latency, Run};
use crate::bench::verify::Sent;

/// Messages that are there to be read.
const FILL: u64 = 500_000;

/// The topic is filled, then loaded twice: three parts, each with producers of its own.
pub(super) const PARTS: usize = 3;

pub(super) fn run(session: &Session<'_>, run: &mut Run) -> Result<(), String> {
    let spec = session.spec;
    let connections = spec.connections;
    let total = PARTS * connections;
    let starts = starts(session)?;
    let mut sent = fill(session, spec.fill.unwrap_or(FILL), total)?;
    let filled = session.max_offsets()?;

    let load = |part: usize| Producers {
        first: (part * connections) as u32,
        total,
        rate: spec.rate,
        limit: None,
        reconnect: false,
    };
    let phase = Phase {
        name: "without a reader",
        warm_up: spec.warm_up,
        seconds: spec.seconds,
        producers: Some(load(1)),
        consumers: None,
        disturb: None,
    };
    let alone = session.run_phase(&phase)?;
    let beside = session.run_phase(&Phase {
        name: "beside a reader",
        producers: Some(load(2)),
        consumers: Some(Consumers {
            groups: vec![group(0)],
            starts: &starts,
            aim: &|place| Aim::Again(filled[place]),
            check: if spec.verify {
                Check::Records
            } else {
                Check::Nothing
            },
            ledger: Ledger::None,
            wait_ms: 0,
            gives_way: true,
        }),
        ..phase
    })?;

    let (Some(mut alone_produced), alone_seconds) = (alone.produced, alone.window.seconds()) else {
        return Ok(());
    };
    let Measured {
        window,
        produced: Some(mut produced),
        consumed: Some(consumed),
        server,
        client,
    } = beside
    else {
        return Ok(());
    };
    run.seconds = window.seconds();
    run.server = server;
    run.client = client;
    fill_in(run, &mut produced);
    run.failed += alone_produced.failed;
    compare(run, &mut alone_produced, alone_seconds);
    let read = consumed.recorder.messages as f64 / window.seconds();
    run.extra.insert("reader_messages_per_s".to_owned(), read);
    if consumed.recorder.messages == 0 {
        return Err("the reader received nothing in the measured part".to_owned());
    }
    let found = faults(&by_themselves(&consumed));
    if !found.is_empty() {
        return Err(format!("the reader beside them: {}", found.join("; ")));
    }
    let refusal = alone_produced.refusal.or(produced.refusal);
    add(&mut sent, alone_produced.sent);
    add(&mut sent, produced.sent);
    let verified = match sent {
        Some(sent) => Some(read_back(session, sent, &starts, None)?.verified),
        None => None,
    };
    conclude(run, refusal.as_deref(), verified)
}

/// One figure of a distribution.
type Pick = fn(&Latency) -> u64;

fn add(all: &mut Option<Sent>, more: Option<Sent>) {
    if let (Some(all), Some(more)) = (all, more) {
        all.merge(&more);
    }
}

/// Notes the figures without the reader, and how many times greater those with it are.
fn compare(run: &mut Run, alone: &mut Produced, seconds: f64) {
    let rate = alone.recorder.messages as f64 / seconds;
    run.extra.insert("messages_per_s_without".to_owned(), rate);
    let (Some(with), Some(without)) = (run.latency.clone(), alone.recorder.latency()) else {
        return;
    };
    let figures: [(&str, Pick); 4] = [
        ("p50", |latency| latency.p50_us),
        ("p99", |latency| latency.p99_us),
        ("p999", |latency| latency.p999_us),
        ("max", |latency| latency.max_us),
    ];
    for (name, figure) in figures {
        let (with, without) = (figure(&with) as f64, figure(&without) as f64);
        run.extra.insert(format!("{name}_us_without"), without);
        let ratio = with / without.max(1.0);
        run.extra.insert(format!("{name}_ratio"), ratio);
    }
}
