//! Pulls: what comes back, with which code and which offsets.

use crate::common::{
    Client, Config, Consumer, Pull, Reply, Send, body, commit, committed, heartbeat, shared, topic,
    unique,
};
use ringmq::wire::command::Request;

/// (code, next, min, max) of an answer; the fields that every answer must have.
#[track_caller]
fn outcome(reply: &Reply) -> (i32, i64, i64, i64) {
    assert_eq!(reply.ext("suggestWhichBrokerId"), "0");
    assert_eq!(
        reply.body.is_empty(),
        reply.code != 0,
        "a body with code 0 and only then"
    );
    (
        reply.code,
        reply.int("nextBeginOffset"),
        reply.int("minOffset"),
        reply.int("maxOffset"),
    )
}

#[track_caller]
fn pull(client: &mut Client, pull: Pull) -> (i32, i64, i64, i64) {
    outcome(&client.call(pull))
}

#[test]
fn a_queue_that_was_never_written() {
    let server = shared();
    let name = unique("Never");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for queue in 0..2 {
        assert_eq!(pull(&mut client, Pull::new(&name, queue, 0)), (19, 0, 0, 0));
        for offset in [1, 1000, -1, i64::MAX] {
            assert_eq!(
                pull(&mut client, Pull::new(&name, queue, offset)),
                (21, 0, 0, 0)
            );
        }
    }
}

#[test]
fn a_queue_with_messages() {
    let server = shared();
    let name = unique("Some");
    for mut client in [server.connect(), server.connect().binary()] {
        let name = unique(&name);
        topic(&mut client, &name, 2);
        for queue in 0..2 {
            for n in 0..5 {
                client
                    .call(Send::new(&name, body("m", n, 100)).queue(queue))
                    .expect(0);
            }
            let mut at = |offset| pull(&mut client, Pull::new(&name, queue, offset));
            assert_eq!(at(0), (0, 5, 0, 5));
            assert_eq!(at(3), (0, 5, 0, 5));
            assert_eq!(at(5), (19, 5, 0, 5), "at the end");
            assert_eq!(at(6), (21, 5, 0, 5), "beyond the end");
            assert_eq!(at(1 << 40), (21, 5, 0, 5));
            assert_eq!(at(-1), (21, 0, 0, 5), "in front of the start");
            assert_eq!(at(i64::MIN), (21, 0, 0, 5));
            let next = pull(&mut client, Pull::new(&name, queue, 1).max(2));
            assert_eq!(next, (0, 3, 0, 5), "as many as asked for");
        }
    }
}

#[test]
fn a_pull_that_does_not_wait_for_what_is_beyond_the_end_although_it_may() {
    let server = shared();
    let name = unique("Beyond");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    assert_eq!(
        pull(&mut client, Pull::new(&name, 0, 7).suspend(20_000)),
        (21, 0, 0, 0)
    );
    client.call(Send::new(&name, "x")).expect(0);
    assert_eq!(
        pull(&mut client, Pull::new(&name, 0, 7).suspend(20_000)),
        (21, 1, 0, 1)
    );
}

#[test]
fn one_answer_has_a_bounded_number_of_messages_and_bytes() {
    let server = shared();
    let name = unique("Bounds");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    let small: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    client.call(Send::batch(&name, &small)).expect(0);
    for (asked, got) in [
        (1, 1),
        (31, 31),
        (32, 32),
        (33, 32),
        (1000, 32),
        (i32::MAX, 32),
    ] {
        assert_eq!(
            client
                .call(Pull::new(&name, 0, 0).max(asked))
                .expect(0)
                .records()
                .len(),
            got
        );
    }
    for n in 0..10 {
        client
            .call(Send::new(&name, body("large", n, 100_000)).queue(1))
            .expect(0);
    }
    let reply = client.call(Pull::new(&name, 1, 0)).expect(0);
    assert_eq!(
        (reply.records().len(), reply.int("nextBeginOffset")),
        (2, 2),
        "within 256 KiB"
    );
}

#[test]
fn a_topic_and_a_queue_that_are_not_there() {
    let server = shared();
    let name = unique("Codes");
    let mut client = server.connect();
    client.call(Pull::new(&name, 0, 0)).expect(17);
    client
        .call(Pull::new(&name, 0, 0).suspend(10_000))
        .expect(17);
    topic(&mut client, &name, 2);
    client.call(Pull::new(&name, 2, 0)).expect(29);
    let mut sql = Pull::new(&name, 0, 0).tags("a > 5");
    sql.expression_type = "SQL92".to_owned();
    client.call(sql).expect(1);
}

#[test]
fn a_subscription_that_is_none() {
    let server = shared();
    let name = unique("Expression");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    // Java splits it into nothing at all.
    client.call(Pull::new(&name, 0, 0).tags("||")).expect(23);
}

#[test]
fn permissions_of_topics() {
    let server = shared();
    let name = unique("Perm");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    client.call(Send::new(&name, "x")).expect(0);
    let set = |perm: i32| {
        let request = Request::new(17).with("topic", &name).with("perm", perm);
        request.with("readQueueNums", 2).with("writeQueueNums", 2)
    };
    client.call(set(2)).expect(0);
    client.call(Pull::new(&name, 0, 0)).expect(16);
    client.call(Send::new(&name, "y")).expect(0);
    client.call(set(4)).expect(0);
    assert_eq!(
        client
            .call(Pull::new(&name, 0, 0))
            .expect(0)
            .records()
            .len(),
        2
    );
}

#[test]
fn permission_of_the_broker() {
    let server = Config::server().set("brokerPermission", 2).start();
    let mut client = server.connect();
    topic(&mut client, "T", 1);
    client.call(Send::new("T", "x")).expect(0);
    client.call(Pull::new("T", 0, 0)).expect(16);
}

#[test]
fn groups_that_may_not_consume() {
    let server = shared();
    let (name, group) = (unique("Closed"), unique("closed"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let set = |enabled: bool| {
        let body = serde_json::json!({"groupName": group, "consumeEnable": enabled, "consumeBroadcastEnable": false,
            "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0});
        Request::new(200).with_body(body.to_string())
    };
    client.call(set(false)).expect(0);
    client.call(Pull::new(&name, 0, 0).group(&group)).expect(16);
    client.call(set(true)).expect(0);
    client.call(Pull::new(&name, 0, 0).group(&group)).expect(19);
    // Broadcasting is switched off for it.
    let mut consumer = Consumer::new("c", &group, &name);
    consumer.model = "BROADCASTING";
    client.call(heartbeat(&consumer)).expect(0);
    client
        .call(Pull::new(&name, 0, 0).group(&group).subscribed(1))
        .expect(16);
}

#[test]
fn groups_that_are_not_made_by_themselves() {
    let server = Config::server()
        .set("autoCreateSubscriptionGroup", false)
        .start();
    let mut client = server.connect();
    topic(&mut client, "T", 1);
    client.call(Pull::new("T", 0, 0).group("nobody")).expect(26);
    client.call(commit("nobody", "T", 0, 5)).expect(26);
    let group = serde_json::json!({"groupName": "nobody"});
    client
        .call(Request::new(200).with_body(group.to_string()))
        .expect(0);
    client.call(Pull::new("T", 0, 0).group("nobody")).expect(19);
    client.call(commit("nobody", "T", 0, 5)).expect(0);
}

#[test]
fn lite_pulls_are_pulls_until_they_are_switched_off() {
    let server = Config::server().start();
    let mut client = server.connect();
    topic(&mut client, "T", 1);
    client.call(Send::new("T", "x")).expect(0);
    let lite = || {
        let mut pull = Pull::new("T", 0, 0);
        pull.code = 361;
        pull
    };
    assert_eq!(client.call(lite()).expect(0).records().len(), 1);
    client
        .call(Request::new(25).with_body("litePullMessageEnable=false"))
        .expect(0);
    client.call(lite()).expect(16);
    client.call(Pull::new("T", 0, 0)).expect(0);
}

#[test]
fn subscriptions_come_from_the_heartbeat_unless_the_pull_brings_one() {
    let server = shared();
    let (name, group) = (unique("Sub"), unique("sub"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    for tag in ["A", "B", "C"] {
        client.call(Send::new(&name, tag).tag(tag)).expect(0);
    }
    let subscribed = |version| Pull::new(&name, 0, 0).group(&group).subscribed(version);
    client.call(subscribed(0)).expect(24);
    let mut consumer = Consumer::new("c", &group, &name);
    (consumer.expression, consumer.version) = ("A||C".to_owned(), 10);
    client.call(heartbeat(&consumer)).expect(0);
    for version in [0, 9, 10] {
        let bodies: Vec<_> = client
            .call(subscribed(version))
            .expect(0)
            .records()
            .into_iter()
            .map(|r| r.body)
            .collect();
        assert_eq!(bodies, [b"A", b"C"]);
    }
    // A pull that overtakes the heartbeat of a newer subscription misses nothing.
    assert_eq!(client.call(subscribed(11)).expect(0).records().len(), 3);
    // Another topic is not subscribed.
    let other = unique("Other");
    topic(&mut client, &other, 1);
    client
        .call(Pull::new(&other, 0, 0).group(&group).subscribed(0))
        .expect(24);
    // A newer heartbeat replaces, an older one does not.
    (consumer.expression, consumer.version) = ("B".to_owned(), 20);
    client.call(heartbeat(&consumer)).expect(0);
    (consumer.expression, consumer.version) = ("A".to_owned(), 15);
    client.call(heartbeat(&consumer)).expect(0);
    let bodies: Vec<_> = client
        .call(subscribed(20))
        .expect(0)
        .records()
        .into_iter()
        .map(|r| r.body)
        .collect();
    assert_eq!(bodies, [b"B"]);
}

#[test]
fn tags_are_matched_by_their_java_hash() {
    let server = shared();
    let name = unique("Tags");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    for tag in ["Aa", "BB", "C", "日本", "D"] {
        client.call(Send::new(&name, tag).tag(tag)).expect(0);
    }
    client.call(Send::new(&name, "untagged")).expect(0);
    let mut match_all = |expression: &str| -> String {
        let mut pull = Pull::new(&name, 0, 0);
        pull.subscription = Some(expression.to_owned());
        let reply = client.call(pull);
        let bodies = reply
            .records()
            .into_iter()
            .map(|r| String::from_utf8(r.body).unwrap());
        format!("{} {}", reply.code, bodies.collect::<Vec<_>>().join(","))
    };
    assert_eq!(match_all("*"), "0 Aa,BB,C,日本,D,untagged");
    assert_eq!(match_all(""), "0 Aa,BB,C,日本,D,untagged");
    assert_eq!(match_all("C"), "0 C");
    assert_eq!(match_all(" C || D "), "0 C,D");
    assert_eq!(match_all("C||"), "0 C");
    assert_eq!(match_all("日本"), "0 日本");
    // Their hashes are equal: the client sorts them out.
    assert_eq!(match_all("Aa"), "0 Aa,BB");
    assert_eq!(match_all("X"), "20 ");
}

#[test]
fn a_pull_that_matches_nothing_gets_ahead() {
    let server = shared();
    let name = unique("Sparse");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let mut send = Send::batch(&name, &["x"]);
    send.body = (0..3000)
        .flat_map(|n| crate::common::batch_item(b"x", &format!("TAGS\u{1}t{n}\u{2}")))
        .collect();
    client.call(send).expect(0);
    let (mut at, mut pulls) = (0, 0);
    loop {
        let reply = client.call(Pull::new(&name, 0, at).tags("t2999"));
        let next = reply.int("nextBeginOffset");
        assert!(next > at, "stands still at {at}");
        (at, pulls) = (next, pulls + 1);
        if reply.code == 0 {
            assert_eq!(reply.records()[0].queue_offset, 2999);
            break;
        }
        assert_eq!(reply.code, 20);
    }
    assert!(pulls < 10, "{pulls} pulls");
}

#[test]
fn a_pull_may_commit_an_offset() {
    let server = shared();
    let (name, group) = (unique("Commit"), unique("commit"));
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for queue in 0..2 {
        for n in 0..3 {
            client
                .call(Send::new(&name, body("m", n, 10)).queue(queue))
                .expect(0);
        }
        committed(&mut client, &group, &name, queue).expect(22);
        client
            .call(Pull::new(&name, queue, 2).group(&group).commit(2))
            .expect(0);
        assert_eq!(
            committed(&mut client, &group, &name, queue)
                .expect(0)
                .int("offset"),
            2
        );
        // Also one that waits.
        client.send(
            Pull::new(&name, queue, 3)
                .group(&group)
                .commit(3)
                .suspend(15_000),
        );
        crate::common::eventually("committed", std::time::Duration::from_secs(5), || {
            committed(&mut client, &group, &name, queue)
                .expect(0)
                .int("offset")
                == 3
        });
    }
}

#[test]
fn an_offset_that_cannot_be_right_leads_to_the_committed_one() {
    let server = shared();
    let (name, group) = (unique("Guard"), unique("guard"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    for n in 0..5 {
        client.call(Send::new(&name, body("m", n, 10))).expect(0);
    }
    let at = |client: &mut Client, offset| pull(client, Pull::new(&name, 0, offset).group(&group));
    assert_eq!(
        at(&mut client, -1),
        (21, 0, 0, 5),
        "nothing is committed: the start"
    );
    client.call(commit(&group, &name, 0, 4)).expect(0);
    assert_eq!(at(&mut client, -1), (21, 4, 0, 5));
    assert_eq!(at(&mut client, 4), (0, 5, 0, 5));
    assert_eq!(
        at(&mut client, 0),
        (0, 5, 0, 5),
        "0 is an offset like any other"
    );
    // A committed offset that is not in the queue is no better.
    client.call(commit(&group, &name, 0, 99)).expect(0);
    assert_eq!(at(&mut client, -1), (21, 0, 0, 5));
}

#[test]
fn neither_a_start_nor_sends_nor_reading_from_the_device_allocate_much_at_once() {
    let large = |client: &mut Client| {
        let info = client.call(Request::new(28)).expect(0).json();
        let count = info["table"]["largeAllocations"].as_str().expect("a count");
        count.parse::<u64>().expect("a number")
    };
    // 8 MiB of the 36 are in the tail; each block that is read takes a buffer.
    let server = Config::server()
        .shards(1)
        .set("tailFileBytes", 8 * 1024 * 1024)
        .start();
    let mut client = server.connect();
    assert_eq!(large(&mut client), 0);
    topic(&mut client, "Read", 1);
    const COUNT: u64 = 1200;
    for n in 0..COUNT {
        let send = Send::new("Read", body("Read", n, 30_000));
        client.call(send).expect(0);
    }
    let mut at = 0;
    while at < COUNT as i64 {
        for record in client.call(Pull::new("Read", 0, at)).expect(0).records() {
            assert!(
                record.body == body("Read", at as u64, 30_000),
                "message {at}"
            );
            at += 1;
        }
    }
    assert_eq!(large(&mut client), 0);
}
