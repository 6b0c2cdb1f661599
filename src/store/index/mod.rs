//! The index: from a key of a message to where the message lies in the log, in
//! RocketMQ's index files (`IndexService`).
//!
//! ```text
//! append ─> PendingKeys (hash, physical offset, time) ─> a round each 250 ms, or a query
//!                                                             │
//! log ─> catch_up, where files reach less far than the log ───┴─> file: entries, slots, header
//! ```
//!
//! An append pushes each key of a record to a vector and does nothing else. A round
//! on the helper thread enters them. A query runs a round first, so that it finds
//! whatever was appended before it.
//!
//! # Rules
//!
//! The index is derived from the log: it may be behind, it is never wrong.
//!
//! 1. **Keys are entered in the order of the log, each once.** The last entry and the
//!    entries in front of it that have the same physical offset say which record was
//!    entered last, and how many of its keys; from there on the log is read again,
//!    or, where the checkpoint vouches for a later position, from that one on.
//! 2. **A killed process** leaves whole pages. A batch writes its entries, then its
//!    slots, then the header with the count last; at the next start slots that point
//!    at or above the count are led back along their chains ([`verify::check_slots`]).
//! 3. **A power loss** may lose any page that was not synced. Entries below the count
//!    that the checkpoint has as synced are on the device, and so are all files before
//!    that one; files behind it are removed, and its slots are made anew from its
//!    entries ([`verify::Rebuild`]), which takes only what can be true: offsets that
//!    rise, chains that meet. A log that lost its end may have grown again, and then
//!    entries of what it lost look true: so nothing is taken that no checkpoint vouches
//!    for, and a process that has not opened the files vouches for nothing but what
//!    was synced. Only of another broker's files the slots of all are made anew.
//! 4. **A file that cannot be one** (missing, short, of another size, a header that its
//!    first and last entries contradict) is removed with those behind it. Their keys
//!    are entered again from the log, into files with names that were never in use: a
//!    checkpoint may still vouch for the old ones. After a sync that failed no
//!    checkpoint of the process vouches for more than those before.
//! 5. Entries of records behind the end of the log are taken out before anything is
//!    entered.
//! 6. Nothing of this is waited for at the start, and none of it is fatal: files are
//!    opened, repaired and brought up in bounded steps on the helper thread. Queries
//!    wait a moment for it, then answer from what is there.
//! 7. Where keys cannot be written, as for want of space, or too many gather, they are
//!    dropped and entered from the log later.
//!
//! Slots and header are mapped (20 MB), entries are written and read. A chain is
//! walked to lower numbers only.

mod catch_up;
mod file;
mod find;
mod format;
mod round;
mod set;
#[cfg(test)]
pub mod tests;
mod verify;

pub use find::{IndexCursor, KeyQuery};
pub use format::IndexGeometry;
pub use round::KeyHits;
pub(super) use round::{IndexSlot, Work, plan, run_index};
pub(super) use set::IndexFiles;

use super::checkpoint::IndexVouched;
use super::dispatch::{Acted, index_keys};
use super::pieces::Pieces;
use crate::wire::message::{Parts, Stamp};

/// Keys that gather before they are dropped, to be entered from the log: 24 MB, some
/// seconds of appends.
const PENDING_MAX: usize = 1 << 20;

/// A key that is yet to be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingKey {
    pub hash: i32,
    /// Of its record.
    pub physical: i64,
    /// Store time of its record, ms since 1970.
    pub timestamp: i64,
}

/// What a recovery knows of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexStart {
    /// What the checkpoint vouches for.
    pub left: IndexVouched,
    /// Another broker had the files last.
    pub foreign: bool,
    /// Positions of the oldest byte of the log and behind the newest.
    pub min: u64,
    pub end: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

/// The keys of records that were appended since the last round. Lives with the log.
pub(super) struct PendingKeys {
    keys: Pieces<PendingKey>,
    /// All keys of records at or behind this position are here, unless `lost`.
    start: u64,
    /// There were too many.
    lost: bool,
}

impl PendingKeys {
    /// None yet; the log ends at `start`.
    pub fn new(start: u64) -> PendingKeys {
        PendingKeys {
            keys: Pieces::default(),
            start,
            lost: false,
        }
    }

    /// A record was appended.
    pub fn push(&mut self, record: &Parts<'_>, acted: &Acted<'_>, stamp: &Stamp) {
        if self.lost {
            return;
        }
        if self.keys.len() >= PENDING_MAX {
            self.lost = true;
            self.keys = Pieces::default();
            return;
        }
        index_keys(record.topic, acted, record.sys_flag, |hash| {
            self.keys.push(PendingKey {
                hash,
                physical: stamp.physical_offset,
                timestamp: stamp.store_timestamp,
            });
        });
    }

    /// Whether an index reaches less far than the keys that are held here.
    pub fn is_ahead_of(&self, index: &IndexFiles) -> bool {
        self.lost || !index.stands_at(self.start)
    }

    /// What a round should do for an index that is in the caller's hands.
    pub fn plan(&mut self, index: &IndexFiles, written: u64, flushed: u64) -> Work {
        if self.lost {
            *self = PendingKeys::new(written);
        }
        if !index.stands_at(self.start) {
            return Work::Behind(self.start.min(flushed));
        }
        self.start = written;
        Work::Keys(std::mem::take(&mut self.keys), written)
    }
}
