//! ConsumeQueue files: 20-byte entries in files of a fixed size, named by the
//! byte offset of their first entry.
//!
//! All calls here may wait for the disk; they run before the shard serves, or
//! on its helper thread. Files have their full size from the start, with zeros
//! that take no blocks behind the last entry: Apache RocketMQ opens no store
//! that has a shorter one.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::consume_queue::{ENTRY_BYTES, Entry, FirstReadable, Queue, Queues, first_at};
use super::edge::{Files, Mode, Patience, StoreFile, if_there};
use super::layout::{consume_queue_root, file_name, offset_of_name};
use super::pieces::Pieces;

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
    pub entries: Pieces<[u8; ENTRY_BYTES]>,
}

impl WriteJob {
    /// What the files of a queue lack, `max` entries at most.
    pub(super) fn of(queue: &Queue, dir: PathBuf, max: usize) -> WriteJob {
        WriteJob {
            dir,
            first: queue.on_file,
            entries: queue.unwritten(max),
        }
    }

    /// Queue offset behind the last entry.
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

/// What was written and is not durable yet.
#[derive(Debug, Default)]
pub struct Touched {
    files: BTreeSet<PathBuf>,
    /// Folders that something was made in.
    dirs: BTreeSet<PathBuf>,
    /// What a killed process wrote is not known by name.
    unknown: bool,
    /// Why a sync failed. What the kernel could not write it forgets, and the next sync
    /// knows nothing of it: nothing is vouched for any more, until a start makes good
    /// from the last checkpoint.
    failed: Option<String>,
}

impl Touched {
    /// Of a store whose last process may have left more.
    pub fn after_crash(unknown: bool) -> Touched {
        Touched {
            unknown,
            ..Touched::default()
        }
    }

    /// Adds files.
    pub fn add_files(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.files.extend(paths);
    }

    /// The same in pieces of `files` files, where they are not so many that the whole
    /// file system is synced.
    pub fn into_pieces(mut self, files: usize) -> Vec<Touched> {
        let mut pieces = Vec::new();
        while !self.is_many() {
            let Some(next) = self.files.iter().nth(files).cloned() else {
                break;
            };
            let rest = self.files.split_off(&next);
            pieces.push(Touched {
                files: std::mem::replace(&mut self.files, rest),
                ..Touched::default()
            });
        }
        pieces.push(self);
        pieces
    }

    /// Whether a sync of the whole file system is the better way.
    fn is_many(&self) -> bool {
        self.unknown || self.files.len() > SYNC_ALONE_MAX
    }

    /// Adds what another has.
    pub fn join(&mut self, other: Touched) {
        self.files.extend(other.files);
        self.dirs.extend(other.dirs);
        self.unknown |= other.unknown;
        self.failed = self.failed.take().or(other.failed);
    }

    /// Whether what was written can be vouched for.
    ///
    /// # Errors
    /// That a sync failed, once and for all.
    pub fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some(why) => Err(io::Error::other(format!(
                "{why} (a sync that failed before)"
            ))),
            None => Ok(()),
        }
    }
}

/// Writes a run of entries, across files where it must, and adds the files to `touched`.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn write(
    files: &dyn Files,
    job: &WriteJob,
    file_bytes: u64,
    touched: &mut Touched,
) -> io::Result<()> {
    let mut at = job.first * ENTRY_BYTES as u64;
    let mut opened = None;
    for piece in job.entries.slices() {
        let mut rest = piece.as_flattened();
        while !rest.is_empty() {
            let base = at - at % file_bytes;
            let file = match opened.take().filter(|(of, _)| *of == base) {
                Some((_, file)) => file,
                None => open_to_write(files, &job.dir, base, file_bytes, touched)?,
            };
            let len = rest.len().min((base + file_bytes - at) as usize);
            file.write_at(&rest[..len], at - base)?;
            opened = Some((base, file));
            at += len as u64;
            rest = &rest[len..];
        }
    }
    Ok(())
}

/// The file of a queue that begins at byte `base`, made if it is not there.
fn open_to_write(
    files: &dyn Files,
    dir: &Path,
    base: u64,
    file_bytes: u64,
    touched: &mut Touched,
) -> io::Result<Box<dyn StoreFile>> {
    let path = dir.join(file_name(base));
    let file = match files.open(&path, Mode::Create) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            files.create_dir_all(dir)?;
            files.open(&path, Mode::Create)?
        }
        other => other?,
    };
    if file.len()? < file_bytes {
        // It is new, and so may its folder and that of its topic be.
        let root_too = dir.ancestors().take(3).map(Path::to_owned);
        touched.dirs.extend(root_too);
        file.set_len(file_bytes)?;
    }
    touched.files.insert(path);
    Ok(file)
}

/// Files that are made durable one by one. Where there are more the whole file system
/// is: measured on ext4, 3000 files took 0.1 s instead of 4.9 s. What others have
/// written there is waited for as well.
const SYNC_ALONE_MAX: usize = 512;

/// Makes durable what was touched below `dir`; what is gone with its topic is passed
/// over. Nothing is left touched then.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn sync(files: &dyn Files, dir: &Path, touched: &mut Touched) -> io::Result<()> {
    touched.check()?;
    let synced = sync_all(files, dir, touched);
    *touched = Touched {
        failed: synced.as_ref().err().map(ToString::to_string),
        ..Touched::default()
    };
    synced
}

fn sync_all(files: &dyn Files, dir: &Path, touched: &Touched) -> io::Result<()> {
    if touched.is_many() && files.sync_file_system(dir)? {
        return Ok(());
    }
    for path in &touched.files {
        if_there(files.open(path, Mode::Write).and_then(|file| file.sync()))?;
    }
    for dir in &touched.dirs {
        if_there(files.sync_dir(dir))?;
    }
    Ok(())
}

/// Reads up to `count` entries from queue offset `first` on; stops at the end of
/// a file.
///
/// # Errors
/// Those of reading, as `patience` says; a missing file reads as no entries.
pub fn read(
    files: &dyn Files,
    dir: &Path,
    file_bytes: u64,
    first: u64,
    count: usize,
    patience: Patience,
) -> io::Result<Vec<Entry>> {
    let at = first * ENTRY_BYTES as u64;
    let base = at - at % file_bytes;
    let room = ((base + file_bytes - at) as usize / ENTRY_BYTES).min(count);
    let file = match files.open(&dir.join(file_name(base)), Mode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut bytes = vec![0; room * ENTRY_BYTES];
    let read = file.read_at(&mut bytes, at - base, patience)?;
    Ok(bytes[..read]
        .chunks_exact(ENTRY_BYTES)
        .map(Entry::from_bytes)
        .take_while(Entry::is_set)
        .collect())
}

/// Whether the entries `first..next` can be those of messages between `start` and
/// `end`, physical offsets: one behind the other, none into another. An entry that
/// points elsewhere would hide its message from readers.
///
/// # Errors
/// Those of reading.
pub fn is_rising(
    files: &dyn Files,
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
        let entries = read(files, dir, file_bytes, at, count, Patience::Wait)?;
        if entries.is_empty() {
            return Ok(false);
        }
        at += entries.len() as u64;
        for entry in entries.iter().filter(|entry| !entry.is_nothing()) {
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
pub fn truncate(files: &dyn Files, dir: &Path, file_bytes: u64, next: u64) -> io::Result<()> {
    let end = next * ENTRY_BYTES as u64;
    let listed = match files.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in listed {
        let Some(base) = offset_of_name(&entry.name) else {
            continue;
        };
        let path = dir.join(entry.name);
        if base >= end && base > 0 {
            files.remove_file(&path)?;
        } else if base < end + file_bytes {
            let keep = end.saturating_sub(base).min(file_bytes);
            if files.len(&path)? > keep {
                let file = files.open(&path, Mode::Write)?;
                file.set_len(keep)?;
                file.set_len(file_bytes)?;
            }
        }
    }
    Ok(())
}

/// The first message among the entries `range`: what stands for nothing, or is not
/// there, is passed over.
fn next_message(
    files: &dyn Files,
    dir: &Path,
    file_bytes: u64,
    range: Range<u64>,
) -> io::Result<Option<(u64, Entry)>> {
    const STEP: u64 = 4096;
    let per_file = file_bytes / ENTRY_BYTES as u64;
    let (mut at, mut step) = (range.start, 1);
    while at < range.end {
        let count = step.min(range.end - at) as usize;
        let entries = read(files, dir, file_bytes, at, count, Patience::Wait)?;
        if let Some(n) = entries.iter().position(|entry| !entry.is_nothing()) {
            return Ok(Some((at + n as u64, entries[n])));
        }
        at = if entries.is_empty() {
            (at / per_file + 1) * per_file
        } else {
            at + entries.len() as u64
        };
        step = STEP;
    }
    Ok(None)
}

/// Queue offset and physical offset of the first entry in `range` whose message lies
/// at or behind physical offset `limit`.
///
/// # Errors
/// Those of reading.
pub fn first_readable(
    files: &dyn Files,
    dir: &Path,
    file_bytes: u64,
    range: Range<u64>,
    limit: i64,
) -> io::Result<Option<(u64, i64)>> {
    first_at(range, limit, |range| {
        next_message(files, dir, file_bytes, range)
    })
}

/// Moves the first readable entry of every queue to its first message at or behind
/// `limit`, the physical offset of the oldest byte of the log.
///
/// # Errors
/// Those of reading.
pub fn find_first_readable(
    files: &dyn Files,
    shard_dir: &Path,
    file_bytes: u64,
    queues: &mut Queues,
    limit: i64,
) -> io::Result<()> {
    for (_, queue) in queues.iter_mut() {
        if queue.oldest >= limit {
            continue;
        }
        let first = match queue.first_readable(limit) {
            FirstReadable::At(first) => first,
            FirstReadable::InFiles(range) => {
                let dir = dir(shard_dir, &queue.topic, queue.queue_id);
                first_readable(files, &dir, file_bytes, range, limit)?
                    .or_else(|| queue.first_recent(limit))
            }
        };
        queue.set_first_readable(first);
    }
    Ok(())
}

/// Removes a queue's files from the one that holds entry `from` to the one in front
/// of `until`'s, oldest first, so that what is left is without a hole whenever the
/// machine stops.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn remove_front(
    files: &dyn Files,
    dir: &Path,
    file_bytes: u64,
    from: u64,
    until: u64,
) -> io::Result<()> {
    let base = |offset: u64| {
        let at = offset * ENTRY_BYTES as u64;
        at - at % file_bytes
    };
    let (mut at, end) = (base(from), base(until));
    while at < end {
        match files.remove_file(&dir.join(file_name(at))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => {
                other?;
                files.sync_dir(dir)?;
            }
        }
        at += file_bytes;
    }
    Ok(())
}

/// First queue offset in `range` for which `before` is false; entries for which it is
/// true come first.
///
/// # Errors
/// Those of reading.
pub fn partition(
    files: &dyn Files,
    dir: &Path,
    file_bytes: u64,
    range: Range<u64>,
    before: impl Fn(&Entry) -> bool,
) -> io::Result<u64> {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low.midpoint(high);
        let entries = read(files, dir, file_bytes, middle, 1, Patience::Wait)?;
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
    use crate::store::edge::Disk;
    use crate::store::queue_scan::{Extent, scan};
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
            short: bool,
        ) {
            let root = tempfile::tempdir().unwrap();
            let dir = dir(root.path(), "T%a|b-c", 3);
            let mut next = start - start % 10;
            let first = next;
            for run in runs {
                let entries = entries(next..next + run).iter().map(|e| e.to_bytes()).collect();
                write(&Disk, &WriteJob { dir: dir.clone(), first: next, entries }, FILE_BYTES, &mut Touched::default()).unwrap();
                next += run;
            }
            if short && next % 10 != 0 {
                // As the crash of a machine leaves it.
                let base = (next - next % 10) * ENTRY_BYTES as u64;
                let file = Disk.open(&dir.join(file_name(base)), Mode::Write).unwrap();
                file.set_len(next * ENTRY_BYTES as u64 - base).unwrap();
            }
            let found = scan(&Disk, root.path(), FILE_BYTES, true).unwrap().unwrap();
            let [found] = &found[..] else { panic!("{found:?}") };
            prop_assert_eq!((&*found.topic, found.queue_id), ("T%a|b-c", 3));
            let extent = Extent {
                first,
                next,
                oldest: Some(entries(first..first + 1)[0]),
                newest: entries(next - 1..next).pop(),
                is_longer: false,
            };
            prop_assert_eq!(&found.extent, &extent);
            for entry in Disk.list(&dir).unwrap() {
                prop_assert_eq!(Disk.len(&dir.join(entry.name)).unwrap(), FILE_BYTES);
            }
            let mut at = first;
            while at < next {
                let run = read(&Disk, &dir, FILE_BYTES, at, 7, Patience::Wait).unwrap();
                prop_assert_eq!(&run, &entries(at..at + run.len() as u64));
                prop_assert!(!run.is_empty());
                at += run.len() as u64;
            }
            prop_assert!(read(&Disk, &dir, FILE_BYTES, next, 7, Patience::Wait).unwrap().is_empty());
            let limit = (first + cut) as i64 * 100;
            let end = partition(&Disk, &dir, FILE_BYTES, first..next, |e| e.physical < limit).unwrap();
            prop_assert_eq!(end, (first + cut).min(next));
            truncate(&Disk, &dir, FILE_BYTES, end).unwrap();
            let found = scan(&Disk, root.path(), FILE_BYTES, true).unwrap().unwrap();
            prop_assert_eq!(found[0].extent.next.max(first), end);
        }
    }
}
