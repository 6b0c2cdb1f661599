//! Brokers that know nothing, or do not answer: nothing is asked without end.

use super::*;
use crate::wire::codes::request;

#[test]
fn a_broker_that_never_knows_the_member_is_asked_by_the_clock() {
    for kind in [Kind::Concurrent, Kind::Orderly, Kind::Polled] {
        let mut world = World::new(1, 2);
        world.topic("t", 2);
        for broker in &mut world.brokers {
            broker.ignores_members = true;
        }
        world.join(rules(kind, 0), &["t"]);
        world.run(60_000);
        let asked = world.requests[&request::GET_CONSUMER_LIST_BY_GROUP];
        // Once a second and topic, of which there are two, and a few times more at first.
        assert!((40..=150).contains(&asked), "{kind:?}: {asked} questions");
        let beats = world.clients[0].heartbeats;
        assert!(beats <= 150, "{kind:?}: {beats} heartbeats");
        for broker in &mut world.brokers {
            broker.ignores_members = false;
        }
        world.run(3000);
        assert!(!world.clients[0].consumer.assignment().is_empty());
    }
}

#[test]
fn a_long_outage_asks_no_more_often_in_the_end_than_at_first() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        let mut world = World::new(2, 1);
        world.topic("t", 2);
        world.join(rules(kind, 0), &["t"]);
        world.run(3000);
        world.faults.lost = 100;
        let asked = |world: &mut World| {
            world.requests.clear();
            world.run(60_000);
            let of = |code| world.requests.get(&code).copied().unwrap_or(0);
            let members = of(request::GET_CONSUMER_LIST_BY_GROUP);
            (members, of(request::LOCK_BATCH_MQ))
        };
        asked(&mut world);
        let before = asked(&mut world);
        world.run(600_000);
        let after = asked(&mut world);
        assert!(after.0 <= before.0 + 4, "{kind:?}: {after:?} {before:?}");
        assert!(after.1 <= before.1 + 4, "{kind:?}: {after:?} {before:?}");
        // Three seconds without an answer, and one of waiting.
        assert!(after.0 <= 2 * 20 && after.1 <= 40, "{kind:?}: {after:?}");
        world.faults.lost = 0;
        world.run(30_000);
        (0..10).for_each(|_| world.send("t", ""));
        world.run(5000);
        world.assert_consumed("t", kind == Kind::Concurrent);
    }
}

/// The lock goes while a message is on its way to the retry topic.
#[test]
fn an_orderly_queue_goes_on_after_its_lock_was_lost_with_a_message_given_up() {
    let mut world = World::new(3, 1);
    world.topic("t", 1);
    let mut rules = rules(Kind::Orderly, 0);
    rules.max_reconsume_times = 0;
    world.join(rules, &["t"]);
    world.run(2000);
    world.listener = Box::new(|_, _| Some(Outcome::Failed { what: "no".into() }));
    world.send("t", "");
    let queue = MessageQueue::new("t", "broker-0", 0);
    while world.clients[0].consumer.owned[&queue].returning == 0 {
        world.run(1);
    }
    world.listener = Box::new(|_, _| Some(Outcome::Success { ack_index: None }));
    let now = world.now;
    world.clients[0].consumer.lock_lost(now, &queue);
    world.drain(0);
    world.send("t", "");
    world.run(5000);
    assert_eq!(world.clients[0].consumer.owned[&queue].returning, 0);
    world.run(10_000);
    world.assert_consumed("t", false);
}

/// Nobody waits for ever for a listener that never comes back.
#[test]
fn a_queue_that_comes_back_does_not_wait_for_a_listener_that_hangs() {
    let mut world = World::new(4, 1);
    world.topic("t", 4);
    world.join(rules(Kind::Concurrent, 0), &["t"]);
    world.run(1000);
    world.listener = Box::new(|_, _| None);
    (0..4).for_each(|id| world.send_to(0, "t", id, ""));
    world.run(1000);
    world.join(rules(Kind::Concurrent, 1), &["t"]);
    world.run(3000);
    assert!(world.clients[0].consumer.assignment().len() <= 3);
    world.listener = Box::new(|_, _| Some(Outcome::Success { ack_index: None }));
    let hung: Vec<_> = world.clients[0].in_hand.keys().copied().collect();
    assert_eq!(hung.len(), 4);
    world.crash(1);
    world.run(5000);
    assert_eq!(world.clients[0].consumer.assignment().len(), 4 + 1);
    (0..4).for_each(|id| world.send_to(0, "t", id, ""));
    world.run(3000);
    // Late outcomes settle nothing that is not theirs any more.
    for delivery in hung {
        world.finish(0, delivery, Outcome::Success { ack_index: None });
    }
    world.run(8000);
    world.assert_consumed("t", false);
    assert_eq!(world.committed("t"), world.ends("t"));
}

#[test]
fn a_broadcasting_consumer_without_readable_offsets_does_not_start() {
    let file = "10.0.0.0@DEFAULT/g/offsets.json";
    let garbled = b"\0\0".to_vec();
    for (first, backup) in [
        (Some(garbled.clone()), None),
        (Some(garbled.clone()), Some(garbled.clone())),
        (None, Some(garbled.clone())),
    ] {
        let mut world = World::new(5, 1);
        world.topic("t", 1);
        let files = [(file.to_owned(), first), (format!("{file}.bak"), backup)];
        let files = files.into_iter();
        world.files = files.filter_map(|(path, f)| Some((path, f?))).collect();
        let mut rules = rules(Kind::Concurrent, 0);
        rules.broadcast = true;
        rules.file_id = "10.0.0.0@DEFAULT".into();
        rules.from = ConsumeFromWhere::LastOffset;
        world.join(rules, &["t"]);
        world.run(3000);
        assert!(!world.clients[0].alive && !world.clients[0].consumer.is_running());
        let last = world.clients[0].faults.last().unwrap();
        assert!(
            matches!(last.kind(), ErrorKind::OffsetFile { .. }),
            "{last}"
        );
    }
}

/// An orderly consumer that has run for 2 s, and then a message.
fn world_with_one_message(seed: u64) -> World {
    let mut world = World::new(seed, 1);
    world.topic("t", 1);
    world.join(rules(Kind::Orderly, 0), &["t"]);
    world.run(2000);
    world.send("t", "");
    world
}

/// Its lock is another member's now.
fn lose_lock(world: &mut World) {
    let (now, queue) = (world.now, MessageQueue::new("t", "broker-0", 0));
    let nothing = Response::body(&b"{\"lockOKMQSet\":[]}"[..]);
    let consumer = &mut world.clients[0].consumer;
    let broker = queue.broker_name.clone();
    consumer.lock_answered(now, &broker, std::slice::from_ref(&queue), now, Ok(nothing));
}

/// The lock of a queue is another member's before the stop has stored its offset.
#[test]
fn a_stop_says_which_offset_the_lock_was_lost_before() {
    for refuses in [true, false] {
        let mut world = world_with_one_message(6);
        world.run(500);
        if !refuses {
            world.run(6000);
        }
        world.brokers[0].refuse_commits = refuses;
        world.leave(0, 6000);
        lose_lock(&mut world);
        world.drain(0);
        world.run(6010);
        assert!(world.clients[0].stopped);
        match &world.clients[0].lost {
            Some(lost) => {
                let place = lost.place();
                assert!(refuses && place.queue_id == Some(0), "{lost}");
                assert_eq!(place.topic.as_deref(), Some("t"));
            }
            None => assert!(!refuses, "the offset is not stored"),
        }
    }
}

#[test]
fn who_has_lost_the_lock_does_not_set_the_offset_back() {
    for is_late in [false, true] {
        let mut world = world_with_one_message(8);
        world.run(6000);
        let stored = world.committed("t");
        assert_eq!(stored[&("broker-0".into(), 0)], 1);
        // It has a message in hand when its lock is lost, and is stopped then.
        world.listener = Box::new(|_, _| None);
        world.send("t", "");
        world.run(500);
        let (&delivery, _) = world.clients[0].in_hand.first_key_value().unwrap();
        lose_lock(&mut world);
        world.leave(0, 6000);
        if !is_late {
            world.finish(0, delivery, Outcome::Success { ack_index: None });
        }
        world.run(6010);
        assert!(world.clients[0].stopped);
        assert_eq!(world.committed("t"), stored, "late: {is_late}");
    }
}

#[test]
fn a_queue_given_up_without_knowing_what_is_stored_is_told() {
    let mut world = World::new(7, 1);
    world.topic("t", 1);
    world.listener = Box::new(|_, _| None);
    world.join(rules(Kind::Concurrent, 0), &["t"]);
    world.run(1000);
    world.send("t", "");
    world.run(6000);
    world.call(0, ConsumerCall::Unsubscribe { topic: "t".into() });
    world.run(1000);
    let (&delivery, _) = world.clients[0].in_hand.first_key_value().unwrap();
    world.faults.lost = 100;
    world.finish(0, delivery, Outcome::Success { ack_index: None });
    world.run(6000);
    let faults = world.clients[0].faults.iter();
    let of_queue = faults.filter(|fault| {
        let place = fault.place();
        (place.topic.as_deref(), place.queue_id) == (Some("t"), Some(0))
    });
    let told: Vec<_> = of_queue.map(ToString::to_string).collect();
    assert!(
        matches!(&told[..], [text] if text.contains("no answer within")),
        "{told:?}"
    );
}

/// Brokers do not agree on who is there: one may have a connection that is no more.
#[test]
fn twins_that_only_one_broker_knows_are_told_once() {
    let mut world = World::new(8, 2);
    world.topic("t", 2);
    world.brokers[0].lists_twice = true;
    world.join(rules(Kind::Concurrent, 0), &["t"]);
    let told = |world: &World| {
        let faults = world.clients[0].faults.iter().map(ToString::to_string);
        faults.filter(|text| text.contains("client id")).count()
    };
    world.run(600_000);
    assert_eq!(told(&world), 1);
    world.brokers[0].lists_twice = false;
    world.run(600_000);
    world.brokers[0].lists_twice = true;
    world.run(60_000);
    assert_eq!(told(&world), 2, "others came");
}
