//! Brokers that stall are measured with their stalls.

use crate::command::{Found, bench};
use crate::common::{eventually, queue_offset, shared, unique};
use crate::impostor::{Answer, broker, forward};
use ringmq::wire::command::{Request, Response};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A broker that acknowledges everything, but once, this long after its first send, stands still.
fn stalling(after: Duration, stall: Duration) -> SocketAddr {
    let (first, stalled) = (OnceLock::new(), AtomicBool::new(false));
    broker(move |request: &Request| {
        if request.fixed.code != 310 {
            return Answer::Reply(Response::error(3, "unknown"));
        }
        let began = *first.get_or_init(Instant::now);
        if began.elapsed() >= after && !stalled.swap(true, Ordering::Relaxed) {
            sleep(stall);
        }
        Answer::Reply(Response::ok().with("queueOffset", 0))
    })
}

fn produce(to: SocketAddr, options: &[&str]) -> Found {
    let to = to.to_string();
    let mut all = vec!["produce", "--broker", &to, "--no-verify"];
    all.extend(["--queues", "2", "--seconds", "1", "--connections", "1"]);
    all.extend(options);
    bench(&all).good()
}

/// Whether the sender is held up (one request at a time) or not: what was due meanwhile counts.
#[test]
fn an_open_loop_is_charged_for_a_stall() {
    const STALL: Duration = Duration::from_millis(300);
    for mode in ["sync", "pipelined"] {
        let address = stalling(Duration::from_millis(300), STALL);
        let options = ["--rate", "500", "--mode", mode, "--warm-up", "0.1"];
        let found = produce(address, &options);
        assert_eq!(found.number("/messages"), 500.0, "{mode}");
        assert_eq!(found.number("/latency/count"), 500.0, "{mode}");
        // 150 of 500 were due in the stall: the fifth longest waited nearly all of it.
        let p99 = found.number("/latency/p99_us");
        assert!((270_000.0..3e6).contains(&p99), "{mode}: {p99}");
        // A tenth of the requests was due at least 200 ms before the stall's end.
        let p90 = found.number("/latency/p90_us");
        assert!(p90 >= 180_000.0, "{mode}: {p90}");
        if mode == "sync" {
            let late = found.number("/late");
            assert!((140.0..=500.0).contains(&late), "{late}");
        }
    }
}

/// Hands pulls on to the shared broker, but lets those of the time from `from` to `until` after
/// the first wait for its end. All else it answers at once.
fn stalling_pulls(from: Duration, until: Duration) -> SocketAddr {
    let first = OnceLock::new();
    broker(move |request: &Request| match request.fixed.code {
        30 | 31 => Answer::Reply(Response::ok().with("offset", 0)),
        11 => {
            let now = first.get_or_init(Instant::now).elapsed();
            if (from..until).contains(&now) {
                sleep(until - now);
            }
            let response = forward(request);
            if response.code != 0 {
                sleep(Duration::from_millis(5));
            }
            Answer::Reply(response)
        }
        _ => Answer::Reply(Response::error(3, "unknown")),
    })
}

/// The broker stands still from before the end of the tail's window until after it.
#[test]
fn a_tail_is_charged_for_a_stall_at_its_end() {
    let topic = unique("stalled-tail");
    let topic = topic.as_str();
    let broker = shared().address().to_string();
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let mut options = vec!["produce", "--broker", &broker, "--topic", topic];
            options.extend(["--queues", "2", "--rate", "200", "--seconds", "8"]);
            options.extend(["--warm-up", "0"]);
            bench(&options).good()
        });
        let mut client = shared().connect();
        eventually("a message", Duration::from_secs(60), || {
            let answer = client.call(queue_offset(30, topic, 0));
            answer.code == 0 && answer.int("offset") > 0
        });
        let stall = (Duration::from_millis(2000), Duration::from_millis(4500));
        let to = stalling_pulls(stall.0, stall.1).to_string();
        let mut options = vec!["consume", "--broker", &to, "--topic", topic, "--tail"];
        options.extend(["--queues", "2", "--seconds", "3"]);
        let found = bench(&options).good();
        assert_eq!(found.number("/seconds"), 3.0);
        // Everything that was due in the three seconds, the stall's last one included.
        let messages = found.number("/messages");
        assert!((599.0..=601.0).contains(&messages), "{messages}");
        let longest = found.number("/latency/max_us");
        assert!((2.3e6..10e6).contains(&longest), "{longest}");
        producer.join().expect("no panic");
    });
}

/// The request that was sent in the window and answered after it is the slowest of all.
#[test]
fn a_closed_loop_keeps_what_is_answered_after_its_end() {
    let address = stalling(Duration::from_millis(700), Duration::from_millis(900));
    let found = produce(address, &["--mode", "sync", "--warm-up", "0"]);
    let longest = found.number("/latency/max_us");
    assert!((890_000.0..3e6).contains(&longest), "{longest}");
    // It is no throughput of the window.
    let (answered, sent) = (found.number("/messages"), found.number("/latency/count"));
    assert_eq!(answered + 1.0, sent);
}

/// A broker that answers no more when it has taken in a hundred requests: those that wait are
/// lost with their connection, and no latency of theirs is known.
#[test]
fn requests_that_a_restart_loses_are_told_beside_the_latencies() {
    const IN_FLIGHT: u64 = 8;
    const LAST: u64 = 100 + IN_FLIGHT;
    let sends = AtomicU64::new(0);
    let address = broker(move |request: &Request| {
        if request.fixed.code != 310 {
            return Answer::Reply(Response::error(3, "unknown"));
        }
        match sends.fetch_add(1, Ordering::Relaxed) {
            100..LAST => Answer::Silence,
            _ => Answer::Reply(Response::ok().with("queueOffset", 0)),
        }
    });
    let (to, folder) = (address.to_string(), tempfile::tempdir().expect("a folder"));
    let html = folder.path().join("run.html");
    let html = html.to_str().expect("UTF-8");
    let mut options = vec!["restart", "--broker", &to, "--restart-command", "true"];
    options.extend(["--seconds", "3", "--warm-up", "0", "--timeout", "1"]);
    options.extend(["--connections", "1", "--in-flight", "8", "--no-verify"]);
    options.extend(["--html", html]);
    let found = bench(&options).good();
    assert_eq!(found.number("/extra/lost_in_flight"), IN_FLIGHT as f64);
    let longest = found.number("/extra/lost_in_flight_longest_ms");
    assert!((1000.0..5000.0).contains(&longest), "{longest}");
    // The latencies alone show nothing of that second.
    assert!(found.number("/latency/max_us") < 1e6);
    let told = "lost      8 requests in flight, not among these latencies";
    assert!(found.stdout.contains(told), "{}", found.stdout);
    let page = std::fs::read_to_string(html).expect("a page");
    assert!(page.contains("<td>8, up to "), "{page}");
}

/// A broker whose producers failed before is not restarted.
#[test]
fn no_restart_without_producers() {
    let folder = tempfile::tempdir().expect("a folder");
    let sign = folder.path().join("sign");
    let command = format!("touch '{}'", sign.display());
    let address = broker(|_| Answer::Reply(Response::error(2, "no room")));
    let to = address.to_string();
    let began = Instant::now();
    bench(&[
        "restart",
        "--broker",
        &to,
        "--seconds",
        "60",
        "--restart-command",
        &command,
    ])
    .failed("every request is refused");
    assert!(began.elapsed() < Duration::from_secs(15));
    assert!(!sign.exists());
}
