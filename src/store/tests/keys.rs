//! The index of a store: what is found in it, what its files hold, and how they are harmed.

use std::path::{Path, PathBuf};

use super::damage::{open, put};
use super::life::{Checked, ensure};
use super::model::Model;
use super::{Dice, INDEX, Place};
use crate::store::edge::Files;
use crate::store::index::tests::model::compare;
use crate::store::{KeyQuery, StoreHandle};

/// Bytes that a device writes or does not.
const PAGE_BYTES: usize = 256;

/// All records with a key are found, newest first.
pub async fn find(store: &StoreHandle, place: &Place, model: Model, seed: u64) -> Checked {
    let dice = &mut Dice::new(seed);
    let hashes: Vec<i32> = model
        .log
        .iter()
        .flat_map(|stored| stored.keys.clone())
        .collect();
    let last = store.settle_index().await;
    let with_keys = |stored: &&super::model::Stored| !stored.keys.is_empty();
    let newest = model.log.iter().rev().find(with_keys);
    let newest = newest.map_or(0, |stored| place.physical(stored.position));
    ensure!(
        last.1 == newest,
        "the index ends at {last:?}, not at {newest}"
    );
    for _ in 0..hashes.len().min(12) {
        let hash = hashes[dice.below(hashes.len() as u64) as usize];
        let (begin, end) = (i64::MIN, i64::MAX);
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let hits = store.find_key(KeyQuery { hash, begin, end }, from).await;
            found.extend(hits.physical);
            from = hits.next;
            if from.is_none() {
                break;
            }
        }
        let expected: Vec<i64> = model
            .log
            .iter()
            .rev()
            .filter(|stored| stored.keys.contains(&hash))
            .map(|stored| place.physical(stored.position))
            .collect();
        ensure!(
            found == expected,
            "key {hash}: {found:?} instead of {expected:?}"
        );
    }
    Ok(())
}

fn files(place: &Place) -> Vec<PathBuf> {
    let dir = place.dir.join("index");
    let listed = place.files.list(&dir).unwrap_or_default();
    let mut paths: Vec<_> = listed.iter().map(|entry| dir.join(&entry.name)).collect();
    paths.sort();
    paths
}

/// The files hold the keys of the log and nothing else.
pub fn check(place: &Place, model: &Model) -> Checked {
    let keys: Vec<_> = model
        .log
        .iter()
        .flat_map(|stored| {
            let physical = place.physical(stored.position);
            stored
                .keys
                .iter()
                .map(move |&hash| (hash, physical, stored.stored_at))
        })
        .collect();
    let found: Vec<Vec<u8>> = files(place)
        .iter()
        .map(|path| place.files.read(path).unwrap())
        .collect();
    compare(&found, &keys, INDEX.slots as usize, INDEX.entries as usize)
        .map_err(|fault| format!("index: {fault}"))
}

/// Index files are deleted, cut, emptied or overwritten.
pub fn harm(place: &Place, dice: &mut Dice) {
    if dice.below(4) == 0 {
        let _ = place.files.remove_dir_all(&place.dir.join("index"));
        return;
    }
    let Some(path) = files(place).pop() else {
        return;
    };
    let files = &*place.files;
    let len = files.len(&path).unwrap();
    match dice.below(5) {
        0 => files.remove_file(&path).unwrap(),
        1 => set_len(files, &path, dice.below(len)),
        2 => put(files, &path, &vec![0; len as usize]),
        3 => set_len(files, &path, len + 1),
        _ => put(files, &path, &dice.bytes(len as usize)),
    }
}

fn set_len(files: &dyn Files, path: &Path, len: u64) {
    open(files, path).set_len(len).unwrap();
}

/// What was not synced is lost, in part or as a whole: all but the files in front of
/// `file` and the first `count` entries of that one.
pub fn lose_pages(place: &Place, file: u64, count: u64, dice: &mut Dice) {
    let head = 40 + INDEX.slots as usize * 4;
    // Files come into being one after the other, and are made durable at that.
    let mut newest = true;
    for path in files(place).into_iter().rev() {
        let name: u64 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        if name < file {
            continue;
        }
        newest = newest && name > file && dice.below(2) == 0;
        if newest {
            place.files.remove_file(&path).unwrap();
            continue;
        }
        let mut bytes = place.files.read(&path).unwrap();
        let safe = if name == file {
            head + count as usize * 20
        } else {
            0
        };
        if safe > 0 {
            older_head(&mut bytes, count, dice);
        }
        let mut at = safe;
        while at < bytes.len() {
            let end = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(bytes.len());
            if dice.below(2) == 0 {
                bytes[at..end].fill(0);
            }
            at = end;
        }
        put(&*place.files, &path, &bytes);
    }
}

/// Some slots, and perhaps the count, as they were when there were `count` entries.
fn older_head(bytes: &mut [u8], count: u64, dice: &mut Dice) {
    let head = 40 + INDEX.slots as usize * 4;
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    for page in 0..head / 64 {
        let older = dice.below(2) == 0;
        for at in (40 + page * 64..(40 + page * 64 + 64).min(head)).step_by(4) {
            let mut number = word(bytes, at);
            while older && u64::from(number) >= count {
                number = word(bytes, head + number as usize * 20 + 16);
            }
            bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
    }
    if dice.below(2) == 0 {
        bytes[36..40].copy_from_slice(&(count as u32).to_be_bytes());
    }
}
