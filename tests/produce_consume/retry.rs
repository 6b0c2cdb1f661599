//! Delays, retries, dead letters.

use std::time::{Duration, Instant};

use crate::common::{
    Client, Config, Consumer, Pull, Record, Send, body, heartbeat, max_offset, shared, topic,
    unique,
};
use ringmq::wire::command::Request;
use serde_json::json;

/// The next message of a queue, waited for.
fn next(client: &mut Client, topic: &str, queue: i32, offset: i64) -> Record {
    client
        .call(Pull::new(topic, queue, offset).suspend(20_000))
        .expect(0)
        .records()
        .remove(0)
}

fn send_back(record: &Record, group: &str, level: i32) -> Request {
    Request::new(36)
        .with("offset", record.physical_offset)
        .with("group", group)
        .with("delayLevel", level)
        .with("originMsgId", "not used")
        .with("originTopic", &record.topic)
        .with("unitMode", false)
        .with("maxReconsumeTimes", 16)
}

#[test]
fn a_delayed_message_comes_after_its_time() {
    let server = shared();
    let name = unique("Delay");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for queue in 0..2 {
        let sent = Instant::now();
        let reply = client
            .call(
                Send::new(&name, body("late", 1, 500))
                    .tag("T")
                    .property("DELAY", "1")
                    .queue(queue),
            )
            .expect(0);
        assert!(reply.int("queueOffset") >= 0);
        let waiting = client.send(Pull::new(&name, queue, 0).suspend(20_000));
        let reply = client.receive(waiting).expect(0);
        let took = reply.at - sent;
        assert!(took >= Duration::from_millis(990), "early: {took:?}");
        assert!(took < Duration::from_millis(2500), "late: {took:?}");
        let record = reply.records().remove(0);
        assert_eq!(
            (record.queue_offset, record.queue_id, record.topic.as_str()),
            (0, queue, name.as_str())
        );
        assert_eq!(record.body, body("late", 1, 500));
        assert_eq!(record.property("TAGS"), Some("T"));
        // Its tag counts again.
        assert_eq!(
            client
                .call(Pull::new(&name, queue, 0).tags("T"))
                .expect(0)
                .records()
                .len(),
            1
        );
        client.call(Pull::new(&name, queue, 0).tags("U")).expect(20);
    }
}

#[test]
fn delayed_messages_come_once_and_in_their_order() {
    let server = shared();
    let name = unique("Order");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for n in 0..100 {
        client
            .call(
                Send::new(&name, body("d", n, 50))
                    .property("DELAY", "1")
                    .queue((n % 2) as i32),
            )
            .expect(0);
    }
    client.call(Send::new(&name, "at once")).expect(0);
    assert_eq!(next(&mut client, &name, 0, 0).body, b"at once");
    let mut bodies = [Vec::new(), Vec::new()];
    for queue in 0..2 {
        let first = if queue == 0 { 1 } else { 0 };
        while bodies[queue].len() < 50 {
            let at = first + bodies[queue].len() as i64;
            let reply = client
                .call(Pull::new(&name, queue as i32, at).suspend(10_000))
                .expect(0);
            bodies[queue].extend(reply.records().into_iter().map(|record| record.body));
        }
        let expected = (0..50).map(|n| body("d", n * 2 + queue as u64, 50));
        assert!(bodies[queue].iter().cloned().eq(expected));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(max_offset(&mut client, &name, 0), 51);
    assert_eq!(max_offset(&mut client, &name, 1), 50);
}

#[test]
fn levels_outside_the_table() {
    let server = Config::server().set("messageDelayLevel", "2s 1s").start();
    let mut client = server.connect();
    topic(&mut client, "T", 1);
    // 0 is no delay, one above the last is the last.
    client
        .call(Send::new("T", "zero").property("DELAY", "0"))
        .expect(0);
    assert_eq!(
        client.call(Pull::new("T", 0, 0)).expect(0).records()[0].body,
        b"zero"
    );
    let sent = Instant::now();
    client
        .call(Send::new("T", "nine").property("DELAY", "9"))
        .expect(0);
    assert_eq!(next(&mut client, "T", 0, 1).body, b"nine");
    assert!(sent.elapsed() > Duration::from_millis(900));
}

#[test]
fn a_message_sent_back_returns_with_one_more_try() {
    let server = shared();
    let (name, group) = (unique("Back"), unique("back"));
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    client
        .call(heartbeat(&Consumer::new("c", &group, &name)))
        .expect(0);
    let retry = format!("%RETRY%{group}");
    let mut at = 0;
    for queue in 0..2 {
        client
            .call(
                Send::new(&name, "poison")
                    .tag("T")
                    .property("KEYS", "k")
                    .queue(queue),
            )
            .expect(0);
        let original = next(&mut client, &name, queue, 0);
        let mut record = original.clone();
        for times in 1..=2 {
            let sent = Instant::now();
            client.call(send_back(&record, &group, 1)).expect(0);
            record = next(&mut client, &retry, 0, at);
            at += 1;
            assert!(
                sent.elapsed() >= Duration::from_millis(990),
                "{:?}",
                sent.elapsed()
            );
            assert_eq!(record.reconsume_times, times);
            assert_eq!(record.topic, retry);
            assert_eq!(record.body, b"poison");
            assert_eq!(record.property("RETRY_TOPIC"), Some(name.as_str()));
            assert_eq!(
                record.property("ORIGIN_MESSAGE_ID"),
                Some(original.offset_id().as_str())
            );
            assert_eq!(record.property("KEYS"), Some("k"));
            assert_eq!(record.property("UNIQ_KEY"), original.property("UNIQ_KEY"));
            assert_eq!(record.born_timestamp, original.born_timestamp);
            assert_eq!(record.born_host, original.born_host);
        }
    }
}

#[test]
fn a_message_that_failed_too_often_is_a_dead_letter() {
    let server = shared();
    let (name, group) = (unique("Dead"), unique("dead"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let dead = format!("%DLQ%{group}");
    client
        .call(Send::new(&name, "bad").property("DELAY", "0"))
        .expect(0);
    let record = next(&mut client, &name, 0, 0);
    // Asked for.
    client.call(send_back(&record, &group, -1)).expect(0);
    let letter = next(&mut client, &dead, 0, 0);
    assert_eq!(
        (letter.body.as_slice(), letter.reconsume_times),
        (&b"bad"[..], 1)
    );
    assert_eq!(letter.property("RETRY_TOPIC"), Some(name.as_str()));
    // By the group's limit.
    let set =
        json!({"groupName": group, "retryMaxTimes": 0, "retryQueueNums": 1, "consumeEnable": true});
    client
        .call(Request::new(200).with_body(set.to_string()))
        .expect(0);
    let mut request = send_back(&record, &group, 0);
    request.fixed.version = 100;
    client.call(request).expect(0);
    assert_eq!(next(&mut client, &dead, 0, 1).body, b"bad");
    // By the client's.
    let limited = Request::new(36)
        .with("offset", record.physical_offset)
        .with("group", &group)
        .with("delayLevel", 0)
        .with("maxReconsumeTimes", 0);
    client.call(limited).expect(0);
    assert_eq!(next(&mut client, &dead, 0, 2).body, b"bad");
    let config = client
        .call(Request::new(351).with("topic", &dead))
        .expect(0)
        .json();
    assert_eq!(
        (config["writeQueueNums"].as_i64(), config["perm"].as_i64()),
        (Some(1), Some(6))
    );
}

#[test]
fn the_last_retry_of_a_delayed_message_is_a_dead_letter_at_once() {
    let server = shared();
    let (name, group) = (unique("Last"), unique("last"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let dead = format!("%DLQ%{group}");
    // It carries a level of two hours from an earlier retry, and is over its limit.
    let mut send = Send::new(&format!("%RETRY%{group}"), "x")
        .property("DELAY", "18")
        .property("RETRY_TOPIC", &name);
    (send.reconsume_times, send.max_reconsume_times) = (3, Some(2));
    let sent = Instant::now();
    client.call(send).expect(0);
    let letter = next(&mut client, &dead, 0, 0);
    assert_eq!(letter.topic, dead);
    assert!(
        sent.elapsed() < Duration::from_secs(1),
        "{:?}",
        sent.elapsed()
    );
    // The same by sending back what was delayed before.
    client
        .call(Send::new(&name, "y").property("DELAY", "1"))
        .expect(0);
    let record = next(&mut client, &name, 0, 0);
    let sent = Instant::now();
    client.call(send_back(&record, &group, -1)).expect(0);
    assert_eq!(next(&mut client, &dead, 0, 1).body, b"y");
    assert!(
        sent.elapsed() < Duration::from_secs(1),
        "{:?}",
        sent.elapsed()
    );
}

#[test]
fn a_retry_by_an_ordinary_send_waits_for_its_level() {
    let server = shared();
    let group = unique("fallback");
    let mut client = server.connect();
    let retry = format!("%RETRY%{group}");
    let mut send = Send::new(&retry, "again").property("DELAY", "1");
    (send.reconsume_times, send.max_reconsume_times) = (1, Some(16));
    let sent = Instant::now();
    client.call(send).expect(0);
    let record = next(&mut client, &retry, 0, 0);
    assert!(sent.elapsed() >= Duration::from_millis(990));
    assert_eq!(
        (record.body.as_slice(), record.reconsume_times),
        (&b"again"[..], 1)
    );
    client.call(Send::new(&retry, "x").queue(9)).expect(29);
}

#[test]
fn a_message_of_another_broker_cannot_be_sent_back() {
    let server = shared();
    let (name, group) = (unique("Foreign"), unique("foreign"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    client.call(Send::new(&name, "x")).expect(0);
    let mut record = next(&mut client, &name, 0, 0);
    for offset in [record.physical_offset + 1, 1 << 40, 7 << 48, -1, i64::MAX] {
        record.physical_offset = offset;
        let reply = client.call(send_back(&record, &group, 1)).expect(1);
        assert!(!reply.remark.is_empty());
    }
    client
        .call(Pull::new(&format!("%RETRY%{group}"), 0, 0))
        .expect(17);
}

#[test]
fn a_group_without_retry_queues_drops_what_it_sends_back() {
    let server = shared();
    let (name, group) = (unique("Drop"), unique("drop"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let set = json!({"groupName": group, "retryQueueNums": 0, "retryMaxTimes": 16, "consumeEnable": true});
    client
        .call(Request::new(200).with_body(set.to_string()))
        .expect(0);
    client.call(Send::new(&name, "x")).expect(0);
    let record = next(&mut client, &name, 0, 0);
    client.call(send_back(&record, &group, 1)).expect(0);
    std::thread::sleep(Duration::from_millis(1300));
    let kept = client.call(Pull::new(&format!("%RETRY%{group}"), 0, 0));
    assert!(matches!(kept.code, 17 | 19), "{}", kept.code);
}

#[test]
fn a_group_that_works_in_order_retries_no_further_by_sending() {
    let server = shared();
    let group = unique("ordered");
    let mut client = server.connect();
    let lock = json!({"consumerGroup": group, "clientId": "c",
        "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}]});
    client
        .call(Request::new(41).with_body(lock.to_string()))
        .expect(0);
    let mut send = Send::new(&format!("%RETRY%{group}"), "stuck").property("DELAY", "5");
    send.max_reconsume_times = Some(16);
    client.call(send).expect(0);
    assert_eq!(
        next(&mut client, &format!("%DLQ%{group}"), 0, 0).body,
        b"stuck"
    );
}
