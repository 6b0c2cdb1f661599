//! Producers while the broker is stopped, or killed, and started again.

use super::phase::{Measured, Phase, Producers};
use super::produce::{conclude, fill_in, read_back, starts};
use super::session::Session;
use crate::bench::load::clock::{self, MS, sleep_until};
use crate::bench::load::live::Live;
use crate::bench::measure::recorder::Window;
use crate::bench::result::Run;
use crate::bench::result::extra::{LOST_IN_FLIGHT, LOST_LONGEST_MS};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// The command runs after this share of the measured part.
const BEFORE: f64 = 1.0 / 3.0;

/// How often it is looked how things stand, in ns.
const LOOK_NS: u64 = 5 * MS;

pub(super) fn run(session: &Session<'_>, run: &mut Run) -> Result<(), String> {
    let spec = session.spec;
    if spec.threads > 1 {
        return Err("--threads: a restart is measured with one thread".to_owned());
    }
    let command = spec.restart_command.as_deref().unwrap_or_default();
    let starts = starts(session)?;
    let took = Mutex::new(0.0);
    let disturb = |window: &Window, live: &Live| {
        let length = (window.until - window.from) as f64;
        let at = window.from + (length * BEFORE) as u64;
        while clock::now() < at {
            if live.is_aborted() {
                // The producers failed: a restart would show nothing.
                return Ok(());
            }
            sleep_until(at.min(clock::now() + LOOK_NS));
        }
        let began = clock::now();
        shell(command, window.until + clock::nanos(spec.timeout), live)?;
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
    extra(LOST_IN_FLIGHT, outage.lost_in_flight() as f64);
    extra(LOST_LONGEST_MS, outage.longest_wait_ms());
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
    let verified = match produced.sent {
        Some(sent) => {
            extra("outcome_unknown", sent.unknown() as f64);
            Some(read_back(session, sent, &starts, None)?.verified)
        }
        None => None,
    };
    conclude(run, produced.refusal.as_deref(), verified)
}

/// Runs a shell command to its end, at the latest until `until`, in ns of the monotonic clock, or
/// until the run ends early. What it starts in the background may live on, unless it takes too
/// long itself: then all of its process group is killed.
fn shell(command: &str, until: u64, live: &Live) -> Result<(), String> {
    let system = |error| format!("--restart-command: /bin/sh: {error}");
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(system)?;
    loop {
        if let Some(status) = child.try_wait().map_err(system)? {
            return match status.success() {
                true => Ok(()),
                false => Err(format!("--restart-command {command:?} ended with {status}")),
            };
        }
        if live.is_aborted() {
            kill_group(&mut child);
            return Ok(());
        }
        if clock::now() >= until {
            kill_group(&mut child);
            return Err(format!(
                "--restart-command {command:?} had not ended --timeout after the measured part, \
                 and was killed"
            ));
        }
        sleep_until(clock::now() + LOOK_NS);
    }
}

/// Kills a child that leads a process group, and the group.
fn kill_group(child: &mut Child) {
    if let Ok(group) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a plain system call. The child is not waited for yet, so its number is its own.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_never_ends_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let sign = folder.path().join("sign");
        let command = format!("(sleep 1; touch '{}') & sleep 100", sign.display());
        let began = clock::now();
        let error = shell(&command, began + 200 * MS, &Live::default()).expect_err("too long");
        assert!(error.contains("was killed"), "{error}");
        assert!(clock::now() - began < 10 * clock::SECOND);
        sleep_until(began + 1500 * MS);
        assert!(!sign.exists(), "what it started lives on");
    }

    #[test]
    fn how_a_command_ends_is_told() {
        let run = |command: &str| {
            let until = clock::now() + 60 * clock::SECOND;
            shell(command, until, &Live::default())
        };
        assert_eq!(run("true"), Ok(()));
        let error = run("exit 3").expect_err("a failure");
        assert!(error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn a_run_that_ended_needs_no_command() {
        let live = Live::default();
        live.abort();
        let began = clock::now();
        assert_eq!(
            shell("sleep 100", began + 60 * clock::SECOND, &live),
            Ok(())
        );
        assert!(clock::now() - began < 10 * clock::SECOND);
    }
}
