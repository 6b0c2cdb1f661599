use crate::command::{Watched, admin, both, start};
use crate::common::{Config, eventually, shared, unique};
use std::time::Duration;

#[test]
fn the_cluster_is_listed() {
    let server = shared();
    let address = server.address().to_string();
    let list = both(
        &server,
        "clusterList -m",
        &["CLUSTER", "DefaultCluster", &address, "active", "IN TODAY"],
    );
    let broker = &list["brokers"][0];
    assert_eq!(broker["address"], *address);
    assert_eq!(broker["state"], "active");
    assert!(broker["putTps"].is_number() && broker["putToday"].is_number());
    assert!(broker["diskRatio"].as_f64().unwrap() <= 1.0);
    admin(&server, "clusterList -c Nowhere").refused(3, "Nowhere");
}

#[test]
fn a_broker_tells_figures_and_settings() {
    let server = shared();
    let address = server.address();
    let status = both(
        &server,
        &format!("brokerStatus -b {address}"),
        &["FIGURE", "bootTimestamp", "putTps"],
    );
    assert!(status["brokers"][0]["figures"]["putTps"].is_string());
    both(&server, "brokerStatus -c DefaultCluster", &["putTps"]);
    let settings = both(
        &server,
        &format!("getBrokerConfig -b {address} -k shards"),
        &["KEY", "shards"],
    );
    assert_eq!(settings["brokers"][0]["settings"]["shards"], "2");
    admin(&server, &format!("getBrokerConfig -b {address} -k nosuch")).refused(3, "nosuch");
}

#[test]
fn settings_change_while_a_broker_runs() {
    let server = Config::server().start();
    let changed = both(
        &server,
        "updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 48",
        &["VALUE NOW", "48"],
    );
    assert_eq!(changed["settings"][0]["value"], "48");
    let address = server.address();
    let line = format!("updateBrokerConfig -b {address} -k listenPort -v 1");
    admin(&server, &line).refused(4, "NO_PERMISSION");
    let line = format!("updateBrokerConfig -b {address} -k fileReservedTime -v soon");
    admin(&server, &line).refused(4, "fileReservedTime");
}

#[test]
fn housekeeping_asks_first() {
    let server = shared();
    for command in [
        "cleanExpiredCQ",
        "cleanUnusedTopic",
        "deleteExpiredCommitLog",
    ] {
        admin(&server, command).refused(2, "--yes");
        let done = admin(&server, &format!("{command} -y --output json"));
        // A broker may have nothing of the kind to do.
        assert!(
            done.code == 0 || done.stderr.contains("has no such operation"),
            "{command}: {}{}",
            done.stdout,
            done.stderr
        );
    }
}

#[test]
fn what_a_broker_cannot_do_is_said() {
    let server = shared();
    let found = admin(&server, "setConsumeMode -t T -g g -m POP");
    found.refused(4, "code 3 (REQUEST_CODE_NOT_SUPPORTED)");
    let found = admin(&server, "haStatus");
    found.refused(4, "it has no such operation");
}

#[test]
fn sends_are_measured() {
    let server = Config::server().set("brokerName", "broker-m").start();
    let topic = unique("measured");
    admin(&server, &format!("updateTopic -t {topic}")).good();
    let check = both(
        &server,
        &format!("checkMsgSendRT -t {topic} -a 5"),
        &["P99 (ms)"],
    );
    assert_eq!(
        (&check["sends"][0]["sent"], &check["sends"][0]["failed"]),
        (&5.into(), &0.into())
    );
    assert!(check["sends"][0]["p50Ms"].as_f64().unwrap() > 0.0);
    let check = both(&server, "clusterRT -a 3 -s 10", &["DefaultCluster"]);
    assert_eq!(check["sends"][0]["sent"], 3);
    let check = both(&server, "sendMsgStatus -b broker-m -c 3", &["broker-m"]);
    assert_eq!(check["sends"][0]["sent"], 3);
    admin(&server, "checkMsgSendRT -t Measured -a 0").refused(2, "0");
}

#[test]
fn exports_are_files_of_json() {
    let server = shared();
    let topic = unique("exported");
    admin(&server, &format!("updateTopic -t {topic} -r 5")).good();
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("export"));
    let path = dir.display();
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(dir.join(name)).unwrap()).unwrap()
    };
    admin(
        &server,
        &format!("exportMetadata -c DefaultCluster -f {path}"),
    )
    .good();
    let metadata = read("metadata.json");
    assert_eq!(metadata["topicConfigTable"][&topic]["readQueueNums"], 5);
    assert!(metadata["subscriptionGroupTable"]["TOOLS_CONSUMER"].is_object());
    admin(
        &server,
        &format!("exportConfigs -c DefaultCluster -f {path}"),
    )
    .good();
    let configs = read("configs.json");
    assert_eq!(configs["nameServers"].as_object().unwrap().len(), 1);
    admin(
        &server,
        &format!("exportMetrics -c DefaultCluster -f {path}/m.json"),
    )
    .good();
    assert_eq!(read("m.json")["clusterName"], "DefaultCluster");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_is_repeated_goes_on_until_it_is_stopped() {
    let server = shared();
    let master = crate::liars::says(r#"{"master":true,"masterCommitLogMaxOffset":4711}"#);
    let replication = format!("haStatus -b {master} -i 1");
    for (line, mark) in [
        ("clusterList -i 1", "DefaultCluster"),
        (replication.as_str(), "4711"),
        (
            "clusterRT -a 2 -s 10 -i 1 -p true -m room-7",
            "|room-7|DefaultCluster|",
        ),
    ] {
        let mut watched = Watched::of(start(&server, &format!("admin {line}")));
        let shown = || -> Vec<String> {
            let lines = watched.lines().into_iter();
            lines.filter(|line| line.contains(mark)).collect()
        };
        eventually(line, Duration::from_secs(60), || shown().len() >= 2);
        if mark.starts_with('|') {
            let fields: Vec<String> = shown()[0].split('|').map(str::to_owned).collect();
            assert_eq!((fields.len(), fields[0].len()), (5, 19), "{fields:?}");
            assert!(fields[4].parse::<u64>().is_ok(), "{fields:?}");
        }
        watched.signal(libc::SIGINT);
        let code = watched.ended(Duration::from_secs(20));
        assert_eq!(code, Some(0), "{line}: {}", watched.errors());
    }
}
