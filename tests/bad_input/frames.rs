//! Bytes that are no frame, and frames whose header is none.

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::common::{Client, Config, Pull, Send, Witness, max_offset, shared, topic, unique};
use ringmq::wire::command::Request;
use ringmq::wire::frame::Serialize;

const CLOSED: Duration = Duration::from_secs(10);

/// A frame with this serialize type and header, and lengths that are right.
fn frame(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = ((4 + header.len() + body.len()) as i32)
        .to_be_bytes()
        .to_vec();
    frame.extend_from_slice(&(u32::from(kind) << 24 | header.len() as u32).to_be_bytes());
    frame.extend_from_slice(header);
    frame.extend_from_slice(body);
    frame
}

/// A binary header up to its remark, which is left to the caller.
fn binary_head(code: i16) -> Vec<u8> {
    let mut head = code.to_be_bytes().to_vec();
    head.push(0);
    head.extend_from_slice(&479_i16.to_be_bytes());
    head.extend_from_slice(&[0; 8]);
    head
}

fn binary(parts: &[&[u8]]) -> Vec<u8> {
    let mut header = binary_head(30);
    parts.iter().for_each(|part| header.extend_from_slice(part));
    frame(1, &header, b"")
}

/// Bytes that nothing can be made of.
fn impossible() -> Vec<(&'static str, Vec<u8>)> {
    let len = |length: i32| length.to_be_bytes().to_vec();
    let huge = i32::MAX.to_be_bytes();
    let minus = (-1_i32).to_be_bytes();
    let none = [0; 4];
    let json = |text: &str| frame(0, text.as_bytes(), b"");
    vec![
        ("length 2^31-1", len(i32::MAX)),
        ("length 16 MiB + 1", len(16 * 1024 * 1024 + 1)),
        ("negative length", len(-1)),
        ("smallest length", len(i32::MIN)),
        ("length 0", len(0)),
        ("length 3", len(3)),
        ("serialize type 2", frame(2, b"{}", b"")),
        ("serialize type 255", frame(255, b"{}", b"")),
        (
            "header longer than its frame",
            [&len(20)[..], &[0, 0, 0, 17], &[b' '; 16]].concat(),
        ),
        (
            "header of 2^24-1 bytes in a small frame",
            [&len(20)[..], &[0, 255, 255, 255]].concat(),
        ),
        ("no header", frame(0, b"", b"")),
        ("words instead of JSON", json("this is not JSON")),
        ("a JSON array", json("[1,2,3]")),
        (
            "half of an object",
            json(r#"{"code":310,"extFields":{"a":"#),
        ),
        ("an object and more", json(r#"{"code":30} {"code":30}"#)),
        (
            "a number too large",
            json(r#"{"code":99999999999999999999}"#),
        ),
        ("a code that is text", json(r#"{"code":"x"}"#)),
        ("an open string", json(r#"{"remark":"abc"#)),
        ("a bad escape", json(r#"{"remark":"\q"}"#)),
        ("half an escape", json(r#"{"remark":"\u00"}"#)),
        ("a member without value", json(r#"{"code":}"#)),
        ("nothing but zeros", frame(0, &[0; 64], b"")),
        ("a binary header that is short", frame(1, &[0, 30, 0], b"")),
        ("remark of 2^31-1 bytes", binary(&[&huge])),
        ("remark of -1 bytes", binary(&[&minus])),
        ("ext fields of 2^31-1 bytes", binary(&[&none, &huge])),
        ("ext fields of -1 bytes", binary(&[&none, &minus])),
        (
            "ext fields longer than the header",
            binary(&[&none, &100_i32.to_be_bytes(), b"ab"]),
        ),
        (
            "key of -1 bytes",
            binary(&[&none, &2_i32.to_be_bytes(), &[255, 255]]),
        ),
        (
            "key of 32,767 bytes",
            binary(&[&none, &4_i32.to_be_bytes(), &[127, 255, b'a', b'b']]),
        ),
        (
            "value of 2^31-1 bytes",
            binary(&[&none, &7_i32.to_be_bytes(), &[0, 1, b'a'], &huge]),
        ),
        (
            "value of -1 bytes",
            binary(&[&none, &7_i32.to_be_bytes(), &[0, 1, b'a'], &minus]),
        ),
        (
            "key without value",
            binary(&[&none, &3_i32.to_be_bytes(), &[0, 1, b'a']]),
        ),
        (
            "HTTP GET",
            b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        ),
        ("HTTP POST", b"POST / HTTP/1.1\r\n\r\n".to_vec()),
        (
            "HTTP/2 preface",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        ),
        (
            "TLS hello",
            [&[0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 200]].concat(),
        ),
        (
            "PROXY protocol and TLS",
            [
                b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n\x16\x03\x01".as_slice(),
                &[1; 50],
            ]
            .concat(),
        ),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
    ]
}

#[test]
fn what_is_no_frame_closes_its_connection_and_no_other() {
    let server = shared();
    let witness = Witness::start(&server);
    for (what, bytes) in impossible() {
        for mut client in [server.connect(), server.connect_nameserver()] {
            client
                .raw(&bytes)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(
                client.is_closed_within(CLOSED),
                "{what}: still open, or answered"
            );
        }
    }
    server.assert_healthy();
    witness.end();
    let said = |text: &str| assert!(server.log_line(text).is_some(), "not logged: {text}");
    said("connection closed:");
}

#[test]
fn other_protocols_are_named_in_the_log() {
    for (bytes, words) in [
        (&b"PRI * HTTP/2.0\r\n\r\n"[..], "HTTP"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
    ] {
        // A server of its own: only the first of each power of two is logged.
        let server = Config::server().start();
        let mut client = server.connect();
        client.raw(bytes).unwrap();
        assert!(client.is_closed_within(CLOSED));
        crate::common::eventually(words, CLOSED, || {
            server
                .log_line("connection closed")
                .is_some_and(|line| line.contains(words))
        });
    }
}

#[test]
fn a_flood_of_bad_frames_is_not_a_flood_of_log_lines() {
    let server = shared();
    for _ in 0..200 {
        let mut client = server.connect();
        let _ = client.raw(&[255; 8]);
        assert!(client.is_closed_within(CLOSED));
    }
    let log = server.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("connection closed:"))
        .count();
    assert!(lines < 60, "{lines} lines");
}

/// Ends a connection with a reset instead of an orderly close.
fn reset(client: Client) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the descriptor is open and `linger` is of the size named.
    let done = unsafe {
        libc::setsockopt(
            client.stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(done, 0);
}

#[test]
fn a_frame_cut_anywhere_is_not_a_request() {
    let server = shared();
    let witness = Witness::start(&server);
    let name = unique("Cut");
    let mut other = server.connect();
    topic(&mut other, &name, 1);
    for serialize in [Serialize::Json, Serialize::Binary] {
        let mut client = server.connect();
        client.serialize = serialize;
        let (whole, _) = client.frame(Send::new(&name, vec![7; 3000]).into());
        let cuts = (0..16)
            .chain((16..whole.len()).step_by(97))
            .chain([whole.len() - 1]);
        for (n, cut) in cuts.enumerate() {
            let mut client = server.connect();
            client.raw(&whole[..cut]).unwrap();
            if n % 2 == 0 {
                reset(client);
            } else {
                client.finish();
                assert!(client.is_closed_within(CLOSED), "cut at {cut}");
            }
        }
    }
    assert_eq!(max_offset(&mut other, &name, 0), 0);
    server.assert_healthy();
    witness.end();
}

#[test]
fn good_requests_in_front_of_a_bad_frame_count() {
    let server = shared();
    let name = unique("Before");
    let mut other = server.connect();
    topic(&mut other, &name, 1);
    for round in 1..=20 {
        let mut client = server.connect();
        let (good, opaque) = client.frame(Send::new(&name, "good").into());
        client.raw(&[&good[..], &[255; 8]].concat()).unwrap();
        let acknowledged = client.answer(opaque).is_ok();
        let stored = max_offset(&mut other, &name, 0);
        assert!(stored <= round);
        assert!(
            stored == round || !acknowledged,
            "acknowledged and not stored"
        );
    }
    server.assert_healthy();
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_served() {
    let server = shared();
    let name = unique("Slow");
    topic(&mut server.connect(), &name, 1);
    for (n, serialize) in [Serialize::Json, Serialize::Binary].into_iter().enumerate() {
        let mut client = server.connect();
        client.serialize = serialize;
        let (first, one) = client.frame(Send::new(&name, "slow").into());
        let (second, two) = client.frame(Send::new(&name, "slower").into());
        for byte in first.iter().chain(&second) {
            client.raw(&[*byte]).unwrap();
            std::thread::sleep(Duration::from_micros(300));
        }
        assert_eq!(
            client.receive(one).expect(0).int("queueOffset"),
            n as i64 * 2
        );
        assert_eq!(
            client.receive(two).expect(0).int("queueOffset"),
            n as i64 * 2 + 1
        );
    }
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let server = Config::server()
        .set("serverChannelMaxIdleTimeSeconds", 2)
        .start();
    let mut idle = server.connect();
    let mut half = server.connect();
    half.raw(&[0, 0]).unwrap();
    let mut busy = server.connect();
    for _ in 0..80 {
        busy.call(Request::new(9999)).expect(3);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(idle.is_closed_within(Duration::from_millis(100)));
    assert!(half.is_closed_within(Duration::from_millis(100)));
    busy.call(Request::new(9999)).expect(3);
}

#[test]
fn odd_headers_are_understood() {
    let server = shared();
    let name = unique("Odd");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    client.call(Send::new(&name, "one")).expect(0);
    let ask = |fields: &str| format!(r#"{{"extFields":{{{fields}}},"code":30,"opaque":77}}"#);
    for header in [
        // Numbers and booleans where text is usual, members that nobody knows, no language.
        ask(&format!(r#""queueId":0,"topic":"{name}","committed":true"#)),
        ask(&format!(r#""queueId":"0","topic":"{name}","x":null"#)),
        format!(
            r#" {{ "opaque" : 77 , "nobody" : [ {{ "knows" : [ 1.5e3, null, false ] }} ],
            "flag":0, "code" : 30 , "language":"KLINGON",
            "extFields" : {{ "topic" : "{name}" , "queueId" : "0" }} }} "#
        ),
        // Escapes in keys and values.
        ask(&format!(
            r#""\u0071ueueId":"\u0030","topic":"{}""#,
            name.replace('d', "\\u0064")
        )),
    ] {
        client.raw(&frame(0, header.as_bytes(), b"")).unwrap();
        let reply = client.receive(77).expect(0);
        assert_eq!(reply.int("offset"), 1, "{header}");
        assert_eq!((reply.version, reply.language, reply.flag), (479, 0, 1));
    }
}

#[test]
fn answers_are_written_as_their_requests() {
    let server = shared();
    for mut client in [
        server.connect(),
        server.connect().binary(),
        server.connect_nameserver().binary(),
    ] {
        let kind = client.serialize;
        let reply = client.call(Request::new(9999)).expect(3);
        assert_eq!(reply.serialize, kind);
        assert_eq!((reply.version, reply.flag), (479, 1));
        assert!(reply.remark.contains("9999"), "{}", reply.remark);
    }
}

#[test]
fn deep_or_wide_headers_are_bounded() {
    let server = shared();
    let witness = Witness::start(&server);
    let deep = |n: usize| {
        format!(
            r#"{{"code":9999,"opaque":5,"x":{}1{}}}"#,
            "[".repeat(n),
            "]".repeat(n)
        )
    };
    let wide = |n: usize| {
        let fields: Vec<String> = (0..n).map(|i| format!(r#""k{i}":"v""#)).collect();
        format!(
            r#"{{"code":9999,"opaque":5,"extFields":{{{}}}}}"#,
            fields.join(",")
        )
    };
    for header in [deep(10), wide(20)] {
        let mut client = server.connect();
        client.raw(&frame(0, header.as_bytes(), b"")).unwrap();
        client.receive(5).expect(3);
    }
    for header in [
        deep(1_000_000),
        wide(100_000),
        "[".repeat(4_000_000),
        "{\"a\":".repeat(500_000),
    ] {
        let mut client = server.connect();
        let _ = client.raw(&frame(0, header.as_bytes(), b""));
        match client.answer(5) {
            Ok(reply) => assert_eq!(reply.code, 3),
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::TimedOut),
        }
    }
    server.assert_healthy();
    witness.end();
}

#[test]
fn the_largest_frame_is_read_and_answered() {
    let server = shared();
    let mut client = server.connect();
    let (whole, opaque) = client.frame(Request::new(9999));
    let header = &whole[8..];
    let largest = frame(0, header, &vec![0; 16 * 1024 * 1024 - 4 - header.len()]);
    client.raw(&largest).unwrap();
    client.receive(opaque).expect(3);
}

#[test]
fn an_answer_that_nobody_asked_for_is_passed_over() {
    let server = shared();
    let mut client = server.connect();
    for code in [0, 1, 307, 310] {
        let mut request = Request::new(code);
        request.fixed.flag = 1;
        client.send(request);
    }
    client.call(Request::new(9999)).expect(3);
    let name = unique("Empty");
    client.call(Pull::new(&name, 0, 0)).expect(17);
    server.assert_healthy();
}
