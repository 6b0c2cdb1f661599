//! The files in which broadcasting consumers keep their offsets.
//!
//! Work for a thread that may wait for the disk. A file is replaced as a whole: after a crash,
//! or on a full disk, it is the old one or the new one.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use crate::client::core::io::{Command, ConsumerId, FileFault};

/// Largest offset file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The content of `file` below `folder`; `None` where there is none.
///
/// # Errors
/// [`FileFault`] with the path.
pub(super) fn load(folder: &Path, file: &str) -> Result<Option<Vec<u8>>, FileFault> {
    let path = path_of(folder, file)?;
    let fault = |why: String| FileFault {
        path: path.display().to_string(),
        why,
    };
    let opened = match File::open(&path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error.to_string())),
    };
    let mut content = Vec::new();
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut content);
    read.map_err(|error| fault(error.to_string()))?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(fault(format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(Some(content))
}

/// Replaces `file` below `folder`.
///
/// # Errors
/// [`FileFault`] with the path; the old content stays.
pub(super) fn store(folder: &Path, file: &str, content: &[u8]) -> Result<(), FileFault> {
    let path = path_of(folder, file)?;
    let fresh = path.with_extension("tmp");
    let replace = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut out = File::create(&fresh)?;
        out.write_all(content)?;
        out.sync_all()?;
        fs::rename(&fresh, &path)
    };
    replace().map_err(|error| {
        let _ = fs::remove_file(&fresh);
        FileFault {
            path: path.display().to_string(),
            why: error.to_string(),
        }
    })
}

/// The path, provided that it stays below the folder: its parts have names from settings.
fn path_of(folder: &Path, file: &str) -> Result<PathBuf, FileFault> {
    let parts = Path::new(file);
    let is_below = parts
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !is_below || parts.file_name().is_none() || file.contains('\0') {
        return Err(FileFault {
            path: folder.join(file).display().to_string(),
            why: "leads out of the folder of offsets".to_owned(),
        });
    }
    Ok(folder.join(parts))
}

/// The folder where none is set: `.rocketmq_offsets` in the home folder, as in Java.
pub(super) fn default_folder() -> PathBuf {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    home.map_or_else(std::env::temp_dir, PathBuf::from)
        .join(".rocketmq_offsets")
}

/// Work that waits for the disk.
pub(super) enum FileJob {
    Load(ConsumerId, String),
    Store(ConsumerId, String, Vec<u8>),
}

impl FileJob {
    /// Does it; what the core is to be told.
    pub fn run(self, folder: &Path) -> Command {
        match self {
            FileJob::Load(consumer, file) => Command::OffsetsLoaded {
                consumer,
                result: load(folder, &file),
            },
            FileJob::Store(consumer, file, content) => Command::OffsetsStored {
                consumer,
                result: store(folder, &file, &content),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = "10.0.0.1@a/group/offsets.json";
        assert_eq!(load(folder.path(), file), Ok(None));
        store(folder.path(), file, b"one").unwrap();
        store(folder.path(), file, b"two").unwrap();
        assert_eq!(load(folder.path(), file), Ok(Some(b"two".to_vec())));
        let beside = folder.path().join("10.0.0.1@a/group");
        assert_eq!(fs::read_dir(beside).unwrap().count(), 1);
    }

    #[test]
    fn what_fails_names_the_path_and_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), "a/b.json", b"one").unwrap();
        // A folder where the new file would be made.
        fs::create_dir(folder.path().join("a/b.tmp")).unwrap();
        let fault = store(folder.path(), "a/b.json", b"two").unwrap_err();
        assert!(fault.path.ends_with("a/b.json"), "{fault:?}");
        assert_eq!(load(folder.path(), "a/b.json"), Ok(Some(b"one".to_vec())));
        for bad in ["", "../x", "/etc/x", "a/../../x", "a\0b"] {
            assert!(store(folder.path(), bad, b"x").is_err(), "{bad:?}");
            assert!(load(folder.path(), bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_full_disk_is_an_error_and_no_loss() {
        // A device that is always full, under the name that the new content is written to.
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), "b.json", b"one").unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join("b.tmp")).unwrap();
        let fault = store(folder.path(), "b.json", b"two").unwrap_err();
        assert!(fault.why.contains("space"), "{fault:?}");
        assert_eq!(load(folder.path(), "b.json"), Ok(Some(b"one".to_vec())));
    }
}
