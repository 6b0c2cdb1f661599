//! What sending costs a client: messages a second, and a second of this process's CPU time.
//!
//! ```text
//! client_cost NAMESERVER TOPIC MODE [--in-flight N] [--bytes N] [--seconds N] [--batch N]
//! ```
//!
//! `MODE` is `sync` (one thread, one after the other), `async` (one thread, futures), `callback`,
//! `batch` (blocking sends of `--batch` messages, 32) or `one-way`. Warms up for a second; prints one line of JSON.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringmq::client::{ClientSettings, Error, Message, Producer, ProducerSettings};

struct Options {
    topic: String,
    mode: String,
    in_flight: usize,
    bytes: usize,
    seconds: u64,
    batch: usize,
}

/// Where the measured time begins and ends, and what was sent within it.
struct Measure {
    from: Instant,
    to: Instant,
    /// CPU time and clock at the beginning, once it has come.
    begun: Option<(Duration, Instant)>,
    messages: u64,
    failed: u64,
}

impl Measure {
    /// Counts results; `false` at the end.
    fn count(&mut self, result: Result<u64, Error>) -> bool {
        let now = Instant::now();
        if self.begun.is_none() {
            if now < self.from {
                return true;
            }
            self.begun = Some((cpu(), now));
        }
        match result {
            Ok(messages) => self.messages += messages,
            Err(error) => {
                self.failed += 1;
                if self.failed <= 3 {
                    eprintln!("{error}");
                }
            }
        }
        now < self.to
    }
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    // SAFETY: zero is a valid `rusage`, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "client_cost NAMESERVER TOPIC sync|async|callback|batch|one-way \
                 [--in-flight N] [--bytes N] [--seconds N] [--batch N]";
    let mut word = || arguments.next().ok_or(usage);
    let (nameserver, topic, mode) = (word()?, word()?, word()?);
    let mut options = Options {
        topic,
        mode,
        in_flight: 64,
        bytes: 1024,
        seconds: 5,
        batch: 32,
    };
    while let Some(option) = arguments.next() {
        let value: usize = arguments.next().ok_or(usage)?.parse()?;
        match option.as_str() {
            "--in-flight" => options.in_flight = value.max(1),
            "--bytes" => options.bytes = value.max(1),
            "--seconds" => options.seconds = value as u64,
            "--batch" => options.batch = value.max(1),
            _ => return Err(usage.into()),
        }
    }
    let settings = ProducerSettings {
        compress_body_over: usize::MAX,
        in_flight_max: options.in_flight.max(10_000),
        ..ProducerSettings::new("client_cost")
    };
    let client = ClientSettings::with_name_servers(&nameserver);
    let producer = Producer::start(&client, settings)?;
    let from = Instant::now() + Duration::from_secs(1);
    let mut measure = Measure {
        from,
        to: from + Duration::from_secs(options.seconds),
        begun: None,
        messages: 0,
        failed: 0,
    };
    run(&producer, &options, &mut measure)?;
    let (cpu_before, began) = measure.begun.ok_or("nothing was measured")?;
    let (cpu, took) = (cpu() - cpu_before, began.elapsed());
    println!(
        "{}",
        serde_json::json!({
            "mode": options.mode,
            "in_flight": options.in_flight,
            "bytes": options.bytes,
            "batch": options.batch,
            "seconds": took.as_secs_f64(),
            "messages": measure.messages,
            "failed": measure.failed,
            "messages_per_second": (measure.messages as f64 / took.as_secs_f64()).round(),
            "cpu_seconds": cpu.as_secs_f64(),
            "messages_per_cpu_second": (measure.messages as f64 / cpu.as_secs_f64()).round(),
        })
    );
    producer.shutdown()?;
    Ok(())
}

fn run(
    producer: &Producer,
    options: &Options,
    measure: &mut Measure,
) -> Result<(), Box<dyn std::error::Error>> {
    let body = bytes::Bytes::from(vec![b'x'; options.bytes]);
    let topic: Arc<str> = options.topic.as_str().into();
    let message = || Message::new(topic.clone(), body.clone());
    match options.mode.as_str() {
        "sync" => while measure.count(producer.send(message()).map(|_| 1)) {},
        "one-way" => while measure.count(producer.send_one_way(message()).map(|()| 1)) {},
        "batch" => {
            let size = options.batch as u64;
            let batch = || (0..size).map(|_| message()).collect::<Vec<_>>();
            while measure.count(producer.send(batch()).map(|_| size)) {}
        }
        "async" => {
            let mut sends = VecDeque::new();
            loop {
                while sends.len() < options.in_flight {
                    sends.push_back(producer.send_async(message()));
                }
                let oldest = sends.pop_front().ok_or("none in flight")?;
                if !measure.count(oldest.wait().map(|_| 1)) {
                    break;
                }
            }
            sends
                .into_iter()
                .try_for_each(|send| send.wait().map(drop))?;
        }
        "callback" => {
            let (free, taken) = flume::bounded(options.in_flight);
            let failed = Arc::new(AtomicU64::new(0));
            for _ in 0..options.in_flight {
                free.send(Ok(0))?;
            }
            loop {
                let before: Result<u64, Error> = taken.recv()?;
                if !measure.count(before) {
                    break;
                }
                let (free, failed) = (free.clone(), failed.clone());
                producer.send_with(message(), move |sent| {
                    failed.fetch_add(u64::from(sent.is_err()), Ordering::Relaxed);
                    let _ = free.send(sent.map(|_| 1));
                });
            }
        }
        other => return Err(format!("no mode {other}").into()),
    }
    Ok(())
}
