//! Sends: tries, queues, bounds.

use super::super::world::{Mood, Server, World};
use super::{asked, message, sent, world};
use crate::client::core::io::{Answer, SendMode};
use crate::client::error::ErrorKind;
use crate::client::message::{Message, MessageQueue, SendStatus};
use crate::client::settings::ProducerSettings;
use crate::wire::batch;
use crate::wire::codes::request;
use crate::wire::properties;

/// P3: a broker that is busy is no loss of the message.
#[test]
fn a_busy_broker_is_left_for_another_one() {
    for code in [1, 2, 14, 16, 17, 204, 205, 1500] {
        let mut world = world(2);
        world.server("a:1").mood = Mood::Answers(code);
        for _ in 0..8 {
            let result = sent(&mut world, message());
            assert_eq!((&*result.queue.broker_name, result.tries <= 2), ("b", true));
        }
    }
    for code in [13, 29, 3] {
        let mut world = world(2);
        world.server("a:1").mood = Mood::Answers(code);
        world.server("b:1").mood = Mood::Answers(code);
        let error = world.sent(message()).unwrap_err();
        assert_eq!((error.code(), error.tries()), (Some(code), 1));
        assert!(!error.is_retryable());
    }
}

#[test]
fn an_error_after_all_tries_says_where_and_how_often() {
    let mut world = world(1);
    world.server("a:1").mood = Mood::Answers(14);
    let error = world.sent(message()).unwrap_err();
    assert_eq!((error.code(), error.tries()), (Some(14), 3));
    let place = error.place();
    assert_eq!(place.broker_name.as_deref(), Some("a"));
    assert_eq!(place.topic.as_deref(), Some("t"));
    assert!(place.queue_id.is_some() && error.is_retryable());
    let text = error.to_string();
    assert!(
        text.contains("code 14: simulated"),
        "the broker's words: {text}"
    );
    assert_eq!(world.sends_at("a:1"), 0);
    assert_eq!(asked(&world, "a:1", request::SEND_MESSAGE_V2), 3);
}

/// Also where the order of the topic has a broker that is away: nothing is sent there.
#[test]
fn an_ordered_topic_with_one_broker_is_tried_there_again() {
    for send_latency_fault_enable in [false, true] {
        let settings = ProducerSettings {
            send_latency_fault_enable,
            ..ProducerSettings::new("g")
        };
        let mut world = World::with_brokers(1, 1, settings);
        let body = serde_json::json!({
            "brokerDatas": [{"brokerName": "a", "brokerAddrs": {"0": "a:1"}}],
            "queueDatas": [
                {"brokerName": "a", "perm": 6, "readQueueNums": 2, "writeQueueNums": 2},
            ],
            "orderTopicConf": "a:2;away:2",
        });
        world.lies.insert("t".into(), body.to_string().into_bytes());
        sent(&mut world, message());
        world.server("a:1").mood = Mood::Answers(14);
        let error = world.sent(message()).unwrap_err();
        assert_eq!((error.code(), error.tries()), (Some(14), 3), "{error}");
    }
}

/// It waited too long for its turn.
#[test]
fn a_send_that_is_late_from_the_first_is_not_written() {
    for mode in [SendMode::Sync, SendMode::OneWay] {
        let mut world = world(1);
        sent(&mut world, message());
        let mut send = world.prepared(message(), mode);
        send.began = world.now.at - 3_000;
        let ticket = world.send_prepared(send);
        let error = world.error_of(ticket);
        assert_eq!(*error.kind(), ErrorKind::Timeout { limit_ms: 3_000 });
        assert_eq!((error.elapsed_ms(), error.tries()), (3_000, 0));
        world.pass(10);
        assert_eq!(asked(&world, "a:1", request::SEND_MESSAGE_V2), 1);
    }
}

#[test]
fn a_broker_that_cannot_be_reached_is_avoided_within_the_send() {
    for mood in [Mood::Refuses, Mood::Garbage, Mood::Closes, Mood::Bare] {
        let mut world = world(2);
        world.server("a:1").mood = mood;
        for _ in 0..6 {
            let result = sent(&mut world, message());
            assert_eq!(
                (&*result.queue.broker_name, result.tries <= 2),
                ("b", true),
                "{mood:?}"
            );
        }
    }
}

#[test]
fn a_silent_broker_costs_the_whole_send_unless_tries_have_their_own_limit() {
    let mut world = world(2);
    world.server("a:1").mood = Mood::Silent;
    let tickets: Vec<_> = (0..8).map(|_| world.send(message())).collect();
    let late = tickets.iter().filter(|&&t| {
        let ended = world.end_of(t);
        ended.is_err_and(|error| *error.kind() == ErrorKind::Timeout { limit_ms: 3_000 })
    });
    assert!(late.count() > 0);

    let settings = ProducerSettings {
        send_timeout_per_try_ms: Some(200),
        ..ProducerSettings::new("g")
    };
    let mut world = World::with_brokers(1, 2, settings);
    world.server("a:1").mood = Mood::Silent;
    for _ in 0..8 {
        let began = world.now.at;
        assert_eq!(&*sent(&mut world, message()).queue.broker_name, "b");
        assert!(world.now.at - began < 300);
    }
}

#[test]
fn with_latency_faults_on_a_failing_broker_is_avoided_for_ten_seconds() {
    let settings = ProducerSettings {
        send_latency_fault_enable: true,
        ..ProducerSettings::new("g")
    };
    let mut world = World::with_brokers(1, 2, settings);
    sent(&mut world, message());
    world.server("a:1").mood = Mood::Answers(14);
    for _ in 0..8 {
        sent(&mut world, message());
    }
    let tried = asked(&world, "a:1", request::SEND_MESSAGE_V2);
    for _ in 0..50 {
        sent(&mut world, message());
    }
    assert_eq!(asked(&world, "a:1", request::SEND_MESSAGE_V2), tried);
    world.server("a:1").mood = Mood::Good;
    world.pass(10_000);
    let before = world.sends_at("a:1");
    for _ in 0..8 {
        sent(&mut world, message());
    }
    assert!(world.sends_at("a:1") > before);
    // And when every broker is to be avoided it is sent all the same.
    world.server("a:1").mood = Mood::Slow(2_500);
    world.server("b:1").mood = Mood::Slow(2_500);
    for _ in 0..6 {
        assert_eq!(sent(&mut world, message()).status, SendStatus::SendOk);
    }
}

#[test]
fn the_detector_finds_a_broker_that_came_back() {
    let settings = ProducerSettings {
        send_latency_fault_enable: true,
        start_detector_enable: true,
        ..ProducerSettings::new("g")
    };
    let mut world = World::with_brokers(1, 2, settings);
    world.server("a:1").mood = Mood::Refuses;
    for _ in 0..4 {
        sent(&mut world, message());
    }
    let probes = |world: &World| asked(world, "a:1", request::GET_BROKER_RUNTIME_INFO);
    world.pass(4_000);
    assert_eq!(probes(&world), 0);
    world.server("a:1").mood = Mood::Good;
    world.pass(4_000);
    let seen = probes(&world);
    assert!(seen > 0);
    world.pass(10_000);
    assert_eq!(probes(&world), seen, "it is found once");
}

#[test]
fn a_message_that_is_stored_but_not_safely_is_a_success_with_its_status() {
    let statuses = [
        (10, SendStatus::FlushDiskTimeout),
        (11, SendStatus::SlaveNotAvailable),
        (12, SendStatus::FlushSlaveTimeout),
    ];
    for (code, status) in statuses {
        let mut first = world(2);
        first.server("a:1").mood = Mood::Stores(code);
        first.server("b:1").mood = Mood::Stores(code);
        let result = sent(&mut first, message());
        assert_eq!((result.status, result.tries), (status, 1));

        let settings = ProducerSettings {
            retry_another_broker_when_not_store_ok: true,
            ..ProducerSettings::new("g")
        };
        let mut other = World::with_brokers(1, 2, settings);
        other.server("a:1").mood = Mood::Stores(code);
        for _ in 0..4 {
            let result = sent(&mut other, message());
            assert_eq!(
                (result.status, &*result.queue.broker_name),
                (SendStatus::SendOk, "b")
            );
        }
        // Stored somewhere is no error, whatever the other tries came to.
        other.server("b:1").mood = Mood::Answers(13);
        let ends: Vec<_> = (0..8).map(|_| other.sent(message())).collect();
        assert!(
            ends.iter()
                .any(|end| matches!(end, Ok(Answer::Sent(r)) if r.status == status))
        );
    }
}

#[test]
fn a_sharding_key_has_one_queue_and_keeps_it_in_trouble() {
    let mut world = world(2);
    let keyed = |n: usize| Message::new("t", "b").sharding_key(format!("k{n}"));
    let first: Vec<_> = (0..20).map(|n| sent(&mut world, keyed(n)).queue).collect();
    let again: Vec<_> = (0..20).map(|n| sent(&mut world, keyed(n)).queue).collect();
    assert_eq!(first, again);
    assert!(first.iter().any(|queue| *queue != first[0]));
    world.server("a:1").mood = Mood::Refuses;
    world.server("b:1").mood = Mood::Refuses;
    let error = world.sent(keyed(0)).unwrap_err();
    let broker = error.place().broker_name.clone();
    // The connections are still there; what they are asked ends all the same.
    assert_eq!(
        (broker, error.tries()),
        (Some(first[0].broker_name.clone()), 1)
    );
}

#[test]
fn a_chosen_queue_is_used_whatever_its_turn() {
    let mut world = world(2);
    let queue = MessageQueue::new("t", "b", 3);
    for _ in 0..3 {
        let send = world.prepared_to(message(), SendMode::Sync, Some(queue.clone()));
        let ticket = world.send_prepared(send);
        let Answer::Sent(result) = world.end_of(ticket).unwrap() else {
            panic!();
        };
        assert_eq!(result.queue, queue);
    }
    let nowhere = MessageQueue::new("t", "zzz", 0);
    let send = world.prepared_to(message(), SendMode::Sync, Some(nowhere));
    let ticket = world.send_prepared(send);
    let error = world.error_of(ticket);
    assert!(error.to_string().contains("t/zzz/0"), "{error}");
}

#[test]
fn a_send_without_an_answer_ends_when_it_is_written() {
    let mut world = world(1);
    let send = world.prepared(message(), SendMode::OneWay);
    let ticket = world.send_prepared(send);
    assert_eq!(world.end_of(ticket).unwrap(), Answer::Nothing);
    assert_eq!(world.sends_at("a:1"), 1);
    world.server("a:1").mood = Mood::Refuses;
    let mut away = World::with_brokers(1, 1, ProducerSettings::new("g"));
    away.server("a:1").mood = Mood::Refuses;
    let send = away.prepared(message(), SendMode::OneWay);
    let ticket = away.send_prepared(send);
    let error = away.error_of(ticket);
    assert!(matches!(error.kind(), ErrorKind::Connect { .. }), "{error}");
    assert_eq!(error.tries(), 1);
}

#[test]
fn more_than_the_bound_in_flight_is_refused_and_named() {
    let settings = ProducerSettings {
        in_flight_max: 10,
        ..ProducerSettings::new("g")
    };
    let mut world = World::with_brokers(1, 1, settings);
    world.server("a:1").mood = Mood::Silent;
    let tickets: Vec<_> = (0..11).map(|_| world.send(message())).collect();
    let error = world.ended[&tickets[10]].result.as_ref().unwrap_err();
    assert!(
        error.to_string().contains("in_flight_max is bounded by 10"),
        "{error}"
    );
    assert!(error.is_retryable());
    world.pass(4_000);
    assert_eq!(world.ended.len(), 11);
    world.send(message());
    assert_eq!(
        world.core.producers.in_flight().0,
        1,
        "and there is room again"
    );

    let settings = ProducerSettings {
        in_flight_bytes_max: 65_536,
        compression: crate::client::settings::Compression::None,
        ..ProducerSettings::new("g")
    };
    let mut world = World::with_brokers(1, 1, settings);
    world.server("a:1").mood = Mood::Silent;
    let large = || Message::new("t", vec![1u8; 200_000]);
    let alone = world.send(large());
    assert!(
        !world.ended.contains_key(&alone),
        "one alone is let through"
    );
    let more = world.send(message());
    let error = world.ended[&more].result.as_ref().unwrap_err();
    assert!(error.to_string().contains("in_flight_bytes_max"), "{error}");
}

/// A batch under way while its broker goes, and its route with it: it is sent again whole to
/// whoever has the topic now, or fails in its time where nobody has.
#[test]
fn a_batch_whose_route_vanishes_is_sent_again_whole_or_fails_in_time() {
    let batch = || (0..5).map(|n| Message::new("t", format!("{n}"))).collect();
    for (mood, later) in [
        (Mood::Closes, 0),
        (Mood::Answers(17), 0),
        (Mood::Answers(17), 1),
        (Mood::Closes, 1),
        (Mood::Silent, 1),
    ] {
        for moves in [true, false] {
            let settings = ProducerSettings {
                retry_times_when_send_failed: 50,
                ..ProducerSettings::new("g")
            };
            let mut world = World::with_brokers(1, 1, settings);
            let (ticket, _) = world.send_batch(batch());
            assert!(world.end_of(ticket).is_ok());
            // A route is not doubted as soon as it is there.
            world.pass(3_000);
            let before = world.sends_at("a:1");
            world.servers.insert("b:1".into(), Server::default());
            world.server("a:1").mood = mood;
            let (ticket, ids) = world.send_batch(batch());
            world.pass(later);
            if moves {
                let route = world.routes.get_mut("t").unwrap();
                route.brokers = vec![("b".into(), "b:1".into())];
            } else {
                world.routes.remove("t");
            }
            let began = world.now.at;
            let end = world.end_of(ticket);
            assert!(world.now.at - began <= 3_000 + 40, "{mood:?}");
            match end {
                Ok(Answer::Sent(result)) => {
                    assert!(moves, "{mood:?}: stored nowhere");
                    assert_eq!(result.message_id, ids.join(","));
                    let [send] = &world.servers["b:1"].sends[..] else {
                        panic!("{mood:?}: sent again once");
                    };
                    let items: Vec<_> = batch::items(&send.3).map(Result::unwrap).collect();
                    let found = |at: usize| properties::get(items[at].properties, "UNIQ_KEY");
                    for (at, id) in ids.iter().enumerate() {
                        assert_eq!(found(at), Some(id.as_bytes()), "{mood:?}");
                    }
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    // Where it moves, all tries were over before anybody knew.
                    let over = mood == Mood::Silent || error.tries() == 51;
                    assert!(!moves || over, "{mood:?}: {error}");
                    assert_eq!(error.place().topic.as_deref(), Some("t"));
                    assert_eq!(world.sends_at("b:1"), 0);
                }
            }
            assert_eq!(world.sends_at("a:1"), before);
            // And the next ones are sent as if nothing had been.
            if moves {
                // By then the route is asked for at the latest.
                world.pass(31_000);
                let (ticket, _) = world.send_batch(batch());
                assert!(world.end_of(ticket).is_ok(), "{mood:?}");
            }
        }
    }
}
