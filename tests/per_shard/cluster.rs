//! What nameservers are told of the shards.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Config, Consumer, Send, Server, eventually, heartbeat, topic};
use crate::{brokers, route};
use ringmq::wire::command::Request;

const SECOND: Duration = Duration::from_secs(1);

/// The brokers that the first shards are.
fn expected(server: &Server, shards: u16) -> BTreeMap<String, String> {
    let names = ["broker-a", "broker-a-1", "broker-a-2"];
    let broker = |shard: u16| {
        let name = names[usize::from(shard)].to_owned();
        (name, server.shard_address(shard).to_string())
    };
    (0..shards).map(broker).collect()
}

fn with_queues(brokers: BTreeMap<String, String>, queues: i64) -> BTreeMap<String, (String, i64)> {
    let pairs = brokers.into_iter();
    pairs.map(|(name, at)| (name, (at, queues))).collect()
}

#[test]
fn every_shard_is_a_broker_of_the_cluster() {
    let server = Config::per_shard(3).start();
    let mut asks = server.connect_nameserver();
    let all = expected(&server, 3);
    assert_eq!(brokers(&mut asks), all);
    assert_eq!(route(&mut asks, "TBW102"), with_queues(all.clone(), 8));
    let cluster = asks.call(Request::new(106)).expect(0).json();
    let names = cluster["clusterAddrTable"]["DefaultCluster"].as_array();
    assert_eq!(names.expect("names").len(), 3);
    // Each speaks for itself.
    for (shard, name) in all.keys().enumerate() {
        let shard = shard as u16;
        let mut client = server.connect_shard(shard);
        let text = client.call(Request::new(26)).expect(0).body;
        let text = String::from_utf8(text).expect("UTF-8");
        let port = server.shard_address(shard).port();
        for line in [
            format!("brokerName={name}"),
            format!("listenPort={port}"),
            "routeMode=perShard".to_owned(),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
        }
        let own = client.call(Request::new(351).with("topic", name));
        assert_eq!(own.expect(0).json()["topicName"], **name);
    }
    server.assert_healthy();
}

/// A topic that stayed on the shard of its first message would stay there for good.
#[test]
fn a_topic_that_a_send_makes_is_on_every_shard_when_the_send_is_answered() {
    let server = Config::per_shard(3).start();
    let mut asks = server.connect_nameserver();
    for n in 0..30 {
        let name = format!("Sent-{n}");
        let mut client = server.connect_shard(n % 3);
        client.call(Send::new(&name, "x").queue(3)).expect(0);
        let all = with_queues(expected(&server, 3), 4);
        assert_eq!(route(&mut asks, &name), all, "{name}");
    }
    // Sends to all of them at once.
    for n in 0..30 {
        let name = format!("Raced-{n}");
        let mut clients = [0, 1, 2].map(|shard| server.connect_shard(shard));
        let sent: Vec<i32> = clients
            .iter_mut()
            .map(|client| client.send(Send::new(&name, "x")))
            .collect();
        for (client, opaque) in clients.iter_mut().zip(sent) {
            client.receive(opaque).expect(0);
        }
        assert_eq!(route(&mut asks, &name).len(), 3, "{name}");
    }
}

#[test]
fn what_an_operator_or_a_consumer_makes_is_on_the_shard_that_was_told() {
    let server = Config::per_shard(2).start();
    let mut asks = server.connect_nameserver();
    topic(&mut server.connect_shard(1), "Here", 5);
    let here = [(
        "broker-a-1".to_owned(),
        (server.shard_address(1).to_string(), 5),
    )];
    assert_eq!(route(&mut asks, "Here"), here.into());
    let beat = heartbeat(&Consumer::new("c", "g", "Here"));
    server.connect_shard(1).call(beat).expect(0);
    assert_eq!(route(&mut asks, "%RETRY%g").len(), 1);
    // Each shard minds its own settings.
    let off = Request::new(25).with_body("autoCreateTopicEnable=false");
    server.connect_shard(1).call(off).expect(0);
    server
        .connect_shard(0)
        .call(Send::new("There", "x"))
        .expect(0);
    let there = [(
        "broker-a".to_owned(),
        (server.shard_address(0).to_string(), 4),
    )];
    assert_eq!(route(&mut asks, "There"), there.into());
    server
        .connect_shard(1)
        .call(Send::new("There", "x"))
        .expect(17);
}

#[test]
fn a_stop_takes_all_shards_off_and_a_start_brings_them_back() {
    let nameservers = [(); 2].map(|()| Config::nameserver().start());
    let addresses: Vec<String> = nameservers
        .iter()
        .map(|nameserver| nameserver.address().to_string())
        .collect();
    let mut server = Config::broker(nameservers[0].address())
        .set("namesrvAddr", addresses.join(";"))
        .brokers(2)
        .start();
    let mut asks = nameservers.each_ref().map(Server::connect);
    server.connect_shard(1).call(Send::new("T", "x")).expect(0);
    for kill in [false, true, false] {
        for asks in &mut asks {
            assert_eq!(brokers(asks), expected(&server, 2));
            assert_eq!(route(asks, "T"), with_queues(expected(&server, 2), 4));
        }
        if kill {
            server.kill();
        } else {
            assert_eq!(server.stop(), 0);
        }
        for asks in &mut asks {
            eventually("no route", SECOND * 2, || route(asks, "T").is_empty());
            assert!(kill || brokers(asks).is_empty());
        }
        server.start_again();
    }
}

#[test]
fn a_nameserver_that_was_restarted_is_told_of_all_shards() {
    let mut nameserver = Config::nameserver().start();
    let server = Config::broker(nameserver.address()).brokers(2).start();
    nameserver.kill();
    // Made while nobody was there to be told.
    server.connect_shard(0).call(Send::new("T", "x")).expect(0);
    nameserver.start_again();
    let mut asks = nameserver.connect();
    eventually("all registered again", SECOND * 10, || {
        route(&mut asks, "T") == with_queues(expected(&server, 2), 4)
    });
    assert_eq!(brokers(&mut asks), expected(&server, 2));
}
