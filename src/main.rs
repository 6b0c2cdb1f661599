//! `ringmq`: command line, settings, logging, the questions to the machine, then the server.
//!
//! Exit codes: 0 stopped as asked, 1 could not start, 2 command line or settings are wrong.

#[path = "../bench/mod.rs"]
mod bench;
mod cli;

use cli::{Cli, Job, LogFormat, Run, StoreCommand};
use ringmq::config::{self, Loaded, Role};
use ringmq::{probe, server};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: ringmq::large_alloc::CountLarge = ringmq::large_alloc::CountLarge;

const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != HELP_ALONE => {
            let text = error.render().to_string();
            return fail(
                USAGE,
                text.strip_prefix("error: ").unwrap_or(&text).trim_end(),
            );
        }
        Err(error) => error.exit(),
    };
    match cli.command.into_job() {
        Job::Run(role, run) => serve(role, &run),
        Job::Store(command) => work_on_store(&command),
        Job::Tune(command) => finish(command.run().map(|()| true)),
        Job::Admin(args) => args.run(),
        Job::Status(args) => args.run(),
        Job::Produce(args) => args.run(),
        Job::Consume(args) => args.run(),
        Job::Completions(args) => args.run(),
        Job::Man(args) => args.run(),
        Job::Bench(command) => {
            log_to_stderr("warn", LogFormat::Text);
            finish(command.run())
        }
    }
}

fn finish(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(why) => fail(FAILED, &why),
    }
}

fn work_on_store(command: &StoreCommand) -> ExitCode {
    let settings = match config::load(&command.sources()) {
        Ok(loaded) => loaded.settings,
        Err(error) => return fail(USAGE, &error.to_string()),
    };
    log_to_stderr("warn", LogFormat::Text);
    finish(command.run(&settings))
}

fn serve(role: Role, run: &Run) -> ExitCode {
    let Loaded {
        settings,
        without_effect,
    } = match config::load(&run.sources(role)) {
        Ok(loaded) => loaded,
        Err(error) => return fail(USAGE, &error.to_string()),
    };
    log_to_stderr(&run.log_level, run.log_format);
    if !without_effect.is_empty() {
        tracing::info!(
            keys = without_effect.join(" "),
            "settings of RocketMQ that have no effect here"
        );
    }
    let report = match probe::run(&probe::Plan {
        store: (role != Role::Nameserver).then_some(&settings.store_path_root_dir),
        shards: settings.shard_count(),
        connections_max: settings.connections_max,
    }) {
        Ok(report) => report,
        Err(missing) => {
            let all: Vec<String> = missing.iter().map(ToString::to_string).collect();
            return fail(FAILED, &all.join("\nringmq: "));
        }
    };
    for advice in &report.advice {
        tracing::warn!("{advice}");
    }
    tracing::debug!(?report, "the machine");
    match server::run(role, Arc::new(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &error.to_string()),
    }
}

/// `ringmq` alone: the help, which is no mistake to be reported.
const HELP_ALONE: clap::error::ErrorKind =
    clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("ringmq: {message}");
    ExitCode::from(code)
}

fn log_to_stderr(level: &str, format: LogFormat) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => lines
            .compact()
            .with_target(false)
            .with_ansi(io::stderr().is_terminal())
            .init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
