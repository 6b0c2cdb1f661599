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
        let mut asked = |world: &mut World| {
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
