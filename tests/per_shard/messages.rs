//! Sends, pulls, offsets, groups, delays and retries: each shard's are its own.

use std::time::{Duration, Instant};

use crate::common::{
    Client, Config, Consumer, Pull, Record, Send, Server, body, commit, committed, heartbeat,
    max_offset, min_offset, topic,
};
use crate::figure;
use ringmq::wire::command::Request;
use serde_json::json;

const QUEUES: i32 = 4;

fn with_topic(name: &str) -> Server {
    let server = Config::per_shard(2).start();
    for shard in 0..2 {
        topic(&mut server.connect_shard(shard), name, QUEUES);
    }
    server
}

/// The next message of a queue, waited for.
fn next(client: &mut Client, topic: &str, queue: i32, offset: i64) -> Record {
    let pull = Pull::new(topic, queue, offset).suspend(20_000);
    client.call(pull).expect(0).records().remove(0)
}

/// Everything that is asked about a queue: sent, pulled, waited for, committed.
fn use_queue(client: &mut Client, tag: &str, queue: i32) -> Vec<Record> {
    let mut records = Vec::new();
    for n in 0..5 {
        let send = Send::new("T", body(tag, n, 300)).queue(queue);
        let reply = client.call(send).expect(0);
        assert_eq!(reply.int("queueOffset"), n as i64);
        assert_eq!(reply.int("queueId"), i64::from(queue));
        let record = next(client, "T", queue, n as i64);
        assert_eq!(record.body, body(tag, n, 300));
        assert_eq!((record.queue_id, record.queue_offset), (queue, n as i64));
        records.push(record);
    }
    assert_eq!(max_offset(client, "T", queue), 5);
    assert_eq!(min_offset(client, "T", queue), 0);
    client.call(commit("g", "T", queue, 3)).expect(0);
    assert_eq!(committed(client, "g", "T", queue).int("offset"), 3);
    records
}

#[test]
fn a_shard_serves_all_its_queues_and_no_request_crosses_to_another() {
    let server = with_topic("T");
    for shard in 0..2 {
        // Several connections: no kernel's choice among listeners is involved.
        for queue in 0..QUEUES {
            let mut client = server.connect_shard(shard);
            let records = use_queue(&mut client, &format!("s{shard}"), queue);
            let port = u32::from(server.shard_address(shard).port());
            for record in records {
                assert!(record.store_host.ends_with(&port.to_be_bytes()));
                assert_eq!(record.physical_offset >> 48, i64::from(shard));
                let view = |offset: i64| Request::new(33).with("offset", offset);
                let found = client.call(view(record.physical_offset)).expect(0);
                assert_eq!(found.records().remove(0), record);
                let mut other = server.connect_shard(1 - shard);
                assert_ne!(other.call(view(record.physical_offset)).code, 0);
            }
        }
        let mut client = server.connect_shard(shard);
        assert_eq!(figure(&mut client, "forwardedRequests"), 0);
        assert_eq!(figure(&mut client, "putMessageTimesTotal"), 20);
    }
}

/// What the one above would not show if nothing were counted.
#[test]
fn requests_of_one_broker_with_two_shards_cross() {
    let server = Config::server().shards(2).start();
    topic(&mut server.connect(), "T", QUEUES);
    let mut client = server.connect();
    for queue in 0..QUEUES {
        use_queue(&mut client, "s", queue);
    }
    // Half of the queues are the other shard's, whichever took the connection.
    assert!(figure(&mut client, "forwardedRequests") >= 20);
}

#[test]
fn offsets_are_each_shards_own_and_outlive_restarts() {
    let mut server = with_topic("T");
    let places = [(0, 0, 3), (0, 1, 1), (1, 0, 5), (1, 2, 4)];
    for shard in 0..2 {
        let mut client = server.connect_shard(shard);
        for queue in 0..QUEUES {
            for n in 0..6 {
                client
                    .call(Send::new("T", body("o", n, 50)).queue(queue))
                    .expect(0);
            }
        }
    }
    for (shard, queue, offset) in places {
        server
            .connect_shard(shard)
            .call(commit("g", "T", queue, offset))
            .expect(0);
    }
    for kill in [false, true] {
        for shard in 0..2 {
            for queue in 0..QUEUES {
                let reply = committed(&mut server.connect_shard(shard), "g", "T", queue);
                let place = places
                    .iter()
                    .find(|place| (place.0, place.1) == (shard, queue));
                match place {
                    Some((.., offset)) => assert_eq!(reply.expect(0).int("offset"), *offset),
                    None => drop(reply.expect(22)),
                }
            }
        }
        if kill {
            // Longer than the interval at which offsets are written.
            std::thread::sleep(Duration::from_millis(6500));
            server.kill();
        } else {
            assert_eq!(server.stop(), 0);
        }
        server.start_again();
    }
    let (shard, queue, offset) = places[2];
    let reply = committed(&mut server.connect_shard(shard), "g", "T", queue);
    assert_eq!(reply.expect(0).int("offset"), offset);
}

#[test]
fn members_and_locks_are_known_to_each_shard_they_spoke_to() {
    let server = with_topic("T");
    let mut held = Vec::new();
    for shard in 0..2 {
        for id in ["one", "two"] {
            let mut client = server.connect_shard(shard);
            client
                .call(heartbeat(&Consumer::new(id, "g", "T")))
                .expect(0);
            held.push(client);
        }
    }
    let members = |shard: u16| {
        let request = Request::new(38).with("consumerGroup", "g");
        let list = server.connect_shard(shard).call(request).expect(0).json();
        let ids = list["consumerIdList"].as_array().expect("a list");
        let mut ids: Vec<String> = ids.iter().map(|id| id.as_str().unwrap().into()).collect();
        ids.sort();
        ids
    };
    assert_eq!(members(0), ["one", "two"]);
    assert_eq!(members(1), ["one", "two"]);
    // Queue 0 of one shard is not queue 0 of the other.
    let lock = |shard: u16, id: &str| {
        let name = ["broker-a", "broker-a-1"][usize::from(shard)];
        let queue = json!({"topic": "T", "brokerName": name, "queueId": 0});
        let body = json!({"consumerGroup": "g", "clientId": id, "mqSet": [queue]});
        let request = Request::new(41).with_body(body.to_string());
        let reply = server.connect_shard(shard).call(request).expect(0).json();
        reply["lockOKMQSet"].as_array().expect("a set").len()
    };
    assert_eq!([lock(0, "one"), lock(1, "two")], [1, 1]);
    assert_eq!([lock(0, "two"), lock(1, "one")], [0, 0]);
    drop(held);
}

#[test]
fn delays_and_retries_end_on_the_shard_they_began_on() {
    let server = with_topic("T");
    for shard in 0..2 {
        let mut client = server.connect_shard(shard);
        let tag = format!("late-{shard}");
        let sent = Instant::now();
        client
            .call(Send::new("T", tag.clone()).property("DELAY", "1").queue(2))
            .expect(0);
        let record = next(&mut client, "T", 2, 0);
        assert!(sent.elapsed() >= Duration::from_millis(990));
        assert_eq!((record.body, record.queue_id), (tag.into_bytes(), 2));
        assert_eq!(
            max_offset(&mut server.connect_shard(1 - shard), "T", 2),
            i64::from(shard)
        );

        client
            .call(heartbeat(&Consumer::new("c", "g", "T")))
            .expect(0);
        client
            .call(Send::new("T", format!("poison-{shard}")).queue(1))
            .expect(0);
        let original = next(&mut client, "T", 1, 0);
        let back = |level: i32| {
            Request::new(36)
                .with("offset", original.physical_offset)
                .with("group", "g")
                .with("delayLevel", level)
                .with("originTopic", "T")
                .with("maxReconsumeTimes", 16)
        };
        // The other shard does not have it.
        server.connect_shard(1 - shard).call(back(1)).expect(1);
        client.call(back(1)).expect(0);
        let again = next(&mut client, "%RETRY%g", 0, 0);
        assert_eq!((&again.body, again.reconsume_times), (&original.body, 1));
        client.call(back(-1)).expect(0);
        assert_eq!(next(&mut client, "%DLQ%g", 0, 0).body, original.body);
        assert_eq!(figure(&mut client, "forwardedRequests"), 0);
    }
}

#[test]
fn keys_that_the_broker_gives_are_unique_and_found_on_their_shard() {
    let server = with_topic("T");
    let mut keys = Vec::new();
    for shard in 0..2 {
        let mut client = server.connect_shard(shard);
        for n in 0..50 {
            client
                .call(Send::new("T", body("k", n, 20)).property("KEYS", "both"))
                .expect(0);
        }
        let mut at = 0;
        while at < 50 {
            let records = client.call(Pull::new("T", 0, at)).expect(0).records();
            at += records.len() as i64;
            keys.extend(
                records
                    .iter()
                    .map(|r| r.property("UNIQ_KEY").expect("a key").to_owned()),
            );
        }
        let query = Request::new(12)
            .with("topic", "T")
            .with("key", "both")
            .with("maxNum", 64)
            .with("beginTimestamp", 0)
            .with("endTimestamp", i64::MAX);
        assert_eq!(client.call(query).expect(0).records().len(), 50);
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 100);
}
