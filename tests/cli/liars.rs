//! Nameservers and brokers that lie.

use crate::command::ask;
use ringmq::wire::command::{Request, Response};
use ringmq::wire::frame::{Split, split};
use ringmq::wire::header::{Header, Scratch};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Answers every request as told; what is not an answer is written as it is.
fn liar(answer: impl Fn(&Request) -> Result<Response, Vec<u8>> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut buffer, mut chunk) = (Vec::new(), [0; 64 * 1024]);
            while let Ok(read @ 1..) = stream.read(&mut chunk) {
                buffer.extend_from_slice(&chunk[..read]);
                let (mut out, mut used) = (Vec::new(), 0);
                while let Ok(Split::Frame(frame, length)) = split(&buffer[used..]) {
                    let mut scratch = Scratch::default();
                    let header = Header::decode(&frame, &mut scratch).expect("a header");
                    let request = Request::from_header(&frame, &header);
                    used += length;
                    match answer(&request) {
                        Ok(answer) => {
                            answer.encode(&mut out, request.serialize, request.fixed.opaque);
                        }
                        Err(raw) => out.extend_from_slice(&raw),
                    }
                }
                buffer.drain(..used);
                if stream.write_all(&out).is_err() {
                    break;
                }
            }
        }
    });
    address
}

fn says(body: &'static str) -> SocketAddr {
    liar(move |_| Ok(Response::body(body.as_bytes())))
}

#[test]
fn routes_that_cannot_be_true_are_refused_with_what_they_say() {
    for (route, text) in [
        (
            r#"{"brokerDatas":[{"brokerName":"b","brokerAddrs":{}}]}"#,
            "no address",
        ),
        (
            r#"{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"0":"127.0.0.1:0"}}]}"#,
            "no address",
        ),
        (
            r#"{"queueDatas":[{"brokerName":"b","readQueueNums":2000000000}]}"#,
            "2000000000 queues",
        ),
        (
            r#"{"brokerDatas":[{"brokerName":"b\n\u001b[2J","brokerAddrs":{"0":"x"}}]}"#,
            r"b\n\u{1b}[2J",
        ),
    ] {
        for command in ["topicRoute", "topicStatus", "printMsg"] {
            let found = ask(says(route), &format!("admin {command} -t T"));
            let found = found.refused(1, text);
            assert!(!found.stderr.contains('\x1b'), "{}", found.stderr);
        }
        ask(says(route), "consume T").refused(1, text);
    }
}

#[test]
fn names_with_controls_reach_no_terminal() {
    let liar = says(r#"{"topicList":["a\u001b[2J\n","b\u202e"]}"#);
    let found = ask(liar, "admin topicList").good();
    assert_eq!(found.stdout, "TOPIC\na\\u{1b}[2J\\n\nb\\u{202e}\n");
    let liar = says(r#"{"topicList":["a\u001b[2J\n","b\u202e\u007f"]}"#);
    let found = ask(liar, "admin topicList --output json").good();
    assert!(
        found
            .stdout
            .chars()
            .all(|c| c == '\n' || (' '..='~').contains(&c))
    );
    assert_eq!(found.json()["topics"][1]["topic"], "b\u{202e}\u{7f}");
}

#[test]
fn garbage_silence_and_the_wrong_protocol_are_told_apart() {
    let html = liar(|_| Err(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
    ask(html, "admin topicList").refused(1, "RocketMQ's protocol");
    ask(says("<html>"), "admin topicList").refused(1, "JSON");
    let silent = liar(|_| Err(Vec::new()));
    ask(silent, "admin topicList --timeout 300ms").refused(1, "within 300ms");
    let endless = liar(|_| Err(vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1]));
    ask(endless, "admin topicList").refused(1, "protocol");
    let refusing = liar(|_| Ok(Response::error(2, "busy\x1b[2J\nat Java.java")));
    let found = ask(refusing, "admin topicList").refused(4, "SYSTEM_BUSY");
    assert!(!found.stderr.contains('\x1b') && !found.stderr.contains("Java.java"));
}
