//! Segment files: fixed size, named by the physical offset of their first byte.

use std::io;
use std::path::{Path, PathBuf};

use super::edge::{Files, Mode};
use super::layout::{commit_log_dir, file_name, offset_of_name};
use super::{POSITION_BITS, ShardId};

/// Path of the segment that begins at `position`.
pub fn path(shard_dir: &Path, shard: ShardId, position: u64) -> PathBuf {
    let physical = u64::from(shard.0) << POSITION_BITS | position;
    commit_log_dir(shard_dir).join(file_name(physical))
}

/// Positions of the segments in a shard's folder, ascending.
///
/// # Errors
/// Those of reading the folder.
pub fn list(files: &dyn Files, shard_dir: &Path, shard: ShardId) -> io::Result<Vec<u64>> {
    let mut positions = Vec::new();
    for entry in files.list(&commit_log_dir(shard_dir))? {
        if let Some(physical) = offset_of_name(&entry.name) {
            if physical >> POSITION_BITS == u64::from(shard.0) {
                positions.push(physical & ((1 << POSITION_BITS) - 1));
            }
        }
    }
    positions.sort_unstable();
    Ok(positions)
}

/// Makes the segment that begins at `position`, with its blocks reserved, and
/// makes it durable that it is there. Does nothing where it exists. A segment is
/// there whole or not at all: it gets its name when its blocks are reserved.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn create(
    files: &dyn Files,
    shard_dir: &Path,
    shard: ShardId,
    position: u64,
    bytes: u64,
) -> io::Result<()> {
    let path = path(shard_dir, shard, position);
    if files.exists(&path)? {
        // Whoever made it may not have come to promise its name.
        return files.sync_dir(&commit_log_dir(shard_dir));
    }
    let unfinished = path.with_extension("tmp");
    let make = || -> io::Result<()> {
        let file = files.open(&unfinished, Mode::Empty)?;
        file.reserve(bytes)?;
        file.sync()?;
        files.rename(&unfinished, &path)?;
        files.sync_dir(&commit_log_dir(shard_dir))
    };
    make().inspect_err(|_| {
        // What was reserved so far is needed by others.
        let _ = files.remove_file(&unfinished);
    })
}
