//! The files of a store: their formats, and what happens when some are damaged or gone.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::{
    Config, Pull, Record, Send, Server, body, commit, committed, max_offset, topic,
};
use crate::crash::files;
use crate::ledger::Ledger;
use ringmq::wire::command::Request;

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn all(server: &Server, name: &str, queue: i32) -> Vec<(Record, Vec<u8>)> {
    let mut client = server.connect();
    let end = max_offset(&mut client, name, queue);
    let mut found = Vec::new();
    while (found.len() as i64) < end {
        let reply = client
            .call(Pull::new(name, queue, found.len() as i64))
            .expect(0);
        let mut at = 0;
        for record in reply.records() {
            let bytes = reply.body[at..at + record.size].to_vec();
            at += record.size;
            found.push((record, bytes));
        }
    }
    found
}

#[test]
fn what_a_pull_returns_is_what_lies_in_the_files() {
    let segment = 1024 * 1024;
    let server = Config::server()
        .shards(2)
        .set("mappedFileSizeCommitLog", segment)
        .set("maxMessageSize", 256 * 1024)
        .set("mappedFileSizeConsumeQueue", 20 * 100)
        .start();
    let mut client = server.connect();
    topic(&mut client, "Files", 2);
    for n in 0..248_u64 {
        let send = Send::new("Files", body("f", n, 20_000))
            .tag(["A", "B"][(n % 2) as usize])
            .queue((n / 2 % 2) as i32);
        client.call(send).expect(0);
    }
    let found = [all(&server, "Files", 0), all(&server, "Files", 1)];
    assert_eq!(server.stop(), 0);
    let mut folders = Vec::new();
    for (queue, found) in found.iter().enumerate() {
        assert_eq!(found.len(), 124);
        let shard = found[0].0.physical_offset >> 48;
        let dir = match shard {
            0 => server.store().to_owned(),
            k => server.store().join(format!("shard-{k}")),
        };
        let entries: Vec<u8> = files(&dir, &format!("/consumequeue/Files/{queue}/"))
            .iter()
            .flat_map(|path| fs::read(path).unwrap())
            .collect();
        for (record, bytes) in found {
            // The record, in the segment whose name says that it begins in front of it.
            let start = record.physical_offset / segment * segment;
            let path = dir.join("commitlog").join(format!("{start:020}"));
            let file =
                fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(file.len() as i64, segment);
            let at = (record.physical_offset - start) as usize;
            assert!(
                file[at..at + bytes.len()] == bytes[..],
                "bytes at {}",
                record.physical_offset
            );
            // Its entry.
            let entry = &entries[record.queue_offset as usize * 20..][..20];
            assert_eq!(i64_at(entry, 0), record.physical_offset);
            assert_eq!(i32_at(entry, 8) as usize, record.size);
            let tag = record.property("TAGS").unwrap();
            assert_eq!(i64_at(entry, 12), i64::from(tag.as_bytes()[0]));
        }
        let name = files(&dir, &format!("/consumequeue/Files/{queue}/"))[1]
            .file_name()
            .unwrap()
            .to_owned();
        assert_eq!(
            name, "00000000000000002000",
            "files are named by their first byte"
        );
        folders.push(dir);
    }
    // The end of a segment says how much of it is not used.
    let first = fs::read(files(&folders[0], "/commitlog/")[0].clone()).unwrap();
    let mut at = 0;
    while i32_at(&first, at + 4) as u32 == 0xDAA3_20A7 {
        at += i32_at(&first, at) as usize;
    }
    assert_eq!(i32_at(&first, at + 4) as u32, 0xCBD4_3194);
    assert_eq!(at as i64 + i64::from(i32_at(&first, at)), segment);
}

#[test]
fn tables_have_the_names_and_shapes_of_rocketmq() {
    let server = Config::server().start();
    let mut client = server.connect();
    topic(&mut client, "T", 2);
    client.call(commit("g", "T", 1, 5)).expect(0);
    assert_eq!(server.stop(), 0);
    let read = |name: &str| fs::read_to_string(server.store().join("config").join(name)).unwrap();
    let topics: serde_json::Value = serde_json::from_str(&read("topics.json")).unwrap();
    let made = &topics["topicConfigTable"]["T"];
    for key in [
        "attributes",
        "order",
        "perm",
        "readQueueNums",
        "topicFilterType",
        "topicName",
        "topicSysFlag",
        "writeQueueNums",
    ] {
        assert!(!made[key].is_null(), "{key} in {made}");
    }
    assert!(topics["dataVersion"]["counter"].is_i64());
    let groups: serde_json::Value = serde_json::from_str(&read("subscriptionGroup.json")).unwrap();
    assert_eq!(groups["subscriptionGroupTable"]["g"]["retryMaxTimes"], 16);
    let offsets = read("consumerOffset.json");
    let compact: String = offsets.split_whitespace().collect();
    assert!(
        compact.contains(r#""T@g":{1:5}"#) || compact.contains(r#""T@g":{"1":5}"#),
        "{offsets}"
    );
}

/// Changes a file of the `config` folder while the broker is down.
fn change(server: &mut Server, name: &str, change: impl FnOnce(&Path)) {
    assert_eq!(server.stop(), 0);
    change(&server.store().join("config").join(name));
}

#[test]
fn a_damaged_table_is_replaced_by_its_backup() {
    let mut server = Config::server().shards(2).start();
    let mut client = server.connect();
    topic(&mut client, "First", 3);
    topic(&mut client, "Second", 3);
    client.call(commit("g", "First", 0, 5)).expect(0);
    for damage in [
        "",
        "{\"topicConfigTable\":{\"Fir",
        "\0\0\0\0\0\0\0\0",
        "not JSON at all",
    ] {
        change(&mut server, "topics.json", |file| {
            fs::write(file, damage).unwrap()
        });
        server.start_again();
        assert!(server.log_line(".bak").is_some(), "{}", server.log());
        let mut client = server.connect();
        client
            .call(Request::new(351).with("topic", "First"))
            .expect(0);
        // It is whole again after the next change.
        topic(&mut client, "Second", 3);
        topic(&mut client, &format!("After{}", damage.len()), 1);
    }
    // Offsets: an older edition is better than none.
    server.connect().call(commit("g", "First", 0, 6)).expect(0);
    change(&mut server, "consumerOffset.json", |file| {
        fs::write(file, "{\"offsetTable\":{").unwrap()
    });
    server.start_again();
    let reply = committed(&mut server.connect(), "g", "First", 0).expect(0);
    assert!(matches!(reply.int("offset"), 5 | 6));
}

#[test]
fn a_table_without_a_backup_that_is_damaged_is_named() {
    let mut server = Config::server().start();
    topic(&mut server.connect(), "T", 1);
    change(&mut server, "topics.json", |file| {
        fs::write(file, "{").unwrap();
        fs::write(file.with_extension("json.bak"), "{").unwrap();
    });
    let (code, log) = server.config.clone().start_refused();
    assert_eq!(code, 1);
    assert!(log.contains("topics.json"), "{log}");
}

#[test]
fn topics_that_only_the_log_knows_are_served() {
    let mut server = Config::server().shards(2).start();
    let ledger = Ledger::new(&server, "Lost", 4);
    ledger.load(&server, || std::thread::sleep(Duration::from_millis(200)));
    topic(&mut server.connect(), "Empty", 2);
    change(&mut server, "topics.json", |file| {
        fs::remove_file(file).unwrap();
        let _ = fs::remove_file(file.with_extension("json.bak"));
    });
    server.start_again();
    assert!(server.log_line("Lost").is_some());
    ledger.verify(&server);
    server
        .connect_nameserver()
        .call(Request::new(105).with("topic", "Lost"))
        .expect(0);
    // They are in the table from now on.
    assert_eq!(server.stop(), 0);
    server.start_again();
    ledger.load(&server, || std::thread::sleep(Duration::from_millis(100)));
    ledger.verify(&server);
    // One without messages is gone.
    server
        .connect()
        .call(Request::new(351).with("topic", "Empty"))
        .expect(17);
}

#[test]
fn a_log_in_many_segments_is_read_from_its_start() {
    let mut server = Config::server()
        .shards(1)
        .set("mappedFileSizeCommitLog", 1024 * 1024)
        .set("maxMessageSize", 900 * 1024)
        .set("mappedFileSizeConsumeQueue", 2000)
        .start();
    let mut client = server.connect();
    topic(&mut client, "Long", 1);
    // Sizes that leave all kinds of rests at the ends of segments.
    let size = |n: u64| [300_000, 700, 890_000, 1, 40_000][(n % 5) as usize];
    for n in 0..60 {
        client
            .call(Send::new("Long", body("l", n, size(n))))
            .expect(0);
    }
    let check = |server: &Server| {
        for (n, (record, _)) in all(server, "Long", 0).into_iter().enumerate() {
            assert!(
                record.body == body("l", n as u64, size(n as u64)),
                "message {n}"
            );
        }
        assert!(files(server.store(), "/commitlog/").len() >= 20);
    };
    check(&server);
    server.kill();
    server.start_again();
    check(&server);
    server.kill();
    for path in files(server.store(), "/consumequeue/") {
        fs::remove_file(path).unwrap();
    }
    server.start_again();
    check(&server);
    assert_eq!(
        server
            .connect()
            .call(Send::new("Long", "more"))
            .expect(0)
            .int("queueOffset"),
        60
    );
}

#[test]
fn a_store_of_other_segment_sizes_goes_on() {
    let mut server = Config::server()
        .set("mappedFileSizeCommitLog", 1024 * 1024)
        .set("maxMessageSize", 65_536)
        .start();
    let ledger = Ledger::new(&server, "Sizes", 2);
    ledger.load(&server, || std::thread::sleep(Duration::from_millis(500)));
    assert_eq!(server.stop(), 0);
    server.config = server
        .config
        .clone()
        .set("mappedFileSizeCommitLog", 8 * 1024 * 1024);
    server.start_again();
    ledger.load(&server, || std::thread::sleep(Duration::from_millis(500)));
    ledger.verify(&server);
    server.kill();
    server.start_again();
    ledger.verify(&server);
}
