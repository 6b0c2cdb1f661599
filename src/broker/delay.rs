//! Delayed messages: from the schedule topic to their real topic when they are due
//! (`ScheduleMessageService`).
//!
//! One queue a level; within a level messages become due in the order in which
//! they were stored. Each shard delivers for the levels whose queues it owns.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future;

use super::message::{Answer, AppendJob, AppendOutcome, Ask};
use super::{BrokerShard, now_ms};
use crate::shard::{LocalEvent, sleep};
use crate::store::Entry;
use crate::wire::message::Record;
use crate::wire::names::SCHEDULE_TOPIC;
use crate::wire::properties::{self, name};

/// Messages delivered together.
const DELIVER_MAX: usize = 64;

/// Wait after a delivery was refused.
const RETRY: Duration = Duration::from_secs(1);

/// Longest wait between two looks at the clock.
const LOOK_MAX: Duration = Duration::from_millis(1000);

/// Progress of the levels of one shard: the next queue offset to deliver.
#[derive(Default)]
pub(super) struct DelayQueues {
    progress: RefCell<BTreeMap<i32, i64>>,
    arrived: LocalEvent,
    delivering: Cell<bool>,
}

impl DelayQueues {
    /// Progress as it was stored.
    pub fn new(progress: BTreeMap<i32, i64>) -> DelayQueues {
        DelayQueues {
            progress: RefCell::new(progress),
            arrived: LocalEvent::default(),
            delivering: Cell::new(false),
        }
    }

    /// A message was put into the schedule topic.
    pub fn arrived(&self) {
        self.arrived.notify();
    }

    /// Whether messages are on their way to their real topics.
    pub fn is_delivering(&self) -> bool {
        self.delivering.get()
    }

    /// Progress to be stored.
    pub fn progress(&self) -> Vec<(i32, i64)> {
        let progress = self.progress.borrow();
        progress
            .iter()
            .map(|(&level, &offset)| (level, offset))
            .collect()
    }
}

/// What a look at a level came to.
enum Look {
    /// Nothing waits.
    Empty,
    /// The next message is due at this time, ms since 1970.
    DueAt(u64),
    /// Messages were delivered; there may be more.
    Delivered,
    /// Delivery was refused.
    Refused,
}

impl BrokerShard {
    /// Delivers delayed messages until the process ends.
    pub(super) async fn deliver_delayed(self: std::rc::Rc<Self>) {
        let levels = self.store.with(|store| store.settings().delays.levels());
        let owned: Vec<i32> = (1..=levels)
            .filter(|level| self.owner_of(SCHEDULE_TOPIC, level - 1) == self.id())
            .collect();
        loop {
            let mut wait = LOOK_MAX;
            let mut pending = false;
            for &level in &owned {
                match self.look_at_level(level).await {
                    Look::Empty => {}
                    Look::DueAt(due) => {
                        pending = true;
                        wait = wait.min(Duration::from_millis(due.saturating_sub(now_ms())));
                    }
                    Look::Delivered => {
                        pending = true;
                        wait = Duration::ZERO;
                    }
                    Look::Refused => {
                        pending = true;
                        wait = wait.min(RETRY);
                    }
                }
            }
            if self.stopping.get() {
                return;
            }
            if pending {
                sleep(wait).await;
            } else {
                future::or(self.delay.arrived.wait(), sleep(LOOK_MAX * 10)).await;
            }
        }
    }

    async fn look_at_level(&self, level: i32) -> Look {
        let (min, max) = self.bounds(SCHEDULE_TOPIC, level - 1);
        // Progress that points outside the queue is no reason to lose or repeat all.
        let stored = self.delay.progress.borrow().get(&level).copied();
        let at = stored.unwrap_or(min).clamp(min, max);
        if at == max {
            self.delay.progress.borrow_mut().insert(level, at);
            return Look::Empty;
        }
        let queue = self
            .store
            .with(|store| store.find_queue(SCHEDULE_TOPIC, level - 1));
        let Some(queue) = queue else {
            return Look::Empty;
        };
        let entries = match self.load_entries(queue, at, DELIVER_MAX).await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(level, %error, "a delay level cannot be read; tried again");
                return Look::Refused;
            }
        };
        let now = now_ms() as i64;
        let longest = self
            .store
            .with(|store| store.settings().delays.delay_ms(level));
        // A due time beyond the level's own delay means that the clock was moved.
        let is_due = |entry: &&Entry| entry.tags_code <= now || entry.tags_code > now + longest;
        let due: Vec<Entry> = entries.iter().take_while(is_due).copied().collect();
        if due.is_empty() {
            return match entries.first() {
                Some(next) => Look::DueAt(next.tags_code.max(0) as u64),
                None => Look::Refused,
            };
        }
        if self.stopping.get() {
            return Look::Empty;
        }
        self.delay.delivering.set(true);
        let look = self.deliver(level, at, &due).await;
        self.delay.delivering.set(false);
        look
    }

    async fn deliver(&self, level: i32, at: i64, due: &[Entry]) -> Look {
        let mut under_way = Vec::with_capacity(due.len());
        let mut unread = false;
        for &entry in due {
            let job = match self.load_record(entry).await {
                Ok(Some(bytes)) => delayed_job(&bytes),
                Ok(None) => None,
                Err(error) => {
                    tracing::warn!(level, %error, "a delayed message cannot be read; tried again");
                    unread = true;
                    break;
                }
            };
            if job.is_none() {
                tracing::warn!(
                    level,
                    physical = entry.physical,
                    "a delayed message cannot be read and is passed over"
                );
            }
            under_way.push(job.map(|job| {
                let owner = self.owner_of(&job.topic, job.queue_id);
                self.start_ask(owner, Ask::Append(job))
            }));
        }
        let mut next = at;
        let mut refused = false;
        for answer in under_way {
            let stored = match answer {
                None => true,
                Some(answer) => {
                    matches!(answer.get().await, Answer::Appended(AppendOutcome::Stored))
                }
            };
            // What comes behind a refused one may be stored twice, never lost.
            refused |= !stored;
            if !refused {
                next += 1;
                self.delay.progress.borrow_mut().insert(level, next);
            }
        }
        if refused || unread {
            Look::Refused
        } else {
            Look::Delivered
        }
    }
}

/// The message as it is stored under its real topic. Its properties stay as they
/// are: what they say about the delay has no effect any more.
fn delayed_job(bytes: &[u8]) -> Option<AppendJob> {
    let record = Record::parse(bytes).ok()?;
    record.verify().ok()?;
    let text = |name| {
        let value = properties::get(record.properties(), name)?;
        std::str::from_utf8(value).ok()
    };
    Some(AppendJob {
        topic: Arc::from(text(name::REAL_TOPIC)?),
        queue_id: text(name::REAL_QUEUE_ID)?
            .parse()
            .ok()
            .filter(|&id| id >= 0)?,
        flag: record.flag(),
        sys_flag: record.sys_flag(),
        born_timestamp: record.born_timestamp(),
        born_host: record.born_host(),
        reconsume_times: record.reconsume_times(),
        body: record.body().to_vec().into(),
        properties: record.properties().to_vec().into(),
        batch: false,
        wait: false,
    })
}
