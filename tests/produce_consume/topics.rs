//! Topics: made, changed, found, deleted.

use crate::common::{Config, Pull, Send, eventually, shared, topic, unique};
use ringmq::wire::command::Request;
use std::time::Duration;

fn config(client: &mut crate::common::Client, name: &str) -> serde_json::Value {
    client
        .call(Request::new(351).with("topic", name))
        .expect(0)
        .json()
}

#[test]
fn a_send_makes_its_topic_from_the_template() {
    let server = shared();
    let mut client = server.connect();
    for (asked, made) in [(4, 4), (1, 1), (8, 8), (100, 8)] {
        let name = unique("Auto");
        let mut send = Send::new(&name, "first");
        send.default_queues = asked;
        client.call(send).expect(0);
        let config = config(&mut client, &name);
        assert_eq!(config["readQueueNums"], made, "{config}");
        assert_eq!(config["writeQueueNums"], made);
        assert_eq!(config["perm"], 6, "it does not pass itself on");
        // The route was there before the answer.
        let route = server
            .connect_nameserver()
            .call(Request::new(105).with("topic", &name))
            .expect(0)
            .json();
        assert_eq!(route["queueDatas"][0]["writeQueueNums"], made);
        assert_eq!(
            client.call(Pull::new(&name, 0, 0)).expect(0).records()[0].body,
            b"first"
        );
    }
}

#[test]
fn many_first_sends_make_one_topic() {
    let server = shared();
    let name = unique("AtOnce");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let (mut client, name) = (server.connect(), &name);
            scope.spawn(move || {
                let opaques: Vec<i32> = (0..10)
                    .map(|n| client.send(Send::new(name, "x").queue(n % 4)))
                    .collect();
                opaques
                    .into_iter()
                    .for_each(|opaque| drop(client.receive(opaque).expect(0)));
            });
        }
    });
    let mut client = server.connect();
    let stored: i64 = (0..4)
        .map(|queue| crate::common::max_offset(&mut client, &name, queue))
        .sum();
    assert_eq!(stored, 160);
}

#[test]
fn templates_other_than_tbw102() {
    let server = shared();
    let mut client = server.connect();
    let mut with = |template: &str| {
        let name = unique("Template");
        let mut send = Send::new(&name, "x");
        send.default_topic = template.to_owned();
        let code = client.call(send).code;
        (
            code,
            client.call(Request::new(351).with("topic", &name)).code,
        )
    };
    assert_eq!(with("DefaultCluster"), (0, 0));
    assert_eq!(with("BenchmarkTest"), (17, 17), "one that is not passed on");
    assert_eq!(with("no-such-topic"), (17, 17));
    assert_eq!(with(""), (17, 17));
}

#[test]
fn nothing_makes_a_topic_while_that_is_switched_off() {
    let server = Config::server().set("autoCreateTopicEnable", false).start();
    let mut client = server.connect();
    let broker = client.call(Request::new(26)).expect(0);
    let broker = String::from_utf8(broker.body).unwrap();
    let broker = broker
        .lines()
        .find_map(|line| line.strip_prefix("brokerName="))
        .unwrap()
        .to_owned();
    for template in ["TBW102", "DefaultCluster", &broker, "BenchmarkTest"] {
        let mut send = Send::new("Wanted", "x");
        send.default_topic = template.to_owned();
        client.call(send).expect(17);
    }
    client
        .call(Request::new(351).with("topic", "Wanted"))
        .expect(17);
    server
        .connect_nameserver()
        .call(Request::new(105).with("topic", "TBW102"))
        .expect(17);
    // By hand it can be made.
    topic(&mut client, "Wanted", 1);
    client.call(Send::new("Wanted", "x")).expect(0);
    // Switched on at run time, and off again.
    client
        .call(Request::new(25).with_body("autoCreateTopicEnable=true"))
        .expect(0);
    client.call(Send::new("Made", "x")).expect(0);
    server
        .connect_nameserver()
        .call(Request::new(105).with("topic", "TBW102"))
        .expect(0);
    client
        .call(Request::new(25).with_body("autoCreateTopicEnable=false"))
        .expect(0);
    client.call(Send::new("NotMade", "x")).expect(17);
    client.call(Send::new("Made", "x")).expect(0);
}

#[test]
fn tbw102_is_gone_after_a_restart_with_creation_switched_off() {
    let mut server = Config::server().start();
    server.connect().call(Send::new("Made", "x")).expect(0);
    assert_eq!(server.stop(), 0);
    server.config = server.config.clone().set("autoCreateTopicEnable", false);
    server.start_again();
    server
        .connect_nameserver()
        .call(Request::new(105).with("topic", "TBW102"))
        .expect(17);
    server
        .connect_nameserver()
        .call(Request::new(105).with("topic", "Made"))
        .expect(0);
    server.connect().call(Send::new("Other", "x")).expect(17);
    server.connect().call(Send::new("Made", "x")).expect(0);
}

#[test]
fn the_template_has_as_many_queues_as_set() {
    let server = Config::server().set("defaultTopicQueueNums", 3).start();
    let mut client = server.connect();
    client.call(Send::new("T", "x")).expect(0);
    assert_eq!(config(&mut client, "T")["writeQueueNums"], 3);
}

#[test]
fn an_operator_makes_changes_and_deletes_a_topic() {
    let server = shared();
    let name = unique("Admin");
    let mut client = server.connect();
    let set = |read: i32, write: i32, perm: i32, order: bool| {
        Request::new(17)
            .with("topic", &name)
            .with("readQueueNums", read)
            .with("writeQueueNums", write)
            .with("perm", perm)
            .with("order", order)
            .with("topicSysFlag", 0)
            .with("topicFilterType", "SINGLE_TAG")
            .with("attributes", "+message.type=NORMAL")
    };
    client.call(set(2, 2, 6, false)).expect(0);
    let made = config(&mut client, &name);
    assert_eq!(made["topicName"], name.as_str());
    assert_eq!(made["attributes"]["message.type"], "NORMAL");
    let route = |server: &crate::common::Shared| {
        server
            .connect_nameserver()
            .call(Request::new(105).with("topic", &name))
    };
    assert_eq!(
        route(&server).expect(0).json()["queueDatas"][0]["readQueueNums"],
        2
    );
    client.call(set(5, 3, 4, true)).expect(0);
    let made = config(&mut client, &name);
    assert_eq!(
        (
            made["readQueueNums"].as_i64(),
            made["writeQueueNums"].as_i64()
        ),
        (Some(5), Some(3))
    );
    assert_eq!(
        (made["perm"].as_i64(), made["order"].as_bool()),
        (Some(4), Some(true))
    );
    let queues = route(&server).expect(0).json()["queueDatas"][0].clone();
    assert_eq!(
        (queues["readQueueNums"].as_i64(), queues["perm"].as_i64()),
        (Some(5), Some(4))
    );
    for (queue, code) in [(4, 0), (5, 29)] {
        client.call(Send::new(&name, "x").queue(queue)).expect(code);
    }
    let all = client.call(Request::new(21)).expect(0).json();
    assert_eq!(all["topicConfigTable"][&name]["writeQueueNums"], 3);
    assert!(all["dataVersion"]["counter"].as_i64() > Some(0));
    client
        .call(Request::new(215).with("topic", &name))
        .expect(0);
    client
        .call(Request::new(351).with("topic", &name))
        .expect(17);
    client.call(Pull::new(&name, 4, 0)).expect(17);
    client
        .call(Request::new(202).with("topic", &name))
        .expect(17);
    let all = client.call(Request::new(21)).expect(0).json();
    assert!(all["topicConfigTable"][&name].is_null());
    // Once more, and one that never was: nothing to do.
    client
        .call(Request::new(215).with("topic", &name))
        .expect(0);
}

#[test]
fn a_deleted_topic_takes_its_queues_with_it() {
    let server = Config::server().shards(2).start();
    let mut client = server.connect();
    topic(&mut client, "Doomed", 4);
    for queue in 0..4 {
        client.call(Send::new("Doomed", "x").queue(queue)).expect(0);
    }
    assert_eq!(server.stop(), 0);
    let mut server = server;
    let folders = [
        server.store().join("consumequeue/Doomed"),
        server.store().join("shard-1/consumequeue/Doomed"),
    ];
    assert!(
        folders.iter().all(|folder| folder.exists()),
        "both shards have queues of it"
    );
    server.start_again();
    let mut client = server.connect();
    client
        .call(Request::new(215).with("topic", "Doomed"))
        .expect(0);
    eventually("no folder of the topic", Duration::from_secs(10), || {
        !folders.iter().any(|folder| folder.exists())
    });
}

#[test]
fn what_cannot_be_a_topic_is_refused_whole() {
    let server = shared();
    let mut client = server.connect();
    let name = unique("Wrong");
    let make = |topic: &str, queues: i32, perm: i32| {
        Request::new(17)
            .with("topic", topic)
            .with("readQueueNums", queues)
            .with("writeQueueNums", queues)
            .with("perm", perm)
    };
    for request in [
        make("TBW102", 4, 6),
        make("SCHEDULE_TOPIC_XXXX", 4, 6),
        make("rmq_sys_mine", 4, 6),
        make("DefaultCluster", 4, 6),
        make(&name, -1, 6),
        make(&name, i32::MAX, 6),
        make(&name, 4, 99),
        make(&name, 4, -1),
    ] {
        client.call(request).expect(29);
    }
    let mixed = make(&name, 4, 6).with("attributes", "+message.type=MIXED");
    assert_ne!(client.call(mixed).code, 0);
    let unknown = make(&name, 4, 6).with("attributes", "+no.such.thing=1");
    assert_ne!(client.call(unknown).code, 0);
    client
        .call(Request::new(351).with("topic", &name))
        .expect(17);
    // A list is made whole or not at all.
    let one = |topic: &str| serde_json::json!({"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6});
    let list = |topics: &[serde_json::Value]| {
        Request::new(18).with_body(serde_json::json!({"topicConfigList": topics}).to_string())
    };
    client.call(list(&[one(&name), one("a/b")])).expect(29);
    client
        .call(Request::new(351).with("topic", &name))
        .expect(17);
    let other = unique("Listed");
    client.call(list(&[one(&name), one(&other)])).expect(0);
    for topic in [&name, &other] {
        client.call(Send::new(topic, "x")).expect(0);
    }
}

#[test]
fn system_topics_are_listed_and_exist() {
    let server = shared();
    let mut client = server.connect();
    let list = client.call(Request::new(305)).expect(0).json();
    let list: Vec<&str> = list["topicList"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t.as_str().unwrap())
        .collect();
    for topic in [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "DefaultCluster",
    ] {
        assert!(list.contains(&topic), "{topic} in {list:?}");
    }
    let queues = |client: &mut crate::common::Client, topic: &str| {
        config(client, topic)["writeQueueNums"].as_i64()
    };
    assert_eq!(queues(&mut client, "BenchmarkTest"), Some(1024));
    assert_eq!(queues(&mut client, "SCHEDULE_TOPIC_XXXX"), Some(18));
    assert_eq!(config(&mut client, "TBW102")["perm"], 7);
}
