//! Brokers that answer in part, late, or not at all, beside others.

use crate::command::{Found, Watched, admin, ask, prepare};
use crate::common::{Config, Pull, Send, eventually, shared, unique};
use crate::liars::liar;
use ringmq::wire::command::{Request, Response};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Codes of requests.
const PULL: i32 = 11;
const QUERY_MESSAGE: i32 = 12;
const SEARCH_OFFSET: i32 = 29;
const MAX_OFFSET: i32 = 30;
const MIN_OFFSET: i32 = 31;
const ROUTE: i32 = 105;
const CLUSTER_INFO: i32 = 106;
const DELETE_GROUP: i32 = 207;
const DELETE_TOPIC: i32 = 215;

type Answer = Result<Response, Vec<u8>>;

/// What is no answer.
fn garbage() -> Answer {
    Err(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())
}

fn bounds(request: &Request, max: i64) -> Answer {
    Ok(match request.fixed.code {
        MAX_OFFSET | SEARCH_OFFSET => Response::body("").with("offset", max),
        MIN_OFFSET => Response::body("").with("offset", 0),
        _ => Response::error(1, "what?"),
    })
}

/// A nameserver of one cluster, whose topics have so many queues on each of these brokers.
fn nameserver(brokers: &[(&str, SocketAddr)], queues: Arc<AtomicI64>) -> SocketAddr {
    let brokers: Vec<(String, SocketAddr)> = brokers
        .iter()
        .map(|(name, address)| ((*name).to_owned(), *address))
        .collect();
    liar(move |request| {
        let count = queues.load(Ordering::Relaxed);
        let data = brokers.iter().map(|(name, address)| {
            let addresses = serde_json::json!({ "0": address.to_string() });
            serde_json::json!({ "brokerName": name, "cluster": "c", "brokerAddrs": addresses })
        });
        let data: Vec<_> = data.collect();
        let names: Vec<_> = brokers.iter().map(|(name, _)| name).collect();
        let queues = names.iter().map(|name| {
            serde_json::json!({ "brokerName": name, "readQueueNums": count,
                                "writeQueueNums": count, "perm": 6 })
        });
        let body = match request.fixed.code {
            ROUTE => serde_json::json!({ "brokerDatas": data,
                                         "queueDatas": queues.collect::<Vec<_>>() }),
            CLUSTER_INFO => {
                let table = data.iter().map(|data| {
                    let name = data["brokerName"].as_str().expect("a name").to_owned();
                    (name, data.clone())
                });
                let table: serde_json::Map<_, _> = table.collect();
                serde_json::json!({ "brokerAddrTable": table,
                                    "clusterAddrTable": { "c": names } })
            }
            _ => return Ok(Response::body("")),
        };
        Ok(Response::body(body.to_string().into_bytes()))
    })
}

fn one() -> Arc<AtomicI64> {
    Arc::new(AtomicI64::new(1))
}

fn follow(nameserver: SocketAddr, line: &str) -> Watched {
    let child = prepare(nameserver, line).spawn();
    Watched::of(child.expect("the binary starts"))
}

/// The record of a stored message, as brokers give it.
fn record(topic: &str, body: &str, id: &str) -> Vec<u8> {
    let server = shared();
    admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    let mut client = server.connect();
    let send = Send::new(topic, body).queue(0).property("UNIQ_KEY", id);
    client.call(send).expect(0);
    client.call(Pull::new(topic, 0, 0)).expect(0).body.to_vec()
}

#[test]
fn each_broker_that_fails_is_told_of_also_in_one_round() {
    let broker = || {
        liar(|request| match request.fixed.code {
            PULL => garbage(),
            _ => bounds(request, 0),
        })
    };
    let brokers = [
        ("first", broker()),
        ("second", broker()),
        ("third", broker()),
    ];
    let watched = follow(nameserver(&brokers, one()), "consume T --follow");
    for (name, _) in brokers {
        watched.says(&format!("broker {name:?}"));
    }
    std::thread::sleep(Duration::from_secs(3));
    let errors = watched.errors();
    assert_eq!(errors.matches("tried again").count(), 3, "{errors}");
}

#[test]
fn a_silent_broker_is_waited_for_a_fifth_of_the_time() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let sink = asked.clone();
    let broker = liar(move |request| match request.fixed.code {
        PULL => {
            sink.lock().unwrap().push(Instant::now());
            Err(Vec::new())
        }
        _ => bounds(request, 0),
    });
    let line = "consume T --follow --timeout 500ms";
    let _watched = follow(nameserver(&[("silent", broker)], one()), line);
    eventually("it is asked twice", Duration::from_secs(60), || {
        asked.lock().unwrap().len() >= 2
    });
    let asked = asked.lock().unwrap();
    let between = asked[1] - asked[0];
    assert!(between >= Duration::from_millis(2_400), "{between:?}");
}

#[test]
fn queues_that_are_made_anew_or_come_later_are_read_from_their_beginning() {
    let (max, fails) = (
        Arc::new(AtomicI64::new(3)),
        Arc::new(AtomicBool::new(false)),
    );
    let message = record(&unique("record"), "anew", "ID");
    let (ends, failing) = (max.clone(), fails.clone());
    let broker = liar(move |request| {
        let max = ends.load(Ordering::Relaxed);
        if request.fixed.code != PULL {
            return bounds(request, max);
        }
        if failing.swap(false, Ordering::Relaxed) {
            return garbage();
        }
        let offset: i64 = request.int("queueOffset").expect("an offset");
        let queue: i32 = request.int("queueId").expect("a queue");
        let answer = match (0..max).contains(&offset) {
            true => {
                let mut record = message.clone();
                record[12..16].copy_from_slice(&queue.to_be_bytes());
                record[20..28].copy_from_slice(&offset.to_be_bytes());
                Response::body(record).with("nextBeginOffset", offset + 1)
            }
            false => Response::error(19, "none").with("nextBeginOffset", max),
        };
        Ok(answer.with("minOffset", 0).with("maxOffset", max))
    });
    let queues = one();
    let nameserver = nameserver(&[("only", broker)], queues.clone());
    let line = "consume T --follow --from last --format template --template {queue}/{offset}\\n";
    let watched = follow(nameserver, line);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(watched.lines(), [""; 0], "{}", watched.errors());

    max.store(2, Ordering::Relaxed);
    watched.shows("0/1");
    assert_eq!(watched.lines(), ["0/0", "0/1"]);
    let errors = watched.errors();
    assert_eq!(errors.matches("made anew").count(), 1, "{errors}");

    queues.store(2, Ordering::Relaxed);
    // Who fails is looked for.
    fails.store(true, Ordering::Relaxed);
    watched.shows("1/1");
    assert_eq!(watched.lines(), ["0/0", "0/1", "1/0", "1/1"]);
}

#[test]
fn a_group_that_is_deleted_is_told_though_its_topics_stay() {
    let broker = |fails: bool| {
        liar(move |request| {
            Ok(match request.fixed.code {
                DELETE_TOPIC if fails => Response::error(1, "not now"),
                DELETE_TOPIC | DELETE_GROUP => Response::body(""),
                _ => Response::error(1, "what?"),
            })
        })
    };
    let delete = |brokers: &[(&str, SocketAddr)]| -> Found {
        let line = "admin deleteSubGroup -c c -g g -y --output json";
        ask(nameserver(brokers, one()), line)
    };
    let (good, bad) = (("good", broker(false)), ("bad", broker(true)));
    for brokers in [&[good, bad][..], &[bad]] {
        let found = delete(brokers).refused(4, "not now");
        for topic in ["%RETRY%g", "%DLQ%g"] {
            assert!(
                found.stderr.contains("broker \"bad\""),
                "{topic}: {}",
                found.stderr
            );
        }
        assert_eq!(
            found.stderr.matches("not now").count(),
            2,
            "{}",
            found.stderr
        );
        let found = found.json();
        let deleted = found["brokers"].as_array().expect("brokers").len();
        assert_eq!(deleted, brokers.len(), "{found}");
        assert_eq!(found["topics"], serde_json::json!([]), "{found}");
    }
    let found = delete(&[good]).good().json();
    assert_eq!(
        found["topics"].as_array().expect("topics").len(),
        2,
        "{found}"
    );
}

#[test]
fn a_message_that_nobody_found_may_be_with_who_did_not_answer() {
    let (topic, id) = (unique("record"), "0A0000010000000000000000000000AA");
    let message = record(&topic, "found", id);
    let broker = |answer: Option<Vec<u8>>| {
        liar(move |request| {
            Ok(match (request.fixed.code, &answer) {
                (QUERY_MESSAGE, None) => Response::error(22, "no message"),
                (QUERY_MESSAGE, Some(record)) if record.is_empty() => Response::error(1, "not now"),
                (QUERY_MESSAGE, Some(record)) => Response::body(record.clone())
                    .with("indexLastUpdateTimestamp", 0)
                    .with("indexLastUpdatePhyoffset", 0),
                _ => Response::body(r#"{"groupList":[]}"#.as_bytes()),
            })
        })
    };
    let has_none = ("none", broker(None));
    let fails = ("fails", broker(Some(Vec::new())));
    let has_it = ("found", broker(Some(message)));
    for command in [
        format!("queryMsgByUniqueKey -t {topic} -i {id}"),
        format!("queryMsgByUniqueKey -t {topic} -i {id} -a"),
        format!("queryMsgById -t {topic} -i {id}"),
    ] {
        let of = |brokers: &[(&str, SocketAddr)]| {
            ask(nameserver(brokers, one()), &format!("admin {command}"))
        };
        of(&[has_none]).refused(3, "no message with id");
        of(&[has_none, fails]).refused(4, "not now");
        of(&[has_it, has_none]).good();
        let found = of(&[has_it, fails]).refused(4, "not now");
        assert!(!found.stdout.is_empty(), "{command}");
    }
}

#[test]
fn what_is_shown_again_and_again_outlives_a_cluster_that_is_away() {
    let mut server = Config::server().start();
    let line = "admin clusterList -i 1 --timeout 1s";
    let mut watched = follow(server.nameserver(), line);
    watched.shows("DefaultCluster");
    server.kill();
    watched.says("ringmq: ");
    server.start_again();
    let before = watched.lines().len();
    eventually("it is shown again", Duration::from_secs(60), || {
        watched.lines().len() > before + 6
    });
    watched.signal(libc::SIGINT);
    let code = watched.ended(Duration::from_secs(20));
    assert_eq!(code, Some(0), "{}", watched.errors());
}
