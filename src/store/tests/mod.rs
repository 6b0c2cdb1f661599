//! The store held against a model of it: random histories with clean stops, kills,
//! power losses and damaged files between runs, on real files ([`history`]) and on a
//! simulated machine ([`seeds`]).
//!
//! `RINGMQ_CASES` multiplies the number of cases. A failing case on real files is kept
//! in a `.seeds` file beside its source and runs first from then on; a failing seed of
//! the machine is printed and replays exactly with `RINGMQ_SEED`.

mod another;
mod damage;
mod directed;
mod history;
mod keys;
mod life;
mod log;
mod machine;
mod model;
mod raw;
mod reading;
mod seeds;

use std::sync::Arc;

use proptest::test_runner::{Config, FileFailurePersistence};

use super::edge::Files;
use super::{AckLevel, DelayTable, IndexGeometry, ShardId, StoreSettings};

/// Small files, so that every boundary is crossed often.
const SEGMENT_BYTES: u64 = 1 << 20;
const QUEUE_FILE_BYTES: u64 = 2000;
const TAIL_BYTES: usize = 1 << 20;

/// Few slots, so that keys share chains, and few entries, so that files roll.
const INDEX: IndexGeometry = IndexGeometry {
    slots: 61,
    entries: 500,
};

/// `base` cases, more where the environment asks for them.
pub fn config(base: u32) -> Config {
    let factor = std::env::var("RINGMQ_CASES")
        .ok()
        .and_then(|text| text.parse::<u32>().ok())
        .unwrap_or(1);
    Config {
        cases: base * factor,
        max_shrink_iters: 300,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("seeds"))),
        ..Config::default()
    }
}

fn settings(ack: AckLevel) -> StoreSettings {
    StoreSettings {
        segment_bytes: SEGMENT_BYTES,
        queue_file_bytes: QUEUE_FILE_BYTES,
        tail_bytes: TAIL_BYTES,
        cache_bytes: 0,
        ack,
        flush_after_write: false,
        flush_bytes_max: 1 << 20,
        rebuild_queues: false,
        flush_interval_ms: 30,
        after_crash: true,
        delays: DelayTable(vec![1000, 5000, 10_000]),
        index: Some(INDEX),
    }
}

/// A store's place and how it is opened.
#[derive(Clone)]
struct Place {
    files: Arc<dyn Files>,
    dir: std::path::PathBuf,
    shard: ShardId,
    settings: StoreSettings,
}

impl Place {
    /// A place for a new store behind an edge.
    fn make(files: Arc<dyn Files>, dir: &std::path::Path, shard: ShardId, ack: AckLevel) -> Place {
        files.create_dir_all(&dir.join("commitlog")).unwrap();
        files.create_dir_all(&dir.join("consumequeue")).unwrap();
        files.sync_dir(dir).unwrap();
        Place {
            files,
            dir: dir.to_owned(),
            shard,
            settings: settings(ack),
        }
    }

    /// The physical offset of a position.
    fn physical(&self, position: u64) -> i64 {
        i64::from(self.shard.0) << 48 | position as i64
    }
}

/// Numbers that look random and are the same in every run.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`; 0 where that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
