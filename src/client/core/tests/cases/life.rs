//! Clocks, connections, requests of brokers, hooks, the end.

use super::super::world::{Mood, NAME_SERVER, PRODUCER, RouteOf, Server, World};
use super::{asked, message, sent, world};
use crate::client::core::Core;
use crate::client::core::io::{Answer, Command, Target};
use crate::client::error::ErrorKind;
use crate::client::hooks::{RequestHook, SendContext, SendHook};
use crate::client::message::{SendResult, SendStatus};
use crate::client::settings::{ClientSettings, ProducerSettings};
use crate::wire::codes::request;
use crate::wire::command::{Request, Response};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
    settings.request_hooks.push(hook.clone());
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
    settings.send_hooks.push(hook.clone());
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
