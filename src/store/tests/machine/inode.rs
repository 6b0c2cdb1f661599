//! One file: what processes see of it, what the device has promised, and the changes
//! in between.

use std::sync::Arc;

use super::super::Dice;

/// What a device writes as a whole or not at all.
pub const SECTOR: usize = 512;

/// What the kernel keeps as a whole.
pub const PAGE: usize = 4096;

/// A change of content that no device has promised.
#[derive(Clone, Debug)]
pub enum Change {
    Write {
        at: usize,
        bytes: Vec<u8>,
        through: bool,
    },
    Len(usize),
    Zero(usize, usize),
}

/// Memory that a process has mapped.
pub struct Mapped {
    words: *mut u64,
    count: usize,
}

// SAFETY: the machine is used by one thread.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub fn new(bytes: usize) -> Mapped {
        let words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        let count = words.len();
        Mapped {
            words: Box::into_raw(words).cast(),
            count,
        }
    }

    pub fn of(bytes: &[u8]) -> Mapped {
        let mapped = Mapped::new(bytes.len());
        // SAFETY: as many bytes were allocated, and nobody else knows them yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapped.start(), bytes.len()) };
        mapped
    }

    pub fn start(&self) -> *mut u8 {
        self.words.cast()
    }

    fn copy(&self, len: usize) -> Vec<u8> {
        // SAFETY: `count` words were allocated; the process that writes them is a task
        // of this thread and does not run now.
        let all = unsafe { std::slice::from_raw_parts(self.start(), self.count * 8) };
        all[..len].to_vec()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.words, self.count);
        // SAFETY: made by `Box::into_raw` of a slice of this length.
        drop(unsafe { Box::from_raw(slice) });
    }
}

/// One file.
#[derive(Default)]
pub struct Inode {
    pub seen: Vec<u8>,
    pub promised: Vec<u8>,
    pub changes: Vec<Change>,
    /// Changes in front of these.
    pub settled: usize,
    pub in_flight: Vec<(u64, usize, Vec<u8>)>,
    /// Writes of a killed process that are yet to land.
    pub late: Vec<(usize, Vec<u8>)>,
    /// The front of the file, where a process has mapped it.
    pub mapped: Option<(Arc<Mapped>, usize)>,
}

/// Writes into a file's content, which grows as it must.
pub fn write_into(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Inode {
    pub fn content(&self) -> Vec<u8> {
        let mut content = self.seen.clone();
        if let Some((mapped, len)) = &self.mapped {
            let len = (*len).min(content.len());
            content[..len].copy_from_slice(&mapped.copy(len));
        }
        content
    }

    pub fn change(&mut self, change: Change) {
        match &change {
            Change::Write { at, bytes, through } => {
                write_into(&mut self.seen, *at, bytes);
                if *through {
                    write_into(&mut self.promised, *at, bytes);
                }
            }
            Change::Len(len) => self.seen.resize(*len, 0),
            Change::Zero(from, to) => {
                let to = (*to).min(self.seen.len());
                if *from < to {
                    self.seen[*from..to].fill(0);
                }
            }
        }
        self.changes.push(change);
    }

    pub fn land_all(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.late) {
            let through = false;
            self.change(Change::Write { at, bytes, through });
        }
    }

    /// The mapping process is gone: what it wrote belongs to the page cache.
    pub fn unmap(&mut self) {
        if self.mapped.is_some() {
            self.seen = self.content();
            self.mapped = None;
        }
    }

    pub fn lose_power(&mut self, dice: &mut Dice) {
        let mut content = std::mem::take(&mut self.promised);
        let in_flight = std::mem::take(&mut self.in_flight).into_iter();
        let late = std::mem::take(&mut self.late).into_iter();
        for (at, bytes) in in_flight.map(|(_, at, bytes)| (at, bytes)).chain(late) {
            let through = false;
            self.changes.push(Change::Write { at, bytes, through });
        }
        let front = self.mapped.take();
        let front = front.map(|(mapped, len)| mapped.copy(len));
        for change in std::mem::take(&mut self.changes) {
            // All, nothing, or a mixture.
            let odds = dice.below(3);
            let mut kept = || match odds {
                0 => false,
                1 => true,
                _ => dice.below(2) == 0,
            };
            match change {
                Change::Write { at, bytes, through } => {
                    let unit = if bytes.len() % PAGE == 0 && at % PAGE == 0 && at % 8192 == 0 {
                        PAGE
                    } else {
                        SECTOR
                    };
                    let mut from = 0;
                    while from < bytes.len() {
                        let to = bytes.len().min((at + from) / unit * unit + unit - at);
                        if through || kept() {
                            write_into(&mut content, at + from, &bytes[from..to]);
                        }
                        from = to;
                    }
                }
                Change::Len(len) if kept() => content.resize(len, 0),
                Change::Zero(from, to) if kept() => {
                    let to = to.min(content.len());
                    if from < to {
                        content[from..to].fill(0);
                    }
                }
                Change::Len(_) | Change::Zero(..) => {}
            }
        }
        let front = front.unwrap_or_default();
        for (old, new) in content.chunks_mut(PAGE).zip(front.chunks(PAGE)) {
            if dice.below(2) == 0 && old.len() >= new.len() {
                old[..new.len()].copy_from_slice(new);
            }
        }
        self.seen = content.clone();
        self.promised = content;
    }
}

impl Inode {
    /// The kernel dropped what it could not write, and calls it clean.
    pub fn lost_by_sync(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.settled += changes.len();
        self.changes = changes
            .into_iter()
            .filter(|change| matches!(change, Change::Write { through: true, .. }))
            .collect();
        self.settled -= self.changes.len();
    }
}
