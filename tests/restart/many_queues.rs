//! Tens of thousands of queues: cheap while nothing happens, opened in a moment.

use std::time::{Duration, Instant};

use crate::common::{Config, Pull, Send, Server, eventually, max_offset, topic};

/// `RINGMQ_QUEUES` has another number.
const QUEUES: u64 = 10_000;

/// Queues of one topic.
const PER_TOPIC: u64 = 10_000;

fn name(n: u64) -> (String, i32) {
    (format!("Many-{}", n / PER_TOPIC), (n % PER_TOPIC) as i32)
}

/// Milliseconds that the store said its opening took.
fn open_millis(server: &Server) -> u64 {
    let line = server.log_line("store open").expect("a line");
    let text = line.rsplit("millis=").next().unwrap();
    text.trim().parse().expect("a number")
}

/// One message in every queue, or one more.
fn fill(server: &Server, queues: u64) {
    let mut client = server.connect();
    let mut open = std::collections::VecDeque::new();
    for n in 0..queues {
        let (topic, queue) = name(n);
        open.push_back(client.send(Send::new(&topic, b"x".to_vec()).queue(queue)));
        if open.len() > 64 {
            client.receive(open.pop_front().unwrap()).expect(0);
        }
    }
    for opaque in open {
        client.receive(opaque).expect(0);
    }
}

#[test]
fn idle_queues_cost_little_and_open_in_a_moment() {
    let queues = std::env::var("RINGMQ_QUEUES").map_or(QUEUES, |n| n.parse().unwrap());
    let config = || Config::server().set("mappedFileSizeConsumeQueue", 6_000_000);
    let mut server = config().start();
    let mut client = server.connect();
    for n in (0..queues).step_by(PER_TOPIC as usize) {
        topic(&mut client, &name(n).0, PER_TOPIC.min(queues - n) as i32);
    }
    let before = server.resident();
    fill(&server, queues);
    let warm = server.resident();
    // Making a folder and a file for each takes its time, and a stop waits for it.
    eventually("queue files are there", Duration::from_secs(300), || {
        let topics = (0..queues).step_by(PER_TOPIC as usize);
        let folders = topics.map(|n| {
            let dir = server.store().join("consumequeue").join(name(n).0);
            std::fs::read_dir(dir).map_or(0, |entries| entries.count() as u64)
        });
        folders.sum::<u64>() == queues
    });
    assert_eq!(server.stop(), 0);
    let mut opened = Vec::new();
    for crashed in [false, true] {
        server.start_again();
        opened.push(open_millis(&server));
        if crashed {
            break;
        }
        server.kill();
    }
    let opened_bytes = server.resident();
    let mut client = server.connect();
    for n in (0..queues).step_by(997) {
        let (topic, queue) = name(n);
        assert_eq!(max_offset(&mut client, &topic, queue), 1);
        let found = client.call(Pull::new(&topic, queue, 0)).expect(0).records();
        assert_eq!(found.len(), 1);
    }
    let per_queue = |bytes: u64| bytes.saturating_sub(before) / queues;
    eprintln!(
        "{queues} queues: opened in {} ms, after a kill in {} ms; bytes a queue: {} when warm, {} when opened",
        opened[0],
        opened[1],
        per_queue(warm),
        per_queue(opened_bytes)
    );
    assert!(
        opened.iter().all(|&ms| ms < 100 * (queues / 1000).max(10)),
        "{opened:?} ms"
    );
    assert!(
        per_queue(opened_bytes) < 2048,
        "{} bytes a queue",
        per_queue(opened_bytes)
    );
    // It answers while it has them all to look after.
    let began = Instant::now();
    client.call(Send::new(&name(0).0, b"x".to_vec())).expect(0);
    assert!(began.elapsed() < Duration::from_secs(2));
    server.assert_healthy();
}
