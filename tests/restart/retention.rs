//! What is too old or too much goes, oldest first; what is left is whole, and offsets go on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::{
    Client, Config, Pull, Send, Server, body, commit, eventually, max_offset, min_offset,
    queue_offset, topic,
};
use crate::crash::files;
use crate::ledger::Ledger;
use ringmq::wire::command::Request;

const SEGMENT: u64 = 1024 * 1024;
const HOUR_MS: i64 = 3_600_000;

/// Time for deletions to be done, with everything else that runs.
const SOON: Duration = Duration::from_secs(20);

fn small_segments() -> Config {
    Config::server()
        .set("mappedFileSizeCommitLog", SEGMENT)
        .set("maxMessageSize", 256 * 1024)
        .set("tailFileBytes", 8 * 1024 * 1024)
        .set("mappedFileSizeConsumeQueue", 20 * 100)
}

fn send_many(client: &mut Client, name: &str, count: u64, bytes: usize) {
    for n in 0..count {
        client.call(Send::new(name, body(name, n, bytes))).expect(0);
    }
}

fn segments(store: &Path) -> Vec<String> {
    let paths = files(store, "/commitlog/");
    let name = |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(name).collect()
}

fn bounds(client: &mut Client, name: &str) -> (i64, i64) {
    (min_offset(client, name, 0), max_offset(client, name, 0))
}

/// Reads a queue from its first readable message to its end: no gap, as sent.
fn read_kept(client: &mut Client, name: &str, bytes: usize) {
    let (mut at, end) = bounds(client, name);
    while at < end {
        for record in client.call(Pull::new(name, 0, at)).expect(0).records() {
            assert_eq!(record.queue_offset, at);
            assert!(record.body == body(name, at as u64, bytes), "message {at}");
            at += 1;
        }
    }
}

fn runtime_info(client: &mut Client) -> serde_json::Value {
    client.call(Request::new(28)).expect(0).json()["table"].take()
}

/// A store whose oldest segments are gone: all of `Gone`, most of `Kept`.
fn shrunk() -> Server {
    let server = small_segments()
        .set("fileReservedBytes", 4 * SEGMENT)
        .start();
    let mut client = server.connect();
    topic(&mut client, "Gone", 1);
    topic(&mut client, "Kept", 1);
    send_many(&mut client, "Gone", 250, 2000);
    client.call(commit("g", "Gone", 0, 240)).expect(0);
    client.call(commit("g", "Kept", 0, 10)).expect(0);
    send_many(&mut client, "Kept", 1000, 10_000);
    eventually("old segments are deleted", SOON, || {
        segments(server.store()).len() <= 4
    });
    eventually("first readable offsets move", SOON, || {
        bounds(&mut client, "Gone") == (250, 250) && bounds(&mut client, "Kept").0 > 500
    });
    server
}

#[test]
fn the_oldest_segments_go_and_readers_go_on_at_what_is_left() {
    let server = shrunk();
    let mut client = server.connect();
    let left = segments(server.store());
    let oldest: u64 = left[0].parse().unwrap();
    assert!(oldest >= 6 * SEGMENT, "{left:?}");
    for pair in left.windows(2) {
        let [a, b] = [&pair[0], &pair[1]].map(|name| name.parse::<u64>().unwrap());
        assert_eq!(b - a, SEGMENT, "a hole");
    }
    let (min, max) = bounds(&mut client, "Kept");
    assert_eq!(max, 1000);
    // A reader below is told where to go on, and finds something there.
    for below in [0, 1, min - 1] {
        let reply = client.call(Pull::new("Kept", 0, below)).expect(21);
        assert_eq!(reply.int("nextBeginOffset"), min);
        assert_eq!((reply.int("minOffset"), reply.int("maxOffset")), (min, max));
    }
    let first = &client.call(Pull::new("Kept", 0, min)).expect(0).records()[0];
    assert_eq!(first.queue_offset, min);
    assert!(first.physical_offset >= oldest as i64, "min is readable");
    read_kept(&mut client, "Kept", 10_000);
    // Where nothing is left the next message is waited for.
    let reply = client.call(Pull::new("Gone", 0, 0)).expect(21);
    assert_eq!(reply.int("nextBeginOffset"), 250);
    client.call(Pull::new("Gone", 0, 250)).expect(19);
    // Everything that tells of a queue's start agrees.
    let search = queue_offset(29, "Kept", 0).with("timestamp", 0);
    assert_eq!(client.call(search).expect(0).int("offset"), min);
    let earliest = client.call(queue_offset(32, "Kept", 0)).expect(0);
    let stats = client
        .call(Request::new(202).with("topic", "Kept"))
        .expect(0);
    assert!(
        String::from_utf8_lossy(&stats.body).contains(&format!("\"minOffset\":{min}")),
        "{}",
        String::from_utf8_lossy(&stats.body)
    );
    let info = runtime_info(&mut client);
    let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(text("commitLogMinOffset"), oldest.to_string());
    let oldest_time: i64 = text("earliestMessageTimeStamp").parse().unwrap();
    assert!(oldest_time > 0 && oldest_time <= earliest.int("timestamp"));
    // What the group had not read is counted.
    assert_eq!(text("purgedUnread@Gone@g"), "10");
    assert_eq!(text("purgedUnread@Kept@g"), (min - 10).to_string());
    assert_eq!(text("purgedUnreadTotal"), min.to_string());
    let logged = server
        .log()
        .lines()
        .filter(|line| line.contains("had read them"))
        .count();
    assert_eq!(logged, 1, "once a minute");
    // Queue files in front are gone but the one that says what comes next.
    let queue = |name: &str| files(server.store(), &format!("/consumequeue/{name}/"));
    eventually("queue files go", SOON, || queue("Gone").len() == 1);
    assert!(queue("Kept").len() as i64 <= (max - min) / 100 + 2);
    server.assert_healthy();
}

#[test]
fn offsets_go_on_after_every_kind_of_restart() {
    let mut server = shrunk();
    let mut kept = bounds(&mut server.connect(), "Kept");
    let mut gone = 250;
    for round in 0..5 {
        match round {
            0 => assert_eq!(server.stop(), 0),
            1 => server.kill(),
            // The queues are made anew from the whole log.
            2 => {
                server.kill();
                fs::remove_file(server.store().join("checkpoint")).unwrap();
            }
            3 => {
                assert_eq!(server.stop(), 0);
                let newest = files(server.store(), "/consumequeue/Kept/").pop().unwrap();
                fs::write(newest, [0xFF; 400]).unwrap();
                fs::write(server.store().join("abort"), "0").unwrap();
            }
            _ => {
                assert_eq!(server.stop(), 0);
                let newest = files(server.store(), "/consumequeue/Kept/").pop().unwrap();
                fs::remove_file(newest).unwrap();
            }
        }
        server.start_again();
        let mut client = server.connect();
        let now = bounds(&mut client, "Kept");
        assert!(
            now.0 >= kept.0 && now.1 == kept.1,
            "{kept:?} became {now:?} in round {round}"
        );
        assert_eq!(bounds(&mut client, "Gone"), (gone, gone), "round {round}");
        read_kept(&mut client, "Kept", 10_000);
        let sent = client.call(Send::new("Gone", b"more".to_vec())).expect(0);
        assert_eq!(sent.int("queueOffset"), gone, "round {round}");
        let found = client.call(Pull::new("Gone", 0, gone)).expect(0).records();
        assert_eq!(found[0].queue_offset, gone);
        // That one goes as well.
        gone += 1;
        for n in kept.1..kept.1 + 600 {
            client
                .call(Send::new("Kept", body("Kept", n as u64, 10_000)))
                .expect(0);
        }
        eventually("it is deleted", SOON, || {
            bounds(&mut client, "Gone") == (gone, gone)
        });
        eventually("files go", SOON, || segments(server.store()).len() <= 4);
        kept = bounds(&mut client, "Kept");
    }
}

#[test]
fn a_kill_while_segments_are_deleted_leaves_a_store_that_opens() {
    let mut server = small_segments()
        .shards(2)
        .set("fileReservedBytes", 3 * SEGMENT)
        .start();
    let ledger = Ledger::new(&server, "Flow", 4);
    for round in 0..6 {
        ledger.load(&server, || {
            std::thread::sleep(Duration::from_millis(700 + 211 * round));
            server.kill();
        });
        server.start_again();
        let kept = ledger.verify_kept(&server);
        assert!(kept > 0, "round {round}");
    }
    let deleted = segments(server.store())[0].parse::<u64>().unwrap();
    assert!(deleted > 0, "nothing was ever deleted");
    assert_eq!(server.stop(), 0);
    server.start_again();
    ledger.verify_kept(&server);
}

/// Makes every message of a stopped store older.
fn age(store: &Path, hours: i64) {
    for path in files(store, "/commitlog/") {
        let mut bytes = fs::read(&path).unwrap();
        let mut at = 0;
        let word =
            |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        while at + 64 < bytes.len() && word(&bytes, at + 4) == 0xDAA3_20A7 {
            let stored = i64::from_be_bytes(bytes[at + 56..at + 64].try_into().unwrap());
            let stored = stored - hours * HOUR_MS;
            bytes[at + 56..at + 64].copy_from_slice(&stored.to_be_bytes());
            at += word(&bytes, at) as usize;
        }
        fs::write(path, bytes).unwrap();
    }
}

fn at_any_hour() -> String {
    let hours: Vec<String> = (0..24).map(|hour| format!("{hour:02}")).collect();
    hours.join(";")
}

fn topic_for(client: &mut Client, name: &str, hours: u32) {
    let request = Request::new(17)
        .with("topic", name)
        .with("defaultTopic", "TBW102")
        .with("readQueueNums", 1)
        .with("writeQueueNums", 1)
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG")
        .with("topicSysFlag", 0)
        .with("order", false)
        .with("attributes", format!("+reserve.time={hours}"));
    client.call(request).expect(0);
}

#[test]
fn the_age_of_messages_counts_and_not_that_of_files() {
    let mut server = small_segments().set("deleteWhen", at_any_hour()).start();
    let mut client = server.connect();
    topic(&mut client, "Aged", 1);
    send_many(&mut client, "Aged", 500, 10_000);
    assert_eq!(server.stop(), 0);
    // Just within the 72 hours.
    age(server.store(), 71);
    server.start_again();
    let mut client = server.connect();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(bounds(&mut client, "Aged"), (0, 500));
    assert_eq!(server.stop(), 0);
    age(server.store(), 2);
    server.start_again();
    let mut client = server.connect();
    // The segment that is written to stays, and the one in front of the first
    // message that is not too old, as it holds what is between.
    eventually("old segments go", SOON, || {
        segments(server.store()).len() <= 2
    });
    eventually("min moves", SOON, || bounds(&mut client, "Aged").0 > 300);
    let (min, max) = bounds(&mut client, "Aged");
    assert!(min < max && max == 500);
    read_kept(&mut client, "Aged", 10_000);
    server.assert_healthy();
}

#[test]
fn a_topic_may_keep_its_messages_shorter_or_longer_than_the_log() {
    let mut server = small_segments().set("deleteWhen", at_any_hour()).start();
    let mut client = server.connect();
    topic_for(&mut client, "Short", 24);
    topic_for(&mut client, "Long", 100);
    topic(&mut client, "Plain", 1);
    for name in ["Plain", "Short", "Plain", "Long", "Plain"] {
        let from = max_offset(&mut client, name, 0) as u64;
        for n in from..from + 150 {
            client
                .call(Send::new(name, body(name, n, 10_000)))
                .expect(0);
        }
    }
    client.call(commit("g", "Short", 0, 50)).expect(0);
    assert_eq!(server.stop(), 0);
    age(server.store(), 30);
    server.start_again();
    let mut client = server.connect();
    eventually("the short one ends", SOON, || {
        bounds(&mut client, "Short") == (150, 150)
    });
    assert_eq!(bounds(&mut client, "Plain"), (0, 450));
    assert_eq!(bounds(&mut client, "Long"), (0, 150));
    let reply = client.call(Pull::new("Short", 0, 0)).expect(21);
    assert_eq!(reply.int("nextBeginOffset"), 150);
    let sent = client
        .call(Send::new("Short", body("Short", 150, 10_000)))
        .expect(0);
    assert_eq!(sent.int("queueOffset"), 150);
    read_kept(&mut client, "Short", 10_000);
    assert_eq!(runtime_info(&mut client)["purgedUnread@Short@g"], "100");
    assert_eq!(server.stop(), 0);
    // Beyond the log's 72 hours: what lies in front of the long one goes, and no more.
    age(server.store(), 60);
    server.start_again();
    let mut client = server.connect();
    eventually("the front goes", SOON, || {
        bounds(&mut client, "Plain").0 >= 150
    });
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(bounds(&mut client, "Long"), (0, 150));
    assert!(bounds(&mut client, "Plain").0 < 450);
    read_kept(&mut client, "Long", 10_000);
    assert_eq!(server.stop(), 0);
    age(server.store(), 20);
    server.start_again();
    let mut client = server.connect();
    eventually("the long one goes", SOON, || {
        bounds(&mut client, "Long").0 > 0
    });
    server.assert_healthy();
}
