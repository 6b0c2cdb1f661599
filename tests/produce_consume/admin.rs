//! Settings and figures: 25, 26, 28, 321.

use std::fs;

use crate::common::{Config, Pull, Send, body, shared, topic, unique};
use ringmq::wire::command::Request;

fn update(text: &str) -> Request {
    Request::new(25).with_body(text.to_owned())
}

fn settings(client: &mut crate::common::Client) -> String {
    String::from_utf8(client.call(Request::new(26)).expect(0).body).unwrap()
}

#[test]
fn settings_are_shown_and_some_can_change() {
    let server = Config::server().shards(2).start();
    let mut client = server.connect();
    let before = settings(&mut client);
    let port = format!("listenPort={}", server.address().port());
    for line in [
        port.as_str(),
        "flushDiskType=ASYNC_FLUSH",
        "maxMessageSize=4194304",
        "shards=2",
    ] {
        assert!(
            before.lines().any(|shown| shown == line),
            "{line} in {before}"
        );
    }
    client
        .call(update(
            "maxMessageSize=2048\n# a comment\n\nlongPollingEnable = true\n",
        ))
        .expect(0);
    assert!(
        settings(&mut client)
            .lines()
            .any(|line| line == "maxMessageSize=2048")
    );
    // Both shards know of it.
    topic(&mut client, "T", 2);
    for queue in 0..2 {
        for _ in 0..8 {
            server
                .connect()
                .call(Send::new("T", vec![1; 2049]).queue(queue))
                .expect(13);
        }
    }
    client.call(update("")).expect(0);
}

#[test]
fn a_setting_that_may_not_change_changes_nothing_at_all() {
    let server = Config::server().start();
    let mut client = server.connect();
    let before = settings(&mut client);
    let outer = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = outer.path().join("there");
    for text in [
        "rocketmqHome=/tmp/x".to_owned(),
        "filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch pwned;".to_owned(),
        format!("storePathRootDir={}", path.display()),
        format!("storePathCommitLog={}", path.display()),
        format!("brokerConfigPath={}", path.display()),
        "configBlackList=".to_owned(),
        "listenPort=1".to_owned(),
        "namesrvAddr=10.0.0.1:9876".to_owned(),
        "brokerIP1=10.0.0.1".to_owned(),
        "aclEnable=true".to_owned(),
        "flushDiskType=SYNC_FLUSH".to_owned(),
        "noSuchKey=1".to_owned(),
        "maxMessageSize=x".to_owned(),
        "maxMessageSize=-1".to_owned(),
        "maxMessageSize=999999999999".to_owned(),
        "autoCreateTopicEnable=maybe".to_owned(),
        "x=\\u12".to_owned(),
    ] {
        // A good key in front of it is not applied either.
        let reply = client.call(update(&format!(
            "traceOn=false\nmaxMessageSize=4096\n{text}\n"
        )));
        assert_ne!(reply.code, 0, "{text}");
        assert!(!reply.remark.is_empty());
        assert_eq!(settings(&mut client), before, "{text}");
    }
    assert_ne!(
        client.call(Request::new(25).with_body(vec![255, 254])).code,
        0
    );
    assert_ne!(
        client
            .call(Request::new(25).with_body(vec![b'a'; 2_000_000]))
            .code,
        0
    );
    assert_eq!(settings(&mut client), before);
    assert_eq!(
        fs::read_dir(outer.path()).unwrap().count(),
        0,
        "nothing was made"
    );
    topic(&mut client, "T", 1);
    client.call(Send::new("T", vec![1; 5000])).expect(0);
}

#[test]
fn paths_with_backslashes_are_shown_so_that_java_reads_them_back() {
    let server = Config::server().set("brokerName", "b").start();
    let text = settings(&mut server.connect());
    assert!(!text.is_empty());
    for line in text.lines() {
        assert!(line.contains('='), "{line:?}");
    }
}

#[test]
fn every_figure_that_tools_read_as_a_number_is_one() {
    let server = shared();
    let name = unique("Figures");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    for n in 0..10 {
        client.call(Send::new(&name, body("f", n, 100))).expect(0);
    }
    client.call(Pull::new(&name, 0, 0)).expect(0);
    let table = client.call(Request::new(28)).expect(0).json()["table"].take();
    let number = |key: &str| -> f64 {
        let text = table[key]
            .as_str()
            .unwrap_or_else(|| panic!("{key} is missing in {table}"));
        text.parse().unwrap_or_else(|_| panic!("{key} is {text:?}"))
    };
    for key in [
        "msgPutTotalTodayNow",
        "msgPutTotalTodayMorning",
        "msgPutTotalYesterdayMorning",
        "msgGetTotalTodayNow",
        "msgGetTotalTodayMorning",
        "msgGetTotalYesterdayMorning",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "commitLogMaxOffset",
        "commitLogMinOffset",
        "sendThreadPoolQueueSize",
        "pageCacheLockTimeMills",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "timerEnqueueTps",
        "timerDequeueTps",
        "bootTimestamp",
    ] {
        number(key);
    }
    for key in [
        "putTps",
        "getTransferredTps",
        "getTotalTps",
        "getFoundTps",
        "getMissTps",
    ] {
        let rates = table[key]
            .as_str()
            .unwrap_or_default()
            .split(' ')
            .map(str::parse::<f64>);
        assert_eq!(
            rates.filter(Result::is_ok).count(),
            3,
            "{key}: {}",
            table[key]
        );
    }
    assert!(number("msgPutTotalTodayNow") >= 10.0);
    assert!(number("msgGetTotalTodayNow") >= 10.0);
    assert!(number("commitLogMaxOffset") > number("commitLogMinOffset"));
    assert!(
        table["brokerVersionDesc"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
    );
}

#[test]
fn entries_of_a_queue_are_shown() {
    let server = shared();
    let name = unique("Entries");
    let mut client = server.connect();
    topic(&mut client, &name, 2);
    for queue in 0..2 {
        for tag in ["A", "B", "C"] {
            client
                .call(Send::new(&name, tag).tag(tag).queue(queue))
                .expect(0);
        }
        let ask = |index: i64, count: i32| {
            Request::new(321)
                .with("topic", &name)
                .with("queueId", queue)
                .with("index", index)
                .with("count", count)
        };
        let shown = client.call(ask(1, 10)).expect(0).json();
        assert_eq!(
            (
                shown["minQueueIndex"].as_i64(),
                shown["maxQueueIndex"].as_i64()
            ),
            (Some(0), Some(3))
        );
        let records = client.call(Pull::new(&name, queue, 1)).expect(0).records();
        let data = shown["queueData"].as_array().unwrap();
        assert_eq!(data.len(), 2);
        for (entry, record) in data.iter().zip(records) {
            assert_eq!(entry["physicOffset"].as_i64(), Some(record.physical_offset));
            assert_eq!(entry["physicSize"].as_i64(), Some(record.size as i64));
            let tag = record.property("TAGS").unwrap();
            assert_eq!(
                entry["tagsCode"].as_i64(),
                Some(i64::from(tag.as_bytes()[0]))
            );
        }
        assert_eq!(
            client.call(ask(0, 1)).expect(0).json()["queueData"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }
    client
        .call(
            Request::new(321)
                .with("topic", &name)
                .with("queueId", 7)
                .with("index", 0)
                .with("count", 1),
        )
        .expect(1);
}
