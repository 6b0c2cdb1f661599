//! Requests about offsets: 14, 15, 29 to 33, 43, 208, 222.

use std::time::Duration;

use crate::common::{
    Client, Config, Consumer, Pull, Send, body, commit, committed, heartbeat, max_offset,
    min_offset, now_ms, queue_offset, shared, topic, unique,
};
use ringmq::wire::command::Request;

#[test]
fn offsets_are_kept_for_each_group_topic_and_queue() {
    let server = shared();
    let (name, group) = (unique("Kept"), unique("kept"));
    let mut client = server.connect();
    topic(&mut client, &name, 4);
    for queue in 0..4 {
        committed(&mut client, &group, &name, queue).expect(22);
        client
            .call(commit(&group, &name, queue, 10 + i64::from(queue)))
            .expect(0);
        client.send_one_way(commit(&unique("other"), &name, queue, 99));
    }
    for mut client in [server.connect(), server.connect().binary()] {
        for queue in 0..4 {
            let reply = committed(&mut client, &group, &name, queue).expect(0);
            assert_eq!(reply.int("offset"), 10 + i64::from(queue));
        }
    }
    // Forward and back, and whatever the queue holds.
    for offset in [1000, 3, 0] {
        client.call(commit(&group, &name, 0, offset)).expect(0);
        assert_eq!(
            committed(&mut client, &group, &name, 0)
                .expect(0)
                .int("offset"),
            offset
        );
    }
    client.send_one_way(commit(&group, &name, 1, 77));
    assert_eq!(
        committed(&mut client, &group, &name, 1)
            .expect(0)
            .int("offset"),
        77
    );
    committed(&mut client, &unique("unknown"), &name, 0).expect(22);
    committed(&mut client, &group, &unique("Unknown"), 0).expect(22);
}

#[test]
fn a_new_group_on_a_young_topic_starts_at_its_first_message() {
    let server = shared();
    let (name, group) = (unique("Young"), unique("young"));
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    let ask = |queue| queue_offset(14, &name, queue).with("consumerGroup", &group);
    client.call(ask(0)).expect(22);
    client.call(Send::new(&name, "x")).expect(0);
    assert_eq!(client.call(ask(0)).expect(0).int("offset"), 0);
    assert_eq!(
        client
            .call(ask(0).with("setZeroIfNotFound", "true"))
            .expect(0)
            .int("offset"),
        0
    );
    client
        .call(ask(0).with("setZeroIfNotFound", "false"))
        .expect(22);
    client.call(ask(1)).expect(22);
}

#[test]
fn bounds_of_a_queue() {
    let server = shared();
    let name = unique("Bounds");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for queue in 0..2 {
        assert_eq!(
            (
                min_offset(&mut client, &name, queue),
                max_offset(&mut client, &name, queue)
            ),
            (0, 0)
        );
        assert_eq!(
            client
                .call(queue_offset(32, &name, queue))
                .expect(0)
                .int("timestamp"),
            -1
        );
        let before = now_ms();
        client
            .call(Send::batch(&name, &["a", "b", "c"]).queue(queue))
            .expect(0);
        assert_eq!(
            (
                min_offset(&mut client, &name, queue),
                max_offset(&mut client, &name, queue)
            ),
            (0, 3)
        );
        let time = client
            .call(queue_offset(32, &name, queue))
            .expect(0)
            .int("timestamp");
        assert!((before - 1000..=now_ms() + 1000).contains(&time));
    }
}

#[test]
fn offsets_by_time() {
    let server = shared();
    let name = unique("Time");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for queue in 0..2 {
        // Three messages of one time, then one, then three.
        for bodies in [&["a", "b", "c"][..], &["d"], &["e", "f", "g"]] {
            client
                .call(Send::batch(&name, bodies).queue(queue))
                .expect(0);
            std::thread::sleep(Duration::from_millis(30));
        }
        let times: Vec<i64> = client
            .call(Pull::new(&name, queue, 0))
            .expect(0)
            .records()
            .iter()
            .map(|r| r.store_timestamp)
            .collect();
        assert_eq!(times.len(), 7);
        assert!(
            times[0] == times[2]
                && times[2] < times[3]
                && times[3] < times[4]
                && times[4] == times[6]
        );
        let mut at = |time: i64, boundary: &str| {
            let request = queue_offset(29, &name, queue).with("timestamp", time);
            let request = if boundary.is_empty() {
                request
            } else {
                request.with("boundaryType", boundary)
            };
            client.call(request).expect(0).int("offset")
        };
        for boundary in ["", "LOWER", "lower"] {
            assert_eq!(at(0, boundary), 0, "before the first");
            assert_eq!(at(times[0], boundary), 0, "the first of its time");
            assert_eq!(at(times[0] + 1, boundary), 3, "between two");
            assert_eq!(at(times[3], boundary), 3);
            assert_eq!(at(times[4], boundary), 4);
            assert_eq!(at(times[6] + 1, boundary), 7, "after the last: the end");
            assert_eq!(at(now_ms() + 1_000_000, boundary), 7);
        }
        for boundary in ["UPPER", "upper"] {
            assert_eq!(at(times[0], boundary), 2, "the last of its time");
            assert_eq!(at(times[3], boundary), 3);
            assert_eq!(at(times[4], boundary), 6);
            assert_eq!(at(times[6] + 1, boundary), 7);
        }
    }
}

#[test]
fn a_message_is_found_by_its_place() {
    let server = shared();
    let name = unique("View");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for queue in 0..2 {
        for n in 0..3 {
            client
                .call(Send::new(&name, body("view", n, 2000)).queue(queue))
                .expect(0);
        }
        for record in client.call(Pull::new(&name, queue, 0)).expect(0).records() {
            let found = client
                .call(Request::new(33).with("offset", record.physical_offset))
                .expect(0)
                .records();
            assert_eq!(found, std::slice::from_ref(&record));
            for beside in [-4, -1, 1, 8, 100] {
                client
                    .call(Request::new(33).with("offset", record.physical_offset + beside))
                    .expect(1);
            }
        }
    }
}

/// Two queues with five messages each; the third of the first queue is at the time given.
fn five_each(client: &mut Client, name: &str) -> i64 {
    topic(client, name, 2);
    for n in 0..5 {
        std::thread::sleep(Duration::from_millis(10));
        for queue in 0..2 {
            client
                .call(Send::new(name, body("m", n, 20)).queue(queue))
                .expect(0);
        }
    }
    client.call(Pull::new(name, 0, 2)).expect(0).records()[0].store_timestamp
}

fn reset(topic: &str, group: &str, timestamp: i64) -> Request {
    Request::new(222)
        .with("topic", topic)
        .with("group", group)
        .with("timestamp", timestamp)
        .with("isForce", true)
}

#[test]
fn a_reset_moves_the_group_with_its_next_pull() {
    let server = shared();
    let (name, group) = (unique("Reset"), unique("reset"));
    let mut client = server.connect();
    let third = five_each(&mut client, &name);
    client.call(commit(&group, &name, 0, 5)).expect(0);
    client.call(commit(&group, &name, 1, 5)).expect(0);
    let reply = client.call(reset(&name, &group, third)).expect(0);
    let text = String::from_utf8(reply.body).unwrap();
    assert!(
        text.contains("offsetTable") && text.contains(&format!("\"topic\":\"{name}\"")),
        "{text}"
    );
    // Until the group has heard of it, what it commits is of before.
    client.call(commit(&group, &name, 0, 5)).expect(0);
    let moved = client
        .call(Pull::new(&name, 0, 5).group(&group).suspend(10_000))
        .expect(21);
    assert_eq!(moved.int("nextBeginOffset"), 2);
    client.call(Pull::new(&name, 0, 2).group(&group)).expect(0);
    assert_eq!(
        committed(&mut client, &group, &name, 0)
            .expect(0)
            .int("offset"),
        2
    );
    client.call(commit(&group, &name, 0, 3)).expect(0);
    assert_eq!(
        committed(&mut client, &group, &name, 0)
            .expect(0)
            .int("offset"),
        3
    );
    // To the end, and one queue alone.
    client.call(reset(&name, &group, -1)).expect(0);
    assert_eq!(
        committed(&mut client, &group, &name, 1)
            .expect(0)
            .int("offset"),
        5
    );
    client
        .call(reset(&name, &group, 0).with("queueId", 1).with("offset", 4))
        .expect(0);
    assert_eq!(
        committed(&mut client, &group, &name, 1)
            .expect(0)
            .int("offset"),
        4
    );
    assert_eq!(
        committed(&mut client, &group, &name, 0)
            .expect(0)
            .int("offset"),
        5
    );
}

#[test]
fn a_reset_names_what_there_is() {
    let server = shared();
    let (name, group) = (unique("ResetWrong"), unique("reset-wrong"));
    let mut client = server.connect();
    five_each(&mut client, &name);
    client.call(reset(&name, &group, 0)).expect(26);
    client.call(commit(&group, &name, 0, 1)).expect(0);
    client.call(reset(&unique("None"), &group, 0)).expect(17);
    client
        .call(reset(&name, &group, 0).with("queueId", 9))
        .expect(1);
    client
        .call(
            reset(&name, &group, 0)
                .with("queueId", 0)
                .with("offset", 99),
        )
        .expect(1);
    assert_eq!(
        committed(&mut client, &group, &name, 0)
            .expect(0)
            .int("offset"),
        1
    );
}

#[test]
fn a_reset_of_an_empty_retry_topic_goes_to_its_end() {
    let server = shared();
    let (name, group) = (unique("Base"), unique("empty-retry"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    client
        .call(heartbeat(&Consumer::new("c", &group, &name)))
        .expect(0);
    let retry = format!("%RETRY%{group}");
    client.call(reset(&retry, &group, now_ms())).expect(0);
    let at = committed(&mut client, &group, &retry, 0);
    assert!(at.code == 22 || at.int("offset") == 0);
}

/// The entry of a queue in a map whose keys are objects, which is how Java writes it.
fn entry(body: &[u8], topic: &str, queue: i32) -> serde_json::Value {
    let text = std::str::from_utf8(body).unwrap();
    let queue = format!("\"queueId\":{queue},");
    let key = text
        .match_indices(&queue)
        .find(|(at, _)| {
            text[*at..]
                .split('}')
                .next()
                .unwrap()
                .contains(&format!("\"{topic}\""))
        })
        .unwrap_or_else(|| panic!("no {queue} of {topic} in {text}"));
    let value = text[key.0..].split_once("}:").unwrap().1;
    let end = value.find('}').unwrap();
    serde_json::from_str(&value[..=end]).unwrap()
}

#[test]
fn progress_of_a_group_is_shown() {
    let server = shared();
    let (name, group) = (unique("Progress"), unique("progress"));
    let mut client = server.connect();
    five_each(&mut client, &name);
    client.call(commit(&group, &name, 0, 3)).expect(0);
    client.call(commit(&group, &name, 1, 5)).expect(0);
    client.call(Pull::new(&name, 0, 4).group(&group)).expect(0);
    let reply = client
        .call(Request::new(208).with("consumerGroup", &group))
        .expect(0);
    let first = entry(&reply.body, &name, 0);
    assert_eq!(
        (
            first["brokerOffset"].as_i64(),
            first["consumerOffset"].as_i64()
        ),
        (Some(5), Some(3))
    );
    assert!(first["lastTimestamp"].as_i64() > Some(now_ms() - 60_000));
    assert_eq!(entry(&reply.body, &name, 1)["consumerOffset"], 5);
    let reply = client
        .call(Request::new(202).with("topic", &name))
        .expect(0);
    let first = entry(&reply.body, &name, 0);
    assert_eq!(
        (first["minOffset"].as_i64(), first["maxOffset"].as_i64()),
        (Some(0), Some(5))
    );
    assert!(first["lastUpdateTimestamp"].as_i64() > Some(now_ms() - 60_000));
    let all = client.call(Request::new(43)).expect(0);
    let text = String::from_utf8(all.body).unwrap();
    assert!(text.contains(&format!("\"{name}@{group}\"")), "{text}");
}

#[test]
fn a_topic_made_anew_starts_anew() {
    let server = Config::server().shards(2).start();
    let mut client = server.connect();
    for round in 0..3 {
        topic(&mut client, "Again", 2);
        for queue in 0..2 {
            assert_eq!(max_offset(&mut client, "Again", queue), 0, "round {round}");
            let reply = client
                .call(Send::batch("Again", &["a", "b"]).queue(queue))
                .expect(0);
            assert_eq!(reply.int("queueOffset"), 0);
            committed(&mut client, "again", "Again", queue).expect(22);
            client.call(commit("again", "Again", queue, 2)).expect(0);
        }
        client
            .call(Request::new(215).with("topic", "Again"))
            .expect(0);
        // Looking at what is gone brings nothing back.
        assert_eq!(max_offset(&mut client, "Again", 0), 0);
        client.call(Pull::new("Again", 0, 0)).expect(17);
        client
            .call(Request::new(351).with("topic", "Again"))
            .expect(17);
    }
}

#[test]
fn a_topic_is_listed_as_consumed_once_an_offset_is_committed_and_not_for_a_pull() {
    let server = shared();
    let (mut client, name, group) = (server.connect(), unique("Listed"), unique("group"));
    topic(&mut client, &name, 1);
    client.call(Send::new(&name, "x")).expect(0);
    client
        .call(heartbeat(&Consumer::new("c", &group, &name)))
        .expect(0);
    client
        .call(Pull::new(&name, 0, 0).group(&group).suspend(1000))
        .expect(0);
    let mut listed = || {
        let topics = Request::new(343).with("group", &group);
        let stats = Request::new(208).with("consumerGroup", &group);
        let topics = client.call(topics).expect(0).json();
        let stats = client.call(stats).expect(0);
        let stats = String::from_utf8(stats.body).expect("text");
        let topics = topics["topicList"].as_array().expect("a list").len();
        (topics, stats.contains(&name))
    };
    assert_eq!(listed(), (0, false));
    server.connect().call(commit(&group, &name, 0, 1)).expect(0);
    assert_eq!(listed(), (1, true));
}
