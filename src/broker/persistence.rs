//! The files of RocketMQ's `config/` folder, written by the control shard alone.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use super::control::offsets::OffsetSnapshot;
use super::message::{Answer, Ask};
use super::{BrokerShard, now_ms};
use crate::shard::{LocalEvent, blocking};
use crate::store::{Disk, LoadedFrom, StoreLayout, load_json, save_json};
use crate::wire::body::offset::DelayOffsets;
use crate::wire::body::topic::DataVersion;

/// Topics and their settings.
pub(super) const TOPICS: &str = "topics.json";
/// Subscription groups.
pub(super) const GROUPS: &str = "subscriptionGroup.json";
/// Committed offsets.
pub(super) const OFFSETS: &str = "consumerOffset.json";
/// Progress of delayed delivery.
pub(super) const DELAYS: &str = "delayOffset.json";

/// What the control shard knows of its files.
pub(super) struct TableFiles {
    layout: StoreLayout,
    saving: Cell<bool>,
    saved: LocalEvent,
    /// Files that could not be written when it was last tried.
    failed: RefCell<BTreeSet<PathBuf>>,
    /// Offsets of each shard as they were last written.
    offsets: RefCell<Vec<OffsetSnapshot>>,
    offsets_version: RefCell<DataVersion>,
    offsets_unsaved: Cell<bool>,
    delays_unsaved: Cell<bool>,
    delays: RefCell<BTreeMap<i32, i64>>,
    delays_version: RefCell<DataVersion>,
}

impl TableFiles {
    /// The files below a store's root, as they were read from it.
    pub fn new(
        layout: StoreLayout,
        offsets: Vec<OffsetSnapshot>,
        offsets_version: DataVersion,
        delays: BTreeMap<i32, i64>,
        delays_version: DataVersion,
    ) -> TableFiles {
        TableFiles {
            layout,
            saving: Cell::new(false),
            saved: LocalEvent::default(),
            failed: RefCell::default(),
            offsets: RefCell::new(offsets),
            offsets_version: RefCell::new(offsets_version),
            offsets_unsaved: Cell::new(false),
            delays_unsaved: Cell::new(false),
            delays: RefCell::new(delays),
            delays_version: RefCell::new(delays_version),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.layout.config_file(name)
    }
}

/// Reads a file of the `config/` folder and says which one it took.
pub(super) fn load<T>(
    layout: &StoreLayout,
    name: &str,
    parse: impl FnMut(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let path = layout.config_file(name);
    match load_json(&Disk, &path, parse)? {
        Some((value, LoadedFrom::File)) => Ok(Some(value)),
        Some((value, LoadedFrom::Backup)) => {
            tracing::warn!(path = %path.display(), "missing or damaged; its backup (.bak) was taken");
            // The next write moves the file over its backup: not a damaged one over a good one.
            let _ = std::fs::rename(&path, path.with_extension("json.damaged"));
            Ok(Some(value))
        }
        None => Ok(None),
    }
}

impl TableFiles {
    /// Writes a file; `false` where that failed, which the caller remembers. Says so
    /// once, and when it is written again: a disk may be full for long.
    async fn save(&self, name: &str, bytes: Vec<u8>) -> bool {
        let path = self.path(name);
        let file = path.clone();
        let saved: io::Result<()> = blocking(move || save_json(&Disk, &file, &bytes)).await;
        let mut failed = self.failed.borrow_mut();
        match &saved {
            Ok(()) if failed.remove(&path) => {
                tracing::info!(path = %path.display(), "the configuration file is written again");
            }
            Err(error) if failed.insert(path) => {
                tracing::error!(%error, "a configuration file was not written; it is tried again");
            }
            _ => {}
        }
        saved.is_ok()
    }
}

impl BrokerShard {
    /// Writes topics and groups where they changed, and returns when what was
    /// there at the call is on the device. Those who come meanwhile share a write.
    pub(super) async fn save_tables(&self) {
        let Some(control) = &self.control else {
            return;
        };
        while control.tables.saving.get() {
            control.tables.saved.wait().await;
        }
        let (topics, groups) = {
            let mut state = control.state.borrow_mut();
            let topics = state.topics.take_dirty().then(|| state.topics.to_json());
            let groups = state.groups.take_dirty().then(|| state.groups.to_json());
            (topics, groups)
        };
        if topics.is_none() && groups.is_none() {
            return;
        }
        control.tables.saving.set(true);
        if let Some(topics) = topics {
            if !control.tables.save(TOPICS, topics).await {
                control.state.borrow_mut().topics.set_dirty();
            }
        }
        if let Some(groups) = groups {
            if !control.tables.save(GROUPS, groups).await {
                control.state.borrow_mut().groups.set_dirty();
            }
        }
        control.tables.saving.set(false);
        control.tables.saved.notify();
    }

    /// Writes the offsets of all shards where any changed.
    pub(super) async fn save_offsets(&self, force: bool) {
        let Some(control) = &self.control else {
            return;
        };
        let answers = self.ask_all(|| Ask::Offsets { force }).await;
        let bytes = {
            let mut known = control.tables.offsets.borrow_mut();
            let mut changed = force || control.tables.offsets_unsaved.get();
            for (mine, answer) in known.iter_mut().zip(answers) {
                if let Answer::Snapshot(Some(snapshot)) = answer {
                    *mine = snapshot;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
            let mut all = OffsetSnapshot::default();
            for part in known.iter() {
                all.merge(part.clone());
            }
            let mut version = control.tables.offsets_version.borrow_mut();
            version.next(now_ms());
            all.to_json(*version)
        };
        let saved = control.tables.save(OFFSETS, bytes).await;
        control.tables.offsets_unsaved.set(!saved);
    }

    /// Writes the progress of delayed delivery where it changed.
    pub(super) async fn save_delays(&self) {
        let Some(control) = &self.control else {
            return;
        };
        let answers = self.ask_all(|| Ask::DelayProgress).await;
        let bytes = {
            let mut known = control.tables.delays.borrow_mut();
            let before = known.clone();
            for answer in answers {
                if let Answer::Delay(progress) = answer {
                    known.extend(progress);
                }
            }
            if *known == before && !control.tables.delays_unsaved.get() {
                return;
            }
            let mut version = control.tables.delays_version.borrow_mut();
            version.next(now_ms());
            delay_json(&known, *version)
        };
        let saved = control.tables.save(DELAYS, bytes).await;
        control.tables.delays_unsaved.set(!saved);
    }

    /// The answer to GET_ALL_DELAY_OFFSET.
    pub(super) fn delay_offsets(&self) -> Vec<u8> {
        match &self.control {
            Some(control) => delay_json(
                &control.tables.delays.borrow(),
                *control.tables.delays_version.borrow(),
            ),
            None => Vec::new(),
        }
    }
}

fn delay_json(progress: &BTreeMap<i32, i64>, version: DataVersion) -> Vec<u8> {
    let file = DelayOffsets {
        data_version: version,
        offset_table: progress.clone(),
    };
    file.to_json()
}
