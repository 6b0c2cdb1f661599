//! Brokers that do something else with messages than they say, in front of the shared one.

use crate::command::{Found, bench, stored};
use crate::common::{shared, topic, unique};
use crate::impostor::{Answer, broker, forward, number};
use ringmq::wire::command::Request;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::sleep;
use std::time::Duration;

const SEND: i32 = 310;
const PULL: i32 = 11;

/// A topic with so many queues on the shared broker.
fn topic_of(queues: i32) -> String {
    let name = unique("lies");
    topic(&mut shared().connect(), &name, queues);
    name
}

fn on(to: SocketAddr, command: &str, topic: &str, options: &[&str]) -> Found {
    let to = to.to_string();
    let mut all = vec![command, "--broker", &to, "--topic", topic];
    all.extend(options);
    bench(&all)
}

/// A broker that takes all one-way sends in and keeps one of a hundred.
fn dropping() -> SocketAddr {
    let sends = AtomicI64::new(0);
    broker(move |request: &Request| {
        if request.fixed.code != SEND {
            return Answer::Reply(forward(request));
        }
        if sends.fetch_add(1, Ordering::Relaxed) % 100 == 0 {
            forward(request);
        }
        Answer::Silence
    })
}

const ONE_WAY: [&str; 10] = [
    "--queues",
    "2",
    "--seconds",
    "1",
    "--warm-up",
    "0.1",
    "--mode",
    "oneway",
    "--rate",
    "2000",
];

#[test]
fn one_way_messages_that_a_broker_drops_are_no_throughput() {
    let topic = topic_of(2);
    let found = on(dropping(), "produce", &topic, &ONE_WAY).good();
    let kept = stored(&mut shared().connect(), &topic, 2) as f64;
    assert_eq!(kept, 22.0);
    let messages = found.number("/messages");
    // Of those 2,000 that were sent in the measured part.
    assert!((19.0..=21.0).contains(&messages), "{messages}");
    assert_eq!(found.number("/body_bytes"), messages * 1024.0);
    assert_eq!(found.number("/timeline/0/messages"), messages);
    assert_eq!(found.number("/extra/one_way_sent"), 2000.0);
    assert_eq!(found.number("/extra/one_way_lost"), 2200.0 - kept);
    assert_eq!(found.number("/verified/good"), kept);
}

#[test]
fn one_way_messages_that_nobody_looked_for_are_told_as_written() {
    let mut options = ONE_WAY.to_vec();
    options.push("--no-verify");
    let found = on(dropping(), "produce", &topic_of(2), &options).good();
    assert_eq!(found.number("/messages"), 2000.0);
    let told = "messages are those written to the sockets";
    assert!(found.stdout.contains(told), "{}", found.stdout);
    assert!(found.stdout.contains("no: --no-verify"), "{}", found.stdout);
}

/// A broker that stores each two one-way messages the other way round.
#[test]
fn one_way_messages_that_overtake_each_other_are_counted() {
    let topic = topic_of(1);
    let held = std::sync::Mutex::new(None);
    let to = broker(move |request: &Request| {
        if request.fixed.code != SEND {
            return Answer::Reply(forward(request));
        }
        let mut held = held.lock().expect("no panic");
        match held.take() {
            None => *held = Some(request.clone()),
            Some(before) => {
                forward(request);
                forward(&before);
            }
        }
        Answer::Silence
    });
    let mut options = vec!["--queues", "1", "--connections", "1", "--seconds", "1"];
    options.extend(["--warm-up", "0", "--mode", "oneway", "--rate", "200"]);
    let found = on(to, "produce", &topic, &options).good();
    assert_eq!(found.number("/messages"), 200.0);
    assert_eq!(found.number("/verified/overtaken"), 100.0);
}

/// The last message is there again behind all that was acknowledged, but the pull that waits for
/// more does not tell in time.
#[test]
fn what_is_behind_the_last_acknowledged_message_is_read() {
    let topic = topic_of(1);
    let sends = AtomicI64::new(0);
    let last = std::sync::Mutex::new(None);
    let is_doubled = AtomicBool::new(false);
    let to = broker(move |request: &Request| match request.fixed.code {
        SEND => {
            let mut last = last.lock().expect("no panic");
            *last = Some(request.clone());
            let answer = forward(request);
            sends.fetch_add(1, Ordering::Relaxed);
            Answer::Reply(answer)
        }
        PULL => {
            const SUSPEND: i64 = 2;
            let is_held = number(request, "sysFlag") & SUSPEND != 0;
            let answer = forward(request);
            let is_last =
                number(request, "queueOffset") == 110 && sends.load(Ordering::Relaxed) == 110;
            if is_last && !is_doubled.swap(true, Ordering::Relaxed) {
                let last = last.lock().expect("no panic");
                forward(last.as_ref().expect("a send"));
            }
            if is_held && answer.code != 0 {
                sleep(Duration::from_millis(300));
            }
            Answer::Reply(answer)
        }
        _ => Answer::Reply(forward(request)),
    });
    let mut options = vec!["--queues", "1", "--connections", "1", "--consumers", "1"];
    options.extend(["--seconds", "1", "--warm-up", "0.1", "--rate", "100"]);
    let found = on(to, "e2e", &topic, &options).failed("1 messages are there twice");
    assert_eq!(found.number("/verified/good"), 110.0);
    assert_eq!(found.number("/verified/missing"), 0.0);
}

/// A broker that changes a message before it computes the checksum, and stores one twice.
#[test]
fn what_others_sent_is_judged_by_their_stamps() {
    let topic = topic_of(2);
    let sends = AtomicI64::new(0);
    let to = broker(move |request: &Request| {
        if request.fixed.code != SEND {
            return Answer::Reply(forward(request));
        }
        let mut request = request.clone();
        match sends.fetch_add(1, Ordering::Relaxed) {
            50 => {
                let mut body = request.body.to_vec();
                body[700] ^= 1;
                request = request.with_body(body);
            }
            60 => drop(forward(&request)),
            _ => {}
        }
        Answer::Reply(forward(&request))
    });
    let mut options = vec!["--queues", "2", "--seconds", "1", "--warm-up", "0"];
    options.extend(["--rate", "200"]);
    on(to, "produce", &topic, &options).failed("1 messages are there twice");
    let whole = shared().address();
    let read = |options: &[&str]| {
        let mut all = vec!["--queues", "2"];
        all.extend(options);
        on(whole, "consume", &topic, &all)
    };
    let found = read(&[]).failed("1 messages are there twice; 1 messages have another content");
    assert_eq!(found.number("/verified/good"), 199.0);
    read(&["--no-verify"]).good();
    // Those who read all the time beside senders begin anew each time.
    let mut options = vec!["--queues", "2", "--seconds", "1", "--warm-up", "0"];
    options.extend(["--rate", "200", "--fill", "50"]);
    on(whole, "mixed", &topic_of(2), &options).good();
}
