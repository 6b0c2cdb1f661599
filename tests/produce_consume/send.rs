//! Sends in all their forms, and what is stored of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{
    Client, Config, Pull, Record, Send, Server, batch_item, body, max_offset, now_ms, shared,
    topic, unique,
};

/// All messages of a queue.
fn all(client: &mut Client, topic: &str, queue: i32) -> Vec<Record> {
    let mut found: Vec<Record> = Vec::new();
    let end = max_offset(client, topic, queue);
    while (found.len() as i64) < end {
        let reply = client
            .call(Pull::new(topic, queue, found.len() as i64))
            .expect(0);
        found.extend(reply.records());
    }
    for (n, record) in found.iter().enumerate() {
        assert_eq!((record.queue_offset, record.queue_id), (n as i64, queue));
        assert_eq!(record.topic, topic);
    }
    found
}

#[test]
fn every_form_of_a_send_is_stored_as_it_was_sent() {
    let server = shared();
    let name = unique("Forms");
    topic(&mut server.connect(), &name, 3);
    let mut expected = [Vec::new(), Vec::new(), Vec::new()];
    for mut client in [server.connect(), server.connect().binary()] {
        for queue in 0..3 {
            for code in [10, 310] {
                let content = body(&name, expected[queue].len() as u64, 700);
                let reply = client
                    .call(
                        Send::new(&name, content.clone())
                            .code(code)
                            .queue(queue as i32),
                    )
                    .expect(0);
                assert_eq!(reply.int("queueOffset"), expected[queue].len() as i64);
                assert_eq!(reply.int("queueId"), queue as i64);
                expected[queue].push(content);
            }
            let items: Vec<Vec<u8>> = (0..5).map(|n| body("batch", n, 90)).collect();
            let reply = client
                .call(Send::batch(&name, &items).queue(queue as i32))
                .expect(0);
            assert_eq!(reply.int("queueOffset"), expected[queue].len() as i64);
            expected[queue].extend(items);
            client.send_one_way(Send::new(&name, "one way").queue(queue as i32));
            expected[queue].push(b"one way".to_vec());
            // A batch with the long names, which the flag makes one and not the code.
            let reply = client
                .call(Send::batch(&name, &["p", "q"]).code(10).queue(queue as i32))
                .expect(0);
            assert_eq!(reply.int("queueOffset"), expected[queue].len() as i64);
            expected[queue].extend([b"p".to_vec(), b"q".to_vec()]);
        }
    }
    for mut client in [server.connect(), server.connect().binary()] {
        for (queue, bodies) in expected.iter().enumerate() {
            let found = all(&mut client, &name, queue as i32);
            assert!(
                found.iter().map(|record| &record.body).eq(bodies),
                "queue {queue}"
            );
        }
    }
}

#[test]
fn an_answer_names_the_message_and_what_clients_read_from_it() {
    let server = shared();
    let name = unique("Answer");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for queue in 0..2 {
        let reply = client.call(Send::new(&name, "x").queue(queue)).expect(0);
        assert_eq!(reply.ext("MSG_REGION"), "DefaultRegion");
        assert_eq!(reply.ext("TRACE_ON"), "true");
        let record = client
            .call(Pull::new(&name, queue, 0))
            .expect(0)
            .records()
            .remove(0);
        assert_eq!(reply.ext("msgId"), record.offset_id());
        let host = [
            &[127, 0, 0, 1][..],
            &u32::from(server.address().port()).to_be_bytes(),
        ]
        .concat();
        assert_eq!(record.store_host, host);
        let reply = client
            .call(Send::batch(&name, &["a", "b", "c"]).queue(queue))
            .expect(0);
        let records = client.call(Pull::new(&name, queue, 1)).expect(0).records();
        let ids: Vec<String> = records.iter().map(Record::offset_id).collect();
        assert_eq!(reply.ext("msgId"), ids.join(","));
    }
}

#[test]
fn a_record_holds_what_the_sender_said() {
    let server = shared();
    let name = unique("Record");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let before = now_ms();
    let mut send = Send::new(&name, "content")
        .tag("TagA")
        .property("KEYS", "k1 k2")
        .property("user", "Größe ☃ \u{1f600}")
        .property("UNIQ_KEY", "7F0000010000")
        .property("WAIT", "true");
    (send.flag, send.sys_flag, send.born, send.reconsume_times) = (42, 0x101, 1_600_000_000_123, 3);
    client.call(send).expect(0);
    let record = client
        .call(Pull::new(&name, 0, 0))
        .expect(0)
        .records()
        .remove(0);
    assert_eq!(record.magic, 0xDAA3_20A7);
    assert_eq!(
        (record.flag, record.sys_flag, record.reconsume_times),
        (42, 0x101, 3)
    );
    assert_eq!(
        (record.born_timestamp, record.prepared_offset),
        (1_600_000_000_123, 0)
    );
    assert!((before - 1000..=now_ms() + 1000).contains(&record.store_timestamp));
    let port = client.stream.local_addr().unwrap().port();
    assert_eq!(
        record.born_host,
        [&[127, 0, 0, 1][..], &u32::from(port).to_be_bytes()].concat()
    );
    for (key, value) in [
        ("TAGS", "TagA"),
        ("KEYS", "k1 k2"),
        ("user", "Größe ☃ \u{1f600}"),
        ("UNIQ_KEY", "7F0000010000"),
        ("MSG_REGION", "DefaultRegion"),
        ("TRACE_ON", "true"),
        ("CLUSTER", "DefaultCluster"),
    ] {
        assert_eq!(record.property(key), Some(value), "{key}");
    }
}

#[test]
fn a_message_without_a_unique_key_gets_one_of_its_own() {
    let server = shared();
    let name = unique("Unique");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for n in 0..200 {
        client.call(Send::new(&name, "x").queue(n % 2)).expect(0);
    }
    let records = (0..2).flat_map(|queue| all(&mut client, &name, queue));
    let keys: BTreeSet<String> = records
        .map(|record| record.property("UNIQ_KEY").expect("a key").to_owned())
        .collect();
    assert_eq!(keys.len(), 200);
    assert!(keys.iter().all(|key| key.len() == 32));
}

#[test]
fn what_only_brokers_may_set_is_not_taken_from_a_sender() {
    let server = shared();
    let name = unique("Forged");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let send = Send::new(&name, "x")
        .property("POP_CK", "0 1 2")
        .property("CLUSTER", "other")
        .property("MSG_REGION", "other")
        .property("kept", "yes");
    client.call(send).expect(0);
    let record = client
        .call(Pull::new(&name, 0, 0))
        .expect(0)
        .records()
        .remove(0);
    assert_eq!(record.property("POP_CK"), None);
    assert_eq!(record.property("CLUSTER"), Some("DefaultCluster"));
    assert_eq!(record.property("MSG_REGION"), Some("DefaultRegion"));
    assert_eq!(record.property("kept"), Some("yes"));
}

#[test]
fn messages_of_a_batch_have_their_own_properties() {
    let server = shared();
    let name = unique("BatchProperties");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let mut send = Send::batch(&name, &["x"])
        .property("UNIQ_KEY", "OF-THE-BATCH")
        .property("WAIT", "true");
    send.body = [
        batch_item(b"one", "TAGS\u{1}A\u{2}UNIQ_KEY\u{1}1\u{2}"),
        batch_item(b"two", ""),
        batch_item(b"three", "TAGS\u{1}B\u{2}UNIQ_KEY\u{1}3\u{2}"),
    ]
    .concat();
    client.call(send).expect(0);
    let records = all(&mut client, &name, 0);
    let tags: Vec<_> = records
        .iter()
        .map(|record| record.property("TAGS"))
        .collect();
    assert_eq!(tags, [Some("A"), None, Some("B")]);
    assert_eq!(records[2].property("UNIQ_KEY"), Some("3"));
    assert_eq!(
        client
            .call(Pull::new(&name, 0, 0).tags("B"))
            .expect(0)
            .records()
            .len(),
        1
    );
    // One time and adjoining places.
    assert!(
        records
            .windows(2)
            .all(|pair| pair[1].physical_offset == pair[0].physical_offset + pair[0].size as i64)
    );
}

#[test]
fn the_broker_picks_a_queue_where_the_sender_does_not() {
    let server = shared();
    let name = unique("Any");
    let mut client = server.connect();
    topic(&mut client, &name, 4);
    let mut counts = BTreeMap::new();
    for _ in 0..200 {
        let reply = client.call(Send::new(&name, "x").queue(-1)).expect(0);
        *counts.entry(reply.int("queueId")).or_insert(0) += 1;
    }
    assert!(counts.keys().copied().eq(0..4), "{counts:?}");
}

#[test]
fn topics_that_are_the_brokers_own_take_no_messages() {
    let server = shared();
    let mut client = server.connect();
    for closed in [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ] {
        client.call(Send::new(closed, "x")).expect(16);
    }
    // TBW102 is a template and, as in RocketMQ, a topic like any other.
    client.call(Send::new("BenchmarkTest", "x")).expect(0);
}

#[test]
fn what_is_not_served_yet_is_refused_and_not_stored() {
    let server = shared();
    let name = unique("NotYet");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let half = client.call(Send::new(&name, "x").property("TRAN_MSG", "true"));
    assert!(matches!(half.code, 1 | 16), "{}", half.code);
    for timer in ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"] {
        for value in ["5", "9223372036854775807", "x"] {
            let reply = client.call(Send::new(&name, "x").property(timer, value));
            assert!(matches!(reply.code, 1 | 13), "{timer}: {}", reply.code);
        }
    }
    let mut delayed_batch = Send::batch(&name, &["x"]);
    delayed_batch = delayed_batch.property("DELAY", "1");
    client.call(delayed_batch).expect(13);
    let retry_batch = Send::batch("%RETRY%some-group", &["x"]);
    client.call(retry_batch).expect(13);
    assert_eq!(max_offset(&mut client, &name, 0), 0);
}

#[test]
fn answers_to_pipelined_sends_all_come() {
    let server = shared();
    let name = unique("Pipelined");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    let opaques: Vec<i32> = (0..2000)
        .map(|n| client.send(Send::new(&name, body("pipe", n, 200)).queue((n % 2) as i32)))
        .collect();
    for (n, opaque) in opaques.into_iter().enumerate() {
        // In the order of the requests within a queue.
        assert_eq!(
            client.receive(opaque).expect(0).int("queueOffset"),
            n as i64 / 2
        );
    }
    for queue in 0..2 {
        let found = all(&mut client, &name, queue);
        for (n, record) in found.iter().enumerate() {
            assert_eq!(record.body, body("pipe", n as u64 * 2 + queue as u64, 200));
        }
    }
}

/// Many connections send singles and batches to the same queues at once.
fn storm(server: &Server) {
    const SENDERS: u64 = 12;
    const ROUNDS: u64 = 60;
    const BATCH: u64 = 7;
    let name = unique("Storm");
    topic(&mut server.connect(), &name, 2);
    let acknowledged: Vec<(i32, i64, Vec<u8>)> = std::thread::scope(|scope| {
        let sender = |id: u64| {
            let (name, mut client) = (&name, server.connect());
            move || {
                let mut mine = Vec::new();
                for round in 0..ROUNDS {
                    let queue = ((id + round) % 2) as i32;
                    let content = body(&format!("s{id}"), round, 150);
                    let reply = client
                        .call(Send::new(name, content.clone()).queue(queue))
                        .expect(0);
                    mine.push((queue, reply.int("queueOffset"), content));
                    let items: Vec<Vec<u8>> = (0..BATCH)
                        .map(|n| body(&format!("b{id}.{round}"), n, 60))
                        .collect();
                    let reply = client
                        .call(Send::batch(name, &items).queue(queue))
                        .expect(0);
                    let first = reply.int("queueOffset");
                    mine.extend(
                        items
                            .into_iter()
                            .enumerate()
                            .map(|(n, item)| (queue, first + n as i64, item)),
                    );
                }
                mine
            }
        };
        let threads: Vec<_> = (0..SENDERS).map(|id| scope.spawn(sender(id))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(acknowledged.len() as u64, SENDERS * ROUNDS * (1 + BATCH));
    let mut client = server.connect();
    let stored = [0, 1].map(|queue| all(&mut client, &name, queue));
    assert_eq!(
        stored[0].len() + stored[1].len(),
        acknowledged.len(),
        "no gap, nothing twice"
    );
    for (queue, offset, content) in acknowledged {
        assert_eq!(stored[queue as usize][offset as usize].body, content);
    }
}

#[test]
fn offsets_are_contiguous_however_many_send_at_once() {
    storm(&shared());
}

#[test]
fn offsets_are_contiguous_on_one_shard_and_under_sync_flush() {
    storm(&Config::server().start());
    storm(
        &Config::server()
            .shards(2)
            .set("flushDiskType", "SYNC_FLUSH")
            .start(),
    );
}

#[test]
fn a_refused_message_takes_no_offset() {
    let server = shared();
    let name = unique("Refused");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    for expected in 0..20 {
        client
            .call(Send::new(&name, "x").property("K", &"v".repeat(40_000)))
            .expect(13);
        client.call(Send::new(&name, "x").queue(7)).expect(29);
        assert_eq!(
            client
                .call(Send::new(&name, "x"))
                .expect(0)
                .int("queueOffset"),
            expected
        );
    }
    assert_eq!(all(&mut client, &name, 0).len(), 20);
}
