//! The disk: what processes see, what the device has promised, and what a kill or
//! a power cut makes of the difference.
//!
//! - Content: a change is seen at once and promised by a sync. A power cut keeps,
//!   loses or tears each change that was not, sector by sector.
//! - Names: changes of folders are promised in the order they were made; a power cut
//!   keeps a beginning of those that were not.
//! - Direct writes are seen when they complete. Those in flight at a kill land at
//!   some later time, unless a change of the file's extents waits for them.
//! - Mapped files keep at a kill what was written to them; after a power cut each
//!   page of them holds the old or the new.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::Dice;
use super::inode::{Change, Inode, Mapped, PAGE, SECTOR, write_into};

/// How a life of the machine's process, or of the machine, ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The process is killed.
    Kill,
    /// The machine loses power.
    Power,
}

/// What goes wrong, each in chances of 10,000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A read, write or sync fails.
    pub io_error: u64,
    /// A write takes a part only.
    pub short_write: u64,
    /// Something takes half a second.
    pub slow: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Dir,
    File(usize),
}

/// A change of folders.
#[derive(Clone, Debug)]
enum Naming {
    Set(PathBuf, Node),
    Remove(PathBuf),
    RemoveTree(PathBuf),
    Rename(PathBuf, PathBuf),
}

fn apply(names: &mut BTreeMap<PathBuf, Node>, naming: &Naming) {
    match naming {
        Naming::Set(path, node) => {
            names.insert(path.clone(), *node);
        }
        Naming::Remove(path) => {
            names.remove(path);
        }
        Naming::RemoveTree(dir) => names.retain(|path, _| !path.starts_with(dir)),
        Naming::Rename(from, to) => {
            let moved: Vec<_> = names
                .iter()
                .filter(|(path, _)| path.starts_with(from))
                .map(|(path, node)| (path.clone(), *node))
                .collect();
            for (path, node) in moved {
                names.remove(&path);
                let inner = path.strip_prefix(from).unwrap();
                let to = if inner.as_os_str().is_empty() {
                    to.clone()
                } else {
                    to.join(inner)
                };
                names.insert(to, node);
            }
        }
    }
}

struct State {
    dice: Dice,
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, Node>,
    promised_names: BTreeMap<PathBuf, Node>,
    namings: Vec<Naming>,
    /// Whether a sync of a file promises names too, as a journal does.
    journal: bool,
    boot: u64,
    faults: Faults,
    injected: u64,
    full: bool,
    steps: u64,
    trace: u64,
    dies_at: Option<u64>,
    dead: bool,
    next_write: u64,
}

/// See [`Machine::begin_sync`].
pub struct SyncMark {
    /// Changes of the file so far.
    changes: usize,
    content: Vec<u8>,
}

/// The simulated disk. Clones are the same one.
#[derive(Clone)]
pub struct Machine {
    state: Arc<Mutex<State>>,
}

fn gone() -> io::Error {
    io::Error::other("the process is gone")
}

fn not_found(path: &Path) -> io::Error {
    let text = format!("{}: no such file or folder", path.display());
    io::Error::new(io::ErrorKind::NotFound, text)
}

fn disk_full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        let mut dice = Dice::new(seed ^ 0xD15C);
        let journal = dice.below(2) == 0;
        let names: BTreeMap<_, _> = [(PathBuf::from("/"), Node::Dir)].into();
        let state = State {
            dice,
            inodes: Vec::new(),
            promised_names: names.clone(),
            names,
            namings: Vec::new(),
            journal,
            boot: 1,
            faults: Faults::default(),
            injected: 0,
            full: false,
            steps: 0,
            trace: 0,
            dies_at: None,
            dead: false,
            next_write: 0,
        };
        Machine {
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Whether there is no space for more from now on.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// Faults so far.
    pub fn injected(&self) -> u64 {
        self.lock().injected
    }

    /// The process dies at the `steps`th step from now; `None` for never.
    pub fn die_after(&self, steps: Option<u64>) {
        let mut state = self.lock();
        state.dies_at = steps.map(|steps| state.steps + steps);
    }

    /// Whether the process is dead.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// A number that is the same for the same steps.
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// The process ends; then, perhaps, the machine. Another process may start.
    pub fn end(&self, cut: Cut) {
        let state = &mut *self.lock();
        state.kill();
        if cut == Cut::Power {
            state.boot += 1;
            let kept = state.dice.below(state.namings.len() as u64 + 1) as usize;
            for naming in state.namings.drain(..).take(kept) {
                apply(&mut state.promised_names, &naming);
            }
            state.names = state.promised_names.clone();
            for inode in &mut state.inodes {
                inode.lose_power(&mut state.dice);
            }
        }
        state.faults = Faults::default();
        state.full = false;
        state.dies_at = None;
        state.dead = false;
    }

    pub fn boot_id(&self) -> [u8; 16] {
        u128::from(self.lock().boot).to_be_bytes()
    }

    /// A delay in microseconds.
    pub fn delay_us(&self) -> u64 {
        let state = &mut *self.lock();
        if state.dice.below(10_000) < state.faults.slow {
            return 500_000;
        }
        match state.dice.below(10) {
            0 => state.dice.below(20_000),
            _ => state.dice.below(300),
        }
    }

    pub fn node(&self, path: &Path) -> io::Result<Node> {
        let state = &mut *self.lock();
        state.step(path, 1)?;
        state.find(path)
    }

    pub fn open(&self, path: &Path, create: bool, empty: bool) -> io::Result<usize> {
        let state = &mut *self.lock();
        state.step(path, 2)?;
        let inode = match state.find(path) {
            Ok(Node::File(inode)) => inode,
            Ok(Node::Dir) => return Err(io::Error::other("a folder")),
            Err(error) if !create => return Err(error),
            Err(_) => {
                if !matches!(state.find(path.parent().unwrap()), Ok(Node::Dir)) {
                    return Err(not_found(path));
                }
                if state.full {
                    state.injected += 1;
                    return Err(disk_full());
                }
                state.inodes.push(Inode::default());
                let inode = state.inodes.len() - 1;
                state.name(Naming::Set(path.to_owned(), Node::File(inode)));
                inode
            }
        };
        if empty {
            state.inodes[inode].land_all();
            state.inodes[inode].change(Change::Len(0));
        }
        Ok(inode)
    }

    pub fn list(&self, dir: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let state = &mut *self.lock();
        state.step(dir, 3)?;
        if state.find(dir)? != Node::Dir {
            return Err(not_found(dir));
        }
        let inside = state
            .names
            .iter()
            .filter(|(path, _)| path.parent() == Some(dir));
        let entry = |(path, node): (&PathBuf, &Node)| {
            (path.file_name().unwrap().to_owned(), *node == Node::Dir)
        };
        Ok(inside.map(entry).collect())
    }

    pub fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(dir, 4)?;
        let mut missing: Vec<_> = dir
            .ancestors()
            .take_while(|dir| state.find(dir).is_err())
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        for dir in missing {
            state.name(Naming::Set(dir, Node::Dir));
        }
        Ok(())
    }

    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(from, 5)?;
        state.find(from)?;
        state.name(Naming::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    pub fn remove(&self, path: &Path, tree: bool) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(path, 6)?;
        state.find(path)?;
        state.name(if tree {
            Naming::RemoveTree(path.to_owned())
        } else {
            Naming::Remove(path.to_owned())
        });
        Ok(())
    }

    pub fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(dir, 7)?;
        state.fault(dir)?;
        state.promise_names();
        Ok(())
    }

    pub fn map(&self, inode: usize, bytes: usize) -> io::Result<Arc<Mapped>> {
        let state = &mut *self.lock();
        state.step(Path::new("map"), 8)?;
        if state.full {
            state.injected += 1;
            return Err(disk_full());
        }
        let inode = &mut state.inodes[inode];
        inode.unmap();
        inode.change(Change::Len(0));
        inode.change(Change::Len(bytes));
        let mapped = Arc::new(Mapped::new(bytes));
        inode.mapped = Some((mapped.clone(), bytes));
        Ok(mapped)
    }

    /// Maps the front of a file that is there.
    pub fn map_part(&self, inode: usize, bytes: usize) -> io::Result<Arc<Mapped>> {
        let state = &mut *self.lock();
        state.step(Path::new("map"), 18)?;
        state.fault(Path::new("map"))?;
        let inode = &mut state.inodes[inode];
        if inode.seen.len() < bytes {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "too short"));
        }
        inode.unmap();
        let mapped = Arc::new(Mapped::of(&inode.seen[..bytes]));
        inode.mapped = Some((mapped.clone(), bytes));
        Ok(mapped)
    }

    pub fn len(&self, inode: usize) -> io::Result<u64> {
        let state = &mut *self.lock();
        state.step(Path::new("len"), 9)?;
        Ok(state.inodes[inode].seen.len() as u64)
    }

    pub fn read(&self, inode: usize, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let state = &mut *self.lock();
        state.step(Path::new("read"), 10 ^ at)?;
        state.fault(Path::new("read"))?;
        state.maybe_land(inode);
        let content = &state.inodes[inode];
        let copied;
        let seen = if content.mapped.is_some() {
            copied = content.content();
            &copied
        } else {
            &content.seen
        };
        let rest = seen.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    pub fn write(&self, inode: usize, bytes: &[u8], at: u64) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(Path::new("write"), 11 ^ at)?;
        state.maybe_land(inode);
        let at = at as usize;
        let grows = at + bytes.len() > state.inodes[inode].seen.len();
        if state.full && grows {
            state.injected += 1;
            return Err(disk_full());
        }
        let through = false;
        if let Err(error) = state.fault(Path::new("write")) {
            // The kernel goes page by page.
            let part = state.dice.below(bytes.len() as u64 + 1) as usize;
            let end = ((at + part) / PAGE * PAGE).max(at);
            let bytes = bytes[..end - at].to_vec();
            state.inodes[inode].change(Change::Write { at, bytes, through });
            return Err(error);
        }
        let bytes = bytes.to_vec();
        state.inodes[inode].change(Change::Write { at, bytes, through });
        Ok(())
    }

    pub fn set_len(&self, inode: usize, len: u64, reserve: bool) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(Path::new("set_len"), 12 ^ len)?;
        state.inodes[inode].land_all();
        let len = len as usize;
        if reserve && state.full && len > state.inodes[inode].seen.len() {
            state.injected += 1;
            return Err(disk_full());
        }
        if !reserve || len > state.inodes[inode].seen.len() {
            state.inodes[inode].change(Change::Len(len));
        }
        Ok(())
    }

    pub fn clear(&self, inode: usize, from: u64, to: u64) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(Path::new("clear"), 13 ^ from)?;
        state.fault(Path::new("clear"))?;
        let inode = &mut state.inodes[inode];
        inode.land_all();
        inode.change(Change::Zero(from as usize, to as usize));
        Ok(())
    }

    pub fn sync(&self, inode: usize) -> io::Result<()> {
        let mark = self.begin_sync(inode)?;
        self.finish_sync(inode, mark)
    }

    /// Everything is synced, as by `syncfs`.
    pub fn sync_all(&self) -> io::Result<()> {
        let count = self.lock().inodes.len();
        for inode in 0..count {
            self.sync(inode)?;
        }
        let state = &mut *self.lock();
        state.step(Path::new("sync all"), 19)?;
        state.promise_names();
        Ok(())
    }

    /// What a sync that begins now is to promise.
    pub fn begin_sync(&self, inode: usize) -> io::Result<SyncMark> {
        let state = &mut *self.lock();
        state.step(Path::new("sync"), 14)?;
        let file = &state.inodes[inode];
        Ok(SyncMark {
            changes: file.settled + file.changes.len(),
            content: file.content(),
        })
    }

    /// It completes. A failed one may have lost what it was to promise, and the next
    /// says nothing of it.
    pub fn finish_sync(&self, inode: usize, mark: SyncMark) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(Path::new("synced"), 17)?;
        if let Err(error) = state.fault(Path::new("sync")) {
            state.inodes[inode].lost_by_sync();
            return Err(error);
        }
        let file = &mut state.inodes[inode];
        // One that began later may have completed before it.
        let Some(covered) = mark.changes.checked_sub(file.settled) else {
            return Ok(());
        };
        file.promised = mark.content;
        let covered = covered.min(file.changes.len());
        for change in file.changes.split_off(covered) {
            // What came since stands on what is promised now.
            if let Change::Write {
                at,
                bytes,
                through: true,
            } = &change
            {
                write_into(&mut file.promised, *at, bytes);
            }
            file.changes.push(change);
        }
        file.changes.drain(..covered);
        file.settled += covered;
        if state.journal {
            state.promise_names();
        }
        Ok(())
    }

    /// A direct write begins.
    pub fn begin(&self, inode: usize, at: u64, bytes: &[u8]) -> io::Result<u64> {
        let state = &mut *self.lock();
        state.step(Path::new("begin"), 15 ^ at)?;
        state.next_write += 1;
        let (id, at) = (state.next_write, at as usize);
        let file = &mut state.inodes[inode];
        assert!(
            at % PAGE == 0 && bytes.len() % PAGE == 0,
            "not whole blocks"
        );
        assert!(
            at + bytes.len() <= file.seen.len(),
            "a direct write grows the segment"
        );
        let overlaps = |(_, other, theirs): &(u64, usize, Vec<u8>)| {
            *other < at + bytes.len() && at < other + theirs.len()
        };
        assert!(
            !file.in_flight.iter().any(overlaps),
            "two writes of one block are in flight"
        );
        file.in_flight.push((id, at, bytes.to_vec()));
        Ok(id)
    }

    /// It completes.
    pub fn finish(&self, inode: usize, id: u64, through: bool) -> io::Result<()> {
        let state = &mut *self.lock();
        state.step(Path::new("finish"), 16)?;
        let file = &mut state.inodes[inode];
        let place = file.in_flight.iter().position(|(other, ..)| *other == id);
        let (_, at, mut bytes) = file.in_flight.remove(place.expect("a write of a file"));
        let error = state.fault(Path::new("direct write")).err().or_else(|| {
            let short = state.dice.below(10_000) < state.faults.short_write;
            short.then(|| {
                state.injected += 1;
                io::Error::new(io::ErrorKind::WriteZero, "a short write")
            })
        });
        if error.is_some() {
            let part = state.dice.below((bytes.len() / SECTOR) as u64 + 1) as usize;
            bytes.truncate(part * SECTOR);
        }
        let through = through && error.is_none();
        state.inodes[inode].change(Change::Write { at, bytes, through });
        error.map_or(Ok(()), Err)
    }
}

impl State {
    /// One step of the process; none after its death.
    fn step(&mut self, path: &Path, kind: u64) -> io::Result<()> {
        if self.dies_at.is_some_and(|at| self.steps >= at) && !self.dead {
            self.kill();
        }
        if self.dead {
            return Err(gone());
        }
        self.steps += 1;
        let path = crc32fast::hash(path.as_os_str().as_encoded_bytes());
        self.trace = (self.trace ^ u64::from(path) ^ kind).wrapping_mul(0x100_0000_01B3);
        Ok(())
    }

    fn kill(&mut self) {
        self.dead = true;
        for inode in &mut self.inodes {
            inode.unmap();
            let in_flight = std::mem::take(&mut inode.in_flight).into_iter();
            inode
                .late
                .extend(in_flight.map(|(_, at, bytes)| (at, bytes)));
        }
    }

    fn fault(&mut self, path: &Path) -> io::Result<()> {
        if self.dice.below(10_000) < self.faults.io_error {
            self.injected += 1;
            let text = format!(
                "{}: {}",
                path.display(),
                io::Error::from_raw_os_error(libc::EIO)
            );
            return Err(io::Error::other(text));
        }
        Ok(())
    }

    fn find(&self, path: &Path) -> io::Result<Node> {
        self.names.get(path).copied().ok_or_else(|| not_found(path))
    }

    fn name(&mut self, naming: Naming) {
        apply(&mut self.names, &naming);
        self.namings.push(naming);
    }

    fn promise_names(&mut self) {
        for naming in self.namings.drain(..) {
            apply(&mut self.promised_names, &naming);
        }
    }

    fn maybe_land(&mut self, inode: usize) {
        if !self.inodes[inode].late.is_empty() && self.dice.below(4) == 0 {
            self.inodes[inode].land_all();
        }
    }
}
