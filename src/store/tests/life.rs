//! One life of a store: opened, compared with the model, worked on, closed or killed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future;

use super::model::{Model, QUEUES, Spec, Stored};
use super::{Dice, Place, keys};
use crate::reactor;
use crate::store::edge::{Edge, Ring};
use crate::store::{Demand, NoRoom, RecoveryReport, StoreHandle, run_background};

/// Longest time that anything may take before the store counts as stuck.
pub(super) const STUCK: Duration = Duration::from_secs(10);

pub type Checked<T = ()> = Result<T, String>;

/// Fails the case with a text unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}
pub(super) use ensure;

/// What is done with a store while it is open.
#[derive(Clone, Debug)]
pub enum Op {
    /// Records of these body lengths, in one run.
    Append { queue: usize, bodies: Vec<usize> },
    /// Runs of one record each.
    Burst {
        queue: usize,
        count: usize,
        body: usize,
    },
    /// Entries and records from a place in the queue on.
    Read { queue: usize, from: u16, max: usize },
    /// Other tasks go on for this time.
    Sleep(u64),
    /// Until the device has promised everything.
    AwaitDurable,
    /// The topic of a queue, with all its queues.
    RemoveTopic { queue: usize },
    /// The disk is full, messages are sent, and there is space again.
    FillDisk { queue: usize },
    /// The oldest segments are deleted, so many of them.
    Delete { segments: u64 },
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// [`StoreHandle::close`].
    Close,
    /// As with kill -9: nothing is told to anybody.
    Kill,
}

/// Watermarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub durable: u64,
    pub flushed: u64,
    pub written: u64,
}

/// Lives one life on a thread of its own. `floor` is the position up to which
/// the log must still be there, from the life before.
pub fn live(
    place: &Place,
    model: Model,
    floor: u64,
    ops: &[Op],
    end: End,
    seed: u64,
) -> Checked<(Model, Marks)> {
    let (place, ops) = (place.clone(), ops.to_vec());
    run(move || async move {
        let (life, report) = Life::open(Rc::new(Ring::new()), &place, model, seed)?;
        life.compare_after_open(floor, &report)?;
        let closed = life.clone().go_through(ops, end).await?;
        ensure!(closed || end != End::Close, "the store failed");
        if let Some(index) = &life.store.shared().index {
            // Who has the index writes: the helper thread of a killed process would not
            // go on, as that of a dropped executor does.
            let _ = index.take().await;
        }
        Ok((life.model(), life.marks()))
    })
}

/// Runs a future on an executor of its own, which is gone afterwards.
pub fn run<T: Send + 'static, F: Future<Output = Checked<T>>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Checked<T> {
    let thread = std::thread::spawn(move || reactor::block_on(work())?);
    thread.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("?")))
    })
}

/// A store that is open, and what it must hold.
#[derive(Clone)]
pub struct Life {
    pub(super) edge: Rc<dyn Edge>,
    pub(super) store: StoreHandle,
    pub(super) place: Place,
    pub(super) model: Rc<RefCell<Model>>,
    pub(super) dice: Rc<RefCell<Dice>>,
    pub(super) last: Rc<Cell<Marks>>,
    pub(super) stop: Rc<Cell<bool>>,
    /// Whether something went wrong that the store is not to blame for.
    pub(super) excused: Rc<dyn Fn() -> bool>,
    /// Whether the process is dead: what it does is not seen by anybody.
    pub(super) dead: Rc<dyn Fn() -> bool>,
    /// Fills the disk, or makes space again.
    pub(super) fill: Rc<dyn Fn(bool)>,
}

impl Life {
    pub fn open(
        edge: Rc<dyn Edge>,
        place: &Place,
        model: Model,
        seed: u64,
    ) -> Checked<(Life, RecoveryReport)> {
        let settings = place.settings.clone();
        let opened = StoreHandle::open_on(edge.clone(), &place.dir, place.shard, settings);
        let (store, report) = opened.map_err(|error| format!("open: {error}"))?;
        let life = Life {
            edge,
            store,
            place: place.clone(),
            model: Rc::new(RefCell::new(model)),
            dice: Rc::new(RefCell::new(Dice::new(seed))),
            last: Rc::default(),
            stop: Rc::default(),
            excused: Rc::new(|| false),
            dead: Rc::new(|| false),
            fill: Rc::new(|_| ()),
        };
        Ok((life, report))
    }

    /// The same life on a machine where things go wrong.
    pub fn on(
        self,
        excused: impl Fn() -> bool + 'static,
        dead: impl Fn() -> bool + 'static,
        fill: impl Fn(bool) + 'static,
    ) -> Life {
        Life {
            excused: Rc::new(excused),
            dead: Rc::new(dead),
            fill: Rc::new(fill),
            ..self
        }
    }

    /// What the store must hold.
    pub fn model(&self) -> Model {
        self.model.borrow().clone()
    }

    /// Lives it, and returns whether the store was closed.
    pub async fn go_through(self, ops: Vec<Op>, end: End) -> Checked<bool> {
        run_background(&self.store);
        self.read_all().await?;
        let reader = self.spawn_reader();
        for op in &ops {
            self.step(op)
                .await
                .map_err(|fault| format!("{op:?}: {fault}"))?;
        }
        self.stop.set(true);
        while reader.borrow().is_none() {
            self.edge.sleep(Duration::from_millis(1)).await;
        }
        let read = reader.borrow_mut().take();
        read.unwrap_or(Ok(()))?;
        self.read_all().await?;
        if self.place.settings.index.is_some() {
            let seed = self.dice.borrow().clone().next();
            let found = keys::find(&self.store, &self.place, self.model(), seed).await;
            // What cannot be written or read is found later.
            if !(self.excused)() && !(self.dead)() {
                found?;
            }
        }
        if end != End::Close {
            return Ok(false);
        }
        let closed = future::or(async { Some(self.store.close().await) }, async {
            self.edge.sleep(STUCK).await;
            None
        });
        match closed.await {
            None => return Err("close is stuck".to_owned()),
            Some(Err(_)) if (self.excused)() => return Ok(false),
            Some(closed) => closed.map_err(|error| format!("close: {error}"))?,
        }
        let marks = self.marks();
        ensure!(marks.durable == marks.written, "closed with {marks:?}");
        Ok(true)
    }

    pub fn marks(&self) -> Marks {
        self.store.with(|store| Marks {
            durable: store.log().durable(),
            flushed: store.log().flushed(),
            written: store.log().written(),
        })
    }

    /// The log reaches at least to `floor` and ends between records; every queue
    /// is what the log says.
    pub fn compare_after_open(&self, floor: u64, report: &RecoveryReport) -> Checked {
        let end = self.marks().written;
        let mut model = self.model.borrow_mut();
        ensure!(
            end >= floor && end <= model.written,
            "the log ends at {end}, not within {floor}..={}; {report:?}",
            model.written
        );
        let cut = model
            .log
            .iter()
            .find(|stored| stored.position < end && stored.end() > end);
        ensure!(
            cut.is_none(),
            "the log ends at {end}, inside the record at {}",
            cut.unwrap().position
        );
        model.cut(end);
        let marks = self.marks();
        ensure!(
            marks.durable == end && marks.flushed == end,
            "opened with {marks:?}"
        );
        for (queue, (topic, id)) in QUEUES.iter().enumerate() {
            let entries = &mut model.queues[queue];
            let expected = entries.log_index.len() as u64;
            let found = self.store.with(|store| {
                let index = store.find_queue(topic, *id)?;
                let queue = store.queue(index);
                Some((queue.min, queue.next, queue.visible))
            });
            let (min, next, visible) = found.unwrap_or_default();
            if entries.removed && next == 0 {
                // It comes back when the queues are made anew from the whole log.
                continue;
            }
            ensure!(
                next == expected && visible == next && min <= entries.required as u64,
                "{topic} {id}: {min}..{next} (visible to {visible}) instead of {}..{expected}; {report:?}",
                entries.required
            );
            entries.removed = false;
        }
        drop(model);
        self.check_starts()
    }

    /// The order of the watermarks; none ever goes back.
    fn check_marks(&self) -> Checked {
        let marks = self.marks();
        let last = self.last.replace(marks);
        let prepared = self.store.with(|store| store.log().prepared_end());
        ensure!(
            marks.durable <= marks.flushed
                && marks.flushed <= marks.written
                && marks.written <= prepared,
            "{marks:?}, segments to {prepared}"
        );
        ensure!(
            last.durable <= marks.durable
                && last.flushed <= marks.flushed
                && last.written <= marks.written,
            "{last:?} became {marks:?}"
        );
        Ok(())
    }

    async fn step(&self, op: &Op) -> Checked {
        match op {
            Op::Append { queue, bodies } => {
                self.append(*queue, bodies).await?;
            }
            Op::Burst { queue, count, body } => {
                for _ in 0..*count {
                    self.append(*queue, &[*body]).await?;
                }
            }
            Op::Read { queue, from, max } => {
                let len = self.model.borrow().queues[*queue].log_index.len() as u64;
                self.read(*queue, len * u64::from(*from) / 65_536, *max)
                    .await?;
            }
            Op::Sleep(ms) => self.edge.sleep(Duration::from_millis(*ms)).await,
            Op::AwaitDurable => {
                let target = self.marks().written;
                let began = self.edge.now();
                while self.marks().durable < target {
                    if self.store.with(|store| store.log().failure().is_some()) {
                        ensure!((self.excused)(), "the log failed");
                        break;
                    }
                    ensure!(
                        self.edge.now() - began < STUCK,
                        "not durable: {:?}",
                        self.marks()
                    );
                    self.progress().await;
                }
            }
            Op::RemoveTopic { queue } => {
                let (topic, _) = QUEUES[*queue];
                self.model.borrow_mut().remove_topic(topic);
                self.store.remove_topic(topic).await;
            }
            Op::Delete { segments } => self.delete(*segments).await?,
            Op::FillDisk { queue } => {
                (self.fill)(true);
                for _ in 0..40 {
                    self.append(*queue, &[4000]).await?;
                }
                (self.fill)(false);
                let began = self.edge.now();
                while !self.append(*queue, &[1]).await? {
                    let failed = self.store.with(|store| store.log().failure().is_some());
                    if failed || (self.dead)() {
                        break;
                    }
                    ensure!(
                        self.edge.now() - began < STUCK,
                        "refused, and there is space"
                    );
                    self.edge.sleep(Duration::from_millis(200)).await;
                }
            }
        }
        self.check_marks()
    }

    /// Deletes segments; every queue then begins with its first message that is left.
    async fn delete(&self, segments: u64) -> Checked {
        let bytes = segments * self.place.settings.segment_bytes;
        let min = self.store.with(|store| store.log().min());
        // Whatever becomes of it, more than that is not gone.
        {
            let model = &mut *self.model.borrow_mut();
            model.deleted = model.deleted.max(min + bytes);
            model.begins_at(min + bytes);
        }
        let demand = Demand {
            bytes,
            ..Demand::default()
        };
        let deleted = self.store.delete_segments(&demand).await;
        let swept = self.store.sweep_queues(|_| ()).await;
        if (self.excused)() || (self.dead)() {
            return Ok(());
        }
        deleted.map_err(|error| format!("delete: {error}"))?;
        swept.map_err(|error| format!("sweep: {error}"))?;
        self.check_starts()
    }

    /// Every queue begins with its first message that the log has.
    fn check_starts(&self) -> Checked {
        let model = self.model.borrow();
        if model.removals {
            return Ok(());
        }
        let log_min = self.store.with(|store| store.log().min());
        ensure!(
            log_min <= model.deleted,
            "the log begins at {log_min}, segments were deleted up to {}",
            model.deleted
        );
        for (queue, (topic, id)) in QUEUES.iter().enumerate() {
            let indexes = &model.queues[queue].log_index;
            let gone = |index: &&usize| model.log[**index].position < log_min;
            let first = indexes.iter().take_while(gone).count() as u64;
            let min = self.store.with(|store| {
                let index = store.find_queue(topic, *id)?;
                Some(store.queue(index).min)
            });
            ensure!(
                min.is_none_or(|min| min == first),
                "{topic} {id}: begins at {min:?}, its first message is {first}"
            );
        }
        Ok(())
    }

    /// The next step of the store, or a little time.
    async fn progress(&self) {
        future::or(self.store.progress().wait(), async {
            self.edge.sleep(Duration::from_millis(20)).await;
        })
        .await;
    }

    /// Returns whether the records were taken.
    async fn append(&self, queue: usize, bodies: &[usize]) -> Checked<bool> {
        let (topic, id) = QUEUES[queue];
        let specs: Vec<Spec> = {
            let dice = &mut *self.dice.borrow_mut();
            bodies
                .iter()
                .map(|&len| Spec::random(queue, len, dice))
                .collect()
        };
        let parts: Vec<_> = specs.iter().map(Spec::parts).collect();
        let total: usize = specs.iter().map(|spec| spec.record(0, 0, 0).len()).sum();
        let limit = self.place.settings.tail_bytes - 4096;
        let began = self.edge.now();
        loop {
            if (self.dead)() {
                return Ok(false); // nobody will ever know
            }
            let now_ms = self.model.borrow().clock_ms + 1;
            let mut physical = Vec::new();
            let before = self.marks();
            let result = self.store.with(|store| {
                let index = store.make_queue(topic, id);
                store.append(index, &parts, now_ms, &mut physical)
            });
            match result {
                Ok(appended) => {
                    ensure!(total <= limit, "{total} bytes taken, the limit is {limit}");
                    self.model.borrow_mut().clock_ms = now_ms;
                    let placed = Placed {
                        first: appended.queue_offset,
                        end: appended.end,
                        now_ms,
                    };
                    self.note(queue, &specs, &placed, &physical, before)?;
                    return Ok(true);
                }
                Err(NoRoom::Later) => {
                    ensure!(physical.is_empty(), "places given to refused records");
                    ensure!(
                        self.edge.now() - began < STUCK,
                        "no room: {:?}",
                        self.marks()
                    );
                    self.model.borrow_mut().written = self.marks().written;
                    self.progress().await;
                }
                Err(NoRoom::Never { .. }) if total > limit => {
                    ensure!(
                        self.marks() == before && physical.is_empty(),
                        "refused records left a trace"
                    );
                    return Ok(false);
                }
                Err(NoRoom::Failed(_) | NoRoom::NoSpace(_)) if (self.excused)() => {
                    // A roll may have come before the refusal.
                    self.model.borrow_mut().written = self.marks().written;
                    return Ok(false);
                }
                Err(other) => return Err(format!("append of {total} bytes: {other}")),
            }
        }
    }

    /// Enters what was appended into the model, after a look at the places.
    fn note(
        &self,
        queue: usize,
        specs: &[Spec],
        placed: &Placed,
        physical: &[i64],
        before: Marks,
    ) -> Checked {
        let model = &mut *self.model.borrow_mut();
        // A queue whose topic was removed begins again with its first entry.
        let starts = specs.iter().any(Spec::is_queued);
        if model.queues[queue].removed && starts {
            if placed.first == 0 {
                model.restart_queue(queue);
            }
            model.queues[queue].removed = false;
        }
        let mut next = match model.queues[queue].removed {
            true => 0,
            false => model.queues[queue].log_index.len() as u64,
        };
        ensure!(
            placed.first == next,
            "queue offset {} instead of {next}",
            placed.first
        );
        ensure!(
            physical.len() == specs.len(),
            "{} places for {} records",
            physical.len(),
            specs.len()
        );
        let segment = self.place.settings.segment_bytes;
        let start = (physical[0] - self.place.physical(0)) as u64;
        let rolled = before.written.next_multiple_of(segment);
        ensure!(
            start == before.written || start == rolled,
            "record at {start} after {before:?}"
        );
        let mut at = start;
        for (spec, &physical) in specs.iter().zip(physical) {
            ensure!(
                physical == self.place.physical(at),
                "record at {physical} instead of {at}"
            );
            let queued = spec.is_queued();
            let offset = if queued { next as i64 } else { 0 };
            let bytes = spec.record(offset, physical, placed.now_ms);
            let stored = Stored {
                queue,
                queued,
                position: at,
                tags_code: spec.tags_code(placed.now_ms),
                keys: spec.key_hashes(),
                stored_at: placed.now_ms,
                bytes,
                run_end: placed.end,
            };
            at = stored.end();
            next += u64::from(queued);
            model.add(stored);
        }
        let must_roll = start + (at - start) + 8 > start - start % segment + segment;
        ensure!(
            !must_roll,
            "a segment without room for its marker behind {at}"
        );
        ensure!(
            at == placed.end && self.marks().written == at,
            "ends at {at}, said {}",
            placed.end
        );
        model.written = at;
        Ok(())
    }
}

struct Placed {
    first: u64,
    end: u64,
    now_ms: i64,
}
