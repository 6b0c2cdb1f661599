//! Producers that remember every acknowledgement, and the check that it was kept.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Client, Pull, Send, Server, body, max_offset, min_offset, topic};

/// Requests that a producer has under way.
const WINDOW: usize = 8;

/// What was sent to a topic, and what of it was acknowledged.
pub struct Ledger {
    topic: String,
    queues: i32,
    next: AtomicU64,
    acknowledged: Mutex<BTreeMap<(i32, i64), Vec<u8>>>,
}

impl Ledger {
    pub fn new(server: &Server, name: &str, queues: i32) -> Ledger {
        topic(&mut server.connect(), name, queues);
        Ledger {
            topic: name.to_owned(),
            queues,
            next: AtomicU64::new(0),
            acknowledged: Mutex::default(),
        }
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    fn note(&self, queue: i32, first: i64, bodies: Vec<Vec<u8>>) {
        let mut acknowledged = self.acknowledged.lock().unwrap();
        for (n, content) in bodies.into_iter().enumerate() {
            let before = acknowledged.insert((queue, first + n as i64), content);
            assert!(
                before.is_none(),
                "offset {} of queue {queue} was given twice",
                first + n as i64
            );
        }
    }

    /// Sends singles and batches until `ends`, or until the connection does.
    pub fn produce(&self, address: SocketAddr, ends: &AtomicBool) {
        let mut client = Client::connect(address);
        let mut open: VecDeque<(i32, i32, Vec<Vec<u8>>)> = VecDeque::new();
        loop {
            while open.len() < WINDOW && !ends.load(Ordering::Relaxed) {
                let number = self.next.fetch_add(10, Ordering::Relaxed);
                let queue = (number / 10 % self.queues as u64) as i32;
                let many = if number % 50 == 0 {
                    1 + number / 50 % 9
                } else {
                    1
                };
                let bytes = 60 + (number * 37 % 3000) as usize;
                let bodies: Vec<Vec<u8>> =
                    (0..many).map(|n| body("m", number + n, bytes)).collect();
                let send = match bodies.len() {
                    1 => Send::new(&self.topic, bodies[0].clone()),
                    _ => Send::batch(&self.topic, &bodies),
                };
                let (frame, opaque) = client.frame(send.queue(queue).into());
                if client.raw(&frame).is_err() {
                    return;
                }
                open.push_back((opaque, queue, bodies));
            }
            let Some((opaque, queue, bodies)) = open.pop_front() else {
                return;
            };
            let Ok(reply) = client.answer(opaque) else {
                return;
            };
            if reply.code == 0 {
                self.note(queue, reply.int("queueOffset"), bodies);
            } else {
                // A broker that is stopping says so; nothing else is refused here.
                assert!(
                    matches!(reply.code, 14 | 1500),
                    "{}: {}",
                    reply.code,
                    reply.remark
                );
                return;
            }
        }
    }

    /// Produces over several connections while `meanwhile` runs, then ends.
    pub fn load<T>(&self, server: &Server, meanwhile: impl FnOnce() -> T) -> T {
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| self.produce(server.address(), &ends));
            }
            let result = meanwhile();
            ends.store(true, Ordering::Relaxed);
            result
        })
    }

    /// Reads every queue from its first readable message on, as older ones were
    /// deleted: the checks of [`Ledger::verify`]. Returns how many there were.
    pub fn verify_kept(&self, server: &Server) -> usize {
        let seen = self.read(server, |client, queue| {
            min_offset(client, &self.topic, queue)
        });
        seen.len()
    }

    /// Reads every queue from its start: no gap, nothing twice, nothing that was not
    /// sent, and everything that was acknowledged, where and as it was.
    pub fn verify(&self, server: &Server) {
        let seen = self.read(server, |_, _| 0);
        assert!(seen.len() >= self.acknowledged());
    }

    fn read(&self, server: &Server, start: impl Fn(&mut Client, i32) -> i64) -> HashSet<u64> {
        let mut client = server.connect();
        let acknowledged = self.acknowledged.lock().unwrap();
        let sent = self.next.load(Ordering::Relaxed) + 10;
        let mut seen = HashSet::new();
        for queue in 0..self.queues {
            let end = max_offset(&mut client, &self.topic, queue);
            let mine = acknowledged.range((queue, 0)..(queue + 1, 0));
            let last = mine.last().map_or(-1, |((_, offset), _)| *offset);
            assert!(
                end > last,
                "queue {queue} ends at {end}, {last} was acknowledged"
            );
            let mut at = start(&mut client, queue);
            while at < end {
                let reply = client.call(Pull::new(&self.topic, queue, at)).expect(0);
                for record in reply.records() {
                    assert_eq!((record.queue_id, record.queue_offset), (queue, at), "a gap");
                    let number = number_of(&record.body);
                    assert!(number < sent, "message {number} was never sent");
                    assert!(
                        record.body == body("m", number, record.body.len()),
                        "message {number} is not as sent"
                    );
                    assert!(seen.insert(number), "message {number} is there twice");
                    if let Some(content) = acknowledged.get(&(queue, at)) {
                        assert!(
                            record.body == *content,
                            "offset {at} of queue {queue} holds another message"
                        );
                    }
                    at += 1;
                }
            }
        }
        seen
    }
}

fn number_of(content: &[u8]) -> u64 {
    let mut parts = content.split(|&byte| byte == b':');
    assert_eq!(parts.next(), Some(&b"m"[..]));
    let digits = parts.next().expect("a number");
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}
