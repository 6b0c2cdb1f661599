//! The files of a closed store, read as RocketMQ's documentation of them says
//! and without any code of the store.

use std::collections::BTreeMap;

use super::Place;
use super::damage::queue_files;
use super::life::{Checked, ensure};
use super::model::{Model, QUEUES};

const BLANK: u32 = 0xCBD4_3194;

/// The log's segments and the queues' files hold what was appended, nothing
/// else, and nothing behind it.
pub fn check(place: &Place, model: &Model) -> Checked {
    check_log(place, model)?;
    check_queues(place, model)?;
    match place.settings.index {
        Some(_) => super::keys::check(place, model),
        None => Ok(()),
    }
}

fn check_log(place: &Place, model: &Model) -> Checked {
    let segment = place.settings.segment_bytes as usize;
    let dir = place.dir.join("commitlog");
    let mut names: Vec<String> = place
        .files
        .list(&dir)
        .unwrap()
        .into_iter()
        .map(|entry| entry.name.into_string().unwrap())
        .filter(|name| !name.ends_with(".tmp"))
        .collect();
    names.sort();
    let first: u64 = names[0].parse().unwrap();
    let first = first - place.physical(0) as u64;
    ensure!(first <= model.deleted, "the log begins at {first}");
    let mut records = model
        .log
        .iter()
        .skip_while(|stored| stored.position < first);
    let mut ended = false;
    for (number, name) in names.iter().enumerate() {
        let base = first + (number * segment) as u64;
        ensure!(
            *name == format!("{:020}", place.physical(base)),
            "segment {number} is named {name}"
        );
        let bytes = place.files.read(&dir.join(name)).unwrap();
        ensure!(bytes.len() == segment, "{name} has {} bytes", bytes.len());
        let mut at = 0;
        while !ended && at < segment {
            let word = |i: usize| u32::from_be_bytes(bytes[i..i + 4].try_into().unwrap());
            ensure!(at + 8 <= segment, "{name}: no marker at its end");
            if word(at + 4) == BLANK {
                ensure!(
                    word(at) as usize == segment - at,
                    "{name}: marker of {} bytes at {at}",
                    word(at)
                );
                at = segment;
                continue;
            }
            let Some(record) = records.next() else {
                ensure!(
                    base + at as u64 == model.written,
                    "{name}: records end at {at}"
                );
                ended = true;
                break;
            };
            let end = at + record.bytes.len();
            ensure!(
                record.position == base + at as u64,
                "{name}: no record at {at} but at {}",
                record.position
            );
            ensure!(
                bytes.get(at..end) == Some(&record.bytes[..]),
                "{name}: other bytes at {at}"
            );
            at = end;
        }
        if ended {
            let dirt = bytes[at..].iter().position(|&byte| byte != 0);
            ensure!(
                dirt.is_none(),
                "{name}: byte {} behind the log's end at {at}",
                at + dirt.unwrap()
            );
        }
    }
    ensure!(records.next().is_none(), "the segments end before the log");
    Ok(())
}

fn check_queues(place: &Place, model: &Model) -> Checked {
    let mut on_disk: BTreeMap<(String, i32), (u64, Vec<u8>)> = BTreeMap::new();
    for path in queue_files(place) {
        let name = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let dir = path.parent().unwrap();
        let queue = (name(dir.parent().unwrap()), name(dir).parse().unwrap());
        let base: u64 = name(&path).parse().unwrap();
        ensure!(
            name(&path).len() == 20,
            "{} is not 20 digits",
            path.display()
        );
        let bytes = place.files.read(&path).unwrap();
        let (first, all) = on_disk.entry(queue).or_insert((base, Vec::new()));
        let full = all.len() as u64 % place.settings.queue_file_bytes == 0;
        ensure!(
            full && base == *first + all.len() as u64,
            "{} does not adjoin",
            path.display()
        );
        // Apache RocketMQ opens no other.
        ensure!(
            bytes.len() as u64 == place.settings.queue_file_bytes,
            "{} has {} bytes",
            path.display(),
            bytes.len()
        );
        all.extend(bytes);
    }
    for (queue, (topic, id)) in QUEUES.iter().enumerate() {
        let entries = &model.queues[queue];
        let found = on_disk.remove(&((*topic).to_owned(), *id));
        if entries.removed {
            continue;
        }
        let (first, mut bytes) = found.unwrap_or_default();
        let expected = entries.log_index.iter().flat_map(|&index| {
            let stored = &model.log[index];
            let mut entry = place.physical(stored.position).to_be_bytes().to_vec();
            entry.extend((stored.bytes.len() as i32).to_be_bytes());
            entry.extend(stored.tags_code.to_be_bytes());
            entry
        });
        let expected: Vec<u8> = expected.skip(first as usize).collect();
        if bytes.iter().skip(expected.len()).all(|&byte| byte == 0) {
            bytes.truncate(expected.len());
        }
        // A queue that begins later has entries of nothing in front.
        let optional = entries.required.saturating_sub(first as usize / 20);
        for (entry, right) in bytes.chunks_mut(20).zip(expected.chunks(20)).take(optional) {
            if entry[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF] {
                entry.copy_from_slice(right);
            }
        }
        ensure!(
            first / 20 <= entries.required as u64,
            "{topic} {id} begins at byte {first}"
        );
        ensure!(
            bytes == expected,
            "{topic} {id}: {} bytes of entries instead of {}, or others",
            bytes.len(),
            expected.len()
        );
    }
    ensure!(on_disk.is_empty(), "queues of nobody: {:?}", on_disk.keys());
    Ok(())
}
