//! Push consumers: concurrent, orderly, broadcasting; failures, retries, and the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmq::client::{
    Batch, ClientSettings, ConsumeFromWhere, ErrorKind, Listening, Message, MessageModel, Outcome,
    PushConsumer, PushConsumerSettings, SendRequest,
};

use crate::common::{Client, committed, eventually, shared, topic, unique};
use crate::support::{PATIENCE, Seen, body, client, producer};

/// Settings of a group that begins at the first message.
fn settings(group: &str) -> PushConsumerSettings {
    let mut settings = PushConsumerSettings::new(group);
    settings.setup.consume_from_where = ConsumeFromWhere::FirstOffset;
    settings
}

fn orderly(group: &str) -> PushConsumerSettings {
    PushConsumerSettings {
        listening: Listening::Orderly,
        ..settings(group)
    }
}

/// Sum of the committed offsets of a topic's queues.
fn consumed(client: &mut Client, group: &str, topic: &str, queues: i32) -> i64 {
    let offset = |queue| {
        let reply = committed(client, group, topic, queue);
        if reply.code == 0 {
            reply.int("offset")
        } else {
            0
        }
    };
    (0..queues).map(offset).sum()
}

#[test]
fn every_message_is_consumed_once_and_its_offset_stored() {
    let server = shared();
    let (name, group) = (unique("Push"), unique("push"));
    let mut plain = server.connect();
    topic(&mut plain, &name, 4);
    let producer = producer(server.nameserver(), &unique("push-p"));
    let send = |n: usize| {
        let message = Message::new(&*name, format!("{n}")).tag("a").key("k");
        producer.send(message).unwrap()
    };
    (0..100).for_each(|n| drop(send(n)));
    let seen = Arc::new(Seen::default());
    let listener = seen.clone();
    let consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings(&group),
        [(&*name, "*")],
        move |batch| {
            assert_eq!(batch.messages.len(), 1);
            listener.add(&batch.messages);
        },
    )
    .unwrap();
    seen.wait_for("those from before", 100);
    (100..200).for_each(|n| drop(send(n)));
    seen.wait_for("those that came later", 200);
    assert!(seen.counts().values().all(|&count| count == 1));
    assert_eq!(consumer.assignment().wait().unwrap().len(), 4);
    {
        let messages = seen.lock();
        let first = &messages[0];
        assert_eq!((first.topic(), first.property("TAGS")), (&*name, Some("a")));
        assert_eq!(first.reconsume_times, 0);
    }
    consumer.shutdown().unwrap();
    assert_eq!(consumed(&mut plain, &group, &name, 4), 200);
    // Not a second time, and nothing any more.
    consumer.shutdown().unwrap();
    assert!(consumer.suspend().wait().is_err());
}

#[test]
fn tags_are_filtered() {
    let server = shared();
    let (name, group) = (unique("Tags"), unique("tags"));
    topic(&mut server.connect(), &name, 1);
    let producer = producer(server.nameserver(), &unique("tags-p"));
    // "Aa" and "BB" have the same hash in Java: the broker lets both through.
    for tag in ["Aa", "BB", "C", "D", "Aa", "D"] {
        producer.send(Message::new(&*name, tag).tag(tag)).unwrap();
    }
    let seen = Arc::new(Seen::default());
    let listener = seen.clone();
    let _consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings(&group),
        [(&*name, "Aa || D")],
        move |batch| listener.add(&batch.messages),
    )
    .unwrap();
    seen.wait_for("Aa and D", 4);
    std::thread::sleep(Duration::from_millis(300));
    let mut bodies = seen.bodies();
    bodies.sort();
    assert_eq!(bodies, ["Aa", "Aa", "D", "D"]);
}

#[test]
fn members_of_a_group_share_the_queues_and_take_over_from_one_that_goes() {
    let server = shared();
    let (name, group) = (unique("Share"), unique("share"));
    topic(&mut server.connect(), &name, 4);
    let producer = producer(server.nameserver(), &unique("share-p"));
    let seen = Arc::new(Seen::default());
    let start = || {
        let listener = seen.clone();
        PushConsumer::start(
            &client(server.nameserver()),
            settings(&group),
            [(&*name, "*")],
            move |batch: &Batch| listener.add(&batch.messages),
        )
        .unwrap()
    };
    let (first, second) = (start(), start());
    let queues = |consumer: &PushConsumer| consumer.assignment().wait().unwrap().len();
    eventually("two queues each", PATIENCE, || {
        (queues(&first), queues(&second)) == (2, 2)
    });
    for n in 0..100 {
        producer.send(Message::new(&*name, format!("{n}"))).unwrap();
    }
    seen.wait_for("all of them", 100);
    first.shutdown().unwrap();
    eventually("four queues", PATIENCE, || queues(&second) == 4);
    for n in 100..200 {
        producer.send(Message::new(&*name, format!("{n}"))).unwrap();
    }
    seen.wait_for("all of those, too", 200);
    assert_eq!(seen.counts().len(), 200);
}

#[test]
fn a_queue_is_consumed_in_order_however_many_threads_there_are() {
    let server = shared();
    let (name, group) = (unique("Order"), unique("order"));
    topic(&mut server.connect(), &name, 3);
    let producer = producer(server.nameserver(), &unique("order-p"));
    for n in 0..300 {
        let message = Message::new(&*name, format!("{n}")).sharding_key(format!("key{}", n % 7));
        producer.send(message).unwrap();
    }
    let seen = Arc::new(Mutex::new(BTreeMap::<i32, Vec<i64>>::new()));
    let failed = Arc::new(AtomicUsize::new(0));
    let (listener, failures) = (seen.clone(), failed.clone());
    let settings = PushConsumerSettings {
        suspend_current_queue_time_ms: 10,
        ..orderly(&group)
    };
    let _consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings,
        [(&*name, "*")],
        move |batch| {
            let message = &batch.messages[0];
            // Every tenth fails once: the queue waits for it.
            if message.queue_offset % 10 == 0 && failures.fetch_add(1, Ordering::SeqCst) < 10 {
                return Err("not yet");
            }
            let mut seen = listener.lock().unwrap();
            let queue = seen.entry(message.queue.queue_id).or_default();
            queue.push(message.queue_offset);
            Ok(())
        },
    )
    .unwrap();
    let count = || seen.lock().unwrap().values().map(Vec::len).sum::<usize>();
    eventually("all consumed", PATIENCE, || count() == 300);
    for (queue, offsets) in &*seen.lock().unwrap() {
        let expected: Vec<i64> = (0..offsets.len() as i64).collect();
        assert_eq!(offsets, &expected, "queue {queue}");
    }
    assert!(failed.load(Ordering::SeqCst) >= 10);
}

#[test]
fn broadcasting_reaches_every_member_and_keeps_its_own_offsets() {
    let server = shared();
    let (name, group) = (unique("Broadcast"), unique("broadcast"));
    topic(&mut server.connect(), &name, 2);
    let producer = producer(server.nameserver(), &unique("broadcast-p"));
    let folder = tempfile::tempdir().unwrap();
    let start = |instance: &str, seen: &Arc<Seen>| {
        let listener = seen.clone();
        let settings = ClientSettings {
            instance_name: Some(format!("{instance}-{group}")),
            offset_store_dir: Some(folder.path().to_owned()),
            ..client(server.nameserver())
        };
        let mut of_group = self::settings(&group);
        of_group.setup.message_model = MessageModel::Broadcasting;
        PushConsumer::start(
            &settings,
            of_group,
            [(&*name, "*")],
            move |batch: &Batch| {
                listener.add(&batch.messages);
            },
        )
        .unwrap()
    };
    let (one, two) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    let (first, second) = (start("one", &one), start("two", &two));
    for n in 0..50 {
        producer.send(Message::new(&*name, format!("{n}"))).unwrap();
    }
    one.wait_for("the first has all", 50);
    two.wait_for("the second has all", 50);
    first.shutdown().unwrap();
    second.shutdown().unwrap();
    // Going on where it was, after a stop.
    producer.send(Message::new(&*name, "50")).unwrap();
    let again = Arc::new(Seen::default());
    let _first = start("one", &again);
    again.wait_for("the one from in between", 1);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(again.bodies(), ["50"]);
}

#[test]
fn what_fails_comes_again_and_what_always_fails_is_given_up() {
    let server = shared();
    let (name, group) = (unique("Retry"), unique("retry"));
    let mut plain = server.connect();
    topic(&mut plain, &name, 1);
    let producer = producer(server.nameserver(), &unique("retry-p"));
    let settings = PushConsumerSettings {
        max_reconsume_times: 1,
        ..settings(&group)
    };
    let seen = Arc::new(Seen::default());
    let listener = seen.clone();
    let consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings,
        [(&*name, "*")],
        move |batch| {
            listener.add(&batch.messages);
            let message = &batch.messages[0];
            match body(message).as_str() {
                "once" if message.reconsume_times == 0 => {
                    Outcome::ReconsumeLater { delay_level: 1 }
                }
                "panic" if message.reconsume_times == 0 => panic!("a listener that panics"),
                "always" => Outcome::ReconsumeLater { delay_level: 1 },
                _ => Outcome::from(()),
            }
        },
    )
    .unwrap();
    for text in ["once", "always", "good"] {
        producer
            .send(Message::new(&*name, text).key("key"))
            .unwrap();
    }
    seen.wait_for("two of them twice", 5);
    // Level 3, 10 s, for a failure that names no level.
    producer.send(Message::new(&*name, "panic")).unwrap();
    seen.wait_for("the one that panics, twice", 7);
    let counts = seen.counts();
    assert_eq!(
        (
            counts["once"],
            counts["always"],
            counts["good"],
            counts["panic"]
        ),
        (2, 2, 1, 2)
    );
    {
        let messages = seen.lock();
        let retried = |m: &&ringmq::client::ReceivedMessage| m.reconsume_times > 0;
        for message in messages.iter().filter(retried) {
            assert_eq!((message.topic(), message.reconsume_times), (&*name, 1));
        }
    }
    let dead = format!("%DLQ%{group}");
    eventually("the dead letter", PATIENCE, || {
        let reply = plain.call(crate::common::Pull::new(&dead, 0, 0));
        reply.code == 0 && reply.records()[0].body == b"always"
    });
    consumer.shutdown().unwrap();
    assert_eq!(consumed(&mut plain, &group, &name, 1), 4);
}

#[test]
fn a_stop_waits_for_what_is_in_hand_and_commits_it() {
    let server = shared();
    let (name, group) = (unique("Stop"), unique("stop"));
    let mut plain = server.connect();
    topic(&mut plain, &name, 1);
    let producer = producer(server.nameserver(), &unique("stop-p"));
    producer.send(Message::new(&*name, "slow")).unwrap();
    let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (begun.clone(), done.clone());
    let consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings(&group),
        [(&*name, "*")],
        move |_| {
            counters.0.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(700));
            counters.1.fetch_add(1, Ordering::SeqCst);
        },
    )
    .unwrap();
    eventually("begun", PATIENCE, || begun.load(Ordering::SeqCst) == 1);
    consumer.shutdown().unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert_eq!(consumed(&mut plain, &group, &name, 1), 1);
}

#[test]
fn a_paused_consumer_is_called_no_more_until_it_goes_on() {
    let server = shared();
    let (name, group) = (unique("Pause"), unique("pause"));
    topic(&mut server.connect(), &name, 1);
    let producer = producer(server.nameserver(), &unique("pause-p"));
    let seen = Arc::new(Seen::default());
    let listener = seen.clone();
    let consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings(&group),
        [(&*name, "*")],
        move |batch| listener.add(&batch.messages),
    )
    .unwrap();
    producer.send(Message::new(&*name, "a")).unwrap();
    seen.wait_for("the first", 1);
    consumer.suspend().wait().unwrap();
    for _ in 0..10 {
        producer.send(Message::new(&*name, "b")).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    // At most what was on its way.
    assert!(seen.lock().len() <= 2, "{:?}", seen.bodies());
    consumer.resume().wait().unwrap();
    seen.wait_for("the others", 11);
}

#[test]
fn a_listener_may_send_and_a_batch_has_several_messages() {
    let server = shared();
    let (name, onward, group) = (unique("In"), unique("Out"), unique("relay"));
    let mut plain = server.connect();
    topic(&mut plain, &name, 1);
    topic(&mut plain, &onward, 1);
    let producer = producer(server.nameserver(), &unique("relay-p"));
    let batch = (0..60).map(|n| Message::new(&*name, format!("{n}")));
    producer
        .send(SendRequest::from(batch.collect::<Vec<_>>()))
        .unwrap();
    let settings = PushConsumerSettings {
        consume_message_batch_max_size: 16,
        ..settings(&group)
    };
    let largest = Arc::new(AtomicUsize::new(0));
    let (relay, to, most) = (producer.clone(), onward.clone(), largest.clone());
    let _consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings,
        [(&*name, "*")],
        move |batch| {
            most.fetch_max(batch.messages.len(), Ordering::SeqCst);
            for message in &batch.messages {
                relay.send(Message::new(&*to, message.body().clone()))?;
            }
            Ok::<(), ringmq::client::Error>(())
        },
    )
    .unwrap();
    eventually("all passed on", PATIENCE, || {
        crate::support::stored(&mut plain, &onward, 1).len() == 60
    });
    assert!((2..=16).contains(&largest.load(Ordering::SeqCst)));
}

#[test]
fn compressed_bodies_come_unpacked() {
    let server = shared();
    let (name, group) = (unique("Packed"), unique("packed"));
    topic(&mut server.connect(), &name, 1);
    let producer = producer(server.nameserver(), &unique("packed-p"));
    let text = "0123456789".repeat(1_000);
    producer.send(Message::new(&*name, text.clone())).unwrap();
    let seen = Arc::new(Seen::default());
    let listener = seen.clone();
    let _consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings(&group),
        [(&*name, "*")],
        move |batch| listener.add(&batch.messages),
    )
    .unwrap();
    seen.wait_for("it", 1);
    assert_eq!(seen.bodies(), [text]);
}

#[test]
fn a_group_has_one_member_in_a_client() {
    let server = shared();
    let (name, group) = (unique("Alone"), unique("alone"));
    topic(&mut server.connect(), &name, 1);
    let settings_of_client = ClientSettings {
        instance_name: Some(unique("alone-instance")),
        ..client(server.nameserver())
    };
    let start = || {
        PushConsumer::start(
            &settings_of_client,
            settings(&group),
            [(&*name, "*")],
            |_| (),
        )
    };
    let first = start().unwrap();
    assert_eq!(*start().err().unwrap().kind(), ErrorKind::GroupExists);
    first.shutdown().unwrap();
    start().unwrap();
}

#[test]
fn two_groups_share_a_client_and_one_goes_on_when_the_other_stops() {
    let server = shared();
    let (name, groups) = (unique("Both"), [unique("stops"), unique("stays")]);
    let mut plain = server.connect();
    topic(&mut plain, &name, 2);
    let producer = producer(server.nameserver(), &unique("both-p"));
    let settings_of_client = ClientSettings {
        instance_name: Some(unique("both-instance")),
        ..client(server.nameserver())
    };
    let seen = [Arc::new(Seen::default()), Arc::new(Seen::default())];
    let start = |index: usize| {
        let listener = seen[index].clone();
        PushConsumer::start(
            &settings_of_client,
            settings(&groups[index]),
            [(&*name, "*")],
            move |batch: &Batch| listener.add(&batch.messages),
        )
        .unwrap()
    };
    let (stops, stays) = (start(0), start(1));
    let send = |n: usize| {
        producer.send(Message::new(&*name, format!("{n}"))).unwrap();
    };
    (0..50).for_each(send);
    seen[0].wait_for("all in the one", 50);
    seen[1].wait_for("all in the other", 50);
    stops.shutdown().unwrap();
    (50..100).for_each(send);
    seen[1].wait_for("all that came later", 100);
    assert!(seen[1].counts().values().all(|&count| count == 1));
    assert_eq!(seen[0].bodies().len(), 50, "nothing more after its end");
    assert_eq!(stays.assignment().wait().unwrap().len(), 2);
    stays.shutdown().unwrap();
    assert_eq!(consumed(&mut plain, &groups[0], &name, 2), 50);
    assert_eq!(consumed(&mut plain, &groups[1], &name, 2), 100);
}
