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
    match reserve(files, shard_dir, shard, position, bytes)? {
        Some(unfinished) => publish(files, &unfinished, &path(shard_dir, shard, position)),
        None => Ok(()),
    }
}

/// Where a segment is made. Not among the others: RocketMQ's broker takes every file there for
/// a segment.
pub fn unfinished(shard_dir: &Path) -> PathBuf {
    shard_dir.join("next-segment.tmp")
}

/// Reserves the blocks of a segment under another name, which is returned; `None` where
/// the segment exists.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn reserve(
    files: &dyn Files,
    shard_dir: &Path,
    shard: ShardId,
    position: u64,
    bytes: u64,
) -> io::Result<Option<PathBuf>> {
    let path = path(shard_dir, shard, position);
    if files.exists(&path)? {
        // Whoever made it may not have come to promise its name.
        files.sync_dir(&commit_log_dir(shard_dir))?;
        return Ok(None);
    }
    let unfinished = unfinished(shard_dir);
    let reserve = || files.open(&unfinished, Mode::Empty)?.reserve(bytes);
    reserve().inspect_err(|_| give_up(files, &unfinished))?;
    Ok(Some(unfinished))
}

/// Gives a segment its name, once all of it is durable.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn publish(files: &dyn Files, unfinished: &Path, path: &Path) -> io::Result<()> {
    let publish = || -> io::Result<()> {
        files.open(unfinished, Mode::Write)?.sync()?;
        files.rename(unfinished, path)?;
        for file in [path, unfinished] {
            let dir = file.parent().expect("a segment is in a folder");
            files.sync_dir(dir)?;
        }
        Ok(())
    };
    publish().inspect_err(|_| give_up(files, unfinished))
}

/// What was reserved so far is needed by others.
fn give_up(files: &dyn Files, unfinished: &Path) {
    let _ = files.remove_file(unfinished);
}
