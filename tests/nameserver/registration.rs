//! Registrations by hand, in all the forms that brokers of all ages use.

use std::io::Write;
use std::time::Duration;

use crate::common::{Client, Config, Reply, eventually, now_ms, unique};
use ringmq::wire::command::Request;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// A broker as it registers.
#[derive(Clone)]
pub struct Broker {
    pub name: String,
    pub address: String,
    pub cluster: String,
    pub id: i64,
    pub topics: Vec<String>,
    pub counter: i64,
}

impl Broker {
    pub fn new(address: &str, topics: &[&str]) -> Broker {
        let name = unique("broker");
        let own = [name.as_str()];
        Broker {
            topics: own
                .iter()
                .chain(topics)
                .map(|topic| topic.to_string())
                .collect(),
            name,
            address: address.to_owned(),
            cluster: "TestCluster".to_owned(),
            id: 0,
            counter: 1,
        }
    }

    /// A request that names the broker.
    pub fn request(&self, code: i32) -> Request {
        Request::new(code)
            .with("brokerName", &self.name)
            .with("brokerAddr", &self.address)
            .with("clusterName", &self.cluster)
            .with("haServerAddr", "127.0.0.1:10912")
            .with("brokerId", self.id)
    }

    fn version(&self) -> Value {
        json!({"counter": self.counter, "stateVersion": 0, "timestamp": 1_700_000_000_000_i64})
    }

    fn table(&self) -> Value {
        let topic = |name: &String| {
            let config = json!({"attributes": {}, "order": false, "perm": 6, "readQueueNums": 8,
                "topicFilterType": "SINGLE_TAG", "topicName": name, "topicSysFlag": 0, "writeQueueNums": 8});
            (name.clone(), config)
        };
        Value::Object(self.topics.iter().map(topic).collect())
    }

    fn wrapper(&self) -> Value {
        json!({"dataVersion": self.version(), "topicConfigTable": self.table()})
    }

    /// The form of today's brokers.
    pub fn register(&self) -> Request {
        let body = json!({"filterServerList": [], "topicConfigSerializeWrapper": self.wrapper()})
            .to_string();
        let crc = crc32fast::hash(body.as_bytes()) & 0x7fff_ffff;
        self.request(103)
            .with("bodyCrc32", crc)
            .with("compressed", false)
            .with_body(body)
    }

    /// The compressed form; with mappings from version 5 on.
    fn register_compressed(&self, version: i32) -> Request {
        let mut plain = Vec::new();
        let mut piece = |text: String| {
            plain.extend_from_slice(&(text.len() as i32).to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        };
        piece(self.version().to_string());
        let topics: Vec<String> = self
            .topics
            .iter()
            .map(|topic| format!("{topic} 8 8 6 SINGLE_TAG {{}}"))
            .collect();
        plain.extend_from_slice(&(topics.len() as i32).to_be_bytes());
        for text in topics.iter().map(String::as_str).chain(["[]"]) {
            plain.extend_from_slice(&(text.len() as i32).to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        }
        if version >= 413 {
            plain.extend_from_slice(&0_i32.to_be_bytes());
        }
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&plain).unwrap();
        let body = zlib.finish().unwrap();
        let crc = crc32fast::hash(&body) & 0x7fff_ffff;
        let request = self
            .request(103)
            .with("bodyCrc32", crc)
            .with("compressed", true);
        let mut request = request.with_body(body);
        request.fixed.version = version;
        request
    }
}

pub fn route(client: &mut Client, topic: &str) -> Reply {
    client.call(Request::new(105).with("topic", topic))
}

#[test]
fn a_topic_that_nobody_has_is_code_17() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    for topic in ["T", "TBW102", "", "a/b", "%RETRY%g", &"x".repeat(100_000)] {
        let reply = route(&mut client, topic).expect(17);
        assert!(reply.remark.len() < 1000);
    }
    client.call(Request::new(105)).expect(1);
    client.call(Request::new(9999)).expect(3);
    client.call(Request::new(106)).expect(0);
    let lists = client.call(Request::new(206)).expect(0).json();
    assert_eq!(lists["topicList"], json!([]));
}

#[test]
fn every_form_of_a_registration_gives_the_same_route() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let old = |version: i32, broker: &Broker| {
        let mut request = broker.request(103).with_body(broker.wrapper().to_string());
        request.fixed.version = version;
        request
    };
    let loose = |broker: &Broker| {
        // As fastjson wrote it: keys without quotes, members that nobody reads.
        let text = format!(
            "{{filterServerList:[],topicConfigSerializeWrapper:{{dataVersion:{},topicConfigTable:{},extra:{{1:2}}}}}}",
            broker.version(),
            broker.table()
        );
        broker.request(103).with_body(text)
    };
    let forms: [(&str, &dyn Fn(&Broker) -> Request); 6] = [
        ("today's", &Broker::register),
        ("compressed, 5.3", &|broker| broker.register_compressed(479)),
        ("compressed, 4.9", &|broker| broker.register_compressed(401)),
        ("before 3.0.11", &|broker| old(36, broker)),
        ("fastjson", &loose),
        ("without a checksum", &|broker| {
            broker.register().with("bodyCrc32", 0)
        }),
    ];
    for (n, (what, form)) in forms.into_iter().enumerate() {
        let topic = unique("T");
        let broker = Broker::new(&format!("10.0.0.{n}:10911"), &[&topic, "Common"]);
        let reply = client.call(form(&broker));
        assert_eq!(reply.code, 0, "{what}: {}", reply.remark);
        let reply = route(&mut client, &topic).expect(0);
        let text = String::from_utf8(reply.body.clone()).unwrap();
        // Go's parser takes it apart as text.
        assert!(
            text.contains(&format!("\"brokerAddrs\":{{\"0\":\"10.0.0.{n}:10911\"}}")),
            "{what}: {text}"
        );
        assert!(
            !text.contains(": ") && !text.contains(", "),
            "{what}: {text}"
        );
        let route = reply.json();
        assert_eq!(route["brokerDatas"][0]["brokerName"], broker.name);
        assert_eq!(route["brokerDatas"][0]["cluster"], "TestCluster");
        let queues = &route["queueDatas"][0];
        assert_eq!(
            (queues["readQueueNums"].as_i64(), queues["perm"].as_i64()),
            (Some(8), Some(6)),
            "{what}"
        );
        assert_eq!(queues["topicSysFlag"], 0);
    }
    let common = route(&mut client, "Common").expect(0).json();
    assert_eq!(common["brokerDatas"].as_array().unwrap().len(), 6);
}

#[test]
fn clients_of_all_ages_get_routes_they_can_read() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    client
        .call(Broker::new("10.0.0.1:10911", &["T"]).register())
        .expect(0);
    let mut texts = Vec::new();
    for version in [28, 317, 400, 401, 479, 612] {
        let mut request = Request::new(105).with("topic", "T");
        request.fixed.version = version;
        texts.push(client.call(request).expect(0).body);
    }
    let strict = Request::new(105)
        .with("topic", "T")
        .with("acceptStandardJsonOnly", true);
    texts.push(client.call(strict).expect(0).body);
    assert!(texts.iter().all(|text| *text == texts[0]));
    let _: Value = serde_json::from_slice(&texts[0]).expect("strict JSON");
}

#[test]
fn a_registration_that_is_not_right_changes_nothing() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let broker = Broker::new("10.0.0.1:10911", &["T", "U"]);
    let mut negative = broker.clone();
    negative.id = -1;
    let bad: Vec<(&str, Request)> = vec![
        ("a wrong checksum", broker.register().with("bodyCrc32", 5)),
        (
            "half a body",
            broker
                .request(103)
                .with_body("{\"topicConfigSerializeWrapper\":{"),
        ),
        (
            "compressed, and it is not",
            broker
                .register()
                .with("compressed", true)
                .with("bodyCrc32", 0),
        ),
        ("a negative id", negative.register()),
        (
            "a name with a slash",
            broker.register().with("brokerName", "a/b\0c"),
        ),
        (
            "an address that is none",
            broker.register().with("brokerAddr", "x\",\"1\":\"y"),
        ),
        ("no address", broker.register().with("brokerAddr", "")),
        (
            "a name of 10 kB",
            broker.register().with("brokerName", "n".repeat(10_240)),
        ),
    ];
    for (what, request) in bad {
        let reply = client.call(request);
        assert_eq!(reply.code, 1, "{what}");
        assert!(!reply.remark.is_empty());
        route(&mut client, "T").expect(17);
    }
    for missing in [
        "brokerName",
        "brokerAddr",
        "clusterName",
        "haServerAddr",
        "brokerId",
    ] {
        let whole = broker.register();
        let base = Request::new(103).with_body(whole.body.clone());
        let kept = whole.ext().filter(|(key, _)| *key != missing);
        let request = kept.fold(base, |request, (key, value)| request.with(key, value));
        let reply = client.call(request).expect(1);
        assert!(reply.remark.contains(missing), "{}", reply.remark);
    }
    client.call(broker.register()).expect(0);
    route(&mut client, "T").expect(0);
}

#[test]
fn a_bomb_is_not_inflated() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1024 * 1024];
    for _ in 0..1024 {
        zlib.write_all(&zeros).unwrap();
    }
    let before = server.resident();
    let request = Broker::new("10.0.0.1:1", &[])
        .request(103)
        .with("compressed", true);
    client
        .call(request.with_body(zlib.finish().unwrap()))
        .expect(1);
    assert!(server.resident().saturating_sub(before) < 400 * 1024 * 1024);
}

#[test]
fn a_single_topic_waits_for_the_whole_table() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let whole = Broker::new("10.0.0.1:10911", &["T", "U"]);
    let mut single = whole.clone();
    (single.topics, single.counter) = (vec!["U".to_owned()], 5);
    client.call(single.register()).expect(1);
    route(&mut client, "U").expect(17);
    client.call(whole.register()).expect(0);
    route(&mut client, "T").expect(0);
    (single.topics, single.counter) = (vec!["V".to_owned()], 6);
    client.call(single.register()).expect(0);
    for topic in ["T", "U", "V"] {
        route(&mut client, topic).expect(0);
    }
}

#[test]
fn a_broker_goes_with_its_connection_its_word_or_its_silence() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    // Its connection.
    let broker = Broker::new("10.0.0.1:10911", &["Closed"]);
    let mut own = server.connect();
    own.call(broker.register()).expect(0);
    route(&mut client, "Closed").expect(0);
    drop(own);
    eventually("no route", SECOND, || {
        route(&mut client, "Closed").code == 17
    });
    // Its word.
    let broker = Broker::new("10.0.0.2:10911", &["Left"]);
    client.call(broker.register()).expect(0);
    let mut another = broker.clone();
    another.address = "10.0.0.9:10911".to_owned();
    client.call(another.request(104)).expect(0);
    route(&mut client, "Left").expect(0);
    client.call(broker.request(104)).expect(0);
    route(&mut client, "Left").expect(17);
    client.call(broker.request(104)).expect(0);
    // Its silence, which it may name itself.
    let silent = Broker::new("10.0.0.3:10911", &["Silent"]);
    let beating = Broker::new("10.0.0.4:10911", &["Beating"]);
    let (mut first, mut second) = (server.connect(), server.connect());
    first
        .call(silent.register().with("heartbeatTimeoutMillis", 1000))
        .expect(0);
    second
        .call(beating.register().with("heartbeatTimeoutMillis", 8000))
        .expect(0);
    route(&mut client, "Silent").expect(0);
    let began = now_ms();
    eventually("it has gone silent", SECOND * 10, || {
        second.call(beating.request(904)).expect(0);
        route(&mut client, "Silent").code == 17
    });
    assert!(now_ms() - began >= 500);
    route(&mut client, "Beating").expect(0);
    assert!(
        first.is_closed_within(SECOND * 5),
        "the connection of the silent one is closed"
    );
}

#[test]
fn an_old_connection_that_closes_late_takes_nothing_away() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let broker = Broker::new("10.0.0.1:10911", &["T"]);
    let mut old = server.connect();
    old.call(broker.register()).expect(0);
    let mut new = server.connect();
    new.call(broker.register()).expect(0);
    drop(old);
    std::thread::sleep(Duration::from_millis(300));
    route(&mut client, "T").expect(0);
    drop(new);
    eventually("no route", SECOND, || route(&mut client, "T").code == 17);
}

#[test]
fn slaves_hear_of_their_master() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let master = Broker::new("10.0.0.1:10911", &["T"]);
    let mut slave = master.clone();
    (slave.id, slave.address) = (1, "10.0.0.2:10911".to_owned());
    assert!(
        client
            .call(master.register())
            .expect(0)
            .ext
            .get("masterAddr")
            .is_none()
    );
    let reply = client.call(slave.register()).expect(0);
    assert_eq!(
        (reply.ext("masterAddr"), reply.ext("haServerAddr")),
        ("10.0.0.1:10911", "127.0.0.1:10912")
    );
    let found = route(&mut client, "T").expect(0).json();
    assert_eq!(
        found["brokerDatas"][0]["brokerAddrs"],
        json!({"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"})
    );
    let group = Request::new(901)
        .with("clusterName", "TestCluster")
        .with("brokerName", &master.name);
    let group = client.call(group).expect(0).json();
    assert_eq!(
        group["brokerMemberGroup"]["brokerAddrs"]["1"],
        "10.0.0.2:10911"
    );
    // Without the master its topics can still be read.
    client.call(master.request(104)).expect(0);
    let found = route(&mut client, "T").expect(0).json();
    assert_eq!(
        found["brokerDatas"][0]["brokerAddrs"],
        json!({"1": "10.0.0.2:10911"})
    );
    client.call(slave.request(104)).expect(0);
    route(&mut client, "T").expect(17);
}

#[test]
fn a_broker_asks_whether_its_table_is_known() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let mut broker = Broker::new("10.0.0.1:10911", &["T"]);
    let ask = |broker: &Broker| broker.request(322).with_body(broker.version().to_string());
    assert_eq!(client.call(ask(&broker)).expect(0).ext("changed"), "true");
    client.call(broker.register()).expect(0);
    let reply = client.call(ask(&broker)).expect(0);
    assert_eq!(reply.ext("changed"), "false");
    assert_eq!(reply.json()["counter"], 1);
    broker.counter = 2;
    assert_eq!(client.call(ask(&broker)).expect(0).ext("changed"), "true");
}

#[test]
fn sixty_thousand_topics_are_registered_and_listed() {
    let server = Config::nameserver().start();
    let mut client = server.connect();
    let names: Vec<String> = (0..60_000).map(|n| format!("Topic-{n:05}")).collect();
    let broker = Broker::new(
        "10.0.0.1:10911",
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let body_len = broker.register().body.len();
    let reply = client.call(broker.register());
    assert!(
        body_len < 16 * 1024 * 1024 && reply.code == 0,
        "{body_len}: {}",
        reply.remark
    );
    route(&mut client, "Topic-59999").expect(0);
    let began = std::time::Instant::now();
    let list = client.call(Request::new(206)).expect(0).json();
    assert_eq!(list["topicList"].as_array().unwrap().len(), 60_001);
    assert!(began.elapsed() < SECOND * 3, "{:?}", began.elapsed());
}
