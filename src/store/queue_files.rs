//! ConsumeQueue files: 20-byte entries in files of a fixed size, named by the
//! byte offset of their first entry.
//!
//! All calls here may wait for the disk; they run before the shard serves, or
//! on its helper thread. Files are as long as what was written to them; those
//! that Apache RocketMQ made have their full size, with zeros behind the last
//! entry.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::consume_queue::{ENTRY_BYTES, Entry};
use super::layout::{consume_queue_root, file_name, offset_of_name};

/// Queues of one topic: queue numbers found in files and records are below it.
pub const QUEUES_PER_TOPIC_MAX: i32 = 65_536;

/// The folder of one queue.
pub fn dir(shard_dir: &Path, topic: &str, queue_id: i32) -> PathBuf {
    consume_queue_root(shard_dir)
        .join(topic)
        .join(queue_id.to_string())
}

/// One run of entries to be written.
#[derive(Debug)]
pub struct WriteJob {
    /// The queue's folder.
    pub dir: PathBuf,
    /// Queue offset of the first entry.
    pub first: u64,
    /// The entries as they lie in the file.
    pub bytes: Vec<u8>,
}

/// Writes a run of entries, across files where it must, and adds the files to `touched`.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn write(job: &WriteJob, file_bytes: u64, touched: &mut HashSet<PathBuf>) -> io::Result<()> {
    let mut at = job.first * ENTRY_BYTES as u64;
    let mut rest = &job.bytes[..];
    while !rest.is_empty() {
        let base = at - at % file_bytes;
        let path = job.dir.join(file_name(base));
        let len = rest.len().min((base + file_bytes - at) as usize);
        let step = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            let file = match options.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    std::fs::create_dir_all(&job.dir)?;
                    options.open(&path)?
                }
                other => other?,
            };
            file.write_all_at(&rest[..len], at - base)
        };
        step().map_err(|error| named(&path, &error))?;
        touched.insert(path);
        at += len as u64;
        rest = &rest[len..];
    }
    Ok(())
}

/// Makes files durable; those that are gone with their topic are passed over.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn sync(files: &HashSet<PathBuf>) -> io::Result<()> {
    for path in files {
        match OpenOptions::new().write(true).open(path) {
            Ok(file) => file.sync_all().map_err(|error| named(path, &error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(named(path, &error)),
        }
    }
    Ok(())
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Reads up to `count` entries from queue offset `first` on; stops at the end of
/// a file. `read_at` does the reading, so that the caller chooses whether to wait.
///
/// # Errors
/// Those of `read_at`; a missing file reads as no entries.
pub fn read(
    dir: &Path,
    file_bytes: u64,
    first: u64,
    count: usize,
    read_at: impl Fn(&File, &mut [u8], u64) -> io::Result<usize>,
) -> io::Result<Vec<Entry>> {
    let at = first * ENTRY_BYTES as u64;
    let base = at - at % file_bytes;
    let room = ((base + file_bytes - at) as usize / ENTRY_BYTES).min(count);
    let file = match File::open(dir.join(file_name(base))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut bytes = vec![0; room * ENTRY_BYTES];
    let read = read_at(&file, &mut bytes, at - base)?;
    Ok(bytes[..read]
        .chunks_exact(ENTRY_BYTES)
        .map(Entry::from_bytes)
        .take_while(Entry::is_set)
        .collect())
}

/// Reads as [`FileExt::read_at`] does, to the end of the buffer or of the file.
///
/// # Errors
/// Those of reading.
pub fn read_waiting(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Reads what the page cache holds; never waits for the disk.
///
/// # Errors
/// `WouldBlock` when the bytes are not in memory.
pub fn read_cached(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    use std::os::fd::AsRawFd;
    let iov = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: one iovec over a buffer that is borrowed for the whole call.
    let n = unsafe {
        libc::preadv2(
            file.as_raw_fd(),
            &iov,
            1,
            at as libc::off_t,
            libc::RWF_NOWAIT,
        )
    };
    match usize::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => {
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
                // A file system without the flag: its reads are taken as they come.
                return read_waiting(file, buffer, at);
            }
            Err(error)
        }
    }
}

/// A queue found on disk.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Topic: the name of the outer folder.
    pub topic: String,
    /// Queue number: the name of the inner folder.
    pub queue_id: i32,
    /// First queue offset that has an entry.
    pub first: u64,
    /// One above the last queue offset that has an entry.
    pub next: u64,
}

/// Whether all queue files can be of size `file_bytes`.
///
/// # Errors
/// Those of reading folders and files, with the path in the text.
pub fn fits(shard_dir: &Path, file_bytes: u64) -> io::Result<bool> {
    for topic_dir in list_dir(&consume_queue_root(shard_dir))? {
        if !topic_dir.is_dir() {
            continue;
        }
        for queue_dir in list_dir(&topic_dir)?.iter().filter(|dir| dir.is_dir()) {
            for path in list_dir(queue_dir)? {
                let Some(base) = path.file_name().and_then(offset_of_name) else {
                    continue;
                };
                let len = path.metadata().map_err(|error| named(&path, &error))?.len();
                if base % file_bytes != 0 || len > file_bytes {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// Removes all queues of a shard: they are made anew from the log.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn remove_all(shard_dir: &Path) -> io::Result<()> {
    let root = consume_queue_root(shard_dir);
    std::fs::remove_dir_all(&root).map_err(|error| named(&root, &error))?;
    std::fs::create_dir_all(&root).map_err(|error| named(&root, &error))
}

/// Finds the queues in a shard's folder, and how long each is. What is not a
/// queue's folder or file is passed over.
///
/// # Errors
/// Those of reading folders and files, with the path in the text.
pub fn scan(shard_dir: &Path, file_bytes: u64) -> io::Result<Vec<Found>> {
    let root = consume_queue_root(shard_dir);
    let mut found = Vec::new();
    for topic_dir in list_dir(&root)? {
        let Some(topic) = topic_dir.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if !topic_dir.is_dir() {
            continue;
        }
        for queue_dir in list_dir(&topic_dir)? {
            let id = queue_dir
                .file_name()
                .and_then(|name| name.to_str()?.parse::<i32>().ok());
            let Some(queue_id) = id.filter(|id| (0..QUEUES_PER_TOPIC_MAX).contains(id)) else {
                continue;
            };
            let (first, next) =
                extent(&queue_dir, file_bytes).map_err(|error| named(&queue_dir, &error))?;
            found.push(Found {
                topic: topic.to_owned(),
                queue_id,
                first,
                next,
            });
        }
    }
    Ok(found)
}

fn list_dir(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|error| named(dir, &error))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Byte offsets in a queue are below it: no number of bytes on a disk comes near.
const OFFSET_END: u64 = 1 << 56;

/// First and next queue offset of the entries in a queue's folder.
fn extent(dir: &Path, file_bytes: u64) -> io::Result<(u64, u64)> {
    let mut bases = Vec::new();
    for path in list_dir(dir)? {
        let base = path.file_name().and_then(offset_of_name);
        // An empty file is what a cut leaves; it says nothing about the queue.
        if let Some(base) = base.filter(|base| base % file_bytes == 0 && *base < OFFSET_END) {
            if std::fs::metadata(&path)?.len() > 0 {
                bases.push(base);
            }
        }
    }
    bases.sort_unstable();
    let Some(&first) = bases.first() else {
        return Ok((0, 0));
    };
    // A run of full files without a hole; what lies behind a hole cannot be in order.
    let mut last = first;
    for &base in &bases[1..] {
        if base != last + file_bytes || !is_full(&dir.join(file_name(last)), file_bytes)? {
            break;
        }
        last = base;
    }
    let entry = ENTRY_BYTES as u64;
    loop {
        let file = File::open(dir.join(file_name(last)))?;
        let slots = file.metadata()?.len().min(file_bytes) / entry;
        let used = count_set(&file, slots)?;
        if used > 0 || last == first {
            return Ok((first / entry, last / entry + used));
        }
        last -= file_bytes;
    }
}

/// Whether a file has its full size and an entry at its end.
fn is_full(path: &Path, file_bytes: u64) -> io::Result<bool> {
    let mut bytes = [0; ENTRY_BYTES];
    let at = file_bytes - ENTRY_BYTES as u64;
    let read = read_waiting(&File::open(path)?, &mut bytes, at)?;
    Ok(read == ENTRY_BYTES && Entry::from_bytes(&bytes).is_set())
}

/// Number of entries before the first empty one: entries are set from the front.
fn count_set(file: &File, slots: u64) -> io::Result<u64> {
    let set = |slot: u64| -> io::Result<bool> {
        let mut bytes = [0; ENTRY_BYTES];
        let read = read_waiting(file, &mut bytes, slot * ENTRY_BYTES as u64)?;
        Ok(read == ENTRY_BYTES && Entry::from_bytes(&bytes).is_set())
    };
    if slots == 0 || set(slots - 1)? {
        return Ok(slots);
    }
    let (mut low, mut high) = (0, slots - 1);
    while low < high {
        let middle = low.midpoint(high);
        if set(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Whether the entries `first..next` can be those of messages between `start` and
/// `end`, physical offsets: one behind the other, none into another. An entry that
/// points elsewhere would hide its message from readers.
///
/// # Errors
/// Those of reading.
pub fn is_rising(
    dir: &Path,
    file_bytes: u64,
    range: std::ops::Range<u64>,
    start: i64,
    end: i64,
) -> io::Result<bool> {
    const STEP: usize = 64 * 1024;
    let (mut at, mut behind) = (range.start, start);
    while at < range.end {
        let count = STEP.min((range.end - at) as usize);
        let entries = read(dir, file_bytes, at, count, read_waiting)?;
        if entries.is_empty() {
            return Ok(false);
        }
        at += entries.len() as u64;
        for entry in entries.iter().filter(|entry| entry.size != i32::MAX) {
            if entry.physical < behind || entry.physical > end - i64::from(entry.size) {
                return Ok(false);
            }
            behind = entry.physical + i64::from(entry.size);
        }
    }
    Ok(true)
}

/// Forgets all entries from queue offset `next` on.
///
/// # Errors
/// Those of the file system.
pub fn truncate(dir: &Path, file_bytes: u64, next: u64) -> io::Result<()> {
    let end = next * ENTRY_BYTES as u64;
    if !dir.exists() {
        return Ok(());
    }
    for path in list_dir(dir)? {
        let Some(base) = path.file_name().and_then(offset_of_name) else {
            continue;
        };
        if base >= end && base > 0 {
            std::fs::remove_file(&path)?;
        } else if base < end + file_bytes {
            let keep = end.saturating_sub(base).min(file_bytes);
            let file = OpenOptions::new().write(true).open(&path)?;
            if file.metadata()?.len() > keep {
                file.set_len(keep)?;
            }
        }
    }
    Ok(())
}

/// [`partition`], made cheap for the common case that the last entry passes.
///
/// # Errors
/// Those of reading.
pub fn partition_tail(
    dir: &Path,
    file_bytes: u64,
    first: u64,
    next: u64,
    before: impl Fn(&Entry) -> bool,
) -> io::Result<u64> {
    if next > first {
        let last = read(dir, file_bytes, next - 1, 1, read_waiting)?;
        if last.first().is_some_and(&before) {
            return Ok(next);
        }
    }
    partition(dir, file_bytes, first, next, before)
}

/// First queue offset in `first..next` for which `before` is false; entries for
/// which it is true come first.
///
/// # Errors
/// Those of reading.
fn partition(
    dir: &Path,
    file_bytes: u64,
    first: u64,
    next: u64,
    before: impl Fn(&Entry) -> bool,
) -> io::Result<u64> {
    let (mut low, mut high) = (first, next);
    while low < high {
        let middle = low.midpoint(high);
        let entries = read(dir, file_bytes, middle, 1, read_waiting)?;
        if entries.first().is_some_and(&before) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE_BYTES: u64 = 10 * ENTRY_BYTES as u64;

    fn entries(range: std::ops::Range<u64>) -> Vec<Entry> {
        range
            .map(|n| Entry {
                physical: n as i64 * 100,
                size: 91 + n as i32,
                tags_code: -(n as i64),
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_written_is_found_read_and_cut(
            start in 0u64..40, runs in prop::collection::vec(1u64..25, 1..6), cut in 0u64..200,
            preallocated: bool,
        ) {
            let root = tempfile::tempdir().unwrap();
            let dir = dir(root.path(), "T%a|b-c", 3);
            let mut next = start - start % 10;
            let first = next;
            for run in runs {
                let bytes = entries(next..next + run).iter().flat_map(|e| e.to_bytes()).collect();
                write(&WriteJob { dir: dir.clone(), first: next, bytes }, FILE_BYTES, &mut HashSet::new()).unwrap();
                next += run;
            }
            if preallocated {
                for path in list_dir(&dir).unwrap() {
                    OpenOptions::new().write(true).open(path).unwrap().set_len(FILE_BYTES).unwrap();
                }
            }
            let found = scan(root.path(), FILE_BYTES).unwrap();
            prop_assert_eq!(
                found,
                vec![Found { topic: "T%a|b-c".into(), queue_id: 3, first, next }]
            );
            let mut at = first;
            while at < next {
                let run = read(&dir, FILE_BYTES, at, 7, read_cached).unwrap();
                prop_assert_eq!(&run, &entries(at..at + run.len() as u64));
                prop_assert!(!run.is_empty());
                at += run.len() as u64;
            }
            prop_assert!(read(&dir, FILE_BYTES, next, 7, read_waiting).unwrap().is_empty());
            let limit = (first + cut) as i64 * 100;
            let end = partition(&dir, FILE_BYTES, first, next, |e| e.physical < limit).unwrap();
            prop_assert_eq!(end, (first + cut).min(next));
            truncate(&dir, FILE_BYTES, end).unwrap();
            let found = scan(root.path(), FILE_BYTES).unwrap();
            prop_assert_eq!(found[0].next.max(first), end);
        }
    }
}
