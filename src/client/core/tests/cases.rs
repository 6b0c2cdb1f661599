//! Single conditions, each with the right behaviour. Those that were reported by users of
//! RocketMQ name the report.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::world::{Mood, NAME_SERVER, PRODUCER, RouteOf, Server, World};
use crate::client::core::Core;
use crate::client::core::io::{Answer, Command, Now, SendMode, Target};
use crate::client::error::ErrorKind;
use crate::client::hooks::{RequestHook, SendContext, SendHook};
use crate::client::message::{Message, MessageQueue, SendResult, SendStatus};
use crate::client::settings::{ClientSettings, ProducerSettings};
use crate::wire::codes::request;
use crate::wire::command::{Request, Response};

fn world(brokers: usize) -> World {
    World::with_brokers(1, brokers, ProducerSettings::new("g"))
}

fn message() -> Message {
    Message::new("t", "body")
}

fn sent(world: &mut World, message: Message) -> SendResult {
    match world.sent(message).unwrap() {
        Answer::Sent(result) => result,
        other => panic!("{other:?}"),
    }
}

fn asked(world: &World, address: &str, code: i32) -> usize {
    let asked = world.servers[address].asked.iter();
    asked.filter(|&&seen| seen == code).count()
}

#[test]
fn the_first_send_asks_for_the_route_and_the_next_ones_do_not() {
    let mut world = world(2);
    let first = sent(&mut world, message());
    assert_eq!(first.status, SendStatus::SendOk);
    assert_eq!((first.tries, first.message_id.len()), (1, 32));
    for _ in 0..10 {
        sent(&mut world, message());
    }
    assert_eq!(
        asked(&world, NAME_SERVER, request::GET_ROUTEINFO_BY_TOPIC),
        1
    );
    // In turn: no broker has more than one queue's worth over the other.
    let (a, b) = (world.sends_at("a:1"), world.sends_at("b:1"));
    assert!(a >= 4 && b >= 4 && a + b == 11, "{a} {b}");
}

#[test]
fn a_thousand_first_sends_ask_once() {
    let mut world = world(1);
    let tickets: Vec<_> = (0..1_000).map(|_| world.send(message())).collect();
    for ticket in tickets {
        world.end_of(ticket).unwrap();
    }
    assert_eq!(
        asked(&world, NAME_SERVER, request::GET_ROUTEINFO_BY_TOPIC),
        1
    );
    assert_eq!(world.connects, 2);
}

#[test]
fn known_topics_are_asked_for_every_thirty_seconds() {
    let mut world = world(1);
    sent(&mut world, message());
    world.pass(90_100);
    assert_eq!(
        asked(&world, NAME_SERVER, request::GET_ROUTEINFO_BY_TOPIC),
        4
    );
}

#[test]
fn brokers_hear_of_the_client_before_its_first_send_and_every_thirty_seconds() {
    let mut world = world(1);
    sent(&mut world, message());
    let codes: Vec<_> = world.servers["a:1"].asked.iter().copied().collect();
    assert_eq!(codes[0], request::HEART_BEAT);
    let before = asked(&world, "a:1", request::HEART_BEAT);
    world.pass(60_100);
    assert_eq!(asked(&world, "a:1", request::HEART_BEAT) - before, 2);
}

/// R#9900: a client of 177 brokers took more than 15 s to start, one broker after the other.
#[test]
fn many_brokers_hear_of_the_client_at_once() {
    let mut world = World::with_brokers(1, 1, ProducerSettings::new("g"));
    let brokers: Vec<_> = (0..200)
        .map(|n| (format!("b{n}"), format!("b{n}:1")))
        .collect();
    for (_, address) in &brokers {
        let server = Server {
            mood: Mood::Slow(500),
            ..Server::default()
        };
        world.servers.insert(address.clone(), server);
    }
    world
        .routes
        .insert("many".into(), RouteOf { brokers, queues: 1 });
    sent(&mut world, Message::new("many", "b"));
    world.pass(600);
    let heard = (0..200).filter(|n| asked(&world, &format!("b{n}:1"), request::HEART_BEAT) > 0);
    assert_eq!(heard.count(), 200);
}

#[test]
fn another_nameserver_is_asked_when_one_fails() {
    for mood in [
        Mood::Refuses,
        Mood::Silent,
        Mood::Garbage,
        Mood::Closes,
        Mood::Answers(2),
    ] {
        let mut world = World::new(3, "n1:9876;n2:9876;n3:9876");
        let route = RouteOf {
            brokers: vec![("a".into(), "a:1".into())],
            queues: 4,
        };
        world.routes.insert("t".into(), route);
        world.servers.insert("a:1".into(), Server::default());
        world.start(ProducerSettings {
            send_timeout_ms: 20_000,
            ..ProducerSettings::new("g")
        });
        world.server("n1:9876").mood = mood;
        world.server("n2:9876").mood = mood;
        assert_eq!(
            sent(&mut world, message()).status,
            SendStatus::SendOk,
            "{mood:?}"
        );
    }
}

#[test]
fn when_no_nameserver_answers_each_one_is_named() {
    let mut world = World::new(3, "n1:9876;n2:9876");
    world.start(ProducerSettings::new("g"));
    world.server("n1:9876").mood = Mood::Refuses;
    world.server("n2:9876").mood = Mood::Closes;
    let error = world.sent(message()).unwrap_err();
    let ErrorKind::NameServers { tried } = error.kind() else {
        panic!("{error}");
    };
    assert_eq!(tried.len(), 2);
    assert!(
        error
            .to_string()
            .contains("n1:9876: cannot connect: refused"),
        "{error}"
    );
    assert!(error.is_retryable());
    let ticket = world.ticket();
    world.command(Command::NameServers(vec!["n3:9876".into()]));
    world.servers.insert("n3:9876".into(), Server::default());
    world.routes.insert(
        "t".into(),
        RouteOf {
            brokers: vec![("a".into(), "a:1".into())],
            queues: 1,
        },
    );
    world.servers.insert("a:1".into(), Server::default());
    let _ = ticket;
    sent(&mut world, message());
}

#[test]
fn without_a_nameserver_the_error_says_what_to_set() {
    let now = Now { at: 0, wall: 0 };
    let settings = ClientSettings::default();
    let mut core = Core::with_seed(settings, now, 1).unwrap();
    let mut out = Vec::new();
    let settings = Arc::new(ProducerSettings::new("g"));
    let (ticket, producer) = (super::super::io::Ticket(1), PRODUCER);
    let start = Command::StartProducer {
        ticket,
        producer,
        settings,
    };
    core.handle(now, super::super::io::Input::Command(start), &mut out);
    let queues = Command::PublishQueues {
        ticket: super::super::io::Ticket(2),
        producer,
        topic: "t".into(),
        timeout_ms: 100,
    };
    core.handle(now, super::super::io::Input::Command(queues), &mut out);
    let Some(super::super::io::Output::Done {
        result: Err(error), ..
    }) = out.last()
    else {
        panic!("{out:?}");
    };
    assert!(error.to_string().contains("NAMESRV_ADDR"), "{error}");
}

/// P18: the template's route has all brokers, so that a new topic is made on each of them.
#[test]
fn an_unknown_topic_is_sent_by_the_route_of_the_template_with_four_queues() {
    let mut world = world(2);
    let template = RouteOf {
        queues: 8,
        ..world.routes["t"].clone()
    };
    world.routes.insert("TBW102".into(), template.clone());
    let queues: Vec<_> = (0..8)
        .map(|_| sent(&mut world, Message::new("new", "b")).queue)
        .collect();
    assert!(
        queues
            .iter()
            .all(|queue| queue.queue_id < 4 && &*queue.topic == "new")
    );
    assert!(world.sends_at("a:1") > 0 && world.sends_at("b:1") > 0);
    // Once it is made, its own route counts.
    world.routes.insert("new".into(), template);
    world.pass(30_100);
    let queues: Vec<_> = (0..16)
        .map(|_| sent(&mut world, Message::new("new", "b")).queue.queue_id)
        .collect();
    assert!(queues.iter().any(|&queue| queue >= 4), "{queues:?}");
}

/// O6: without automatic creation there is no template, and the topic is said to be missing.
#[test]
fn an_unknown_topic_without_a_template_is_not_found() {
    let mut world = world(1);
    let error = world.sent(Message::new("nowhere", "b")).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TopicNotFound);
    assert!(error.to_string().contains("topic nowhere"), "{error}");
    assert!(!error.is_retryable());
}

/// P17, O1: a nameserver that has just started knows nothing yet.
#[test]
fn a_route_is_kept_while_nameservers_know_nothing() {
    let mut world = world(1);
    sent(&mut world, message());
    world.routes.clear();
    world.pass(100_000);
    assert_eq!(sent(&mut world, message()).status, SendStatus::SendOk);
    world.server(NAME_SERVER).mood = Mood::Refuses;
    world.pass(100_000);
    assert_eq!(sent(&mut world, message()).status, SendStatus::SendOk);
}

/// P17: nameservers disagree; the one that knows is believed.
#[test]
fn a_topic_that_one_nameserver_does_not_know_is_asked_of_the_others() {
    let mut world = World::new(3, "n1:9876;n2:9876");
    let route = RouteOf {
        brokers: vec![("a".into(), "a:1".into())],
        queues: 4,
    };
    world.routes.insert("t".into(), route);
    world.servers.insert("a:1".into(), Server::default());
    world.start(ProducerSettings::new("g"));
    for knows in ["n1:9876", "n2:9876"] {
        let other = if knows == "n1:9876" {
            "n2:9876"
        } else {
            "n1:9876"
        };
        world.server(knows).mood = Mood::Good;
        world.server(other).mood = Mood::Answers(17);
        let topic = format!("t-{}", &knows[..2]);
        let route = world.routes["t"].clone();
        world.routes.insert(topic.clone(), route);
        sent(&mut world, Message::new(topic, "b"));
    }
}

#[test]
fn a_broker_that_is_gone_from_the_route_is_dropped() {
    let mut world = world(2);
    sent(&mut world, message());
    world.routes.get_mut("t").unwrap().brokers.remove(0);
    world.pass(30_100);
    let before = (
        world.sends_at("a:1"),
        asked(&world, "a:1", request::HEART_BEAT),
    );
    for _ in 0..8 {
        assert_eq!(&*sent(&mut world, message()).queue.broker_name, "b");
    }
    world.pass(60_000);
    let after = (
        world.sends_at("a:1"),
        asked(&world, "a:1", request::HEART_BEAT),
    );
    assert_eq!(before, after);
    assert_eq!(world.core.routes.brokers().count(), 1);
}

#[test]
fn a_broker_without_the_topic_makes_the_route_be_asked_for_again() {
    let mut world = world(2);
    sent(&mut world, message());
    world.pass(2_000);
    world.server("a:1").mood = Mood::Answers(17);
    world.routes.get_mut("t").unwrap().brokers.remove(0);
    for _ in 0..8 {
        sent(&mut world, message());
    }
    world.pass(10);
    let tried = asked(&world, "a:1", request::SEND_MESSAGE_V2);
    for _ in 0..16 {
        sent(&mut world, message());
    }
    assert_eq!(asked(&world, "a:1", request::SEND_MESSAGE_V2), tried);
}

#[test]
fn a_route_that_lies_is_an_error_that_names_the_lie() {
    let lie = |address: &str, name: &str, queues: i64| {
        serde_json::json!({
            "brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": address}}],
            "queueDatas": [{"brokerName": name, "perm": 6,
                "readQueueNums": queues, "writeQueueNums": queues}],
        })
        .to_string()
        .into_bytes()
    };
    let lies = [
        (lie("h:0", "b", 4), "port 0"),
        (lie("", "b", 4), "host:port"),
        (lie("h:1", "b", 10_000), "10000 queues"),
        (lie("h:1", "b\nx", 4), "control character"),
        (
            b"{\"brokerDatas\":[{\"brokerName\":\"b\"}]}".to_vec(),
            "no address",
        ),
        (b"[".to_vec(), "no JSON"),
    ];
    for (number, (lie, says)) in lies.into_iter().enumerate() {
        let mut world = world(1);
        let topic = format!("lie{number}");
        world.lies.insert(topic.clone(), lie);
        let error = world.sent(Message::new(topic, "b")).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error.kind(), ErrorKind::BadRoute { .. }), "{text}");
        assert!(text.contains(says) && text.contains(NAME_SERVER), "{text}");
        assert_eq!(
            world.connects, 1,
            "nothing but the nameserver was connected to"
        );
        // And no other topic suffers.
        sent(&mut world, message());
    }
}

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
    assert_eq!(world.sends_at("a:1"), 0);
    assert_eq!(asked(&world, "a:1", request::SEND_MESSAGE_V2), 3);
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
fn selectors_get_the_queues_and_hear_of_changes() {
    let mut world = world(1);
    let ticket = world.ticket();
    world.command(Command::PublishQueues {
        ticket,
        producer: PRODUCER,
        topic: "t".into(),
        timeout_ms: 1_000,
    });
    let Answer::Queues(queues) = world.end_of(ticket).unwrap() else {
        panic!();
    };
    assert_eq!(queues.len(), 4);
    world.routes.get_mut("t").unwrap().queues = 6;
    world.pass(30_100);
    assert_eq!(world.published.last(), Some(&("t".into(), 6)));
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

#[test]
fn a_wall_clock_that_jumps_changes_stamps_alone() {
    let mut world = world(1);
    for jump in [-1_000_000_000i64, 1_000_000_000, i64::from(i32::MIN), 5] {
        world.now.wall += jump;
        assert_eq!(sent(&mut world, message()).status, SendStatus::SendOk);
        let began = world.now.at;
        world.pass(1_000);
        assert_eq!(world.now.at - began, 1_000);
    }
    assert!(world.turns < 1_000);
}

#[test]
fn a_machine_that_slept_ends_what_waited_and_goes_on() {
    let mut world = world(1);
    sent(&mut world, message());
    world.server("a:1").mood = Mood::Silent;
    let ticket = world.send(message());
    world.now.at += 1_000_000_000;
    assert!(world.error_of(ticket).to_string().contains("3000 ms"));
    world.server("a:1").mood = Mood::Good;
    assert_eq!(sent(&mut world, message()).status, SendStatus::SendOk);
}

#[test]
fn a_silent_connection_is_given_up_and_made_anew() {
    let mut world = world(1);
    sent(&mut world, message());
    let connects = world.connects;
    world.server("a:1").mood = Mood::Silent;
    let ticket = world.send(message());
    world.error_of(ticket);
    world.server("a:1").mood = Mood::Good;
    sent(&mut world, message());
    assert_eq!(world.connects, connects + 1);
}

/// A broker that still speaks is not cut off because one request is slow.
#[test]
fn a_short_limit_cuts_nobody_off() {
    let settings = ProducerSettings {
        send_timeout_ms: 5,
        ..ProducerSettings::new("g")
    };
    let mut world = World::with_brokers(1, 1, settings);
    world.server("a:1").mood = Mood::Slow(300);
    for _ in 0..20 {
        let ticket = world.send(message());
        world.error_of(ticket);
    }
    assert_eq!(world.connects, 2);
    assert_eq!(world.core.counts().bad_frames, 0);
}

/// J-cases: transactions are not served, and a broker that asks is told so.
#[test]
fn a_broker_that_asks_for_a_transaction_is_told_that_none_is_served() {
    let mut world = world(1);
    sent(&mut world, message());
    world.push("a:1", &Request::new(request::CHECK_TRANSACTION_STATE));
    world.push("a:1", &Request::new(326));
    let counts = world.core.counts();
    assert_eq!((counts.transaction_checks, counts.unknown_requests), (1, 1));
    assert_eq!(sent(&mut world, message()).status, SendStatus::SendOk);
}

#[test]
fn a_raw_request_gets_the_answer_as_it_is() {
    let mut world = world(1);
    let invoke = |world: &mut World, target: Target| {
        let ticket = world.ticket();
        let request = Box::new(Request::new(request::GET_BROKER_RUNTIME_INFO));
        world.command(Command::Invoke {
            ticket,
            target,
            request,
            timeout_ms: 500,
            one_way: false,
        });
        world.end_of(ticket)
    };
    let answer = invoke(&mut world, Target::Address("a:1".into())).unwrap();
    assert_eq!(answer, Answer::Response(Box::new(Response::ok())));
    let answer = invoke(&mut world, Target::NameServer).unwrap();
    assert_eq!(answer, Answer::Response(Box::new(Response::ok())));
    let error = invoke(&mut world, Target::Address("a:0".into())).unwrap_err();
    assert!(error.to_string().contains("port 0"), "{error}");
    world.server("a:1").mood = Mood::Silent;
    let error = invoke(&mut world, Target::Address("a:1".into())).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Timeout { limit_ms: 500 });
    assert_eq!(error.place().address.as_deref(), Some("a:1"));
}

#[test]
fn a_stopping_producer_finishes_what_is_in_hand() {
    let mut world = world(1);
    world.server("a:1").mood = Mood::Slow(800);
    let inside = world.send(message());
    let stop = world.ticket();
    world.command(Command::StopProducer {
        ticket: stop,
        producer: PRODUCER,
        wait_ms: 5_000,
    });
    let outside = world.send(message());
    let error = world.ended[&outside].result.as_ref().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotRunning);
    world.end_of(stop).unwrap();
    assert!(world.ended[&inside].result.is_ok());
    assert_eq!(asked(&world, "a:1", request::UNREGISTER_CLIENT), 1);
    let again = world.ticket();
    let settings = world.settings.clone();
    world.command(Command::StartProducer {
        ticket: again,
        producer: crate::client::core::io::ProducerId(2),
        settings,
    });
    assert!(
        world.ended[&again].result.is_ok(),
        "the group is free again"
    );
}

#[test]
fn a_group_has_one_producer_in_a_client() {
    let mut world = world(1);
    let ticket = world.ticket();
    let settings = world.settings.clone();
    world.command(Command::StartProducer {
        ticket,
        producer: crate::client::core::io::ProducerId(2),
        settings,
    });
    let error = world.ended[&ticket].result.as_ref().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::GroupExists);
}

struct Hook {
    before: AtomicU32,
    after: AtomicU32,
}

impl RequestHook for Hook {
    fn before_request(&self, _: &str, request: &mut Request) {
        *request = request.clone().with("AccessKey", "me");
        self.before.fetch_add(1, Ordering::Relaxed);
    }

    fn after_answer(&self, address: &str, code: i32, answer: &Response) {
        assert!(!address.is_empty() && code > 0 && answer.code == 0);
        self.after.fetch_add(1, Ordering::Relaxed);
    }
}

impl SendHook for Hook {
    fn before_send(&self, context: &SendContext<'_>) {
        assert_eq!((&**context.topic, context.tries), ("t", 1));
        self.before.fetch_add(100, Ordering::Relaxed);
    }

    fn after_send(
        &self,
        _: &SendContext<'_>,
        result: Option<&Result<SendResult, crate::client::Error>>,
    ) {
        assert!(result.is_some_and(|result| result.is_ok()));
        self.after.fetch_add(100, Ordering::Relaxed);
    }
}

#[test]
fn hooks_see_every_request_and_send() {
    let hook = Arc::new(Hook {
        before: AtomicU32::new(0),
        after: AtomicU32::new(0),
    });
    let mut world = World::new(1, NAME_SERVER);
    let mut settings = ClientSettings::with_name_servers(NAME_SERVER);
    settings.request_hooks.0.push(hook.clone());
    world.core = Core::with_seed(settings, world.now, 1).unwrap();
    world.routes.insert(
        "t".into(),
        RouteOf {
            brokers: vec![("a".into(), "a:1".into())],
            queues: 1,
        },
    );
    world.servers.insert("a:1".into(), Server::default());
    let mut settings = ProducerSettings::new("g");
    settings.send_hooks.0.push(hook.clone());
    world.start(settings);
    sent(&mut world, message());
    // Route, heartbeats (on connecting, and as the brokers are new), send.
    let (before, after) = (
        hook.before.load(Ordering::Relaxed),
        hook.after.load(Ordering::Relaxed),
    );
    assert!(
        (103..110).contains(&before) && (103..110).contains(&after),
        "{before} {after}"
    );
    assert_eq!(world.servers["a:1"].sends[0].3, b"body");
}

#[test]
fn idle_connections_are_closed_and_nothing_is_asked_without_need() {
    let mut world = world(1);
    world.pass(1_000_000);
    assert_eq!(
        world.connects, 0,
        "nothing is connected to before it is needed"
    );
    assert!(world.turns < 2_000, "{}", world.turns);
    let ticket = world.ticket();
    world.servers.insert("x:1".into(), Server::default());
    world.command(Command::Invoke {
        ticket,
        target: Target::Address("x:1".into()),
        request: Box::new(Request::new(28)),
        timeout_ms: 100,
        one_way: false,
    });
    world.end_of(ticket).unwrap();
    assert_eq!(world.core.peers.len(), 1);
    world.pass(140_000);
    assert_eq!(world.core.peers.len(), 0);
}
