//! RocketMQ's own benchmark `Producer`, as a client that is not ours.

use super::apache::Apache;
use super::ask;
use super::broker::Broker;
use super::measure::extra;
use super::process::Process;
use crate::bench::measure::server::Usage;
use crate::bench::result::Run;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The program prints what it did in the last interval of this length.
const INTERVAL: Duration = Duration::from_secs(10);

/// Longest time until its first interval begins.
const START: Duration = Duration::from_secs(20);

/// How often its lines are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Longest wait until its topic has a route.
const ROUTE: Duration = Duration::from_secs(60);

/// Queues of its topic.
const QUEUES: u32 = 8;

/// Bytes of a body.
const SIZE: u32 = 1024;

/// One line that it prints.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    /// Sends a second.
    tps: f64,
    /// Average round trip, in milliseconds.
    mean_ms: f64,
    /// Sends that failed since the start.
    failed: u64,
}

/// Runs it for about `seconds`, at least one interval, after a first interval in which its virtual
/// machine warms up.
pub fn producer(
    cell: &str,
    threads: u32,
    seconds: f64,
    apache: &Apache,
    broker: &mut Broker,
) -> Run {
    let intervals = (seconds / INTERVAL.as_secs_f64()).round().max(1.0) as u32;
    let mut run = Run {
        cell: cell.to_owned(),
        workload: "java-producer".to_owned(),
        broker: broker.name.clone(),
        options: BTreeMap::from([
            ("threads".to_owned(), threads.to_string()),
            ("size".to_owned(), SIZE.to_string()),
            ("queues".to_owned(), QUEUES.to_string()),
        ]),
        ..Run::default()
    };
    if let Err(error) = measure(&mut run, threads, intervals, apache, broker) {
        run.error = Some(error);
    }
    run
}

fn measure(
    run: &mut Run,
    threads: u32,
    intervals: u32,
    apache: &Apache,
    broker: &mut Broker,
) -> Result<(), String> {
    let topic = format!("bench-java-{}", run_number());
    ask::create_topic(broker.port, &topic, QUEUES)?;
    let until = Instant::now() + ROUTE;
    while !ask::knows_route(broker.nameserver_port, &topic) {
        broker.alive()?;
        if Instant::now() > until {
            return Err(format!(
                "no route of topic {topic} after {} s",
                ROUTE.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let home = broker.folder().join("java-producer");
    fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let heap = ["-Xms1g".to_owned(), "-Xmx1g".to_owned()];
    let class = "org.apache.rocketmq.example.benchmark.Producer";
    let mut command = apache.java(&home, &heap, class);
    command
        .args(["-n", &format!("127.0.0.1:{}", broker.nameserver_port)])
        .args(["-t", &topic])
        .args(["-w", &threads.to_string()])
        .args(["-s", &SIZE.to_string()]);
    let log = home.join("out");
    let mut client = Process::start("RocketMQ's Producer", command, &log)?;
    // The first interval is the client's: its virtual machine is cold.
    await_lines(&mut client, &log, 1)?;
    let before = Usage::begin(broker.pid());
    let lines = await_lines(&mut client, &log, 1 + intervals as usize)?;
    let after = Usage::of(broker.pid());
    client.stop();
    run.server = before
        .zip(after)
        .and_then(|(before, after)| after.since(&before));
    fill(run, &lines[1..]);
    if run.failed > 0 {
        return Err(format!("{} sends failed", run.failed));
    }
    Ok(())
}

/// The first lines with figures that it prints, `wanted` in number.
fn await_lines(client: &mut Process, log: &Path, wanted: usize) -> Result<Vec<Line>, String> {
    let patience = INTERVAL * (wanted as u32 + 1) + START;
    let until = Instant::now() + patience;
    loop {
        let text = fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut lines = lines(&String::from_utf8_lossy(&text));
        if lines.len() >= wanted {
            lines.truncate(wanted);
            return Ok(lines);
        }
        client.alive()?;
        if Instant::now() > until {
            return Err(format!(
                "RocketMQ's Producer printed {} lines in {} s:\n{}",
                lines.len(),
                patience.as_secs(),
                client.log_end()
            ));
        }
        std::thread::sleep(LOOK);
    }
}

fn run_number() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

fn fill(run: &mut Run, measured: &[Line]) {
    let sends: f64 = measured.iter().map(|line| line.tps).sum();
    let trips: f64 = measured.iter().map(|line| line.tps * line.mean_ms).sum();
    run.seconds = INTERVAL.as_secs_f64() * measured.len() as f64;
    run.messages = (sends * INTERVAL.as_secs_f64()) as u64;
    run.body_bytes = run.messages * u64::from(SIZE);
    run.failed = measured.last().map_or(0, |line| line.failed);
    if sends > 0.0 {
        let mean_us = trips / sends * 1e3;
        run.extra.insert(extra::MEAN_TRIP_US.to_owned(), mean_us);
    }
}

/// All lines with figures, in order.
fn lines(text: &str) -> Vec<Line> {
    text.lines().filter_map(line).collect()
}

/// `... | Send TPS: 14968 | Max RT(ms): 871 | Average RT(ms):   4.273 | Send Failed: 0 | Response Failed: 0`
fn line(text: &str) -> Option<Line> {
    let value = |name: &str| {
        let behind = text
            .split_once(name)?
            .1
            .trim_start_matches(':')
            .trim_start();
        behind.split([' ', '|']).next()?.parse::<f64>().ok()
    };
    Some(Line {
        tps: value("Send TPS")?,
        mean_ms: value("Average RT(ms)")?,
        failed: (value("Send Failed")? + value("Response Failed")?) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: &str = "\
topic: t, threadCount: 64, messageSize: 1024
Current Time: 2026-11-29 10:00:10,123 | Send TPS: 9000 | Max RT(ms): 900 | Average RT(ms):   7.100 | Send Failed: 0 | Response Failed: 0
Current Time: 2026-11-29 10:00:20,123 | Send TPS: 15000 | Max RT(ms): 871 | Average RT(ms):   4.000 | Send Failed: 0 | Response Failed: 0
Current Time: 2026-11-29 10:00:30,123 | Send TPS: 5000 | Max RT(ms): 871 | Average RT(ms):   8.000 | Send Failed: 2 | Response Failed: 1
";

    #[test]
    fn every_interval_is_read() {
        let lines = lines(OUT);
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1],
            Line {
                tps: 15_000.0,
                mean_ms: 4.0,
                failed: 0
            }
        );
    }

    #[test]
    fn intervals_become_one_run() {
        let mut run = Run::default();
        fill(&mut run, &lines(OUT)[1..]);
        assert_eq!(run.messages, 200_000);
        assert_eq!(run.seconds, 20.0);
        assert_eq!(run.failed, 3);
        assert_eq!(run.extra[extra::MEAN_TRIP_US], 5_000.0);
    }
}
