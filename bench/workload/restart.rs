//! Producers while the broker is stopped, or killed, and started again.

use super::phase::{Measured, Phase, Producers};
use super::produce::{conclude, fill_in, read_back, starts};
use super::session::Session;
use crate::bench::load::clock::{self, MS, sleep_until};
use crate::bench::measure::recorder::Window;
use crate::bench::result::Run;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// The command runs after this share of the measured part.
const BEFORE: f64 = 1.0 / 3.0;

pub(super) fn run(session: &Session<'_>, run: &mut Run) -> Result<(), String> {
    let spec = session.spec;
    if spec.threads > 1 {
        return Err("--threads: a restart is measured with one thread".to_owned());
    }
    let command = spec.restart_command.as_deref().unwrap_or_default();
    let starts = starts(session)?;
    let took = Mutex::new(0.0);
    let disturb = |window: &Window| {
        let length = (window.until - window.from) as f64;
        sleep_until(window.from + (length * BEFORE) as u64);
        let began = clock::now();
        shell(command)?;
        let ms = (clock::now() - began) as f64 / MS as f64;
        *took.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = ms;
        Ok(())
    };
    let measured = session.run_phase(&Phase {
        name: "measuring",
        warm_up: spec.warm_up,
        seconds: spec.seconds,
        producers: Some(Producers {
            first: 0,
            total: spec.connections,
            rate: spec.rate,
            limit: None,
            reconnect: true,
        }),
        consumers: None,
        disturb: Some(&disturb),
    })?;
    let Measured {
        window,
        produced: Some(mut produced),
        client,
        ..
    } = measured
    else {
        return Ok(());
    };
    run.seconds = window.seconds();
    run.client = client;
    fill_in(run, &mut produced);
    let outage = &produced.outage;
    let mut extra = |name: &str, value: f64| {
        run.extra.insert(name.to_owned(), value);
    };
    let took = *took.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    extra("command_ms", took);
    extra("downtime_ms", outage.downtime_ms());
    if let Some(recovery) = outage.recovery_ms() {
        extra("recovery_ms", recovery);
    }
    // A broker that stops may refuse, and its producers do not know what became of what they
    // had under way: that is no failure.
    extra("refused", produced.failed as f64);
    run.failed = 0;
    if !outage.was_lost() {
        return Err("no connection was lost: the command did not stop the broker".to_owned());
    }
    if !outage.is_over() {
        return Err("the broker acknowledged nothing after it was stopped".to_owned());
    }
    let verified = match &produced.sent {
        Some(sent) => {
            run.extra
                .insert("outcome_unknown".to_owned(), sent.unknown() as f64);
            Some(read_back(session, sent, &starts)?)
        }
        None => None,
    };
    conclude(run, produced.refusal.as_deref(), verified)
}

/// Runs a shell command to its end. What it starts in the background may live on.
fn shell(command: &str) -> Result<(), String> {
    let status = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("--restart-command: /bin/sh: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("--restart-command {command:?} ended with {status}"))
    }
}
