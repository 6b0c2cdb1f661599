//! One shard's files: the CommitLog, the ConsumeQueues derived from it, and
//! what a restart needs.
//!
//! ```text
//! append ─> commit_log (place) ─> tail (bytes outlive the process)
//!                │                  └─> flush ─> segment files (the device promises)
//!                ├─> consume_queue (entry) ─> queue_writer ─> queue_files
//!                └─> index (keys) ─> index files
//! read   ─> consume_queue ─> tail, or blocks of segment files
//! age    ─> retention: oldest segments, and the entries and queue files that pointed into them
//! start  ─> recovery: tail into segments, log scanned from the checkpoint, queues made to match
//! ```
//!
//! Decisions are synchronous and live on the shard's thread; bytes move in
//! [`handle`], [`flush`] and [`queue_writer`], by way of [`edge`]. This module
//! knows no socket and no request.

mod block_loads;
mod blocks;
mod check;
mod checkpoint;
mod commit_log;
mod consume_queue;
mod dispatch;
mod edge;
mod fetch;
mod flush;
mod group;
mod handle;
mod idle;
mod index;
mod json_file;
mod layout;
mod lock;
mod log_writer;
mod pieces;
mod prepare;
mod promise;
mod queue_files;
mod queue_recovery;
mod queue_scan;
mod queue_writer;
mod recovery;
mod retention;
mod scan;
mod segment;
mod segments;
mod shard_store;
mod spare;
mod sync_flush;
mod tail;
#[cfg(test)]
mod tests;
mod zero_fill;

pub use check::{Fault, LogCheck, adopt_tail, check_log, cut_log};
pub use commit_log::NoRoom;
pub use consume_queue::{Entry, QueueIndex};
pub use dispatch::{DelayTable, delay_level, has_key, key_hash};
pub use edge::Disk;
pub use fetch::Fetch;
pub use handle::{StoreHandle, run_background};
pub use index::{IndexCursor, IndexGeometry, KeyHits, KeyQuery};
pub use json_file::{LoadedFrom, load_json, save_json};
pub use layout::{LogOwners, StoreLayout};
pub use lock::{StoreLock, StoreLockError};
pub use recovery::{OpenError, RecoveryReport};
pub use retention::{Demand, Moved};
pub use shard_store::{
    AckLevel, Appended, Missing, NewRecord, ShardStore, StoreFigures, StoreSettings,
};

use std::fmt;

/// Unit of direct I/O, in bytes: what ext4 and XFS want, whatever the device says.
pub const BLOCK_BYTES: usize = 4096;

/// Bits of a physical offset that count bytes of one log; the shard stands above them.
pub const POSITION_BITS: u32 = 48;

/// `position` rounded down to a block.
fn align_down(position: u64) -> u64 {
    position & !(BLOCK_BYTES as u64 - 1)
}

/// Number of a shard, from 0. Shard *k* owns log *k* of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The shard that owns the control state: topics, groups, membership.
    pub const CONTROL: ShardId = ShardId(0);

    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The shard whose log a physical offset lies in.
    pub const fn of_physical(physical: i64) -> ShardId {
        ShardId((physical >> POSITION_BITS) as u16)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
