//! Messages are sent; then all of them are read back.

use super::Mode;
use super::phase::{Consumers, Ledger, Measured, Phase, Produced, Producers};
use super::session::Session;
use crate::bench::load::clock;
use crate::bench::load::consumer::{Aim, Check};
use crate::bench::measure::recorder::{Recorder, Window};
use crate::bench::result::{Run, Verified};
use crate::bench::verify::{Read, Sent, judge};
use std::sync::Arc;

/// Longest time in which all messages are read back, in seconds.
const READ_BACK_MAX: f64 = 3600.0;

/// How long a queue must stay as it is before nothing more is expected of one-way sends.
const QUIET_NS: u64 = 300 * clock::MS;

/// Group that reads back.
const READ_BACK_GROUP: &str = "ringmq-bench-verify";

pub(super) fn run(session: &Session<'_>, run: &mut Run) -> Result<(), String> {
    let spec = session.spec;
    let starts = starts(session)?;
    let measured = session.run_phase(&Phase {
        name: "measuring",
        warm_up: spec.warm_up,
        seconds: spec.seconds,
        producers: Some(Producers {
            first: 0,
            total: spec.connections,
            rate: spec.rate,
            limit: None,
            reconnect: false,
        }),
        consumers: None,
        disturb: None,
    })?;
    let Measured {
        window,
        produced,
        server,
        client,
        ..
    } = measured;
    let Some(mut produced) = produced else {
        return Ok(());
    };
    run.seconds = window.seconds();
    run.server = server;
    run.client = client;
    fill_in(run, &mut produced);
    let Some(sent) = produced.sent else {
        return conclude(run, produced.refusal.as_deref(), None);
    };
    let is_one_way = spec.mode == Mode::OneWay;
    let mut found = read_back(session, sent, &starts, is_one_way.then_some(window))?;
    if let Some(arrived) = &mut found.arrived {
        // None is acknowledged, and none promised: what is there is good, and is the broker's
        // rate; the rest is told.
        let written = count(run, arrived);
        let verified = &mut found.verified;
        verified.good = std::mem::take(&mut verified.unacknowledged);
        let lost = produced.requested.saturating_sub(verified.good);
        run.extra.insert("one_way_lost".to_owned(), lost as f64);
        run.extra.insert("one_way_sent".to_owned(), written as f64);
    }
    conclude(run, produced.refusal.as_deref(), Some(found.verified))
}

/// Where the queues end before anything is sent. Those of new topics are empty.
pub(super) fn starts(session: &Session<'_>) -> Result<Vec<i64>, String> {
    if session.route.is_new {
        return Ok(vec![0; session.places()]);
    }
    session.max_offsets()
}

/// Puts what producers found into the result.
pub(super) fn fill_in(run: &mut Run, produced: &mut Produced) {
    count(run, &mut produced.recorder);
    run.failed = produced.failed;
    run.late = produced.late;
}

/// Puts messages and latencies into the result. Returns the messages that were there before.
pub(super) fn count(run: &mut Run, recorder: &mut Recorder) -> u64 {
    run.body_bytes = recorder.body_bytes;
    run.latency = recorder.latency();
    run.timeline = recorder.timeline();
    std::mem::replace(&mut run.messages, recorder.messages)
}

/// What is wrong with messages, as text.
pub(super) fn faults(found: &Verified) -> Vec<String> {
    let counts = [
        (found.missing, "acknowledged messages are missing"),
        (found.doubled, "messages are there twice"),
        (found.misplaced, "messages are out of order"),
        (found.wrong, "messages have another content"),
        (
            found.misnumbered,
            "queues have other queue offsets than were answered",
        ),
    ];
    let wrong = counts.into_iter().filter(|&(count, _)| count > 0);
    wrong
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
}

/// Names what was wrong.
pub(super) fn conclude(
    run: &mut Run,
    refusal: Option<&str>,
    verified: Option<Verified>,
) -> Result<(), String> {
    let mut faults = Vec::new();
    if run.failed > 0 {
        let first = refusal.unwrap_or_default();
        faults.push(format!(
            "{} requests failed, the first: {first}",
            run.failed
        ));
    }
    if let Some(found) = &verified {
        faults.extend(self::faults(found));
    }
    if faults.is_empty() && run.messages == 0 {
        faults.push("no message went through in the measured part".to_owned());
    }
    run.verified = verified;
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("; "))
    }
}

/// What was found when everything was read back.
pub(super) struct Found {
    pub verified: Verified,
    /// Messages that were due in the window that was asked for, each once.
    pub arrived: Option<Recorder>,
}

/// Reads everything that was acknowledged, and whatever is behind it.
pub(super) fn read_back(
    session: &Session<'_>,
    sent: Sent,
    starts: &[i64],
    window: Option<Window>,
) -> Result<Found, String> {
    let sent = Arc::new(sent);
    let ends = if session.spec.mode == Mode::OneWay {
        settle(session)?
    } else {
        sent.ends()
    };
    let measured = session.run_phase(&Phase {
        name: "reading back",
        warm_up: 0.0,
        seconds: READ_BACK_MAX,
        producers: None,
        consumers: Some(Consumers {
            groups: vec![READ_BACK_GROUP.to_owned()],
            starts,
            aim: &|place| Aim::End(ends[place]),
            check: Check::Stamps,
            ledger: Ledger::Closed(Arc::clone(&sent), window),
            wait_ms: 0,
            gives_way: false,
        }),
        disturb: None,
    })?;
    let consumed = measured.consumed.map(|consumed| consumed.reads);
    let mut reads = consumed.unwrap_or_default().into_iter();
    let mut read: Read = reads.next().ok_or("nothing was read back")?;
    Ok(Found {
        verified: judge(&sent, &read),
        arrived: read.arrived(),
    })
}

/// Waits until one-way sends have arrived: until the queues stay as they are.
fn settle(session: &Session<'_>) -> Result<Vec<i64>, String> {
    let mut last = session.max_offsets()?;
    let begin = clock::now();
    let mut since = begin;
    loop {
        clock::sleep_until(clock::now() + QUIET_NS / 10);
        let ends = session.max_offsets()?;
        let now = clock::now();
        if ends != last {
            (last, since) = (ends, now);
        } else if now - since > QUIET_NS {
            return Ok(last);
        }
        if now - begin > clock::nanos(session.spec.timeout) * 6 {
            return Err("one-way sends still arrive long after the last was sent".to_owned());
        }
    }
}
