//! The log's decisions alone: places, rolls, writes to the device.

use std::collections::VecDeque;
use std::ops::Range;

use proptest::prelude::*;

use super::{Dice, TAIL_BYTES, config};
use crate::store::commit_log::{CommitLog, FlushPlan, NoRoom};
use crate::store::edge::Disk;
use crate::store::tail::Tail;
use crate::store::{BLOCK_BYTES, ShardId};

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    /// A write of at most so many bytes begins, or of whole blocks alone.
    Begin(usize, bool),
    /// One of the writes under way ends.
    Finish(usize),
    /// Those under way are given up, and what they were to write is written again.
    Fail,
    Prepare,
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (91usize..5000).prop_map(Step::Append),
        3 => (91usize..1_100_000).prop_map(Step::Append),
        3 => (1usize..257, any::<bool>())
            .prop_map(|(blocks, whole)| Step::Begin(blocks * BLOCK_BYTES, whole)),
        3 => (0usize..4).prop_map(Step::Finish),
        1 => Just(Step::Fail),
        1 => Just(Step::Prepare),
        1 => Just(Step::Sync),
    ]
}

proptest! {
    #![proptest_config(config(192))]
    /// The device gets every byte of the log once it is there, block by block, and the ring
    /// holds all that the device lacks, whichever of the writes under way ends first.
    #[test]
    fn places_and_writes_make_one_log(
        steps in prop::collection::vec(step(), 1..120),
        segment_blocks in 100u64..700, start in 0u64..20_000, seed: u64,
    ) {
        let segment = segment_blocks * BLOCK_BYTES as u64;
        let dir = tempfile::tempdir().unwrap();
        let tail = Tail::create(&Disk, &dir.path().join("tail"), TAIL_BYTES, 0, start).unwrap();
        let mut dice = Dice::new(seed);
        let mut written = dice.bytes(start as usize);
        let mut device = written.clone();
        let last_block = &written[start as usize / BLOCK_BYTES * BLOCK_BYTES..];
        let mut log = CommitLog::new(ShardId(0), segment, tail, 0..segment, start, last_block);
        let limit = (TAIL_BYTES - BLOCK_BYTES).min(segment as usize - 8);
        let mut begun = start;
        let mut in_flight = VecDeque::new();
        let mut fillers = Vec::new();
        for step in steps {
            match step {
                Step::Append(bytes) => {
                    let before = log.written();
                    match log.reserve(bytes) {
                        Ok(at) => {
                            prop_assert!(bytes <= limit);
                            let room = segment - before % segment;
                            if (bytes as u64) + 8 <= room {
                                prop_assert_eq!(at, before);
                            } else {
                                prop_assert_eq!(at, before + room);
                                fillers.push(blank(&mut written, room));
                            }
                            prop_assert_eq!(at / segment, (at + bytes as u64 + 7) / segment);
                            prop_assert!(at + bytes as u64 <= log.prepared_end());
                            let content = dice.bytes(bytes);
                            let middle = dice.below(bytes as u64) as usize;
                            log.put(at, &content[..middle]);
                            log.put(at + middle as u64, &content[middle..]);
                            log.advance(bytes as u64);
                            written.extend(content);
                            let (a, b) = log.in_ring(at, bytes).unwrap();
                            prop_assert!([a, b].concat() == written[at as usize..]);
                        }
                        Err(NoRoom::Later) => {
                            let full = log.written() + bytes as u64 > log.prepared_end()
                                || log.written() - log.flushed() + 4096 + bytes as u64 + 4096
                                    > TAIL_BYTES as u64;
                            prop_assert!(full, "no room at {}, flushed {}", log.written(), log.flushed());
                            if log.written() > before {
                                fillers.push(blank(&mut written, log.written() - before));
                            }
                        }
                        Err(NoRoom::Never { limit: said, .. }) => {
                            prop_assert!(bytes > limit);
                            prop_assert_eq!(said, limit);
                            prop_assert_eq!(log.written(), before);
                        }
                        Err(other) => return Err(TestCaseError::fail(other.to_string())),
                    }
                    prop_assert_eq!(log.written(), written.len() as u64);
                }
                Step::Begin(bytes_max, whole) => {
                    let block = begun / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
                    let Some(plan) = log.next_flush(bytes_max, whole) else {
                        let is_partly_written = !in_flight.is_empty() && begun > block;
                        let is_at_segment = !in_flight.is_empty() && begun % segment == 0;
                        let is_partial = whole && log.written() - block < BLOCK_BYTES as u64;
                        prop_assert!(
                            is_partly_written || is_at_segment || is_partial || begun == log.written()
                        );
                        continue;
                    };
                    prop_assert_eq!(plan.start, block);
                    prop_assert!(plan.end > begun && plan.end <= log.written());
                    prop_assert_eq!(plan.segment, plan.start / segment * segment);
                    prop_assert!(plan.end <= plan.segment + segment);
                    prop_assert!((plan.end - plan.start) as usize <= bytes_max);
                    prop_assert!(!whole || plan.end % BLOCK_BYTES as u64 == 0);
                    for (other, _, _) in &in_flight {
                        let other: &FlushPlan = other;
                        prop_assert_eq!(other.segment, plan.segment);
                        let blocks = other.end.next_multiple_of(BLOCK_BYTES as u64);
                        prop_assert!(blocks <= plan.start);
                    }
                    log.begin(&plan);
                    begun = plan.end;
                    in_flight.push_back((plan, log.blocks(&plan), None));
                }
                Step::Finish(which) => {
                    let Some((plan, blocks, ended)) = in_flight.get_mut(which) else {
                        continue;
                    };
                    if ended.is_some() {
                        continue;
                    }
                    // A device reads them at any time until it is done.
                    let buffer = blocks.to_vec();
                    let len = (plan.end - plan.start) as usize;
                    prop_assert!(buffer[len..].iter().all(|&byte| byte == 0));
                    let found = cleaned(buffer[..len].to_vec(), plan.start, &fillers);
                    prop_assert!(found == written[plan.start as usize..plan.end as usize]);
                    *ended = Some(buffer[..len].to_vec());
                    while let Some(bytes) = in_flight.front_mut().and_then(|first| first.2.take()) {
                        let (plan, _, _) = in_flight.pop_front().unwrap();
                        device.truncate(plan.start as usize);
                        device.extend_from_slice(&bytes);
                        log.set_flushed(plan.end);
                    }
                }
                Step::Fail => {
                    in_flight.clear();
                    log.begin_again();
                    begun = log.flushed();
                }
                Step::Prepare => log.set_prepared(log.prepared_end() + segment),
                Step::Sync => {
                    log.set_durable(log.flushed());
                }
            }
            prop_assert_eq!(device.len() as u64, log.flushed());
            prop_assert!(log.durable() <= log.flushed() && log.flushed() <= begun);
            prop_assert_eq!(log.waiting(), log.written() - begun);
            prop_assert!(log.written() <= log.prepared_end());
            // What the device lacks is in memory.
            let lacking = (log.written() - log.flushed()) as usize;
            let (a, b) = log.in_ring(log.flushed(), lacking).unwrap();
            let lacking = cleaned([a, b].concat(), log.flushed(), &fillers);
            prop_assert!(lacking == written[device.len()..]);
        }
    }
}

/// What a roll adds: a marker, and bytes that mean nothing, here zeros. Returns
/// where these lie.
fn blank(written: &mut Vec<u8>, room: u64) -> Range<usize> {
    let (start, end) = (written.len() + 8, written.len() + room as usize);
    written.extend_from_slice(&(room as u32).to_be_bytes());
    written.extend_from_slice(&0xCBD4_3194_u32.to_be_bytes());
    written.resize(end, 0);
    start..end
}

/// The bytes of the log from `start` on with those that mean nothing as zeros.
fn cleaned(mut bytes: Vec<u8>, start: u64, fillers: &[Range<usize>]) -> Vec<u8> {
    let (start, end) = (start as usize, start as usize + bytes.len());
    for filler in fillers {
        let (from, to) = (filler.start.max(start), filler.end.min(end));
        if from < to {
            bytes[from - start..to - start].fill(0);
        }
    }
    bytes
}
