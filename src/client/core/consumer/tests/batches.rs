//! Batches that brokers store as one message.

use super::*;
use crate::wire::codes::request;

/// `counted`: the queue counts each message of a batch.
fn with_batches(kind: Kind, counted: bool) -> World {
    let mut world = World::new(7, 1);
    world.topic("t", 1);
    world.ledger.lenient = true;
    for batch in 0..20 {
        let bodies: Vec<_> = (0..5).map(|n| format!("{batch}.{n}")).collect();
        world.brokers[0].put_batch("t", 0, &bodies, counted);
        world.send_to(0, "t", 0, "");
    }
    let mut rules = rules(kind, 0);
    rules.batch_max = 3;
    world.join(rules, &["t"]);
    world
}

fn assert_each(world: &World, times: std::ops::RangeInclusive<u32>) {
    for batch in 0..20 {
        for n in 0..5 {
            let body = format!("{batch}.{n}");
            let count = world.ledger.consumed.get(body.as_bytes()).copied();
            let count = count.unwrap_or(0);
            assert!(times.contains(&count), "{body} came {count} times");
        }
    }
    assert_eq!(world.ledger.consumed.len(), 20 * 6, "and those between");
}

#[test]
fn listeners_get_the_messages_of_batches_once_and_all_is_committed() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        for counted in [true, false] {
            let mut world = with_batches(kind, counted);
            world.run(10_000);
            assert_each(&world, 1..=1);
            assert_eq!(world.committed("t"), world.ends("t"), "{kind:?} {counted}");
            assert!(world.clients[0].faults.is_empty());
        }
    }
}

#[test]
fn polls_get_the_messages_of_batches_once_and_all_is_committed() {
    for counted in [true, false] {
        let mut world = with_batches(Kind::Polled, counted);
        world.run(2000);
        let timeout_ms = 100;
        while world.ledger.consumed.len() < 20 * 6 {
            let ticket = world.call(0, ConsumerCall::Poll { timeout_ms });
            world.run(timeout_ms + 10);
            let Some(Ok(Answer::Messages(polled))) = world.clients[0].done.remove(&ticket) else {
                panic!("no messages");
            };
            assert!(
                !polled.messages.is_empty(),
                "{}",
                world.ledger.consumed.len()
            );
            for message in polled.messages {
                let body = message.body().to_vec();
                *world.ledger.consumed.entry(body).or_default() += 1;
            }
        }
        assert_each(&world, 1..=1);
        let ticket = world.call(0, ConsumerCall::Commit(None));
        world.run(100);
        assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Nothing));
        assert_eq!(world.committed("t"), world.ends("t"));
    }
}

/// A poll that did not get through gives its messages back to their places.
#[test]
fn what_was_polled_in_vain_comes_again_in_its_order() {
    for counted in [true, false] {
        let mut world = with_batches(Kind::Polled, counted);
        world.run(2000);
        let poll = |world: &mut World| {
            let ticket = world.call(0, ConsumerCall::Poll { timeout_ms: 0 });
            match world.clients[0].done.remove(&ticket) {
                Some(Ok(Answer::Messages(polled))) => polled,
                other => panic!("{other:?}"),
            }
        };
        let first = poll(&mut world);
        let now = world.now;
        world.clients[0].consumer.unpolled(now, first.clone());
        assert_eq!(poll(&mut world).messages, first.messages);
        let bodies: Vec<_> = poll(&mut world).messages;
        assert_eq!(bodies[0].body().as_ref(), b"0.3");
    }
}

/// One that failed goes to the retry topic on its own: the broker would send the batch back.
#[test]
fn a_message_of_a_batch_that_failed_is_the_only_one_that_comes_again() {
    for counted in [true, false] {
        let mut world = with_batches(Kind::Concurrent, counted);
        let mut failed = BTreeSet::new();
        world.listener = Box::new(move |dice, batch| {
            let index = dice.below(batch.messages.len() as u64 + 1) as usize;
            let fails = batch.messages.iter().skip(index);
            let mut fails = fails.map(|message| (message.body().clone(), message.reconsume_times));
            // Each fails once at most.
            let fail = fails.all(|(body, times)| failed.insert(body) && times == 0);
            Some(match (fail, index.checked_sub(1)) {
                (true, None) => Outcome::ReconsumeLater { delay_level: 0 },
                (true, ack_index) => Outcome::Success { ack_index },
                (false, _) => Outcome::Success { ack_index: None },
            })
        });
        world.run(30_000);
        assert_each(&world, 1..=1);
        assert!(world.ledger.sent.len() > 10, "{}", world.ledger.sent.len());
        let returned = world.requests.get(&request::CONSUMER_SEND_MSG_BACK);
        assert!(returned.copied().unwrap_or(0) <= 20, "those between alone");
        assert_eq!(world.committed("t"), world.ends("t"));
    }
}

#[test]
fn a_member_that_goes_on_within_a_batch_gets_no_more_than_what_is_left() {
    let mut world = with_batches(Kind::Concurrent, true);
    let key = (GROUP.to_owned(), "t".to_owned(), 0);
    world.brokers[0].offsets.insert(key, 6 * 3 + 2);
    world.run(10_000);
    assert_eq!(world.ledger.consumed.len(), 20 * 6 - 20);
    assert!(!world.ledger.consumed.contains_key(&b"3.1"[..]));
    assert!(world.ledger.consumed.contains_key(&b"3.2"[..]));
    assert_eq!(world.committed("t"), world.ends("t"));
}

#[test]
fn a_batch_that_is_none_is_told_once_and_stops_nothing() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        let mut world = World::new(8, 1);
        world.topic("t", 1);
        world.ledger.lenient = true;
        world.brokers[0].put_batch("t", 0, &["a".into(), "b".into()], true);
        let queue = world.brokers[0]
            .queues
            .get_mut(&("t".to_owned(), 0))
            .unwrap();
        let record = &mut queue.records[0];
        // A length inside the batch, and the checksum of the body again.
        let parsed = Record::parse(record).unwrap();
        let mut body = parsed.body().to_vec();
        let at = record
            .windows(body.len())
            .position(|part| part == body)
            .unwrap();
        body[3] += 1;
        record[at..at + body.len()].copy_from_slice(&body);
        let crc = crate::wire::message::body_crc(&body);
        record[8..12].copy_from_slice(&crc.to_be_bytes());
        world.send_to(0, "t", 0, "");
        world.join(rules(kind, 0), &["t"]);
        world.run(10_000);
        assert_eq!(world.ledger.consumed.len(), 2);
        assert!(world.ledger.consumed.contains_key(&body));
        assert_eq!(world.committed("t"), world.ends("t"));
        let faults = &world.clients[0].faults;
        assert!(
            matches!(faults[..], [ref fault]
            if matches!(fault.kind(), ErrorKind::InnerBatch { .. })),
            "{faults:?}"
        );
    }
}
