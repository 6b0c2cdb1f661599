//! Clean stops.

use std::time::Duration;

use crate::common::{Config, Pull, Send, Server, commit, committed, max_offset, topic};
use crate::ledger::Ledger;

/// A figure in the line that a shard logs when its store is open.
fn figures(server: &Server, key: &str) -> Vec<u64> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("store open"));
    let figure = |line: &str| {
        let (_, rest) = line
            .split_once(&format!("{key}="))
            .unwrap_or_else(|| panic!("no {key}: {line}"));
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    lines.map(figure).collect()
}

#[test]
fn a_start_after_a_clean_stop_reads_nothing_of_the_log() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut server = Config::server().shards(2).start();
        let ledger = Ledger::new(&server, "Clean", 4);
        ledger.load(&server, || std::thread::sleep(Duration::from_millis(400)));
        assert!(server.store().join("abort").exists());
        server.signal(signal);
        assert_eq!(server.stop(), 0);
        assert!(!server.store().join("abort").exists());
        server.start_again();
        assert!(server.log_line("a clean stop").is_some());
        assert_eq!(figures(&server, "scanned_bytes"), [0, 0]);
        assert_eq!(figures(&server, "indexed"), [0, 0]);
        assert_eq!(figures(&server, "from_tail_bytes"), [0, 0]);
        assert!(figures(&server, "log_bytes").iter().all(|&bytes| bytes > 0));
        ledger.verify(&server);
    }
}

#[test]
fn a_start_after_a_kill_says_so() {
    let mut server = Config::server().start();
    let ledger = Ledger::new(&server, "Killed", 2);
    ledger.load(&server, || std::thread::sleep(Duration::from_millis(200)));
    server.kill();
    server.start_again();
    assert!(server.log_line("a crash").is_some());
    ledger.verify(&server);
}

#[test]
fn a_stop_under_load_loses_nothing_and_takes_seconds_at_most() {
    for flush in ["ASYNC_FLUSH", "SYNC_FLUSH"] {
        let mut server = Config::server()
            .shards(2)
            .set("flushDiskType", flush)
            .start();
        let ledger = Ledger::new(&server, "Stopped", 4);
        for round in 0..3 {
            ledger.load(&server, || {
                std::thread::sleep(Duration::from_millis(200 + 50 * round));
                assert_eq!(server.stop(), 0);
            });
            server.start_again();
            assert_eq!(figures(&server, "indexed"), [0, 0]);
            ledger.verify(&server);
        }
    }
}

#[test]
fn clients_that_wait_do_not_hold_up_a_stop() {
    let server = Config::server().shards(2).start();
    let mut client = server.connect();
    topic(&mut client, "T", 2);
    for queue in 0..2 {
        client.send(Pull::new("T", queue, 0).suspend(20_000));
    }
    let mut half = server.connect();
    half.raw(&[0, 0, 1, 0, 0]).unwrap();
    let began = std::time::Instant::now();
    assert_eq!(server.stop(), 0);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_store_has_one_process() {
    let server = Config::server().start();
    let (code, log) = server.config.clone().other_ports().start_refused();
    assert_eq!(code, 1);
    assert!(log.contains(&server.pid().to_string()), "{log}");
    server.connect().call(Send::new("T", "x")).expect(0);
    server.assert_healthy();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let server = Config::server().start();
    let taken = server.address().port();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Config::server().set("listenPort", port);
    let (code, log) = config.start_refused();
    assert_eq!(code, 1);
    assert!(log.contains(&port.to_string()), "{log}");
    assert_ne!(taken, port);
}

#[test]
fn a_store_keeps_its_logs_whatever_the_number_of_shards() {
    let mut server = Config::server().shards(1).start();
    let ledger = Ledger::new(&server, "Grown", 4);
    server.connect().call(commit("g", "Grown", 3, 7)).expect(0);
    for (round, shards) in [2, 1, 3, 2].into_iter().enumerate() {
        ledger.load(&server, || std::thread::sleep(Duration::from_millis(200)));
        if shards == 3 {
            server.kill();
        } else {
            assert_eq!(server.stop(), 0);
        }
        server.config = server.config.clone().shards(shards);
        server.start_again();
        ledger.verify(&server);
        assert_eq!(
            committed(&mut server.connect(), "g", "Grown", 3)
                .expect(0)
                .int("offset"),
            7
        );
        // Every queue goes on, and new ones use all shards.
        let name = format!("New{round}");
        let mut client = server.connect();
        topic(&mut client, &name, 6);
        for queue in 0..6 {
            assert_eq!(
                client
                    .call(Send::new(&name, "x").queue(queue))
                    .expect(0)
                    .int("queueOffset"),
                0
            );
        }
    }
    assert_eq!(server.stop(), 0);
    server.config = server.config.clone().any_shards();
    server.start_again();
    ledger.verify(&server);
    for round in 0..4 {
        assert_eq!(
            max_offset(&mut server.connect(), &format!("New{round}"), 5),
            1
        );
    }
}

#[test]
fn topics_and_groups_are_there_again() {
    let mut server = Config::server().shards(2).start();
    let mut client = server.connect();
    topic(&mut client, "Made", 5);
    client.call(Send::new("Auto", "x")).expect(0);
    let group =
        serde_json::json!({"groupName": "managed", "retryMaxTimes": 3, "consumeEnable": true});
    client
        .call(ringmq::wire::command::Request::new(200).with_body(group.to_string()))
        .expect(0);
    let version = |server: &Server| {
        let all = server
            .connect()
            .call(ringmq::wire::command::Request::new(21))
            .expect(0)
            .json();
        all["dataVersion"]["counter"].as_i64().unwrap()
    };
    let before = version(&server);
    for kill in [true, false] {
        if kill {
            server.kill();
        } else {
            assert_eq!(server.stop(), 0);
        }
        server.start_again();
        let mut client = server.connect();
        for (topic, queues) in [("Made", 5), ("Auto", 4)] {
            let ask = ringmq::wire::command::Request::new(351).with("topic", topic);
            assert_eq!(client.call(ask).expect(0).json()["writeQueueNums"], queues);
        }
        let ask = ringmq::wire::command::Request::new(352).with("group", "managed");
        assert_eq!(client.call(ask).expect(0).json()["retryMaxTimes"], 3);
        assert!(version(&server) >= before);
    }
}
