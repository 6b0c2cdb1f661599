//! A broker that goes and comes back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringmq::client::{Batch, ConsumeFromWhere, Message, PushConsumer, PushConsumerSettings};

use crate::common::{Config, topic, unique};
use crate::support::{PATIENCE, Seen, client, producer, stored};

#[test]
fn what_was_acknowledged_is_consumed_whatever_happens_to_the_broker() {
    let mut server = Config::server().start();
    let (name, group) = (unique("Restart"), unique("restart"));
    topic(&mut server.connect(), &name, 2);
    let producer = producer(server.nameserver(), &unique("restart-p"));
    let seen = Arc::new(Seen::default());
    let listener = seen.clone();
    let mut settings = PushConsumerSettings::new(&*group);
    settings.setup.consume_from_where = ConsumeFromWhere::FirstOffset;
    let consumer = PushConsumer::start(
        &client(server.nameserver()),
        settings,
        [(&*name, "*")],
        move |batch: &Batch| listener.add(&batch.messages),
    )
    .unwrap();

    let (sender, topic_of) = (producer.clone(), name.clone());
    let sending = std::thread::spawn(move || {
        let (mut acknowledged, mut errors) = (BTreeSet::new(), 0);
        let until = Instant::now() + Duration::from_secs(6);
        let mut n = 0;
        while Instant::now() < until {
            n += 1;
            let text = n.to_string();
            match sender.send(Message::new(&*topic_of, text.clone())) {
                Ok(_) => drop(acknowledged.insert(text)),
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    errors += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        (acknowledged, errors)
    });
    std::thread::sleep(Duration::from_millis(700));
    server.kill();
    std::thread::sleep(Duration::from_millis(700));
    server.start_again();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(server.stop(), 0);
    server.start_again();
    let (acknowledged, errors) = sending.join().unwrap();
    assert!(
        acknowledged.len() > 100,
        "{} sent, {errors} errors",
        acknowledged.len()
    );
    let stored: BTreeSet<String> = stored(&mut server.connect(), &name, 2)
        .into_iter()
        .map(|record| String::from_utf8(record.body).unwrap())
        .collect();
    let lost: Vec<_> = acknowledged.difference(&stored).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    crate::common::eventually("all consumed", PATIENCE, || {
        let bodies: BTreeSet<String> = seen.bodies().into_iter().collect();
        acknowledged.is_subset(&bodies)
    });
    consumer.shutdown().unwrap();
}

#[test]
fn a_cluster_that_is_gone_is_an_error_that_names_the_broker() {
    let server = Config::server().start();
    let name = unique("Gone");
    topic(&mut server.connect(), &name, 1);
    let producer = producer(server.nameserver(), &unique("gone-p"));
    let _consumer = PushConsumer::start(
        &client(server.nameserver()),
        PushConsumerSettings::new(unique("gone")),
        [(&*name, "*")],
        |_: &Batch| (),
    )
    .unwrap();
    producer.send(Message::new(&*name, "x")).unwrap();
    server.kill();
    let error = producer.send(Message::new(&*name, "y")).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(
        error.to_string().contains(&server.address().to_string()),
        "{error}"
    );
}
