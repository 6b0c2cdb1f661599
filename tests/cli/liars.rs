//! Nameservers and brokers that lie.

use crate::command::{admin, ask};
use crate::common::{Pull, Send as SendMessage, shared, unique};
use ringmq::wire::body::subscription_group::SubscriptionGroupConfig;
use ringmq::wire::command::{Request, Response};
use ringmq::wire::frame::{Split, split};
use ringmq::wire::header::{Header, Scratch};
use ringmq::wire::ids;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

/// Answers every request as told; what is not an answer is written as it is.
pub fn liar(answer: impl Fn(&Request) -> Result<Response, Vec<u8>> + Send + 'static) -> SocketAddr {
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

/// Answers everything with this.
pub fn says(body: &'static str) -> SocketAddr {
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
    let line = format!("admin brokerConsumeStats -b {silent} -t 300");
    ask(silent, &line).refused(1, "within 300ms");
    let endless = liar(|_| Err(vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1]));
    ask(endless, "admin topicList").refused(1, "protocol");
    let refusing = liar(|_| Ok(Response::error(2, "busy\x1b[2J\nat Java.java")));
    let found = ask(refusing, "admin topicList").refused(4, "SYSTEM_BUSY");
    assert!(!found.stderr.contains('\x1b') && !found.stderr.contains("Java.java"));
}

/// Codes of what brokers are asked about groups.
const UPDATE_GROUP: i32 = 200;
const ALL_GROUPS: i32 = 201;
const GET_GROUP: i32 = 352;

#[test]
fn a_group_is_written_only_by_those_who_know_what_it_is() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let all = r#"{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":7}}}"#;
    for (code, exit, retries) in [
        (1, 4, None),
        (2, 4, None),
        (16, 4, None),
        (26, 0, Some(16)),
        (3, 0, Some(7)),
    ] {
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = written.clone();
        let broker = liar(move |request| {
            Ok(match request.fixed.code {
                GET_GROUP => Response::error(code, "not now"),
                ALL_GROUPS => Response::body(all.as_bytes()),
                UPDATE_GROUP => {
                    sink.lock().unwrap().push(request.body.to_vec());
                    Response::body("")
                }
                _ => Response::error(1, "what?"),
            })
        });
        let found = ask(
            nobody,
            &format!("admin updateSubGroup -b {broker} -g g -d false"),
        );
        assert_eq!(found.code, exit, "{code}: {}", found.stderr);
        let written = written.lock().unwrap();
        let written: Vec<SubscriptionGroupConfig> = written
            .iter()
            .map(|body| serde_json::from_slice(body).expect("a group"))
            .collect();
        let found: Vec<i32> = written.iter().map(|group| group.retry_max_times).collect();
        assert_eq!(found, Vec::from_iter(retries), "{code}");
        assert!(written.iter().all(|group| !group.consume_broadcast_enable));
    }
}

/// Where nobody should come.
fn trap() -> (TcpListener, SocketAddr) {
    let trap = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    trap.set_nonblocking(true).expect("a socket");
    let address = trap.local_addr().expect("bound");
    (trap, address)
}

#[track_caller]
fn nobody_came(trap: &TcpListener) {
    let came = trap.accept().map(|(_, who)| who);
    assert!(came.is_err(), "{came:?}");
}

#[test]
fn ids_lead_only_to_brokers() {
    let server = shared();
    let topic = unique("trapped");
    admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    let (trap, address) = trap();
    let id = ids::offset_id(address, 100);
    for line in ["", &format!(" -t {topic}"), " -g g -d client"] {
        let found = admin(&server, &format!("queryMsgById -i {id}{line} --timeout 1s"));
        found.refused(3, &address.to_string());
    }
    nobody_came(&trap);
}

#[test]
fn where_a_message_says_it_is_stored_nobody_is_asked() {
    let server = shared();
    let topic = unique("trapped");
    admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    let mut client = server.connect();
    client
        .call(SendMessage::new(&topic, "m").queue(0))
        .expect(0);
    let mut record = client.call(Pull::new(&topic, 0, 0)).expect(0).body;
    let (trap, address) = trap();
    record[64..68].copy_from_slice(&[127, 0, 0, 1]);
    record[68..72].copy_from_slice(&i32::from(address.port()).to_be_bytes());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let sink = asked.clone();
    let broker = liar(move |request| {
        sink.lock().unwrap().push(request.fixed.code);
        Ok(match request.fixed.code {
            11 => Response::body(record.clone())
                .with("nextBeginOffset", 1)
                .with("minOffset", 0)
                .with("maxOffset", 1),
            _ => Response::body(r#"{"groupList":["g"]}"#.as_bytes()),
        })
    });
    let line = format!("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 0 --timeout 1s");
    let found = admin(&server, &line).good().shows(&[&address.to_string()]);
    assert_eq!(found.stderr, "");
    assert_eq!(*asked.lock().unwrap(), [11, 300, 208]);
    nobody_came(&trap);
}
