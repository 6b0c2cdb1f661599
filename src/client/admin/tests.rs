use super::*;
use crate::wire::codes::request;
use crate::wire::frame::{Split, split};
use crate::wire::header::{Header, Scratch};
use std::io::{Read, Write};
use std::net::TcpListener;

/// One that answers as many requests as it is given answers, then stays silent; `raw` answers are
/// written as they are.
enum Answer {
    Plain(Response),
    /// An answer to a request that nobody made, then the answer, twice.
    Confused(Response),
    Raw(&'static [u8]),
    Close,
}

fn server(answers: Vec<Answer>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter();
        while let Ok((mut stream, _)) = listener.accept() {
            let mut input = Vec::new();
            'connection: loop {
                let mut chunk = [0; 4096];
                while let Ok(Split::Frame(frame, length)) = split(&input) {
                    let mut scratch = Scratch::default();
                    let header = Header::decode(&frame, &mut scratch).expect("a header");
                    let (serialize, opaque) = (frame.serialize, header.fixed.opaque);
                    input.drain(..length);
                    let mut out = Vec::new();
                    match answers.next() {
                        Some(Answer::Plain(answer)) => answer.encode(&mut out, serialize, opaque),
                        Some(Answer::Confused(answer)) => {
                            Response::error(1, "not yours").encode(&mut out, serialize, opaque + 7);
                            answer.encode(&mut out, serialize, opaque);
                            answer.encode(&mut out, serialize, opaque);
                        }
                        Some(Answer::Raw(bytes)) => out.extend_from_slice(bytes),
                        Some(Answer::Close) => break 'connection,
                        None => {}
                    }
                    stream.write_all(&out).expect("write");
                }
                match stream.read(&mut chunk) {
                    Ok(read) if read > 0 => input.extend_from_slice(&chunk[..read]),
                    _ => break,
                }
            }
        }
    });
    address
}

fn admin(nameservers: &str) -> Admin {
    Admin::new(nameservers, Duration::from_millis(300)).expect("addresses")
}

fn body(text: &'static str) -> Answer {
    Answer::Plain(Response::body(text.as_bytes()))
}

#[test]
fn answers_for_others_and_doubled_ones_are_dropped() {
    let list = || Response::body(br#"{"topicList":["b","a","a"]}"#.as_slice());
    let address = server(vec![
        Answer::Confused(list()),
        Answer::Plain(Response::body(br#"{"topicList":["c"]}"#.as_slice())),
    ]);
    let mut admin = admin(&address);
    assert_eq!(admin.topic_list().expect("answered"), ["a", "b"]);
    assert_eq!(admin.topic_list().expect("answered"), ["c"]);
}

#[test]
fn the_next_nameserver_is_asked_where_one_fails() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").to_string()
    };
    let closing = server(vec![Answer::Close]);
    let garbage = server(vec![Answer::Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")]);
    let good = server(vec![
        body(r#"{"topicList":["a"]}"#),
        body(r#"{"topicList":["b"]}"#),
    ]);
    let mut all = admin(&format!("{closed};{closing},{garbage}; {good}"));
    assert_eq!(all.topic_list().expect("the last answers"), ["a"]);
    // The one that answered is asked first from then on.
    assert_eq!(all.topic_list().expect("it again"), ["b"]);

    let silent = server(Vec::new());
    let mut none = admin(&format!("{closed};{silent}"));
    let error = none.topic_list().expect_err("nobody answers");
    assert!(error.is_retryable());
    let text = error.to_string();
    assert!(
        text.contains(&closed) && text.contains("within 300ms"),
        "{text}"
    );
}

#[test]
fn routes_that_cannot_be_are_refused() {
    for (route, what) in [
        (
            r#"{"brokerDatas":[{"brokerName":"b","brokerAddrs":{}}]}"#,
            "no address",
        ),
        (
            r#"{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"0":"127.0.0.1:0"}}]}"#,
            "which is no address",
        ),
        (
            r#"{"brokerDatas":[{"brokerName":"b\n","brokerAddrs":{"0":"x"}}]}"#,
            r#"broker "b\n""#,
        ),
        (
            r#"{"queueDatas":[{"brokerName":"b","readQueueNums":10000000}]}"#,
            "10000000 queues",
        ),
        (
            r#"{"queueDatas":[{"brokerName":"b","writeQueueNums":-1}]}"#,
            "-1 queues",
        ),
    ] {
        let mut admin = admin(&server(vec![body(route)]));
        let error = admin.route("T").expect_err(what);
        assert!(
            matches!(*error.fault, AdminFault::Unsound { .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains(what) && text.contains(r#"topic "T""#),
            "{text}"
        );
    }
}

#[test]
fn errors_say_who_refused_what_and_why() {
    let address = server(vec![
        Answer::Plain(Response::error(17, "no such topic\nat Java.java:5")),
        Answer::Plain(Response::error(16, "")),
        Answer::Plain(Response::body(b"{]".as_slice())),
    ]);
    let mut admin = admin("");
    let error = admin.topic_stats(&address, "T").expect_err("refused");
    assert!(error.is_not_found() && !error.is_retryable());
    assert_eq!(
        error.broker("b").to_string(),
        format!(
            "topic \"T\", broker \"b\": {address} answered request 202 with code 17 \
             (TOPIC_NOT_EXIST): no such topic"
        )
    );
    let error = admin.topic_stats(&address, "T").expect_err("refused");
    assert!(
        error.to_string().ends_with("code 16 (NO_PERMISSION)"),
        "{error}"
    );
    let error = admin.topic_stats(&address, "T").expect_err("garbage");
    assert!(
        matches!(*error.fault, AdminFault::Body { request: 202, .. }),
        "{error}"
    );
    let error = admin.topic_list().expect_err("no nameserver");
    assert!(matches!(*error.fault, AdminFault::NoNameserver));
}

#[test]
fn what_is_no_address_is_refused_at_once() {
    for bad in [
        "localhost",
        "host:",
        ":9876",
        "host:0",
        "host:99999",
        "a:1;b",
    ] {
        let error = Admin::new(bad, Duration::from_secs(1)).expect_err(bad);
        assert!(error.is_not_found(), "{error}");
    }
    assert!(admin("").nameservers().is_empty());
    assert_eq!(admin("http://a:1; b:2,").nameservers(), ["a:1", "b:2"]);
}

#[test]
fn brokers_are_chosen_by_cluster_name_or_address() {
    let info = || {
        body(concat!(
            r#"{"brokerAddrTable":{"#,
            r#""a":{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"a","cluster":"c"},"#,
            r#""b":{"brokerAddrs":{"0":"h:3"},"brokerName":"b","cluster":"d"}},"#,
            r#""clusterAddrTable":{"c":["a"],"d":["b"]}}"#
        ))
    };
    let address = server((0..6).map(|_| info()).collect());
    let mut admin = admin(&address);
    let mut addresses = |select, masters| -> Vec<String> {
        let brokers = admin.brokers(select, masters).expect("found");
        brokers.into_iter().map(|broker| broker.address).collect()
    };
    assert_eq!(addresses(Select::All, false), ["h:1", "h:2", "h:3"]);
    assert_eq!(addresses(Select::All, true), ["h:1", "h:3"]);
    assert_eq!(addresses(Select::Cluster("d"), true), ["h:3"]);
    assert_eq!(addresses(Select::Broker("a"), false), ["h:1", "h:2"]);
    assert_eq!(addresses(Select::Broker("h:9"), true), ["h:9"]);
    let error = admin.brokers(Select::Cluster("x"), true).expect_err("none");
    assert_eq!(error.to_string(), r#"there is no cluster "x""#);
}

#[test]
fn a_senders_message_id_is_taken_apart() {
    let key = UniqueKey::parse("7F0000010AB118B4AAC20000003C0007").expect("an id");
    assert_eq!(key.ip.to_string(), "127.0.0.1");
    assert_eq!((key.pid, key.month_ms, key.counter), (0x0ab1, 0x3c, 7));
    for bad in [
        "",
        "7F",
        "7F0000010AB118B4AAC20000003C000G",
        "é0000010AB118B4AAC20000003C0007",
    ] {
        assert_eq!(UniqueKey::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_pull_reads_what_it_is_given_and_no_more() {
    let place = |code| Response {
        code,
        ext: [
            ("nextBeginOffset", "5"),
            ("minOffset", "0"),
            ("maxOffset", "9"),
        ]
        .map(|(k, v)| (k.into(), v.to_owned()))
        .to_vec(),
        ..Response::default()
    };
    let cut = Response {
        body: vec![0, 0, 0, 100, 0xda, 0xa3, 0x20, 0xa7].into(),
        ..place(0)
    };
    let address = server(vec![
        Answer::Plain(place(19)),
        Answer::Plain(cut),
        Answer::Plain(Response::ok()),
        Answer::Plain(Response::error(17, "")),
    ]);
    let mut admin = admin("");
    let mut pull = || admin.pull(&address, TOOLS, ("T", 0), 3, 1, "*");
    let answer = pull().expect("nothing there");
    assert_eq!((answer.next, answer.min, answer.max), (5, 0, 9));
    assert!(pull().expect_err("cut off").to_string().contains("byte 0"));
    assert!(
        pull()
            .expect_err("no offsets")
            .to_string()
            .contains("nextBeginOffset")
    );
    assert_eq!(pull().expect_err("refused").code(), Some(17));
    assert_eq!(request::PULL_MESSAGE, 11);
}

const TOOLS: &str = super::messages::TOOLS_GROUP;
