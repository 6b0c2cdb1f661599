//! Work on a store while no broker uses it: a whole check, and repair.

use std::fmt;
use std::path::{Path, PathBuf};

use super::budgets::store_settings;
use super::flush_choice::FlushChoice;
use crate::config::Settings;
use crate::probe::memory_bytes;
use crate::shard::{allowed_cpus, spawn_executor};
use crate::store::{
    LogCheck, LogOwners, RecoveryReport, ShardId, StoreHandle, StoreLayout, StoreLock, adopt_tail,
    check_log, cut_log, run_background,
};
use crate::wire::body::json;

/// Why the work could not be done.
#[derive(Debug)]
pub struct OfflineError(String);

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OfflineError {}

fn failed(error: impl fmt::Display) -> OfflineError {
    OfflineError(error.to_string())
}

/// What a check found.
#[derive(Debug)]
pub struct StoreCheck {
    /// Each log; the number of the shard is its place.
    pub logs: Vec<Result<LogCheck, String>>,
    /// Files of `config/` that cannot be read, and why.
    pub config_faults: Vec<(PathBuf, String)>,
    /// The last broker on the store did not stop cleanly.
    pub after_crash: bool,
}

impl StoreCheck {
    /// Whether a start serves every message, with nothing made anew.
    pub fn is_sound(&self) -> bool {
        let sound = |log: &Result<LogCheck, String>| log.as_ref().is_ok_and(LogCheck::is_sound);
        self.logs.iter().all(sound) && self.config_faults.is_empty()
    }
}

/// A store that is there and locked.
struct Locked {
    layout: StoreLayout,
    logs: u16,
    /// The folders of its brokers: one, or one a log.
    brokers: Vec<StoreLayout>,
    _locks: Vec<StoreLock>,
}

fn lock(settings: &Settings) -> Result<Locked, OfflineError> {
    let layout = StoreLayout::new(&settings.store_path_root_dir);
    let logs = layout.logs().map_err(failed)?;
    if logs == 0 {
        return Err(OfflineError(format!(
            "{}: no store: there is no folder `commitlog` in it",
            layout.root().display()
        )));
    }
    let brokers = match layout.log_owners().map_err(failed)? {
        LogOwners::One => vec![layout.clone()],
        LogOwners::Each => (0..logs).map(|log| layout.of_log(ShardId(log))).collect(),
    };
    let locks = brokers
        .iter()
        .map(|layout| StoreLock::acquire(layout.root()));
    Ok(Locked {
        _locks: locks.collect::<Result<_, _>>().map_err(failed)?,
        layout,
        logs,
        brokers,
    })
}

/// Reads a whole store and changes nothing in it.
///
/// # Errors
/// [`OfflineError`]: there is no store, or a broker uses it.
pub fn check(settings: &Settings) -> Result<StoreCheck, OfflineError> {
    let store = lock(settings)?;
    let crashed = |layout: &StoreLayout| layout.abort_file().exists();
    let one = |log: u16| {
        let shard = ShardId(log);
        let broker = store.brokers.get(shard.index()).unwrap_or(&store.layout);
        let after_crash = crashed(broker);
        let settings = store_settings(
            settings,
            memory_bytes(),
            store.logs,
            after_crash,
            FlushChoice::DEFAULT,
        );
        check_log(&store.layout.shard_dir(shard), shard, &settings)
            .map_err(|error| error.to_string())
    };
    Ok(StoreCheck {
        logs: (0..store.logs).map(one).collect(),
        config_faults: store.brokers.iter().flat_map(config_faults).collect(),
        after_crash: store.brokers.iter().any(crashed),
    })
}

fn config_faults(layout: &StoreLayout) -> Vec<(PathBuf, String)> {
    let dir = layout.config_file("");
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = names.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    let fault = |path: PathBuf| {
        let text = match std::fs::read(&path) {
            Err(error) => error.to_string(),
            Ok(bytes) => json::parse::<serde_json::Value>(&bytes).err()?.to_string(),
        };
        Some((path, text))
    };
    paths.into_iter().filter_map(fault).collect()
}

/// What a repair did to one log.
#[derive(Debug)]
pub struct LogRepair {
    /// Position that the log was cut at.
    pub cut_at: Option<u64>,
    /// What the new start found.
    pub report: RecoveryReport,
}

/// Makes all queue files anew from the log. With `cut`, a damaged log is ended in
/// front of the damage first; what lies behind is kept beside it.
///
/// # Errors
/// [`OfflineError`]: there is no store, a broker uses it, or a log is damaged and is
/// not to be cut.
pub fn repair(settings: &Settings, cut: bool) -> Result<Vec<LogRepair>, OfflineError> {
    let store = lock(settings)?;
    let mut repairs = Vec::new();
    for shard in (0..store.logs).map(ShardId) {
        let dir = store.layout.shard_dir(shard);
        repairs.push(repair_log(settings, &dir, shard, cut)?);
    }
    for broker in &store.brokers {
        match std::fs::remove_file(broker.abort_file()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
    }
    Ok(repairs)
}

fn repair_log(
    settings: &Settings,
    dir: &Path,
    shard: ShardId,
    cut: bool,
) -> Result<LogRepair, OfflineError> {
    let mut store = store_settings(settings, memory_bytes(), 1, true, FlushChoice::DEFAULT);
    store.rebuild_queues = true;
    adopt_tail(dir, shard, &store).map_err(failed)?;
    let mut cut_at = None;
    let check = check_log(dir, shard, &store);
    if !check.as_ref().is_ok_and(|check| check.fault.is_none()) {
        if !cut {
            return Err(match check {
                Err(error) => failed(error),
                Ok(check) => OfflineError(format!(
                    "log {shard} is damaged: {}; --cut ends it there",
                    check
                        .fault
                        .map(|fault| fault.to_string())
                        .unwrap_or_default()
                )),
            });
        }
        cut_at = Some(cut_log(dir, shard, &store).map_err(failed)?);
    }
    let cpu = *allowed_cpus().map_err(failed)?.first().unwrap_or(&0);
    let dir = dir.to_owned();
    let work = move || async move {
        let opened = StoreHandle::open(&dir, shard, store);
        let (handle, report) = opened.map_err(|error| error.to_string())?;
        run_background(&handle);
        handle.close().await.map_err(|error| error.to_string())?;
        Ok::<_, String>(report)
    };
    let report = spawn_executor("repair", cpu, work)
        .map_err(OfflineError)?
        .join()
        .map_err(failed)?
        .map_err(OfflineError)?;
    Ok(LogRepair { cut_at, report })
}
