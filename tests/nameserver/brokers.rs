//! Our brokers and our nameserver, each in a process of its own.

use std::time::{Duration, Instant};

use crate::common::{Client, Config, Consumer, Pull, Send, Server, eventually, heartbeat, topic};
use crate::registration::route;
use ringmq::wire::command::Request;
use serde_json::Value;

const SECOND: Duration = Duration::from_secs(1);

/// Addresses that a route names.
fn addresses(client: &mut Client, topic: &str) -> Vec<String> {
    let reply = route(client, topic);
    if reply.code == 17 {
        return Vec::new();
    }
    let found = reply.expect(0).json();
    let brokers = found["brokerDatas"].as_array().unwrap();
    brokers
        .iter()
        .map(|broker| broker["brokerAddrs"]["0"].as_str().unwrap().to_owned())
        .collect()
}

fn broker(nameserver: &Server, name: &str) -> Server {
    Config::broker(nameserver.address())
        .set("brokerName", name)
        .start()
}

#[test]
fn a_route_is_there_before_the_answer_that_it_is_needed_for() {
    let nameserver = Config::nameserver().start();
    let broker = broker(&nameserver, "broker-a");
    let (mut asks, mut client) = (nameserver.connect(), broker.connect());
    assert_eq!(
        addresses(&mut asks, "TBW102"),
        [broker.address().to_string()]
    );
    for n in 0..20 {
        // By a send, by an operator, by a heartbeat.
        let name = format!("Sent-{n}");
        client.call(Send::new(&name, "x")).expect(0);
        assert_eq!(addresses(&mut asks, &name), [broker.address().to_string()]);
        let name = format!("Made-{n}");
        topic(&mut client, &name, 2);
        assert_eq!(addresses(&mut asks, &name), [broker.address().to_string()]);
        let group = format!("group-{n}");
        client
            .call(heartbeat(&Consumer::new("c", &group, &name)))
            .expect(0);
        assert_eq!(addresses(&mut asks, &format!("%RETRY%{group}")).len(), 1);
    }
}

#[test]
fn a_broker_that_stops_is_gone_at_once_and_one_that_is_killed_soon() {
    let nameserver = Config::nameserver().start();
    let mut broker = broker(&nameserver, "broker-a");
    let mut asks = nameserver.connect();
    for kill in [false, true, false] {
        broker.connect().call(Send::new("T", "x")).expect(0);
        assert_eq!(addresses(&mut asks, "T").len(), 1);
        if kill {
            broker.kill();
            eventually("no route", SECOND * 2, || {
                addresses(&mut asks, "T").is_empty()
            });
        } else {
            assert_eq!(broker.stop(), 0);
            assert!(addresses(&mut asks, "T").is_empty());
        }
        broker.start_again();
        assert_eq!(
            addresses(&mut asks, "T"),
            [broker.address().to_string()],
            "all topics are back with the start"
        );
    }
}

#[test]
fn brokers_register_again_with_a_nameserver_that_was_restarted() {
    let mut nameserver = Config::nameserver().start();
    let broker = broker(&nameserver, "broker-a");
    broker.connect().call(Send::new("Before", "x")).expect(0);
    for kill in [true, false] {
        if kill {
            nameserver.kill();
        } else {
            assert_eq!(nameserver.stop(), 0);
        }
        // The broker serves on, and does not hold up who needs a new topic for long.
        let began = Instant::now();
        broker.connect().call(Send::new("Before", "x")).expect(0);
        assert!(began.elapsed() < SECOND);
        let name = format!("Meanwhile-{kill}");
        broker.connect().call(Send::new(&name, "x")).expect(0);
        assert!(began.elapsed() < SECOND * 5, "{:?}", began.elapsed());
        nameserver.start_again();
        let began = Instant::now();
        let mut asks = nameserver.connect();
        eventually("registered again", SECOND * 8, || {
            !addresses(&mut asks, "Before").is_empty()
        });
        println!("registered again after {:?}", began.elapsed());
        assert_eq!(
            addresses(&mut asks, &name).len(),
            1,
            "with what was made in between"
        );
    }
}

#[test]
fn a_nameserver_that_stood_still_has_never_lost_its_brokers() {
    let nameserver = Config::nameserver().start();
    let broker = broker(&nameserver, "broker-a");
    broker.connect().call(Send::new("T", "x")).expect(0);
    let mut asks = nameserver.connect();
    nameserver.signal(libc::SIGSTOP);
    // Several questions of the broker are not answered in time.
    std::thread::sleep(SECOND * 12);
    nameserver.signal(libc::SIGCONT);
    let began = Instant::now();
    while began.elapsed() < SECOND * 8 {
        let found = addresses(&mut asks, "T");
        assert_eq!(
            found,
            [broker.address().to_string()],
            "{:?}",
            began.elapsed()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_broker_may_start_before_its_nameserver() {
    let mut nameserver = Config::nameserver().start();
    assert_eq!(nameserver.stop(), 0);
    let broker = broker(&nameserver, "broker-a");
    broker.connect().call(Send::new("T", "x")).expect(0);
    nameserver.start_again();
    let mut asks = nameserver.connect();
    eventually("registered", SECOND * 8, || {
        addresses(&mut asks, "T").len() == 1
    });
    assert_eq!(broker.stop(), 0);
}

#[test]
fn brokers_of_two_names_share_a_topic() {
    let nameserver = Config::nameserver().start();
    let (a, b) = (
        broker(&nameserver, "broker-a"),
        broker(&nameserver, "broker-b"),
    );
    let mut asks = nameserver.connect();
    for broker in [&a, &b] {
        broker.connect().call(Send::new("Shared", "x")).expect(0);
    }
    a.connect().call(Send::new("OnlyA", "x")).expect(0);
    let mut both = vec![a.address().to_string(), b.address().to_string()];
    both.sort();
    let mut found = addresses(&mut asks, "Shared");
    found.sort();
    assert_eq!(found, both);
    assert_eq!(addresses(&mut asks, "OnlyA"), [a.address().to_string()]);
    let info = asks.call(Request::new(106)).expect(0).json();
    let names: Vec<&Value> = info["clusterAddrTable"]["DefaultCluster"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert_eq!(names, ["broker-a", "broker-b"]);
    assert_eq!(a.stop(), 0);
    assert_eq!(addresses(&mut asks, "Shared"), [b.address().to_string()]);
    assert!(addresses(&mut asks, "OnlyA").is_empty());
    assert_eq!(
        b.connect()
            .call(Pull::new("Shared", 0, 0))
            .expect(0)
            .records()
            .len(),
        1
    );
}

#[test]
fn a_broker_registers_with_all_its_nameservers() {
    let (first, second) = (Config::nameserver().start(), Config::nameserver().start());
    let both = format!("{};{}", first.address(), second.address());
    let broker = Config::broker(first.address())
        .set("namesrvAddr", both)
        .start();
    broker.connect().call(Send::new("T", "x")).expect(0);
    for nameserver in [&first, &second] {
        assert_eq!(addresses(&mut nameserver.connect(), "T").len(), 1);
    }
    // One that is frozen does not hold up the other for long.
    first.signal(libc::SIGSTOP);
    let began = Instant::now();
    broker.connect().call(Send::new("Held", "x")).expect(0);
    let took = began.elapsed();
    assert!(took < SECOND * 5, "{took:?}");
    assert_eq!(addresses(&mut second.connect(), "Held").len(), 1);
    first.signal(libc::SIGCONT);
    eventually("it hears of it later", SECOND * 15, || {
        addresses(&mut first.connect(), "Held").len() == 1
    });
    assert_eq!(broker.stop(), 0);
    assert!(addresses(&mut second.connect(), "T").is_empty());
}

#[test]
fn of_changes_at_the_same_time_none_is_lost_on_the_way_to_a_nameserver() {
    let nameserver = Config::nameserver().start();
    let broker = broker(&nameserver, "broker-a");
    let queues_of = |asks: &mut Client, name: &str| {
        let queues = &route(asks, name).expect(0).json()["queueDatas"][0];
        queues["writeQueueNums"].as_i64().unwrap()
    };
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (mut client, mut asks) = (broker.connect(), nameserver.connect());
            scope.spawn(move || {
                let name = format!("T-{writer}");
                for queues in (1..=60).map(|round| 1 + round % 7) {
                    topic(&mut client, &name, queues);
                    assert_eq!(queues_of(&mut asks, &name), i64::from(queues), "of {name}");
                }
            });
        }
        let (mut client, mut asks) = (broker.connect(), nameserver.connect());
        scope.spawn(move || {
            for queues in (1..=60).map(|round| 1 + round % 7) {
                let change = format!("defaultTopicQueueNums={queues}\n");
                client
                    .call(Request::new(25).with_body(change.into_bytes()))
                    .expect(0);
                assert_eq!(queues_of(&mut asks, "TBW102"), queues);
            }
        });
    });
}

#[test]
fn a_deleted_topic_is_gone_from_its_route_after_216() {
    let nameserver = Config::nameserver().start();
    let broker = broker(&nameserver, "broker-a");
    let (mut asks, mut client) = (nameserver.connect(), broker.connect());
    client.call(Send::new("T", "x")).expect(0);
    client.call(Request::new(215).with("topic", "T")).expect(0);
    asks.call(Request::new(216).with("topic", "T")).expect(0);
    route(&mut asks, "T").expect(17);
    // No later registration brings it back.
    client.call(Send::new("Other", "x")).expect(0);
    std::thread::sleep(SECOND * 6);
    route(&mut asks, "T").expect(17);
}

#[test]
fn consumers_find_their_group_after_the_broker_was_restarted() {
    let nameserver = Config::nameserver().start();
    let mut broker = broker(&nameserver, "broker-a");
    topic(&mut broker.connect(), "T", 4);
    let beat = |client: &mut Client, id: &str| {
        client
            .call(heartbeat(&Consumer::new(id, "g", "T")))
            .expect(0)
    };
    let (mut a, mut b) = (broker.connect(), broker.connect());
    beat(&mut a, "a");
    beat(&mut b, "b");
    assert_eq!(broker.stop(), 0);
    broker.start_again();
    let mut a = broker.connect();
    beat(&mut a, "a");
    let mut b = broker.connect();
    beat(&mut b, "b");
    // The first one hears of the second, and both find each other.
    assert_eq!(a.next_request(SECOND * 2).expect("told").code, 40);
    let list = b
        .call(Request::new(38).with("consumerGroup", "g"))
        .expect(0)
        .json();
    assert_eq!(list["consumerIdList"].as_array().unwrap().len(), 2);
}

#[test]
fn a_server_without_configuration_is_for_this_machine_alone() {
    let server = Config::server().start();
    for address in [server.address(), server.nameserver()] {
        assert!(address.ip().is_loopback());
        let port = address.port();
        let listening = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let everywhere = format!("00000000:{port:04X}");
        assert!(
            !listening
                .lines()
                .any(|line| line.contains(&everywhere) && line.contains(" 0A ")),
            "open to all"
        );
    }
    assert!(server.log_line("anyone who reaches").is_none());
    let open = Config::broker(server.nameserver())
        .set("bindAddress", "0.0.0.0")
        .start();
    assert!(open.log_line("anyone who reaches").is_some());
}
