//! `produce` of inputs that are silent, or too much.

use crate::command::{admin, fed, open, run};
use crate::common::{Server, eventually, shared, unique};
use std::io::Write;
use std::time::Duration;

fn made(server: &Server) -> String {
    let topic = unique("fed");
    admin(server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    topic
}

#[test]
fn a_refusal_is_told_while_the_input_is_silent() {
    let server = shared();
    let topic = made(&server);
    let (mut watched, mut input) = open(
        &server,
        &format!("produce {topic} -q nobody:0 --timeout 1s"),
    );
    input.write_all(b"first\n").expect("a reader");
    assert_eq!(watched.ended(Duration::from_secs(20)), Some(1));
    assert!(watched.errors().contains("line 1"), "{}", watched.errors());
    drop(input);
}

#[test]
fn a_signal_ends_a_producer_whose_input_is_silent() {
    let server = shared();
    let topic = made(&server);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let (mut watched, mut input) = open(&server, &format!("produce {topic}"));
        let body = format!("before {signal}");
        input
            .write_all(format!("{body}\n").as_bytes())
            .expect("a reader");
        let stored = || run(&server, &format!("consume {topic}")).good().stdout;
        eventually("it is stored", Duration::from_secs(30), || {
            stored().contains(&body)
        });
        watched.signal(signal);
        assert_eq!(watched.ended(Duration::from_secs(20)), Some(0));
        assert!(
            watched.errors().contains("1 stored"),
            "{}",
            watched.errors()
        );
        drop(input);
    }
}

#[test]
fn a_body_is_no_longer_than_what_can_be_sent() {
    let server = shared();
    let topic = made(&server);
    let line = |bytes: u32| format!("produce {topic} --quiet --max-message-size {bytes}");
    fed(&server, &line(16_711_681), b"x\n").refused(2, "--max-message-size");
    fed(&server, &line(16_711_680), b"x\n").good();
}
