//! What holds whatever happens, over many seeds.

use super::*;

struct Plan {
    kind: Kind,
    faults: Faults,
    /// Percent of messages that listeners fail at.
    failing: u64,
    joins: bool,
    crashes: bool,
}

/// A group that lives through a plan; returns the world, quiet again.
fn live(seed: u64, plan: &Plan) -> World {
    // Shown where it fails.
    eprintln!("seed {seed}, {:?}", plan.kind);
    let mut world = World::new(seed, 2);
    world.topic("t", 3);
    world.topic(TAGGED, 1);
    world.faults = plan.faults;
    world.strict_order = plan.faults.lost + plan.faults.unanswered + plan.faults.garbage == 0
        && plan.failing == 0
        && !plan.crashes
        && plan.faults.late == 0;
    let failing = plan.failing;
    world.listener = Box::new(move |dice, _| {
        Some(if dice.chance(failing) {
            Outcome::Failed {
                what: "by chance".into(),
            }
        } else {
            Outcome::Success { ack_index: None }
        })
    });
    let mut dice = Dice(seed ^ 0xabcd);
    let one_rule = |client: usize| {
        let mut rules = rules(plan.kind, client);
        rules.batch_max = 1 + seed as usize % 4;
        rules.threads = 2;
        rules.thresholds.messages = 40;
        rules
    };
    let join = |world: &mut World| {
        let client = world.clients.len();
        world.join(one_rule(client), &["t", TAGGED]);
    };
    join(&mut world);
    join(&mut world);
    for _ in 0..60 {
        for _ in 0..dice.below(20) {
            world.send("t", "");
            let tags = ["Aa", "BB", "other"];
            world.send(TAGGED, tags[dice.below(3) as usize]);
        }
        world.run(dice.below(1500));
        world.route_all();
        let alive: Vec<_> = (0..world.clients.len())
            .filter(|&c| world.clients[c].alive)
            .collect();
        let one = alive
            .get(dice.below(alive.len().max(1) as u64) as usize)
            .copied();
        match (dice.below(12), one) {
            (0 | 1, _) if plan.joins && alive.len() < 5 => join(&mut world),
            (2, Some(one)) if plan.joins && alive.len() > 1 => world.leave(one, 20_000),
            (3, Some(one)) if plan.crashes && alive.len() > 1 => world.crash(one),
            _ => {}
        }
    }
    world.faults = Faults::default();
    world.listener = Box::new(|_, _| Some(Outcome::Success { ack_index: None }));
    world.route_all();
    // Locks of the dead end, lost answers time out.
    world.run(120_000);
    world.route_all();
    world.run(30_000);
    world
}

fn quiet(world: &World, seed: u64) {
    for topic in ["t", TAGGED] {
        assert_eq!(
            world.committed(topic),
            world.ends(topic),
            "seed {seed}: {topic}"
        );
    }
    for client in world.clients.iter().filter(|client| client.alive) {
        assert_eq!(client.consumer.held(), 0, "seed {seed}");
        assert!(client.in_hand.is_empty(), "seed {seed}");
    }
}

const CLEAN: Faults = Faults {
    lost: 0,
    unanswered: 0,
    late: 0,
    twice: 0,
    garbage: 0,
};
const ROUGH: Faults = Faults {
    lost: 4,
    unanswered: 4,
    late: 5,
    twice: 10,
    garbage: 3,
};

#[test]
fn where_nothing_fails_each_message_is_consumed_exactly_once() {
    for seed in 0..20 {
        for kind in [Kind::Concurrent, Kind::Orderly] {
            let plan = Plan {
                kind,
                faults: CLEAN,
                failing: 0,
                joins: false,
                crashes: false,
            };
            let world = live(seed, &plan);
            world.assert_consumed("t", true);
            world.assert_consumed(TAGGED, true);
            quiet(&world, seed);
        }
    }
}

#[test]
fn doubled_answers_double_nothing() {
    for seed in 0..10 {
        for kind in [Kind::Concurrent, Kind::Orderly] {
            let faults = Faults { twice: 50, ..CLEAN };
            let plan = Plan {
                kind,
                faults,
                failing: 0,
                joins: false,
                crashes: false,
            };
            let world = live(seed, &plan);
            world.assert_consumed("t", true);
            quiet(&world, seed);
        }
    }
}

#[test]
fn orderly_groups_hand_queues_over_without_a_gap_or_a_double() {
    for seed in 0..30 {
        let plan = Plan {
            kind: Kind::Orderly,
            faults: CLEAN,
            failing: 0,
            joins: true,
            crashes: false,
        };
        let world = live(seed, &plan);
        world.assert_consumed("t", true);
        world.assert_consumed(TAGGED, true);
        quiet(&world, seed);
    }
}

#[test]
fn each_message_is_consumed_whatever_happens() {
    for seed in 0..40 {
        for kind in [Kind::Concurrent, Kind::Orderly] {
            let plan = Plan {
                kind,
                faults: ROUGH,
                failing: 5,
                joins: true,
                crashes: true,
            };
            let world = live(seed, &plan);
            world.assert_consumed("t", false);
            world.assert_consumed(TAGGED, false);
            quiet(&world, seed);
        }
    }
}

#[test]
fn comings_and_goings_alone_double_little() {
    let (mut sent, mut doubled) = (0, 0);
    for seed in 0..20 {
        let plan = Plan {
            kind: Kind::Concurrent,
            faults: CLEAN,
            failing: 0,
            joins: true,
            crashes: false,
        };
        let world = live(seed, &plan);
        world.assert_consumed("t", false);
        quiet(&world, seed);
        sent += world.ledger.consumed.len();
        doubled += world
            .ledger
            .consumed
            .values()
            .filter(|&&count| count > 1)
            .count();
    }
    assert!(
        doubled * 20 < sent,
        "{doubled} of {sent} were consumed twice"
    );
}
