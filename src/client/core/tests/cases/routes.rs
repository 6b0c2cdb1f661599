//! Nameservers, routes and heartbeats.

use super::super::world::{Mood, NAME_SERVER, PRODUCER, RouteOf, Server, World};
use super::{asked, message, sent, world};
use crate::client::core::Core;
use crate::client::core::io::{Answer, Command, Now};
use crate::client::error::ErrorKind;
use crate::client::message::{Message, SendStatus};
use crate::client::settings::{ClientSettings, ProducerSettings};
use crate::wire::codes::request;
use std::sync::Arc;

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
    let (ticket, producer) = (crate::client::core::io::Ticket(1), PRODUCER);
    let start = Command::StartProducer {
        ticket,
        producer,
        settings,
    };
    core.handle(
        now,
        crate::client::core::io::Input::Command(start),
        &mut out,
    );
    let queues = Command::PublishQueues {
        ticket: crate::client::core::io::Ticket(2),
        producer,
        topic: "t".into(),
        timeout_ms: 100,
    };
    core.handle(
        now,
        crate::client::core::io::Input::Command(queues),
        &mut out,
    );
    let Some(crate::client::core::io::Output::Done {
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

/// Sends by key keep their queues while a broker is away, and all others go elsewhere.
#[test]
fn an_ordered_topic_keeps_its_queues_while_a_broker_is_away() {
    let mut world = world(1);
    let body = serde_json::json!({
        "brokerDatas": [{"brokerName": "a", "brokerAddrs": {"0": "a:1"}}],
        "queueDatas": [
            {"brokerName": "a", "perm": 6, "readQueueNums": 9, "writeQueueNums": 9},
        ],
        "orderTopicConf": "b:2;nonsense;a:2",
    });
    world.lies.insert("t".into(), body.to_string().into_bytes());
    let mut keyed = Vec::new();
    for n in 0..12 {
        assert_eq!(&*sent(&mut world, message()).queue.broker_name, "a");
        let sent = world.sent(message().sharding_key(n.to_string()));
        keyed.push(match sent {
            Ok(Answer::Sent(sent)) => Some((sent.queue.broker_name, sent.queue.queue_id)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NoQueue { .. }), "{error}");
                None
            }
        });
    }
    assert!(keyed.contains(&None), "those of the broker that is away");
    let here = keyed.iter().flatten();
    assert!(here.clone().count() > 0 && here.clone().all(|(name, id)| **name == *"a" && *id < 2));
}
