//! Configuration files that survive a crash at any moment.
//!
//! Written to a temporary file, synced, the old file kept as `.bak`, renamed,
//! the folder synced. Whatever is found after a crash, one of the two is whole.

use std::io;
use std::path::{Path, PathBuf};

use super::edge::{Files, Mode, if_there};

/// Which file a configuration was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadedFrom {
    /// The file itself.
    File,
    /// Its backup, as the file was missing or damaged.
    Backup,
}

fn backup_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".bak");
    PathBuf::from(name)
}

/// Reads and parses a configuration file; falls back to its backup.
/// `None` where neither exists.
///
/// # Errors
/// Text with both paths and what was wrong, when no whole file is there but a
/// damaged one is: the caller must not write over it.
pub fn load_json<T>(
    files: &dyn Files,
    path: &Path,
    mut parse: impl FnMut(&[u8]) -> Result<T, String>,
) -> Result<Option<(T, LoadedFrom)>, String> {
    let mut faults = Vec::new();
    for (path, from) in [
        (path.to_owned(), LoadedFrom::File),
        (backup_of(path), LoadedFrom::Backup),
    ] {
        match files.read(&path) {
            Ok(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => {
                faults.push(format!("{}: empty", path.display()));
            }
            Ok(bytes) => match parse(&bytes) {
                Ok(value) => return Ok(Some((value, from))),
                Err(fault) => faults.push(format!("{}: {fault}", path.display())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => faults.push(error.to_string()),
        }
    }
    if faults.is_empty() {
        Ok(None)
    } else {
        Err(faults.join("; "))
    }
}

/// Replaces a configuration file and makes that durable.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn save_json(files: &dyn Files, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    files.create_dir_all(dir)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let file = files.open(&temporary, Mode::Empty)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    if_there(files.rename(path, &backup_of(path)))?;
    files.rename(&temporary, path)?;
    files.sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::edge::Disk;

    fn parse(bytes: &[u8]) -> Result<i64, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_damaged_file_falls_back_to_its_backup_and_is_never_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/topics.json");
        assert_eq!(load_json(&Disk, &path, parse), Ok(None));
        save_json(&Disk, &path, b"1").unwrap();
        save_json(&Disk, &path, b"2").unwrap();
        assert_eq!(
            load_json(&Disk, &path, parse),
            Ok(Some((2, LoadedFrom::File)))
        );
        for damage in [&b""[..], b"  ", b"{", b"\0\0\0\0"] {
            std::fs::write(&path, damage).unwrap();
            assert_eq!(
                load_json(&Disk, &path, parse),
                Ok(Some((1, LoadedFrom::Backup)))
            );
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            load_json(&Disk, &path, parse),
            Ok(Some((1, LoadedFrom::Backup)))
        );
        std::fs::write(&path, b"[").unwrap();
        std::fs::write(backup_of(&path), b"]").unwrap();
        assert!(load_json(&Disk, &path, parse).is_err());
    }
}
