//! Stores whose files were changed: opened, they are whole or refused, never
//! worse; opened twice, they are the same.

use std::fs;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};

use futures_lite::FutureExt;
use ringmq::shard::{block_on, sleep};
use ringmq::store::{
    AckLevel, DelayTable, Disk, Entry, Fetch, IndexGeometry, NewRecord, ShardId, StoreHandle,
    StoreSettings, load_json, run_background, save_json,
};
use ringmq::wire::body::json;
use ringmq::wire::body::offset::ConsumerOffsets;
use ringmq::wire::message::body_crc;

use super::mutate::{Dice, mutate};
use super::run::{cases, check, corpus};

const SEGMENT_BYTES: u64 = 64 * 1024;

/// Most bytes that opening a store of this size may hold.
const OPEN_BYTES_MAX: usize = 16 << 20;

fn settings() -> StoreSettings {
    StoreSettings {
        segment_bytes: SEGMENT_BYTES,
        queue_file_bytes: 2000,
        tail_bytes: 64 * 1024,
        cache_bytes: 0,
        ack: AckLevel::Written,
        flush_after_write: false,
        flush_bytes_max: 1 << 20,
        rebuild_queues: false,
        flush_interval_ms: 10,
        after_crash: true,
        delays: DelayTable(vec![1000, 5000]),
        index: Some(IndexGeometry {
            slots: 61,
            entries: 500,
        }),
    }
}

/// Memory where there is some: nothing here needs to outlive the test.
fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        tempfile::tempdir_in(shm)
    } else {
        tempfile::tempdir()
    }
    .unwrap()
}

/// Fills a store and leaves it as a killed process does: the newest bytes are in
/// the tail file only.
async fn fill(dir: &Path) {
    let (store, _) = StoreHandle::open(dir, ShardId(0), settings()).unwrap();
    run_background(&store);
    let append = |n: usize| {
        let body = vec![n as u8; n * 37 % 2000];
        let topic = ["A", "SCHEDULE_TOPIC_XXXX", "%RETRY%g"][n % 3];
        let record = NewRecord {
            queue_id: (n % 2) as i32,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: "127.0.0.1:5".parse().unwrap(),
            store_host: "[::1]:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_offset: 0,
            body: &body,
            body_crc: body_crc(&body),
            topic: topic.as_bytes(),
            properties: b"TAGS\x01t\x02DELAY\x011\x02",
        };
        store.with(|store| {
            let queue = store.make_queue(topic, (n % 2) as i32);
            store
                .append(queue, &[record], n as i64, &mut Vec::new())
                .is_ok()
        })
    };
    for n in 0..300 {
        while !append(n) {
            store.progress().wait().await;
        }
        if n == 200 {
            // A checkpoint, and then some more.
            sleep(std::time::Duration::from_millis(400)).await;
        }
    }
}

fn files_below(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut paths: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files_below(&path, out);
        } else {
            out.push(path);
        }
    }
}

/// Changes some files of a store; the files' names tell what they are.
fn damage(files: &mut Vec<(PathBuf, Vec<u8>)>, dice: &mut Dice) {
    for _ in 0..1 + dice.below(3) {
        let kind = *dice.pick(&["commitlog", "consumequeue", "checkpoint", "tail", "tail"]);
        let found: Vec<usize> = (0..files.len())
            .filter(|&index| files[index].0.iter().any(|part| part == kind))
            .collect();
        if found.is_empty() {
            continue;
        }
        let index = *dice.pick(&found);
        match dice.below(12) {
            0 => {
                files.remove(index);
            }
            1 => {
                let len = dice.below(files[index].1.len() + 1);
                files[index].1.truncate(len);
            }
            2 => {
                let names = [
                    "00000000000000002000",
                    "00000000000000065536",
                    "00000000000000000020",
                    "18446744073709551615",
                    "00281474976710656000",
                    "00000000000000000001",
                    "x",
                ];
                let path = files[index].0.with_file_name(dice.pick(&names));
                if files.iter().all(|(other, _)| *other != path) {
                    files[index].0 = path;
                }
            }
            3 if kind == "consumequeue" => {
                let id = *dice.pick(&["2147483647", "65535", "65536", "-1", "007", "q"]);
                let old = files[index].0.clone();
                let topic = old.parent().unwrap().parent().unwrap();
                files[index].0 = topic.join(id).join(old.file_name().unwrap());
            }
            _ => change(kind, &mut files[index].1, dice),
        }
    }
}

fn change(kind: &str, bytes: &mut Vec<u8>, dice: &mut Dice) {
    let len = bytes.len();
    if len == 0 {
        return;
    }
    // Most of a large file is bodies: change a piece of it, often its front.
    let front = if kind == "tail" { 64 } else { len };
    let start = if dice.below(2) == 0 {
        0
    } else {
        dice.below(front.min(len))
    };
    let end = (start + 64 + dice.below(2000)).min(len);
    let mut piece = bytes[start..end].to_vec();
    mutate(
        &mut piece,
        &[],
        &[b"\xDA\xA3\x20\xA7", b"\xCB\xD4\x31\x94"],
        dice,
    );
    bytes.splice(start..end, piece);
    if dice.below(4) > 0 {
        bytes.resize(len, 0);
    }
    if kind == "checkpoint" && bytes.len() >= 2172 && dice.below(4) > 0 {
        if dice.below(2) == 0 {
            let at = 2072 + 8 * dice.below(12);
            let number = dice.next() >> dice.below(64);
            bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
        let crc = crc32fast::hash(&bytes[2048..2168]);
        bytes[2168..2172].copy_from_slice(&crc.to_be_bytes());
    }
}

/// What an open store says about itself.
type Seen = (u64, Vec<(String, i32, u64, u64)>);

fn look(store: &StoreHandle) -> Seen {
    store.with(|store| {
        let mut queues: Vec<_> = store
            .queue_names()
            .into_iter()
            .map(|(topic, id)| {
                let queue = store.queue(store.find_queue(&topic, id).unwrap());
                (topic, id, queue.min, queue.next)
            })
            .collect();
        queues.sort();
        (store.log().written(), queues)
    })
}

/// Reads what the queues hold; entries that cannot be loaded are passed over.
async fn read(store: &StoreHandle) {
    for (topic, id, min, next) in look(store).1 {
        let index = store.with(|store| store.find_queue(&topic, id).unwrap());
        let mut at = min;
        let mut rounds = 0;
        while at < next && rounds < 200 {
            rounds += 1;
            let mut entries: Vec<Entry> = Vec::new();
            let read = store.with(|store| store.entries(index, at, 50, &mut entries));
            if let Err(missing) = read {
                if store.load(missing).await.is_err() {
                    break;
                }
                continue;
            }
            at += entries.len() as u64;
            for entry in &entries {
                for _ in 0..100 {
                    let mut out = Fetch::default();
                    match store.with(|store| store.fetch(entry, None, &mut out)) {
                        Ok(true) => assert_eq!(out.len(), entry.size as usize),
                        Ok(false) => {}
                        Err(missing) => {
                            if store.load(missing).await.is_ok() {
                                continue;
                            }
                        }
                    }
                    break;
                }
            }
        }
    }
}

/// `log_damaged`: a log may be refused once more of it is read.
async fn open_twice(dir: &Path, log_damaged: bool) {
    let Ok((store, _)) = StoreHandle::open(dir, ShardId(0), settings()) else {
        return;
    };
    let seen = look(&store);
    read(&store).await;
    drop(store);
    let again = StoreHandle::open(dir, ShardId(0), settings());
    let (store, report) = match again {
        Err(_) if log_damaged => return,
        again => again.unwrap_or_else(|error| panic!("opened once, then: {error}")),
    };
    if log_damaged {
        return;
    }
    assert_eq!(look(&store).0, seen.0, "the log ends elsewhere: {report:?}");
    for queue in look(&store).1 {
        let (topic, id, _, next) = &queue;
        let before = seen.1.iter().find(|(t, i, ..)| (t, i) == (topic, id));
        assert_eq!(
            before.map(|(.., next)| *next),
            Some(*next),
            "{queue:?}: {report:?}"
        );
    }
}

pub fn fuzz_files() {
    let template = scratch();
    let root = template.path();
    fs::create_dir_all(root.join("commitlog")).unwrap();
    fs::create_dir_all(root.join("consumequeue")).unwrap();
    block_on(fill(root)).unwrap();
    let mut paths = Vec::new();
    files_below(root, &mut paths);
    let mut pristine: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap().to_owned();
        pristine.push((name, fs::read(path).unwrap()));
    }
    assert!(
        pristine
            .iter()
            .any(|(name, _)| name.ends_with("checkpoint"))
    );
    cases("store", |dice, watch| {
        let mut files = pristine.clone();
        damage(&mut files, dice);
        let is_log = |(name, _): &&(PathBuf, Vec<u8>)| {
            name.starts_with("commitlog") || name.starts_with("tail")
        };
        let log_damaged = !pristine
            .iter()
            .filter(is_log)
            .eq(files.iter().filter(is_log));
        let dir = scratch();
        fs::create_dir_all(dir.path().join("commitlog")).unwrap();
        fs::create_dir_all(dir.path().join("consumequeue")).unwrap();
        for (name, bytes) in &files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        // The case is its number: the files are too many for one input.
        let names: Vec<_> = files
            .iter()
            .map(|(name, _)| name.display().to_string())
            .collect();
        let input = names.join("\n");
        watch.set(input.as_bytes());
        check(
            "store",
            &watch.case(),
            OPEN_BYTES_MAX,
            input.as_bytes(),
            || {
                let opened = AssertUnwindSafe(open_twice(dir.path(), log_damaged)).catch_unwind();
                block_on(opened)
                    .unwrap()
                    .unwrap_or_else(|panic| resume_unwind(panic));
            },
        );
    });
}

/// A damaged configuration file is its backup, or an error, never none.
pub fn fuzz_config() {
    let dir = scratch();
    let path = dir.path().join("config/consumerOffset.json");
    let backup = dir.path().join("config/consumerOffset.json.bak");
    let files = corpus("offsets");
    let parse =
        |bytes: &[u8]| json::parse::<ConsumerOffsets>(bytes).map_err(|error| error.to_string());
    cases("config", |dice, watch| {
        let good = dice.pick(&files).clone();
        save_json(&Disk, &path, &good).unwrap();
        save_json(&Disk, &path, &good).unwrap();
        let mut bad = good.clone();
        mutate(
            &mut bad,
            &files,
            &[b"{", b"}", b":", b"0", b"\"", b"\0"],
            dice,
        );
        if dice.below(4) == 0 {
            bad.truncate(dice.below(bad.len() + 1));
        }
        let both = dice.below(2) == 0;
        watch.set(&bad);
        check("config", &watch.case(), 1 << 20, &bad, || {
            fs::write(&path, &bad).unwrap();
            if both {
                fs::write(&backup, &bad).unwrap();
            }
            match load_json(&Disk, &path, parse) {
                Ok(None) => panic!("a file is there and was taken for none"),
                Ok(Some(_)) => {}
                Err(_) => assert!(both, "the backup was whole"),
            }
        });
    });
}
