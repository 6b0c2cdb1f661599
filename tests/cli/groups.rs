use crate::command::{admin, both};
use crate::common::{Client, Consumer, Reply, Send, Server, commit, heartbeat, shared, unique};
use ringmq::wire::command::Response;
use ringmq::wire::frame::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn topic_with(server: &Server, queues: i32, messages: usize) -> String {
    let topic = unique("grouped");
    admin(
        server,
        &format!("updateTopic -t {topic} -r {queues} -w {queues}"),
    )
    .good();
    let mut client = server.connect();
    for number in 0..messages {
        let queue = number as i32 % queues;
        client
            .call(Send::new(&topic, format!("m{number}")).queue(queue))
            .expect(0);
    }
    topic
}

#[test]
fn a_group_is_made_shown_changed_and_deleted() {
    let server = shared();
    let group = unique("made");
    let made = both(
        &server,
        &format!("updateSubGroup -g {group} -r 3"),
        &["RETRIES", "3"],
    );
    assert_eq!(made["groups"][0]["retryMaxTimes"], 3);
    admin(&server, &format!("updateSubGroup -g {group} -d false")).good();
    let shown = both(
        &server,
        &format!("getConsumerConfig -g {group}"),
        &["MAY BROADCAST"],
    );
    assert_eq!(
        shown["groups"][0]["retryMaxTimes"], 3,
        "what is not given stays"
    );
    assert_eq!(shown["groups"][0]["consumeBroadcastEnable"], false);
    admin(&server, "getConsumerConfig -g none-such").refused(3, "none-such");
    admin(&server, "updateSubGroup -g bad/name").refused(2, "bad/name");
    let delete = format!("deleteSubGroup -g {group}");
    admin(&server, &delete).refused(2, "--yes");
    admin(&server, &format!("{delete} -r true -y"))
        .good()
        .shows(&["DELETED FROM"]);
    admin(&server, &format!("getConsumerConfig -g {group}")).refused(3, &group);
}

#[test]
fn a_group_goes_with_its_own_topics() {
    let server = shared();
    let group = unique("gone");
    let own = ["RETRY", "DLQ"].map(|kind| format!("%{kind}%{group}"));
    let there = || {
        let list = admin(&server, "topicList").good().stdout;
        own.iter()
            .filter(|topic| list.lines().any(|line| line == **topic))
            .count()
    };
    let make = || {
        admin(&server, &format!("updateSubGroup -g {group}")).good();
        for topic in &own {
            admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
        }
        assert_eq!(there(), 2);
    };
    make();
    let delete = format!("deleteSubGroup -g {group}");
    let asked = admin(&server, &format!("{delete} -c DefaultCluster")).refused(2, &own[0]);
    assert!(asked.stderr.contains(&own[1]), "{}", asked.stderr);
    let address = server.address();
    admin(&server, &format!("{delete} -b {address} -y")).good();
    assert_eq!(there(), 2, "a single broker keeps them");
    for line in [
        format!("{delete} -c DefaultCluster -y"),
        format!("{delete} -y"),
    ] {
        make();
        admin(&server, &line).good().shows(&[&own[0], &own[1]]);
        assert_eq!(there(), 0);
        // Where there are none, there is nothing to fail.
        admin(&server, &line).good();
    }
}

#[test]
fn queues_beyond_their_end_hide_no_lag() {
    let server = shared();
    let (group, topic) = (unique("beyond"), topic_with(&server, 2, 8));
    admin(&server, &format!("updateSubGroup -g {group}")).good();
    let mut client = server.connect();
    for (queue, offset) in [(0, 1), (1, 100)] {
        client.call(commit(&group, &topic, queue, offset)).expect(0);
    }
    let line = format!("consumerProgress -g {group}");
    let progress = both(&server, &line, &["Behind     3"]);
    assert_eq!(progress["totalDiff"], 3);
    assert_eq!(progress["queues"][1]["diff"], -96);
    let all = admin(&server, "consumerProgress --output json").json();
    let status = crate::command::run(&server, "status --output json").json();
    for groups in [&all["groups"], &status["groups"]] {
        let mut rows = groups.as_array().unwrap().iter();
        let row = rows.find(|row| row["group"] == *group).unwrap();
        assert_eq!(row["totalDiff"], 3, "{row}");
    }
}

#[test]
fn many_groups_come_from_a_file() {
    let server = shared();
    let group = unique("file");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("groups"));
    let groups = json!([{ "groupName": group, "retryMaxTimes": 7 }]);
    std::fs::write(&path, groups.to_string()).unwrap();
    both(
        &server,
        &format!("updateSubGroupList -f {}", path.display()),
        &[&group],
    );
    let shown = admin(
        &server,
        &format!("getConsumerConfig -g {group} --output json"),
    )
    .json();
    assert_eq!(shown["groups"][0]["retryMaxTimes"], 7);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn progress_is_shown_queue_by_queue_and_in_sum() {
    let server = shared();
    let group = unique("behind");
    let topic = topic_with(&server, 2, 4);
    admin(&server, &format!("updateSubGroup -g {group}")).good();
    admin(&server, &format!("consumerProgress -g {group}"))
        .good()
        .shows(&["it has not consumed anything"]);
    admin(
        &server,
        &format!("resetOffsetByTime -g {group} -t {topic} -s 0 -y"),
    )
    .good();
    let progress = both(
        &server,
        &format!("consumerProgress -g {group}"),
        &["Behind     4", "CONSUMER OFFSET"],
    );
    assert_eq!(progress["totalDiff"], 4);
    assert_eq!(progress["queues"][1]["brokerOffset"], 2);
    assert_eq!(progress["queues"][1]["diff"], 2);
    let one = admin(
        &server,
        &format!("consumerProgress -g {group} -t {topic} --output json"),
    );
    assert_eq!(one.good().json()["totalDiff"], 4);
    let all = both(&server, "consumerProgress", &["MEMBERS", &group, "offline"]);
    let all = all["groups"].as_array().unwrap();
    let row = all.iter().find(|row| row["group"] == *group).unwrap();
    assert_eq!((&row["totalDiff"], &row["members"]), (&json!(4), &json!(0)));
    let stats = both(&server, "brokerConsumeStats -l 2", &["BEHIND", &group]);
    assert!(stats["totalDiff"].as_i64().unwrap() >= 4);
    admin(&server, "consumerProgress -g none-such").refused(3, "none-such");
}

#[test]
fn offsets_go_where_they_are_told() {
    let server = shared();
    let (group, other) = (unique("moved"), unique("copied"));
    let topic = topic_with(&server, 2, 6);
    admin(&server, &format!("updateSubGroup -g {group}")).good();
    admin(&server, &format!("updateSubGroup -g {other}")).good();
    let reset = format!("resetOffsetByTime -g {group} -t {topic}");
    admin(&server, &format!("{reset} -s now")).refused(2, "--yes");
    let done = both(&server, &format!("{reset} -s now -y"), &["BEFORE", "NOW"]);
    assert_eq!(done["queues"][0]["offset"], 3);
    let address = server.address();
    let done = both(
        &server,
        &format!("{reset} -s 0 -b {address} -q 1 -o 2 -y"),
        &["NOW"],
    );
    assert_eq!(
        (&done["queues"][0]["queueId"], &done["queues"][0]["offset"]),
        (&json!(1), &json!(2))
    );
    let clone = format!("cloneGroupOffset -s {group} -d {other} -t {topic}");
    admin(&server, &clone).refused(2, "--yes");
    let cloned = both(&server, &format!("{clone} -y"), &["NOW"]);
    assert_eq!(cloned["queues"][1]["offset"], 2);
    let skip = format!("skipAccumulatedMessage -g {group} -t {topic}");
    admin(&server, &skip).refused(2, "--yes");
    let done = both(&server, &format!("{skip} -y"), &["NOW"]);
    assert_eq!(done["queues"][1]["offset"], 3);
    let old = format!("resetOffsetByTimeOld -g {other} -t {topic} -s 0 -y");
    let done = both(&server, &old, &["NOW"]);
    assert_eq!(done["queues"][0]["offset"], 0);
    let progress = admin(
        &server,
        &format!("consumerProgress -g {other} --output json"),
    )
    .json();
    assert_eq!(progress["totalDiff"], 6);
    admin(
        &server,
        &format!("resetOffsetByTime -g {group} -t none-such -s now -y"),
    )
    .refused(3, "none-such");
    admin(&server, &format!("{reset} -s now -b Nobody -y")).refused(3, "Nobody");
    admin(&server, &format!("{clone}x -y")).refused(3, "there is no topic");
    admin(&server, &format!("{reset} -s yesterday -y")).refused(2, "not a time");
}

/// A member that answers what brokers ask it.
pub struct Member {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Member {
    pub fn join(server: &Server, id: &str, group: &str, topic: &str) -> Member {
        let mut client = server.connect();
        client
            .call(heartbeat(&Consumer::new(id, group, topic)))
            .expect(0);
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, topic) = (stop.clone(), topic.to_owned());
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                let asked = client.next_request(Duration::from_millis(50));
                if let Some(asked) = asked.filter(|asked| asked.flag & 2 == 0) {
                    answer(&mut client, &asked, &topic);
                }
            }
        });
        Member {
            stop,
            thread: Some(thread),
        }
    }
}

fn answer(client: &mut Client, asked: &Reply, topic: &str) {
    let queue = r#"{"brokerName":"broker-x","queueId":0,"topic":"TOPIC"}"#;
    let body = match asked.code {
        307 => format!(
            r#"{{"properties":{{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"}},"jstack":"main\n at x\u001b",
            "mqTable":{{{queue}:{{"commitOffset":5,"cachedMsgCount":2,"lastPullTimestamp":1700000000000}}}},
            "statusTable":{{"TOPIC":{{"pullTPS":1.5,"consumeOKTPS":2.5,"consumeFailedTPS":0.0,"consumeRT":3.25}}}}}}"#
        ),
        309 => r#"{"consumeResult":"CR_SUCCESS","spentTimeMills":4}"#.to_owned(),
        _ => "{}".to_owned(),
    };
    let body = body.replace("TOPIC", topic).into_bytes();
    let mut frame = Vec::new();
    Response::body(body).encode(&mut frame, Serialize::Json, asked.opaque);
    client.raw(&frame).expect("write");
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn members_are_listed_and_asked() {
    let server = shared();
    let group = unique("joined");
    let topic = topic_with(&server, 1, 1);
    let none = format!("consumerConnection -g {group}");
    admin(&server, &none).refused(3, "no members that are connected");
    let _member = Member::join(&server, "client-1", &group, &topic);

    let listed = both(&server, &none, &["client-1", "EXPRESSION", "CLUSTERING"]);
    assert_eq!(listed["clients"][0]["clientId"], "client-1");
    assert_eq!(listed["messageModel"], "CLUSTERING");
    let subscriptions = listed["subscriptions"].as_array().unwrap();
    assert!(
        subscriptions.iter().any(|row| row["topic"] == *topic),
        "{listed}"
    );

    let status = both(
        &server,
        &format!("consumerStatus -g {group} -s"),
        &["IN HAND", "broker-x", "1.5/s", "at x\\u{1b}"],
    );
    assert_eq!(status["queues"][0]["commitOffset"], 5);
    assert_eq!(status["rates"][0]["consumeOkTps"], 2.5);
    admin(&server, &format!("consumer -g {group} -i client-1")).good();
    admin(&server, &format!("consumerStatus -g {group} -i client-2")).refused(3, "client-2");

    let offsets = both(
        &server,
        &format!("getConsumerStatus -g {group} -t {topic}"),
        &["client-1", "OFFSET"],
    );
    assert_eq!(offsets["queues"][0]["offset"], 5);

    let line = format!("consumerProgress -g {group} -s true --output json");
    assert!(admin(&server, &line).good().json()["queues"].is_array());
    let all = admin(&server, "consumerProgress --output json").json();
    let all = all["groups"].as_array().unwrap();
    let row = all.iter().find(|row| row["group"] == *group).unwrap();
    assert_eq!(row["members"], 1);

    let sent = admin(
        &server,
        &format!("sendMessage -t {topic} -p x --output json"),
    )
    .json();
    let id = sent["offsetMsgId"].as_str().unwrap();
    let given = both(
        &server,
        &format!("queryMsgById -i {id} -g {group} -d client-1"),
        &["CR_SUCCESS"],
    );
    assert_eq!(given["consumeResult"], "CR_SUCCESS");
}

#[test]
fn producers_are_listed() {
    let server = shared();
    let topic = topic_with(&server, 1, 0);
    let group = unique("makers");
    let line = format!("producerConnection -g {group} -t {topic}");
    admin(&server, &line).refused(3, "no producer of group");
    let mut client = server.connect();
    let beat = json!({
        "clientID": "maker-1",
        "producerDataSet": [{ "groupName": group }],
        "consumerDataSet": [],
    });
    let beat = ringmq::wire::command::Request::new(34).with_body(beat.to_string());
    client.call(beat).expect(0);
    let listed = both(&server, &line, &["maker-1"]);
    assert_eq!(listed["clients"][0]["clientId"], "maker-1");
    let all = both(&server, "producer", &["maker-1", "LAST HEARTBEAT"]);
    let all = all["producers"].as_array().unwrap();
    assert!(all.iter().any(|row| row["group"] == *group));
}
