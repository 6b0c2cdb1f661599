//! The hand-over between senders who read their answers themselves and the client's thread, with
//! a broker that answers late, never, with garbage or with half an answer: every send ends once,
//! and in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_lite::future::{block_on, poll_once};
use ringmq::client::{Message, Producer, ProducerSettings, SendRequest};
use ringmq::wire::command::{Request, Response};

use crate::impostor::{Answer, Impostor, stored};
use crate::support::client;

/// Time for a send.
const TIMEOUT: Duration = Duration::from_millis(300);

/// By how much a send may miss it.
const MARGIN: Duration = Duration::from_secs(1);

/// Sends of a lone sender in a row: enough that he reads his answers himself.
const ALONE: usize = 12;

/// Numbers that look random.
fn mixed(n: usize) -> usize {
    let z = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 32)) as usize
}

/// What a bad broker does with the n-th send.
fn lie(n: usize, request: &Request) -> Answer {
    let dice = mixed(n);
    // Sooner and later than a sender reads, and than he waits.
    let late = [1, 8, 19, 21, 40, 120, 290, 310, 500];
    let copy = |answer: Response| Answer::Late(late[dice / 100 % late.len()], answer);
    match dice % 100 {
        0..60 => Answer::Reply(stored(request)),
        60..75 => copy(stored(request)),
        75..80 => Answer::Silence,
        80..84 => Answer::Raw(vec![0xff; 64]),
        84..88 => Answer::Cut(4 + dice / 100 % 60, stored(request)),
        88..92 => Answer::Close,
        92..95 => Answer::Times(3, stored(request)),
        95..97 => Answer::ReplyTo(request.fixed.opaque.wrapping_add(1), stored(request)),
        _ => Answer::Reply(Response::error(2, "busy")),
    }
}

struct Stage {
    producer: Producer,
    /// Whether the broker lies.
    lies: Arc<AtomicBool>,
}

impl Stage {
    fn new() -> Stage {
        let lies = Arc::new(AtomicBool::new(false));
        let (lying, count) = (lies.clone(), AtomicUsize::new(0));
        let broker = Impostor::new(move |request| match request.fixed.code {
            310 | 320 if lying.load(Ordering::SeqCst) => {
                lie(count.fetch_add(1, Ordering::SeqCst), request)
            }
            310 | 320 => Answer::Reply(stored(request)),
            _ => Answer::Reply(Response::ok()),
        });
        let nameserver = Impostor::leading_to(broker.address, 4);
        let settings = ProducerSettings::new("turns-lies");
        let producer = Producer::start(&client(nameserver.address), settings).unwrap();
        Stage { producer, lies }
    }

    fn message(text: String) -> SendRequest {
        SendRequest::from(Message::new("Turns", text)).timeout(TIMEOUT)
    }

    /// Whether a blocking send is stored; it ends in time.
    fn send(&self, text: String) -> bool {
        let began = Instant::now();
        let sent = self.producer.send(Stage::message(text));
        let took = began.elapsed();
        assert!(took < TIMEOUT + MARGIN, "a send took {took:?}: {sent:?}");
        sent.is_ok()
    }

    /// Sends alone with an honest broker, until the sender reads his answers himself.
    fn calm(&self, name: &str) {
        self.lies.store(false, Ordering::SeqCst);
        // What was sent before may still break the connection.
        let until = Instant::now() + TIMEOUT + MARGIN;
        while !self.send(format!("{name} calm")) {
            assert!(Instant::now() < until, "{name}: no send gets through");
        }
        for n in 0..ALONE {
            self.send(format!("{name} {n}"));
        }
        self.lies.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_lone_sender_is_told_whatever_the_broker_does() {
    let stage = Stage::new();
    let mut stored = 0;
    for round in 0..60 {
        stage.calm(&format!("lone {round}"));
        let sends = (0..6).filter(|n| stage.send(format!("lone {round} lie {n}")));
        stored += sends.count();
    }
    assert!(stored > 100 && stored < 60 * 6, "{stored} stored");
    stage.calm("last");
    stage.lies.store(false, Ordering::SeqCst);
    stage.producer.shutdown().unwrap();
}

/// A sender reads while others come: with threads that block, callbacks and futures, some of
/// which are dropped under way.
#[test]
fn a_crowd_that_comes_while_a_sender_reads_is_told_each_once() {
    const THREADS: usize = 8;
    const EACH: usize = 5;
    let stage = Stage::new();
    let ends = Arc::new(AtomicUsize::new(0));
    let mut callbacks = 0;
    for round in 0..12 {
        stage.calm(&format!("crowd {round}"));
        std::thread::scope(|scope| {
            let stage = &stage;
            scope.spawn(move || stage.send(format!("reader {round}")));
            for thread in 0..THREADS {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis((mixed(thread + round) % 30) as u64));
                    for n in 0..EACH {
                        stage.send(format!("{round} {thread} {n}"));
                    }
                });
            }
            for n in 0..20 {
                let ends = ends.clone();
                let began = Instant::now();
                callbacks += 1;
                let callback = move |_| {
                    let took = began.elapsed();
                    assert!(took < TIMEOUT + MARGIN, "a callback after {took:?}");
                    ends.fetch_add(1, Ordering::SeqCst);
                };
                let message = Stage::message(format!("callback {round} {n}"));
                stage.producer.send_with(message, callback);
            }
            let mut dropped = Vec::new();
            for n in 0..5 {
                let message = Stage::message(format!("dropped {round} {n}"));
                let mut send = Box::pin(stage.producer.send_async(message));
                let _ = block_on(poll_once(&mut send));
                dropped.push(send);
            }
            drop(dropped);
            let began = Instant::now();
            let futures: Vec<_> = (0..10)
                .map(|n| {
                    let message = Stage::message(format!("future {round} {n}"));
                    stage.producer.send_async(message)
                })
                .collect();
            for future in futures {
                let _ = block_on(future);
            }
            let took = began.elapsed();
            assert!(took < TIMEOUT + MARGIN, "futures took {took:?}");
        });
    }
    stage.calm("last");
    stage.lies.store(false, Ordering::SeqCst);
    stage.producer.shutdown().unwrap();
    // Callbacks that are over before the end, each once, and none after it.
    let until = Instant::now() + TIMEOUT + MARGIN;
    while ends.load(Ordering::SeqCst) < callbacks && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(TIMEOUT);
    assert_eq!(ends.load(Ordering::SeqCst), callbacks);
}
