//! From the intended time of a send until consumers that wait have the message: one group, or
//! several that read everything each.

use super::consume::{WAIT_MS, group};
use super::phase::{Consumers, Ledger, Measured, Phase, Producers};
use super::produce::{conclude, count, starts};
use super::session::Session;
use crate::bench::load::consumer::{Aim, Check};
use crate::bench::result::{Run, Verified};
use crate::bench::verify::judge;

/// Messages per second where none are asked for.
const RATE: f64 = 1000.0;

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
            rate: Some(spec.rate.unwrap_or(RATE)),
            limit: None,
            reconnect: false,
        }),
        consumers: Some(Consumers {
            groups: (0..spec.groups).map(group).collect(),
            starts: &starts,
            aim: &|_| Aim::Tail,
            check: if spec.verify {
                Check::Stamps
            } else {
                Check::Nothing
            },
            ledger: Ledger::Open(spec.connections),
            wait_ms: WAIT_MS,
            gives_way: false,
        }),
        disturb: None,
    })?;
    let Measured {
        window,
        produced: Some(mut produced),
        consumed: Some(mut consumed),
        server,
        client,
    } = measured
    else {
        return Ok(());
    };
    run.seconds = window.seconds();
    run.server = server;
    run.client = client;
    count(run, &mut consumed.recorder);
    run.failed = produced.failed;
    run.late = produced.late;
    let mut extra = |name: &str, value: f64| {
        run.extra.insert(name.to_owned(), value);
    };
    extra("sent", produced.recorder.messages as f64);
    if let Some(acknowledged) = produced.recorder.latency() {
        extra("acknowledged_p50_us", acknowledged.p50_us as f64);
        extra("acknowledged_p99_us", acknowledged.p99_us as f64);
        extra("acknowledged_p999_us", acknowledged.p999_us as f64);
    }
    let verified = produced.sent.as_ref().map(|sent| {
        let mut all = Verified::default();
        for read in &consumed.reads {
            all.add(&judge(sent, read));
        }
        all
    });
    conclude(run, produced.refusal.as_deref(), verified)
}
