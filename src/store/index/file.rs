//! One index file: keys appended, chains walked.
//!
//! Entries are only ever added behind those that count, with one write per batch;
//! then the slots are set in the map, then the header, its count last. So at any
//! moment every entry below the count and every slot that points below it is right,
//! and a slot that points at or above it can be led back below it along its chain.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, compiler_fence};

use super::super::edge::{Files, Mode, Patience, SharedMap, StoreFile};
use super::PendingKey;
use super::format::{
    ENTRY_BYTES, HEADER_BYTES, Header, IndexEntry, IndexGeometry, file_name, seconds_since,
    slot_value,
};

/// Keys of one batch.
pub const BATCH_KEYS: usize = 8192;

/// Entries read at once on the way along a chain: a key that is used often has its
/// entries side by side.
const WINDOW_ENTRIES: u32 = 200;

/// An index file that takes no more keys.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub name: u64,
    pub header: Header,
}

/// The newest index file, which takes keys.
pub struct Newest {
    pub name: u64,
    path: PathBuf,
    geometry: IndexGeometry,
    file: Box<dyn StoreFile>,
    /// Header and slots.
    head: SharedMap,
    pub header: Header,
}

/// Buffers of a batch, used again.
#[derive(Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    /// Slots that the batch has set: slot + 1 and value, 0 where free.
    slots: Vec<(u32, u32)>,
}

impl Scratch {
    /// The newest entry that the batch has in a slot, 0 where it has none; `number`
    /// is the newest from now on.
    fn replace(&mut self, slot: u32, number: u32) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = (slot.wrapping_mul(0x9E37_79B1) >> 8) as usize & mask;
        loop {
            let (key, value) = &mut self.slots[at];
            if *key == slot + 1 {
                return std::mem::replace(value, number);
            }
            if *key == 0 {
                (*key, *value) = (slot + 1, number);
                return 0;
            }
            at = (at + 1) & mask;
        }
    }
}

impl Newest {
    /// Makes the file named `name`. Its slots get their blocks now, so that setting
    /// one cannot fail for want of space; its entries get theirs as they are written.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(
        files: &dyn Files,
        dir: &Path,
        geometry: IndexGeometry,
        name: u64,
    ) -> io::Result<Newest> {
        files.create_dir_all(dir)?;
        let path = dir.join(file_name(name));
        let file = files.open(&path, Mode::Empty)?;
        file.set_len(geometry.file_bytes())?;
        let mut newest = Newest::open(files, dir, geometry, name, Header::EMPTY)?;
        newest.publish();
        files.sync_dir(dir)?;
        Ok(newest)
    }

    /// Opens the file named `name`, which has the size of one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(
        files: &dyn Files,
        dir: &Path,
        geometry: IndexGeometry,
        name: u64,
        header: Header,
    ) -> io::Result<Newest> {
        let path = dir.join(file_name(name));
        let file = files.open(&path, Mode::Write)?;
        let head = files.map_existing(&path, geometry.head_bytes())?;
        Ok(Newest {
            name,
            path,
            geometry,
            file,
            head,
            header,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it takes no more keys.
    pub fn is_full(&self) -> bool {
        self.header.count >= self.geometry.entries
    }

    /// The file as one that takes no more keys.
    pub fn sealed(&self) -> Sealed {
        Sealed {
            name: self.name,
            header: self.header,
        }
    }

    /// Adds keys, as many as one batch and the file have room for, and returns how
    /// many: all of them or, after an error, none.
    ///
    /// # Errors
    /// Those of writing.
    pub fn append(&mut self, keys: &[PendingKey], scratch: &mut Scratch) -> io::Result<usize> {
        let room = self.geometry.entries.saturating_sub(self.header.count) as usize;
        let keys = &keys[..keys.len().min(room).min(BATCH_KEYS)];
        let [first, .., last] = keys else {
            let [only] = keys else { return Ok(0) };
            return self.append_batch(keys, (only, only), scratch);
        };
        self.append_batch(keys, (first, last), scratch)
    }

    fn append_batch(
        &mut self,
        keys: &[PendingKey],
        (first, last): (&PendingKey, &PendingKey),
        scratch: &mut Scratch,
    ) -> io::Result<usize> {
        let mut header = self.header;
        if header.count <= 1 {
            header.begin_timestamp = first.timestamp;
            header.begin_physical = first.physical;
        }
        scratch.bytes.clear();
        scratch.slots.clear();
        scratch.slots.resize(2 * BATCH_KEYS, (0, 0));
        for (key, number) in keys.iter().zip(header.count..) {
            let slot = self.geometry.slot(key.hash);
            let mut prev = scratch.replace(slot, number);
            if prev == 0 {
                prev = self.slot(slot);
                header.slots_used += u32::from(prev == 0);
            }
            let entry = IndexEntry {
                hash: key.hash,
                physical: key.physical,
                seconds: seconds_since(header.begin_timestamp, key.timestamp),
                prev,
            };
            scratch.bytes.extend_from_slice(&entry.to_bytes());
        }
        let at = self.geometry.entry_at(header.count);
        self.file.write_at(&scratch.bytes, at)?;
        compiler_fence(Ordering::SeqCst);
        for (key, number) in keys.iter().zip(header.count..) {
            self.set_slot(self.geometry.slot(key.hash), number);
        }
        header.count += keys.len() as u32;
        header.end_physical = last.physical;
        header.end_timestamp = last.timestamp;
        self.header = header;
        self.publish();
        Ok(keys.len())
    }

    fn slot(&self, slot: u32) -> u32 {
        let at = self.geometry.slot_at(slot);
        slot_value(&self.head[at..at + 4], self.header.count)
    }

    /// The newest entry of a hash's chain.
    pub fn chain_start(&self, hash: i32) -> u32 {
        self.slot(self.geometry.slot(hash))
    }

    /// The open file.
    pub fn file(&self) -> &dyn StoreFile {
        &*self.file
    }

    /// Sets a slot in the map.
    pub fn set_slot(&mut self, slot: u32, number: u32) {
        let at = self.geometry.slot_at(slot);
        self.head[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }

    /// Puts the header into the map, behind all that it speaks of; its count last.
    fn publish(&mut self) {
        let bytes = self.header.to_bytes();
        compiler_fence(Ordering::SeqCst);
        self.head[..HEADER_BYTES - 4].copy_from_slice(&bytes[..HEADER_BYTES - 4]);
        compiler_fence(Ordering::SeqCst);
        self.head[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&bytes[HEADER_BYTES - 4..]);
    }

    /// Replaces all slots and the header. A process that is killed on the way leaves
    /// a file that counts as empty.
    pub fn replace(&mut self, slots: &[u32], header: Header) {
        self.header.count = 1;
        self.publish();
        compiler_fence(Ordering::SeqCst);
        for (number, to) in slots
            .iter()
            .zip(self.head[HEADER_BYTES..].chunks_exact_mut(4))
        {
            to.copy_from_slice(&number.to_be_bytes());
        }
        self.header = header;
        self.publish();
    }

    /// Clears what lies behind the last entry: entries of a batch that was not
    /// finished, or of records that the log lost.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn clear_rest(&self) -> io::Result<()> {
        self.file
            .set_len(self.geometry.entry_at(self.header.count))?;
        self.file.set_len(self.geometry.file_bytes())
    }

    /// Replaces the header.
    pub fn set_header(&mut self, header: Header) {
        self.header = header;
        self.publish();
    }
}

/// Reads the entries of one file, backwards mostly.
pub struct Entries<'a> {
    file: &'a dyn StoreFile,
    geometry: IndexGeometry,
    first: u32,
    window: Vec<u8>,
}

impl<'a> Entries<'a> {
    /// A reader of an open file.
    pub fn new(file: &'a dyn StoreFile, geometry: IndexGeometry) -> Entries<'a> {
        Entries {
            file,
            geometry,
            first: 0,
            window: Vec::new(),
        }
    }

    /// The entry of a number from 1 on; `None` where there is none that can be true.
    ///
    /// # Errors
    /// Those of reading.
    pub fn at(&mut self, number: u32) -> io::Result<Option<IndexEntry>> {
        let held = self.first..self.first + (self.window.len() / ENTRY_BYTES) as u32;
        if !held.contains(&number) {
            self.first = number.saturating_sub(WINDOW_ENTRIES - 1);
            let entries = number - self.first + 1;
            self.window.resize(entries as usize * ENTRY_BYTES, 0);
            let at = self.geometry.entry_at(self.first);
            let read = self.file.read_at(&mut self.window, at, Patience::Wait)?;
            self.window.truncate(read);
        }
        let at = (number - self.first) as usize * ENTRY_BYTES;
        let bytes = self.window.get(at..at + ENTRY_BYTES);
        Ok(bytes.and_then(IndexEntry::from_bytes))
    }
}

/// The newest entry of a hash's chain in a file that takes no more keys.
///
/// # Errors
/// Those of reading.
pub fn chain_start(
    file: &dyn StoreFile,
    geometry: IndexGeometry,
    hash: i32,
    count: u32,
) -> io::Result<u32> {
    let mut bytes = [0; 4];
    let at = geometry.slot_at(geometry.slot(hash)) as u64;
    let read = file.read_at(&mut bytes, at, Patience::Wait)?;
    Ok(if read == 4 {
        slot_value(&bytes, count)
    } else {
        0
    })
}
