//! Names that would be paths, or are too long, or empty.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{
    Config, Consumer, Pull, Send, commit, committed, heartbeat, queue_offset, topic,
};
use ringmq::wire::command::Request;
use serde_json::json;

fn bad_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "../../../fuzz2019",
        "..",
        ".",
        "/",
        "/etc/passwd",
        "a/b",
        "a/../b",
        "a\0b",
        "a b",
        "a.b",
        "a\\b",
        "a@b",
        "tópico",
        "日本",
        "a\nb",
        "a\u{1}b",
        "$(id)",
        "`id`",
        "",
        " ",
        "\t",
    ]
    .iter()
    .map(|name| name.to_string())
    .collect();
    names.push("x".repeat(128));
    names.push("x".repeat(10_240));
    names
}

/// Every path below a folder.
fn tree(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

/// Paths without those of files that come and go by themselves.
fn names_of_queues(root: &Path) -> BTreeSet<PathBuf> {
    tree(root)
        .into_iter()
        .filter(|path| path.components().any(|c| c.as_os_str() == "consumequeue"))
        .filter(|path| !path.components().any(|c| c.as_os_str() == "Good"))
        .collect()
}

#[test]
fn no_name_becomes_a_path() {
    let outer = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = outer.path().join("a/b/c/store");
    let server = Config::server().shards(2).start_in(&store);
    let mut client = server.connect();
    topic(&mut client, "Good", 2);
    client.call(Send::new("Good", "x")).expect(0);
    let around = |path: &Path| {
        tree(path)
            .into_iter()
            .filter(|p| !p.starts_with(&store))
            .collect::<BTreeSet<_>>()
    };
    let before = (around(outer.path()), names_of_queues(&store));

    for name in bad_names() {
        let shown = &name[..name.len().min(40)];
        // Topics.
        for send in [
            Send::new(&name, "x"),
            Send::new(&name, "x").code(10),
            Send::batch(&name, &["x"]),
        ] {
            let reply = client.call(send);
            assert_eq!(reply.code, 29, "send to {shown:?}: {}", reply.remark);
            assert!(
                reply.remark.len() < 1000,
                "a remark of {} bytes",
                reply.remark.len()
            );
        }
        let make = Request::new(17).with("topic", &name).with("perm", 6);
        let reply = client.call(make.with("readQueueNums", 1).with("writeQueueNums", 1));
        assert_eq!(reply.code, 29, "topic {shown:?}: {}", reply.remark);
        assert_eq!(
            client.call(Pull::new(&name, 0, 0)).code,
            17,
            "pull from {shown:?}"
        );
        assert_eq!(
            client.call(Pull::new(&name, 0, 0).suspend(3000)).code,
            17,
            "{shown:?}"
        );
        assert_eq!(
            client.call(commit("good", &name, 0, 5)).code,
            17,
            "commit to {shown:?}"
        );
        assert_eq!(
            client
                .call(queue_offset(30, &name, 0))
                .expect(0)
                .int("offset"),
            0
        );
        assert_eq!(
            client
                .call(queue_offset(31, &name, 0))
                .expect(0)
                .int("offset"),
            0
        );
        assert_eq!(
            client
                .call(queue_offset(29, &name, 0).with("timestamp", 1))
                .expect(0)
                .int("offset"),
            0
        );
        assert_eq!(
            committed(&mut client, "good", &name, 0).code,
            22,
            "{shown:?}"
        );
        for code in [351, 202] {
            assert_eq!(
                client.call(Request::new(code).with("topic", &name)).code,
                17,
                "{code} {shown:?}"
            );
        }
        // Groups.
        let group = json!({"groupName": name, "consumeEnable": true});
        let reply = client.call(Request::new(200).with_body(group.to_string()));
        assert!(
            matches!(reply.code, 1 | 29),
            "group {shown:?}: {}",
            reply.code
        );
        let reply = client.call(Pull::new("Good", 0, 0).group(&name));
        assert_eq!(reply.code, 26, "pull by {shown:?}: {}", reply.remark);
        assert_eq!(
            client.call(commit(&name, "Good", 0, 5)).code,
            26,
            "commit by {shown:?}"
        );
        let back = Request::new(36)
            .with("offset", 0)
            .with("group", &name)
            .with("delayLevel", 1);
        assert_eq!(client.call(back).code, 26, "send back by {shown:?}");
        client.call(heartbeat(&Consumer::new("client", &name, "Good")));
        client.call(heartbeat(&Consumer::new(&name, "good", &name)));
        client.call(Request::new(38).with("consumerGroup", &name));
        let lock = json!({"consumerGroup": "good", "clientId": "c",
            "mqSet": [{"topic": name, "brokerName": name, "queueId": 0}]});
        client
            .call(Request::new(41).with_body(lock.to_string()))
            .expect(0);
    }
    let all = client.call(Request::new(21)).expect(0).json();
    for made in all["topicConfigTable"].as_object().unwrap().keys() {
        let allowed = |c: char| {
            c.is_ascii_alphanumeric() || "%|_-".contains(c) || made.contains(&server_name())
        };
        assert!(
            made.chars().all(allowed) && made.len() <= 255,
            "topic {made:?} was made"
        );
    }
    assert_eq!((around(outer.path()), names_of_queues(&store)), before);
    server.assert_healthy();
}

/// The broker's topics are named after it, whatever the host is called.
fn server_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn deleting_a_topic_deletes_no_other_path() {
    let server = Config::server().shards(2).start();
    let mut client = server.connect();
    topic(&mut client, "Good", 2);
    for queue in 0..2 {
        client.call(Send::new("Good", "x").queue(queue)).expect(0);
    }
    let store = server.store().to_owned();
    fs::write(store.join("precious"), "x").unwrap();
    fs::create_dir(store.join("consumequeue/leftover")).unwrap();
    let kept = [
        "precious",
        "config",
        "commitlog",
        "consumequeue",
        "lock",
        "shard-1",
        "consumequeue/leftover",
    ];
    for name in [
        "..",
        "../..",
        "../config",
        "../commitlog",
        "../precious",
        "../shard-1",
        ".",
        "",
        "/",
        "Good/../leftover",
        "Good/0",
        "../consumequeue",
    ] {
        let reply = client.call(Request::new(215).with("topic", name));
        assert!(
            matches!(reply.code, 0 | 1 | 17 | 29),
            "{name:?}: {}",
            reply.code
        );
    }
    for name in [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "rmq_sys_x",
    ] {
        client
            .call(Request::new(215).with("topic", name))
            .expect(29);
    }
    for path in kept {
        assert!(store.join(path).exists(), "{path} is gone");
    }
    for queue in 0..2 {
        assert_eq!(
            client
                .call(Pull::new("Good", queue, 0))
                .expect(0)
                .records()
                .len(),
            1
        );
    }
    assert_eq!(server.stop(), 0);
}

#[test]
fn the_longest_names_work() {
    let server = Config::server().shards(2).start();
    let mut client = server.connect();
    let (longest, group) = ("t".repeat(127), "g".repeat(120));
    client.call(Send::new(&longest, "x")).expect(0);
    let record = client
        .call(Pull::new(&longest, 0, 0).group(&group))
        .expect(0)
        .records()
        .remove(0);
    assert_eq!(record.topic, longest);
    // Its retry topic is longer than a topic may be, and is made all the same.
    let consumer = Consumer::new("client", &group, &longest);
    client.call(heartbeat(&consumer)).expect(0);
    client
        .call(Request::new(351).with("topic", format!("%RETRY%{group}")))
        .expect(0);
    let back = Request::new(36)
        .with("offset", record.physical_offset)
        .with("group", &group)
        .with("delayLevel", 1);
    client.call(back).expect(0);
    let retry = format!("%RETRY%{group}");
    let back = client
        .call(Pull::new(&retry, 0, 0).group(&group).suspend(10_000))
        .expect(0);
    assert_eq!(back.records()[0].topic, retry);
    assert_eq!(back.records()[0].body, b"x");
}
