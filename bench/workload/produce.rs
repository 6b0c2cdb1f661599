//! Messages are sent; then all of them are read back.

use super::Mode;
use super::phase::{Consumers, Measured, Phase, Produced, Producers};
use super::session::Session;
use crate::bench::load::clock;
use crate::bench::load::consumer::{Aim, Check};
use crate::bench::result::{Run, Verified};
use crate::bench::verify::{Read, Sent, judge};

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
    let mut verified = match &produced.sent {
        Some(sent) => Some(read_back(session, sent, &starts)?),
        None => None,
    };
    if let (Mode::OneWay, Some(verified)) = (spec.mode, &mut verified) {
        // None is acknowledged, and none promised: what is there is good, the rest is told.
        verified.good = std::mem::take(&mut verified.unacknowledged);
        let lost = produced.requested.saturating_sub(verified.good);
        run.extra.insert("one_way_lost".to_owned(), lost as f64);
    }
    conclude(run, produced.refusal.as_deref(), verified)
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
    run.messages = produced.recorder.messages;
    run.body_bytes = produced.recorder.body_bytes;
    run.failed = produced.failed;
    run.late = produced.late;
    run.latency = produced.recorder.latency();
    run.timeline = produced.recorder.timeline();
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
        faults.extend(wrong.map(|(count, what)| format!("{count} {what}")));
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

/// Reads everything that was acknowledged, and whatever is behind it.
pub(super) fn read_back(
    session: &Session<'_>,
    sent: &Sent,
    starts: &[i64],
) -> Result<Verified, String> {
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
            producers: sent.producers(),
            wait_ms: 0,
        }),
        disturb: None,
    })?;
    let consumed = measured.consumed.map(|consumed| consumed.reads);
    let mut reads = consumed.unwrap_or_default().into_iter();
    let read: Read = reads.next().ok_or("nothing was read back")?;
    Ok(judge(sent, &read))
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
