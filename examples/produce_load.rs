//! Our side of the comparison of client libraries: `produce_load NAMESRV TOPIC SIZE`; see
//! `bench/clients/README.md` for what it reads and prints.

use std::io::{BufRead, Write, stdin, stdout};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringmq::client::{
    ClientSettings, Message, Producer, ProducerSettings, Result, SendResult, SendStatus,
};

struct Load {
    producer: Producer,
    topic: Arc<str>,
    body: Bytes,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    fn count(&self, result: &Result<SendResult>, messages: u64) {
        match result {
            Ok(result) if result.status == SendStatus::SendOk => {
                self.sent.fetch_add(messages, Ordering::Relaxed);
            }
            other => {
                if self.failed.fetch_add(messages, Ordering::Relaxed) == 0 {
                    eprintln!("{other:?}");
                }
            }
        }
    }
}

/// Places for sends without an answer yet.
struct Places {
    free: AtomicUsize,
    waits: Mutex<bool>,
    freed: Condvar,
}

impl Places {
    fn take(&self) {
        loop {
            let take = |free: usize| free.checked_sub(1);
            let order = (Ordering::AcqRel, Ordering::Acquire);
            if self.free.fetch_update(order.0, order.1, take).is_ok() {
                return;
            }
            let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            *waits = true;
            while self.free.load(Ordering::Acquire) == 0 {
                let waited = self.freed.wait(waits);
                waits = waited.unwrap_or_else(PoisonError::into_inner);
            }
            *waits = false;
        }
    }

    fn give(&self) {
        // Only who takes the first free place can be waited for.
        if self.free.fetch_add(1, Ordering::AcqRel) == 0 {
            let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            if *waits {
                self.freed.notify_one();
            }
        }
    }
}

impl Load {
    fn message(&self) -> Message {
        Message::new(self.topic.clone(), self.body.clone())
    }

    fn sync(&self, threads: usize, end: Instant) {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while Instant::now() < end {
                        self.counts.count(&self.producer.send(self.message()), 1);
                    }
                });
            }
        });
    }

    fn in_flight(&self, most: usize, end: Instant) {
        let places = Arc::new(Places {
            free: AtomicUsize::new(most),
            waits: Mutex::new(false),
            freed: Condvar::new(),
        });
        while Instant::now() < end {
            places.take();
            let (counts, places) = (self.counts.clone(), places.clone());
            self.producer.send_with(self.message(), move |result| {
                counts.count(&result, 1);
                places.give();
            });
        }
        for _ in 0..most {
            places.take();
        }
    }

    fn batch(&self, size: usize, end: Instant) {
        while Instant::now() < end {
            let messages: Vec<Message> = (0..size).map(|_| self.message()).collect();
            let result = self.producer.send(messages);
            self.counts.count(&result, size as u64);
        }
    }
}

/// What this process used so far, user and system.
fn cpu() -> Duration {
    // SAFETY: zeroes are a valid rusage, and getrusage writes nothing but the struct it is given.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let time = |part: libc::timeval| {
        Duration::from_secs(part.tv_sec as u64) + Duration::from_micros(part.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, namesrv, topic, size] = arguments.as_slice() else {
        return Err("produce_load NAMESRV TOPIC SIZE".into());
    };
    let client = ClientSettings::with_name_servers(namesrv);
    let load = Load {
        producer: Producer::start(&client, ProducerSettings::new("produce-load-rust"))?,
        topic: topic.as_str().into(),
        body: vec![b'x'; size.parse()?].into(),
        counts: Arc::default(),
    };
    println!("{{\"ready\":true}}");
    for line in stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, number, seconds] = words.as_slice() else {
            return Err(format!("{line:?} is not KIND NUMBER SECONDS").into());
        };
        let (number, seconds) = (number.parse()?, seconds.parse()?);
        load.counts.sent.store(0, Ordering::Relaxed);
        load.counts.failed.store(0, Ordering::Relaxed);
        let (before, begin) = (cpu(), Instant::now());
        let end = begin + Duration::from_secs_f64(seconds);
        match *kind {
            "sync" => load.sync(number, end),
            "async" => load.in_flight(number, end),
            "batch" => load.batch(number, end),
            other => return Err(format!("unknown kind {other}").into()),
        }
        let (took, used) = (begin.elapsed(), cpu() - before);
        println!(
            "{{\"messages\":{},\"failed\":{},\"seconds\":{:.6},\"cpu_seconds\":{:.6}}}",
            load.counts.sent.load(Ordering::Relaxed),
            load.counts.failed.load(Ordering::Relaxed),
            took.as_secs_f64(),
            used.as_secs_f64()
        );
        stdout().flush()?;
    }
    load.producer.shutdown()?;
    Ok(())
}
