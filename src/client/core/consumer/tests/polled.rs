//! The pull consumer.

use super::*;
use crate::client::core::io::SeekTo;

fn poll(world: &mut World, client: usize, timeout_ms: u64) -> Vec<String> {
    let ticket = world.call(client, ConsumerCall::Poll { timeout_ms });
    world.run(timeout_ms + 10);
    let answer = world.clients[client].done.remove(&ticket).expect("an end");
    let Ok(Answer::Messages(messages)) = answer else {
        panic!("{answer:?}");
    };
    let bodies = messages.messages.iter().map(|message| {
        let body = message.body().to_vec();
        *world.ledger.consumed.entry(body.clone()).or_default() += 1;
        String::from_utf8(body).unwrap()
    });
    bodies.collect()
}

/// Polls until `count` messages came.
fn poll_all(world: &mut World, count: usize) {
    let mut got = 0;
    while got < count {
        let some = poll(world, 0, 100).len();
        assert!(some > 0, "{got} of {count}");
        got += some;
    }
    assert_eq!(got, count);
}

fn polled(auto_commit: bool, queues: i32) -> World {
    let mut world = World::new(1, 1);
    world.topic("t", queues);
    let mut rules = rules(Kind::Polled, 0);
    rules.batch_max = 10;
    rules.auto_commit = auto_commit;
    world.join(rules, &["t"]);
    world
}

fn queue(id: i32) -> MessageQueue {
    MessageQueue::new("t", "broker-0", id)
}

#[test]
fn what_is_polled_is_committed_by_a_later_poll() {
    let mut world = polled(true, 2);
    world.run(2000);
    (0..25).for_each(|_| world.send("t", ""));
    let mut got = 0;
    while world.ledger.consumed.len() < 25 {
        let some = poll(&mut world, 0, 100);
        assert!(some.len() <= 10);
        got += some.len();
    }
    assert_eq!(got, 25);
    assert!(
        world.committed("t").values().sum::<i64>() < 25,
        "not before the next poll"
    );
    world.run(6000);
    assert_eq!(poll(&mut world, 0, 0), Vec::<String>::new());
    world.run(100);
    assert_eq!(world.committed("t"), world.ends("t"));
}

#[test]
fn nothing_is_committed_that_was_not_asked_for() {
    let mut world = polled(false, 1);
    world.run(2000);
    (0..5).for_each(|_| world.send("t", ""));
    poll_all(&mut world, 5);
    world.run(20_000);
    assert!(world.committed("t").is_empty());
    let ticket = world.call(0, ConsumerCall::Commit(Some(vec![(queue(0), 3)])));
    world.run(100);
    assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Nothing));
    assert_eq!(world.committed("t").into_values().collect::<Vec<_>>(), [3]);
    let ticket = world.call(0, ConsumerCall::Commit(None));
    world.run(100);
    assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Nothing));
    assert_eq!(world.committed("t"), world.ends("t"));
    let ticket = world.call(0, ConsumerCall::Committed(queue(0)));
    world.run(10);
    assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Offset(Some(5))));
    let ticket = world.call(0, ConsumerCall::Commit(Some(vec![(queue(7), 3)])));
    assert!(world.clients[0].done[&ticket].is_err());
}

#[test]
fn a_commit_that_is_not_answered_says_so() {
    let mut world = polled(false, 2);
    world.run(2000);
    (0..20).for_each(|_| world.send("t", ""));
    while !poll(&mut world, 0, 50).is_empty() {}
    world.faults.lost = 100;
    let ticket = world.call(0, ConsumerCall::Commit(None));
    world.run(6000);
    assert!(world.clients[0].done[&ticket].is_err());
    world.faults.lost = 0;
    let ticket = world.call(0, ConsumerCall::Commit(None));
    world.run(100);
    assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Nothing));
    assert_eq!(world.committed("t"), world.ends("t"));
}

/// It ends when the file says it, and not before.
#[test]
fn a_commit_of_a_broadcasting_consumer_is_in_its_file_or_says_why_not() {
    let mut world = World::new(1, 1);
    world.topic("t", 1);
    let mut rules = rules(Kind::Polled, 0);
    rules.broadcast = true;
    rules.auto_commit = false;
    rules.batch_max = 10;
    world.join(rules, &["t"]);
    world.run(2000);
    (0..4).for_each(|_| world.send("t", ""));
    poll_all(&mut world, 4);
    let file = "10.0.0.0@1/g/offsets.json";
    let saved = |world: &World| {
        let table = world.files.get(file);
        let table = table.map(|content| super::super::OffsetTable::parse(content).unwrap());
        table.and_then(|table| table.get(&queue(0)))
    };
    let commit = |world: &mut World, offset: Option<i64>| {
        let offsets = offset.map(|offset| vec![(queue(0), offset)]);
        world.call(0, ConsumerCall::Commit(offsets))
    };
    let end = |world: &World, ticket: &Ticket| world.clients[0].done.get(ticket).cloned();

    world.full_disk = true;
    let ticket = commit(&mut world, Some(1));
    assert_eq!(end(&world, &ticket), None, "it is being written");
    world.run(100);
    let error = end(&world, &ticket).unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.contains(file) && text.contains("no space"), "{text}");
    assert_eq!(saved(&world), None);

    world.full_disk = false;
    let first = commit(&mut world, Some(2));
    let second = commit(&mut world, Some(3));
    while end(&world, &second).is_none() {
        if end(&world, &first).is_some() {
            assert!(saved(&world) >= Some(2));
        }
        world.run(1);
    }
    assert_eq!(end(&world, &first), Some(Ok(Answer::Nothing)));
    assert_eq!(end(&world, &second), Some(Ok(Answer::Nothing)));
    assert_eq!(saved(&world), Some(3));
    let again = commit(&mut world, Some(3));
    assert_eq!(
        end(&world, &again),
        Some(Ok(Answer::Nothing)),
        "it is there"
    );

    // Also where the consumer stops meanwhile.
    world.full_disk = true;
    let last = commit(&mut world, None);
    world.leave(0, 1000);
    world.run(1000);
    assert!(world.clients[0].stopped);
    assert!(end(&world, &last).unwrap().is_err());
    assert!(world.clients[0].lost.is_some());
}

#[test]
fn a_commit_of_a_queue_that_is_given_up_meanwhile_says_whether_it_is_stored() {
    for refuses in [true, false] {
        let mut world = polled(false, 1);
        world.run(2000);
        (0..4).for_each(|_| world.send("t", ""));
        poll_all(&mut world, 4);
        world.call(0, ConsumerCall::Commit(Some(vec![(queue(0), 2)])));
        world.run(100);
        world.brokers[0].refuse_commits = refuses;
        let ticket = world.call(0, ConsumerCall::Commit(None));
        world.call(0, ConsumerCall::Unsubscribe { topic: "t".into() });
        world.run(10_000);
        let end = &world.clients[0].done[&ticket];
        assert_eq!(end.is_err(), refuses, "{end:?}");
        let stored = world.committed("t").into_values().next();
        assert_eq!(stored, Some(if refuses { 2 } else { 4 }));
    }
}

#[test]
fn seek_goes_where_there_is_something() {
    let mut world = polled(true, 1);
    world.ledger.lenient = true;
    world.run(2000);
    (0..8).for_each(|_| world.send("t", ""));
    poll_all(&mut world, 8);
    for (to, left) in [(SeekTo::Offset(5), 3), (SeekTo::Begin, 8), (SeekTo::End, 0)] {
        let ticket = world.call(
            0,
            ConsumerCall::Seek {
                queue: queue(0),
                to,
            },
        );
        world.run(50);
        assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Nothing));
        assert_eq!(poll(&mut world, 0, 100).len(), left, "{to:?}");
    }
    let to = SeekTo::Offset(9);
    let ticket = world.call(
        0,
        ConsumerCall::Seek {
            queue: queue(0),
            to,
        },
    );
    world.run(50);
    let text = world.clients[0].done[&ticket]
        .clone()
        .unwrap_err()
        .to_string();
    assert!(text.contains("9 is not within 0..=8"), "{text}");
    let to = SeekTo::Begin;
    let ticket = world.call(
        0,
        ConsumerCall::Seek {
            queue: queue(3),
            to,
        },
    );
    assert!(world.clients[0].done[&ticket].is_err());
}

#[test]
fn a_paused_queue_gives_nothing_until_it_is_resumed() {
    let mut world = polled(true, 2);
    world.run(2000);
    world.call(0, ConsumerCall::Pause(vec![queue(0)]));
    (0..2).for_each(|id| world.send_to(0, "t", id, ""));
    assert_eq!(poll(&mut world, 0, 100).len(), 1);
    assert_eq!(poll(&mut world, 0, 100).len(), 0);
    world.call(0, ConsumerCall::ResumeQueues(vec![queue(0)]));
    world.run(50);
    assert_eq!(poll(&mut world, 0, 100).len(), 1);
}

#[test]
fn queues_that_were_named_are_not_shared() {
    let mut world = World::new(2, 1);
    world.topic("t", 3);
    for client in 0..2 {
        world.join(rules(Kind::Polled, client), &[]);
        let ticket = world.call(client, ConsumerCall::Assign(vec![queue(1), queue(2)]));
        assert_eq!(world.clients[client].done[&ticket], Ok(Answer::Nothing));
    }
    (0..3).for_each(|id| world.send_to(0, "t", id, ""));
    world.run(1000);
    for client in 0..2 {
        assert_eq!(
            poll(&mut world, client, 50).len() + poll(&mut world, client, 50).len(),
            2
        );
    }
    assert!(
        !world.requests.contains_key(&38),
        "no one is asked who is there"
    );
    world.call(0, ConsumerCall::Assign(vec![queue(0)]));
    world.run(100);
    assert_eq!(world.clients[0].consumer.assignment(), [queue(0)]);
    let topic = "t".into();
    let ticket = world.call(
        0,
        ConsumerCall::Subscribe {
            topic,
            filter: Default::default(),
        },
    );
    assert!(world.clients[0].done[&ticket].is_err());
}

#[test]
fn thresholds_bound_what_waits_to_be_polled() {
    let mut world = World::new(3, 1);
    world.topic("t", 4);
    let mut small = rules(Kind::Polled, 0);
    small.messages_of_all = Some(50);
    (0..1000).for_each(|_| world.send("t", ""));
    world.join(small, &["t"]);
    world.run(30_000);
    let held = world.clients[0].consumer.held();
    assert!((51..=90).contains(&held), "{held}");
    while world.ledger.consumed.len() < 1000 {
        assert!(!poll(&mut world, 0, 20).is_empty());
    }
    world.assert_consumed("t", true);
}

#[test]
fn members_that_poll_share_queues_and_stop_with_their_polls_answered() {
    let mut world = World::new(4, 1);
    world.topic("t", 4);
    for client in 0..2 {
        let mut rules = rules(Kind::Polled, client);
        rules.batch_max = 10;
        world.join(rules, &["t"]);
    }
    world.run(3000);
    assert_eq!(world.clients[0].consumer.assignment().len(), 2);
    let ticket = world.call(0, ConsumerCall::Poll { timeout_ms: 60_000 });
    world.leave(0, 1000);
    world.run(1000);
    assert!(world.clients[0].stopped);
    let error = world.clients[0].done[&ticket].clone().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotRunning);
    world.run(3000);
    assert_eq!(world.clients[1].consumer.assignment().len(), 4);
    let ticket = world.call(0, ConsumerCall::Poll { timeout_ms: 10 });
    assert!(world.clients[0].done[&ticket].is_err());
}

/// Whoever polled is gone before the answer came.
#[test]
fn what_was_polled_by_one_who_is_gone_comes_to_the_next() {
    let mut world = polled(true, 1);
    world.run(2000);
    (0..15).for_each(|_| world.send("t", ""));
    world.run(100);
    let ticket = world.call(0, ConsumerCall::Poll { timeout_ms: 100 });
    let Ok(Answer::Messages(gone)) = world.clients[0].done.remove(&ticket).unwrap() else {
        panic!("no messages");
    };
    assert_eq!(gone.messages.len(), 10);
    let now = world.now;
    world.clients[0].consumer.unpolled(now, gone.clone());
    world.drain(0);
    world.run(6000);
    // The broker asserts that nothing is committed that was not consumed.
    let first = poll(&mut world, 0, 100);
    let expected = |n: usize| format!("t {n}");
    assert_eq!(first, (1..=10).map(expected).collect::<Vec<_>>());
    assert_eq!(poll(&mut world, 0, 100).len(), 5);
    world.run(6000);
    assert_eq!(poll(&mut world, 0, 0).len(), 0);
    world.run(100);
    assert_eq!(world.committed("t"), world.ends("t"));
    // After a seek it is not what comes next any more.
    world.ledger.lenient = true;
    let to = SeekTo::End;
    let queue = queue(0);
    world.call(0, ConsumerCall::Seek { queue, to });
    world.run(100);
    let now = world.now;
    world.clients[0].consumer.unpolled(now, gone);
    world.drain(0);
    assert_eq!(poll(&mut world, 0, 100).len(), 0);
}

#[test]
fn where_a_queue_began_is_not_stored_by_those_that_commit_by_hand() {
    let mut world = World::new(1, 1);
    world.topic("t", 1);
    (0..5).for_each(|_| world.send("t", ""));
    let mut rules = rules(Kind::Polled, 0);
    rules.auto_commit = false;
    rules.from = ConsumeFromWhere::LastOffset;
    world.join(rules, &["t"]);
    world.run(70_000);
    assert!(world.committed("t").is_empty(), "while it runs");
    world.send("t", "");
    assert_eq!(poll(&mut world, 0, 100).len(), 1);
    world.leave(0, 3000);
    world.run(5000);
    assert!(world.clients[0].stopped);
    assert!(world.committed("t").is_empty(), "at its end");
}

#[test]
fn queues_go_on_when_others_are_given_up_with_what_was_held_of_them() {
    let mut world = World::new(3, 1);
    world.topic("t", 1);
    world.topic("u", 1);
    let mut small = rules(Kind::Polled, 0);
    small.messages_of_all = Some(50);
    (0..100).for_each(|_| world.send("t", ""));
    world.join(small, &["t", "u"]);
    world.run(3000);
    (0..100).for_each(|_| world.send("u", ""));
    world.run(30_000);
    assert!(world.clients[0].consumer.held() > 50);
    let topic = "t".into();
    world.call(0, ConsumerCall::Unsubscribe { topic });
    world.run(1000);
    let held = world.clients[0].consumer.held();
    assert!(held > 50, "{held} of the other topic");
}
