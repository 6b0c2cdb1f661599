//! Pulls that wait.

use std::time::{Duration, Instant};

use crate::common::{
    Client, Config, Consumer, Pull, Send, body, heartbeat, max_offset, shared, topic, unique,
};
use ringmq::wire::command::Request;

/// Returns when the pull that was sent before on this connection has been looked at:
/// what concerns one queue is handled in the order in which it came.
fn parked(client: &mut Client, topic: &str, queue: i32) {
    max_offset(client, topic, queue);
}

/// The middle of some durations.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Sends `count` messages, `gap` apart, to a consumer that waits for each; the times
/// from send to receipt, sorted.
fn end_to_end(queue: i32, count: i64, gap: Duration) -> Vec<Duration> {
    let server = shared();
    let name = unique("EndToEnd");
    let (mut producer, mut consumer) = (server.connect(), server.connect());
    topic(&mut producer, &name, 2);
    let mut times = Vec::new();
    for n in 0..count {
        let waiting = consumer.send(Pull::new(&name, queue, n).suspend(15_000));
        std::thread::sleep(gap);
        let sent = Instant::now();
        producer
            .call(Send::new(&name, body("m", n as u64, 100)).queue(queue))
            .expect(0);
        let reply = consumer.receive(waiting).expect(0);
        assert_eq!(reply.records()[0].queue_offset, n);
        times.push(reply.at - sent);
    }
    times.sort();
    times
}

#[test]
fn a_waiting_pull_is_woken_within_milliseconds() {
    for queue in 0..2 {
        let times = end_to_end(queue, 40, Duration::from_millis(20));
        println!(
            "queue {queue}: median {:?}, most {:?}",
            times[20], times[39]
        );
        assert!(times[20] < Duration::from_millis(50), "{times:?}");
        // What is above is the machine's, which does other things too.
        assert!(times[38] < Duration::from_millis(500), "{times:?}");
    }
}

#[test]
fn messages_that_come_one_a_second_do_not_wait_for_one_another() {
    let times = end_to_end(0, 4, Duration::from_secs(1));
    assert!(times[1] < Duration::from_millis(50), "{times:?}");
    assert!(times[3] < Duration::from_millis(900), "{times:?}");
}

#[test]
fn a_pull_waits_as_long_as_it_asks_for_and_no_longer() {
    let server = shared();
    let name = unique("Wait");
    topic(&mut server.connect(), &name, 2);
    let asked: Vec<i64> = (0..12).map(|n| 300 + n * 117).collect();
    let mut early = Vec::new();
    for chunk in asked.chunks(6) {
        let mut waiting: Vec<(Client, i32, i64, Instant)> = Vec::new();
        for (n, &ms) in chunk.iter().enumerate() {
            let mut client = server.connect();
            let sent = Instant::now();
            let opaque = client.send(Pull::new(&name, (n % 2) as i32, 0).suspend(ms));
            waiting.push((client, opaque, ms, sent));
        }
        for (mut client, opaque, ms, sent) in waiting {
            let reply = client.receive(opaque).expect(19);
            assert_eq!(reply.int("nextBeginOffset"), 0);
            early.push(ms - (reply.at - sent).as_millis() as i64);
        }
    }
    early.sort_unstable();
    println!("answered this much before the time: {early:?} ms");
    assert!(early[11] <= 100, "too early: {early:?}");
    // The network and the scheduler may add to it; the broker does not.
    assert!(early[6] >= 0, "too late: {early:?}");
    assert!(early[0] >= -300, "far too late: {early:?}");
}

#[test]
fn times_that_make_no_sense_are_bounded() {
    let server = shared();
    let name = unique("Odd");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    for ms in [0, -1, i64::MIN] {
        let began = Instant::now();
        client.call(Pull::new(&name, 0, 0).suspend(ms)).expect(19);
        assert!(began.elapsed() < Duration::from_secs(2));
    }
    // One that would wait for ever still gets its message.
    let waiting = client.send(Pull::new(&name, 0, 0).suspend(i64::MAX));
    std::thread::sleep(Duration::from_millis(100));
    server.connect().call(Send::new(&name, "x")).expect(0);
    client.receive(waiting).expect(0);
}

#[test]
fn a_message_that_arrives_while_the_pull_is_being_parked_wakes_it() {
    let server = shared();
    let name = unique("Race");
    let (mut producer, mut consumer) = (server.connect(), server.connect());
    topic(&mut producer, &name, 2);
    for n in 0..300_i64 {
        let (queue, offset) = ((n % 2) as i32, n / 2);
        // Both are under way at the same time, with a different distance each round.
        let pull = Pull::new(&name, queue, offset).suspend(15_000);
        let send = Send::new(&name, "x").queue(queue);
        let (waiting, sent) = if n % 3 == 0 {
            let sent = producer.send(send);
            (consumer.send(pull), sent)
        } else {
            let waiting = consumer.send(pull);
            if n % 3 == 1 {
                std::thread::sleep(Duration::from_micros(n as u64));
            }
            (waiting, producer.send(send))
        };
        producer.receive(sent).expect(0);
        let began = Instant::now();
        consumer.receive(waiting).expect(0);
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "round {n}: {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn everyone_who_waits_for_a_queue_is_woken() {
    let server = shared();
    let name = unique("Many");
    topic(&mut server.connect(), &name, 2);
    let mut waiting: Vec<(Client, i32)> = (0..60)
        .map(|n| {
            let mut client = server.connect();
            let opaque = client.send(Pull::new(&name, n % 2, 0).suspend(20_000));
            (client, opaque)
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    for queue in 0..2 {
        server
            .connect()
            .call(Send::batch(&name, &["a", "b"]).queue(queue))
            .expect(0);
    }
    let began = Instant::now();
    for (client, opaque) in &mut waiting {
        assert_eq!(client.receive(*opaque).expect(0).records().len(), 2);
    }
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn one_connection_may_wait_for_many_queues_and_go_on_meanwhile() {
    let server = shared();
    let name = unique("Queues");
    let mut client = server.connect();
    topic(&mut client, &name, 16);
    let waiting: Vec<i32> = (0..16)
        .map(|queue| client.send(Pull::new(&name, queue, 0).suspend(20_000)))
        .collect();
    client.call(Request::new(9999)).expect(3);
    for queue in [7, 3, 12] {
        client.call(Send::new(&name, "x").queue(queue)).expect(0);
        client.receive(waiting[queue as usize]).expect(0);
    }
    assert!(
        client
            .try_receive(waiting[0], Duration::from_millis(100))
            .is_none()
    );
}

#[test]
fn a_message_with_another_tag_does_not_end_the_wait() {
    let server = shared();
    let name = unique("Filtered");
    let (mut producer, mut consumer) = (server.connect(), server.connect());
    topic(&mut producer, &name, 1);
    let waiting = consumer.send(Pull::new(&name, 0, 0).tags("Wanted").suspend(20_000));
    parked(&mut consumer, &name, 0);
    for _ in 0..5 {
        producer.call(Send::new(&name, "no").tag("Other")).expect(0);
    }
    assert!(
        consumer
            .try_receive(waiting, Duration::from_millis(300))
            .is_none()
    );
    producer
        .call(Send::new(&name, "yes").tag("Wanted"))
        .expect(0);
    let reply = consumer.receive(waiting).expect(0);
    assert_eq!(
        (
            reply.records()[0].body.as_slice(),
            reply.int("nextBeginOffset")
        ),
        (&b"yes"[..], 6)
    );
    // Where the time ends first, the consumer does not look at them again.
    producer.call(Send::new(&name, "no").tag("Other")).expect(0);
    let reply = consumer.call(Pull::new(&name, 0, 6).tags("Wanted").suspend(20_000));
    assert_eq!((reply.code, reply.int("nextBeginOffset")), (20, 7));
    let waiting = consumer.send(Pull::new(&name, 0, 7).tags("Wanted").suspend(500));
    parked(&mut consumer, &name, 0);
    producer.call(Send::new(&name, "no").tag("Other")).expect(0);
    let reply = consumer.receive(waiting);
    assert!(matches!(reply.code, 19 | 20), "{}", reply.code);
    assert_eq!(reply.int("nextBeginOffset"), 8);
}

#[test]
fn a_waiting_pull_of_a_heartbeat_subscription_is_woken() {
    let server = shared();
    let (name, group) = (unique("Beat"), unique("beat"));
    let mut consumer = server.connect();
    topic(&mut consumer, &name, 1);
    consumer
        .call(heartbeat(&Consumer::new("c", &group, &name)))
        .expect(0);
    let waiting = consumer.send(
        Pull::new(&name, 0, 0)
            .group(&group)
            .subscribed(1)
            .suspend(15_000),
    );
    std::thread::sleep(Duration::from_millis(50));
    server.connect().call(Send::new(&name, "x")).expect(0);
    assert_eq!(consumer.receive(waiting).expect(0).records().len(), 1);
}

#[test]
fn while_long_polling_is_off_a_pull_waits_a_second() {
    let server = Config::server().set("longPollingEnable", false).start();
    let mut client = server.connect();
    topic(&mut client, "T", 1);
    let times = (0..3).map(|_| {
        let began = Instant::now();
        client.call(Pull::new("T", 0, 0).suspend(20_000)).expect(19);
        began.elapsed()
    });
    let time = median(times.collect());
    assert!((900..=1100).contains(&time.as_millis()), "{time:?}");
}
