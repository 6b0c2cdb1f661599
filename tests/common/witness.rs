//! Somebody else: a client that goes on producing and consuming while another one
//! misbehaves, and notices when it is not served as ever.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Client, Pull, Send, Server, body, topic, unique};

/// Time within which every request of a witness must be answered. Generous: the machine
/// is shared with other tests.
const ANSWER: Duration = Duration::from_secs(3);

/// A client on a thread of its own.
pub struct Witness {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Witness {
    pub fn start(server: &Server) -> Witness {
        let stop = Arc::new(AtomicBool::new(false));
        let (address, stopped) = (server.address(), stop.clone());
        let thread = std::thread::spawn(move || witness(address, &stopped));
        Witness {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends it; panics where it was not served, or lost a message.
    pub fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self
            .thread
            .take()
            .expect("once")
            .join()
            .expect("the witness was served");
        assert!(seen > 0, "the witness saw nothing");
    }
}

fn witness(address: SocketAddr, stopped: &AtomicBool) -> u64 {
    let name = unique("Witness");
    let mut client = Client::connect(address);
    topic(&mut client, &name, 2);
    let mut sent = 0;
    while !stopped.load(Ordering::Relaxed) || sent < 4 {
        let (queue, number) = ((sent % 2) as i32, sent / 2);
        let mut timed = |request: ringmq::wire::command::Request| {
            let began = Instant::now();
            let reply = client.call(request).expect(0);
            assert!(
                began.elapsed() < ANSWER,
                "answered after {:?}",
                began.elapsed()
            );
            reply
        };
        let content = body(&name, sent, 300);
        let reply = timed(Send::new(&name, content.clone()).queue(queue).into());
        assert_eq!(reply.int("queueOffset") as u64, number);
        let reply = timed(Pull::new(&name, queue, number as i64).into());
        let records = reply.records();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].body, content);
        sent += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    // Everything from the start, once more.
    for queue in 0..2 {
        let mut next = 0;
        while next < (sent / 2) as i64 {
            let reply = client.call(Pull::new(&name, queue, next)).expect(0);
            for record in reply.records() {
                assert_eq!(record.queue_offset, next);
                assert_eq!(
                    record.body,
                    body(&name, next as u64 * 2 + queue as u64, 300)
                );
                next += 1;
            }
        }
    }
    sent
}
