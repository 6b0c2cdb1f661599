//! Messages found by a key (12) and by their place (33).

use std::fs;

use crate::common::{Client, Config, Reply, Send, Server, now_ms, shared, topic, unique};
use ringmq::wire::command::Request;

const UNIQUE: &str = "UNIQ_KEY";

/// QUERY_MESSAGE over all times.
fn query(topic: &str, key: &str, max: i32) -> Request {
    within(topic, key, max, 0, i64::MAX)
}

fn within(topic: &str, key: &str, max: i32, begin: i64, end: i64) -> Request {
    Request::new(12)
        .with("topic", topic)
        .with("key", key)
        .with("maxNum", max)
        .with("beginTimestamp", begin)
        .with("endTimestamp", end)
}

fn send(client: &mut Client, topic: &str, queue: i32, body: &str, keys: &str, unique: &str) {
    let mut send = Send::new(topic, body).queue(queue);
    if !keys.is_empty() {
        send = send.property("KEYS", keys);
    }
    if !unique.is_empty() {
        send = send.property(UNIQUE, unique);
    }
    client.call(send).expect(0);
}

/// So that the next message is newer on every shard's clock.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(5));
}

/// The bodies of the messages found, in the order of the answer.
#[track_caller]
fn bodies(reply: Reply) -> Vec<String> {
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    let found = reply.expect(0).records().into_iter();
    found.map(|record| text(record.body)).collect()
}

#[test]
fn a_message_is_found_by_its_unique_key_and_by_each_of_its_keys() {
    let server = shared();
    let name = unique("Found");
    for mut client in [server.connect(), server.connect().binary()] {
        let name = unique(&name);
        topic(&mut client, &name, 4);
        send(&mut client, &name, 0, "one", "a b", "ID1");
        pause();
        send(&mut client, &name, 1, "two", " b  c ", "ID2");
        pause();
        send(&mut client, &name, 2, "none", "", "");
        send(&mut client, &name, 3, "three", "c", "ID3");
        let mut found = |key: &str| bodies(client.call(query(&name, key, 32)));
        assert_eq!(found("a"), ["one"]);
        assert_eq!(found("b"), ["two", "one"], "newest first");
        assert_eq!(found("c"), ["three", "two"]);
        assert_eq!(found("ID2"), ["two"]);
        let flagged = query(&name, "ID3", 1).with("_UNIQUE_KEY_QUERY", "true");
        assert_eq!(bodies(client.call(flagged)), ["three"]);
        for missing in ["d", "", "a b", "ID", "one"] {
            let reply = client.call(query(&name, missing, 32)).expect(22);
            assert!(reply.body.is_empty() && reply.int("indexLastUpdateTimestamp") > 0);
        }
        client.call(query("NoSuchTopic", "a", 32)).expect(22);
    }
}

#[test]
fn keys_with_the_same_hash_find_no_message_of_another() {
    let server = shared();
    let mut client = server.connect();
    let name = unique("Hash");
    let (first, second) = (format!("AaTopic{name}"), format!("BBTopic{name}"));
    for name in [&first, &second] {
        topic(&mut client, name, 1);
    }
    send(&mut client, &first, 0, "Aa", "Aa", "");
    send(&mut client, &second, 0, "BB", "BB", "");
    assert_eq!(bodies(client.call(query(&first, "Aa", 32))), ["Aa"]);
    assert_eq!(bodies(client.call(query(&second, "BB", 32))), ["BB"]);
    client.call(query(&first, "BB", 32)).expect(22);
    client.call(query(&second, "Aa", 32)).expect(22);
}

#[test]
fn as_many_as_asked_for_and_64_at_most() {
    let server = shared();
    let mut client = server.connect();
    let name = unique("Many");
    topic(&mut client, &name, 2);
    for n in 0..100 {
        if n == 99 {
            // Two shards' messages of one millisecond have no order.
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        send(
            &mut client,
            &name,
            n % 2,
            &n.to_string(),
            "k",
            &format!("U{n}"),
        );
    }
    let mut count = |request: Request| {
        let found = client.call(request).expect(0).records();
        let times: Vec<i64> = found.iter().map(|record| record.store_timestamp).collect();
        assert!(
            times.is_sorted_by(|newer, older| newer >= older),
            "{times:?}"
        );
        let mut places: Vec<i64> = found.iter().map(|record| record.physical_offset).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), found.len(), "each once");
        assert!(
            found.iter().any(|record| record.body == b"99"),
            "the newest is there"
        );
        found.len()
    };
    assert_eq!(count(query(&name, "k", 7)), 7);
    assert_eq!(count(query(&name, "k", 64)), 64);
    assert_eq!(count(query(&name, "k", i32::MAX)), 64);
    assert_eq!(
        count(query(&name, "k", 1).with("_UNIQUE_KEY_QUERY", "true")),
        32
    );
    for none in [0, -1, i32::MIN] {
        client.call(query(&name, "k", none)).expect(22);
    }
}

#[test]
fn only_messages_stored_in_the_time_asked_for() {
    let server = shared();
    let mut client = server.connect();
    let name = unique("Time");
    topic(&mut client, &name, 1);
    let mut times = Vec::new();
    for n in 0..4 {
        times.push(now_ms());
        send(&mut client, &name, 0, &n.to_string(), "k", "");
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    let mut found = |begin, end| client.call(within(&name, "k", 32, begin, end));
    assert_eq!(bodies(found(times[1], times[3] - 1)), ["2", "1"]);
    assert_eq!(bodies(found(times[3], i64::MAX)), ["3"]);
    assert_eq!(bodies(found(i64::MIN, times[1] - 1)), ["0"]);
    found(times[3], times[1]).expect(22);
    found(0, times[0] - 1000).expect(22);
    found(times[3] + 60_000, i64::MAX).expect(22);
}

#[test]
fn a_message_is_found_by_its_place() {
    let server = shared();
    let mut client = server.connect();
    let name = unique("Place");
    topic(&mut client, &name, 4);
    for queue in 0..4 {
        send(&mut client, &name, queue, &format!("m{queue}"), "k", "");
    }
    let found = client.call(query(&name, "k", 32)).expect(0).records();
    assert_eq!(found.len(), 4);
    let view = |offset: i64| Request::new(33).with("offset", offset);
    for record in &found {
        let seen = client
            .call(view(record.physical_offset))
            .expect(0)
            .records();
        assert_eq!(seen, std::slice::from_ref(record));
        client.call(view(record.physical_offset + 1)).expect(1);
    }
    for nowhere in [-1, i64::MAX, i64::MIN, 9 << 48] {
        client.call(view(nowhere)).expect(1);
    }
}

#[test]
fn a_query_without_what_it_needs_is_refused() {
    let server = shared();
    let mut client = server.connect();
    let whole = ["topic", "key", "maxNum", "beginTimestamp", "endTimestamp"];
    for missing in whole {
        let mut request = Request::new(12);
        for field in whole.into_iter().filter(|field| *field != missing) {
            request = request.with(field, 1);
        }
        assert_eq!(client.call(request).code, 1, "without {missing}");
    }
    client
        .call(within("T", "k", 1, 0, 0).with("maxNum", "x"))
        .expect(1);
}

const SENT: usize = 400;

fn fill(server: &Server, name: &str, from: usize) {
    let mut client = server.connect();
    topic(&mut client, name, 4);
    for n in from..from + SENT {
        let (keys, id) = (format!("k{n} even{}", n % 2), format!("U{n}"));
        send(&mut client, name, n as i32 % 4, &n.to_string(), &keys, &id);
    }
}

#[track_caller]
fn all_found(server: &Server, name: &str, sent: usize) {
    let mut client = server.connect();
    for n in 0..sent {
        for key in [format!("k{n}"), format!("U{n}")] {
            assert_eq!(
                bodies(client.call(query(name, &key, 32))),
                [n.to_string()],
                "{key}"
            );
        }
    }
    assert_eq!(bodies(client.call(query(name, "even1", 64))).len(), 64);
}

fn index_dirs(server: &Server) -> Vec<std::path::PathBuf> {
    let dirs = [
        server.store().join("index"),
        server.store().join("shard-1/index"),
    ];
    dirs.into_iter().filter(|dir| dir.is_dir()).collect()
}

#[test]
fn every_key_is_found_after_kill_and_stop_and_the_loss_of_the_index() {
    for shards in [1, 2] {
        let mut server = Config::server().shards(shards).start();
        let name = unique("Again");
        fill(&server, &name, 0);
        all_found(&server, &name, SENT);
        server.kill();
        server.start_again();
        all_found(&server, &name, SENT);
        fill(&server, &name, SENT);
        server.kill();
        // The newest file is gone, or holds anything.
        for dir in index_dirs(&server) {
            let files: Vec<_> = fs::read_dir(&dir)
                .unwrap()
                .map(|e| e.unwrap().path())
                .collect();
            assert_eq!(files.len(), 1, "one file a shard: {files:?}");
            match shards {
                1 => fs::remove_file(&files[0]).unwrap(),
                _ => fs::write(&files[0], vec![0x5a; 100_000]).unwrap(),
            }
        }
        server.start_again();
        all_found(&server, &name, 2 * SENT);
        assert_eq!(server.stop(), 0);
        assert_eq!(index_dirs(&server).len(), usize::from(shards));
        index_dirs(&server)
            .iter()
            .for_each(|dir| fs::remove_dir_all(dir).unwrap());
        server.start_again();
        all_found(&server, &name, 2 * SENT);
        assert_eq!(server.stop(), 0);
        server.start_again();
        all_found(&server, &name, 2 * SENT);
    }
}

#[test]
fn without_an_index_nothing_is_found_and_with_it_again_everything() {
    let mut server = Config::server()
        .shards(2)
        .set("messageIndexEnable", false)
        .start();
    let name = unique("Off");
    fill(&server, &name, 0);
    let reply = server.connect().call(query(&name, "k1", 32)).expect(22);
    assert!(
        reply.remark.contains("messageIndexEnable"),
        "{}",
        reply.remark
    );
    assert_eq!(index_dirs(&server).len(), 0);
    server.kill();
    server.config = server.config.clone().set("messageIndexEnable", true);
    server.start_again();
    all_found(&server, &name, SENT);
}
