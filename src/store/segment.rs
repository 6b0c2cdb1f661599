//! Segment files: fixed size, named by the physical offset of their first byte.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::layout::{commit_log_dir, file_name, offset_of_name, sync_dir};
use super::tail::allocate;
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
pub fn list(shard_dir: &Path, shard: ShardId) -> io::Result<Vec<u64>> {
    let mut positions = Vec::new();
    for entry in std::fs::read_dir(commit_log_dir(shard_dir))? {
        let entry = entry?;
        if let Some(physical) = offset_of_name(&entry.file_name()) {
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
pub fn create(shard_dir: &Path, shard: ShardId, position: u64, bytes: u64) -> io::Result<()> {
    let path = path(shard_dir, shard, position);
    let unfinished = path.with_extension("tmp");
    let make = || -> io::Result<()> {
        if path.exists() {
            return Ok(());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&unfinished)?;
        reserve(&file, bytes)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, &path)?;
        sync_dir(&commit_log_dir(shard_dir))
    };
    make()
        .inspect_err(|_| {
            // What was reserved so far is needed by others.
            let _ = std::fs::remove_file(&unfinished);
        })
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    if is_tmpfs(file)? {
        // Reserved blocks of a tmpfs are memory: let them come as they are written.
        return file.set_len(bytes);
    }
    allocate(file, bytes)
}

fn is_tmpfs(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open and `stat` has room for the result.
    if unsafe { libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled by the successful call.
    Ok(unsafe { stat.assume_init() }.f_type == libc::TMPFS_MAGIC)
}

/// Empties a segment from byte `from` on, without giving its blocks back.
///
/// Waits for direct writes that a killed process may have left in flight (the
/// kernel does so before it changes a file's extents), so that none of them can
/// land on what is written later.
///
/// # Errors
/// Those of the file system.
pub fn clear_from(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    if from == bytes {
        // Nothing to clear; a change of size to what it is waits all the same.
        return file.set_len(bytes);
    }
    let len = (bytes - from) as libc::off_t;
    // SAFETY: a plain system call on an open descriptor.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, from as libc::off_t, len) };
    if result == 0 {
        return Ok(());
    }
    // Where ranges cannot be zeroed (tmpfs, some network file systems), cutting
    // the file and growing it again does the same.
    file.set_len(from)?;
    file.set_len(bytes)
}
