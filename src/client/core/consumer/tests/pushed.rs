//! What brokers ask of consumers.

use super::*;
use crate::client::core::consumer::ReplyTo;
use crate::client::core::io::{Filter, Now};
use crate::wire::body::json;
use crate::wire::body::stats::reset_offset_body;
use crate::wire::codes::request;
use serde_json::Value;

fn requested(world: &mut World, request: &Request) {
    let to = ReplyTo(7);
    let now = Now {
        at: world.now,
        wall: 1_700_000_000_000,
    };
    world.clients[0].consumer.requested(now, to, request);
    world.drain(0);
}

fn started(kind: Kind) -> World {
    let mut world = World::new(31, 1);
    world.topic("t", 2);
    world.join(rules(kind, 0), &["t"]);
    world.run(2000);
    world
}

fn reset(world: &mut World, offset: i64) {
    let queue = json::MessageQueue {
        broker_name: "broker-0".into(),
        queue_id: 0,
        topic: "t".into(),
    };
    let body = reset_offset_body(&BTreeMap::from([(queue, offset)]));
    let request = Request::new(request::RESET_CONSUMER_CLIENT_OFFSET)
        .with("topic", "t")
        .with("group", GROUP)
        .with("timestamp", 0)
        .with("isForce", true)
        .with_body(body);
    requested(world, &request);
}

#[test]
fn offsets_that_an_operator_resets_are_gone_on_from() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        let mut world = started(kind);
        world.ledger.lenient = true;
        (0..10).for_each(|_| world.send_to(0, "t", 0, ""));
        world.run(6000);
        reset(&mut world, 4);
        world.run(6000);
        let twice = world.ledger.consumed.values().filter(|&&count| count == 2);
        assert_eq!(twice.count(), 6);
        assert_eq!(world.committed("t"), world.ends("t"));
        assert_eq!(world.clients[0].responses[0].code, 0);
    }
}

#[test]
fn what_is_in_hand_at_a_reset_does_not_count() {
    let mut world = started(Kind::Orderly);
    world.ledger.lenient = true;
    world.work_ms = (5000, 1);
    (0..3).for_each(|_| world.send_to(0, "t", 0, ""));
    world.run(1000);
    reset(&mut world, 2);
    world.run(1000);
    assert_eq!(world.clients[0].in_hand.len(), 1, "one at a time, also now");
    world.work_ms = (1, 1);
    world.run(10_000);
    assert_eq!(world.committed("t")[&("broker-0".into(), 0)], 3);
    assert_eq!(world.ledger.consumed.len(), 2);
}

#[test]
fn a_reset_without_a_table_is_refused() {
    let mut world = started(Kind::Concurrent);
    let request = Request::new(request::RESET_CONSUMER_CLIENT_OFFSET).with("topic", "t");
    requested(&mut world, &request);
    assert_eq!(world.clients[0].responses[0].code, 1);
}

#[test]
fn running_info_says_what_it_is_at() {
    let mut world = started(Kind::Orderly);
    world.listener = Box::new(|_, _| None);
    (0..5).for_each(|_| world.send_to(0, "t", 1, ""));
    world.run(2000);
    requested(
        &mut world,
        &Request::new(request::GET_CONSUMER_RUNNING_INFO),
    );
    let body = world.clients[0].responses[0].body.clone();
    assert!(body.starts_with(br#"{"mqTable":{{"brokerName":"broker-0""#));
    let info: Value = json::parse(&body).unwrap();
    assert_eq!(info["properties"]["PROP_CONSUMEORDERLY"], "true");
    assert_eq!(info["properties"]["PROP_CONSUME_TYPE"], "CONSUME_PASSIVELY");
    assert_eq!(info["subscriptionSet"].as_array().unwrap().len(), 2);
    let queues = info["mqTable"].as_object().unwrap();
    let busy = queues
        .iter()
        .find(|(_, info)| info["cachedMsgCount"] != 0)
        .unwrap();
    assert!(busy.0.contains("\"queueId\":1"), "{}", busy.0);
    assert_eq!(
        (&busy.1["cachedMsgCount"], &busy.1["locked"]),
        (&5.into(), &true.into())
    );
    requested(
        &mut world,
        &Request::new(request::GET_CONSUMER_STATUS_FROM_CLIENT).with("topic", "t"),
    );
    let status: Value = json::parse(&world.clients[0].responses[1].body).unwrap();
    assert_eq!(status["messageQueueTable"].as_object().unwrap().len(), 2);
}

#[test]
fn running_info_says_how_fast_it_goes() {
    let mut world = started(Kind::Concurrent);
    world.work_ms = (40, 1);
    let count = std::cell::Cell::new(0);
    world.listener = Box::new(move |_, _| {
        count.set(count.get() + 1);
        Some(if count.get() <= 2 {
            Outcome::Failed { what: "no".into() }
        } else {
            Outcome::Success { ack_index: None }
        })
    });
    (0..10).for_each(|_| world.send_to(0, "t", 0, ""));
    world.run(1000);
    // Nothing more comes, and it is asked for all the same.
    world.run(30_000);
    requested(
        &mut world,
        &Request::new(request::GET_CONSUMER_RUNNING_INFO),
    );
    let info: Value = json::parse(&world.clients[0].responses[0].body).unwrap();
    let status = &info["statusTable"]["t"];
    let names = [
        "consumeFailedMsgs",
        "consumeFailedTPS",
        "consumeOKTPS",
        "consumeRT",
        "pullRT",
        "pullTPS",
    ];
    let fields: Vec<_> = status.as_object().unwrap().keys().collect();
    assert_eq!(fields, names);
    let number = |name: &str| status[name].as_f64().unwrap();
    assert_eq!(status["consumeFailedMsgs"], 2);
    assert_eq!(number("consumeRT"), 40.0);
    assert!(number("pullTPS") > number("consumeOKTPS") && number("consumeOKTPS") > 0.0);
    assert!(number("consumeFailedTPS") > 0.0 && number("pullRT") > 0.0);
    let retry = &info["statusTable"][&retry_topic(GROUP)];
    assert_eq!(retry["consumeFailedMsgs"], 0);
    let (_, queue) = info["mqTable"]
        .as_object()
        .unwrap()
        .iter()
        .find(|(queue, _)| queue.contains("\"queueId\":0") && queue.contains("\"t\""))
        .unwrap();
    let ago = |name: &str| 1_700_000_000_000 - queue[name].as_i64().unwrap();
    assert!(ago("lastConsumeTimestamp") > 29_000, "{queue}");
    assert!(ago("lastPullTimestamp") < 16_000, "{queue}");
}

#[test]
fn a_message_that_a_broker_sends_is_consumed_out_of_turn() {
    let mut world = started(Kind::Concurrent);
    world.topic("other", 1);
    world.send_to(0, "other", 0, "");
    let record = world.brokers[0].queues[&("other".to_owned(), 0)].records[0].clone();
    let request = Request::new(request::CONSUME_MESSAGE_DIRECTLY)
        .with("consumerGroup", GROUP)
        .with("clientId", "10.0.0.0@1")
        .with("brokerName", "broker-0")
        .with_body(record);
    world.work_ms = (20, 1);
    requested(&mut world, &request);
    world.run(1000);
    let result: Value = json::parse(&world.clients[0].responses[0].body).unwrap();
    assert_eq!(result["consumeResult"], "CR_SUCCESS");
    assert_eq!(result["spentTimeMills"], 20);
    world.listener = Box::new(|_, _| Some(Outcome::Failed { what: "why".into() }));
    requested(&mut world, &request);
    world.run(1000);
    let result: Value = json::parse(&world.clients[0].responses[1].body).unwrap();
    assert_eq!(
        (&result["consumeResult"], &result["remark"]),
        (&"CR_THROW_EXCEPTION".into(), &"why".into())
    );
    assert!(!world.requests.contains_key(&36), "nothing is sent back");
    let garbage = Request::new(request::CONSUME_MESSAGE_DIRECTLY).with_body(&b"xx"[..]);
    requested(&mut world, &garbage);
    assert_eq!(world.clients[0].responses[2].code, 1);
}

#[test]
fn a_suspended_consumer_pauses_and_goes_on() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        let mut world = started(kind);
        let ticket = world.call(0, ConsumerCall::Suspend);
        assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Nothing));
        (0..10).for_each(|_| world.send("t", ""));
        world.run(60_000);
        assert!(world.ledger.consumed.is_empty());
        world.call(0, ConsumerCall::Resume);
        world.run(2000);
        world.assert_consumed("t", true);
    }
}

#[test]
fn a_topic_that_is_given_up_is_stored_and_let_go() {
    let mut world = started(Kind::Concurrent);
    (0..10).for_each(|_| world.send("t", ""));
    world.run(1000);
    world.call(0, ConsumerCall::Unsubscribe { topic: "t".into() });
    world.run(1000);
    assert_eq!(world.committed("t"), world.ends("t"));
    assert_eq!(
        world.clients[0].consumer.assignment().len(),
        1,
        "the retry topic's"
    );
    let beats = world.clients[0].heartbeats;
    let filter = Default::default();
    world.call(
        0,
        ConsumerCall::Subscribe {
            topic: "t".into(),
            filter,
        },
    );
    assert!(world.clients[0].heartbeats > beats);
    (0..10).for_each(|_| world.send("t", ""));
    world.run(2000);
    world.assert_consumed("t", true);
}

/// Brokers take greater versions only.
#[test]
fn a_changed_subscription_is_newer_whatever_the_wall_clock_says() {
    let mut world = started(Kind::Concurrent);
    let topic: Arc<str> = "t".into();
    let newest = |world: &mut World, wall: i64, tags: &str| {
        let filter = Filter::Tags(tags.to_owned());
        let subscribe = ConsumerCall::Subscribe {
            topic: topic.clone(),
            filter,
        };
        world.call_at(0, wall, subscribe);
        let beat = world.clients[0].consumer.heartbeat();
        let mut subscriptions = beat.subscription_data_set.into_iter();
        let data = subscriptions.find(|data| data.topic == *topic).unwrap();
        assert_eq!(data.sub_string, tags);
        data.sub_version
    };
    let now = 1_700_000_000_000;
    let first = newest(&mut world, now, "a");
    assert_eq!(first, now);
    let second = newest(&mut world, now, "b");
    assert!(second > first, "twice in one millisecond");
    let third = newest(&mut world, now - 86_400_000, "c");
    assert!(third > second, "after a day back");
    world.call(
        0,
        ConsumerCall::Unsubscribe {
            topic: topic.clone(),
        },
    );
    assert!(newest(&mut world, 5, "d") > third, "also anew");
    assert_eq!(newest(&mut world, now + 1000, "e"), now + 1000);
}

#[test]
fn a_caller_may_send_a_message_back() {
    let mut world = started(Kind::Concurrent);
    let kept = std::rc::Rc::new(std::cell::RefCell::new(None));
    let keep = kept.clone();
    world.listener = Box::new(move |_, batch| {
        keep.borrow_mut().get_or_insert(batch.messages[0].clone());
        Some(Outcome::Success { ack_index: None })
    });
    world.send("t", "");
    world.run(1000);
    let message = kept.borrow().clone().unwrap();
    let call = ConsumerCall::SendBack {
        message: Box::new(message),
        delay_level: 0,
    };
    let ticket = world.call(0, call);
    world.run(10_000);
    assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Nothing));
    assert_eq!(world.ledger.consumed.into_values().collect::<Vec<_>>(), [2]);
}
