//! What holds whatever goes wrong, over many seeds.

use super::world::{Mood, NAME_SERVER, World};
use crate::client::core::io::{Answer, Command, SendMode};
use crate::client::error::ErrorKind;
use crate::client::message::Message;
use crate::client::settings::ProducerSettings;

const MOODS: [Mood; 15] = [
    Mood::Good,
    Mood::Refuses,
    Mood::Silent,
    Mood::Slow(40),
    Mood::Slow(2_000),
    Mood::Doubles(5),
    Mood::Doubles(3_500),
    Mood::Answers(14),
    Mood::Answers(13),
    Mood::Stores(10),
    Mood::Garbage,
    Mood::Bare,
    Mood::Foreign,
    Mood::Closes,
    Mood::StoresAndCloses,
];

/// A world in which everything goes wrong now and then.
fn rough(seed: u64) -> World {
    let settings = ProducerSettings {
        send_latency_fault_enable: seed % 2 == 0,
        start_detector_enable: seed % 4 == 0,
        retry_another_broker_when_not_store_ok: seed % 3 == 0,
        send_timeout_per_try_ms: (seed % 5 == 0).then_some(700),
        retry_times_when_send_failed: (seed % 4) as u32,
        ..ProducerSettings::new("g")
    };
    let mut world = World::with_brokers(seed, 1 + seed as usize % 3, settings);
    world.chunk = [0, 1, 7, 100][seed as usize / 2 % 4];
    let addresses: Vec<String> = world.servers.keys().cloned().collect();
    for address in addresses {
        let chance = (world.random.next() % 120) as u8;
        let count = 1 + world.random.next() as usize % 4;
        let picked = (0..count).map(|_| world.random.next() as usize % MOODS.len());
        let mixed: Vec<Mood> = picked.map(|pick| MOODS[pick]).collect();
        let server = world.server(&address);
        server.mixed = mixed;
        server.mixed_chance = if address == NAME_SERVER {
            chance / 3
        } else {
            chance
        };
    }
    world
}

#[test]
fn every_send_ends_once_in_time_and_no_success_is_invented() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..400 {
        let mut world = rough(seed);
        let retries = world.settings.retry_times_when_send_failed;
        for round in 0..25 {
            for _ in 0..1 + world.random.next() % 4 {
                let mode = match world.random.next() % 8 {
                    0 => SendMode::OneWay,
                    1..=3 => SendMode::Async,
                    _ => SendMode::Sync,
                };
                let send = world.prepared(Message::new("t", format!("{round}")), mode);
                world.send_prepared(send);
            }
            let ms = world.random.next() % 600;
            world.pass(ms);
            if world.random.next() % 16 == 0 {
                let addresses: Vec<String> = world.servers.keys().cloned().collect();
                let which = &addresses[world.random.next() as usize % addresses.len()];
                let mood = MOODS[world.random.next() as usize % MOODS.len()];
                world.server(which).mood = if round % 2 == 0 { mood } else { Mood::Good };
            }
        }
        world.pass(10_000);
        for (ticket, (began, id)) in &world.begun {
            let ended = world.ended.get(ticket);
            let ended = ended.unwrap_or_else(|| panic!("seed {seed}: {ticket:?} has not ended"));
            let took = ended.at - began;
            assert!(took <= 3_000 + 40, "seed {seed}: {ticket:?} took {took} ms");
            match &ended.result {
                Ok(Answer::Sent(result)) => {
                    good += 1;
                    assert_eq!(result.message_id, *id, "seed {seed}");
                    assert!(world.stored(id) > 0, "seed {seed}: {id} is stored nowhere");
                    assert!(result.tries <= 1 + retries.max(2), "seed {seed}");
                }
                Ok(Answer::Nothing) => {}
                Ok(other) => panic!("seed {seed}: {other:?}"),
                Err(error) => {
                    bad += 1;
                    assert!(error.tries() <= 1 + retries.max(2), "seed {seed}: {error}");
                    assert!(error.place().topic.is_some(), "seed {seed}: {error}");
                }
            }
            assert!(world.stored(id) <= 1 + retries.max(2), "seed {seed}");
        }
        assert_eq!(world.core.producers.in_flight(), (0, 0), "seed {seed}");
        assert!(world.core.producers.slots() < 200, "seed {seed}");
        // Nothing spins: the turns are of the order of what happened.
        assert!(world.turns < 60_000, "seed {seed}: {} turns", world.turns);
        for (address, server) in &world.servers {
            assert_eq!(server.unheard, 0, "seed {seed}: {address}");
        }
    }
    assert!(good > 3_000 && bad > 300, "{good} good, {bad} bad");
}

#[test]
fn a_client_stops_in_time_whatever_happens() {
    for seed in 0..100 {
        let mut world = rough(seed);
        for _ in 0..10 {
            world.send(Message::new("t", "b"));
        }
        let ms = world.random.next() % 50;
        world.pass(ms);
        let ticket = world.ticket();
        let began = world.now.at;
        world.command(Command::Shutdown {
            ticket,
            wait_ms: 1_000,
        });
        world.end_of(ticket).unwrap();
        assert!(
            world.stopped && world.now.at <= began + 1_000,
            "seed {seed}"
        );
        let begun: Vec<_> = world.begun.keys().copied().collect();
        for send in begun {
            assert!(world.ended.contains_key(&send), "seed {seed}: {send:?}");
        }
        let late = world.send(Message::new("t", "b"));
        let error = world.ended[&late].result.as_ref().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotRunning);
    }
}

#[test]
fn answers_late_doubled_or_for_others_complete_no_wrong_send() {
    for seed in 0..60 {
        let mut world = World::with_brokers(seed, 1, ProducerSettings::new("g"));
        let server = world.server("a:1");
        server.mixed = vec![Mood::Doubles(2), Mood::Doubles(3_200), Mood::Foreign];
        server.mixed_chance = 200;
        for round in 0..60 {
            world.send(Message::new("t", format!("{round}")));
            let ms = world.random.next() % 200;
            world.pass(ms);
        }
        world.pass(8_000);
        // What a success says is where that very message is.
        for (ticket, (_, id)) in &world.begun {
            if let Ok(Answer::Sent(result)) = &world.ended[ticket].result {
                let sends = &world.servers["a:1"].sends;
                let (_, queue, properties, _) = &sends[result.queue_offset as usize];
                assert_eq!(*queue, result.queue.queue_id, "seed {seed}");
                let needle = id.as_bytes();
                let here = properties.windows(needle.len()).any(|part| part == needle);
                assert!(here, "seed {seed}: {id} is elsewhere");
            }
        }
        assert!(world.core.counts().unknown_answers > 0, "seed {seed}");
    }
}
