//! Stores of several brokers: restarts, kills, other modes and numbers of shards.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    Client, Config, Pull, Send, Server, body, commit, committed, max_offset, topic,
};
use crate::route;
use ringmq::wire::command::Request;

/// The first messages of a queue, by number.
fn read(client: &mut Client, name: &str, tag: &str, queue: i32, count: u64) {
    let mut at = 0;
    while at < count {
        let reply = client.call(Pull::new(name, queue, at as i64)).expect(0);
        for record in reply.records() {
            assert_eq!((record.queue_offset as u64, record.queue_id), (at, queue));
            assert_eq!(record.body, body(tag, at, 700));
            at += 1;
        }
    }
}

fn write(client: &mut Client, name: &str, tag: &str, queue: i32, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let reply = client
            .call(Send::new(name, body(tag, n, 700)).queue(queue))
            .expect(0);
        assert_eq!(reply.int("queueOffset"), n as i64);
    }
}

/// Sends to one shard until it is gone; how many were acknowledged.
fn load(server: &Server, shard: u16, queue: i32, from: u64, ends: &AtomicBool) -> u64 {
    let mut client = server.connect_shard(shard);
    let mut next = from;
    while !ends.load(Ordering::Relaxed) {
        let send = Send::new("T", body(&format!("s{shard}"), next, 700)).queue(queue);
        match client.try_call(send) {
            Ok(reply) => {
                assert_eq!(reply.expect(0).int("queueOffset"), next as i64);
                next += 1;
            }
            Err(_) => break,
        }
    }
    next
}

#[test]
fn what_was_acknowledged_by_any_shard_outlives_kills_under_load() {
    let mut server = Config::per_shard(2).start();
    for shard in 0..2 {
        topic(&mut server.connect_shard(shard), "T", 2);
    }
    let mut acknowledged = [[0_u64; 2]; 2];
    for _ in 0..3 {
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (server, ends) = (&server, &ends);
            let places = [(0, 0), (0, 1), (1, 0), (1, 1)];
            let loads = places.map(|(shard, queue)| {
                let from = acknowledged[usize::from(shard)][queue];
                scope.spawn(move || load(server, shard, queue as i32, from, ends))
            });
            std::thread::sleep(Duration::from_millis(700));
            server.kill();
            ends.store(true, Ordering::Relaxed);
            for ((shard, queue), load) in places.into_iter().zip(loads) {
                acknowledged[usize::from(shard)][queue] = load.join().expect("no panic");
            }
        });
        server.start_again();
        for shard in 0..2_u16 {
            let mut client = server.connect_shard(shard);
            for queue in 0..2 {
                let known = &mut acknowledged[usize::from(shard)][queue as usize];
                assert!(*known > 0);
                let end = max_offset(&mut client, "T", queue) as u64;
                // One more may have been stored without an answer.
                assert!(
                    (*known..=*known + 1).contains(&end),
                    "{end}, {known} acknowledged"
                );
                *known = end;
                read(&mut client, "T", &format!("s{shard}"), queue, end);
            }
        }
    }
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_store_of_several_shards_keeps_the_mode_it_was_made_with() {
    let single = Config::server().shards(2);
    let mut server = single.start();
    topic(&mut server.connect(), "T", 4);
    write(&mut server.connect(), "T", "one", 1, 0..20);
    assert_eq!(server.stop(), 0);
    for config in [
        single.clone().set("routeMode", "perShard"),
        single.clone().any_shards().set("routeMode", "perShard"),
    ] {
        let (code, log) = config.start_refused();
        assert_eq!(code, 1, "{log}");
        assert!(
            log.contains("has 2 shards and was made with routeMode=single"),
            "{log}"
        );
    }
    server.start_again();
    read(&mut server.connect(), "T", "one", 1, 20);
    assert_eq!(server.stop(), 0);

    let each = Config::per_shard(2);
    let mut server = each.start();
    topic(&mut server.connect_shard(1), "T", 4);
    write(&mut server.connect_shard(1), "T", "each", 1, 0..20);
    server.kill();
    let (code, log) = each.clone().set("routeMode", "single").start_refused();
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("was made with routeMode=perShard"), "{log}");
    server.start_again();
    read(&mut server.connect_shard(1), "T", "each", 1, 20);
}

#[test]
fn a_store_of_one_shard_goes_on_under_either_mode_and_may_grow() {
    let each = Config::per_shard(1);
    let single = each.clone().set("routeMode", "single");
    let mut sent = 0;
    for config in [&single, &each, &single, &each] {
        let server = config.start();
        let mut client = server.connect();
        topic(&mut client, "T", 4);
        write(&mut client, "T", "x", 1, sent..sent + 10);
        sent += 10;
        read(&mut client, "T", "x", 1, sent);
        client.call(commit("g", "T", 1, sent as i64 - 3)).expect(0);
        assert_eq!(server.stop(), 0);
    }
    // The shards that are added have its topics, so that they get their part.
    let grown = each.brokers(3);
    for round in 0..2 {
        let server = grown.start();
        let mut asks = server.connect_nameserver();
        let all = route(&mut asks, "T");
        assert!(
            all.len() == 3 && all.values().all(|(_, queues)| *queues == 4),
            "{all:?}"
        );
        let mut client = server.connect();
        read(&mut client, "T", "x", 1, sent);
        let reply = committed(&mut client, "g", "T", 1).expect(0);
        assert_eq!(reply.int("offset"), sent as i64 - 3);
        for shard in 1..3 {
            let mut client = server.connect_shard(shard);
            write(&mut client, "T", "y", 1, round * 5..round * 5 + 5);
            read(&mut client, "T", "y", 1, round * 5 + 5);
            committed(&mut client, "g", "T", 1).expect(22);
        }
        assert_eq!(server.stop(), 0);
    }
    // A number that is not asked for is the one the store has; a lower one too.
    for config in [grown.clone().any_shards(), grown.clone().shards(1)] {
        let server = config.start();
        assert_eq!(route(&mut server.connect_nameserver(), "T").len(), 3);
        assert_eq!(server.stop(), 0);
    }
}

/// Topics that an operator removed from an added shard stay away from it.
#[test]
fn topics_are_taken_over_once() {
    let one = Config::per_shard(1);
    let server = one.start();
    topic(&mut server.connect(), "T", 1);
    assert_eq!(server.stop(), 0);
    let two = one.brokers(2);
    let server = two.start();
    let delete = Request::new(215).with("topic", "T");
    server.connect_shard(1).call(delete).expect(0);
    assert_eq!(server.stop(), 0);
    let server = two.start();
    let left = route(&mut server.connect_nameserver(), "T");
    assert_eq!(left.keys().collect::<Vec<_>>(), ["broker-a"]);
}

/// A crash may fall between the first writes of an added shard's tables.
#[test]
fn each_table_is_taken_over_where_its_file_is_missing() {
    let one = Config::per_shard(1);
    let server = one.start();
    topic(&mut server.connect(), "T", 1);
    let group = Request::new(200).with_body(r#"{"groupName":"g","retryMaxTimes":3}"#);
    server.connect().call(group).expect(0);
    assert_eq!(server.stop(), 0);
    let two = one.brokers(2);
    for missing in ["", "subscriptionGroup.json", "topics.json"] {
        if !missing.is_empty() {
            let file = two.store().join("shard-1/config").join(missing);
            fs::remove_file(&file).expect("a file");
            let _ = fs::remove_file(file.with_extension("json.bak"));
        }
        let server = two.start();
        let mut added = server.connect_shard(1);
        let groups = added.call(Request::new(201)).expect(0).json();
        assert_eq!(groups["subscriptionGroupTable"]["g"]["retryMaxTimes"], 3);
        let routed = route(&mut server.connect_nameserver(), "T");
        assert!(routed.contains_key("broker-a-1"), "{missing}: {routed:?}");
        assert_eq!(server.stop(), 0);
    }
}

fn store(command: &str, dir: &Path) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ringmq"))
        .args(["store", command])
        .arg(dir)
        .output()
        .expect("the binary");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn every_shards_store_is_checked_and_repaired() {
    let mut server = Config::per_shard(2).start();
    for shard in 0..2 {
        let mut client = server.connect_shard(shard);
        topic(&mut client, "T", 1);
        // So that the table has a backup.
        topic(&mut client, "U", 1);
        write(&mut client, "T", "c", 0, 0..30);
    }
    let dir = server.store().to_owned();
    let (code, text) = store("check", &dir);
    assert!(code == 1 && text.contains("in use"), "{text}");
    let (code, text) = store("check", &dir.join("shard-1"));
    assert!(code == 1 && text.contains("in use"), "{text}");
    server.kill();
    let (code, text) = store("check", &dir);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("did not stop cleanly"), "{text}");
    server.start_again();
    assert_eq!(server.stop(), 0);
    let (code, text) = store("check", &dir);
    assert!(
        code == 0 && !text.contains("did not stop cleanly"),
        "{text}"
    );
    assert_eq!(text.matches(", 30 messages\n").count(), 2, "{text}");

    let queue = dir
        .join("shard-1/consumequeue/T/0")
        .join(format!("{:020}", 0));
    let mut bytes = fs::read(&queue).expect("a queue file");
    bytes[20 * 7 + 3] ^= 0x55;
    fs::write(&queue, bytes).expect("written");
    fs::write(dir.join("shard-1/config/topics.json"), "{").expect("written");
    let (code, text) = store("check", &dir);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("shard-1/config/topics.json"), "{text}");
    assert!(text.contains("1 wrong"), "{text}");
    let (code, text) = store("repair", &dir);
    assert_eq!(code, 0, "{text}");
    // The backup of the table is taken.
    server.start_again();
    read(&mut server.connect_shard(1), "T", "c", 0, 30);
}
