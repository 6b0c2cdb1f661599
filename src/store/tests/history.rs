//! Random histories of a store: lives, and what happens between them.

use std::sync::Arc;

use proptest::prelude::*;

use super::damage::{self, Damage};
use super::life::{Checked, End, Marks, Op, live};
use super::model::{Model, QUEUES};
use super::{Place, config, raw};
use crate::store::{AckLevel, Disk, ShardId};

/// One life, and what comes after it.
#[derive(Clone, Debug)]
struct Chapter {
    ops: Vec<Op>,
    end: End,
    damage: Damage,
}

fn body() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..2000,
        2 => 0usize..70_000,
        1 => 0usize..200 * 1024,
        1 => Just(0usize),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let queue = 0..QUEUES.len();
    prop_oneof![
        6 => (queue.clone(), prop::collection::vec(body(), 1..5))
            .prop_map(|(queue, bodies)| Op::Append { queue, bodies }),
        3 => (queue.clone(), 1usize..230, 0usize..60)
            .prop_map(|(queue, count, body)| Op::Burst { queue, count, body }),
        2 => (queue.clone(), 1usize..10, 40_000usize..200_000)
            .prop_map(|(queue, count, body)| Op::Burst { queue, count, body }),
        3 => (queue.clone(), any::<u16>(), 1usize..40)
            .prop_map(|(queue, from, max)| Op::Read { queue, from, max }),
        2 => (0u64..50).prop_map(Op::Sleep),
        1 => Just(Op::Sleep(270)),
        1 => Just(Op::AwaitDurable),
        1 => (0..4usize).prop_map(|queue| Op::RemoveTopic { queue }),
    ]
}

fn chapter() -> impl Strategy<Value = Chapter> {
    let end = prop_oneof![Just(End::Close), Just(End::Kill), Just(End::Kill)];
    let damage = prop_oneof![
        3 => Just(Damage::None),
        1 => Just(Damage::Checkpoint),
        1 => Just(Damage::QueueFiles),
        1 => Just(Damage::QueueFilesAndCheckpoint),
        1 => Just(Damage::Tail),
        1 => Just(Damage::Index),
        1 => Just(Damage::IndexAndCheckpoint),
        3 => Just(Damage::PowerLoss),
    ];
    (prop::collection::vec(op(), 0..12), end, damage).prop_map(|(ops, end, damage)| Chapter {
        ops,
        end,
        damage,
    })
}

fn tell(place: &Place, chapters: &[Chapter], seed: u64) -> Checked {
    let mut model = Model::default();
    let mut floor = 0;
    for (number, chapter) in chapters.iter().enumerate() {
        let seed = seed.wrapping_add(number as u64);
        let named = |fault| format!("life {number}: {fault}");
        let marks: Marks;
        (model, marks) =
            live(place, model, floor, &chapter.ops, chapter.end, seed).map_err(named)?;
        if chapter.end == End::Close {
            raw::check(place, &model).map_err(named)?;
        }
        floor = damage::inflict(place, &model, marks, chapter.damage, seed);
    }
    let (model, _) = live(place, model, floor, &[], End::Close, seed)
        .map_err(|fault| format!("at the end: {fault}"))?;
    raw::check(place, &model).map_err(|fault| format!("files at the end: {fault}"))
}

fn holds(
    chapters: &[Chapter],
    ack: AckLevel,
    second: bool,
    seed: u64,
) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::make(Arc::new(Disk), dir.path(), ShardId(u16::from(second)), ack);
    tell(&place, chapters, seed).map_err(TestCaseError::fail)
}

proptest! {
    #![proptest_config(config(20))]

    // Every acknowledged record is read at its queue offset with its bytes,
    // whatever happened that its level of acknowledgement promises to survive.

    #[test]
    fn what_was_written_is_read_after_whatever_happens(
        chapters in prop::collection::vec(chapter(), 1..4), second: bool, seed: u64,
    ) {
        holds(&chapters, AckLevel::Written, second, seed)?;
    }

    #[test]
    fn what_was_promised_by_the_device_is_read_after_whatever_happens(
        chapters in prop::collection::vec(chapter(), 1..4), second: bool, seed: u64,
    ) {
        holds(&chapters, AckLevel::Durable, second, seed)?;
    }
}
