//! Clients that are too many, that never read, or that leave in the middle.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::{Client, Config, Pull, Send, Server, Witness, body, max_offset, topic};

const MIB: u64 = 1024 * 1024;

/// Connections that say nothing.
const SILENT: usize = 10_000;

/// Lets this process, and those it starts, have as many files as the machine allows.
fn raise_files() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit to write to and to read from.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    limit.rlim_cur
}

#[test]
fn ten_thousand_silent_connections_cost_little_and_nobody_is_held_up() {
    let files = raise_files();
    assert!(
        files > SILENT as u64 + 500,
        "{files} files are too few for this test: ulimit -n"
    );
    let server = Config::server().shards(2).start();
    let witness = Witness::start(&server);
    let before = server.resident();
    let mut silent: Vec<TcpStream> = Vec::with_capacity(SILENT);
    for n in 0..SILENT {
        let mut stream = TcpStream::connect(server.address()).expect("connect");
        // Every third one begins a frame.
        if n % 3 == 0 {
            stream.write_all(&[0, 0, 1]).unwrap();
        }
        silent.push(stream);
    }
    let mut client = server.connect();
    let began = Instant::now();
    client
        .call(ringmq::wire::command::Request::new(9999))
        .expect(3);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let grown = server.resident().saturating_sub(before);
    println!(
        "{SILENT} connections: {} KiB each",
        grown / 1024 / SILENT as u64
    );
    assert!(grown < 200 * MIB, "grown by {} MiB", grown / MIB);
    drop(silent);
    witness.end();
    server.assert_healthy();
    // Their places are free again.
    for _ in 0..100 {
        server
            .connect()
            .call(ringmq::wire::command::Request::new(9999))
            .expect(3);
    }
}

#[test]
fn one_connection_too_many_is_closed_at_once() {
    let server = Config::server().shards(2).set("connectionsMax", 20).start();
    let ask = || ringmq::wire::command::Request::new(9999);
    let mut open: Vec<Client> = Vec::new();
    while open.len() < 20 {
        let mut client = server.connect();
        client.call(ask()).expect(3);
        open.push(client);
    }
    for _ in 0..5 {
        assert!(server.connect().is_closed_within(Duration::from_secs(5)));
    }
    open.iter_mut()
        .for_each(|client| drop(client.call(ask()).expect(3)));
    open.truncate(10);
    crate::common::eventually("room again", Duration::from_secs(5), || {
        server.connect().try_call(ask()).is_ok()
    });
}

/// A topic with more in it than any buffer, spread over two queues.
fn fill(server: &Server, name: &str, messages: u64) {
    let mut client = server.connect();
    topic(&mut client, name, 2);
    for n in 0..messages {
        client
            .call(Send::new(name, body(name, n, 60_000)).queue((n % 2) as i32))
            .expect(0);
    }
}

/// Writes as much as the server takes within a time; how much that was.
fn stuff(stream: &mut TcpStream, bytes: &[u8], time: Duration) -> usize {
    stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let (began, mut written) = (Instant::now(), 0);
    while began.elapsed() < time {
        match stream.write(&bytes[written % bytes.len()..]) {
            Ok(n) => written += n,
            Err(_) => break,
        }
    }
    written
}

#[test]
fn a_client_that_pulls_and_never_reads_is_not_read_any_more() {
    let server = Config::server().shards(2).start();
    fill(&server, "Full", 200);
    let witness = Witness::start(&server);
    let before = server.resident();
    let mut stuffed = Vec::new();
    for n in 0..16 {
        let mut client = server.connect();
        let mut pulls = Vec::new();
        let mut opaques = Vec::new();
        for _ in 0..500 {
            let (frame, opaque) = client.frame(Pull::new("Full", n % 2, 0).into());
            pulls.extend_from_slice(&frame);
            opaques.push(opaque);
        }
        let mut stream = client.stream.try_clone().unwrap();
        let written = stuff(&mut stream, &pulls, Duration::from_millis(600));
        stuffed.push((client, opaques, pulls.len() / 500, written));
    }
    let grown = server.resident().saturating_sub(before);
    println!("grown by {} MiB", grown / MIB);
    // Unread, all that was asked for would be 2 GiB.
    assert!(grown < 400 * MIB, "grown by {} MiB", grown / MIB);
    witness.end();
    // One of them reads at last: what it asked for is all there.
    let (mut client, opaques, frame, written) = stuffed.remove(0);
    for &opaque in opaques.iter().take((written / (frame + 4)).min(100)) {
        assert!(!client.receive(opaque).expect(0).records().is_empty());
    }
    drop(stuffed);
    Witness::start(&server).end();
    server.assert_healthy();
}

#[test]
fn a_client_that_sends_and_never_reads_loses_nothing_that_was_acknowledged() {
    let server = Config::server().shards(2).start();
    let mut other = server.connect();
    topic(&mut other, "Deaf", 2);
    let witness = Witness::start(&server);
    let before = server.resident();
    let mut client = server.connect();
    let mut sends = Vec::new();
    let mut opaques = Vec::new();
    for n in 0..20_000 {
        let (frame, opaque) = client.frame(
            Send::new("Deaf", body("deaf", n, 100))
                .queue((n % 2) as i32)
                .into(),
        );
        sends.extend_from_slice(&frame);
        opaques.push(opaque);
    }
    let mut stream = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        stream
            .set_write_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let _ = stream.write_all(&sends);
    });
    std::thread::sleep(Duration::from_millis(1500));
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 150 * MIB, "grown by {} MiB", grown / MIB);
    witness.end();
    for (n, &opaque) in opaques.iter().enumerate() {
        assert_eq!(
            client.receive(opaque).expect(0).int("queueOffset"),
            n as i64 / 2
        );
    }
    writer.join().unwrap();
    for queue in 0..2 {
        assert_eq!(max_offset(&mut other, "Deaf", queue), 10_000);
    }
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let server = Config::server().shards(2).start();
    fill(&server, "Left", 40);
    let witness = Witness::start(&server);
    let before = server.resident();
    for round in 0..60 {
        let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            for queue in [0, 1] {
                // Long polls that nobody will hear of, large answers that nobody will read.
                client.send(Pull::new("Left", queue, 20).suspend(20_000));
                for _ in 0..30 {
                    client.send(Pull::new("Left", queue, 0));
                    client.send(Send::new("Mess", body("mess", n as u64, 2000)).queue(queue));
                }
            }
        }
        if round % 2 == 0 {
            clients.iter().for_each(Client::finish);
        }
    }
    // Whoever waited at the end of the queue is gone; the message is there for the next.
    let mut client = server.connect();
    for queue in [0, 1] {
        let reply = client
            .call(Send::new("Left", "late").queue(queue))
            .expect(0);
        assert_eq!(reply.int("queueOffset"), 20);
        assert_eq!(
            client
                .call(Pull::new("Left", queue, 20))
                .expect(0)
                .records()[0]
                .body,
            b"late"
        );
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 200 * MIB, "grown by {} MiB", grown / MIB);
    witness.end();
    server.assert_healthy();
    assert_eq!(server.stop(), 0);
}
