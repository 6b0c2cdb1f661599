//! What a reader of the store sees, held against the model.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::Dice;
use super::life::{Checked, Life, Marks, STUCK, ensure};
use super::model::QUEUES;
use crate::store::{AckLevel, Entry, Fetch};

impl Life {
    /// Reads every queue from its first entry to its end.
    pub(super) async fn read_all(&self) -> Checked {
        for (queue, (topic, id)) in QUEUES.into_iter().enumerate() {
            let find = |life: &Life| {
                life.store.with(|store| {
                    let index = store.find_queue(topic, id)?;
                    Some((store.queue(index).min, store.queue(index).visible))
                })
            };
            let Some((mut at, end)) = find(self) else {
                continue;
            };
            while at < end {
                let read = self.read(queue, at, 64).await?;
                if read == 0 && ((self.excused)() || (self.dead)()) {
                    break;
                }
                ensure!(read > 0, "{topic} {id}: nothing at {at} of {end}");
                at += read;
            }
        }
        Ok(())
    }

    /// Reads entries and their records, compares them with the model, and
    /// returns how many there were.
    pub(super) async fn read(&self, queue: usize, from: u64, max: usize) -> Checked<u64> {
        let (topic, id) = QUEUES[queue];
        let Some(index) = self.store.with(|store| store.find_queue(topic, id)) else {
            return Ok(0);
        };
        let began = self.edge.now();
        let from = from.max(self.store.with(|store| store.queue(index).min));
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let watermark = self.marks();
            match self
                .store
                .with(|store| store.entries(index, from, max, &mut entries))
            {
                Ok(()) => {
                    self.check_visible(queue, watermark)?;
                    break;
                }
                Err(missing) => {
                    ensure!(
                        self.edge.now() - began < STUCK,
                        "entries stay away: {missing:?}"
                    );
                    let loaded = self.store.load(missing).await;
                    if self.store.with(|store| store.find_queue(topic, id)) != Some(index) {
                        return Ok(0); // removed meanwhile
                    }
                    if loaded.is_err() && ((self.excused)() || (self.dead)()) {
                        return Ok(0);
                    }
                    if self.store.with(|store| store.queue(index).min) > from {
                        return Ok(0); // deleted meanwhile
                    }
                    loaded.map_err(|error| format!("{topic} {id}: load {missing:?}: {error}"))?;
                }
            }
        }
        for (offset, entry) in (from..).zip(&entries) {
            let mut out = Fetch::default();
            let found = loop {
                match self.store.with(|store| store.fetch(entry, None, &mut out)) {
                    Ok(found) => break found,
                    Err(missing) => {
                        ensure!(out.is_empty(), "a part of a record");
                        ensure!(
                            self.edge.now() - began < STUCK,
                            "record {entry:?} stays away: {missing:?}"
                        );
                        let loaded = self.store.load(missing).await;
                        if loaded.is_err() && ((self.excused)() || (self.dead)()) {
                            return Ok(0);
                        }
                        if self.is_deleted(entry) {
                            break false;
                        }
                        loaded
                            .map_err(|error| format!("{topic} {id}: load {missing:?}: {error}"))?;
                    }
                }
            };
            let len = out.len();
            let bytes = out.into_pieces().concat();
            let model = self.model.borrow();
            if self.store.with(|store| store.find_queue(topic, id)) != Some(index) {
                return Ok(0); // removed meanwhile
            }
            let Some(stored) = model.stored(queue, offset) else {
                return Err(format!("{topic} {id}: nothing was appended at {offset}"));
            };
            let expected = Entry {
                physical: self.place.physical(stored.position),
                size: stored.bytes.len() as i32,
                tags_code: stored.tags_code,
            };
            let optional = offset < model.queues[queue].required as u64;
            if optional && (entry.physical, entry.size) == (0, i32::MAX) {
                continue;
            }
            if !found && self.is_deleted(entry) {
                continue;
            }
            ensure!(
                *entry == expected,
                "{topic} {id}: offset {offset}: {entry:?} is not {expected:?}"
            );
            ensure!(
                found && len == bytes.len(),
                "{topic} {id}: offset {offset} has no record"
            );
            ensure!(
                bytes == stored.bytes,
                "{topic} {id}: offset {offset}: other bytes"
            );
        }
        Ok(entries.len() as u64)
    }

    /// Whether an entry points in front of the log.
    fn is_deleted(&self, entry: &Entry) -> bool {
        let min = self.store.with(|store| store.log().min());
        entry.physical < self.place.physical(min)
    }

    /// Readers see exactly what the watermark has passed.
    fn check_visible(&self, queue: usize, marks: Marks) -> Checked {
        let (topic, id) = QUEUES[queue];
        let watermark = match self.place.settings.ack {
            AckLevel::Written => marks.written,
            AckLevel::Durable => marks.durable,
        };
        let seen = self.store.with(|store| {
            (
                store.watermark(),
                store
                    .find_queue(topic, id)
                    .map(|index| store.queue(index).visible),
            )
        });
        let (mark, Some(visible)) = seen else {
            return Ok(());
        };
        ensure!(mark == watermark, "watermark {mark} instead of {watermark}");
        let model = self.model.borrow();
        if model.queues[queue].removed {
            return Ok(());
        }
        let passed = (0..).take_while(|&offset| {
            model
                .stored(queue, offset)
                .is_some_and(|stored| stored.run_end <= watermark)
        });
        let passed = passed.count() as u64;
        ensure!(
            visible == passed,
            "{topic} {id}: visible to {visible}, passed {passed}"
        );
        Ok(())
    }

    /// Reads here and there while other things happen, until told to stop.
    pub(super) fn spawn_reader(&self) -> Rc<RefCell<Option<Checked>>> {
        let life = self.clone();
        let mut dice = Dice::new(self.dice.borrow().clone().next() ^ 0x5555);
        let result = Rc::new(RefCell::new(None));
        let done = result.clone();
        self.edge.spawn(
            "a test's",
            Box::pin(async move {
                let mut read = Ok(0);
                while !life.stop.get() && read.is_ok() {
                    let queue = dice.below(QUEUES.len() as u64) as usize;
                    let len = life.model.borrow().queues[queue].log_index.len() as u64;
                    // Mostly near the end, where the tail meets the segments.
                    let near = dice.below(2) == 0;
                    let back = dice.below(if near { 8 } else { len + 1 });
                    read = life.read(queue, len.saturating_sub(back), 4).await;
                    life.edge
                        .sleep(Duration::from_micros(dice.below(3000)))
                        .await;
                }
                let read = read.map(|_| ()).map_err(|fault| format!("reader: {fault}"));
                *done.borrow_mut() = Some(read);
            }),
        );
        result
    }
}
