//! What is in the files, and what is found in them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::store::edge::{Listed, Mode, Patience, SharedMap, StoreFile};
use crate::store::index::{IndexCursor, KeyQuery};
use crate::store::tests::config;

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn files_are_those_that_rocketmq_writes(
        records in records(120), batches in prop::collection::vec((1usize..30, any::<bool>()), 1..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::new(&records);
        let mut index = IndexFiles::new(SHARD, dir.path(), GEOMETRY, IndexStart::default());
        let mut at = 0;
        for (records, reopened) in batches {
            let end = (at + records as u64 * RECORD_BYTES).min(log.end);
            if reopened {
                let start = IndexStart { end: at, ..log.start(Some(index.mark()), true) };
                index = IndexFiles::new(SHARD, dir.path(), GEOMETRY, start);
            }
            while !index.prepare(&Disk).unwrap() {}
            prop_assert!(index.stands_at(at));
            index.enter(&Disk, [&log.keys_at(at, end)[..]], end).unwrap();
            at = end;
        }
        index.enter(&Disk, [&log.keys_at(at, log.end)[..]], log.end).unwrap();
        prop_assert_eq!(log.compare(dir.path()), Ok(()));
    }

    #[test]
    fn every_record_in_the_time_is_found_newest_first(
        records in records(150), queries in prop::collection::vec((any::<usize>(), any::<usize>(), any::<usize>(), -1500i64..1500), 20),
        reopened: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::new(&records);
        prop_assume!(!log.keys.is_empty());
        let mut index = log.bring_up(&Disk, dir.path(), log.start(None, true));
        if reopened {
            index = log.bring_up(&Disk, dir.path(), log.start(Some(index.mark()), true));
        }
        for (hash, begin, end, near) in queries {
            let key = |n: usize| log.keys[n % log.keys.len()];
            let (begin, end) = (key(begin).timestamp + near, key(end).timestamp);
            let query = KeyQuery { hash: key(hash).hash, begin: begin.min(end), end: begin.max(end) };
            let hits = find_all(&index, query);
            let mut last = i64::MAX;
            for &hit in &hits {
                prop_assert!(hit < last, "in order, each once: {hits:?}");
                last = hit;
                prop_assert!(log.keys.iter().any(|key| key.physical == hit && key.hash == query.hash));
            }
            for key in log.keys.iter().filter(|key| key.hash == query.hash) {
                if (query.begin..=query.end).contains(&key.timestamp) {
                    prop_assert!(hits.contains(&key.physical), "{key:?} is not in {hits:?}");
                }
            }
        }
    }
}

fn find_all(index: &IndexFiles, query: KeyQuery) -> Vec<i64> {
    let (mut all, mut from) = (Vec::new(), None::<IndexCursor>);
    loop {
        let mut hits = Vec::new();
        from = index.find(&Disk, &query, from, &mut hits);
        all.extend(hits);
        if from.is_none() {
            return all;
        }
    }
}

/// Records with one key each, all the same, a second apart.
fn hot_log(records: usize) -> Log {
    Log::new(&vec![(vec![7], 1000); records])
}

const ANY_TIME: KeyQuery = KeyQuery {
    hash: 7,
    begin: i64::MIN,
    end: i64::MAX,
};

#[test]
fn a_search_goes_on_where_it_stopped_while_files_roll_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let log = hot_log(260);
    let mut index = IndexFiles::new(SHARD, dir.path(), GEOMETRY, IndexStart::default());
    assert!(index.prepare(&Disk).unwrap());
    index
        .enter(&Disk, [&log.keys[..250]], 250 * RECORD_BYTES)
        .unwrap();
    let mut found = Vec::new();
    let mut from = index.find(&Disk, &ANY_TIME, None, &mut found);
    assert_eq!((found.len(), from.is_some()), (64, true));
    index
        .enter(&Disk, log.keys[250..].chunks(7), log.end)
        .unwrap();
    for step in 0..5 {
        if step == 1 {
            index.remove_before(&Disk, log.keys[39].physical).unwrap();
        }
        let mut hits = Vec::new();
        if from.is_some() {
            from = index.find(&Disk, &ANY_TIME, from, &mut hits);
            assert!(!hits.is_empty() && hits.len() <= 64);
        }
        found.extend(hits);
    }
    assert_eq!(from, None);
    let expected = log.keys[39..250].iter().rev().map(|key| key.physical);
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn files_in_front_of_the_log_are_removed_and_the_newest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let log = hot_log(100);
    let mut index = log.bring_up(&Disk, dir.path(), log.start(None, true));
    assert_eq!(paths(dir.path()).len(), 3);
    index.remove_before(&Disk, log.keys[38].physical).unwrap();
    assert_eq!(
        paths(dir.path()).len(),
        3,
        "its last record is not in front"
    );
    index.remove_before(&Disk, log.keys[39].physical).unwrap();
    assert_eq!(paths(dir.path()).len(), 2);
    index.remove_before(&Disk, i64::MAX).unwrap();
    assert_eq!(paths(dir.path()).len(), 1);
    assert_eq!(find_all(&index, ANY_TIME).len(), 100 - 78);
    let again = log.bring_up(&Disk, dir.path(), log.start(Some(index.mark()), true));
    assert_eq!(find_all(&again, ANY_TIME).len(), 100 - 78);
}

#[test]
fn nothing_is_made_for_messages_without_keys() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::new(&vec![(vec![], 5); 10]);
    let index = log.bring_up(&Disk, dir.path(), log.start(None, true));
    assert_eq!(paths(dir.path()).len(), 0);
    let mark = index.mark();
    assert_eq!((mark.position, mark.file, mark.count), (log.end, 0, 0));
    let again = log.bring_up(&Disk, dir.path(), log.start(Some(mark), false));
    assert_eq!(again.mark(), mark);
}

#[test]
fn a_file_takes_no_space_before_it_has_entries() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let start = IndexStart::default();
    let mut index = IndexFiles::new(SHARD, dir.path(), IndexGeometry::ROCKETMQ, start);
    assert!(index.prepare(&Disk).unwrap());
    let log = hot_log(10);
    index.enter(&Disk, log.keys.chunks(100), log.end).unwrap();
    let meta = std::fs::metadata(&paths(dir.path())[0]).unwrap();
    assert_eq!(meta.len(), 420_000_040);
    assert!(meta.blocks() * 512 < 21_000_000, "{} blocks", meta.blocks());
    assert_eq!(
        paths(dir.path())[0].file_name().unwrap(),
        "20240229120001123"
    );
}

/// A disk that takes this many bytes more.
struct FullDisk(Arc<AtomicU64>);

struct FullFile(Box<dyn StoreFile>, Arc<AtomicU64>);

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl Files for FullDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn StoreFile>> {
        let file = Disk.open(path, mode)?;
        Ok(Box::new(FullFile(file, self.0.clone())))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<Listed>> {
        Disk.list(dir)
    }
    fn len(&self, path: &Path) -> io::Result<u64> {
        Disk.len(path)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        Disk.create_dir_all(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Disk.remove_file(path)
    }
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        Disk.remove_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Disk.sync_dir(dir)
    }
    fn map(&self, path: &Path, bytes: usize) -> io::Result<SharedMap> {
        Disk.map(path, bytes)
    }
    fn map_existing(&self, path: &Path, bytes: usize) -> io::Result<SharedMap> {
        if self.0.load(Ordering::Relaxed) == 0 {
            return Err(full());
        }
        Disk.map_existing(path, bytes)
    }
    fn boot_id(&self) -> io::Result<[u8; 16]> {
        Disk.boot_id()
    }
}

impl StoreFile for FullFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, buffer: &mut [u8], at: u64, patience: Patience) -> io::Result<usize> {
        self.0.read_at(buffer, at, patience)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let left = self.1.load(Ordering::Relaxed);
        let taken = left.min(bytes.len() as u64);
        if taken == bytes.len() as u64 {
            self.1.store(left - taken, Ordering::Relaxed);
        }
        self.0.write_at(&bytes[..taken as usize], at)?;
        if taken < bytes.len() as u64 {
            Err(full())
        } else {
            Ok(())
        }
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.0.reserve(bytes)
    }
    fn clear(&self, from: u64, bytes: u64) -> io::Result<()> {
        self.0.clear(from, bytes)
    }
    fn unwritten(&self, from: u64) -> io::Result<u64> {
        self.0.unwritten(from)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn a_disk_that_was_full_leaves_no_trace(
        records in records(120), room in 0u64..3000, more in 1u64..500, reopened: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::new(&records);
        let left = Arc::new(AtomicU64::new(room));
        let disk = FullDisk(left.clone());
        let mut index = IndexFiles::new(SHARD, dir.path(), GEOMETRY, log.start(None, true));
        let mut tries = 0;
        while log.enter_rest(&disk, &mut index).is_err() {
            prop_assert!(!index.stands_at(log.end));
            tries += 1;
            prop_assert!(tries < 200, "no progress");
            left.fetch_add(more.max(20), Ordering::Relaxed);
            if reopened {
                let start = log.start(Some(index.mark()), true);
                index = IndexFiles::new(SHARD, dir.path(), GEOMETRY, start);
            }
        }
        prop_assert_eq!(log.compare(dir.path()), Ok(()));
    }
}
