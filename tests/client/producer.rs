//! Sending: blocking, by future, by callback, one-way; batches, queues, keys, delays.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ringmq::client::{
    ErrorKind, Message, MessageQueue, Producer, ProducerSettings, SendRequest, SendStatus,
};

use crate::common::{eventually, shared, topic, unique};
use crate::support::{PATIENCE, client, producer, stored};

#[test]
fn a_send_answers_where_the_message_is() {
    let server = shared();
    let name = unique("Sync");
    topic(&mut server.connect(), &name, 2);
    let producer = producer(server.nameserver(), &unique("sync"));
    let message = Message::new(&*name, "one")
        .tag("a")
        .key("k")
        .property("p", "v");
    let sent = producer.send(message).unwrap();
    assert_eq!(sent.status, SendStatus::SendOk);
    assert_eq!(
        (&*sent.queue.topic, sent.queue_offset, sent.tries),
        (&*name, 0, 1)
    );
    let records = stored(&mut server.connect(), &name, 2);
    let [record] = &records[..] else {
        panic!("{records:?}");
    };
    assert_eq!(record.body, b"one");
    assert_eq!(record.queue_id, sent.queue.queue_id);
    assert_eq!(record.property("TAGS"), Some("a"));
    assert_eq!(record.property("KEYS"), Some("k"));
    assert_eq!(record.property("p"), Some("v"));
    assert_eq!(record.property("UNIQ_KEY"), Some(&*sent.message_id));
    assert_eq!(sent.offset_message_id, record.offset_id());
    producer.shutdown().unwrap();
    let error = producer.send(Message::new(&*name, "late")).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotRunning);
}

#[test]
fn queues_take_turns_and_many_threads_share_one_producer() {
    let server = shared();
    let name = unique("Threads");
    topic(&mut server.connect(), &name, 4);
    let producer = producer(server.nameserver(), &unique("threads"));
    let ids: BTreeSet<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (producer, name) = (producer.clone(), &name);
                scope.spawn(move || {
                    let send = |n| {
                        let message = Message::new(&**name, format!("{thread}-{n}"));
                        producer.send(message).unwrap().message_id
                    };
                    (0..50).map(send).collect::<Vec<_>>()
                })
            })
            .collect();
        let sent = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        sent.collect()
    });
    assert_eq!(ids.len(), 400);
    let records = stored(&mut server.connect(), &name, 4);
    let bodies: BTreeSet<_> = records.iter().map(|record| record.body.clone()).collect();
    assert_eq!((records.len(), bodies.len()), (400, 400));
    for queue in 0..4 {
        let count = records
            .iter()
            .filter(|record| record.queue_id == queue)
            .count();
        assert!((90..=110).contains(&count), "queue {queue} has {count}");
    }
}

/// Sends begun together and awaited one after the other.
async fn send_many(producer: &Producer, name: &str, count: usize) {
    let send = |n| producer.send_async(Message::new(name, format!("{n}")));
    let sends: Vec<_> = (0..count).map(send).collect();
    for send in sends {
        send.await.unwrap();
    }
}

#[test]
fn futures_need_no_runtime_and_work_in_any() {
    let server = shared();
    let name = unique("Futures");
    topic(&mut server.connect(), &name, 1);
    let settings = client(server.nameserver());
    let start = |runtime| ProducerSettings::new(unique(runtime));

    futures_lite::future::block_on(async {
        let producer = Producer::start_async(&settings, start("none"))
            .await
            .unwrap();
        send_many(&producer, &name, 100).await;
        producer.shutdown_async().await.unwrap();
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build();
    runtime.unwrap().block_on(async {
        let producer = Producer::start_async(&settings, start("tokio"))
            .await
            .unwrap();
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (producer, name) = (producer.clone(), name.clone());
                tokio::spawn(async move { send_many(&producer, &name, 25).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        producer.shutdown_async().await.unwrap();
    });
    smol::block_on(async {
        let producer = Producer::start_async(&settings, start("smol"))
            .await
            .unwrap();
        let other = (producer.clone(), name.clone());
        smol::spawn(async move { send_many(&other.0, &other.1, 100).await }).await;
        producer.shutdown_async().await.unwrap();
    });
    let (inner, topic_of) = (settings.clone(), name.clone());
    let group = start("glommio");
    glommio::LocalExecutorBuilder::default()
        .io_memory(64 * 1024)
        .spawn(move || async move {
            let producer = Producer::start_async(&inner, group).await.unwrap();
            send_many(&producer, &topic_of, 100).await;
            producer.shutdown_async().await.unwrap();
        })
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(stored(&mut server.connect(), &name, 1).len(), 400);
}

#[test]
fn a_callback_gets_the_result_and_may_send_again() {
    let server = shared();
    let name = unique("Callback");
    topic(&mut server.connect(), &name, 1);
    let producer = producer(server.nameserver(), &unique("callback"));
    let (results, got) = mpsc::channel();
    for n in 0..20 {
        let (again, name, results) = (producer.clone(), name.clone(), results.clone());
        producer.send_with(Message::new(&*name, format!("{n}")), move |sent| {
            sent.unwrap();
            // From within a callback, also blocking.
            let second = again.send(Message::new(&*name, format!("again {n}")));
            results.send(second).unwrap();
        });
    }
    for _ in 0..20 {
        got.recv_timeout(PATIENCE).unwrap().unwrap();
    }
    let refused = results.clone();
    producer.send_with(Message::new(&*name, ""), move |sent| {
        refused.send(sent).unwrap()
    });
    let error = got.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Message { .. }), "{error}");
    assert_eq!(stored(&mut server.connect(), &name, 1).len(), 40);
}

#[test]
fn one_way_sends_arrive_without_an_answer() {
    let server = shared();
    let name = unique("OneWay");
    let mut plain = server.connect();
    topic(&mut plain, &name, 1);
    let producer = producer(server.nameserver(), &unique("one-way"));
    for n in 0..100 {
        producer
            .send_one_way(Message::new(&*name, format!("{n}")))
            .unwrap();
    }
    eventually("100 stored", PATIENCE, || {
        stored(&mut plain, &name, 1).len() == 100
    });
}

#[test]
fn a_batch_is_one_send_and_its_messages_are_single() {
    let server = shared();
    let name = unique("Batch");
    topic(&mut server.connect(), &name, 2);
    let producer = producer(server.nameserver(), &unique("batch"));
    let messages = (0..32).map(|n| Message::new(&*name, format!("{n}")).tag("t"));
    let sent = producer.send(messages.collect::<Vec<_>>()).unwrap();
    assert_eq!(sent.message_id.split(',').count(), 32);
    assert_eq!(sent.offset_message_id.split(',').count(), 32);
    let records = stored(&mut server.connect(), &name, 2);
    let ids: Vec<&str> = sent.message_id.split(',').collect();
    for (n, record) in records.iter().enumerate() {
        assert_eq!(record.body, format!("{n}").as_bytes());
        assert_eq!(record.queue_offset, n as i64);
        assert_eq!(record.property("UNIQ_KEY"), Some(ids[n]));
    }
    assert_eq!(records.len(), 32);
    let mixed = vec![Message::new(&*name, "a"), Message::new("Other", "b")];
    assert!(
        producer
            .send(mixed)
            .unwrap_err()
            .to_string()
            .contains("another topic")
    );
    let none: Vec<Message> = Vec::new();
    assert!(
        producer
            .send(none)
            .unwrap_err()
            .to_string()
            .contains("empty")
    );
}

#[test]
fn queues_are_picked_by_name_by_selector_and_by_key() {
    let server = shared();
    let name = unique("Queues");
    topic(&mut server.connect(), &name, 4);
    let producer = producer(server.nameserver(), &unique("queues"));
    let queues = producer.publish_queues(&*name).wait().unwrap();
    let ids: Vec<i32> = queues.iter().map(|queue| queue.queue_id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);

    let to = |queue: MessageQueue| SendRequest::from(Message::new(&*name, "named")).queue(queue);
    let sent = producer.send(to(queues[3].clone())).unwrap();
    assert_eq!(sent.queue, queues[3]);
    let unknown = MessageQueue::new(&*name, "no-such-broker", 0);
    assert!(producer.send(to(unknown)).is_err());
    let other = MessageQueue::new("Other", "broker-a", 0);
    assert!(
        producer
            .send(to(other))
            .unwrap_err()
            .to_string()
            .contains("another topic")
    );

    for order in 0..12usize {
        let request = SendRequest::from(Message::new(&*name, format!("{order}")))
            .select(move |queues, _| order % queues.len());
        let sent = match order % 2 {
            0 => producer.send(request),
            _ => producer.send_async(request).wait(),
        };
        assert_eq!(sent.unwrap().queue.queue_id, order as i32 % 4);
    }

    // "TagA".hashCode() is 2598919 in Java: queue 3 of 4.
    for n in 0..8 {
        let message = Message::new(&*name, format!("key {n}")).sharding_key("TagA");
        let sent = producer.send(message).unwrap();
        assert_eq!(sent.queue.queue_id, 3);
    }
}

#[test]
fn a_selector_may_be_the_first_to_ask_for_its_topic() {
    let server = shared();
    let name = unique("Selected");
    topic(&mut server.connect(), &name, 3);
    let producer = producer(server.nameserver(), &unique("selected"));
    let request =
        || SendRequest::from(Message::new(&*name, "x")).select(|queues, _| queues.len() - 1);
    assert_eq!(
        producer
            .send_async(request())
            .wait()
            .unwrap()
            .queue
            .queue_id,
        2
    );
    let (results, got) = mpsc::channel();
    producer.send_with(request(), move |sent| results.send(sent).unwrap());
    assert_eq!(
        got.recv_timeout(PATIENCE).unwrap().unwrap().queue.queue_id,
        2
    );
}

#[test]
fn an_unknown_topic_is_made_by_sending_with_four_queues() {
    let server = shared();
    let name = unique("Fresh");
    let producer = producer(server.nameserver(), &unique("fresh"));
    for _ in 0..8 {
        producer.send(Message::new(&*name, "x")).unwrap();
    }
    let records = stored(&mut server.connect(), &name, 4);
    let used: BTreeSet<i32> = records.iter().map(|record| record.queue_id).collect();
    assert_eq!((records.len(), used.len()), (8, 4));
}

#[test]
fn a_delayed_message_comes_later() {
    let server = shared();
    let name = unique("Delayed");
    let mut plain = server.connect();
    topic(&mut plain, &name, 1);
    let producer = producer(server.nameserver(), &unique("delayed"));
    let began = Instant::now();
    producer
        .send(Message::new(&*name, "x").delay_level(1))
        .unwrap();
    assert!(stored(&mut plain, &name, 1).is_empty());
    eventually("delivered", PATIENCE, || {
        stored(&mut plain, &name, 1).len() == 1
    });
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_message_that_cannot_be_is_refused_before_it_leaves() {
    let server = shared();
    let producer = producer(server.nameserver(), &unique("refused"));
    for (message, word) in [
        (Message::new("", "x"), "topic"),
        (Message::new("a\nb", "x"), "topic"),
        (Message::new("T".repeat(128), "x"), "topic"),
        (Message::new("T", ""), "body"),
        (
            Message::new("T", vec![0; 4 * 1024 * 1024 + 1]),
            "max_message_size",
        ),
        (Message::new("T", "x").property("", "v"), "property"),
    ] {
        let error = producer.send(message).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Message { .. }), "{error}");
        assert!(
            error.to_string().contains(word),
            "{error}: no word of {word}"
        );
        assert!(!error.is_retryable());
    }
}

#[test]
fn large_bodies_arrive_compressed_or_whole() {
    let server = shared();
    let name = unique("Large");
    topic(&mut server.connect(), &name, 1);
    let settings = ProducerSettings {
        compression: ringmq::client::settings::Compression::None,
        ..ProducerSettings::new(unique("large"))
    };
    let whole = Producer::start(&client(server.nameserver()), settings).unwrap();
    let body = vec![b'x'; 3 * 1024 * 1024];
    whole.send(Message::new(&*name, body.clone())).unwrap();
    let packing = producer(server.nameserver(), &unique("packing"));
    packing.send(Message::new(&*name, body.clone())).unwrap();
    let records = stored(&mut server.connect(), &name, 1);
    assert!(records[0].body == body, "{} bytes", records[0].body.len());
    assert!(
        records[1].body.len() < 10_000,
        "{} bytes",
        records[1].body.len()
    );
    assert_eq!(records[1].sys_flag & 1, 1);
}

#[test]
fn sends_in_flight_are_bounded_and_all_of_them_end() {
    let server = shared();
    let name = unique("Bounded");
    topic(&mut server.connect(), &name, 1);
    let settings = ProducerSettings {
        in_flight_max: 8,
        in_flight_bytes_max: 65_536,
        send_timeout_ms: 30_000,
        ..ProducerSettings::new(unique("bounded"))
    };
    let producer = Producer::start(&client(server.nameserver()), settings).unwrap();
    let sends: Vec<_> = (0..200)
        .map(|n| producer.send_async(Message::new(&*name, vec![n; 20_000])))
        .collect();
    // Polled together, not in the order of their beginning.
    let tasks: Vec<_> = sends.into_iter().map(smol::spawn).collect();
    for task in tasks.into_iter().rev() {
        smol::block_on(task).unwrap();
    }
    assert_eq!(stored(&mut server.connect(), &name, 1).len(), 200);
}

#[test]
fn producers_of_one_instance_name_share_a_client_and_no_group() {
    let server = shared();
    let settings = ringmq::client::ClientSettings {
        instance_name: Some(unique("instance")),
        ..client(server.nameserver())
    };
    let group = unique("twice");
    let first = Producer::start(&settings, ProducerSettings::new(&*group)).unwrap();
    let error = Producer::start(&settings, ProducerSettings::new(&*group))
        .err()
        .unwrap();
    assert_eq!(*error.kind(), ErrorKind::GroupExists);
    let other = Producer::start(&settings, ProducerSettings::new(unique("other"))).unwrap();
    let name = unique("Shared");
    first.send(Message::new(&*name, "a")).unwrap();
    drop(first);
    other.send(Message::new(&*name, "b")).unwrap();
    Producer::start(&settings, ProducerSettings::new(&*group)).unwrap();
}

#[test]
fn the_last_handle_leaves_no_thread_behind() {
    let server = shared();
    let name = unique("Threadless");
    topic(&mut server.connect(), &name, 4);
    let settings = ringmq::client::ClientSettings {
        instance_name: Some(unique("threadless")),
        ..client(server.nameserver())
    };
    let threads = || {
        let all = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        all.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
            .filter(|name| name.starts_with("ringmq-client"))
            .count()
    };
    // Others run at the same time: what counts is that twenty rounds do not add twenty.
    let before = threads();
    for _ in 0..20 {
        let producer = Producer::start(&settings, ProducerSettings::new(unique("g"))).unwrap();
        // Not awaited: the end waits for it.
        drop(producer.send_async(Message::new(&*name, "x")));
    }
    eventually("threads end", PATIENCE, || threads() < before + 10);
    let mut plain = server.connect();
    eventually("all stored", PATIENCE, || {
        stored(&mut plain, &name, 4).len() == 20
    });
}
