//! What the tests of the client share.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ringmq::client::{ClientSettings, Producer, ProducerSettings, ReceivedMessage};

use crate::common::{Client, Pull, Record, eventually};

/// Longest wait for what must come, with everything else that runs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Settings for nameservers at these addresses, with intervals for tests.
pub fn client(nameserver: SocketAddr) -> ClientSettings {
    ClientSettings {
        rebalance_interval_ms: 1_000,
        persist_consumer_offset_interval_ms: 500,
        ..ClientSettings::with_name_servers(&nameserver.to_string())
    }
}

/// A producer of a group.
pub fn producer(nameserver: SocketAddr, group: &str) -> Producer {
    Producer::start(&client(nameserver), ProducerSettings::new(group)).expect("a producer")
}

/// All messages of the first `queues` queues of a topic, as a plain connection reads them.
pub fn stored(client: &mut Client, topic: &str, queues: i32) -> Vec<Record> {
    let mut all = Vec::new();
    for queue in 0..queues {
        let mut offset = 0;
        loop {
            let reply = client.call(Pull::new(topic, queue, offset));
            let next = reply.int("nextBeginOffset");
            all.extend(reply.records());
            if next <= offset || reply.code != 0 {
                break;
            }
            offset = next;
        }
    }
    all
}

/// What a listener has seen.
#[derive(Default)]
pub struct Seen(Mutex<Vec<ReceivedMessage>>);

impl Seen {
    pub fn add(&self, messages: &[ReceivedMessage]) {
        self.lock().extend_from_slice(messages);
    }

    pub fn lock(&self) -> MutexGuard<'_, Vec<ReceivedMessage>> {
        self.0.lock().unwrap()
    }

    pub fn bodies(&self) -> Vec<String> {
        self.lock().iter().map(body).collect()
    }

    /// How often each body was seen.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for body in self.bodies() {
            *counts.entry(body).or_default() += 1;
        }
        counts
    }

    #[track_caller]
    pub fn wait_for(&self, what: &str, count: usize) {
        eventually(what, PATIENCE, || self.lock().len() >= count);
    }
}

/// The body as text.
pub fn body(message: &ReceivedMessage) -> String {
    String::from_utf8_lossy(message.body()).into_owned()
}

/// CPU time of this process so far.
pub fn cpu() -> Duration {
    // SAFETY: zero is a valid `rusage`, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Resident memory of this process, in bytes.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("alive");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.expect("VmRSS").parse::<u64>().expect("a number") * 1024
}

/// The result of `call`, and how long it took.
pub fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = call();
    (result, began.elapsed())
}
