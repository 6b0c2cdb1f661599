//! Which member of a group consumes which queues (`AllocateMessageQueueStrategy`).
//!
//! Every member computes this for itself from the same two lists, so all must compute
//! the same: Java and Rust members of one group agree because order, arithmetic and
//! hashes here are those of the Java classes named below.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::MessageQueue;
use super::md5::md5;
use crate::client::settings::AllocateStrategy;

/// Virtual nodes a member has on the ring unless set otherwise
/// (`AllocateMessageQueueConsistentHash`).
pub const VIRTUAL_NODES: u32 = 10;

/// How the queues of a topic are shared out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Neighbouring queues to one member; the first members get one more
    /// (`AllocateMessageQueueAveragely`).
    Averagely,
    /// Like cards, one after the other (`AllocateMessageQueueAveragelyByCircle`).
    AveragelyByCircle,
    /// By a ring of hashes: few queues move when members come and go
    /// (`AllocateMessageQueueConsistentHash`).
    ConsistentHash {
        /// Points of each member on the ring.
        virtual_nodes: u32,
    },
    /// Those named here, whoever else is there (`AllocateMessageQueueByConfig`).
    ByConfiguration(Vec<MessageQueue>),
    /// Averagely among the queues of brokers named `room@broker` for one of these rooms;
    /// no one gets the others (`AllocateMessageQueueByMachineRoom`).
    MachineRoom(BTreeSet<String>),
}

impl From<&AllocateStrategy> for Allocation {
    fn from(strategy: &AllocateStrategy) -> Allocation {
        match strategy {
            AllocateStrategy::Averagely => Allocation::Averagely,
            AllocateStrategy::AveragelyByCircle => Allocation::AveragelyByCircle,
            &AllocateStrategy::ConsistentHash { virtual_nodes } => {
                Allocation::ConsistentHash { virtual_nodes }
            }
            AllocateStrategy::ByConfiguration(queues) => {
                Allocation::ByConfiguration(queues.clone())
            }
        }
    }
}

impl Allocation {
    /// The name under which RocketMQ knows it.
    pub fn name(&self) -> &'static str {
        match self {
            Allocation::Averagely => "AVG",
            Allocation::AveragelyByCircle => "AVG_BY_CIRCLE",
            Allocation::ConsistentHash { .. } => "CONSISTENT_HASH",
            Allocation::ByConfiguration(_) => "CONFIG",
            Allocation::MachineRoom(_) => "MACHINE_ROOM",
        }
    }

    /// The queues of `me`: both lists may come in any order and with repetitions.
    /// Nothing for one who is no member.
    pub fn allocate(
        &self,
        me: &str,
        queues: &[MessageQueue],
        members: &[String],
    ) -> Vec<MessageQueue> {
        let mut queues = queues.to_vec();
        queues.sort_by(queue_order);
        queues.dedup();
        let mut members = members.to_vec();
        members.sort_by(|a, b| java_order(a, b));
        members.dedup();
        let Some(index) = members.iter().position(|member| member == me) else {
            return Vec::new();
        };
        let count = members.len();
        match self {
            Allocation::Averagely => {
                let (size, rest) = (queues.len() / count, queues.len() % count);
                let start = index * size + index.min(rest);
                let end = start + size + usize::from(index < rest);
                queues[start..end].to_vec()
            }
            Allocation::AveragelyByCircle => {
                queues.into_iter().skip(index).step_by(count).collect()
            }
            Allocation::ConsistentHash { virtual_nodes } => {
                let ring = Ring::new(&members, *virtual_nodes);
                queues.retain(|queue| ring.owner(queue) == Some(index));
                queues
            }
            Allocation::ByConfiguration(mine) => {
                queues.retain(|queue| mine.contains(queue));
                queues
            }
            Allocation::MachineRoom(rooms) => {
                queues.retain(|queue| {
                    let mut parts = queue.broker_name.split('@');
                    let (room, broker) = (parts.next(), parts.next());
                    broker.is_some()
                        && parts.next().is_none()
                        && room.is_some_and(|room| rooms.contains(room))
                });
                // The rest goes to the first members, one each, from the end of the list.
                let (size, rest) = (queues.len() / count, queues.len() % count);
                let mut mine = queues[index * size..(index + 1) * size].to_vec();
                if index < rest {
                    mine.push(queues[index + size * count].clone());
                }
                mine
            }
        }
    }
}

/// Hashes of the members' points, and whose they are.
struct Ring(BTreeMap<u32, usize>);

impl Ring {
    fn new(members: &[String], virtual_nodes: u32) -> Ring {
        let mut ring = BTreeMap::new();
        for (index, member) in members.iter().enumerate() {
            for node in 0..virtual_nodes {
                ring.insert(hash(&format!("{member}-{node}")), index);
            }
        }
        Ring(ring)
    }

    fn owner(&self, queue: &MessageQueue) -> Option<usize> {
        // As Java prints a MessageQueue.
        let key = hash(&format!(
            "MessageQueue [topic={}, brokerName={}, queueId={}]",
            queue.topic, queue.broker_name, queue.queue_id
        ));
        let next = self.0.range(key..).next().or_else(|| self.0.iter().next());
        next.map(|(_, &member)| member)
    }
}

/// The first four bytes of the digest (`ConsistentHashRouter.MD5Hash`).
fn hash(text: &str) -> u32 {
    let digest = md5(text.as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// Queues in the order of `MessageQueue.compareTo`.
pub fn queue_order(a: &MessageQueue, b: &MessageQueue) -> Ordering {
    java_order(&a.topic, &b.topic)
        .then_with(|| java_order(&a.broker_name, &b.broker_name))
        .then_with(|| a.queue_id.cmp(&b.queue_id))
}

/// Text in the order of `String.compareTo`: by UTF-16 units, which is not the order of
/// UTF-8 beyond the first plane.
fn java_order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        a.cmp(b)
    } else {
        a.encode_utf16().cmp(b.encode_utf16())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(broker: &str, queue_id: i32) -> MessageQueue {
        MessageQueue {
            topic: "topic_test".into(),
            broker_name: broker.into(),
            queue_id,
        }
    }

    fn two_brokers() -> Vec<MessageQueue> {
        let a = (0..8).map(|id| queue("broker-a", id));
        a.chain((0..4).map(|id| queue("broker-b", id))).collect()
    }

    fn texts(members: &[&str]) -> Vec<String> {
        members.iter().map(|&member| member.to_owned()).collect()
    }

    /// The index of each queue's owner among the sorted members.
    fn owners(how: &Allocation, queues: &[MessageQueue], members: &[String]) -> Vec<Vec<usize>> {
        let mut owners = vec![Vec::new(); queues.len()];
        for (index, member) in members.iter().enumerate() {
            for mine in how.allocate(member, queues, members) {
                let at = queues.iter().position(|queue| *queue == mine).unwrap();
                owners[at].push(index);
            }
        }
        owners
    }

    /// The lists on the right were printed by the classes of Apache RocketMQ 5.5.0.
    #[test]
    fn agrees_with_the_java_classes() {
        let members = texts(&[
            "10.0.0.10@7",
            "10.0.0.1@101",
            "10.0.0.2@102",
            "10.0.0.2@102#9",
            "10.0.0.3@103",
        ]);
        let hashed = |virtual_nodes| Allocation::ConsistentHash { virtual_nodes };
        let printed = [
            (Allocation::Averagely, [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4]),
            (
                Allocation::AveragelyByCircle,
                [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1],
            ),
            (hashed(VIRTUAL_NODES), [0, 2, 2, 0, 4, 2, 2, 2, 0, 4, 3, 1]),
            (hashed(3), [0, 3, 3, 1, 3, 2, 3, 3, 0, 4, 3, 1]),
        ];
        for (how, expected) in printed {
            let expected: Vec<Vec<usize>> = expected.iter().map(|&owner| vec![owner]).collect();
            assert_eq!(owners(&how, &two_brokers(), &members), expected, "{how:?}");
        }
    }

    #[test]
    fn one_who_is_no_member_gets_nothing() {
        let members = texts(&["a", "b"]);
        for how in [
            Allocation::Averagely,
            Allocation::AveragelyByCircle,
            Allocation::ConsistentHash { virtual_nodes: 10 },
        ] {
            assert!(how.allocate("c", &two_brokers(), &members).is_empty());
            assert!(how.allocate("c", &two_brokers(), &[]).is_empty());
        }
    }

    #[test]
    fn configuration_names_what_exists_only() {
        let how = Allocation::ByConfiguration(vec![queue("broker-b", 1), queue("broker-z", 0)]);
        let mine = how.allocate("a", &two_brokers(), &texts(&["a", "b"]));
        assert_eq!(mine, [queue("broker-b", 1)]);
    }

    #[test]
    fn rooms_are_before_the_at_sign() {
        let how = Allocation::MachineRoom(BTreeSet::from(["east".to_owned()]));
        let mut queues: Vec<_> = (0..5).map(|id| queue("east@b", id)).collect();
        queues.extend([queue("west@b", 0), queue("b", 0), queue("east@b@c", 0)]);
        let members = texts(&["a", "b"]);
        let ids = |me| {
            let mine = how.allocate(me, &queues, &members);
            mine.iter().map(|queue| queue.queue_id).collect::<Vec<_>>()
        };
        assert_eq!((ids("a"), ids("b")), (vec![0, 1, 4], vec![2, 3]));
    }

    proptest! {
        #[test]
        fn every_queue_has_exactly_one_owner(
            names in proptest::collection::vec(("[a-c😀日]{1,2}", -1i32..40), 0..60),
            members in proptest::collection::vec("[a-z0-9@.#😀日\u{ffee}]{1,12}", 1..12),
            virtual_nodes in 1u32..12,
            seed: u64,
        ) {
            let queues: Vec<_> = names.iter().map(|(broker, id)| queue(broker, *id)).collect();
            let distinct: BTreeSet<_> = queues.iter().cloned().collect();
            let mut shuffled = members.clone();
            shuffled.rotate_left(seed as usize % members.len());
            let mut turned = queues.clone();
            turned.reverse();
            for how in [
                Allocation::Averagely,
                Allocation::AveragelyByCircle,
                Allocation::ConsistentHash { virtual_nodes },
            ] {
                let mut owned = Vec::new();
                for member in members.iter().collect::<BTreeSet<_>>() {
                    let mine = how.allocate(member, &queues, &members);
                    prop_assert_eq!(&mine, &how.allocate(member, &turned, &shuffled));
                    owned.extend(mine);
                }
                let count = owned.len();
                let owned: BTreeSet<_> = owned.into_iter().collect();
                prop_assert_eq!(count, owned.len(), "{:?}: two owners", &how);
                prop_assert_eq!(&owned, &distinct, "{:?}", &how);
            }
        }

        #[test]
        fn shares_differ_by_one_at_most(queues in 0i32..100, members in 1usize..20) {
            let queues: Vec<_> = (0..queues).map(|id| queue("b", id)).collect();
            let members: Vec<_> = (0..members).map(|n| format!("m{n}")).collect();
            for how in [Allocation::Averagely, Allocation::AveragelyByCircle] {
                let sizes = members.iter().map(|me| how.allocate(me, &queues, &members).len());
                let sizes: Vec<_> = sizes.collect();
                let spread = sizes.iter().max().unwrap() - sizes.iter().min().unwrap();
                prop_assert!(spread <= 1, "{:?}: {:?}", how, sizes);
            }
        }
    }
}
