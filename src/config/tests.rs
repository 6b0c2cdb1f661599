//! What configuration promises to whoever writes it.

use super::*;
use proptest::prelude::*;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

fn sources(role: Role, sets: &[&str]) -> Sources {
    Sources {
        role,
        file: None,
        sets: sets.iter().map(|s| (*s).to_owned()).collect(),
        store: None,
        shards: None,
    }
}

fn with(sets: &[&str]) -> Result<Loaded, ConfigError> {
    load(&sources(Role::Broker, sets))
}

fn from_file(role: Role, text: &str, sets: &[&str]) -> Result<Loaded, String> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("room");
    let mut sources = sources(role, sets);
    sources.file = Some(file.path().to_owned());
    let name = file.path().display().to_string();
    load(&sources).map_err(|e| e.to_string().replace(&name, "broker.conf"))
}

fn error(sets: &[&str]) -> String {
    with(sets).expect_err("must be refused").to_string()
}

#[test]
fn the_broker_conf_of_rocketmq_is_read_as_it_is() {
    let text = "\
# Licensed ...
brokerClusterName = DefaultCluster
brokerName=broker-a
brokerId=0
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
deleteWhen = 04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
mapedFileSizeConsumeQueue=300000
destroyMapedFileIntervalForcibly=120000
sendMessageThreadPoolNums=128
storePathRootDir=/data/store
storePathCommitLog=/data/store/commitlog/
storePathConsumeQueue=/data/store/consumequeue
abortFile=/data/store/abort
haListenPort=10912
sendMessageThreadPoolNums=64
aclEnable=false
messageDelayLevel=1s 5s \\
    10s
";
    let loaded = from_file(Role::Broker, text, &[]).expect("readable");
    let settings = &loaded.settings;
    assert_eq!(settings.broker_name, "broker-a");
    assert_eq!(settings.namesrv_addr, ["10.0.0.1:9876", "10.0.0.2:9876"]);
    assert_eq!(settings.flush_disk_type, FlushDiskType::Sync);
    assert_eq!(settings.mapped_file_size_consume_queue, 300_000);
    assert_eq!(settings.store_path_root_dir, PathBuf::from("/data/store"));
    assert_eq!(settings.file_reserved_time_h, 48);
    assert_eq!(settings.message_delay_level[2], Duration::from_secs(10));
    assert_eq!(
        loaded.without_effect,
        [
            "destroyMapedFileIntervalForcibly",
            "sendMessageThreadPoolNums",
            "storePathConsumeQueue",
            "abortFile",
            "haListenPort",
            "aclEnable",
        ]
    );
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_known() {
    let text = "brokerName=a\n\nlistenPrt=1\n";
    assert_eq!(
        from_file(Role::Broker, text, &[]).expect_err("unknown"),
        "broker.conf:3: unknown key \"listenPrt\"; did you mean listenPort?"
    );
    assert_eq!(error(&["qqq=1"]), "--set: unknown key \"qqq\"");
}

#[test]
fn a_value_outside_its_range_is_named_with_the_range() {
    assert_eq!(
        error(&["listenPort=65536"]),
        "--set: listenPort = \"65536\", but it must be a number from 1 to 65535"
    );
    assert_eq!(
        from_file(Role::Broker, "mappedFileSizeCommitLog = 1048577", &[]).expect_err("refused"),
        "broker.conf:1: mappedFileSizeCommitLog = \"1048577\", but it must be a multiple of 4096 \
         from 1048576 to 2147483647"
    );
    assert_eq!(
        error(&["autoCreateTopicEnable=yes"]),
        "--set: autoCreateTopicEnable = \"yes\", but it must be true or false"
    );
    for bad in [
        "brokerId=1",
        "brokerRole=SLAVE",
        "flushDiskType=sync",
        "tailFileBytes=20000000",
        "tailFileBytes=4194304",
        "shards=0",
        "namesrvAddr=localhost",
        "brokerName=../../etc",
        "brokerIP1=localhost",
        "messageDelayLevel=",
        "storePathRootDir=",
        "maxMessageSize=16777216",
    ] {
        assert!(error(&[bad]).contains("must be"), "{bad}");
    }
}

#[test]
fn what_is_missing_is_refused_and_not_ignored() {
    assert_eq!(
        error(&["aclEnable=true"]),
        "--set: aclEnable = true asks for access control, which RingMQ does not have yet; remove \
         the key to run without"
    );
    for bad in [
        "authenticationEnabled=TRUE",
        "enableControllerMode=true",
        "enableDLegerCommitLog=true",
        "inSyncReplicas=2",
    ] {
        assert!(error(&[bad]).contains("does not have yet"), "{bad}");
    }
    assert!(error(&["brokerRole=SLAVE"]).contains("not there yet"));
}

#[test]
fn the_command_line_wins_over_the_file() {
    let loaded = from_file(
        Role::Broker,
        "listenPort=1\nlistenPort=2\nshards=3",
        &["listenPort=4"],
    )
    .expect("readable");
    assert_eq!(loaded.settings.listen_port, 4);
    assert_eq!(loaded.settings.shards, Some(3));

    let mut all = sources(Role::Broker, &["shards=3", "storePathRootDir=/a"]);
    all.store = Some("/b".into());
    all.shards = Some(2);
    let settings = load(&all).expect("readable").settings;
    assert_eq!(settings.shards, Some(2));
    assert_eq!(settings.shard_count(), 2);
    assert_eq!(settings.store_path_root_dir, PathBuf::from("/b"));
    all.shards = Some(0);
    let text = load(&all).expect_err("refused").to_string();
    assert!(text.starts_with("--shards: shards = \"0\""), "{text}");
}

#[test]
fn set_takes_a_key_and_a_value() {
    for bad in ["listenPort", "=1", ""] {
        assert!(
            matches!(with(&[bad]), Err(ConfigError::NotKeyValue(_))),
            "{bad:?}"
        );
    }
    let loaded = with(&["regionId = a%b "]).expect("readable");
    assert_eq!(loaded.settings.region_id, "a%b");
}

#[test]
fn the_commit_log_lives_in_the_stores_folder() {
    // Whichever of the two comes first.
    assert!(with(&["storePathCommitLog=/a/./commitlog/", "storePathRootDir=/a"]).is_ok());
    let text = error(&["storePathCommitLog=/b/commitlog", "storePathRootDir=/a"]);
    assert!(text.contains("/b/commitlog is not /a/commitlog"), "{text}");
}

#[test]
fn sizes_that_do_not_fit_each_other_are_refused() {
    let text = error(&["mappedFileSizeCommitLog=1048576"]);
    assert!(text.contains("at most 983040"), "{text}");
    assert!(with(&["mappedFileSizeCommitLog=1048576", "maxMessageSize=983040"]).is_ok());
    assert!(error(&["maxMessageSize=10000000", "tailFileBytes=8388608"]).contains("tailFileBytes"));
}

#[test]
fn ports_follow_the_role() {
    let ports = |role, sets: &[&str]| {
        let settings = load(&sources(role, sets)).expect("readable").settings;
        (settings.listen_port, settings.nameserver_port)
    };
    assert_eq!(ports(Role::Server, &[]), (10_911, 9876));
    assert_eq!(ports(Role::Server, &["nameserverPort=1"]), (10_911, 1));
    assert_eq!(ports(Role::Broker, &["listenPort=1"]), (1, 9876));
    assert_eq!(ports(Role::Nameserver, &[]), (9876, 9876));
    assert_eq!(ports(Role::Nameserver, &["listenPort=1"]), (1, 1));
    assert_eq!(ports(Role::Nameserver, &["nameserverPort=1"]), (1, 1));
    assert!(load(&sources(Role::Server, &["listenPort=9876"])).is_err());
}

#[test]
fn a_server_is_closed_until_it_is_configured() {
    let exposure = |role, sets: &[&str]| load(&sources(role, sets)).expect("ok").settings.exposure;
    assert_eq!(exposure(Role::Server, &[]), Exposure::Loopback);
    assert_eq!(
        exposure(Role::Server, &["listenPort=1"]),
        Exposure::Loopback
    );
    assert_eq!(
        exposure(Role::Server, &["bindAddress=10.0.0.1"]),
        Exposure::Open
    );
    assert_eq!(
        exposure(Role::Server, &["brokerIP1=10.0.0.1"]),
        Exposure::Open
    );
    assert_eq!(exposure(Role::Broker, &[]), Exposure::Open);
    assert_eq!(exposure(Role::Nameserver, &[]), Exposure::Open);
    let loaded = from_file(Role::Server, "", &[]).expect("readable");
    assert_eq!(loaded.settings.exposure, Exposure::Open);
}

#[test]
fn the_register_period_is_moved_into_its_bounds() {
    let period = |set: &str| {
        with(&[set])
            .expect("ok")
            .settings
            .register_name_server_period_ms
    };
    assert_eq!(period("registerNameServerPeriod=1"), 10_000);
    assert_eq!(period("registerNameServerPeriod=31000"), 31_000);
    assert_eq!(period("registerNameServerPeriod=999999"), 60_000);
}

#[test]
fn the_text_of_all_settings_reads_back_as_the_same_settings() {
    let sets = [
        "namesrvAddr=a:1;b:2",
        "brokerIP1=2001:db8::1",
        "storePathRootDir=/a b/\\日本 ",
        "deleteWhen=04;16",
        "shards=2",
        "routeMode=perShard",
    ];
    let settings = with(&sets).expect("readable").settings;
    let text = settings.properties_text();
    assert!(text.contains("namesrvAddr=a:1;b:2\n"), "{text}");
    assert!(text.is_ascii());
    let read = from_file(Role::Broker, &text, &[])
        .expect("readable")
        .settings;
    assert_eq!(read, settings);
}

#[test]
fn a_change_at_run_time_is_applied_and_named() {
    let mut settings = Settings::default();
    let changed = settings
        .update("fileReservedTime=12\nmaxMessageSize=1024\nautoCreateTopicEnable=true\n")
        .expect("allowed");
    assert_eq!(changed, ["fileReservedTime", "maxMessageSize"]);
    assert_eq!(settings.file_reserved_time_h, 12);
    assert_eq!(settings.max_message_size, 1024);
}

#[test]
fn a_refused_change_changes_nothing() {
    let refused = [
        (
            "brokerName=b",
            "brokerName cannot change while the process runs",
        ),
        ("storePathRootDir=/etc", "storePathRootDir cannot change"),
        (
            "storePathCommitLog=/etc",
            "storePathCommitLog cannot change",
        ),
        ("rocketmqHome=/tmp;id", "rocketmqHome cannot change"),
        (
            "brokerConfigPath=/etc/passwd",
            "brokerConfigPath cannot change",
        ),
        ("configBlackList=", "configBlackList cannot change"),
        ("aclEnable=false", "aclEnable cannot change"),
        ("traceOnn=1", "did you mean traceOn?"),
        (
            "traceOn=1",
            "request: traceOn = \"1\", but it must be true or false",
        ),
        ("maxMessageSize=16646144", "does not fit tailFileBytes"),
        ("a=\\u1", "request: \\u must be followed"),
    ];
    for (text, message) in refused {
        let mut settings = Settings {
            tail_file_bytes: limits::TAIL_FILE_BYTES_MIN,
            ..Settings::default()
        };
        let before = settings.clone();
        let error = settings
            .update(&format!(
                "fileReservedTime=12\n{text}\nlitePullMessageEnable=false"
            ))
            .expect_err("must be refused")
            .to_string();
        assert!(error.contains(message), "{text}: {error}");
        assert_eq!(settings, before, "{text}");
    }
}

#[test]
fn every_run_time_key_takes_its_present_value() {
    let mut settings = Settings::default();
    let run_time = KEYS.iter().filter(|key| key.change == Change::AtRunTime);
    let mut text = String::new();
    for key in run_time {
        properties::write(&mut text, key.name, &key.text(&settings));
    }
    assert_eq!(settings.update(&text).expect("allowed"), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_request_breaks_the_settings(text in "(?s).{0,200}|[a-zA-Z]{1,20}=[ -~]{0,20}") {
        let _ = Settings::default().update(&text);
    }
}
