//! A whole client against a server that answers when it is told to, while the wall clock jumps.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_lite::future::{block_on, poll_once};

use super::clock::JUMPED_MS;
use super::lead::{LEADS, READ_MAX};
use crate::client::core::tests::record;
use crate::client::{
    Batch, ClientSettings, ErrorKind, Message, MessageQueue, Producer, ProducerSettings,
    PushConsumer, PushConsumerSettings, SendRequest,
};
use crate::wire::body::route::{BrokerData, QueueData, TopicRouteData};
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};
use crate::wire::frame::{Split, split};
use crate::wire::header::{Header, Scratch};

const DAY_MS: i64 = 86_400_000;

/// How long the server takes for a send that says `late`, and holds a pull, ms.
const LATE_MS: u64 = 150;

/// How long the route of the topic `slow` takes, ms.
const SLOW_MS: u64 = 1_500;

/// Time for what waits for nothing.
const SOON: Duration = Duration::from_millis(1_000);

/// Nameserver and broker in one, and what it has seen.
struct Server {
    address: SocketAddr,
    connections: AtomicUsize,
    pulls: AtomicUsize,
    /// Bodies of sends, with how often each came.
    sends: Mutex<BTreeMap<Vec<u8>, usize>>,
    /// When clients say that their sends were made, ms since 1970.
    stamps: Mutex<Vec<i64>>,
    /// The consumer's own name.
    member: Mutex<Option<String>>,
    /// How long after the end of a connection clients close theirs.
    ends: Mutex<Vec<Duration>>,
    /// A further broker of the topic.
    other: Mutex<Option<SocketAddr>>,
    /// A replica, from which readers are to pull.
    replica: Mutex<Option<SocketAddr>>,
}

impl Server {
    fn start() -> Arc<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = Arc::new(Server {
            address: listener.local_addr().unwrap(),
            connections: AtomicUsize::new(0),
            pulls: AtomicUsize::new(0),
            sends: Mutex::default(),
            stamps: Mutex::default(),
            member: Mutex::default(),
            ends: Mutex::default(),
            other: Mutex::default(),
            replica: Mutex::default(),
        });
        let own = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                own.connections.fetch_add(1, Ordering::SeqCst);
                let own = own.clone();
                std::thread::spawn(move || own.serve(stream));
            }
        });
        server
    }

    fn serve(&self, mut stream: TcpStream) {
        let (mut buffer, mut chunk) = (Vec::new(), [0; 64 * 1024]);
        let mut ended = None;
        while let Ok(read @ 1..) = stream.read(&mut chunk) {
            buffer.extend_from_slice(&chunk[..read]);
            let mut used = 0;
            while let Split::Frame(frame, length) = split(&buffer[used..]).unwrap() {
                used += length;
                let mut scratch = Scratch::default();
                let header = Header::decode(&frame, &mut scratch).unwrap();
                let asked = Request::from_header(&frame, &header);
                let Some((after_ms, answer)) = self.answer(&asked) else {
                    continue;
                };
                let mut bytes = Vec::new();
                answer.encode(&mut bytes, asked.serialize, asked.fixed.opaque);
                let mut out = stream.try_clone().unwrap();
                let mut write = move || {
                    std::thread::sleep(Duration::from_millis(after_ms));
                    let _ = out.write_all(&bytes);
                };
                match after_ms {
                    0 => write(),
                    _ => drop(std::thread::spawn(write)),
                }
                if asked.body.starts_with(b"last") {
                    stream.shutdown(std::net::Shutdown::Write).unwrap();
                    ended = Some(Instant::now());
                }
            }
            buffer.drain(..used);
        }
        self.ends
            .lock()
            .unwrap()
            .extend(ended.map(|at| at.elapsed()));
    }

    /// What is answered, after how many ms; `None`: nothing.
    fn answer(&self, asked: &Request) -> Option<(u64, Response)> {
        let at_once = |response| Some((0, response));
        match asked.fixed.code {
            request::GET_ROUTEINFO_BY_TOPIC => match asked.get("topic") {
                Some("silent") => None,
                Some("slow") => Some((SLOW_MS, Response::body(self.route()))),
                _ => at_once(Response::body(self.route())),
            },
            request::SEND_MESSAGE_V2 => {
                let born = asked.get("g").unwrap().parse().unwrap();
                self.stamps.lock().unwrap().push(born);
                let body = asked.body.to_vec();
                let answer = Response::ok()
                    .with("msgId", "7F00000100002A9F0000000000000000")
                    .with("queueId", asked.get("e").unwrap())
                    .with("queueOffset", 0);
                let moved = body.starts_with(b"moved") && self.other.lock().unwrap().is_some();
                let answer = match moved {
                    true => Response::error(response::SYSTEM_BUSY, "elsewhere"),
                    false => answer,
                };
                let (silent, late) = (body.starts_with(b"silent"), body.starts_with(b"late"));
                *self.sends.lock().unwrap().entry(body).or_default() += 1;
                (!silent).then_some((if late { LATE_MS } else { 0 }, answer))
            }
            request::HEART_BEAT => {
                let beat: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
                let consumes = beat["consumerDataSet"]
                    .as_array()
                    .is_some_and(|set| !set.is_empty());
                if consumes {
                    let id = beat["clientID"].as_str().map(str::to_owned);
                    *self.member.lock().unwrap() = id;
                }
                at_once(Response::ok())
            }
            request::GET_CONSUMER_LIST_BY_GROUP => {
                let ids: Vec<String> = self.member.lock().unwrap().iter().cloned().collect();
                let body = serde_json::json!({ "consumerIdList": ids });
                at_once(Response::body(body.to_string()))
            }
            request::PULL_MESSAGE => {
                self.pulls.fetch_add(1, Ordering::SeqCst);
                let offset: i64 = asked.int("queueOffset").unwrap();
                let found = offset < 3 && asked.get("topic") == Some("t");
                let next = offset + i64::from(found);
                let answer = Response {
                    code: if found { 0 } else { response::PULL_NOT_FOUND },
                    ..match found {
                        true => Response::body(record(b"pulled", offset)),
                        false => Response::ok(),
                    }
                };
                let answer = answer
                    .with("suggestWhichBrokerId", i32::from(self.has_replica()))
                    .with("nextBeginOffset", next)
                    .with("minOffset", 0)
                    .with("maxOffset", 3);
                Some((LATE_MS, answer))
            }
            request::QUERY_CONSUMER_OFFSET | request::GET_MAX_OFFSET | request::GET_MIN_OFFSET => {
                at_once(Response::ok().with("offset", 0))
            }
            _ => at_once(Response::ok()),
        }
    }

    fn has_replica(&self) -> bool {
        self.replica.lock().unwrap().is_some()
    }

    fn route(&self) -> Vec<u8> {
        let other = *self.other.lock().unwrap();
        let mut route = TopicRouteData::default();
        let brokers = [("broker-a", Some(self.address)), ("broker-b", other)];
        for (name, address) in brokers {
            let Some(address) = address else { continue };
            let replica = self.replica.lock().unwrap().filter(|_| name == "broker-a");
            let members = [(0, Some(address)), (1, replica)].into_iter();
            let members = members.filter_map(|(id, address)| Some((id, address?.to_string())));
            route.broker_datas.push(BrokerData {
                broker_addrs: members.collect(),
                broker_name: name.to_owned(),
                cluster: "c".to_owned(),
                ..BrokerData::default()
            });
            route.queue_datas.push(QueueData {
                broker_name: name.to_owned(),
                perm: 6,
                read_queue_nums: 1,
                write_queue_nums: 1,
                topic_sys_flag: 0,
            });
        }
        serde_json::to_vec(&route).unwrap()
    }
}

/// Sets the wall clock every 5 ms, days forth and years back, until it is dropped.
struct Jumps {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Jumps {
    fn begin() -> Jumps {
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let jump = move || {
            let jumps = [
                DAY_MS,
                -DAY_MS,
                365 * DAY_MS,
                -30_000 * DAY_MS,
                61_000,
                -61_000,
            ];
            for jump in jumps.into_iter().cycle() {
                JUMPED_MS.store(jump, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
                if until.load(Ordering::Relaxed) {
                    break;
                }
            }
            JUMPED_MS.store(0, Ordering::Relaxed);
        };
        let thread = Some(std::thread::spawn(jump));
        Jumps { over, thread }
    }
}

impl Drop for Jumps {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Nothing ends early or late, is sent again or is closed because the wall clock was set.
#[test]
fn a_wall_clock_that_jumps_ends_delays_and_repeats_nothing() {
    let server = Server::start();
    let client = ClientSettings {
        rebalance_interval_ms: 300,
        ..ClientSettings::with_name_servers(&server.address.to_string())
    };
    let settings = ProducerSettings {
        send_timeout_ms: 4_000,
        ..ProducerSettings::new("jumps")
    };
    let producer = Producer::start(&client, settings).unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let counts = seen.clone();
    let consumer = PushConsumer::start(
        &client,
        PushConsumerSettings::new("jumps"),
        [("t", "*")],
        move |batch: &Batch| {
            counts.fetch_add(batch.messages.len(), Ordering::SeqCst);
        },
    )
    .unwrap();
    producer.send(Message::new("t", "first")).unwrap();
    let connections = server.connections.load(Ordering::SeqCst);
    let pulls = server.pulls.load(Ordering::SeqCst);

    let began = Instant::now();
    let jumps = Jumps::begin();
    let timed = |request: crate::client::SendRequest| {
        let began = Instant::now();
        (producer.send(request), began.elapsed())
    };
    for round in 0..6 {
        // Alone, one after the other, so that senders read their answers.
        for n in 0..15 {
            let (sent, took) = timed(Message::new("t", format!("soon {round} {n}")).into());
            assert_eq!(sent.unwrap().tries, 1);
            assert!(took < SOON, "{took:?}");
        }
        let (sent, took) = timed(Message::new("t", format!("late {round}")).into());
        assert_eq!(sent.unwrap().tries, 1);
        assert!(
            took >= Duration::from_millis(LATE_MS) && took < SOON,
            "{took:?}"
        );
        let silent = crate::client::SendRequest::from(Message::new("t", format!("silent {round}")));
        let limit = Duration::from_millis(200);
        let (sent, took) = timed(silent.timeout(limit));
        let error = sent.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Timeout { .. }), "{error}");
        assert!(took >= limit && took < limit + SOON, "{took:?}");
        let told = Duration::from_millis(error.elapsed_ms());
        assert!(
            told >= limit && told <= took + Duration::from_millis(1),
            "{error}"
        );
    }
    let waits: Vec<_> = (0..40)
        .map(|n| producer.send_async(Message::new("t", format!("late async {n}"))))
        .collect();
    for wait in waits {
        assert_eq!(wait.wait().unwrap().tries, 1);
    }
    let lasted = began.elapsed();
    drop(jumps);

    let stamps = std::mem::take(&mut *server.stamps.lock().unwrap());
    let (first, last) = (stamps.iter().min().unwrap(), stamps.iter().max().unwrap());
    assert!(
        last - first > DAY_MS,
        "the clock has jumped: {first} {last}"
    );
    for (body, count) in &*server.sends.lock().unwrap() {
        assert_eq!(*count, 1, "{}", String::from_utf8_lossy(body));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), connections);
    assert_eq!(seen.load(Ordering::SeqCst), 3);
    // Of two queues, the group's retry queue among them, one after the other each.
    let pulls = server.pulls.load(Ordering::SeqCst) - pulls;
    let each = lasted.as_millis() as usize / LATE_MS as usize;
    assert!(pulls <= 2 * each + 4, "{pulls} pulls in {lasted:?}");
    assert!(pulls >= each / 2, "{pulls} pulls in {lasted:?}");
    consumer.shutdown().unwrap();
    producer.shutdown().unwrap();
}

fn median(took: impl Iterator<Item = Duration>) -> Duration {
    let mut took: Vec<Duration> = took.collect();
    took.sort_unstable();
    took[took.len() / 2]
}

/// Who waits for a slow answer and reads it himself keeps no other from his: not at the same
/// broker, whose connection he reads, and not at another.
#[test]
fn a_sender_who_reads_holds_nobody_up() {
    let (server, other) = (Server::start(), Server::start());
    *server.other.lock().unwrap() = Some(other.address);
    let client = ClientSettings::with_name_servers(&server.address.to_string());
    let producer = Producer::start(&client, ProducerSettings::new("leads")).unwrap();
    let queues = block_on(producer.publish_queues("t")).unwrap();
    assert_eq!(queues.len(), 2);
    let leads = LEADS.load(Ordering::Relaxed);
    let send = |queue: &MessageQueue, text: String| {
        let request = SendRequest::from(Message::new("t", text));
        let began = Instant::now();
        let sent = producer.send(request.queue(queue.clone())).unwrap();
        assert_eq!((&sent.queue, sent.tries), (queue, 1));
        began.elapsed()
    };
    for slow in &*queues {
        for quick in &*queues {
            let took = (0..10).map(|round| {
                // Alone, one after the other, so that the next sender reads his answer.
                for n in 0..15 {
                    send(slow, format!("soon {round} {n}"));
                    send(quick, format!("soon too {round} {n}"));
                }
                std::thread::scope(|scope| {
                    let late = scope.spawn(|| send(slow, format!("late {round}")));
                    std::thread::sleep(Duration::from_millis(2));
                    let took = send(quick, format!("meanwhile {round}"));
                    assert!(late.join().unwrap() >= Duration::from_millis(LATE_MS));
                    took
                })
            });
            let took = median(took);
            assert!(took < READ_MAX / 2, "{slow:?} {quick:?}: {took:?}");
        }
    }
    // Nor himself from an answer that comes from elsewhere.
    let moved = (0..200).filter_map(|n| {
        let began = Instant::now();
        let sent = producer.send(Message::new("t", format!("moved {n}")));
        (sent.unwrap().tries == 2).then(|| began.elapsed())
    });
    let took = median(moved);
    assert!(took < READ_MAX / 2, "{took:?}");
    // Nor the client from the end of a connection that nobody waits at.
    for round in 0..5 {
        send(&queues[1], format!("last {round}"));
        for n in 0..60 {
            send(&queues[0], format!("soon after {round} {n}"));
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    let ends = std::mem::take(&mut *other.ends.lock().unwrap());
    assert_eq!(ends.len(), 5);
    let took = median(ends.into_iter());
    assert!(took < READ_MAX / 2, "{took:?}");
    let leads = LEADS.load(Ordering::Relaxed) - leads;
    assert!(leads > 500, "callers read {leads} times");
    producer.shutdown().unwrap();
}

fn take<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = call();
    (result, began.elapsed())
}

/// Whatever it has to wait for before it leaves.
#[test]
fn a_send_takes_no_longer_than_its_caller_gives_it() {
    let server = Server::start();
    let client = ClientSettings::with_name_servers(&server.address.to_string());
    let start = |group: &str| {
        let settings = ProducerSettings {
            send_timeout_ms: 20_000,
            in_flight_max: 1,
            ..ProducerSettings::new(group)
        };
        Producer::start(&client, settings).unwrap()
    };
    let request = |topic: &str, text: &str, ms: u64| {
        let request = SendRequest::from(Message::new(topic, text.to_owned()));
        request.timeout(Duration::from_millis(ms))
    };
    let fails = |producer: &Producer, request: SendRequest, ms: u64| {
        let (sent, took) = take(|| producer.send(request));
        let (error, limit) = (sent.unwrap_err(), Duration::from_millis(ms));
        assert!(took >= limit && took < limit + SOON, "{took:?}: {error}");
        assert!(error.elapsed_ms() >= ms, "{error}");
        error
    };
    let (full, free) = (start("full"), start("free"));
    block_on(full.publish_queues("t")).unwrap();
    std::thread::scope(|scope| {
        // One that has all the room for a while.
        let first = full.send_async(request("t", "silent", 2_000));
        let too_much =
            |kind: &ErrorKind| matches!(kind, ErrorKind::TooMuchInFlight { limit: 1, .. });
        let error = fails(&full, request("t", "waits", 100), 100);
        assert!(too_much(error.kind()), "{error}");
        let selected = request("t", "waits", 100).select(|_, _| 0);
        let error = fails(&full, selected, 100);
        assert!(too_much(error.kind()), "{error}");
        let waits = full.send_async(request("t", "waits", 100));
        let (sent, took) = take(|| block_on(waits));
        assert!(took < SOON && too_much(sent.unwrap_err().kind()));
        // Room comes, and what is left of the time is for the broker.
        let timeout = |limit_ms| ErrorKind::Timeout { limit_ms };
        scope.spawn(move || {
            let error = fails(&full, request("t", "silent too", 2_500), 2_500);
            assert_eq!(*error.kind(), timeout(2_500));
            assert!(first.wait().is_err());
        });
        // So it is with the route that a selector needs.
        let selected = |topic: &str, ms| request(topic, "silent", ms).select(|_, _| 0);
        let error = fails(&free, selected("silent", 100), 100);
        assert_eq!(*error.kind(), timeout(100));
        let error = fails(&free, selected("slow", 2_000), 2_000);
        assert_eq!(*error.kind(), timeout(2_000));
    });
}

#[test]
fn a_shutdown_waits_for_a_send_as_long_as_the_send_may_take() {
    let server = Server::start();
    let client = ClientSettings::with_name_servers(&server.address.to_string());
    let settings = ProducerSettings {
        send_timeout_ms: 40,
        ..ProducerSettings::new("patient")
    };
    let producer = Producer::start(&client, settings).unwrap();
    let late = SendRequest::from(Message::new("t", "late"));
    let late = producer.send_async(late.timeout(Duration::from_secs(5)));
    producer.shutdown().unwrap();
    assert_eq!(late.wait().unwrap().tries, 1);
}

/// Whoever gave up waiting for the shutdown does not lose what is on its way.
#[test]
fn a_drop_after_a_shutdown_that_was_cancelled_waits_for_sends() {
    let server = Server::start();
    let client = ClientSettings::with_name_servers(&server.address.to_string());
    let producer = Producer::start(&client, ProducerSettings::new("cancelled")).unwrap();
    producer.send(Message::new("t", "first")).unwrap();
    let late = producer.send_async(Message::new("t", "late"));
    let mut stop = producer.shutdown_async();
    assert!(block_on(poll_once(&mut stop)).is_none());
    drop(stop);
    drop(producer);
    let end = block_on(poll_once(late)).expect("the drop has waited for it");
    assert_eq!(end.unwrap().tries, 1);
}

/// A master that has much to read from its disk says so.
#[test]
fn the_next_pull_goes_to_the_broker_that_the_last_one_suggests() {
    let (master, replica) = (Server::start(), Server::start());
    *master.replica.lock().unwrap() = Some(replica.address);
    let client = ClientSettings::with_name_servers(&master.address.to_string());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let offsets = seen.clone();
    let consumer = PushConsumer::start(
        &client,
        PushConsumerSettings::new("suggested"),
        [("t", "*")],
        move |batch: &Batch| {
            let mut seen = offsets.lock().unwrap();
            seen.extend(batch.messages.iter().map(|message| message.queue_offset));
        },
    )
    .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while seen.lock().unwrap().len() < 3 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut offsets = seen.lock().unwrap().clone();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 1, 2]);
    let pulls = |server: &Server| server.pulls.load(Ordering::SeqCst);
    // The replica suggests the master.
    assert!(pulls(&replica) >= 1 && pulls(&master) >= 1);
    assert_eq!(replica.sends.lock().unwrap().len(), 0);
    consumer.shutdown().unwrap();
}
