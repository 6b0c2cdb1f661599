//! Each workload against RingMQ, for about a second.

use crate::command::{bench, first_records, stored};
use crate::common::{Config, max_offset, queue_offset, records, shared, unique};
use ringmq::wire::command::Request;
use std::path::Path;
use std::time::Duration;

const SHORT: [&str; 4] = ["--seconds", "1", "--warm-up", "0.3"];

/// Runs a workload against the shared broker on a topic of its own with four queues.
fn on(topic: &str, command: &str, options: &[&str]) -> crate::command::Found {
    let broker = shared().address().to_string();
    let mut all = vec![command, "--broker", &broker, "--topic", topic];
    all.extend(["--queues", "4"]);
    all.extend(options);
    bench(&all)
}

#[test]
fn produce_counts_what_the_broker_counts() {
    let topic = unique("produce");
    let found = on(&topic, "produce", &SHORT).good();
    let stored = stored(&mut shared().connect(), &topic, 4);
    found.verified(stored);
    let messages = found.number("/messages");
    assert!(messages > 100.0 && messages <= stored as f64, "{messages}");
    assert_eq!(found.number("/body_bytes"), messages * 1024.0);
    assert_eq!(found.number("/failed"), 0.0);
    let seconds = found.number("/seconds");
    assert!((0.99..1.01).contains(&seconds), "{seconds}");
    assert_eq!(found.run()["broker"], "RingMQ");
    assert_eq!(found.run()["options"]["in-flight"], "16");
    let timeline = found.run()["timeline"].as_array().expect("a timeline");
    assert_eq!(timeline.len(), 1);
    assert_eq!(timeline[0]["messages"].as_f64(), Some(messages));

    let latency = |name: &str| found.number(&format!("/latency/{name}"));
    // Those under way at the begin count as messages, those at the end as latencies.
    assert!((latency("count") - messages).abs() <= 4.0 * 16.0);
    assert!(latency("p50_us") > 0.0 && latency("p50_us") <= latency("p99_us"));
    assert!(latency("p99_us") <= latency("max_us") && latency("max_us") < 2e7);

    assert!(found.number("/server/cpu_seconds") > 0.0);
    assert!(found.number("/server/cpu_seconds") < 5.0);
    assert!(found.number("/server/resident_bytes") > 1e6);
    assert!(found.number("/server/context_switches") > 0.0);
    assert!(found.number("/client/cpu_seconds") > 0.0);
    let busiest = found.number("/client/busiest_thread");
    assert!(busiest > 0.0 && busiest <= 1.1, "{busiest}");
    assert!(
        found.stdout.contains("once each, in order"),
        "{}",
        found.stdout
    );
    assert!(found.report["machine"]["cores"].as_u64() > Some(0));
    assert!(
        found.report["command"]
            .as_str()
            .expect("text")
            .contains("bench produce")
    );
}

#[test]
fn batches_threads_sizes_and_properties_are_sent_as_asked() {
    let topic = unique("produce");
    let mut options = SHORT.to_vec();
    options.extend(["--batch", "8", "--threads", "2", "--connections", "3"]);
    options.extend([
        "--size-distribution",
        "list:100=1,300=1",
        "--keys",
        "--tags",
        "3",
    ]);
    let found = on(&topic, "produce", &options).good();
    let mut client = shared().connect();
    let stored = stored(&mut client, &topic, 4);
    assert_eq!(stored % 8, 0);
    found.verified(stored);
    assert_eq!(found.number("/messages") % 8.0, 0.0);
    let requests = found.number("/messages") / 8.0;
    assert!((found.number("/latency/count") - requests).abs() <= 3.0 * 16.0);
    let mean = found.number("/body_bytes") / found.number("/messages");
    assert!((150.0..250.0).contains(&mean), "{mean}");

    let count = max_offset(&mut client, &topic, 0).min(32) as usize;
    let records = records(&first_records(&mut client, &topic, count));
    assert!(records.len() > 8);
    let mut unique_keys = std::collections::BTreeSet::new();
    for record in &records {
        assert!([100, 300].contains(&record.body.len()));
        let property = |name| record.property(name).unwrap_or_default().to_owned();
        assert!(property("KEYS").starts_with('k'), "{record:?}");
        assert!(property("TAGS").starts_with("tag-000"), "{record:?}");
        unique_keys.insert(property("UNIQ_KEY"));
    }
    assert_eq!(unique_keys.len(), records.len());
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    let topic = unique("produce");
    let mut options = SHORT.to_vec();
    options.extend(["--rate", "500"]);
    let found = on(&topic, "produce", &options).good();
    assert_eq!(found.number("/messages"), 500.0);
    found.verified(stored(&mut shared().connect(), &topic, 4));
    assert_eq!(found.number("/latency/count"), 500.0);
}

#[test]
fn one_way_sends_arrive() {
    let topic = unique("produce");
    let mut options = SHORT.to_vec();
    options.extend(["--mode", "oneway", "--rate", "2000"]);
    let found = on(&topic, "produce", &options).good();
    let stored = stored(&mut shared().connect(), &topic, 4);
    assert_eq!(stored, 2600);
    found.verified(stored);
    assert_eq!(found.number("/extra/one_way_lost"), 0.0);
}

#[test]
fn two_thousand_connections_are_served_by_one_thread() {
    let topic = unique("produce");
    let mut options = SHORT.to_vec();
    options.extend(["--connections", "2000", "--mode", "sync", "--size", "100"]);
    let found = on(&topic, "produce", &options).good();
    let stored = stored(&mut shared().connect(), &topic, 4);
    assert!(stored >= 2000, "{stored}");
    found.verified(stored);
}

#[test]
fn many_topics_are_found_through_a_nameserver_and_deleted() {
    let server = shared();
    let nameserver = server.nameserver().to_string();
    let mut options = vec!["produce", "--nameserver", &nameserver];
    options.extend(["--topics", "20", "--queues", "2"]);
    options.extend(SHORT);
    let found = bench(&options).good();
    assert!(found.number("/verified/good") > 40.0);
    let topics = server.connect().call(Request::new(21)).expect(0);
    let topics = String::from_utf8_lossy(&topics.body).into_owned();
    assert!(topics.contains("TBW102"), "{topics}");
    assert!(!topics.contains("bench-"), "{topics}");
}

#[test]
fn consume_reads_everything_from_the_start() {
    let topic = unique("consume");
    let options = ["--fill", "5000", "--size", "200", "--max", "16"];
    let found = on(&topic, "consume", &options).good();
    assert_eq!(stored(&mut shared().connect(), &topic, 4), 5000);
    found.verified(5000);
    assert_eq!(found.number("/messages"), 5000.0);
    assert_eq!(found.number("/body_bytes"), 1e6);
    assert!(found.number("/extra/pulls") >= 5000.0 / 16.0);
    assert_eq!(found.number("/extra/complete"), 1.0);

    // What is there already is judged by itself.
    let again = on(&topic, "consume", &[]).good();
    again.verified(5000);
    assert_eq!(again.number("/messages"), 5000.0);
}

#[test]
fn a_tail_receives_what_another_process_sends() {
    let topic = unique("tail");
    let topic = topic.as_str();
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let options = ["--seconds", "6", "--warm-up", "0", "--rate", "200"];
            on(topic, "produce", &options).good()
        });
        crate::common::eventually("a message", Duration::from_secs(60), || {
            let answer = shared().connect().call(queue_offset(30, topic, 0));
            answer.code == 0 && answer.int("offset") > 0
        });
        let found = on(topic, "consume", &["--tail", "--seconds", "2"]).good();
        let messages = found.number("/messages");
        assert!((200.0..=401.0).contains(&messages), "{messages}");
        assert!(found.number("/latency/max_us") < 3e6);
        assert_eq!(found.number("/verified/missing"), 0.0);
        producer.join().expect("no panic");
    });
}

#[test]
fn e2e_receives_each_message_once() {
    let topic = unique("e2e");
    let mut options = SHORT.to_vec();
    options.extend(["--rate", "1000"]);
    let found = on(&topic, "e2e", &options).good();
    assert_eq!(stored(&mut shared().connect(), &topic, 4), 1300);
    found.verified(1300);
    assert_eq!(found.number("/messages"), 1000.0);
    assert_eq!(found.number("/extra/sent"), 1000.0);
    let received = found.number("/latency/p50_us");
    let acknowledged = found.number("/extra/acknowledged_p50_us");
    assert!(received > 0.0 && acknowledged > 0.0);
}

#[test]
fn fanout_receives_each_message_once_a_group() {
    let topic = unique("fanout");
    let mut options = SHORT.to_vec();
    options.extend(["--rate", "500", "--groups", "3"]);
    let found = on(&topic, "fanout", &options).good();
    let stored = stored(&mut shared().connect(), &topic, 4);
    assert_eq!(stored, 650);
    found.verified(stored * 3);
    assert_eq!(found.number("/messages"), 1500.0);
}

#[test]
fn mixed_compares_sends_without_and_with_a_reader() {
    let topic = unique("mixed");
    let mut options = SHORT.to_vec();
    options.extend(["--rate", "1000", "--fill", "3000"]);
    let found = on(&topic, "mixed", &options).good();
    found.verified(stored(&mut shared().connect(), &topic, 4));
    assert_eq!(found.number("/messages"), 1000.0);
    assert!(found.number("/extra/reader_messages_per_s") > 0.0);
    let ratio = found.number("/latency/p99_us") / found.number("/extra/p99_us_without");
    let told = found.number("/extra/p99_ratio");
    assert!((ratio - told).abs() < 1e-6, "{ratio} and {told}");
}

#[test]
fn a_restart_is_survived_and_timed() {
    let mut server = Config::server().start();
    let broker = server.address().to_string();
    let sign = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("restart-sign"));
    let path = sign.display().to_string();
    let command = format!("touch '{path}'; while [ -e '{path}' ]; do sleep 0.05; done");
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let mut options = vec!["restart", "--broker", &broker, "--topic", "T"];
            options.extend(["--queues", "2", "--rate", "1000", "--seconds", "12"]);
            options.extend(["--warm-up", "0.2", "--restart-command", &command]);
            bench(&options).good()
        });
        crate::common::eventually("the command", Duration::from_secs(60), || sign.exists());
        server.kill();
        std::thread::sleep(Duration::from_millis(300));
        server.start_again();
        std::fs::remove_file(&sign).expect("the sign");
        let found = run.join().expect("no panic");
        let stored = stored(&mut server.connect(), "T", 2);
        let good = found.number("/verified/good");
        let more = found.number("/verified/unacknowledged");
        assert_eq!(good + more, stored as f64);
        assert_eq!(found.number("/verified/missing"), 0.0);
        let downtime = found.number("/extra/downtime_ms");
        assert!((300.0..11_000.0).contains(&downtime), "{downtime}");
        assert!(found.number("/extra/command_ms") >= 300.0);
        assert!(found.number("/latency/max_us") >= 300_000.0);
    });
}
