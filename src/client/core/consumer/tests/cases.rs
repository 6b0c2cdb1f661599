//! One condition, the right behaviour: ids are those of the list of known cases.

use super::*;
use crate::client::core::io::OffsetOf;

const SUCCESS: Outcome = Outcome::Success { ack_index: None };

fn started(kind: Kind, seed: u64) -> World {
    let mut world = World::new(seed, 1);
    world.topic("t", 4);
    world.join(rules(kind, 0), &["t"]);
    world
}

#[test]
fn one_member_gets_everything_once_and_commits_it() {
    let mut world = started(Kind::Concurrent, 1);
    (0..300).for_each(|_| world.send("t", ""));
    world.run(3000);
    world.assert_consumed("t", true);
    world.run(6000);
    assert_eq!(world.committed("t"), world.ends("t"));
    assert!(
        world.clients[0].faults.is_empty(),
        "{:?}",
        world.clients[0].faults
    );
    // Held pulls, no hammering.
    assert!(world.brokers[0].pulls < 300, "{}", world.brokers[0].pulls);
}

#[test]
fn d1_an_answer_of_which_every_tag_is_another_advances_and_commits() {
    let mut world = World::new(3, 1);
    world.topic(TAGGED, 1);
    (0..50).for_each(|_| world.send(TAGGED, "BB"));
    world.join(rules(Kind::Concurrent, 0), &[TAGGED]);
    world.run(8000);
    assert!(world.ledger.consumed.is_empty());
    assert_eq!(world.committed(TAGGED), world.ends(TAGGED));
    world.send(TAGGED, "Aa");
    world.run(1000);
    assert_eq!(world.ledger.consumed.len(), 1);
}

#[test]
fn f1_f15_an_offset_below_the_first_moves_up_and_goes_on() {
    let mut world = World::new(4, 1);
    world.topic("t", 1);
    (0..10).for_each(|_| world.send("t", ""));
    let queue = world.brokers[0]
        .queues
        .get_mut(&("t".to_owned(), 0))
        .unwrap();
    queue.records.drain(..6);
    queue.min = 6;
    world.ledger.lenient = true;
    world.join(rules(Kind::Concurrent, 0), &["t"]);
    world.run(8000);
    world.assert_consumed("t", true);
    assert_eq!(world.committed("t"), world.ends("t"));
    assert!(world.brokers[0].pulls < 10);
}

#[test]
fn an_offset_beyond_the_end_moves_back_and_goes_on() {
    let mut world = World::new(4, 1);
    world.topic("t", 1);
    world.brokers[0]
        .offsets
        .insert((GROUP.into(), "t".into(), 0), 500);
    (0..10).for_each(|_| world.send("t", ""));
    world.ledger.lenient = true;
    world.join(rules(Kind::Concurrent, 0), &["t"]);
    world.run(4000);
    assert_eq!(world.committed("t"), world.ends("t"));
    world.send("t", "");
    world.run(8000);
    assert_eq!(world.ledger.consumed.len(), 1);
    assert_eq!(world.committed("t"), world.ends("t"));
}

/// The start is found once and stored before the first pull: messages that come between,
/// also those that come while the consumer is down again, are consumed.
#[test]
fn f16_a_new_group_begins_at_one_place_only() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        for seed in 0..20 {
            let mut world = World::new(seed, 1);
            world.topic("t", 1);
            (0..5).for_each(|_| world.send("t", ""));
            let mut from_last = rules(kind, 0);
            from_last.from = ConsumeFromWhere::LastOffset;
            world.ledger.lenient = true;
            world.join(from_last.clone(), &["t"]);
            let mut asked = 0;
            for _ in 0..2000 {
                world.run(1);
                let max = world.requests.get(&30).copied().unwrap_or(0);
                if max > asked {
                    asked = max;
                    // As soon as it was asked.
                    world.run(10);
                    (0..3).for_each(|_| world.send("t", ""));
                }
            }
            assert_eq!(asked, 1, "the end is asked for once");
            world.crash(0);
            world.send("t", "");
            world.run(1000);
            from_last.client_id = "10.0.0.9@1".into();
            world.join(from_last, &["t"]);
            world.run(10_000);
            assert_eq!(world.ledger.consumed.len(), 4, "{kind:?} {seed}");
        }
    }
}

#[test]
fn g3_a_subscription_that_the_broker_does_not_know_yet_is_no_error() {
    let mut world = started(Kind::Concurrent, 5);
    world.run(2000);
    let own = world.clients[0]
        .consumer
        .owned
        .keys()
        .next()
        .unwrap()
        .clone();
    let call = *world.clients[0]
        .consumer
        .asks
        .iter()
        .find(|(_, ask)| matches!(ask, super::super::Ask::Queue { queue, .. } if *queue == own))
        .unwrap()
        .0;
    let beats = world.clients[0].heartbeats;
    let now = world.now;
    let answer = Ok(Response::error(25, "not latest"));
    world.clients[0].consumer.answered(now, call, answer);
    world.drain(0);
    assert!(world.clients[0].heartbeats > beats);
    world.run(1500);
    assert!(world.clients[0].faults.is_empty());
    (0..20).for_each(|_| world.send("t", ""));
    world.run(1000);
    world.assert_consumed("t", true);
}

#[test]
fn g4_a_broker_that_comes_back_empty_has_every_queue_owned_soon() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        let mut world = World::new(6, 1);
        world.topic("t", 4);
        world.join(rules(kind, 0), &["t"]);
        world.join(rules(kind, 1), &["t"]);
        world.run(5000);
        // It forgets all members and locks, and no one tells it who is there.
        world.brokers[0].members.clear();
        for client in ["10.0.0.0@1", "10.0.0.1@1"] {
            world.brokers[0].forget(GROUP, client);
        }
        world.run(30_000);
        let active: usize = world
            .clients
            .iter()
            .map(|c| c.consumer.assignment().len())
            .sum();
        assert_eq!(active, 4 + 1, "four queues and the one of the retry topic");
        (0..40).for_each(|_| world.send("t", ""));
        world.run(3000);
        world.assert_consumed("t", kind == Kind::Concurrent);
    }
}

#[test]
fn g7_the_first_orderly_message_does_not_wait_for_a_turn() {
    let mut world = started(Kind::Orderly, 7);
    (0..40).for_each(|_| world.send("t", ""));
    world.run(1500);
    world.assert_consumed("t", true);
    // A second member gets its share at once, too.
    world.join(rules(Kind::Orderly, 1), &["t"]);
    world.run(2000);
    assert_eq!(world.clients[1].assigned[&Arc::from("t")].len(), 2);
    world.strict_order = true;
    (0..40).for_each(|_| world.send("t", ""));
    world.run(2000);
    world.assert_consumed("t", true);
}

#[test]
fn g9_orderly_broadcasting_needs_no_locks() {
    let mut world = World::new(8, 1);
    world.topic("t", 2);
    for client in 0..2 {
        let mut rules = rules(Kind::Orderly, client);
        rules.broadcast = true;
        world.join(rules, &["t"]);
    }
    (0..30).for_each(|_| world.send("t", ""));
    world.run(3000);
    assert!(!world.requests.contains_key(&41));
    assert!(world.ledger.consumed.values().all(|&count| count == 2));
    assert_eq!(world.ledger.consumed.len(), 30);
}

#[test]
fn g10_a_listener_that_takes_ten_minutes_keeps_its_queue() {
    let mut world = started(Kind::Orderly, 9);
    world.strict_order = true;
    world.work_ms = (600_000, 1);
    world.send_to(0, "t", 0, "");
    world.run(2000);
    world.work_ms = (1, 1);
    world.join(rules(Kind::Orderly, 1), &["t"]);
    world.join(rules(Kind::Orderly, 2), &["t"]);
    world.send_to(0, "t", 0, "");
    // The world asserts at each delivery that the lock is held and nothing else in hand.
    world.run(590_000);
    assert_eq!(world.ledger.consumed.len(), 0);
    world.run(20_000);
    world.assert_consumed("t", true);
}

#[test]
fn a_failed_message_comes_again_by_the_retry_topic_until_it_is_dead() {
    let mut world = World::new(10, 1);
    world.topic("t", 1);
    let mut limited = rules(Kind::Concurrent, 0);
    limited.max_reconsume_times = 3;
    world.join(limited, &["t"]);
    let times = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = times.clone();
    world.listener = Box::new(move |_, batch| {
        let message = &batch.messages[0];
        assert_eq!(message.topic(), "t", "the topic is put back");
        seen.borrow_mut().push(message.reconsume_times);
        Some(Outcome::ReconsumeLater { delay_level: 0 })
    });
    world.send("t", "");
    world.run(60_000);
    assert_eq!(*times.borrow(), [0, 1, 2, 3]);
    assert_eq!(world.ledger.dead.len(), 1);
    assert_eq!(world.committed("t"), world.ends("t"));
}

#[test]
fn where_sending_back_fails_it_is_sent_or_tried_here() {
    let mut world = World::new(11, 1);
    world.topic("t", 1);
    world.join(rules(Kind::Concurrent, 0), &["t"]);
    world.brokers[0].refuse_back = true;
    let times = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = times.clone();
    world.listener = Box::new(move |_, batch| {
        seen.borrow_mut().push(batch.messages[0].reconsume_times);
        Some(Outcome::Failed { what: "no".into() })
    });
    world.send("t", "");
    world.run(12_000);
    assert_eq!(*times.borrow(), [0, 1, 2], "every 5 s, each counted");
    assert_eq!(
        world.committed("t").values().copied().collect::<Vec<_>>(),
        [0]
    );
    world.brokers[0].refuse_back = false;
    world.listener = Box::new(|_, batch| {
        let again = batch.messages[0].queue.topic.starts_with("%RETRY%");
        Some(if again {
            SUCCESS
        } else {
            Outcome::ReconsumeLater { delay_level: 0 }
        })
    });
    world.run(20_000);
    world.assert_consumed("t", true);
    assert_eq!(world.committed("t"), world.ends("t"));
}

#[test]
fn of_a_batch_those_behind_the_index_come_again() {
    let mut world = World::new(12, 1);
    world.topic("t", 1);
    (0..8).for_each(|_| world.send("t", ""));
    let mut batches = rules(Kind::Concurrent, 0);
    batches.batch_max = 8;
    world.join(batches, &["t"]);
    world.listener = Box::new(|_, batch| {
        let whole = batch.messages.len() == 8;
        Some(Outcome::Success {
            ack_index: whole.then_some(4),
        })
    });
    world.run(20_000);
    world.assert_consumed("t", true);
    assert_eq!(world.requests[&36], 3);
}

#[test]
fn what_a_listener_never_finishes_is_given_to_others_after_its_time() {
    let mut world = World::new(13, 1);
    world.topic("t", 1);
    let mut quick = rules(Kind::Concurrent, 0);
    quick.consume_timeout_ms = 60_000;
    world.join(quick, &["t"]);
    world.listener = Box::new(|_, batch| {
        let again = batch.messages[0].queue.topic.starts_with("%RETRY%");
        again.then_some(SUCCESS)
    });
    world.send("t", "");
    world.run(59_000);
    assert!(world.ledger.consumed.is_empty());
    world.run(80_000);
    world.assert_consumed("t", true);
    assert_eq!(world.committed("t"), world.ends("t"));
    // What the listener says at last is void.
    let (delivery, _) = world.clients[0].in_hand.pop_first().unwrap();
    let now = world.now;
    let outcome = Outcome::ReconsumeLater { delay_level: 0 };
    world.clients[0].consumer.consumed(now, delivery, outcome);
    world.drain(0);
    world.run(10_000);
    assert_eq!(world.requests[&36], 1);
}

#[test]
fn an_orderly_queue_pauses_and_the_same_message_comes_again() {
    let mut world = World::new(14, 1);
    world.topic("t", 1);
    let mut limited = rules(Kind::Orderly, 0);
    limited.max_reconsume_times = 2;
    world.join(limited, &["t"]);
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let log = seen.clone();
    world.listener = Box::new(move |_, batch| {
        let message = &batch.messages[0];
        log.borrow_mut()
            .push((message.queue_offset, message.reconsume_times));
        let bad = message.queue_offset == 1;
        Some(if bad {
            Outcome::SuspendCurrentQueue { pause_ms: None }
        } else {
            SUCCESS
        })
    });
    (0..3).for_each(|_| world.send("t", ""));
    world.run(20_000);
    assert_eq!(*seen.borrow(), [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]);
    assert_eq!(world.ledger.dead.len(), 1, "given up after its tries");
    assert_eq!(world.committed("t"), world.ends("t"));
}

#[test]
fn orderly_without_automatic_commit_commits_and_rolls_back_what_was_kept() {
    let mut world = World::new(15, 1);
    world.topic("t", 1);
    world.join(rules(Kind::Orderly, 0), &["t"]);
    world.ledger.lenient = true;
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let log = seen.clone();
    world.listener = Box::new(move |_, batch| {
        let offset = batch.messages[0].queue_offset;
        log.borrow_mut().push(offset);
        let first = log.borrow().iter().filter(|&&o| o == 2).count() == 1;
        Some(match offset {
            2 if first => Outcome::Rollback,
            4 => Outcome::Commit,
            _ => Outcome::SuccessUncommitted,
        })
    });
    (0..6).for_each(|_| world.send("t", ""));
    world.run(20_000);
    assert_eq!(*seen.borrow(), [0, 1, 2, 0, 1, 2, 3, 4, 5]);
    assert_eq!(world.committed("t").into_values().collect::<Vec<_>>(), [5]);
}

#[test]
fn thresholds_hold_when_listeners_do_nothing() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        let mut world = World::new(16, 1);
        world.topic("t", 2);
        (0..5000).for_each(|_| world.send("t", ""));
        world.join(rules(kind, 0), &["t"]);
        world.listener = Box::new(|_, _| None);
        world.run(120_000);
        let held = world.clients[0].consumer.held();
        assert!((2000..2200).contains(&held), "{held}");
        assert!(world.clients[0].consumer.counts().flow_control > 0);
        let pulls = world.brokers[0].pulls;
        world.run(120_000);
        assert!(
            world.brokers[0].pulls - pulls < 40,
            "the retry queue's only"
        );
    }
}

#[test]
fn one_slow_message_slows_its_queue_and_does_not_stop_it() {
    let mut world = World::new(17, 1);
    world.topic("t", 1);
    (0..4000).for_each(|_| world.send("t", ""));
    world.join(rules(Kind::Concurrent, 0), &["t"]);
    world.listener = Box::new(|_, batch| (batch.messages[0].queue_offset != 0).then_some(SUCCESS));
    world.run(60_000);
    assert_eq!(world.ledger.consumed.len(), 3999);
    assert_eq!(world.committed("t").into_values().collect::<Vec<_>>(), [0]);
    assert!(world.clients[0].consumer.counts().flow_control > 10);
}

#[test]
fn a_broker_that_never_holds_a_pull_is_not_hammered() {
    let mut world = World::new(18, 1);
    world.topic("t", 1);
    world.brokers[0].never_holds = true;
    world.join(rules(Kind::Concurrent, 0), &["t"]);
    world.run(60_000);
    assert!(world.brokers[0].pulls < 200, "{}", world.brokers[0].pulls);
    world.send("t", "");
    world.run(1500);
    world.assert_consumed("t", true);
}

#[test]
fn a_graceful_stop_finishes_what_is_in_hand_and_commits_it() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        let mut world = World::new(19, 1);
        world.topic("t", 4);
        world.join(rules(kind, 0), &["t"]);
        (0..400).for_each(|_| world.send("t", ""));
        world.work_ms = (500, 100);
        world.run(2000);
        let hand = world.clients[0].in_hand.len();
        assert!(hand > 0);
        world.leave(0, 10_000);
        let before: usize = world.ledger.consumed.len();
        world.run(2000);
        assert!(world.clients[0].stopped && world.clients[0].in_hand.is_empty());
        assert_eq!(world.clients[0].lost, None);
        assert_eq!(world.ledger.consumed.len(), before + hand);
        for queue in 0..4 {
            let owner = world.brokers[0].lock_owner(GROUP, "t", queue, world.now);
            assert_eq!(owner, None);
        }
        // The next one consumes exactly the rest.
        world.work_ms = (1, 1);
        world.join(rules(kind, 1), &["t"]);
        world.run(5000);
        world.assert_consumed("t", kind == Kind::Orderly || hand == 0);
    }
}

#[test]
fn a_stop_does_not_wait_longer_than_it_may() {
    let mut world = started(Kind::Orderly, 20);
    world.listener = Box::new(|_, _| None);
    (0..40).for_each(|_| world.send("t", ""));
    world.run(3000);
    world.leave(0, 5000);
    world.run(4000);
    assert!(!world.clients[0].stopped);
    world.run(1100);
    assert!(world.clients[0].stopped);
    assert_eq!(
        world.committed("t").into_values().collect::<Vec<_>>(),
        [0, 0, 0, 0]
    );
}

#[test]
fn broadcasting_offsets_are_in_a_file_and_go_on_after_a_restart() {
    let mut world = World::new(21, 1);
    world.topic("t", 2);
    let mut broadcast = rules(Kind::Concurrent, 0);
    broadcast.broadcast = true;
    broadcast.file_id = "10.0.0.0@DEFAULT".into();
    world.join(broadcast.clone(), &["t"]);
    (0..30).for_each(|_| world.send("t", ""));
    world.run(12_000);
    let path = "10.0.0.0@DEFAULT/g/offsets.json";
    assert!(world.files.contains_key(path), "{:?}", world.files.keys());
    (0..5).for_each(|_| world.send("t", ""));
    world.run(100);
    world.leave(0, 1000);
    world.run(2000);
    assert!(world.clients[0].stopped);
    assert!(world.files.contains_key(&format!("{path}.bak")));
    // A garbled file is answered by the other, and told.
    world.files.insert(path.to_owned(), b"\0\0".to_vec());
    world.join(broadcast, &["t"]);
    world.send("t", "");
    world.run(6000);
    let faults = &world.clients[1].faults;
    assert!(faults[0].to_string().contains("offsets.json"), "{faults:?}");
    let twice = world
        .ledger
        .consumed
        .values()
        .filter(|&&count| count > 1)
        .count();
    assert!(
        twice <= 5,
        "what the backup does not say is consumed again, no more: {twice}"
    );
    assert_eq!(world.ledger.consumed.len(), 36);
}

#[test]
fn a_full_disk_is_told_by_name_and_loses_no_consumption() {
    let mut world = World::new(22, 1);
    world.topic("t", 2);
    let mut broadcast = rules(Kind::Concurrent, 0);
    broadcast.broadcast = true;
    world.full_disk = true;
    world.join(broadcast, &["t"]);
    for _ in 0..10 {
        (0..3).for_each(|_| world.send("t", ""));
        world.run(2000);
    }
    assert_eq!(world.ledger.consumed.len(), 30);
    let faults = &world.clients[0].faults;
    assert!((1..8).contains(&faults.len()), "once a turn: {faults:?}");
    let text = faults[0].to_string();
    assert!(
        text.contains("offsets.json") && text.contains("no space"),
        "{text}"
    );
    world.full_disk = false;
    world.run(6000);
    assert_eq!(world.files.len(), 1);
    world.full_disk = true;
    world.send("t", "");
    world.run(100);
    world.leave(0, 1000);
    world.run(1000);
    assert!(world.clients[0].stopped, "a stop does not hang on it");
    let lost = world.clients[0].lost.clone().expect("a loss").to_string();
    assert!(
        lost.contains("offsets.json") && lost.contains("no space"),
        "{lost}"
    );
}

/// Of offsets that a broker refuses, and of those that it does not answer.
#[test]
fn a_stop_says_which_offsets_are_not_stored() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        for refuses in [true, false] {
            let mut world = started(kind, 24);
            world.run(2000);
            world.brokers[0].refuse_commits = refuses;
            if !refuses {
                world.faults.lost = 100;
            }
            world.send_to(0, "t", 1, "");
            world.run(500);
            world.leave(0, 6000);
            world.run(6010);
            let client = &world.clients[0];
            assert!(client.stopped);
            // In the end it is told once more, and nobody says whether it got there.
            let committed = world.committed("t")[&("broker-0".into(), 1)];
            assert_eq!(committed, i64::from(!refuses));
            let lost = client.lost.clone().expect("a loss");
            let what = if refuses {
                "no offsets today"
            } else {
                "no answer within"
            };
            let text = lost.to_string();
            assert!(text.contains(what) && text.contains("group g"), "{text}");
            assert_eq!(lost.place().queue_id, Some(1));
            assert!(client.faults.contains(&lost), "it is told as well");
        }
    }
}

/// Brokers of RocketMQ name such an id once for each connection.
#[test]
fn two_members_with_one_client_id_get_the_same_queues_and_it_is_told() {
    for kind in [Kind::Concurrent, Kind::Polled] {
        let mut world = World::new(25, 1);
        world.topic("t", 4);
        world.brokers[0].lists_twice = true;
        (0..2).for_each(|_| {
            world.join(rules(kind, 0), &["t"]);
        });
        world.run(60_000);
        let mine = |client: usize| world.clients[client].consumer.assignment();
        assert_eq!(mine(0), mine(1));
        assert!(mine(0).len() >= 4);
        for client in &world.clients {
            let told = client.faults.iter().map(ToString::to_string);
            let told: Vec<_> = told.filter(|text| text.contains("10.0.0.0@1")).collect();
            assert_eq!(told.len(), 1, "once: {told:?}");
            assert!(
                told[0].starts_with("2 members have the client id"),
                "{told:?}"
            );
        }
    }
}

#[test]
fn a_message_without_a_body_is_a_message() {
    for kind in [Kind::Concurrent, Kind::Orderly] {
        let mut world = World::new(26, 1);
        world.topic("t", 1);
        world.join(rules(kind, 0), &["t"]);
        world.brokers[0].put("t", 0, 0, b"", b"");
        world.send("t", "");
        world.run(8000);
        assert_eq!(world.ledger.consumed[&b""[..]], 1);
        world.assert_consumed("t", true);
        assert_eq!(world.committed("t"), world.ends("t"));
    }
}

#[test]
fn a_lookup_is_answered_or_says_why_not() {
    let mut world = started(Kind::Concurrent, 23);
    (0..9).for_each(|_| world.send_to(0, "t", 1, ""));
    world.run(2000);
    let queue = MessageQueue::new("t", "broker-0", 1);
    let which = OffsetOf::Max;
    let ticket = world.call(
        0,
        ConsumerCall::Offset {
            queue: queue.clone(),
            which,
        },
    );
    world.run(10);
    assert_eq!(world.clients[0].done[&ticket], Ok(Answer::Offset(Some(9))));
    world.faults.lost = 100;
    let ticket = world.call(0, ConsumerCall::Offset { queue, which });
    world.run(6000);
    let error = world.clients[0].done[&ticket].clone().unwrap_err();
    let text = error.to_string();
    assert!(
        error.is_retryable() && text.contains("broker-0") && text.contains("group g"),
        "{text}"
    );
}
