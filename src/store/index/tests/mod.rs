//! Index files against an independent writing of RocketMQ's, with processes killed
//! between any two bytes, power lost, files damaged and disks full.

mod files;
mod harm;
pub mod model;

use std::path::Path;

use proptest::prelude::*;

use super::super::checkpoint::{IndexMark, IndexVouched};
use super::super::edge::{Disk, Files};
use super::super::{POSITION_BITS, ShardId};
use super::{IndexFiles, IndexGeometry, IndexStart, PendingKey};

/// So small that files roll and chains are shared.
const GEOMETRY: IndexGeometry = IndexGeometry {
    slots: 13,
    entries: 40,
};

const SHARD: ShardId = ShardId(3);

/// Bytes of the log that a record takes.
const RECORD_BYTES: u64 = 100;

/// The keys of a log.
#[derive(Clone, Debug)]
struct Log {
    keys: Vec<PendingKey>,
    /// Position behind its last record.
    end: u64,
}

impl Log {
    /// A log of records with these keys; before each, this time passed.
    fn new(records: &[(Vec<i32>, i64)]) -> Log {
        let mut log = Log {
            keys: Vec::new(),
            end: 0,
        };
        let mut timestamp = 1_709_208_000_123;
        for (hashes, passed) in records {
            timestamp += passed;
            let physical = (u64::from(SHARD.0) << POSITION_BITS | log.end) as i64;
            log.keys.extend(hashes.iter().map(|&hash| PendingKey {
                hash,
                physical,
                timestamp,
            }));
            log.end += RECORD_BYTES;
        }
        log
    }

    fn model(&self) -> Vec<model::Key> {
        self.keys
            .iter()
            .map(|key| (key.hash, key.physical, key.timestamp))
            .collect()
    }

    fn position(key: &PendingKey) -> u64 {
        key.physical as u64 & ((1 << POSITION_BITS) - 1)
    }

    /// The keys of records at `from..end`.
    fn keys_at(&self, from: u64, end: u64) -> Vec<PendingKey> {
        let in_range = |key: &&PendingKey| (from..end).contains(&Log::position(key));
        self.keys.iter().filter(in_range).copied().collect()
    }

    fn start(&self, mark: Option<IndexMark>, intact: bool) -> IndexStart {
        IndexStart {
            left: IndexVouched {
                mark,
                synced: IndexMark::default(),
                intact,
            },
            foreign: mark.is_none(),
            min: 0,
            end: self.end,
            segment_bytes: 1 << 20,
        }
    }

    /// Opens the index in `dir` and enters what it lacks.
    fn bring_up(&self, files: &dyn Files, dir: &Path, start: IndexStart) -> IndexFiles {
        let mut index = IndexFiles::new(SHARD, dir, GEOMETRY, start);
        self.enter_rest(files, &mut index).unwrap();
        index
    }

    /// Does what a catch-up does.
    fn enter_rest(&self, files: &dyn Files, index: &mut IndexFiles) -> std::io::Result<()> {
        let mut steps = 0;
        while !index.prepare(files)? {
            steps += 1;
            assert!(steps < 1000, "an index is opened without an end");
        }
        let mut rest = self.keys_at(index.next, self.end);
        if let Some((physical, keys)) = index.begun {
            assert!(
                rest[..keys as usize]
                    .iter()
                    .all(|key| key.physical == physical)
            );
            rest.drain(..keys as usize);
        }
        index.enter(files, rest.chunks(3), self.end)?;
        assert!(index.stands_at(self.end));
        Ok(())
    }

    /// What is wrong with the files in `dir` as an index of the whole log.
    fn compare(&self, dir: &Path) -> Result<(), String> {
        let (slots, entries) = (GEOMETRY.slots as usize, GEOMETRY.entries as usize);
        model::compare(&read_files(dir), &self.model(), slots, entries)
    }
}

/// The index files of a shard's folder, oldest first.
fn read_files(dir: &Path) -> Vec<Vec<u8>> {
    let paths = paths(dir);
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn paths(dir: &Path) -> Vec<std::path::PathBuf> {
    let listed = std::fs::read_dir(dir.join("index")).into_iter().flatten();
    let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Records with up to four keys, few of them different, with a clock that is set
/// back now and then.
fn records(most: usize) -> impl Strategy<Value = Vec<(Vec<i32>, i64)>> {
    let hash = prop_oneof![4 => 0i32..40, 1 => any::<i32>().prop_map(|hash| hash & i32::MAX)];
    let passed = prop_oneof![
        6 => 0i64..300,
        2 => 0i64..20_000,
        1 => -5000i64..0,
        1 => Just(86_400_000i64),
    ];
    prop::collection::vec((prop::collection::vec(hash, 0..4), passed), 1..most)
}
