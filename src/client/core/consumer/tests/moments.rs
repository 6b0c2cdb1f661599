//! The same at every moment of a consumer's first seconds: what is on its way then, be it a
//! pull, a lock or a commit, must not matter.

use super::*;
use crate::client::core::io::{Filter, SeekTo};
use crate::wire::codes::request;

const KINDS: [Kind; 3] = [Kind::Concurrent, Kind::Orderly, Kind::Polled];

/// Moments to look at, ms after the start: each one at first, when most happens.
fn moments() -> impl Iterator<Item = u64> {
    (0..40).chain((40..1500).step_by(97))
}

fn with_messages(kind: Kind, seed: u64, count: usize) -> World {
    let mut world = World::new(seed, 2);
    world.topic("t", 2);
    (0..count).for_each(|_| world.send("t", ""));
    world.join(rules(kind, 0), &["t"]);
    world
}

/// Polls everything there is, if this consumer is one that is polled.
fn poll_rest(world: &mut World, client: usize) -> Vec<(MessageQueue, i64)> {
    let mut places = Vec::new();
    while world.clients[client].consumer.rules().kind == Kind::Polled {
        let ticket = world.call(client, ConsumerCall::Poll { timeout_ms: 2500 });
        world.run(2600);
        let Some(Ok(Answer::Messages(polled))) = world.clients[client].done.remove(&ticket) else {
            panic!("a poll that fails");
        };
        if polled.messages.is_empty() {
            break;
        }
        for message in polled.messages {
            places.push((message.queue.clone(), message.queue_offset));
            let body = message.body().to_vec();
            *world.ledger.consumed.entry(body).or_default() += 1;
        }
    }
    places
}

#[test]
fn a_stop_at_any_moment_ends_and_leaves_nothing_locked_or_skipped() {
    for kind in KINDS {
        for at in moments() {
            let mut world = with_messages(kind, at, 40);
            world.run(at);
            world.leave(0, 5000);
            world.run(5001);
            assert!(world.clients[0].stopped, "{kind:?} {at}");
            assert!(world.clients[0].in_hand.is_empty(), "{kind:?} {at}");
            assert_eq!(world.clients[0].consumer.held(), 0, "{kind:?} {at}");
            for broker in &world.brokers {
                for id in 0..2 {
                    let owner = broker.lock_owner(GROUP, "t", id, world.now);
                    assert_eq!(owner, None, "{kind:?} {at}");
                }
            }
            // The next member finds all the rest.
            world.join(rules(kind, 1), &["t"]);
            world.run(4000);
            poll_rest(&mut world, 1);
            world.assert_consumed("t", kind == Kind::Orderly);
        }
    }
}

#[test]
fn a_topic_given_up_and_wanted_again_at_any_moment_is_consumed_whole() {
    for kind in KINDS {
        for at in moments() {
            let mut world = with_messages(kind, at, 40);
            world.work_ms = (1, 30);
            world.run(at);
            let topic = Arc::<str>::from("t");
            let unsubscribe = ConsumerCall::Unsubscribe {
                topic: topic.clone(),
            };
            world.call(0, unsubscribe);
            // Its pulls are on their way or held, and answered now.
            (0..10).for_each(|_| world.send("t", ""));
            world.run(at % 7);
            let filter = Filter::default();
            let subscribe = ConsumerCall::Subscribe { topic, filter };
            world.call(0, subscribe);
            world.run(8000);
            poll_rest(&mut world, 0);
            (0..10).for_each(|_| world.send("t", ""));
            world.run(3000);
            poll_rest(&mut world, 0);
            // What was held when it was given up comes again; consumed twice is only what was
            // in hand then.
            world.assert_consumed("t", kind == Kind::Orderly);
            let twice = world.ledger.consumed.values().filter(|&&count| count > 1);
            assert!(twice.count() <= 20, "{kind:?} {at}");
            assert_eq!(world.clients[0].consumer.held(), 0, "{kind:?} {at}");
            if kind != Kind::Polled {
                world.run(6000);
                assert_eq!(world.committed("t"), world.ends("t"), "{kind:?} {at}");
            }
        }
    }
}

/// Also where the answer to a pull from elsewhere comes after it.
#[test]
fn what_is_polled_after_a_seek_begins_there() {
    for at in moments() {
        let mut world = World::new(at, 1);
        world.topic("t", 1);
        world.ledger.lenient = true;
        (0..40).for_each(|_| world.send("t", ""));
        let mut rules = rules(Kind::Polled, 0);
        rules.pull_batch = 5;
        world.join(rules, &["t"]);
        world.run(2000);
        let queue = MessageQueue::new("t", "broker-0", 0);
        let poll = ConsumerCall::Poll { timeout_ms: 0 };
        world.call(0, poll);
        world.run(at % 5);
        let to = SeekTo::Offset(17);
        let seek = world.call(0, ConsumerCall::Seek { queue, to });
        while !world.clients[0].done.contains_key(&seek) {
            world.run(1);
        }
        assert_eq!(world.clients[0].done[&seek], Ok(Answer::Nothing));
        let offsets: Vec<_> = poll_rest(&mut world, 0);
        let offsets = offsets.into_iter().map(|(_, offset)| offset);
        assert_eq!(offsets.collect::<Vec<_>>(), (17..40).collect::<Vec<_>>());
    }
}

/// A member that stored nothing before it had to give a queue up stores late, perhaps after the
/// next one has: the next one's offset is the last word all the same.
#[test]
fn a_late_commit_of_an_earlier_owner_is_not_the_last_word() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        for at in moments() {
            let mut world = with_messages(kind, at, 60);
            world.run(at);
            // What it commits from now on is lost for a while, again and again.
            world.faults.lost = 40;
            world.faults.late = 30;
            world.join(rules(kind, 1), &["t"]);
            for _ in 0..10 {
                (0..4).for_each(|_| world.send("t", ""));
                world.run(900);
            }
            world.faults = Faults::default();
            world.route_all();
            world.run(160_000);
            world.assert_consumed("t", false);
            assert_eq!(world.committed("t"), world.ends("t"), "{kind:?} {at}");
            assert!(world.requests[&request::UPDATE_CONSUMER_OFFSET] < 400);
        }
    }
}
