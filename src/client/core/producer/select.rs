//! Which queue a message goes to (`TopicPublishInfo`, `MQFaultStrategy`).

use super::fault::Faults;
use crate::client::core::routes::PublishQueue;

/// The queue in turn, by its index. `cursor` is the turn, kept by producer and topic.
/// `last` is the broker at which the try before failed: another one is taken where there
/// is one. Of brokers without a master none is taken: an ordered topic keeps the queues of
/// those that are away.
///
/// With fault avoidance on, brokers that are available come first, then those that are
/// reachable, then any: a topic whose brokers are all to be avoided is sent to all the same.
pub fn select(
    queues: &[PublishQueue],
    cursor: &mut u32,
    last: Option<u32>,
    faults: &Faults,
    now: u64,
    has_master: impl Fn(u32) -> bool,
) -> Option<usize> {
    let any = |queue: &PublishQueue| has_master(queue.broker);
    let other = |queue: &PublishQueue| last != Some(queue.broker) && any(queue);
    if faults.is_enabled() {
        let available =
            |queue: &PublishQueue| other(queue) && faults.is_available(queue.broker, now);
        if let Some(index) = next(queues, cursor, available) {
            return Some(index);
        }
        let reachable = |queue: &PublishQueue| other(queue) && faults.is_reachable(queue.broker);
        if let Some(index) = next(queues, cursor, reachable) {
            return Some(index);
        }
    } else if let Some(index) = next(queues, cursor, other) {
        return Some(index);
    }
    next(queues, cursor, any)
}

/// The next queue in turn that will do.
fn next(
    queues: &[PublishQueue],
    cursor: &mut u32,
    will_do: impl Fn(&PublishQueue) -> bool,
) -> Option<usize> {
    for _ in 0..queues.len() {
        let index = *cursor as usize % queues.len();
        *cursor = if index + 1 == queues.len() {
            0
        } else {
            index as u32 + 1
        };
        if will_do(&queues[index]) {
            return Some(index);
        }
    }
    None
}

/// The queue of a hash, as `SelectMessageQueueByHash` picks it.
pub fn by_hash(queues: usize, hash: i32) -> Option<usize> {
    if queues == 0 {
        return None;
    }
    Some((i64::from(hash) % queues as i64).unsigned_abs() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queues(brokers: &[u32]) -> Vec<PublishQueue> {
        let ids = brokers.iter().enumerate();
        ids.map(|(id, &broker)| PublishQueue {
            broker,
            queue_id: id as i32,
        })
        .collect()
    }

    #[test]
    fn queues_take_turns() {
        let (queues, faults) = (queues(&[0, 0, 1]), Faults::off());
        let mut cursor = 0;
        let picked: Vec<_> = (0..6)
            .map(|_| select(&queues, &mut cursor, None, &faults, 0, |_| true).unwrap())
            .collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
        assert_eq!(select(&[], &mut cursor, None, &faults, 0, |_| true), None);
    }

    #[test]
    fn the_broker_that_failed_is_passed_over_unless_it_is_the_only_one() {
        let faults = Faults::off();
        let mut cursor = 0;
        let two = queues(&[0, 0, 1]);
        assert_eq!(
            select(&two, &mut cursor, Some(0), &faults, 0, |_| true),
            Some(2)
        );
        let one = queues(&[0, 0]);
        assert!(select(&one, &mut cursor, Some(0), &faults, 0, |_| true).is_some());
    }

    #[test]
    fn hashes_are_shared_out_as_in_java() {
        assert_eq!(by_hash(4, -7), Some(3));
        assert_eq!(by_hash(4, 7), Some(3));
        assert_eq!(by_hash(3, i32::MIN), Some(2));
        assert_eq!(by_hash(0, 1), None);
    }

    proptest! {
        #[test]
        fn a_queue_is_always_found_and_every_queue_has_its_turn(
            brokers in prop::collection::vec(0u32..4, 1..20), cursor: u32,
        ) {
            let (queues, faults) = (queues(&brokers), Faults::off());
            let mut cursor = cursor;
            let mut seen = vec![0; queues.len()];
            for _ in 0..queues.len() * 3 {
                seen[select(&queues, &mut cursor, None, &faults, 0, |_| true).unwrap()] += 1;
            }
            prop_assert!(seen.iter().all(|&times| times == 3));
        }
    }
}
