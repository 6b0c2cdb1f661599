//! Finding the queues in a shard's folder when its store is opened.
//!
//! Of the usual queue, which has one short file, the folder is listed, and the file
//! opened and read once: there may be 100,000 of them.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::BLOCK_BYTES;
use super::consume_queue::{ENTRY_BYTES, Entry};
use super::edge::{Files, Mode, Patience, StoreFile};
use super::layout::{consume_queue_root, file_name, offset_of_name};

/// Queues of one topic: queue numbers found in files and records are below it.
pub const QUEUES_PER_TOPIC_MAX: i32 = 65_536;

/// Byte offsets in a queue are below it: no number of bytes on a disk comes near.
const OFFSET_END: u64 = 1 << 56;

/// Entries that are read at once.
const BLOCK_ENTRIES: u64 = (BLOCK_BYTES / ENTRY_BYTES) as u64;

/// A queue found on disk.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Topic: the name of the outer folder.
    pub topic: String,
    /// Queue number: the name of the inner folder.
    pub queue_id: i32,
    /// What its files hold.
    pub extent: Extent,
}

/// What the files of a queue hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First queue offset that has an entry.
    pub first: u64,
    /// One above the last queue offset that has an entry.
    pub next: u64,
    /// The first entry, where it was met.
    pub oldest: Option<Entry>,
    /// The last entry.
    pub newest: Option<Entry>,
    /// Something lies behind the last entry, as a crash may leave it.
    pub is_longer: bool,
}

/// Finds the queues in a shard's folder, and what each holds. What is not a queue's
/// folder or file is passed over. `None` where a file cannot be one of size
/// `file_bytes`. With `complete`, files that a crash or a cut has left short are brought
/// to their size.
///
/// # Errors
/// Those of the file system, with the path in the text.
pub fn scan(
    files: &dyn Files,
    shard_dir: &Path,
    file_bytes: u64,
    complete: bool,
) -> io::Result<Option<Vec<Found>>> {
    let mut found = Vec::new();
    let all = each_queue(
        files,
        &consume_queue_root(shard_dir),
        &mut |topic, queue_id, dir| {
            let Some(extent) = extent(files, dir, file_bytes, complete)? else {
                return Ok(false);
            };
            found.push(Found {
                topic: topic.to_owned(),
                queue_id,
                extent,
            });
            Ok(true)
        },
    )?;
    Ok(all.then_some(found))
}

/// Whether there is any queue's folder below the folder `root`.
///
/// # Errors
/// Those of reading folders.
pub fn has_queues(files: &dyn Files, root: &Path) -> io::Result<bool> {
    Ok(!each_queue(files, root, &mut |_, _, _| Ok(false))?)
}

/// Hands out the folders of queues, until one is refused: whether none was. What is not
/// a queue's folder is passed over.
fn each_queue(
    files: &dyn Files,
    root: &Path,
    each: &mut dyn FnMut(&str, i32, &Path) -> io::Result<bool>,
) -> io::Result<bool> {
    for topic_dir in files.list(root)?.iter().filter(|entry| entry.is_dir) {
        let Some(topic) = topic_dir.name.to_str() else {
            continue;
        };
        let topic_path = root.join(topic);
        for queue_dir in files.list(&topic_path)? {
            let name = queue_dir.name.to_str().filter(|_| queue_dir.is_dir);
            let id = name.and_then(|name| name.parse::<i32>().ok());
            let Some(queue_id) = id.filter(|id| (0..QUEUES_PER_TOPIC_MAX).contains(id)) else {
                continue;
            };
            if !each(topic, queue_id, &topic_path.join(&queue_dir.name))? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Finds the queues below the folder `root` that have entries of messages in `gone`,
/// physical offsets, whatever the size of their files; and of each one above the queue
/// offset of the last of these.
///
/// # Errors
/// Those of reading: what comes next in a queue must not be forgotten.
pub fn ends(
    files: &dyn Files,
    root: &Path,
    gone: &Range<i64>,
) -> io::Result<Vec<(String, i32, u64)>> {
    let mut found = Vec::new();
    each_queue(files, root, &mut |topic, queue_id, dir| {
        let next = end(files, dir, gone)?;
        if next > 0 {
            found.push((topic.to_owned(), queue_id, next));
        }
        Ok(true)
    })?;
    Ok(found)
}

fn end(files: &dyn Files, dir: &Path, gone: &Range<i64>) -> io::Result<u64> {
    let names = files.list(dir)?;
    let bases = names.iter().filter_map(|entry| offset_of_name(&entry.name));
    let mut bases: Vec<u64> = bases.filter(|base| *base < OFFSET_END).collect();
    bases.sort_unstable();
    for base in bases.into_iter().rev() {
        let file = files.open(&dir.join(file_name(base)), Mode::Read)?;
        let (mut low, mut high) = (0, file.len()? / ENTRY_BYTES as u64);
        while low < high {
            let middle = low.midpoint(high);
            let mut bytes = [0; ENTRY_BYTES];
            file.read_at(&mut bytes, middle * ENTRY_BYTES as u64, Patience::Wait)?;
            let entry = Entry::from_bytes(&bytes);
            if entry.is_set() && (entry.is_nothing() || gone.contains(&entry.physical)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low > 0 {
            return Ok(base / ENTRY_BYTES as u64 + low);
        }
    }
    Ok(0)
}

fn extent(
    files: &dyn Files,
    dir: &Path,
    file_bytes: u64,
    completes: bool,
) -> io::Result<Option<Extent>> {
    let mut bases = Vec::new();
    for entry in files.list(dir)? {
        let Some(base) = offset_of_name(&entry.name).filter(|base| *base < OFFSET_END) else {
            continue;
        };
        if base % file_bytes != 0 {
            return Ok(None);
        }
        bases.push(base);
    }
    bases.sort_unstable();
    // A run of full files without a hole; what lies behind a hole cannot be in order.
    let mut extent: Option<Extent> = None;
    let mut end = 0;
    let mut is_longer = false;
    for base in bases {
        let file = files.open(&dir.join(file_name(base)), Mode::Read)?;
        let len = file.len()?;
        if len > file_bytes {
            return Ok(None);
        }
        if completes && len < file_bytes {
            complete(files, &dir.join(file_name(base)), len, file_bytes)?;
        }
        let set = count_set(&*file, len / ENTRY_BYTES as u64)?;
        let first = base / ENTRY_BYTES as u64;
        match &mut extent {
            None if len > 0 => {
                end = first + set.count;
                is_longer = set.is_dirty;
                extent = Some(Extent {
                    first,
                    next: end,
                    oldest: set.oldest,
                    newest: set.newest,
                    is_longer: false,
                });
            }
            Some(extent) if end == first && !is_longer => {
                end = first + set.count;
                is_longer = set.is_dirty;
                extent.next = end;
                extent.newest = set.newest.or(extent.newest);
            }
            _ => is_longer |= set.count > 0 || set.is_dirty,
        }
    }
    Ok(Some(Extent {
        is_longer,
        ..extent.unwrap_or_default()
    }))
}

/// Brings a short file to its size, without the part of an entry that may be at its end.
fn complete(files: &dyn Files, path: &Path, len: u64, file_bytes: u64) -> io::Result<()> {
    let file = files.open(path, Mode::Write)?;
    file.set_len(len - len % ENTRY_BYTES as u64)?;
    file.set_len(file_bytes)
}

/// Entries at the front of a file.
struct Set {
    count: u64,
    oldest: Option<Entry>,
    newest: Option<Entry>,
    /// Something lies shortly behind, which only a crash leaves.
    is_dirty: bool,
}

/// Looks for the first empty one of a file's `slots` entries: they are set from the
/// front.
fn count_set(file: &dyn StoreFile, slots: u64) -> io::Result<Set> {
    let block = |slot: u64, count: u64| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * ENTRY_BYTES];
        let read = file.read_at(&mut bytes, slot * ENTRY_BYTES as u64, Patience::Wait)?;
        bytes.truncate(read - read % ENTRY_BYTES);
        Ok(bytes)
    };
    let leading = |bytes: &[u8]| {
        let entries = bytes.chunks_exact(ENTRY_BYTES).map(Entry::from_bytes);
        entries.take_while(Entry::is_set).collect::<Vec<_>>()
    };
    let is_dirty = |bytes: &[u8]| bytes.iter().any(|&byte| byte != 0);
    let front = block(0, BLOCK_ENTRIES.min(slots))?;
    let entries = leading(&front);
    let mut set = Set {
        count: entries.len() as u64,
        oldest: entries.first().copied(),
        newest: entries.last().copied(),
        is_dirty: is_dirty(&front[entries.len() * ENTRY_BYTES..]),
    };
    if set.count < BLOCK_ENTRIES.min(slots) || set.count == slots {
        return Ok(set);
    }
    let at = |slot: u64| Ok::<_, io::Error>(leading(&block(slot, 1)?).pop());
    let (mut low, mut high) = (set.count, slots);
    // The last one first: most files are full.
    let mut middle = slots - 1;
    while low < high {
        match at(middle)? {
            None => high = middle,
            newest => {
                set.newest = newest;
                low = middle + 1;
            }
        }
        middle = low.midpoint(high);
    }
    set.count = low;
    set.is_dirty = is_dirty(&block(low, BLOCK_ENTRIES.min(slots - low))?);
    Ok(set)
}
