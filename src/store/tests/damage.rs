//! What happens to a store's files between two runs.

use std::path::{Path, PathBuf};

use super::life::Marks;
use super::model::Model;
use super::{Dice, Place, keys};
use crate::store::edge::{Files, Mode, StoreFile};

/// Harm done to the files of a store that is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    None,
    /// The checkpoint is deleted, changed or cut.
    Checkpoint,
    /// Queue files are deleted, cut or emptied from some entry on.
    QueueFiles,
    /// Queue files hold anything, and there is no checkpoint.
    QueueFilesAndCheckpoint,
    /// Index files are deleted, cut or overwritten.
    Index,
    /// And there is no checkpoint.
    IndexAndCheckpoint,
    /// The tail file is deleted, cut or marked as another's.
    Tail,
    /// What no device had promised is lost, in part or as a whole.
    PowerLoss,
}

/// Does the harm and returns the position up to which the log must survive it.
pub fn inflict(place: &Place, model: &Model, marks: Marks, damage: Damage, seed: u64) -> u64 {
    let dice = &mut Dice::new(seed);
    let checkpoint = place.dir.join("checkpoint");
    match damage {
        Damage::None => {}
        Damage::Checkpoint => harm_file(&*place.files, &checkpoint, dice),
        Damage::QueueFiles => harm_queues(place, dice, false),
        Damage::QueueFilesAndCheckpoint => {
            harm_queues(place, dice, true);
            let _ = place.files.remove_file(&checkpoint);
        }
        Damage::Index => keys::harm(place, dice),
        Damage::IndexAndCheckpoint => {
            keys::harm(place, dice);
            let _ = place.files.remove_file(&checkpoint);
        }
        // A topic that was removed comes back when the log loses what came after.
        Damage::Tail | Damage::PowerLoss if model.removals => {}
        Damage::Tail => {
            harm_tail(&*place.files, &place.dir.join("tail"), dice);
            return model.whole(marks.flushed);
        }
        Damage::PowerLoss => {
            lose_power(place, marks, dice);
            return model.whole(marks.durable);
        }
    }
    model.written
}

/// Replaces the content of a file.
pub fn put(files: &dyn Files, path: &Path, bytes: &[u8]) {
    let file = files.open(path, Mode::Empty).unwrap();
    file.write_at(bytes, 0).unwrap();
}

/// Opens a file for writing.
pub fn open(files: &dyn Files, path: &Path) -> Box<dyn StoreFile> {
    files.open(path, Mode::Write).unwrap()
}

fn harm_file(files: &dyn Files, path: &Path, dice: &mut Dice) {
    let Ok(mut bytes) = files.read(path) else {
        return;
    };
    match dice.below(3) {
        0 => files.remove_file(path).unwrap(),
        1 if bytes.len() >= 2180 => {
            for _ in 0..4 {
                let at = 2048 + dice.below(132) as usize;
                bytes[at] ^= 1 << dice.below(8);
            }
            put(files, path, &bytes);
        }
        _ => {
            bytes.truncate(dice.below(2180) as usize);
            put(files, path, &bytes);
        }
    }
}

fn harm_tail(files: &dyn Files, path: &Path, dice: &mut Dice) {
    match dice.below(3) {
        0 => files.remove_file(path).unwrap(),
        1 => {
            let file = open(files, path);
            file.set_len(dice.below(file.len().unwrap())).unwrap();
        }
        _ => {
            open(files, path).write_at(b"X", dice.below(40)).unwrap();
        }
    }
}

/// All files of all queues.
pub fn queue_files(place: &Place) -> Vec<PathBuf> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        let listed = place.files.list(dir).unwrap_or_default();
        let mut paths: Vec<_> = listed.iter().map(|entry| dir.join(&entry.name)).collect();
        paths.sort();
        paths
    };
    let topics = list(&place.dir.join("consumequeue"));
    let queues = topics.iter().flat_map(|topic| list(topic));
    queues.flat_map(|queue| list(&queue)).collect()
}

fn harm_queues(place: &Place, dice: &mut Dice, garble: bool) {
    if dice.below(6) == 0 {
        let root = place.dir.join("consumequeue");
        place.files.remove_dir_all(&root).unwrap();
        place.files.create_dir_all(&root).unwrap();
        return;
    }
    for _ in 0..1 + dice.below(3) {
        let files = queue_files(place);
        if files.is_empty() {
            return;
        }
        let path = &files[dice.below(files.len() as u64) as usize];
        let file = open(&*place.files, path);
        let len = file.len().unwrap();
        match dice.below(if garble { 5 } else { 4 }) {
            0 => place.files.remove_file(path).unwrap(),
            1 => place.files.remove_dir_all(path.parent().unwrap()).unwrap(),
            2 => file.set_len(dice.below(len)).unwrap(),
            3 => {
                // As a file that was extended and whose bytes never came.
                let from = dice.below(len) / 20 * 20;
                file.write_at(&vec![0; (len - from) as usize], from)
                    .unwrap();
            }
            _ => {
                let at = dice.below(len);
                let some = 1 + dice.below(len - at) as usize;
                file.write_at(&dice.bytes(some), at).unwrap();
            }
        }
    }
}

/// The machine stops and starts again. The device has what it promised; of the
/// rest it has some blocks and not others. A segment is left only when it is safe.
fn lose_power(place: &Place, marks: Marks, dice: &mut Dice) {
    let files = &*place.files;
    let change = |path: PathBuf, change: &mut dyn FnMut(&mut Vec<u8>)| {
        if let Ok(mut bytes) = files.read(&path) {
            change(&mut bytes);
            put(files, &path, &bytes);
        }
    };
    change(place.dir.join("tail"), &mut |bytes| bytes[8] ^= 1);
    let (mut synced, mut index) = (0, (0, 0));
    change(place.dir.join("checkpoint"), &mut |bytes| {
        let is_whole = |bytes: &[u8]| {
            let crc = crc32fast::hash(&bytes[2048..2176]);
            bytes[2176..2180] == crc.to_be_bytes()
        };
        if bytes.len() < 2180 || !is_whole(bytes) {
            return; // harmed before
        }
        // Another boot each time, also after a life that wrote no checkpoint.
        bytes[2056] = bytes[2056].wrapping_add(1);
        let crc = crc32fast::hash(&bytes[2048..2176]);
        bytes[2176..2180].copy_from_slice(&crc.to_be_bytes());
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        synced = number(2080);
        index = (number(2160), number(2168));
    });
    keys::lose_pages(place, index.0, index.1, dice);
    let segment = place.settings.segment_bytes;
    // A full segment may have been left already.
    let base = marks.flushed / segment * segment;
    let from = marks.durable.max(base);
    if from < marks.flushed {
        let name = format!("{:020}", place.physical(base));
        let path = place.dir.join("commitlog").join(name);
        let file = open(files, &path);
        // A block that holds promised bytes is written again as a whole.
        let mut at = from;
        while at < marks.flushed {
            let end = ((at / 4096 + 1 + dice.below(60)) * 4096).min(base + segment);
            if dice.below(2) == 0 {
                file.write_at(&vec![0; (end - at) as usize], at - base)
                    .unwrap();
            }
            at = end;
        }
    }
    // Entries of messages behind the synced position may be lost.
    for path in queue_files(place) {
        let bytes = files.read(&path).unwrap();
        let safe = bytes.chunks(20).take_while(|entry| {
            let physical = i64::from_be_bytes(entry[..8].try_into().unwrap());
            physical < place.physical(synced)
        });
        let safe = safe.count() as u64 * 20;
        let lost = safe + dice.below((bytes.len() as u64).saturating_sub(safe) + 1);
        let file = open(files, &path);
        if dice.below(2) == 0 {
            file.set_len(lost).unwrap();
        } else {
            file.write_at(&vec![0; bytes.len() - lost as usize], lost)
                .unwrap();
        }
    }
}
