//! Whether an index file can be true, and its slots made anew from its entries.

use std::io;
use std::path::Path;

use super::super::edge::{Files, Mode, Patience};
use super::file::{BATCH_KEYS, Entries, Newest};
use super::format::{ENTRY_BYTES, HEADER_BYTES, Header, IndexEntry, IndexGeometry, file_name};

/// Steps along chains that a check of slots may take: what one batch can have left,
/// and room to spare.
const UNDO_STEPS_MAX: usize = 8 * BATCH_KEYS;

/// Entries read in one step of a rebuild.
const STEP_ENTRIES: u32 = 400_000;

/// Slots read at once, in bytes.
const WINDOW_BYTES: usize = 1 << 20;

/// The header of a file that has the right size, and a first and a last entry as
/// the header says. `None` for every other.
///
/// # Errors
/// Those of the file system.
pub fn sound_header(
    files: &dyn Files,
    path: &Path,
    geometry: IndexGeometry,
) -> io::Result<Option<Header>> {
    let file = files.open(path, Mode::Read)?;
    if file.len()? != geometry.file_bytes() {
        return Ok(None);
    }
    let mut bytes = [0; HEADER_BYTES];
    if file.read_at(&mut bytes, 0, Patience::Wait)? < HEADER_BYTES {
        return Ok(None);
    }
    let header = Header::from_bytes(&bytes);
    if header.count == 1 {
        return Ok(Some(header));
    }
    let mut entries = Entries::new(&*file, geometry);
    let first = entries.at(1)?.map(|entry| (entry.physical, entry.prev));
    let sound = header.count <= geometry.entries
        && header.slots_used <= geometry.slots
        && header.begin_timestamp > 0
        && first == Some((header.begin_physical, 0))
        && entries
            .at(header.count - 1)?
            .is_some_and(|last| last.physical >= header.begin_physical);
    Ok(sound.then_some(header))
}

/// Number of the first of `count` entries with a physical offset at or above `end`.
///
/// # Errors
/// Those of reading.
pub fn entries_below(entries: &mut Entries<'_>, count: u32, end: i64) -> io::Result<u32> {
    let (mut low, mut high) = (1, count);
    while low < high {
        let middle = low.midpoint(high);
        match entries.at(middle)? {
            Some(entry) if entry.physical < end => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// What must be set for slots to point below a count, and how many then are in use.
pub struct Slots {
    pub set: Vec<(u32, u32)>,
    pub used: u32,
}

/// Looks at all slots of a file that was in use when its process was killed. Those
/// that point at or above `count` are of a batch that was not finished: its entries
/// are there, and lead back. `None` where that is not what is found.
///
/// # Errors
/// Those of the file system.
pub fn check_slots(
    files: &dyn Files,
    path: &Path,
    geometry: IndexGeometry,
    count: u32,
) -> io::Result<Option<Slots>> {
    let file = files.open(path, Mode::Read)?;
    let mut entries = Entries::new(&*file, geometry);
    let mut slots = Slots {
        set: Vec::new(),
        used: 0,
    };
    let mut steps = 0;
    let mut window = vec![0; WINDOW_BYTES.min(geometry.slots as usize * 4)];
    let mut slot = 0;
    while slot < geometry.slots {
        let len = window.len().min((geometry.slots - slot) as usize * 4);
        let at = geometry.slot_at(slot) as u64;
        if file.read_at(&mut window[..len], at, Patience::Wait)? < len {
            return Ok(None);
        }
        for bytes in window[..len].chunks_exact(4) {
            let found = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let mut number = found;
            if number >= geometry.entries {
                return Ok(None);
            }
            while number >= count {
                steps += 1;
                let entry = entries.at(number)?;
                match entry.filter(|entry| geometry.slot(entry.hash) == slot) {
                    Some(entry) if entry.prev < number && steps <= UNDO_STEPS_MAX => {
                        number = entry.prev;
                    }
                    _ => return Ok(None),
                }
            }
            if number != found {
                slots.set.push((slot, number));
            }
            slots.used += u32::from(number != 0);
            slot += 1;
        }
    }
    Ok(Some(slots))
}

/// The slots of a file, made anew from its entries: from the first on, as far as
/// they can be true.
pub struct Rebuild {
    pub name: u64,
    /// Number of the next entry to be read.
    pub at: u32,
    limit: u32,
    /// The entries below the limit are on the device.
    vouched: bool,
    /// Physical offsets are below it.
    end: i64,
    slots: Vec<u32>,
    used: u32,
    last: Option<IndexEntry>,
    before: Option<IndexEntry>,
}

impl Rebuild {
    /// Of the file `name`: entries below number `limit`, for records below the
    /// physical offset `end`.
    pub fn new(geometry: IndexGeometry, name: u64, limit: u32, end: i64) -> Rebuild {
        Rebuild {
            name,
            at: 1,
            limit: limit.min(geometry.entries),
            vouched: limit < geometry.entries,
            end,
            slots: vec![0; geometry.slots as usize],
            used: 0,
            last: None,
            before: None,
        }
    }

    /// Whether all entries of the file were taken, as of one with another behind it.
    pub fn is_full(&self, geometry: IndexGeometry) -> bool {
        self.at >= geometry.entries
    }

    /// Reads on, a bounded number of entries; whether that was all.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn step(
        &mut self,
        files: &dyn Files,
        dir: &Path,
        geometry: IndexGeometry,
    ) -> io::Result<bool> {
        let file = files.open(&dir.join(file_name(self.name)), Mode::Read)?;
        let count = STEP_ENTRIES.min(self.limit.saturating_sub(self.at));
        let mut bytes = vec![0; count as usize * ENTRY_BYTES];
        let read = file.read_at(&mut bytes, geometry.entry_at(self.at), Patience::Wait)?;
        for bytes in bytes[..read].chunks_exact(ENTRY_BYTES) {
            if !self.take(geometry, bytes) {
                self.drop_last(geometry);
                return Ok(true);
            }
        }
        let done = read < bytes.len() || self.at >= self.limit;
        // No entry behind it tells whether the last one has its end.
        if done && !self.vouched && self.last.is_some_and(|last| last.prev == 0) {
            self.drop_last(geometry);
        }
        Ok(done)
    }

    fn take(&mut self, geometry: IndexGeometry, bytes: &[u8]) -> bool {
        let Some(entry) = IndexEntry::from_bytes(bytes) else {
            return false;
        };
        let slot = &mut self.slots[geometry.slot(entry.hash) as usize];
        let behind = self.last.map_or(0, |last| last.physical);
        // What was never written reads as zeros, as the start of an entry may of which
        // only the end was.
        let nothing = match self.vouched {
            true => entry.hash == 0 && entry.physical == 0 && entry.seconds == 0,
            false => entry.hash == 0,
        };
        if entry.prev != *slot || !(behind..self.end).contains(&entry.physical) || nothing {
            return false;
        }
        self.used += u32::from(*slot == 0);
        *slot = self.at;
        self.at += 1;
        self.before = self.last.replace(entry);
        true
    }

    /// In front of what was lost the last entry may lack its end.
    fn drop_last(&mut self, geometry: IndexGeometry) {
        if let Some(last) = self.last.take() {
            self.slots[geometry.slot(last.hash) as usize] = last.prev;
            self.used -= u32::from(last.prev == 0);
            self.at -= 1;
            self.last = self.before.take();
        }
    }

    /// Puts the slots and the header into the file. The file is empty where no
    /// entry was taken.
    pub fn finish(&self, newest: &mut Newest) {
        let mut header = Header::EMPTY;
        if let Some(last) = self.last {
            header = newest.header;
            if header.count != self.at {
                header.end_timestamp = last.times(header.begin_timestamp).1;
            }
            header.end_physical = last.physical;
            header.slots_used = self.used;
            header.count = self.at;
        }
        newest.replace(&self.slots, header);
    }
}
