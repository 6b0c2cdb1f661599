//! The index files of one shard, from the oldest to the one that takes keys.

use std::io;
use std::path::{Path, PathBuf};

use super::super::checkpoint::{IndexMark, IndexVouched};
use super::super::edge::{Files, Mode};
use super::super::{POSITION_BITS, ShardId};
use super::file::{Entries, Newest, Scratch, Sealed};
use super::format::{IndexGeometry, file_name, name_of_time, number_of_name};
use super::verify::{Rebuild, check_slots, entries_below, sound_header};
use super::{IndexStart, PendingKey};

/// Names are below it: it is the year 10000.
const NAME_END: u64 = 100_000_101_000_000_000;

/// The last name that is a time.
const NAME_LAST: u64 = 99_991_231_235_959_999;

/// Failures in a row after which what cannot be read counts as damaged.
pub(super) const READ_FAILURES_MAX: u32 = 8;

/// How far a set of files is with being opened.
enum Stage {
    Closed,
    Rebuilding(Box<Rebuild>),
    Open,
}

/// The index files of one shard, and how far they reach. Lives where it is worked
/// on: it goes to the helper thread and comes back.
pub struct IndexFiles {
    pub(super) shard: ShardId,
    pub(super) shard_dir: PathBuf,
    dir: PathBuf,
    pub(super) geometry: IndexGeometry,
    pub(super) start: IndexStart,
    stage: Stage,
    pub(super) sealed: Vec<Sealed>,
    pub(super) newest: Option<Newest>,
    /// Position of the next record to be entered.
    pub(super) next: u64,
    /// Its physical offset and the number of its keys that are entered, where it was
    /// begun.
    pub(super) begun: Option<(i64, u32)>,
    /// Position that the files were vouched to reach to, until they are open.
    vouched: Option<u64>,
    scratch: Scratch,
    touched: Vec<PathBuf>,
    /// Attempts in a row that failed.
    pub(super) failures: u32,
    /// Of them those that could not read the log.
    pub(super) log_failures: u32,
    /// Names of new files are not below it: that of a file that was removed could be
    /// taken for the file that a checkpoint still vouches for.
    name_floor: u64,
}

impl IndexFiles {
    /// The index of a shard's folder. Nothing is read before the first
    /// [`IndexFiles::prepare`].
    pub fn new(
        shard: ShardId,
        shard_dir: &Path,
        geometry: IndexGeometry,
        start: IndexStart,
    ) -> IndexFiles {
        IndexFiles {
            shard,
            shard_dir: shard_dir.to_owned(),
            dir: shard_dir.join("index"),
            geometry,
            start,
            stage: Stage::Closed,
            sealed: Vec::new(),
            newest: None,
            next: start.min,
            begun: None,
            vouched: None,
            scratch: Scratch::default(),
            touched: Vec::new(),
            failures: 0,
            log_failures: 0,
            name_floor: 0,
        }
    }

    pub(super) fn path(&self, name: u64) -> PathBuf {
        self.dir.join(file_name(name))
    }

    fn physical(&self, position: u64) -> i64 {
        (u64::from(self.shard.0) << POSITION_BITS | position) as i64
    }

    fn position(physical: i64) -> u64 {
        physical as u64 & ((1 << POSITION_BITS) - 1)
    }

    /// Whether all keys of records in front of `position` are entered, and no other.
    pub fn stands_at(&self, position: u64) -> bool {
        matches!(self.stage, Stage::Open) && self.begun.is_none() && self.next == position
    }

    /// What a checkpoint may say of the files; nothing until they are open.
    pub fn mark(&self) -> IndexMark {
        if !matches!(self.stage, Stage::Open) {
            return IndexMark::default();
        }
        let newest = self.newest.as_ref().map(Newest::sealed);
        let last = newest.or_else(|| self.sealed.last().cloned());
        IndexMark {
            position: self.next,
            file: last.as_ref().map_or(0, |last| last.name),
            count: last.map_or(0, |last| u64::from(last.header.count)),
        }
    }

    /// Files written since the last call, for whoever makes them durable.
    pub fn take_touched(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.touched)
    }

    /// Store time and physical offset of the newest record that has a key; zeros
    /// where there is none.
    pub fn last_update(&self) -> (i64, i64) {
        let newest = self.newest.as_ref().map(|newest| newest.header);
        let header = newest.or_else(|| self.sealed.last().map(|sealed| sealed.header));
        header.map_or((0, 0), |h| (h.end_timestamp, h.end_physical))
    }

    /// Goes on opening the files, a bounded step; whether they are open.
    ///
    /// # Errors
    /// Those of the file system; may be tried again.
    pub fn prepare(&mut self, files: &dyn Files) -> io::Result<bool> {
        match &mut self.stage {
            Stage::Open => Ok(true),
            Stage::Closed => {
                self.open(files)?;
                Ok(matches!(self.stage, Stage::Open))
            }
            Stage::Rebuilding(rebuild) => {
                let done = match rebuild.step(files, &self.dir, self.geometry) {
                    Err(error) if self.failures < READ_FAILURES_MAX => return Err(error),
                    // What can be read is taken.
                    done => done.unwrap_or(true),
                };
                if !done {
                    return Ok(false);
                }
                // After an error everything is looked at again.
                let stage = std::mem::replace(&mut self.stage, Stage::Closed);
                if let Stage::Rebuilding(rebuild) = stage {
                    self.take_rebuilt(files, &rebuild)?;
                }
                Ok(matches!(self.stage, Stage::Open))
            }
        }
    }

    fn open(&mut self, files: &dyn Files) -> io::Result<()> {
        self.newest = None;
        if !files.exists(&self.dir)? {
            files.create_dir_all(&self.dir)?;
        }
        // A killed process may have made files and not promised their names.
        files.sync_dir(&self.shard_dir)?;
        files.sync_dir(&self.dir)?;
        self.list(files)?;
        let rebuild = self.keep_vouched(files)?;
        let end = self.physical(self.start.end);
        while let Some(last) = self
            .sealed
            .last()
            .filter(|f| f.header.begin_physical >= end)
        {
            self.discard(files, last.name, "its records are not in the log")?;
        }
        if let Some((at, limit)) = rebuild.filter(|(at, _)| *at < self.sealed.len()) {
            self.rebuild(at, limit);
            return Ok(());
        }
        let Some(last) = self.sealed.last().cloned() else {
            return self.set_open(files);
        };
        match self.undo(files, &last, end) {
            Ok(Some(newest)) => {
                self.touched.push(newest.path().to_owned());
                self.sealed.pop();
                self.newest = Some(newest);
                self.set_open(files)
            }
            Err(error) if self.failures < READ_FAILURES_MAX => Err(error),
            _ => {
                self.rebuild(self.sealed.len() - 1, last.header.count);
                Ok(())
            }
        }
    }

    /// Opens a file with the pages that a killed process left, without what it had
    /// begun and not finished, and without entries at or above `end`. `None` where it
    /// is not what a process leaves.
    fn undo(&self, files: &dyn Files, last: &Sealed, end: i64) -> io::Result<Option<Newest>> {
        let mut header = last.header;
        let path = self.path(last.name);
        let file = files.open(&path, Mode::Read)?;
        let mut entries = Entries::new(&*file, self.geometry);
        header.count = entries_below(&mut entries, header.count, end)?;
        let Some(entry) = entries.at(header.count - 1)?.filter(|_| header.count > 1) else {
            return Ok(None);
        };
        let Some(slots) = check_slots(files, &path, self.geometry, header.count)? else {
            return Ok(None);
        };
        if header.count == last.header.count && slots.used != header.slots_used {
            return Ok(None);
        }
        let (earliest, latest) = entry.times(header.begin_timestamp);
        if !(earliest..=latest).contains(&header.end_timestamp) {
            header.end_timestamp = latest;
        }
        header.end_physical = entry.physical;
        header.slots_used = slots.used;
        let mut newest = Newest::open(files, &self.dir, self.geometry, last.name, header)?;
        for (slot, number) in slots.set {
            newest.set_slot(slot, number);
        }
        newest.set_header(header);
        newest.clear_rest()?;
        Ok(Some(newest))
    }

    fn rebuild(&mut self, at: usize, limit: u32) {
        let name = self.sealed[at].name;
        tracing::info!(
            shard = %self.shard, file = file_name(name), entries = limit,
            "the slots of an index file are made anew"
        );
        let end = self.physical(self.start.end);
        let rebuild = Rebuild::new(self.geometry, name, limit, end);
        self.stage = Stage::Rebuilding(Box::new(rebuild));
    }

    /// The slots of a file are known: it gets them, and the next file is looked at
    /// where this one is whole and not the last.
    fn take_rebuilt(&mut self, files: &dyn Files, rebuild: &Rebuild) -> io::Result<()> {
        let name = rebuild.name;
        let Some(at) = self.sealed.iter().position(|sealed| sealed.name == name) else {
            self.stage = Stage::Closed;
            return Ok(());
        };
        let header = self.sealed[at].header;
        let mark = self.start.left.mark.filter(|mark| mark.file == name);
        if mark.is_some_and(|mark| u64::from(rebuild.at) < mark.count) {
            self.vouched = None;
        }
        if !rebuild.is_full(self.geometry) {
            while let Some(last) = self.sealed.last().filter(|last| last.name > name) {
                self.discard(files, last.name, "the one before it is damaged")?;
            }
        }
        if rebuild.at <= 1 {
            self.discard(files, name, "it has no entry that can be true")?;
            return self.set_open(files);
        }
        let mut newest = Newest::open(files, &self.dir, self.geometry, name, header)?;
        rebuild.finish(&mut newest);
        newest.clear_rest()?;
        self.touched.push(newest.path().to_owned());
        self.sealed[at] = newest.sealed();
        if at + 1 < self.sealed.len() {
            self.rebuild(at + 1, self.geometry.entries);
            return Ok(());
        }
        self.sealed.pop();
        self.newest = Some(newest);
        self.set_open(files)
    }

    /// Lists the files, from the oldest to the last one that can be true; those
    /// behind are removed: their keys are entered again.
    fn list(&mut self, files: &dyn Files) -> io::Result<()> {
        self.sealed.clear();
        let listed = files.list(&self.dir)?;
        let named = listed.iter().filter(|entry| !entry.is_dir);
        let mut names: Vec<u64> = named.filter_map(|e| number_of_name(&e.name)).collect();
        names.sort_unstable();
        self.name_floor = self.floor_above(&names);
        let mut behind = self.physical(0);
        let mut sound = true;
        let mut unsound = Vec::new();
        for name in names {
            let found = match sound_header(files, &self.path(name), self.geometry) {
                Err(error) if self.failures < READ_FAILURES_MAX => return Err(error),
                found => found.unwrap_or(None),
            };
            let header = found.filter(|header| {
                let in_order = header.begin_physical >= behind
                    && ShardId::of_physical(header.begin_physical) == self.shard;
                sound && name < NAME_END && (in_order || header.count == 1)
            });
            match header {
                None => {
                    sound = false;
                    let why = "it, or one before it, is damaged or of another size";
                    unsound.push((name, why));
                }
                Some(header) if header.count == 1 => {
                    // Only the newest can be.
                    sound = false;
                    unsound.push((name, "it is empty"));
                }
                Some(header) => {
                    behind = header.begin_physical;
                    self.sealed.push(Sealed { name, header });
                }
            }
        }
        // The newest first: what is left has no hole whenever the machine stops.
        for (name, why) in unsound.into_iter().rev() {
            self.discard(files, name, why)?;
        }
        Ok(())
    }

    fn floor_above(&self, listed: &[u64]) -> u64 {
        let left = self.start.left;
        let vouched = [left.mark.unwrap_or_default().file, left.synced.file];
        let names = listed.iter().chain(&vouched);
        // A name that is no time is not from here.
        let newest = names.filter(|&&name| name < NAME_LAST).max();
        self.name_floor.max(newest.map_or(0, |name| name + 1))
    }

    /// Removes files that cannot be taken as they are. Returns from which file on
    /// slots must be made anew, and how many entries that one can have.
    fn keep_vouched(&mut self, files: &dyn Files) -> io::Result<Option<(usize, u32)>> {
        self.vouched = None;
        let IndexVouched { mark, intact, .. } = self.start.left;
        let Some(mark) = mark else {
            if intact || self.start.foreign {
                return Ok((!intact).then_some((0, self.geometry.entries)));
            }
            // The log may have ended in front of their records once, before others took
            // the places of these: nothing in the entries shows it.
            while let Some(last) = self.sealed.last() {
                self.discard(files, last.name, "nothing vouches for it")?;
            }
            return Ok(None);
        };
        let count = u32::try_from(mark.count).unwrap_or(u32::MAX);
        let at = self.sealed.iter().position(|file| file.name == mark.file);
        let whole = match at {
            Some(at) => self.sealed[at].header.count >= count,
            None => mark.file == 0,
        };
        if at.is_some() || mark.file == 0 {
            self.vouched = Some(mark.position);
        }
        if intact && whole {
            return Ok(None);
        }
        while let Some(last) = self.sealed.last().filter(|last| last.name > mark.file) {
            self.discard(files, last.name, "nothing vouches for it")?;
        }
        Ok(at.map(|at| (at, count)))
    }

    /// Removes a file, the last one of the list where it is in it.
    fn discard(&mut self, files: &dyn Files, name: u64, why: &str) -> io::Result<()> {
        tracing::warn!(
            shard = %self.shard, file = file_name(name),
            "index file removed, {why}; its keys are entered again from the log"
        );
        files.remove_file(&self.path(name))?;
        self.sealed.retain(|sealed| sealed.name != name);
        Ok(())
    }

    /// The files are sound: finds out from where on keys must be entered.
    fn set_open(&mut self, files: &dyn Files) -> io::Result<()> {
        let IndexStart { min, end, .. } = self.start;
        (self.next, self.begun) = (min, None);
        if let Some(vouched) = self.vouched.take() {
            self.next = self.next.max(vouched.min(end));
        }
        if let Some((physical, keys)) = self.trailing(files)? {
            if Self::position(physical) >= self.next {
                self.next = Self::position(physical);
                self.begun = Some((physical, keys));
            }
        }
        // A process that was killed may have filled files that it never synced.
        let unsynced = self.sealed.iter();
        let unsynced = unsynced.filter(|sealed| sealed.name >= self.start.left.synced.file);
        let unsynced: Vec<_> = unsynced.map(|sealed| self.path(sealed.name)).collect();
        self.touched.extend(unsynced);
        self.stage = Stage::Open;
        if self.next < end {
            tracing::info!(
                shard = %self.shard, from = self.next, to = end, "keys are entered again from the log"
            );
        }
        Ok(())
    }

    /// The physical offset of the last entry, and how many entries at the end have it.
    fn trailing(&self, files: &dyn Files) -> io::Result<Option<(i64, u32)>> {
        let mut found: Option<(i64, u32)> = None;
        let newest = self.newest.iter().map(Newest::sealed);
        for sealed in newest.chain(self.sealed.iter().rev().cloned()) {
            let file = files.open(&self.path(sealed.name), Mode::Read)?;
            let mut entries = Entries::new(&*file, self.geometry);
            for number in (1..sealed.header.count).rev() {
                let Some(entry) = entries.at(number)? else {
                    return Ok(found);
                };
                match &mut found {
                    None => found = Some((entry.physical, 1)),
                    Some((physical, keys)) if *physical == entry.physical => *keys += 1,
                    Some(_) => return Ok(found),
                }
            }
        }
        Ok(found)
    }

    /// Enters the keys of the records from where the files stand to `end`, a position.
    ///
    /// # Errors
    /// Those of writing. What was entered before the error is known, and the rest
    /// can be entered again from the log.
    pub fn enter<'k>(
        &mut self,
        files: &dyn Files,
        keys: impl IntoIterator<Item = &'k [PendingKey]>,
        end: u64,
    ) -> io::Result<()> {
        for piece in keys {
            let mut rest = piece;
            let mut entered = Ok(());
            while !rest.is_empty() && entered.is_ok() {
                entered = self
                    .enter_some(files, rest)
                    .map(|taken| rest = &rest[taken..]);
            }
            self.stop_behind(&piece[..piece.len() - rest.len()]);
            entered?;
        }
        (self.next, self.begun) = (end, None);
        Ok(())
    }

    fn enter_some(&mut self, files: &dyn Files, keys: &[PendingKey]) -> io::Result<usize> {
        if self.newest.as_ref().is_none_or(Newest::is_full) {
            self.roll(files, keys[0].timestamp)?;
        }
        let Some(newest) = &mut self.newest else {
            return Ok(0);
        };
        let taken = newest.append(keys, &mut self.scratch)?;
        if self.touched.last().is_none_or(|last| last != newest.path()) {
            self.touched.push(newest.path().to_owned());
        }
        Ok(taken)
    }

    /// Begins a new file, named after the store time of its first key's record.
    fn roll(&mut self, files: &dyn Files, timestamp: i64) -> io::Result<()> {
        let last = self.newest.as_ref().map(|newest| newest.name);
        let last = last.or_else(|| self.sealed.last().map(|sealed| sealed.name));
        let name = name_of_time(timestamp)
            .max(last.map_or(0, |last| last + 1))
            .max(self.name_floor);
        let made = Newest::create(files, &self.dir, self.geometry, name).inspect_err(|_| {
            // Half made, it would be taken for an empty one, at the next start.
            let _ = files.remove_file(&self.path(name));
        })?;
        if let Some(full) = self.newest.replace(made) {
            self.sealed.push(full.sealed());
        }
        Ok(())
    }

    /// Only these keys were entered, of those that begin where the files stood.
    fn stop_behind(&mut self, entered: &[PendingKey]) {
        let Some(last) = entered.last() else { return };
        let same = entered.iter().rev();
        let mut keys = same.take_while(|key| key.physical == last.physical).count() as u32;
        if let Some((_, before)) = self.begun.filter(|(begun, _)| *begun == last.physical) {
            keys += before;
        }
        self.next = Self::position(last.physical);
        self.begun = Some((last.physical, keys));
    }

    /// Removes the files of which all records lie in front of a physical offset, but
    /// never the newest one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove_before(&mut self, files: &dyn Files, physical: i64) -> io::Result<()> {
        while let Some(oldest) = self.sealed.first() {
            if oldest.header.end_physical >= physical {
                break;
            }
            files.remove_file(&self.path(oldest.name))?;
            self.sealed.remove(0);
        }
        Ok(())
    }
}
