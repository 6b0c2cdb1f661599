//! Space kept for the day when there is none: where a disk is full, segments can be
//! deleted only when the queue files are written, for which there is no space.

use std::io;
use std::path::Path;

use super::edge::{Files, Mode};

/// Bytes that are kept.
const SPARE_BYTES: usize = 1024 * 1024;

/// Takes the space, unless it is taken; does nothing where there is none.
pub fn keep(files: &dyn Files, shard_dir: &Path) {
    let take = || -> io::Result<()> {
        let file = files.open(&shard_dir.join("spare"), Mode::Create)?;
        if file.len()? >= SPARE_BYTES as u64 {
            return Ok(());
        }
        // Written, as not every file system can reserve.
        file.write_at(&vec![0; SPARE_BYTES], 0)
            .inspect_err(|_| drop(file.set_len(0)))
    };
    // It is tried again when something was written.
    let _ = take();
}

/// Gives the space to what is written next, where `error` says that there is none:
/// whether there was any.
pub fn give(files: &dyn Files, shard_dir: &Path, error: &io::Error) -> bool {
    let path = shard_dir.join("spare");
    is_no_space(error)
        && files.len(&path).is_ok_and(|bytes| bytes > 0)
        && files
            .open(&path, Mode::Write)
            .and_then(|file| file.set_len(0))
            .is_ok()
}

/// Whether a write may succeed when it is tried again: there was no space for it. A
/// short write is what comes before the device says so.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::edge::Disk;

    #[test]
    fn what_is_kept_is_given_once() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = || Disk.len(&dir.path().join("spare")).unwrap();
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(!give(&Disk, dir.path(), &full));
        keep(&Disk, dir.path());
        assert_eq!(bytes(), SPARE_BYTES as u64);
        assert!(!give(&Disk, dir.path(), &io::Error::other("damaged")));
        assert!(give(&Disk, dir.path(), &full));
        assert_eq!(bytes(), 0);
        assert!(!give(&Disk, dir.path(), &full));
        keep(&Disk, dir.path());
        assert_eq!(bytes(), SPARE_BYTES as u64);
    }
}
