//! The log's decisions alone: places, rolls, writes to the device.

use std::ops::Range;

use proptest::prelude::*;

use super::{Dice, TAIL_BYTES, config};
use crate::store::commit_log::{CommitLog, NoRoom};
use crate::store::edge::Disk;
use crate::store::tail::Tail;
use crate::store::{BLOCK_BYTES, ShardId};

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    /// A write of at most so many bytes begins, unless one is under way.
    Begin(usize),
    Finish,
    Prepare,
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (91usize..5000).prop_map(Step::Append),
        3 => (91usize..1_100_000).prop_map(Step::Append),
        3 => (1usize..257).prop_map(|blocks| Step::Begin(blocks * BLOCK_BYTES)),
        3 => Just(Step::Finish),
        1 => Just(Step::Prepare),
        1 => Just(Step::Sync),
    ]
}

proptest! {
    #![proptest_config(config(192))]
    /// The device gets every byte of the log once it is there, in order, block
    /// by block, and the ring holds all that the device lacks.
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
        let mut in_flight = None;
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
                Step::Begin(bytes_max) if in_flight.is_none() => {
                    let Some(plan) = log.next_flush(bytes_max) else {
                        prop_assert_eq!(log.flushed(), log.written());
                        continue;
                    };
                    let block = log.flushed() / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
                    prop_assert_eq!(plan.start, block);
                    prop_assert!(plan.end > log.flushed() && plan.end <= log.written());
                    prop_assert_eq!(plan.segment, plan.start / segment * segment);
                    prop_assert!(plan.end <= plan.segment + segment);
                    prop_assert!((plan.end - plan.start) as usize <= bytes_max);
                    in_flight = Some((plan, log.blocks(&plan)));
                }
                Step::Finish => {
                    let Some((plan, blocks)) = in_flight.take() else {
                        continue;
                    };
                    // A device reads them at any time until it is done.
                    let buffer = blocks.to_vec();
                    let len = (plan.end - plan.start) as usize;
                    prop_assert!(buffer[len..].iter().all(|&byte| byte == 0));
                    let found = cleaned(buffer[..len].to_vec(), plan.start, &fillers);
                    prop_assert!(found == written[plan.start as usize..plan.end as usize]);
                    device.truncate(plan.start as usize);
                    device.extend_from_slice(&buffer[..len]);
                    log.set_flushed(plan.end);
                }
                Step::Prepare => log.set_prepared(log.prepared_end() + segment),
                Step::Sync => {
                    log.set_durable(log.flushed());
                }
                Step::Begin(_) => {}
            }
            prop_assert_eq!(device.len() as u64, log.flushed());
            prop_assert!(log.durable() <= log.flushed() && log.flushed() <= log.written());
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
