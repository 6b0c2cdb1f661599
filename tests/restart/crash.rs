//! kill -9 under load, again and again, with files lost or damaged in between.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Config, Pull, Send, Server, body, commit, committed, topic};
use crate::ledger::Ledger;

const QUEUES: i32 = 4;

/// Small segments, so that a round rolls several.
pub fn config(shards: u16, flush: &str) -> Config {
    Config::server()
        .shards(shards)
        .set("flushDiskType", flush)
        .set("mappedFileSizeCommitLog", 1024 * 1024)
        .set("maxMessageSize", 256 * 1024)
        .set("mappedFileSizeConsumeQueue", 20 * 500)
        .set("tailFileBytes", 8 * 1024 * 1024)
}

/// All files below a folder whose path has `part`.
pub fn files(root: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().contains(part) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn delete(root: &Path, part: &str) {
    files(root, part)
        .iter()
        .for_each(|path| fs::remove_file(path).unwrap());
}

fn cut(root: &Path, part: &str) {
    for path in files(root, part) {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len / 2 / 20 * 20 + 7).unwrap();
    }
}

/// Overwrites every third block of a few bytes.
fn garble(root: &Path, part: &str) {
    for path in files(root, part) {
        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        let mut at = 100;
        while at + 60 < len {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&[0x5a; 37]).unwrap();
            at += 900;
        }
    }
}

type Damage = (&'static str, fn(&Path));

/// What recovery does not need.
const DERIVED: [Damage; 6] = [
    ("nothing", |_| ()),
    ("no ConsumeQueues", |store| delete(store, "/consumequeue/")),
    ("ConsumeQueues cut", |store| cut(store, "/consumequeue/")),
    ("no checkpoint", |store| delete(store, "/checkpoint")),
    ("a garbled checkpoint", |store| garble(store, "/checkpoint")),
    ("no ConsumeQueues and no checkpoint", |store| {
        delete(store, "/consumequeue/");
        delete(store, "/checkpoint");
    }),
];

/// Loads, kills, damages, starts again and checks, once for each kind of damage.
fn rounds(config: &Config, damages: &[Damage]) {
    let mut server = config.start();
    let ledger = Ledger::new(&server, "Crash", QUEUES);
    for (round, (what, damage)) in damages.iter().enumerate() {
        let before = ledger.acknowledged();
        ledger.load(&server, || {
            std::thread::sleep(Duration::from_millis(250 + 90 * round as u64));
            server.kill();
        });
        assert!(
            ledger.acknowledged() > before,
            "nothing was acknowledged in round {round}"
        );
        println!(
            "round {round}, {what}: {} acknowledged",
            ledger.acknowledged()
        );
        damage(server.store());
        server.start_again();
        ledger.verify(&server);
    }
    assert_eq!(server.stop(), 0);
    server.start_again();
    ledger.verify(&server);
}

#[test]
fn one_shard_async_flush() {
    rounds(&config(1, "ASYNC_FLUSH"), &DERIVED);
}

#[test]
fn two_shards_async_flush() {
    rounds(&config(2, "ASYNC_FLUSH"), &DERIVED);
}

/// Entries that are not what the log says are noticed, whatever the checkpoint says.
#[test]
fn garbled_consume_queues() {
    let damage: Damage = ("ConsumeQueues garbled", |store| {
        garble(store, "/consumequeue/")
    });
    rounds(&config(1, "ASYNC_FLUSH"), &[damage, damage]);
}

/// Under SYNC_FLUSH the device has what was acknowledged: the tail file may go too.
fn with_tail_lost() -> Vec<Damage> {
    let mut damages = DERIVED.to_vec();
    damages.push(("no tail file", |store| delete(store, "/tail")));
    damages.push(("a garbled tail file", |store| garble(store, "/tail")));
    damages.push(("nothing but the log", |store| {
        for part in ["/tail", "/checkpoint", "/consumequeue/"] {
            delete(store, part);
        }
    }));
    damages
}

#[test]
fn one_shard_sync_flush() {
    rounds(&config(1, "SYNC_FLUSH"), &with_tail_lost());
}

#[test]
fn two_shards_sync_flush() {
    rounds(&config(2, "SYNC_FLUSH"), &with_tail_lost());
}

#[test]
fn killed_while_it_starts() {
    let mut server = config(2, "ASYNC_FLUSH").start();
    let ledger = Ledger::new(&server, "Start", QUEUES);
    ledger.load(&server, || std::thread::sleep(Duration::from_millis(800)));
    server.kill();
    delete(server.store(), "/consumequeue/");
    for millis in [5, 15, 30, 60, 100] {
        let started = server.config.launch_only();
        std::thread::sleep(Duration::from_millis(millis));
        started.kill();
    }
    server.start_again();
    ledger.verify(&server);
}

/// A process that is stopped in its tracks for a while and then goes on.
#[test]
fn frozen_and_thawed() {
    let server = config(2, "ASYNC_FLUSH").start();
    let ledger = Ledger::new(&server, "Frozen", QUEUES);
    ledger.load(&server, || {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(150));
            server.signal(libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(400));
            server.signal(libc::SIGCONT);
        }
        std::thread::sleep(Duration::from_millis(150));
    });
    ledger.verify(&server);
    assert_eq!(server.stop(), 0);
}

#[test]
fn consumers_go_on_where_they_were() {
    let mut server = config(2, "ASYNC_FLUSH")
        .set("flushConsumerOffsetInterval", 1000)
        .start();
    let mut client = server.connect();
    topic(&mut client, "T", 2);
    for queue in 0..2 {
        client
            .call(Send::batch("T", &["a", "b", "c"]).queue(queue))
            .expect(0);
        client
            .call(commit("g", "T", queue, 2 + i64::from(queue)))
            .expect(0);
    }
    let file = server.store().join("config/consumerOffset.json");
    crate::common::eventually("offsets on disk", Duration::from_secs(10), || {
        fs::read_to_string(&file).is_ok_and(|text| text.contains("T@g"))
    });
    server.kill();
    server.start_again();
    let mut client = server.connect();
    for queue in 0..2 {
        let offset = committed(&mut client, "g", "T", queue)
            .expect(0)
            .int("offset");
        assert_eq!(offset, 2 + i64::from(queue));
        client.call(commit("g", "T", queue, 3)).expect(0);
    }
    // A clean stop writes what was committed last.
    assert_eq!(server.stop(), 0);
    server.start_again();
    let mut client = server.connect();
    for queue in 0..2 {
        assert_eq!(
            committed(&mut client, "g", "T", queue)
                .expect(0)
                .int("offset"),
            3
        );
    }
}

/// Messages of a queue, waited for until there are `count`.
fn bodies(server: &Server, name: &str, count: usize) -> Vec<Vec<u8>> {
    let mut client = server.connect();
    let mut found = Vec::new();
    while found.len() < count {
        let reply = client
            .call(Pull::new(name, 0, found.len() as i64).suspend(15_000))
            .expect(0);
        found.extend(reply.records().into_iter().map(|record| record.body));
    }
    found
}

#[test]
fn delayed_messages_outlive_a_kill_and_come_once() {
    let mut server = config(2, "ASYNC_FLUSH")
        .set("messageDelayLevel", "2s 3s 4s")
        .set("flushDelayOffsetInterval", 1000)
        .start();
    let mut client = server.connect();
    topic(&mut client, "Late", 1);
    for n in 0..30_u64 {
        let level = (1 + n % 3).to_string();
        client
            .call(Send::new("Late", body("late", n, 100)).property("DELAY", &level))
            .expect(0);
    }
    assert_eq!(crate::common::max_offset(&mut client, "Late", 0), 0);
    server.kill();
    server.start_again();
    let mut found = bodies(&server, "Late", 30);
    found.sort();
    let mut expected: Vec<_> = (0..30).map(|n| body("late", n, 100)).collect();
    expected.sort();
    assert_eq!(found, expected);
    // Their delivery is remembered.
    std::thread::sleep(Duration::from_millis(1500));
    server.kill();
    server.start_again();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(
        crate::common::max_offset(&mut server.connect(), "Late", 0),
        30
    );
    // Progress that points beyond the queue, and a file that is none.
    for progress in ["{\"offsetTable\":{1:999,2:-5,3:7000000}}", "", "garbage"] {
        assert_eq!(server.stop(), 0);
        fs::write(server.store().join("config/delayOffset.json"), progress).unwrap();
        server.start_again();
        let end = crate::common::max_offset(&mut server.connect(), "Late", 0);
        server
            .connect()
            .call(Send::new("Late", "new").property("DELAY", "1"))
            .expect(0);
        crate::common::eventually("delivered", Duration::from_secs(15), || {
            let all = bodies(&server, "Late", end as usize);
            let end = crate::common::max_offset(&mut server.connect(), "Late", 0) as usize;
            all.len() <= end && bodies(&server, "Late", end).contains(&b"new".to_vec())
        });
    }
}
