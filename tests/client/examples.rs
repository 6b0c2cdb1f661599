//! The examples of the client's documentation, each as a newcomer would run it: with a broker
//! that has just been started.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use ringmq::client::Message;
use ringmq::client::remote::Remote;

use crate::common::{Config, Record, Server, commit, committed, eventually, topic};
use crate::impostor::{Answer, Impostor};
use crate::support::{PATIENCE, producer, stored};

#[path = "examples/assign_and_seek.rs"]
mod assign_and_seek;
#[path = "examples/broadcast.rs"]
mod broadcast;
#[path = "examples/consume_concurrently.rs"]
mod consume_concurrently;
#[path = "examples/consume_in_order.rs"]
mod consume_in_order;
#[path = "examples/count_tries.rs"]
mod count_tries;
#[path = "examples/list_topics.rs"]
mod list_topics;
#[path = "examples/produce_and_consume.rs"]
mod produce_and_consume;
#[path = "examples/pull.rs"]
mod pull;
#[path = "examples/retry_later.rs"]
mod retry_later;
#[path = "examples/send.rs"]
mod send;
#[path = "examples/send_async.rs"]
mod send_async;
#[path = "examples/send_batch.rs"]
mod send_batch;
#[path = "examples/send_in_order.rs"]
mod send_in_order;
#[path = "examples/send_later.rs"]
mod send_later;
#[path = "examples/send_with_callback.rs"]
mod send_with_callback;
#[path = "examples/sign_requests.rs"]
mod sign_requests;

/// Queues of a topic that is made by sending.
const QUEUES: i32 = 4;

#[test]
fn the_first_example_is_that_of_the_readme() {
    let readme = fs::read_to_string("README.md").unwrap();
    let example = include_str!("examples/send.rs");
    assert!(readme.contains(&format!("```rust\n{example}```")));
}

/// A server that nobody has used, and what its clients are told.
fn fresh() -> (Server, String) {
    let server = Config::server().start();
    let name_servers = server.nameserver().to_string();
    (server, name_servers)
}

/// The messages of a topic that was made by sending.
fn sent(server: &Server, topic: &str) -> Vec<Record> {
    stored(&mut server.connect(), topic, QUEUES)
}

fn bodies(records: &[Record]) -> Vec<String> {
    let text = |record: &Record| String::from_utf8_lossy(&record.body).into_owned();
    records.iter().map(text).collect()
}

/// These orders are there, one behind the other.
fn assert_in_one_queue(server: &Server, orders: [&str; 3]) {
    let records = sent(server, "orders");
    assert_eq!(bodies(&records), orders);
    assert!(records.iter().all(|it| it.queue_id == records[0].queue_id));
}

/// Makes a topic with one queue and sends these messages to it.
fn prepare(server: &Server, name: &str, messages: impl IntoIterator<Item = Message>) {
    topic(&mut server.connect(), name, 1);
    let producer = producer(server.nameserver(), "prepare");
    for message in messages {
        producer.send(message).unwrap();
    }
    producer.shutdown().unwrap();
}

/// The offset that a group has stored of a queue.
fn offset(server: &Server, group: &str, topic: &str, queue: i32) -> i64 {
    let reply = committed(&mut server.connect(), group, topic, queue);
    reply.expect(0).int("offset")
}

#[test]
fn produce_and_consume() {
    let (server, name_servers) = fresh();
    produce_and_consume::produce_and_consume(&name_servers).unwrap();
    let records = sent(&server, "orders");
    assert_eq!(bodies(&records), ["one coffee"]);
    assert_eq!(records[0].property("TAGS"), Some("new"));
    let queue = records[0].queue_id;
    assert_eq!(offset(&server, "kitchen", "orders", queue), 1);
}

#[test]
fn send() {
    let (server, name_servers) = fresh();
    send::send(&name_servers).unwrap();
    let records = sent(&server, "orders");
    assert_eq!(bodies(&records), ["one coffee"]);
    assert_eq!(records[0].property("KEYS"), Some("4711"));
}

#[test]
fn send_async() {
    let (server, name_servers) = fresh();
    block_on(send_async::send_async(&name_servers)).unwrap();
    let mut bodies = bodies(&sent(&server, "orders"));
    bodies.sort_by_key(|body| body["coffee ".len()..].parse::<u32>().unwrap());
    let expected: Vec<String> = (0..64).map(|n| format!("coffee {n}")).collect();
    assert_eq!(bodies, expected);
}

#[test]
fn send_with_callback() {
    let (server, name_servers) = fresh();
    send_with_callback::send_with_callback(&name_servers).unwrap();
    assert_eq!(bodies(&sent(&server, "orders")), ["one tea"]);
}

#[test]
fn send_batch() {
    let (server, name_servers) = fresh();
    send_batch::send_batch(&name_servers).unwrap();
    assert_in_one_queue(&server, ["one coffee", "two teas", "three waters"]);
}

#[test]
fn send_in_order() {
    let (server, name_servers) = fresh();
    send_in_order::send_in_order(&name_servers).unwrap();
    assert_in_one_queue(&server, ["created", "paid", "shipped"]);
}

#[test]
fn send_later() {
    let (server, name_servers) = fresh();
    let began = Instant::now();
    send_later::send_later(&name_servers).unwrap();
    eventually("the message is delivered", PATIENCE, || {
        bodies(&sent(&server, "reminders")) == ["the coffee is ready"]
    });
    assert!(began.elapsed() >= Duration::from_millis(900));
}

#[test]
fn count_tries() {
    let (server, name_servers) = fresh();
    count_tries::count_tries(&name_servers).unwrap();
    assert_eq!(bodies(&sent(&server, "orders")), ["one coffee"]);
}

#[test]
fn sign_requests() {
    let (server, name_servers) = fresh();
    sign_requests::sign_requests(&name_servers).unwrap();
    assert_eq!(bodies(&sent(&server, "orders")), ["one coffee"]);

    // Once more, with somebody who looks at what the nameserver is asked.
    let keys = Arc::new(Mutex::new(Vec::new()));
    let (seen, nameserver) = (keys.clone(), server.nameserver());
    let between = Impostor::new(move |request| {
        let key = request.get("AccessKey").map(str::to_owned);
        seen.lock().unwrap().push(key);
        let mut remote = Remote::connect(nameserver, PATIENCE).unwrap();
        Answer::Reply(remote.call(request.clone()).unwrap())
    });
    sign_requests::sign_requests(&between.address.to_string()).unwrap();
    let keys = keys.lock().unwrap();
    assert!(!keys.is_empty());
    assert!(keys.iter().all(|key| key.as_deref() == Some("shop-key")));
}

#[test]
fn consume_concurrently() {
    let (server, name_servers) = fresh();
    prepare(&server, "orders", [Message::new("orders", "x").tag("paid")]);
    consume_concurrently::consume_concurrently(&name_servers).unwrap();
    assert_eq!(offset(&server, "billing", "orders", 0), 1);
}

#[test]
fn consume_in_order() {
    let (server, name_servers) = fresh();
    consume_in_order::consume_in_order(&name_servers).unwrap();
    let records = sent(&server, "entries");
    assert_eq!(bodies(&records), ["opened", "paid in", "closed"]);
    let queue = records[0].queue_id;
    assert_eq!(offset(&server, "ledger", "entries", queue), 3);
}

#[test]
fn retry_later() {
    let (server, name_servers) = fresh();
    prepare(&server, "mails", [Message::new("mails", "hello")]);
    retry_later::retry_later(&name_servers).unwrap();
    assert_eq!(offset(&server, "mailing", "mails", 0), 1);
    assert_eq!(offset(&server, "mailing", "%RETRY%mailing", 0), 1);
}

#[test]
fn broadcast() {
    let (server, name_servers) = fresh();
    let message = Message::new("departures", "10:42 Hof");
    prepare(&server, "departures", [message]);
    let folder = tempfile::tempdir().unwrap();
    broadcast::broadcast(&name_servers, folder.path()).unwrap();
    for board in ["hall", "platform"] {
        let of_board = |entry: &fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            name.ends_with(&format!("@{board}"))
        };
        let mut entries = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        let entry = entries.find(of_board).unwrap();
        let file = entry.path().join("boards/offsets.json");
        let offsets = fs::read_to_string(file).unwrap();
        assert!(offsets.contains(r#""topic":"departures"}:1"#), "{offsets}");
    }
}

#[test]
fn pull() {
    let (server, name_servers) = fresh();
    prepare(&server, "orders", [Message::new("orders", "x")]);
    pull::pull(&name_servers).unwrap();
    assert_eq!(offset(&server, "audit", "orders", 0), 1);
}

#[test]
fn assign_and_seek() {
    let (server, name_servers) = fresh();
    let messages = ["a", "b", "c"].map(|body| Message::new("orders", body));
    prepare(&server, "orders", messages);
    // The group is behind the last message: it goes back because the example says so.
    let all_consumed = commit("replay", "orders", 0, 3);
    server.connect().call(all_consumed).expect(0);
    assign_and_seek::assign_and_seek(&name_servers).unwrap();
    assert_eq!(offset(&server, "replay", "orders", 0), 1);
}

#[test]
fn list_topics() {
    let (server, name_servers) = fresh();
    topic(&mut server.connect(), "orders", 1);
    list_topics::list_topics(&name_servers).unwrap();
}

/// All files below a folder of the repository.
fn files_below(folder: &str) -> Vec<PathBuf> {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        match path.is_dir() {
            true => {
                let entries = fs::read_dir(path).unwrap();
                open.extend(entries.map(|entry| entry.unwrap().path()));
            }
            false => files.push(path),
        }
    }
    files
}

#[test]
fn every_example_is_run_and_shown() {
    let here = include_str!("examples.rs");
    let sources = files_below("src/client");
    let docs: String = sources
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for example in files_below("tests/client/examples") {
        let name = example.file_stem().unwrap().to_str().unwrap();
        let file = format!("examples/{name}.rs\"");
        assert!(here.contains(&file), "{name} is not run");
        let shown = docs.contains(&file) || docs.contains(&format!("example!(\"{name}\")"));
        assert!(shown, "{name} is not in the documentation");
    }
    let written_out = docs.lines().find(|line| line.ends_with("```no_run"));
    assert_eq!(written_out, None, "an example that is never run");
}
