//! Where a store's files lie.
//!
//! The folder of log 0 is the store's root itself, so that a store with one log
//! is RocketMQ's own layout; log *k* lies in `shard-<k>/`, which is by itself
//! such a layout. The number of logs is the number of these folders.
//!
//! The logs are one broker's, or each is that of a broker of its own: then each
//! folder has a `config/`, a `lock` and an `abort` of its own, and the file
//! `routeMode` in the root says so. A store with one log may become either.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::ShardId;
use super::edge::Disk;
use super::json_file::save_json;

/// Whose the logs of a store are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOwners {
    /// All of them one broker's.
    One,
    /// Each a broker's of its own.
    Each,
}

/// What the file `routeMode` holds where each log has a broker of its own. Where all
/// are one broker's there is no such file, as in a store of RocketMQ.
const EACH: &str = "perShard";

/// Paths below a store's root.
#[derive(Clone, Debug)]
pub struct StoreLayout {
    root: PathBuf,
}

impl StoreLayout {
    /// The layout of the store at `root`.
    pub fn new(root: impl Into<PathBuf>) -> StoreLayout {
        StoreLayout { root: root.into() }
    }

    /// The store's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of one shard's log.
    pub fn shard_dir(&self, shard: ShardId) -> PathBuf {
        match shard.0 {
            0 => self.root.clone(),
            k => self.root.join(format!("shard-{k}")),
        }
    }

    /// A file of RocketMQ's `config/` folder.
    pub fn config_file(&self, name: &str) -> PathBuf {
        self.root.join("config").join(name)
    }

    /// The file that is there while a broker runs, and after one that did not
    /// stop cleanly.
    pub fn abort_file(&self) -> PathBuf {
        self.root.join("abort")
    }

    /// The store of the broker whose log this is, where each log has one of its own.
    pub fn of_log(&self, log: ShardId) -> StoreLayout {
        StoreLayout::new(self.shard_dir(log))
    }

    fn route_mode_file(&self) -> PathBuf {
        self.root.join("routeMode")
    }

    /// Whose the logs are. An empty file counts as none: a crash may have left it.
    ///
    /// # Errors
    /// Those of reading, with the path in the text; a text that stands for nothing.
    pub fn log_owners(&self) -> io::Result<LogOwners> {
        let path = self.route_mode_file();
        match std::fs::read_to_string(&path) {
            Ok(text) if text.trim() == EACH => Ok(LogOwners::Each),
            Ok(text) if text.trim().is_empty() => Ok(LogOwners::One),
            Ok(text) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{}: {text:?} is no routeMode of a store: the file holds {EACH}, or is not \
                     there, which means single",
                    path.display()
                ),
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LogOwners::One),
            Err(error) => Err(at(&path, &error)),
        }
    }

    /// Records whose the logs are, durably. For a store with one log at most: others
    /// are made for good.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub fn set_log_owners(&self, owners: LogOwners) -> io::Result<()> {
        let path = self.route_mode_file();
        let remove = || match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(&self.root)?.sync_all(),
        };
        // What is there is never worth a backup: it is empty.
        remove().map_err(|error| at(&path, &error))?;
        match owners {
            LogOwners::Each => save_json(&Disk, &path, format!("{EACH}\n").as_bytes()),
            LogOwners::One => Ok(()),
        }
    }

    /// Number of logs that the store has; 0 for a store that is yet to be made.
    ///
    /// # Errors
    /// Those of reading the folder, a missing one apart.
    pub fn logs(&self) -> io::Result<u16> {
        if !self.root.join("commitlog").is_dir() {
            return Ok(0);
        }
        let mut logs = 1;
        while self.shard_dir(ShardId(logs)).join("commitlog").is_dir() {
            logs += 1;
        }
        Ok(logs)
    }

    /// Makes the folders of a store with `logs` logs.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(&self, logs: u16, owners: LogOwners) -> io::Result<()> {
        std::fs::create_dir_all(self.root.join("config"))?;
        // The first log last: a store that is half made has none, and is made again.
        for shard in (0..logs).rev() {
            let dir = self.shard_dir(ShardId(shard));
            if owners == LogOwners::Each {
                std::fs::create_dir_all(dir.join("config"))?;
            }
            std::fs::create_dir_all(dir.join("consumequeue"))?;
            std::fs::create_dir_all(dir.join("commitlog"))?;
        }
        Ok(())
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The folder of a shard's segments.
pub(super) fn commit_log_dir(shard_dir: &Path) -> PathBuf {
    shard_dir.join("commitlog")
}

/// The folder of a shard's ConsumeQueues.
pub(super) fn consume_queue_root(shard_dir: &Path) -> PathBuf {
    shard_dir.join("consumequeue")
}

/// A shard's checkpoint file.
pub(super) fn checkpoint_file(shard_dir: &Path) -> PathBuf {
    shard_dir.join("checkpoint")
}

/// A shard's tail file.
pub(super) fn tail_file(shard_dir: &Path) -> PathBuf {
    shard_dir.join("tail")
}

/// The name of a file that begins at `offset`: 20 digits.
pub(super) fn file_name(offset: u64) -> String {
    format!("{offset:020}")
}

/// The offset that a file's name stands for; `None` for other files.
pub(super) fn offset_of_name(name: &std::ffi::OsStr) -> Option<u64> {
    let name = name.to_str()?;
    (name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit()))
        .then(|| name.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owners_are_kept_and_an_empty_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let layout = StoreLayout::new(dir.path());
        let path = layout.route_mode_file();
        assert_eq!(layout.log_owners().unwrap(), LogOwners::One);
        for text in ["", "\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(layout.log_owners().unwrap(), LogOwners::One);
            layout.set_log_owners(LogOwners::Each).unwrap();
            assert_eq!(layout.log_owners().unwrap(), LogOwners::Each);
            // Nothing beside it.
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        layout.set_log_owners(LogOwners::One).unwrap();
        assert_eq!(layout.log_owners().unwrap(), LogOwners::One);
        assert!(!path.exists());

        std::fs::write(&path, "both").unwrap();
        let text = layout.log_owners().unwrap_err().to_string();
        for part in ["routeMode", "both", "perShard", "not there", "single"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
