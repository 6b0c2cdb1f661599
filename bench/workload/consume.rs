//! A topic is read: from the start, or what others send from now on.

use super::phase::{Consumed, Consumers, Ledger, Measured, Phase, Producers};
use super::produce::{conclude, count, starts};
use super::session::Session;
use crate::bench::load::consumer::{Aim, Check};
use crate::bench::result::{Run, Verified};
use crate::bench::verify::{Sent, judge};
use std::sync::Arc;

/// Messages that an empty topic is filled with.
const FILL: u64 = 200_000;

/// Longest time in which a topic is filled, in seconds.
const FILL_MAX: f64 = 3600.0;

/// How long the broker may hold a pull, in ms: as official clients have it.
pub(super) const WAIT_MS: u64 = 15_000;

/// Consumer group of a number.
pub(super) fn group(number: u32) -> String {
    format!("ringmq-bench-{number}")
}

/// Reads everything from the start.
pub(super) fn catch_up(session: &Session<'_>, run: &mut Run) -> Result<(), String> {
    let spec = session.spec;
    let (starts, before) = (session.min_offsets()?, session.max_offsets()?);
    let is_empty = starts == before;
    let fill_with = spec.fill.or(is_empty.then_some(FILL));
    let sent = match fill_with {
        Some(messages) => fill(session, messages, spec.connections)?.map(Arc::new),
        None => None,
    };
    let ends = match &sent {
        Some(sent) => larger(&before, &sent.ends()),
        None => session.max_offsets()?,
    };
    let check = match (spec.verify, &sent) {
        (false, _) => Check::Nothing,
        (true, None) => Check::Records,
        (true, Some(_)) => Check::Stamps,
    };
    let measured = session.run_phase(&Phase {
        name: "measuring",
        warm_up: 0.0,
        seconds: spec.seconds,
        producers: None,
        consumers: Some(Consumers {
            groups: vec![group(0)],
            starts: &starts,
            aim: &|place| Aim::End(ends[place]),
            check,
            ledger: match &sent {
                Some(sent) => Ledger::Closed(Arc::clone(sent), None),
                None => Ledger::None,
            },
            wait_ms: 0,
            gives_way: false,
        }),
        disturb: None,
    })?;
    let Some(consumed) = fill_in(run, measured, Length::UntilTheLast) else {
        return Ok(());
    };
    let is_complete = consumed.unread == 0 && consumed.gaps == 0;
    run.extra.insert("pulls".to_owned(), consumed.pulls as f64);
    run.extra
        .insert("complete".to_owned(), f64::from(u8::from(is_complete)));
    let verified = match (&sent, consumed.reads.first()) {
        (Some(sent), Some(read)) => {
            let mut found = judge(sent, read);
            if consumed.is_cut {
                // What was not reached in time is not missing.
                (found.missing, found.misnumbered) = (0, 0);
            }
            Some(found)
        }
        _ => spec.verify.then(|| by_themselves(&consumed)),
    };
    conclude(run, None, verified)
}

/// Receives what others send.
pub(super) fn tail(session: &Session<'_>, run: &mut Run) -> Result<(), String> {
    let spec = session.spec;
    let starts = starts(session)?;
    let measured = session.run_phase(&Phase {
        name: "measuring",
        warm_up: spec.warm_up,
        seconds: spec.seconds,
        producers: None,
        consumers: Some(Consumers {
            groups: vec![group(0)],
            starts: &starts,
            aim: &|_| Aim::Others,
            check: if spec.verify {
                Check::Records
            } else {
                Check::Nothing
            },
            ledger: Ledger::None,
            wait_ms: WAIT_MS,
            gives_way: false,
        }),
        disturb: None,
    })?;
    let Some(consumed) = fill_in(run, measured, Length::Whole) else {
        return Ok(());
    };
    run.extra
        .insert("received".to_owned(), consumed.received as f64);
    let verified = spec.verify.then(|| by_themselves(&consumed));
    conclude(run, None, verified)
}

/// Sends this many messages, before anything is measured.
pub(super) fn fill(
    session: &Session<'_>,
    messages: u64,
    producers: usize,
) -> Result<Option<Sent>, String> {
    let measured = session.run_phase(&Phase {
        name: "filling",
        warm_up: 0.0,
        seconds: FILL_MAX,
        producers: Some(Producers {
            first: 0,
            total: producers,
            rate: None,
            limit: Some(messages),
            reconnect: false,
        }),
        consumers: None,
        disturb: None,
    })?;
    let Some(produced) = measured.produced else {
        return Ok(None);
    };
    match produced.refusal {
        Some(refusal) => Err(format!("filling the topic: {refusal}")),
        None => Ok(produced.sent),
    }
}

/// How long the measured part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// It ends with the last message: there was no more to read.
    UntilTheLast,
    /// As asked for: without messages at its end the broker, or its senders, stood still.
    Whole,
}

/// Puts what consumers found into the result.
fn fill_in(run: &mut Run, measured: Measured, length: Length) -> Option<Consumed> {
    let mut consumed = measured.consumed?;
    let mut window = measured.window;
    if length == Length::UntilTheLast && consumed.last > window.from {
        window.until = window.until.min(consumed.last + 1);
    }
    consumed.recorder.window.until = window.until;
    run.seconds = window.seconds();
    run.server = measured.server;
    run.client = measured.client;
    count(run, &mut consumed.recorder);
    Some(consumed)
}

/// What can be said of messages whose sender is not known: each by its checksums, those of this
/// harness by their sequences, all by their queue offsets, which have no gaps. What was not
/// reached in time is not missing; what the broker did not give in that time is.
pub(super) fn by_themselves(consumed: &Consumed) -> Verified {
    let found = &consumed.found;
    let faults = found.wrong + found.doubled + found.misplaced;
    Verified {
        good: consumed.received.saturating_sub(faults),
        missing: match consumed.is_cut {
            true => consumed.gaps,
            false => consumed.gaps.saturating_add(consumed.unread),
        },
        ..found.clone()
    }
}

fn larger(one: &[i64], other: &[i64]) -> Vec<i64> {
    one.iter().zip(other).map(|(a, b)| *a.max(b)).collect()
}
