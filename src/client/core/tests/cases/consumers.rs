//! Consumers of a whole client.

use super::super::record;
use super::super::world::{Mood, RouteOf, World};
use super::{asked, world};
use crate::client::core::io::{Answer, Command, ConsumerCall, ConsumerId};
use crate::client::error::{Error, ErrorKind, Result};
use crate::client::hooks::QueueHook;
use crate::client::message::{MessageQueue, ReceivedMessage};
use crate::client::settings::PullConsumerSettings;
use crate::wire::codes::request;
use std::sync::{Arc, Mutex};

const CONSUMER: ConsumerId = ConsumerId(2);

/// A message that a broker has.
fn received(broker: &str) -> ReceivedMessage {
    let record = record(b"again", 7);
    let parsed = ReceivedMessage::parse(&record.into(), &broker.into(), &"t".into());
    parsed.unwrap().0
}

fn start_pull(world: &mut World, settings: PullConsumerSettings) {
    let ticket = world.ticket();
    world.command(Command::StartPullConsumer {
        ticket,
        consumer: CONSUMER,
        settings: Arc::new(settings),
        subscriptions: Vec::new(),
    });
    assert_eq!(world.end_of(ticket), Ok(Answer::Nothing));
}

fn call(world: &mut World, call: ConsumerCall) -> Result<Answer> {
    let ticket = world.ticket();
    world.command(Command::Consumer {
        ticket,
        consumer: CONSUMER,
        call,
    });
    world.end_of(ticket)
}

#[derive(Default)]
struct Told(Mutex<Vec<(Arc<str>, usize)>>);

impl QueueHook for Told {
    fn queues_changed(&self, topic: &Arc<str>, queues: &[MessageQueue]) {
        self.0.lock().unwrap().push((topic.clone(), queues.len()));
    }
}

/// A world in which a consumer that has named its queue looks every 5 s whether there are
/// others, and what it was told.
fn watched() -> (World, Arc<Told>) {
    let told = Arc::new(Told::default());
    let mut world = world(1);
    super::sent(&mut world, super::message());
    let mut settings = PullConsumerSettings::new("pull");
    settings.topic_metadata_check_interval_ms = 5_000;
    settings.queue_hooks.push(told.clone());
    start_pull(&mut world, settings);
    let assigned = vec![MessageQueue::new("t", "a", 0)];
    assert!(call(&mut world, ConsumerCall::Assign(assigned)).is_ok());
    (world, told)
}

/// What was known when it began counts, not what the first refresh says.
#[test]
fn queues_that_change_before_the_first_refresh_are_told() {
    let (mut world, told) = watched();
    world.routes.get_mut("t").unwrap().queues = 6;
    world.pass(20_000);
    assert_eq!(*told.0.lock().unwrap(), [("t".into(), 6)]);
}

/// Also where they were named, and nobody shares them out.
#[test]
fn who_wants_to_know_is_told_of_other_queues() {
    let (mut world, told) = watched();
    world.pass(12_000);
    assert!(told.0.lock().unwrap().is_empty(), "nothing has changed");
    world.routes.get_mut("t").unwrap().queues = 6;
    world.pass(5_100);
    assert_eq!(*told.0.lock().unwrap(), [("t".into(), 6)]);
    world.pass(20_000);
    assert_eq!(told.0.lock().unwrap().len(), 1, "once");
    assert!(call(&mut world, ConsumerCall::Assign(Vec::new())).is_ok());
    world.routes.get_mut("t").unwrap().queues = 2;
    world.pass(40_000);
    assert_eq!(
        told.0.lock().unwrap().len(),
        1,
        "it has nothing to do with it"
    );
}

fn send_back(world: &mut World) -> Result<Answer> {
    let message = Box::new(received("a"));
    let delay_level = 0;
    call(
        world,
        ConsumerCall::SendBack {
            message,
            delay_level,
        },
    )
}

/// A pull consumer has no listener, but its messages can be given back all the same.
#[test]
fn what_a_broker_does_not_take_back_is_sent_to_the_retry_topic() {
    let mut world = world(1);
    super::sent(&mut world, super::message());
    start_pull(&mut world, PullConsumerSettings::new("pull"));
    let brokers = world.routes["t"].brokers.clone();
    let route = RouteOf { brokers, queues: 1 };
    world.routes.insert("%RETRY%pull".into(), route);
    assert_eq!(send_back(&mut world), Ok(Answer::Nothing));
    assert_eq!(world.sends_at("a:1"), 1, "the broker has done it");

    world.server("a:1").refuses = Some((request::CONSUMER_SEND_MSG_BACK, 1));
    assert_eq!(send_back(&mut world), Ok(Answer::Nothing));
    let (topic, _, _, body) = world.servers["a:1"].sends.last().unwrap();
    assert_eq!((&**topic, &**body), ("%RETRY%pull", &b"again"[..]));

    // What is wrong is what the broker said first.
    let refused = |error: &Error| matches!(error.kind(), ErrorKind::Answered { code: 14, .. });
    world.server("a:1").mood = Mood::Answers(14);
    let error = send_back(&mut world).unwrap_err();
    assert!(refused(&error) && error.place().group.as_deref() == Some("pull"));
    assert!(asked(&world, "a:1", request::SEND_MESSAGE_V2) >= 3);
}
