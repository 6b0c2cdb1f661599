use crate::command::{ask, end, run, start};
use crate::common::{Config, Send, free_port, unique};
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_cluster_is_shown_once_where_nobody_watches() {
    let server = Config::per_shard(2).start();
    let (topic, group) = (unique("status"), unique("status"));
    for line in [
        format!("admin updateTopic -t {topic} -r 1 -w 1"),
        format!("admin updateSubGroup -g {group}"),
    ] {
        run(&server, &line).good();
    }
    let mut client = server.connect();
    client.call(Send::new(&topic, "x").queue(0)).expect(0);
    run(
        &server,
        &format!("admin resetOffsetByTime -g {group} -t {topic} -s 0 -y"),
    )
    .good();
    let text = run(&server, "status").good();
    let text = text.shows(&["BROKER", "broker-a-1", "active", &topic, &group, "BEHIND"]);
    assert!(!text.stdout.contains('\x1b'), "{}", text.stdout);
    let status = run(&server, "status --output json").good().json();
    assert_eq!(status["brokers"].as_array().unwrap().len(), 2);
    let topics = status["topics"].as_array().unwrap();
    assert_eq!(topics.len(), 1, "brokers' own are left out: {status}");
    assert_eq!(
        (&topics[0]["messages"], &topics[0]["queues"]),
        (&json!(1), &json!(2))
    );
    let row = &status["groups"][0];
    assert_eq!(
        (&row["group"], &row["totalDiff"]),
        (&json!(group), &json!(1))
    );
    let all = run(&server, "status --all --output json").good().json();
    assert!(all["topics"].as_array().unwrap().len() > 5);
    run(&server, "status --interval 1ms").refused(2, "100ms");
}

#[test]
fn a_broker_that_is_silent_is_shown_as_such() {
    let nameserver = Config::nameserver().start();
    let broker = Config::broker(nameserver.nameserver()).start();
    broker.kill();
    // The nameserver sees the connection end only when it is told so.
    let found = ask(nameserver.nameserver(), "status --output json");
    let brokers = found.json()["brokers"].as_array().unwrap().clone();
    match brokers.first() {
        Some(row) => {
            assert_eq!((found.code, &row["state"]), (4, &json!("unreachable")));
            let address = broker.address().to_string();
            assert!(found.stderr.contains(&address), "{}", found.stderr);
        }
        None => assert_eq!(found.code, 0),
    }
    let absent = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    ask(absent, "status").refused(1, "no nameserver answers");
}

/// On a terminal, which `script` plays, the screen is refreshed and the terminal left as it was.
#[test]
fn on_a_terminal_the_screen_is_refreshed_until_it_is_stopped() {
    if Command::new("script").arg("--version").output().is_err() {
        return;
    }
    let server = Config::server().start();
    let shell = format!(
        "stty rows 20 cols 100; timeout -s INT 3 {} status -i 300ms -n {}; echo ended $?",
        env!("CARGO_BIN_EXE_ringmq"),
        server.nameserver()
    );
    let output = Command::new("script")
        .args(["-qec", &shell, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("script runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.matches("ringmq status").count() >= 2, "{text}");
    for part in ["\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h", "BROKER", "▁"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    // `timeout` tells that it had to stop it.
    assert!(text.contains("ended 124"), "{text}");
}

#[test]
fn a_reader_that_goes_is_no_failure() {
    let server = Config::server().start();
    let mut child = start(&server, "admin getNamesrvConfig");
    drop(child.stdout.take());
    let found = end(child);
    assert_eq!((found.code, found.stderr.as_str()), (0, ""));
}

#[test]
fn every_shard_has_a_row() {
    let server = Config::server().shards(2).start();
    let topic = unique("status");
    run(&server, &format!("admin updateTopic -t {topic} -r 4 -w 4")).good();
    let mut client = server.connect();
    for number in 0..8 {
        let send = Send::new(&topic, "x").queue(number % 4);
        client.call(send).expect(0);
    }
    run(&server, "status")
        .good()
        .shows(&["SHARD", "LONG TURNS"]);
    let status = run(&server, "status --output json").good().json();
    let shards = status["shards"].as_array().unwrap();
    let column = |name: &str| -> Vec<i64> {
        let values = shards.iter().map(|row| row[name].as_i64());
        values.map(|value| value.expect("a number")).collect()
    };
    assert_eq!(column("shard"), [0, 1]);
    assert_eq!(column("putMessages").iter().sum::<i64>(), 8);
    assert!(column("connections").iter().sum::<i64>() >= 2, "{shards:?}");
    let log = status["brokers"][0]["logBytes"].as_i64();
    assert_eq!(Some(column("logBytes").iter().sum()), log);
    assert!(column("longTurns").iter().all(|&turns| turns >= 0));
}

/// On a terminal, with nobody who answers.
#[test]
fn whoever_is_silent_holds_up_no_end() {
    if Command::new("script").arg("--version").output().is_err() {
        return;
    }
    // Connections are taken by the system, and that is all.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let shell = format!(
        "timeout -s INT 1 {} status -n {} --timeout 60s; echo ended $?",
        env!("CARGO_BIN_EXE_ringmq"),
        silent.local_addr().expect("bound")
    );
    let began = Instant::now();
    let output = Command::new("script")
        .args(["-qec", &shell, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("script runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("ended 124"), "{text}");
    assert!(text.contains("\x1b[?1049l"), "the terminal is left: {text}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
}
