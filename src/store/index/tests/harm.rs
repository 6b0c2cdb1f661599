//! Files as killed processes, lost power and bad disks leave them.

use std::fs;

use super::*;
use crate::store::index::KeyQuery;
use crate::store::index::format::file_name;
use crate::store::tests::config;

/// Bytes that a device writes or does not.
const PAGE_BYTES: usize = 256;

/// A log's index as far as `position`: its files and mark.
fn index_of(log: &Log, position: u64) -> (Vec<(String, Vec<u8>)>, IndexMark) {
    let dir = tempfile::tempdir().unwrap();
    let part = Log {
        keys: log.keys_at(0, position),
        end: position,
    };
    let index = part.bring_up(&Disk, dir.path(), part.start(None, true));
    let named = paths(dir.path()).into_iter().map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    });
    (named.collect(), index.mark())
}

fn lay(dir: &Path, files: &[(String, Vec<u8>)]) {
    let _ = fs::remove_dir_all(dir.join("index"));
    fs::create_dir(dir.join("index")).unwrap();
    for (name, bytes) in files {
        fs::write(dir.join("index").join(name), bytes).unwrap();
    }
}

/// Every state on the way from `before` to `after`, of one file, in the order in
/// which a batch changes it; calls `each` with it.
fn states(before: &[u8], after: &[u8], each: &mut dyn FnMut(&[u8])) {
    let head = GEOMETRY.head_bytes();
    let mut now = before.to_vec();
    each(&now);
    // Entries, torn anywhere, then slots, then the header, its count last.
    for range in [head..after.len(), 40..head, 0..36, 36..40] {
        let step = if range.start == head { 1 } else { 4 };
        for at in range.clone().step_by(step) {
            if now[at..at + step] != after[at..at + step] {
                now[at..at + step].copy_from_slice(&after[at..at + step]);
                each(&now);
            }
        }
    }
    assert_eq!(now, after);
}

#[test]
fn a_process_killed_between_any_two_bytes_leaves_the_index_of_the_log() {
    // 30 + 36 keys: the second batch fills the first file and begins another.
    let records: Vec<_> = (0..33)
        .map(|n| (vec![n % 5, n * 7 % 31], 700 * i64::from(n % 3)))
        .collect();
    let log = Log::new(&records);
    let (before, old) = index_of(&log, 15 * RECORD_BYTES);
    let (after, _) = index_of(&log, log.end);
    assert_eq!((before.len(), after.len()), (1, 2));
    let dir = tempfile::tempdir().unwrap();
    let mut looked_at = 0;
    let mut check = |files: &[(String, Vec<u8>)]| {
        for mark in [Some(old), None] {
            lay(dir.path(), files);
            log.bring_up(&Disk, dir.path(), log.start(mark, true));
            assert_eq!(
                log.compare(dir.path()),
                Ok(()),
                "state {looked_at}, {mark:?}"
            );
            looked_at += 1;
        }
    };
    let named = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    let (first, second) = (&after[0], &after[1]);
    states(&before[0].1, &first.1, &mut |now| {
        check(&[named(&first.0, now)])
    });
    check(&[first.clone(), named(&second.0, b"")]);
    let mut empty = vec![0; second.1.len()];
    check(&[first.clone(), named(&second.0, &empty)]);
    empty[39] = 1;
    states(&empty, &second.1, &mut |now| {
        check(&[first.clone(), named(&second.0, now)])
    });
    assert!(looked_at > 400, "{looked_at} states");
}

/// What the device may have of a file that went from `old` to `new`.
fn torn(old: &[u8], new: &[u8], dice: &mut impl FnMut() -> bool) -> Vec<u8> {
    let mut bytes = vec![0; new.len()];
    let pages = bytes.chunks_mut(PAGE_BYTES).zip(new.chunks(PAGE_BYTES));
    for (number, (page, new)) in pages.enumerate() {
        let from = number * PAGE_BYTES;
        match old.get(from..from + new.len()) {
            Some(old) if dice() => page.copy_from_slice(old),
            None if dice() => {}
            _ => page.copy_from_slice(new),
        }
    }
    bytes
}

#[test]
fn a_file_that_is_made_anew_is_not_the_one_that_was_vouched_for() {
    let records = vec![(vec![1, 2, 3], 0); 30];
    let log = Log::new(&records);
    let (mut files, mark) = index_of(&log, log.end);
    assert_eq!(files.len(), 3);
    files[0].1.truncate(50);
    let dir = tempfile::tempdir().unwrap();
    lay(dir.path(), &files);
    let index = log.bring_up(&Disk, dir.path(), log.start(Some(mark), true));
    assert_eq!(log.compare(dir.path()), Ok(()));
    let mut names = paths(dir.path()).into_iter();
    assert!(names.all(|path| files.iter().all(|(name, _)| !path.ends_with(name))));
    assert!(index.mark().file > mark.file);
    // The device lost the new files, in part, and has the old checkpoint.
    for path in paths(dir.path()) {
        let mut bytes = fs::read(&path).unwrap();
        let head = GEOMETRY.head_bytes();
        bytes[head + 100..head + 300].fill(0);
        fs::write(path, bytes).unwrap();
    }
    log.bring_up(&Disk, dir.path(), log.start(Some(mark), false));
    assert_eq!(log.compare(dir.path()), Ok(()));
}

#[test]
fn all_files_behind_what_was_synced_are_synced_by_the_next_process() {
    let log = Log::new(&vec![(vec![1, 2], 0); 80]);
    let (files, mark) = index_of(&log, log.end);
    let (_, early) = index_of(&log, 25 * RECORD_BYTES);
    assert_eq!(files.len(), 5);
    let dir = tempfile::tempdir().unwrap();
    lay(dir.path(), &files);
    for (synced, expected) in [(early, 4), (IndexMark::default(), 5), (mark, 1)] {
        let mut start = log.start(Some(mark), true);
        start.left.synced = synced;
        let mut index = log.bring_up(&Disk, dir.path(), start);
        let mut touched = index.take_touched();
        touched.sort();
        assert_eq!(touched, paths(dir.path())[5 - expected..]);
    }
}

#[test]
fn a_mark_names_the_last_file_where_none_takes_keys() {
    let records = vec![(vec![1], 0); 45];
    let log = Log::new(&records);
    let (mut files, _) = index_of(&log, log.end);
    assert_eq!(files.len(), 2);
    // The second entry of the second file was lost: the first may lack its end.
    let second = GEOMETRY.entry_at(2) as usize;
    files[1].1[second..second + 20].fill(0);
    let dir = tempfile::tempdir().unwrap();
    lay(dir.path(), &files);
    let mut index = IndexFiles::new(SHARD, dir.path(), GEOMETRY, log.start(None, false));
    while !index.prepare(&Disk).unwrap() {}
    assert_eq!(paths(dir.path()).len(), 1);
    let mark = index.mark();
    let count = u64::from(GEOMETRY.entries);
    assert_eq!(
        (file_name(mark.file), mark.count),
        (files[0].0.clone(), count)
    );
    drop(index);
    log.bring_up(&Disk, dir.path(), log.start(Some(mark), false));
    assert_eq!(log.compare(dir.path()), Ok(()));
}

/// What became of index files.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Harm {
    Missing,
    Short,
    Empty,
    Longer,
    OtherHeader,
    Garbage,
    Zeros,
}

fn harm(bytes: &mut Vec<u8>, harm: Harm, seed: u8) {
    match harm {
        Harm::Missing => {}
        Harm::Short => bytes.truncate(bytes.len() - 1 - usize::from(seed)),
        Harm::Empty => bytes.clear(),
        Harm::Longer => bytes.push(seed),
        Harm::OtherHeader => bytes[16..24].copy_from_slice(&[seed | 0x80; 8]),
        Harm::Garbage => bytes
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_mul(31) ^ seed ^ 0x55),
        Harm::Zeros => bytes.fill(0),
    }
}

proptest! {
    #![proptest_config(config(128))]

    #[test]
    fn lost_power_costs_nothing_that_the_log_has(
        records in records(120), synced in 0usize..120, pages: Vec<bool>, gone: bool, vouched: bool,
    ) {
        let log = Log::new(&records);
        let position = (synced as u64 * RECORD_BYTES).min(log.end);
        let (old, mark) = index_of(&log, position);
        let (new, _) = index_of(&log, log.end);
        let mut coins = pages.iter().cycle();
        let mut dice = || coins.next().copied().unwrap_or(false);
        let mut left = Vec::new();
        for (number, (name, bytes)) in new.iter().enumerate() {
            match old.get(number) {
                Some((_, before)) => left.push((name.clone(), torn(before, bytes, &mut dice))),
                None if gone => {}
                None => left.push((name.clone(), torn(&[], bytes, &mut dice))),
            }
        }
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path(), &left);
        let mark = Some(mark).filter(|mark| vouched && *mark != IndexMark::default());
        log.bring_up(&Disk, dir.path(), log.start(mark, false));
        prop_assert_eq!(log.compare(dir.path()), Ok(()));
    }

    #[test]
    fn a_file_that_cannot_be_one_is_made_anew_with_those_behind_it(
        records in records(120), which: usize, seed: u8, intact: bool, vouched: bool,
        kind in prop::sample::select(vec![
            Harm::Missing, Harm::Short, Harm::Empty, Harm::Longer, Harm::OtherHeader, Harm::Garbage,
            Harm::Zeros,
        ]),
    ) {
        let log = Log::new(&records);
        let (mut files, mark) = index_of(&log, log.end);
        prop_assume!(!files.is_empty());
        // A file missing in front of others cannot be told from one that had its time.
        let which = if kind == Harm::Missing { files.len() - 1 } else { which % files.len() };
        harm(&mut files[which].1, kind, seed);
        if kind == Harm::Missing {
            files.pop();
        }
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path(), &files);
        log.bring_up(&Disk, dir.path(), log.start(vouched.then_some(mark), intact));
        prop_assert_eq!(log.compare(dir.path()), Ok(()));
    }

    #[test]
    fn the_log_that_lost_its_end_takes_the_keys_along(
        records in records(120), kept in 0usize..120, intact: bool, vouched in 0usize..120,
    ) {
        let log = Log::new(&records);
        let position = |records: usize| (records as u64 * RECORD_BYTES).min(log.end);
        let (files, _) = index_of(&log, log.end);
        let (_, mark) = index_of(&log, position(vouched));
        prop_assume!(intact || vouched <= kept);
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path(), &files);
        let end = position(kept);
        let shorter = Log { keys: log.keys_at(0, end), end };
        let mark = Some(mark).filter(|mark| *mark != IndexMark::default());
        shorter.bring_up(&Disk, dir.path(), shorter.start(mark, intact));
        prop_assert_eq!(shorter.compare(dir.path()), Ok(()));
    }

    #[test]
    fn entries_of_records_that_the_log_lost_are_not_taken_for_those_in_their_places(
        records in records(80), others in records(80), kept in 0usize..80, vouched in prop::option::of(0usize..80),
        cut: bool,
    ) {
        let kept = kept.min(records.len());
        prop_assume!(vouched <= Some(kept));
        let log = Log::new(&[&records[..kept], &others].concat());
        let lost = Log::new(&records);
        let (files, _) = index_of(&lost, lost.end);
        let (_, mark) = index_of(&lost, vouched.unwrap_or(0) as u64 * RECORD_BYTES);
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path(), &files);
        let mark = Some(mark).filter(|mark| *mark != IndexMark::default());
        if cut {
            // A process that saw the log end there and did not come to the index.
            let end = kept as u64 * RECORD_BYTES;
            let start = IndexStart { end, foreign: false, ..log.start(mark, false) };
            IndexFiles::new(SHARD, dir.path(), GEOMETRY, start).prepare(&Disk).unwrap();
        }
        let start = IndexStart { foreign: false, ..log.start(mark, false) };
        log.bring_up(&Disk, dir.path(), start);
        prop_assert_eq!(log.compare(dir.path()), Ok(()));
    }

    #[test]
    fn no_bytes_make_the_index_panic_or_walk_for_ever(
        records in records(120), intact: bool, vouched: bool,
        changes in prop::collection::vec((any::<usize>(), any::<usize>(), any::<[u8; 4]>(), 1usize..5), 1..20),
    ) {
        let log = Log::new(&records);
        let (mut files, mark) = index_of(&log, log.end);
        prop_assume!(!files.is_empty());
        for (file, at, bytes, len) in changes {
            let count = files.len();
            let (_, content) = &mut files[file % count];
            let at = at % content.len();
            let end = (at + len.min(4)).min(content.len());
            let len = end - at;
            content[at..end].copy_from_slice(&bytes[..len]);
        }
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path(), &files);
        let mut index = IndexFiles::new(SHARD, dir.path(), GEOMETRY, log.start(vouched.then_some(mark), intact));
        let mut steps = 0;
        while !index.prepare(&Disk).unwrap() {
            steps += 1;
            prop_assert!(steps < 1000);
        }
        for hash in 0..40 {
            let query = KeyQuery { hash, begin: i64::MIN, end: i64::MAX };
            let (mut from, mut steps) = (None, 0);
            loop {
                from = index.find(&Disk, &query, from, &mut Vec::new());
                steps += 1;
                prop_assert!(steps < 100);
                if from.is_none() {
                    break;
                }
            }
        }
        let keys = log.keys_at(0, log.end);
        index.enter(&Disk, [&keys[..]], log.end).unwrap();
        prop_assert!(index.stands_at(log.end));
    }
}
