//! What operators ask of a nameserver: lists, permissions, settings, key-value pairs.

use std::time::Duration;

use crate::common::{Client, Config, eventually};
use crate::registration::{Broker, route};
use ringmq::wire::command::Request;
use serde_json::{Value, json};

fn list(client: &mut Client, request: Request) -> Vec<String> {
    let reply = client.call(request).expect(0).json();
    let mut names: Vec<String> = reply["topicList"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn clusters_brokers_and_topics_are_listed() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let a = Broker::new("10.0.0.1:10911", &["T", "U"]);
    let mut b = Broker::new("10.0.0.2:10911", &["U", "V"]);
    b.cluster = "Other".to_owned();
    client.call(a.register()).expect(0);
    client.call(b.register()).expect(0);
    let info = client.call(Request::new(106)).expect(0).json();
    assert_eq!(
        info["brokerAddrTable"][&a.name]["brokerAddrs"]["0"],
        "10.0.0.1:10911"
    );
    assert_eq!(
        info["clusterAddrTable"],
        json!({"TestCluster": [a.name], "Other": [b.name]})
    );
    let mut all = vec![
        a.name.clone(),
        b.name.clone(),
        "T".to_owned(),
        "U".to_owned(),
        "V".to_owned(),
    ];
    all.sort();
    assert_eq!(list(&mut client, Request::new(206)), all);
    let of = |cluster: &str| Request::new(224).with("cluster", cluster);
    assert!(list(&mut client, of("Other")).contains(&"V".to_owned()));
    assert!(!list(&mut client, of("Other")).contains(&"T".to_owned()));
    assert!(list(&mut client, of("none")).is_empty());
    let system = list(&mut client, Request::new(304));
    for name in ["TestCluster", "Other", &a.name, &b.name] {
        assert!(system.contains(&name.to_owned()), "{name} in {system:?}");
    }
    for code in [311, 312, 313] {
        assert!(list(&mut client, Request::new(code)).is_empty());
    }
}

#[test]
fn a_broker_can_be_closed_to_producers_and_opened_again() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let broker = Broker::new("10.0.0.1:10911", &["T", "U"]);
    client.call(broker.register()).expect(0);
    let perm =
        |client: &mut Client| route(client, "T").expect(0).json()["queueDatas"][0]["perm"].as_i64();
    let reply = client
        .call(Request::new(205).with("brokerName", &broker.name))
        .expect(0);
    assert_eq!(reply.int("wipeTopicCount"), 3);
    assert_eq!(perm(&mut client), Some(4));
    // The same table again changes nothing.
    client.call(broker.register()).expect(0);
    assert_eq!(perm(&mut client), Some(4));
    let reply = client
        .call(Request::new(327).with("brokerName", &broker.name))
        .expect(0);
    assert_eq!(reply.int("addTopicCount"), 3);
    assert_eq!(perm(&mut client), Some(6));
    assert_eq!(
        client
            .call(Request::new(205).with("brokerName", "none"))
            .expect(0)
            .int("wipeTopicCount"),
        0
    );
    client.call(Request::new(205)).expect(1);
}

#[test]
fn topics_can_be_deleted_and_registered_by_hand() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let broker = Broker::new("10.0.0.1:10911", &["T", "U"]);
    client.call(broker.register()).expect(0);
    client.call(Request::new(216).with("topic", "T")).expect(0);
    route(&mut client, "T").expect(17);
    route(&mut client, "U").expect(0);
    client
        .call(
            Request::new(216)
                .with("topic", "U")
                .with("clusterName", "none"),
        )
        .expect(0);
    route(&mut client, "U").expect(0);
    let data = |name: &str| json!({"queueDatas": [{"brokerName": name, "perm": 6, "readQueueNums": 3, "writeQueueNums": 2, "topicSysFlag": 0}]});
    let by_hand = |topic: &str, broker: &str| {
        Request::new(217)
            .with("topic", topic)
            .with_body(data(broker).to_string())
    };
    client.call(by_hand("Hand", &broker.name)).expect(0);
    assert_eq!(
        route(&mut client, "Hand").expect(0).json()["queueDatas"][0]["readQueueNums"],
        3
    );
    // One that no broker stands behind would be a route to nowhere.
    client.call(by_hand("Orphan", "no-such-broker"));
    route(&mut client, "Orphan").expect(17);
    client
        .call(Request::new(217).with("topic", "X").with_body("{"))
        .expect(1);
}

#[test]
fn pairs_are_kept_over_a_restart() {
    let mut server = Config::nameserver().start();
    let mut client = server.connect();
    let pair = |code: i32, namespace: &str, key: &str| {
        Request::new(code)
            .with("namespace", namespace)
            .with("key", key)
    };
    client.call(pair(101, "NS", "k")).expect(22);
    client
        .call(Request::new(219).with("namespace", "NS"))
        .expect(22);
    client
        .call(pair(100, "NS", "k").with("value", "v=1;ü \"quoted\""))
        .expect(0);
    client
        .call(pair(100, "NS", "other").with("value", "2"))
        .expect(0);
    client
        .call(pair(100, "NS", "gone").with("value", "3"))
        .expect(0);
    client.call(pair(102, "NS", "gone")).expect(0);
    client.call(pair(102, "NS", "never")).expect(0);
    let check = |client: &mut Client| {
        assert_eq!(
            client.call(pair(101, "NS", "k")).expect(0).ext("value"),
            "v=1;ü \"quoted\""
        );
        client.call(pair(101, "NS", "gone")).expect(22);
        client.call(pair(101, "NO", "k")).expect(22);
        let all = client
            .call(Request::new(219).with("namespace", "NS"))
            .expect(0)
            .json();
        assert_eq!(all["table"], json!({"k": "v=1;ü \"quoted\"", "other": "2"}));
    };
    check(&mut client);
    let file = server.store().join("namesrv/kvConfig.json");
    eventually("the pairs are on disk", Duration::from_secs(5), || {
        std::fs::read_to_string(&file)
            .is_ok_and(|text| text.contains("\"other\"") && !text.contains("\"gone\""))
    });
    server.kill();
    server.start_again();
    check(&mut server.connect());
    for missing in ["namespace", "key"] {
        let request = Request::new(100)
            .with(if missing == "key" { "namespace" } else { "key" }, "x")
            .with("value", "x");
        assert!(
            server
                .connect()
                .call(request)
                .expect(1)
                .remark
                .contains(missing)
        );
    }
    client = server.connect();
    assert_ne!(
        client
            .call(pair(100, "NS", "big").with("value", "x".repeat(5_000_000)))
            .code,
        0
    );
    check(&mut client);
    assert_eq!(server.stop(), 0);
}

#[test]
fn orders_of_topics_reach_brokers_with_their_registration() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let put = Request::new(100)
        .with("namespace", "ORDER_TOPIC_CONFIG")
        .with("key", "T")
        .with("value", "broker-a:4");
    client.call(put).expect(0);
    let reply = client
        .call(Broker::new("10.0.0.1:1", &["T"]).register())
        .expect(0);
    assert_eq!(reply.json()["table"]["T"], "broker-a:4");
}

#[test]
fn settings_are_shown_and_some_can_change() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let text = |client: &mut Client| {
        String::from_utf8(client.call(Request::new(319)).expect(0).body).unwrap()
    };
    let before = text(&mut client);
    assert!(before.contains("enableTopicList=true"), "{before}");
    client
        .call(Request::new(318).with_body("enableTopicList=false"))
        .expect(0);
    assert!(text(&mut client).contains("enableTopicList=false"));
    client
        .call(Request::new(224).with("cluster", "x"))
        .expect(1);
    for wrong in [
        "kvConfigPath=/tmp/x",
        "configStorePath=/tmp/x",
        "rocketmqHome=/tmp",
        "listenPort=1",
        "enableTopicList=maybe",
    ] {
        let reply =
            client.call(Request::new(318).with_body(format!("enableTopicList=true\n{wrong}")));
        assert_ne!(reply.code, 0, "{wrong}");
        assert!(
            text(&mut client).contains("enableTopicList=false"),
            "{wrong} changed something"
        );
    }
    let _: Value = client.call(Request::new(106)).expect(0).json();
}
