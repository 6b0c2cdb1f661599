//! Groups, their members, and the locks of their queues.

use std::time::{Duration, Instant};

use crate::common::{
    Client, Config, Consumer, Pull, Send, commit, committed, eventually, heartbeat, shared, topic,
    unique,
};
use ringmq::wire::command::Request;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// The members of a group; none where code 1 says so.
fn members(client: &mut Client, group: &str) -> Vec<String> {
    let reply = client.call(Request::new(38).with("consumerGroup", group));
    if reply.code == 1 {
        return Vec::new();
    }
    let list = reply.expect(0).json();
    let mut ids: Vec<String> = list["consumerIdList"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

fn unregister(client_id: &str, group: &str) -> Request {
    Request::new(35)
        .with("clientID", client_id)
        .with("producerGroup", "CLIENT_INNER_PRODUCER")
        .with("consumerGroup", group)
}

#[test]
fn members_are_told_when_others_come_and_go() {
    let server = shared();
    let (name, group) = (unique("Members"), unique("members"));
    topic(&mut server.connect(), &name, 4);
    let beat = |id: &str| heartbeat(&Consumer::new(id, &group, &name));
    // On both shards, whichever the connections land on.
    let mut first = server.connect();
    let reply = first.call(beat("first")).expect(0);
    assert_eq!(reply.ext("IS_SUPPORT_HEART_BEAT_V2"), "true");
    assert_eq!(reply.version, 479);
    let told = |client: &mut Client, why: &str| {
        let began = Instant::now();
        let notice = client
            .next_request(SECOND)
            .unwrap_or_else(|| panic!("not told within a second: {why}"));
        assert_eq!((notice.code, notice.flag & 2), (40, 2));
        assert_eq!(notice.ext("consumerGroup"), group);
        while client.next_request(Duration::from_millis(50)).is_some() {}
        began.elapsed()
    };
    assert_eq!(members(&mut first, &group), ["first"]);
    while first.next_request(Duration::from_millis(100)).is_some() {}
    for round in 0..3 {
        let mut second = server.connect();
        second.call(beat("second")).expect(0);
        told(&mut first, "second joined");
        assert_eq!(members(&mut first, &group), ["first", "second"]);
        match round {
            0 => drop(second.call(unregister("second", &group)).expect(0)),
            1 => drop(second),
            _ => {
                // Only one of two groups ends.
                let other = unique("other");
                second
                    .call(heartbeat(&Consumer::new("second", &other, &name)))
                    .expect(0);
                second.call(unregister("second", &group)).expect(0);
                assert_eq!(members(&mut first, &other), ["second"]);
            }
        }
        told(&mut first, "second left");
        assert_eq!(members(&mut first, &group), ["first"]);
    }
    // The same again changes nothing.
    first.call(beat("first")).expect(0);
    assert!(first.next_request(Duration::from_millis(200)).is_none());
    first.call(unregister("first", &group)).expect(0);
    assert!(members(&mut first, &group).is_empty());
}

#[test]
fn members_are_told_on_every_connection() {
    let server = shared();
    let (name, group) = (unique("Crowd"), unique("crowd"));
    topic(&mut server.connect(), &name, 4);
    let mut clients: Vec<Client> = (0..12).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client
            .call(heartbeat(&Consumer::new(
                &format!("c{n:02}"),
                &group,
                &name,
            )))
            .expect(0);
    }
    eventually("all of them", SECOND * 5, || {
        members(&mut clients[0], &group).len() == 12
    });
    for client in &mut clients {
        while client.next_request(Duration::from_millis(50)).is_some() {}
    }
    drop(clients.pop());
    for client in &mut clients {
        assert_eq!(client.next_request(SECOND * 2).expect("told").code, 40);
    }
}

#[test]
fn broadcasting_members_are_not_told_of_each_other() {
    let server = shared();
    let (name, group) = (unique("Broadcast"), unique("broadcast"));
    topic(&mut server.connect(), &name, 1);
    let mut consumer = Consumer::new("a", &group, &name);
    consumer.model = "BROADCASTING";
    let mut first = server.connect();
    first.call(heartbeat(&consumer)).expect(0);
    consumer.client_id = "b".to_owned();
    server.connect().call(heartbeat(&consumer)).expect(0);
    assert!(first.next_request(Duration::from_millis(300)).is_none());
}

#[test]
fn a_heartbeat_makes_the_retry_topic_with_its_route() {
    let server = shared();
    let (name, group) = (unique("Retry"), unique("retry"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    client
        .call(heartbeat(&Consumer::new("c", &group, &name)))
        .expect(0);
    let retry = format!("%RETRY%{group}");
    let config = client
        .call(Request::new(351).with("topic", &retry))
        .expect(0)
        .json();
    assert_eq!(
        (config["readQueueNums"].as_i64(), config["perm"].as_i64()),
        (Some(1), Some(6))
    );
    server
        .connect_nameserver()
        .call(Request::new(105).with("topic", &retry))
        .expect(0);
}

#[test]
fn a_client_that_falls_silent_is_no_member_any_more() {
    let server = Config::server().set("channelExpiredTimeout", 1000).start();
    let mut client = server.connect();
    topic(&mut client, "T", 1);
    client
        .call(heartbeat(&Consumer::new("silent", "old", "T")))
        .expect(0);
    let began = Instant::now();
    let mut beating = Consumer::new("silent", "kept", "T");
    while !members(&mut client, "old").is_empty() {
        // In one group it goes on, on the same connection.
        beating.version += 1;
        client.call(heartbeat(&beating)).expect(0);
        assert!(began.elapsed() < SECOND * 20, "still a member");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(members(&mut client, "kept"), ["silent"]);
}

#[test]
fn second_version_heartbeats() {
    let server = shared();
    let (name, group) = (unique("V2"), unique("v2"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let beat = |fingerprint: i32, without: bool| {
        let subscription =
            json!({"topic": name, "subString": "A", "subVersion": 1, "expressionType": "TAG"});
        let body = json!({
            "clientID": "c", "heartbeatFingerprint": fingerprint, "withoutSub": without, "producerDataSet": [],
            "consumerDataSet": [{"groupName": group, "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": if without { json!([]) } else { json!([subscription]) }}],
        });
        Request::new(34).with_body(body.to_string())
    };
    client.call(beat(77, false)).expect(0);
    client.call(beat(77, true)).expect(0);
    let subscription = client
        .call(Request::new(345).with("group", &group).with("topic", &name))
        .expect(0)
        .json();
    assert_eq!(
        subscription["subscriptionData"]["subString"], "A",
        "what was left out stays: {subscription}"
    );
    assert_eq!(
        client.call(beat(78, true)).expect(0).ext("IS_SUB_CHANGE"),
        "true"
    );
}

#[test]
fn connections_and_subscriptions_are_shown() {
    let server = shared();
    let (name, group) = (unique("Shown"), unique("shown"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let ask = |code: i32, key: &str| Request::new(code).with(key, &group);
    client.call(ask(203, "consumerGroup")).expect(206);
    client.call(ask(204, "producerGroup")).expect(1);
    let mut consumer = Consumer::new("the-client", &group, &name);
    (consumer.expression, consumer.version) = ("A||B".to_owned(), 5);
    client.call(heartbeat(&consumer)).expect(0);
    let shown = client.call(ask(203, "consumerGroup")).expect(0).json();
    let connection = &shown["connectionSet"][0];
    assert_eq!(connection["clientId"], "the-client");
    assert_eq!(
        connection["clientAddr"],
        client.stream.local_addr().unwrap().to_string()
    );
    assert_eq!(
        (
            connection["language"].as_str(),
            connection["version"].as_i64()
        ),
        (Some("JAVA"), Some(479))
    );
    assert_eq!(shown["messageModel"], "CLUSTERING");
    assert_eq!(shown["subscriptionTable"][&name]["subString"], "A||B");
    let shown = client
        .call(ask(345, "group").with("topic", &name))
        .expect(0)
        .json();
    assert_eq!(shown["subscriptionData"]["subVersion"], 5);
    let producers = client
        .call(Request::new(204).with("producerGroup", "CLIENT_INNER_PRODUCER"))
        .expect(0)
        .json();
    let ids: Vec<&Value> = producers["connectionSet"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["clientId"])
        .collect();
    assert!(ids.contains(&&json!("the-client")), "{ids:?}");
    let all = client.call(Request::new(328)).expect(0).json();
    assert!(
        all["data"]["CLIENT_INNER_PRODUCER"]
            .as_array()
            .is_some_and(|list| !list.is_empty()),
        "{all}"
    );
    // Who consumes a topic, and what a group consumes.
    client.call(commit(&group, &name, 0, 1)).expect(0);
    let groups = client
        .call(Request::new(300).with("topic", &name))
        .expect(0)
        .json();
    assert_eq!(groups["groupList"], json!([group]));
    let topics = client
        .call(Request::new(343).with("group", &group))
        .expect(0)
        .json();
    assert_eq!(topics["topicList"], json!([name]));
}

#[test]
fn what_a_client_wants_checked() {
    let server = shared();
    let mut client = server.connect();
    let check = |kind: &str| {
        let body = json!({"clientId": "c", "group": "g", "subscriptionData":
            {"topic": "T", "subString": "a > 5", "expressionType": kind, "subVersion": 1}});
        Request::new(46).with_body(body.to_string())
    };
    client.call(check("TAG")).expect(0);
    client.call(check("SQL92")).expect(1);
}

fn lock_request(code: i32, group: &str, client: &str, queues: &[i32]) -> Request {
    let set: Vec<Value> = queues
        .iter()
        .map(|q| json!({"topic": "T", "brokerName": "b", "queueId": q}))
        .collect();
    let body =
        json!({"consumerGroup": group, "clientId": client, "onlyThisBroker": false, "mqSet": set});
    Request::new(code).with_body(body.to_string())
}

/// Queues that a client gets of those it asks for.
fn lock(on: &mut Client, group: &str, client: &str, queues: &[i32]) -> Vec<i64> {
    let reply = on
        .call(lock_request(41, group, client, queues))
        .expect(0)
        .json();
    let granted = reply["lockOKMQSet"].as_array().unwrap();
    assert!(
        granted
            .iter()
            .all(|queue| queue["topic"] == "T" && queue["brokerName"] == "b"),
        "the same objects"
    );
    let mut ids: Vec<i64> = granted
        .iter()
        .map(|queue| queue["queueId"].as_i64().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_queue_has_one_holder() {
    let server = shared();
    let group = unique("locks");
    let (mut a, mut b) = (server.connect(), server.connect());
    let began = Instant::now();
    assert_eq!(lock(&mut a, &group, "a", &[0, 1, 2]), [0, 1, 2]);
    assert!(began.elapsed() < SECOND, "the first one does not wait");
    assert_eq!(lock(&mut b, &group, "b", &[1, 2, 3]), [3]);
    assert_eq!(
        lock(&mut a, &group, "a", &[0, 1, 3]),
        [0, 1],
        "its own again"
    );
    a.call(lock_request(42, &group, "a", &[1])).expect(0);
    b.call(lock_request(42, &group, "b", &[0])).expect(0);
    assert_eq!(
        lock(&mut b, &group, "b", &[0, 1]),
        [1],
        "0 was not b's to give back"
    );
    assert_eq!(
        lock(&mut b, &unique("other-locks"), "b", &[0, 1]),
        [0, 1],
        "each group has its own"
    );
    assert!(lock(&mut a, &group, "a", &[]).is_empty());
}

#[test]
fn locks_end_with_their_holder() {
    let server = shared();
    let (name, group) = (unique("Holder"), unique("holder"));
    let (mut a, mut b) = (server.connect(), server.connect());
    topic(&mut a, &name, 1);
    a.call(heartbeat(&Consumer::new("a", &group, &name)))
        .expect(0);
    assert_eq!(lock(&mut a, &group, "a", &[0]), [0]);
    assert!(lock(&mut b, &group, "b", &[0]).is_empty());
    drop(a);
    eventually("the lock is free", SECOND * 3, || {
        lock(&mut b, &group, "b", &[0]) == [0]
    });
}

#[test]
fn a_lock_that_is_not_renewed_ends_after_the_time_that_is_set() {
    let server = Config::server().set("lockMaxLiveTime", 500).start();
    let (mut a, mut b) = (server.connect(), server.connect());
    assert_eq!(lock(&mut a, "g", "a", &[0]), [0]);
    assert!(lock(&mut b, "g", "b", &[0]).is_empty());
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(lock(&mut b, "g", "b", &[0]), [0]);
}

#[test]
fn an_operator_makes_changes_and_deletes_a_group() {
    let server = shared();
    let (name, group) = (unique("OfGroup"), unique("managed"));
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let set = |max: i32, enabled: bool| {
        let body = json!({"groupName": group, "consumeEnable": enabled, "consumeFromMinEnable": true,
            "consumeBroadcastEnable": true, "retryQueueNums": 1, "retryMaxTimes": max, "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": true,
            "attributes": {}, "groupRetryPolicy": {"type": "CUSTOMIZED"}});
        Request::new(200).with_body(body.to_string())
    };
    client
        .call(Request::new(352).with("group", &group))
        .expect(26);
    client.call(set(3, true)).expect(0);
    let config = client
        .call(Request::new(352).with("group", &group))
        .expect(0)
        .json();
    assert_eq!(
        (
            config["retryMaxTimes"].as_i64(),
            config["groupName"].as_str()
        ),
        (Some(3), Some(group.as_str()))
    );
    client.call(set(5, false)).expect(0);
    client.call(Pull::new(&name, 0, 0).group(&group)).expect(16);
    let all = client.call(Request::new(201)).expect(0).json();
    assert_eq!(all["subscriptionGroupTable"][&group]["retryMaxTimes"], 5);
    client.call(commit(&group, &name, 0, 1)).expect(0);
    client
        .call(Request::new(207).with("groupName", &group))
        .expect(0);
    client
        .call(Request::new(352).with("group", &group))
        .expect(26);
    assert_eq!(
        committed(&mut client, &group, &name, 0)
            .expect(0)
            .int("offset"),
        1,
        "offsets stay"
    );
    client.call(set(5, true)).expect(0);
    client
        .call(
            Request::new(207)
                .with("groupName", &group)
                .with("cleanOffset", true),
        )
        .expect(0);
    committed(&mut client, &group, &name, 0).expect(22);
    // It comes back with the defaults when it is used.
    client.call(Send::new(&name, "x")).expect(0);
    client.call(Pull::new(&name, 0, 0).group(&group)).expect(0);
    let config = client
        .call(Request::new(352).with("group", &group))
        .expect(0)
        .json();
    assert_eq!(config["retryMaxTimes"], 16);
}
