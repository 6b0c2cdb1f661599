//! Histories of a store on the simulated machine, each a function of one number.
//!
//! `RINGMQ_SEED=n` runs one seed and prints what it does; `RINGMQ_CASES=k` runs k
//! times as many.

use std::path::Path;
use std::rc::Rc;

use super::damage::{self, Damage};
use super::life::{Checked, End, Life, Marks, Op, ensure};
use super::machine::{Cut, Faults, Machine, Outcome, World};
use super::model::{Model, QUEUES};
use super::{Dice, Place, raw};
use crate::store::{AckLevel, ShardId};

const SEGMENT_BYTES: u64 = 64 * 1024;
const TAIL_BYTES: usize = 64 * 1024;

/// Where the log must at least reach.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    /// After a kill.
    kill: u64,
    /// After a power cut.
    power: u64,
}

struct History {
    seed: u64,
    dice: Dice,
    machine: Machine,
    place: Place,
    model: Model,
    floor: Floor,
    /// Segments are deleted: keys in front of them may be found or not.
    deletions: bool,
    /// Topics are removed, so that power is never lost: a removed topic may come back then.
    removals: bool,
    loud: bool,
}

impl History {
    fn new(seed: u64, loud: bool) -> History {
        let mut dice = Dice::new(seed);
        let machine = Machine::new(seed);
        let ack = [AckLevel::Written, AckLevel::Durable][dice.below(2) as usize];
        let shard = ShardId(dice.below(2) as u16);
        let mut place = Place::make(machine.files(), Path::new("/store"), shard, ack);
        place.settings.segment_bytes = SEGMENT_BYTES << (seed % 2 * 2);
        place.settings.tail_bytes = TAIL_BYTES << (seed % 2 * 2);
        if dice.below(2) == 0 {
            place.settings.index = None;
        }
        place.settings.flush_after_write = dice.below(2) == 0;
        place.settings.flush_bytes_max = [8192, 20_480, 1 << 20][dice.below(3) as usize];
        let removals = dice.below(3) == 0;
        let deletions = dice.below(3) == 0;
        if deletions {
            place.settings.index = None;
        }
        History {
            seed,
            dice,
            machine,
            place,
            model: Model::default(),
            floor: Floor::default(),
            deletions,
            removals,
            loud,
        }
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        if self.loud {
            eprintln!("seed {}: {}", self.seed, text());
        }
    }

    fn op(&mut self) -> Op {
        let dice = &mut self.dice;
        let queue = dice.below(QUEUES.len() as u64) as usize;
        let body = |dice: &mut Dice| match dice.below(8) {
            0 => 0,
            1 => dice.below(70_000) as usize,
            2 | 3 => dice.below(9000) as usize,
            _ => dice.below(700) as usize,
        };
        match dice.below(18) {
            16 => Op::FillDisk { queue },
            17 if self.deletions => Op::Delete {
                segments: 1 + dice.below(3),
            },
            0..=5 => {
                let count = 1 + dice.below(4);
                let bodies = (0..count).map(|_| body(dice)).collect();
                Op::Append { queue, bodies }
            }
            6..=8 => Op::Burst {
                queue,
                count: 1 + dice.below(60) as usize,
                body: body(dice) / 8,
            },
            9 | 10 => Op::Read {
                queue,
                from: dice.next() as u16,
                max: 1 + dice.below(40) as usize,
            },
            11 | 12 => Op::Sleep(dice.below(60)),
            13 => Op::Sleep([270, 270, 5300][dice.below(3) as usize]),
            14 if self.removals => Op::RemoveTopic {
                queue: dice.below(4) as usize,
            },
            _ => Op::AwaitDurable,
        }
    }

    /// One process: it starts, works, and ends in one way or another.
    fn life(&mut self, number: u64, last: bool) -> Checked {
        let dice = &mut self.dice;
        let calm = last || dice.below(3) > 0;
        let end = if last || dice.below(3) == 0 {
            End::Close
        } else {
            End::Kill
        };
        let dies_after = (!last && dice.below(4) > 0).then(|| match dice.below(3) {
            0 => dice.below(60),
            1 => dice.below(400),
            _ => dice.below(3000),
        });
        let cut = match dice.below(2) {
            0 if !self.removals => Cut::Power,
            _ => Cut::Kill,
        };
        let count = if last { 0 } else { dice.below(14) };
        let ops: Vec<Op> = (0..count).map(|_| self.op()).collect();
        self.tell(|| format!("life {number}: calm {calm} {end:?} {dies_after:?} {cut:?} {ops:?}"));
        if !calm {
            let dice = &mut self.dice;
            self.machine.set_faults(Faults {
                io_error: [0, 20, 200][dice.below(3) as usize],
                short_write: [0, 100][dice.below(2) as usize],
                slow: [0, 200][dice.below(2) as usize],
            });
        }
        self.machine.die_after(dies_after);
        let before = self.machine.injected();
        let world = World::new(&self.machine, self.seed.wrapping_add(number));
        let seed = self.seed ^ number << 32;
        let opened = Life::open(
            Rc::new(world.clone()),
            &self.place,
            self.model.clone(),
            seed,
        );
        let (life, report) = match opened {
            Ok(opened) => opened,
            Err(fault) => {
                let excused = self.machine.is_dead() || self.machine.injected() > before;
                ensure!(excused, "life {number}: {fault}");
                self.tell(|| format!("not opened: {fault}"));
                return self.end(cut, None);
            }
        };
        if self.machine.is_dead() {
            return self.end(cut, None);
        }
        let machine = self.machine.clone();
        let excused = move || machine.injected() > before;
        let (one, other) = (self.machine.clone(), self.machine.clone());
        let life = life.on(
            excused,
            move || one.is_dead(),
            move |full| other.set_full(full),
        );
        let named = |fault| format!("life {number}: {fault}");
        life.compare_after_open(self.floor.kill, &report)
            .map_err(named)?;
        self.tell(|| format!("opened {:?} {report:?}", life.marks()));
        let outcome = world.run(life.clone().go_through(ops, end));
        self.model = life.model();
        let marks = life.marks();
        self.tell(|| format!("{outcome:?} {marks:?}"));
        match outcome {
            Outcome::Done(closed) => {
                let closed = closed.map_err(named)?;
                if closed {
                    self.machine.end(Cut::Kill);
                    self.floor = Floor {
                        kill: marks.written,
                        power: self.model.whole(marks.durable),
                    };
                    // Entries that could not be written are made anew at the next start.
                    if self.machine.injected() == before {
                        raw::check(&self.place, &self.model).map_err(named)?;
                    }
                    if !last {
                        self.harm(marks);
                    }
                    return Ok(());
                }
                self.end(cut, Some(marks))
            }
            Outcome::Died => self.end(cut, Some(marks)),
            Outcome::Stuck(why) => Err(named(why.to_owned())),
        }
    }

    /// The process is gone, and with it perhaps the machine.
    fn end(&mut self, cut: Cut, marks: Option<Marks>) -> Checked {
        self.machine.end(cut);
        if let Some(marks) = marks {
            self.floor = Floor {
                kill: self.model.written,
                power: self.model.whole(marks.durable),
            };
        }
        if cut == Cut::Power {
            self.floor.kill = self.floor.power;
        } else if let Some(marks) = marks {
            self.harm(marks);
        }
        Ok(())
    }

    /// Files are damaged while no process runs.
    fn harm(&mut self, marks: Marks) {
        // Where a queue's messages are all deleted its file alone knows what comes next.
        let queues = !self.deletions;
        let damage = match self.dice.below(14) {
            0 => Damage::Checkpoint,
            1 if queues => Damage::QueueFiles,
            2 if queues => Damage::QueueFilesAndCheckpoint,
            3 => Damage::Tail,
            4 => Damage::Index,
            5 => Damage::IndexAndCheckpoint,
            _ => return,
        };
        let seed = self.dice.next();
        let kept = damage::inflict(&self.place, &self.model, marks, damage, seed);
        self.tell(|| format!("{damage:?}, the log must reach {kept}"));
        self.floor.kill = self.floor.kill.min(kept);
    }
}

/// Tells one history, and returns a number that is the same for the same story.
fn tell(seed: u64, loud: bool) -> Checked<u64> {
    let mut history = History::new(seed, loud);
    let lives = 1 + history.dice.below(4);
    for number in 0..lives {
        history.life(number, false)?;
    }
    history.life(lives, true)?;
    Ok(history.machine.trace())
}

/// Panics count as faults of their seed.
fn caught(seed: u64, loud: bool) -> Checked<u64> {
    std::panic::catch_unwind(|| tell(seed, loud)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("?")))
    })
}

/// Whatever happens to process, machine and disk: what was acknowledged, as its
/// level promises, is read at its queue offset with its bytes; offsets have no gap and
/// no double; readers never see beyond the watermark; queue files are what the log says.
#[test]
fn whatever_happens_what_was_acknowledged_is_read() {
    if let Ok(seed) = std::env::var("RINGMQ_SEED") {
        let seed = seed.parse().expect("RINGMQ_SEED is a number");
        if let Err(fault) = caught(seed, true) {
            panic!("seed {seed}: {fault}");
        }
        return;
    }
    let factor: u64 = std::env::var("RINGMQ_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let total = 3000 * factor;
    let faults: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                scope.spawn(move || {
                    let seeds = (worker..total).step_by(threads as usize);
                    let told = seeds.map(|seed| (seed, caught(seed, false)));
                    told.filter_map(|(seed, told)| Some(format!("seed {seed}: {}", told.err()?)))
                        .take(10)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    assert!(
        faults.is_empty(),
        "of {total} seeds:\n{}",
        faults.join("\n")
    );
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [1, 77, 4242] {
        assert_eq!(caught(seed, false), caught(seed, false), "seed {seed}");
    }
}
