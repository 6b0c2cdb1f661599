//! Requests whose fields or bodies are missing, or not what they must be.

use crate::common::{
    Client, Pull, Send, Witness, batch_item, commit, max_offset, queue_offset, shared, topic,
    unique,
};
use ringmq::wire::command::Request;

#[test]
fn unknown_codes_are_answered_with_3() {
    let server = shared();
    for mut client in [
        server.connect(),
        server.connect().binary(),
        server.connect_nameserver(),
        server.connect_nameserver().binary(),
    ] {
        for code in [0, -1, 1, 9, 353, 999, 9999, 32_767, -32_768] {
            client.call(Request::new(code)).expect(3);
        }
    }
    for mut client in [server.connect(), server.connect_nameserver()] {
        for code in [i32::MAX, i32::MIN, 200_050, 200_151, 65_536 + 310] {
            client.call(Request::new(code)).expect(3);
        }
    }
    // What the broker serves is nothing to the nameserver, and the other way round.
    server
        .connect_nameserver()
        .call(Send::new("T", "x"))
        .expect(3);
    server
        .connect()
        .call(Request::new(105).with("topic", "TBW102"))
        .expect(3);
}

#[test]
fn one_way_requests_are_not_answered_whatever_becomes_of_them() {
    let server = shared();
    let name = unique("OneWay");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    client.send_one_way(Request::new(9999));
    client.send_one_way(Send::new(&name, "stored"));
    client.send_one_way(Send::new("no/topic", "refused"));
    client.send_one_way(Send::new(&name, "refused").queue(99));
    client.send_one_way(Pull::new(&name, 0, 0));
    client.send_one_way(Request::new(17));
    client.send_one_way(Request::new(38));
    let last = client.send(queue_offset(30, &name, 0));
    client.receive(last).expect(0);
    // Nothing came before the one answer, and nothing comes behind it.
    assert!(
        client
            .try_receive(last + 1, std::time::Duration::from_millis(300))
            .is_none()
    );
    for earlier in 2..last {
        assert!(
            client
                .try_receive(earlier, std::time::Duration::ZERO)
                .is_none(),
            "{earlier}"
        );
    }
    assert_eq!(max_offset(&mut client, &name, 0), 1);
}

/// Calls, and expects code 1 with a remark that names the field.
#[track_caller]
fn expect_missing(client: &mut Client, request: Request, field: &str) {
    let code = request.fixed.code;
    let reply = client.call(request);
    assert_eq!(
        reply.code, 1,
        "request {code} without {field}: {}",
        reply.remark
    );
    assert!(
        reply.remark.contains(field),
        "request {code}: {}",
        reply.remark
    );
}

/// Requests with all their mandatory fields, and the names of those.
fn complete(name: &str) -> Vec<(Request, Vec<&'static str>)> {
    let queue = |code| (queue_offset(code, name, 0), vec!["topic", "queueId"]);
    vec![
        queue(30),
        queue(31),
        queue(32),
        (
            queue_offset(29, name, 0).with("timestamp", 0),
            vec!["topic", "queueId", "timestamp"],
        ),
        (
            queue_offset(14, name, 0).with("consumerGroup", "g"),
            vec!["consumerGroup", "topic", "queueId"],
        ),
        (
            commit("g", name, 0, 0),
            vec!["consumerGroup", "topic", "queueId", "commitOffset"],
        ),
        (
            Pull::new(name, 0, 0).into(),
            vec![
                "consumerGroup",
                "topic",
                "queueId",
                "queueOffset",
                "maxMsgNums",
                "sysFlag",
                "commitOffset",
                "suspendTimeoutMillis",
                "subVersion",
            ],
        ),
        (
            Request::new(17)
                .with("topic", name)
                .with("readQueueNums", 1)
                .with("writeQueueNums", 1)
                .with("perm", 6),
            vec!["topic", "readQueueNums", "writeQueueNums", "perm"],
        ),
        (Request::new(33).with("offset", 0), vec!["offset"]),
        (Request::new(35).with("clientID", "c"), vec!["clientID"]),
        (
            Request::new(36)
                .with("offset", 0)
                .with("group", "g")
                .with("delayLevel", 0),
            vec!["offset", "group", "delayLevel"],
        ),
        (
            Request::new(38).with("consumerGroup", "g"),
            vec!["consumerGroup"],
        ),
        (Request::new(202).with("topic", name), vec!["topic"]),
        (
            Request::new(203).with("consumerGroup", "g"),
            vec!["consumerGroup"],
        ),
        (
            Request::new(204).with("producerGroup", "g"),
            vec!["producerGroup"],
        ),
        (Request::new(207).with("groupName", "g"), vec!["groupName"]),
        (
            Request::new(208).with("consumerGroup", "g"),
            vec!["consumerGroup"],
        ),
        (Request::new(215).with("topic", name), vec!["topic"]),
        (
            Request::new(222)
                .with("topic", name)
                .with("group", "g")
                .with("timestamp", 0),
            vec!["topic", "group", "timestamp"],
        ),
        (Request::new(300).with("topic", name), vec!["topic"]),
        (Request::new(343).with("group", "g"), vec!["group"]),
        (
            Request::new(345).with("group", "g").with("topic", name),
            vec!["group", "topic"],
        ),
        (Request::new(351).with("topic", name), vec!["topic"]),
        (Request::new(352).with("group", "g"), vec!["group"]),
    ]
}

fn without(request: &Request, field: &str) -> Request {
    let base = Request::new(request.fixed.code).with_body(request.body.clone());
    let kept = request.ext().filter(|(key, _)| *key != field);
    kept.fold(base, |request, (key, value)| request.with(key, value))
}

#[test]
fn a_missing_field_is_named_with_code_1() {
    let server = shared();
    let name = unique("Missing");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    for (request, fields) in complete(&name) {
        for field in fields {
            expect_missing(&mut client, without(&request, field), field);
        }
    }
    for code in [10, 310, 320] {
        let send = Send::new(&name, "x").code(code);
        for (letter, field) in [
            ("a", "producerGroup"),
            ("b", "topic"),
            ("c", "defaultTopic"),
            ("d", "defaultTopicQueueNums"),
            ("e", "queueId"),
            ("f", "sysFlag"),
            ("g", "bornTimestamp"),
            ("h", "flag"),
        ] {
            expect_missing(&mut client, send.without(letter), field);
        }
    }
    assert_eq!(max_offset(&mut client, &name, 0), 0, "nothing was stored");
}

#[test]
fn a_number_that_is_none_or_too_large_is_code_1() {
    let server = shared();
    let name = unique("Numbers");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let too_large = [
        "2147483648",
        "-2147483649",
        "99999999999999999999",
        "9223372036854775808",
    ];
    let no_number = ["x", "-", "1.5", " 1", "0x10", "1e3", "+1", "١", "true"];
    for value in too_large.into_iter().chain(no_number) {
        for letter in ["d", "e", "f", "h", "j"] {
            let request = Send::new(&name, "x").with(letter, value);
            assert_eq!(client.call(request).code, 1, "{letter} = {value:?}");
        }
        let pull: Request = Pull::new(&name, 0, 0).into();
        for field in ["queueId", "maxMsgNums", "sysFlag"] {
            let request = without(&pull, field).with(field, value);
            assert_eq!(client.call(request).code, 1, "{field} = {value:?}");
        }
        let request = Request::new(30).with("topic", &name).with("queueId", value);
        assert_eq!(client.call(request).code, 1, "queueId = {value:?}");
    }
    for value in ["9223372036854775808", "-9223372036854775809", "", "x"] {
        assert_eq!(
            client.call(Send::new(&name, "x").with("g", value)).code,
            1,
            "{value:?}"
        );
        let request =
            without(&Pull::new(&name, 0, 0).into(), "queueOffset").with("queueOffset", value);
        assert_eq!(client.call(request).code, 1, "{value:?}");
    }
    assert_eq!(
        client.call(Send::new(&name, "x").with("m", "maybe")).code,
        1
    );
    assert_eq!(max_offset(&mut client, &name, 0), 0, "nothing was stored");
    // Clients that write every field write one that is not set as "".
    client.call(Send::new(&name, "x").with("j", "")).expect(0);
    client.call(Send::new(&name, "x").with("k", "")).expect(0);
}

#[test]
fn extreme_numbers_are_taken_as_they_are() {
    let server = shared();
    let name = unique("Extreme");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let mut send = Send::new(&name, "x");
    (send.flag, send.born, send.reconsume_times) = (i32::MIN, i64::MIN, i32::MAX);
    client.call(send).expect(0);
    let record = client
        .call(Pull::new(&name, 0, 0))
        .expect(0)
        .records()
        .remove(0);
    assert_eq!(
        (record.flag, record.born_timestamp, record.reconsume_times),
        (i32::MIN, i64::MIN, i32::MAX)
    );
    client.call(Pull::new(&name, 0, i64::MAX)).expect(21);
    client.call(Pull::new(&name, 0, i64::MIN)).expect(21);
    for max in [0, -1, i32::MIN, i32::MAX] {
        assert_eq!(
            client
                .call(Pull::new(&name, 0, 0).max(max))
                .expect(0)
                .records()
                .len(),
            1
        );
    }
    for time in [i64::MIN, -1, 0, i64::MAX] {
        client
            .call(queue_offset(29, &name, 0).with("timestamp", time))
            .expect(0);
    }
    for (offset, code) in [(i64::MAX, 0), (i64::MIN, 0), (-1, 0)] {
        client
            .call(commit("extremes", &name, 0, offset))
            .expect(code);
    }
    for offset in [-1, i64::MAX, i64::MIN, 5 << 48, 3, (1 << 48) - 1] {
        client
            .call(Request::new(33).with("offset", offset))
            .expect(1);
    }
    client
        .call(
            Request::new(321)
                .with("topic", &name)
                .with("queueId", 0)
                .with("index", i64::MAX)
                .with("count", i32::MAX),
        )
        .expect(0);
    server.assert_healthy();
}

#[test]
fn a_queue_that_the_topic_has_not_is_code_29() {
    let server = shared();
    let name = unique("Queues");
    let mut client = server.connect();
    topic(&mut client, &name, 4);
    for queue in [4, 5, 1000, i32::MAX] {
        client.call(Send::new(&name, "x").queue(queue)).expect(29);
        client
            .call(Send::batch(&name, &["x"]).queue(queue))
            .expect(29);
    }
    for queue in [-1, i32::MIN, 4, i32::MAX] {
        client.call(Pull::new(&name, queue, 0)).expect(29);
        client
            .call(Pull::new(&name, queue, 0).suspend(5000))
            .expect(29);
    }
    for queue in [-1, 4, i32::MIN, i32::MAX] {
        assert_eq!(
            client
                .call(queue_offset(30, &name, queue))
                .expect(0)
                .int("offset"),
            0
        );
        assert_eq!(
            client
                .call(queue_offset(31, &name, queue))
                .expect(0)
                .int("offset"),
            0
        );
        assert_eq!(
            client
                .call(queue_offset(32, &name, queue))
                .expect(0)
                .int("timestamp"),
            -1
        );
        let by_time = queue_offset(29, &name, queue).with("timestamp", 5);
        assert_eq!(client.call(by_time).expect(0).int("offset"), 0);
    }
    // Looking makes no queues.
    for queue in 0..4 {
        let dir = server
            .store()
            .join("consumequeue")
            .join(&name)
            .join(queue.to_string());
        assert!(!dir.exists());
    }
}

#[test]
fn a_body_that_is_not_what_it_must_be_is_code_1() {
    let server = shared();
    let witness = Witness::start(&server);
    let mut client = server.connect();
    let deep = "[".repeat(200_000);
    let bodies: [&[u8]; 9] = [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b"17",
        b"\"text\"",
        b"\xff\xfe\x00",
        b"{\"clientID\":5,\"mqSet\":7,\"groupName\":[]}",
        deep.as_bytes(),
    ];
    for code in [34, 41, 42, 200, 18, 225] {
        for body in bodies {
            let reply = client.call(Request::new(code).with_body(body.to_vec()));
            // A list that is not there has nothing in it; a group without a name is refused.
            let empty =
                matches!(code, 18 | 225) && matches!(body[..], [b'[', b']'] | [b'{', b'"', ..]);
            assert!(
                reply.code == 1 || reply.code == 29 || empty,
                "request {code} with {:?}: {}",
                &body[..body.len().min(30)],
                reply.code
            );
        }
    }
    // Members that are missing, or null.
    for body in [r#"{"clientID":null}"#, r#"{"clientID":""}"#, "{}"] {
        assert_ne!(
            client.call(Request::new(34).with_body(body)).code,
            0,
            "{body}"
        );
        assert_ne!(
            client.call(Request::new(41).with_body(body)).code,
            0,
            "{body}"
        );
    }
    let sets = r#"{"clientID":"c","producerDataSet":null,"consumerDataSet":null}"#;
    client.call(Request::new(34).with_body(sets)).expect(0);
    server.assert_healthy();
    witness.end();
}

#[test]
fn a_batch_whose_lengths_are_wrong_stores_nothing() {
    let server = shared();
    let name = unique("Batch");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let good = batch_item(b"good", "A\u{1}b\u{2}");
    let patched = |at: usize, bytes: &[u8]| {
        let mut item = good.clone();
        item[at..at + bytes.len()].copy_from_slice(bytes);
        item
    };
    let int = |value: i32| value.to_be_bytes();
    let bad: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        (
            "a size one too large",
            patched(0, &int(good.len() as i32 + 1)),
        ),
        (
            "a size one too small",
            patched(0, &int(good.len() as i32 - 1)),
        ),
        ("size 0", patched(0, &int(0))),
        ("a negative size", patched(0, &int(-1))),
        ("size 2^31-1", patched(0, &int(i32::MAX))),
        ("a body one too long", patched(16, &int(5))),
        ("a body one too short", patched(16, &int(3))),
        ("a negative body length", patched(16, &int(-1))),
        ("a body of 2^31-1 bytes", patched(16, &int(i32::MAX))),
        ("properties one too long", patched(24, &6_i16.to_be_bytes())),
        (
            "properties of -1 bytes",
            patched(24, &(-1_i16).to_be_bytes()),
        ),
        (
            "properties of 32,767 bytes",
            patched(24, &i16::MAX.to_be_bytes()),
        ),
        ("a cut item", good[..good.len() - 1].to_vec()),
        ("three bytes", vec![0, 0, 0]),
        (
            "text",
            b"this is no batch at all, but it is long enough to be one".to_vec(),
        ),
    ];
    let mut expected = 0;
    for (what, bytes) in &bad {
        for front in [0, 2] {
            let mut send = Send::batch(&name, &["x"]);
            send.body = [good.repeat(front), bytes.clone()].concat();
            if send.body.is_empty() || !bytes.is_empty() {
                let reply = client.call(send);
                assert_eq!(
                    reply.code, 13,
                    "{what}, behind {front} good ones: {}",
                    reply.remark
                );
            }
        }
        // The next good one takes the next offset.
        assert_eq!(
            client
                .call(Send::new(&name, *what))
                .expect(0)
                .int("queueOffset"),
            expected
        );
        expected += 1;
    }
    assert_eq!(max_offset(&mut client, &name, 0), expected);
}

#[test]
fn properties_of_a_batch_message_above_the_limit_are_refused() {
    let server = shared();
    let name = unique("BatchProperties");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let mut send = Send::batch(&name, &["x"]);
    // 40,000 bytes do not fit the 16-bit length: it is written negative.
    send.body = [
        batch_item(b"a", ""),
        batch_item(b"b", &format!("K\u{1}{}\u{2}", "v".repeat(40_000))),
    ]
    .concat();
    client.call(send).expect(13);
    assert_eq!(max_offset(&mut client, &name, 0), 0);
    let mut send = Send::batch(&name, &["x"]);
    send.body = [
        batch_item(b"a", ""),
        batch_item(b"b", &format!("K\u{1}{}\u{2}", "v".repeat(32_764))),
    ]
    .concat();
    client.call(send).expect(0);
    assert_eq!(max_offset(&mut client, &name, 0), 2);
}
