//! What is wrong is named, with the address, and ends the run in time.

use crate::command::{Found, bench, first_records};
use crate::common::{shared, unique};
use crate::impostor::{Answer, broker, listen};
use ringmq::wire::command::Response;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};

const OPTIONS: [&str; 10] = [
    "--queues",
    "2",
    "--seconds",
    "1",
    "--warm-up",
    "0.1",
    "--timeout",
    "1",
    "--connections",
    "2",
];

fn produce(to: SocketAddr) -> Found {
    let to = to.to_string();
    let mut options = vec!["produce", "--broker", &to];
    options.extend(OPTIONS);
    bench(&options)
}

#[test]
fn a_closed_port_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    produce(address).failed(&format!("cannot connect to {address}"));
}

#[test]
fn garbage_is_named() {
    let address = listen(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        std::thread::sleep(std::time::Duration::from_secs(20));
    });
    produce(address).failed(&format!("{address} does not answer in RocketMQ's protocol"));
}

#[test]
fn silence_ends_with_the_timeout() {
    let address = listen(|stream| {
        std::thread::sleep(std::time::Duration::from_secs(60));
        drop(stream);
    });
    produce(address).failed(&format!("{address} did not answer within 1s"));
}

#[test]
fn sends_without_answers_end_with_the_timeout() {
    let address = broker(|_| Answer::Silence);
    produce(address).failed(&format!("{address} did not answer within 1 s"));
}

/// Sends that want no answer have none that could be waited for.
#[test]
fn one_way_sends_that_nobody_takes_in_end_with_the_timeout() {
    let address = broker(|request| {
        if request.fixed.code == 310 {
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        Answer::Silence
    });
    let to = address.to_string();
    let mut options = vec!["produce", "--broker", &to, "--mode", "oneway"];
    options.extend(OPTIONS);
    bench(&options).failed(&format!(
        "{address} did not take in what was sent within 1 s"
    ));
}

#[test]
fn refusals_are_named_with_code_and_remark() {
    let address = broker(|_| Answer::Reply(Response::error(2, "[PCBUSY] no room\nat Java")));
    let found = produce(address).failed(&format!(
        "every request is refused: {address} answered request 310 with code 2: [PCBUSY] no room"
    ));
    assert!(!found.stderr.contains("at Java"), "{}", found.stderr);
}

#[test]
fn a_refusal_among_acknowledgements_fails_the_run() {
    let next = AtomicI64::new(0);
    let address = broker(move |request| match request.fixed.code {
        310 => match next.fetch_add(1, Ordering::Relaxed) {
            5 => Answer::Reply(Response::error(14, "not now")),
            _ => Answer::Reply(Response::ok().with("queueOffset", 0)),
        },
        _ => Answer::Reply(Response::error(3, "unknown")),
    });
    let to = address.to_string();
    let mut options = vec!["produce", "--broker", &to, "--no-verify"];
    options.extend(OPTIONS);
    let found = bench(&options).failed(&format!(
        "1 requests failed, the first: {address} answered request 310 with code 14: not now"
    ));
    assert_eq!(found.number("/failed"), 1.0);
    assert!(found.number("/messages") > 10.0);
    assert!(found.run()["verified"].is_null());
}

#[test]
fn a_refusal_before_the_load_is_named() {
    let address = broker(|_| Answer::Reply(Response::error(1, "closed for today")));
    let to = address.to_string();
    let mut options = vec!["produce", "--broker", &to, "--topic", "T"];
    options.extend(OPTIONS);
    // The topic is asked for, then made; only then are its queues asked for.
    bench(&options).failed(&format!(
        "{address} answered request 30 with code 1: closed for today"
    ));
}

#[test]
fn a_connection_that_ends_is_named() {
    let address = broker(|_| Answer::Close);
    let found = produce(address);
    let error = found.run()["error"].as_str().expect("an error").to_owned();
    found.failed(&address.to_string());
    let ended = error.contains("closed the connection") || error.contains("reset by peer");
    assert!(ended && error.contains("requests unanswered"), "{error}");
}

/// A broker that acknowledges every send and keeps none.
#[test]
fn lost_messages_are_counted_and_fail_the_run() {
    let next = AtomicI64::new(0);
    let address = broker(move |request| match request.fixed.code {
        310 => {
            let offset = next.fetch_add(1, Ordering::Relaxed);
            Answer::Reply(Response::ok().with("queueOffset", offset))
        }
        11 => {
            let next = request.get("queueOffset").unwrap_or("0");
            Answer::Reply(Response::error(19, "nothing").with("nextBeginOffset", next))
        }
        _ => Answer::Reply(Response::error(3, "unknown")),
    });
    let found = produce(address).failed("acknowledged messages are missing");
    let missing = found.number("/verified/missing");
    assert!(missing > 0.0 && missing >= found.number("/messages"));
    assert_eq!(found.number("/verified/good"), 0.0);
}

#[test]
fn an_answer_that_nobody_waits_for_fails_the_run() {
    let address = broker(|_| Answer::ReplyTo(5, Response::ok().with("queueOffset", 1)));
    produce(address).failed(&format!(
        "{address}: answer 5 with code 0 belongs to no request that waits"
    ));
}

#[test]
fn an_acknowledgement_must_tell_the_queue_offset() {
    let address = broker(|_| Answer::Reply(Response::ok()));
    produce(address).failed("acknowledgement without queueOffset");
}

/// Beyond the last number there is no next message.
#[test]
fn queue_offsets_that_cannot_be_are_refused() {
    for offset in [i64::MAX, -1] {
        let address = broker(move |_| Answer::Reply(Response::ok().with("queueOffset", offset)));
        produce(address).failed("acknowledgement with queueOffset");
    }
    let address = broker(|request| match request.fixed.code {
        30 | 31 => Answer::Reply(Response::ok().with("offset", i64::MAX)),
        _ => Answer::Reply(Response::error(3, "unknown")),
    });
    let to = address.to_string();
    bench(&["consume", "--broker", &to, "--topic", "T"])
        .failed(&format!("{address} answered request 31 without an offset"));
}

/// A broker that tells of 1000 messages and has none beyond the 32nd.
#[test]
fn an_existing_topic_that_is_read_in_part_fails_the_run() {
    let some = first_records(&mut shared().connect(), &filled_with_32(), 32);
    let address = broker(move |request| match request.fixed.code {
        30 => Answer::Reply(Response::ok().with("offset", 1000)),
        31 => Answer::Reply(Response::ok().with("offset", 0)),
        11 => match request.get("queueOffset").map(str::parse) {
            Some(Ok(0)) => Answer::Reply(Response::body(some.clone()).with("nextBeginOffset", 32)),
            _ => Answer::Reply(Response::error(19, "nothing").with("nextBeginOffset", 32)),
        },
        _ => Answer::Reply(Response::error(3, "unknown")),
    });
    let to = address.to_string();
    let read = |options: &[&str]| {
        let mut all = vec!["consume", "--broker", &to, "--topic", "T", "--queues", "1"];
        all.extend(options);
        bench(&all)
    };
    let found = read(&["--timeout", "1"]).failed("968 acknowledged messages are missing");
    assert_eq!(found.number("/verified/missing"), 968.0);
    assert_eq!(found.number("/verified/good"), 32.0);
    assert_eq!(found.number("/extra/complete"), 0.0);

    // Where the time is over, nothing is missing.
    let found = read(&["--timeout", "60", "--seconds", "1"]).good();
    assert_eq!(found.number("/verified/missing"), 0.0);
    assert_eq!(found.number("/extra/complete"), 0.0);
}

/// A topic with one queue of 32 messages, on the shared broker.
fn filled_with_32() -> String {
    let topic = unique("filled");
    let broker = shared().address().to_string();
    let mut options = vec!["consume", "--broker", &broker, "--topic", &topic];
    options.extend(["--queues", "1", "--fill", "32", "--size", "100"]);
    bench(&options).good().verified(32);
    topic
}

/// Whoever reads the output may be gone before it comes; the files are there all the same.
#[test]
fn a_closed_output_is_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("run.json");
    let (reader, writer) = UnixStream::pair().expect("a pair");
    drop(reader);
    let broker = shared().address().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_ringmq"))
        .args(["bench", "produce", "--broker", &broker])
        .args(["--seconds", "0.3", "--warm-up", "0", "--json"])
        .arg(&json)
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(writer))
        .stderr(Stdio::piped())
        .output()
        .expect("the binary starts");
    let stderr = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(0), "{stderr}");
    let text = std::fs::read_to_string(&json).expect("the result");
    assert!(text.contains("\"runs\""), "{text}");
}

#[test]
fn options_that_make_no_sense_are_named() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let to = address.to_string();
    let with = |options: &[&str]| {
        let mut all = vec!["produce", "--broker", &to];
        all.extend(options);
        bench(&all)
    };
    with(&["--queues", "0"]).failed("--queues is 0, not within 1..=4096");
    with(&["--timeout", "NaN"]).failed("--timeout is NaN, not within 0.1..=604800");
    with(&["--seconds", "1e300"]).failed("--seconds is 1");
    with(&["--topics", "100000", "--queues", "4096"]).failed("above the limit of 1048576");
    bench(&["e2e", "--broker", &to, "--mode", "oneway"]).failed("--mode oneway: only `produce`");
    with(&["--size", "10"]).failed("bodies of 10 bytes have no room");
    let usage = with(&["--size-distribution", "normal:5"]);
    assert_eq!(usage.code, 2, "{}", usage.stderr);
    assert!(
        usage.stderr.contains("uniform:LOW-HIGH"),
        "{}",
        usage.stderr
    );
}
