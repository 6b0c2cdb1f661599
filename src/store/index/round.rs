//! The index between the shard's loop and the helper thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::super::edge::Files;
use super::super::handle::Shared;
use super::super::{ShardId, StoreHandle};
use super::{IndexCursor, IndexFiles, KeyQuery, PendingKey};
use crate::local_event::LocalEvent;
use crate::store::pieces::Pieces;

/// Pause between two steps of a catch-up: the helper thread has other work.
const STEP_PAUSE: Duration = Duration::from_millis(2);

/// Time between looks at whether there is something to catch up on, and before a
/// step that failed is tried again.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// How long a query waits for an index that is behind the log. Clients give up
/// after 3 s.
const QUERY_PATIENCE: Duration = Duration::from_secs(2);

/// Failures in a row from one that is logged to the next.
const FAILURES_PER_LINE: u32 = 60;

/// The index files of a shard while nobody works on them.
pub struct IndexSlot {
    files: RefCell<Option<Box<IndexFiles>>>,
    free: LocalEvent,
}

impl IndexSlot {
    /// A slot that holds these files.
    pub fn new(files: IndexFiles) -> IndexSlot {
        IndexSlot {
            files: RefCell::new(Some(Box::new(files))),
            free: LocalEvent::default(),
        }
    }

    /// Takes the files; the caller gives them back. One at a time has them.
    pub async fn take(&self) -> Box<IndexFiles> {
        loop {
            if let Some(files) = self.files.borrow_mut().take() {
                return files;
            }
            self.free.wait().await;
        }
    }

    /// Gives the files back.
    pub fn give_back(&self, files: Box<IndexFiles>) {
        *self.files.borrow_mut() = Some(files);
        self.free.notify();
    }
}

/// What a round does.
pub enum Work {
    /// These keys are entered; they are those up to a position.
    Keys(Pieces<PendingKey>, u64),
    /// Files are opened or repaired, or keys are entered from the log up to a position.
    Behind(u64),
}

impl IndexFiles {
    /// Does a round's work. Failures are logged; what they leave out is entered from the
    /// log.
    pub fn run(&mut self, files: &dyn Files, work: Work) {
        let done = match work {
            Work::Keys(keys, end) => self.enter(files, keys.slices(), end),
            Work::Behind(target) => {
                let ready = self.prepare(files);
                ready.and_then(|ready| match ready {
                    true => self.catch_up(files, target),
                    false => Ok(()),
                })
            }
        };
        match done {
            Ok(()) => self.failures = 0,
            Err(error) => {
                if self.failures % FAILURES_PER_LINE == 0 {
                    tracing::warn!(
                        shard = %self.shard, %error,
                        "keys are not indexed now; they are entered from the log later"
                    );
                }
                self.failures += 1;
            }
        }
    }
}

/// What a round should do now.
pub fn plan(shared: &Shared, index: &IndexFiles) -> Work {
    let mut state = shared.state.borrow_mut();
    let (written, flushed) = (state.log().written(), state.log().flushed());
    match state.pending_keys() {
        Some(keys) => keys.plan(index, written, flushed),
        None => Work::Behind(0),
    }
}

/// How an index stands after a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// All that was appended before the round is in it.
    Whole,
    /// It is behind.
    Behind,
    /// It is behind, and the last step failed.
    Failing,
}

/// One round, alone or for a query.
async fn round(shared: &Rc<Shared>, slot: &IndexSlot) -> Standing {
    let mut index = slot.take().await;
    let work = plan(shared, &index);
    let all = matches!(work, Work::Keys(..));
    if matches!(&work, Work::Keys(keys, _) if keys.is_empty()) {
        // Nothing to write: not worth the way to the helper thread.
        index.run(&*shared.files, work);
        slot.give_back(index);
        return Standing::Whole;
    }
    let files = shared.files.clone();
    let index = shared
        .edge
        .blocking(move || {
            index.run(&*files, work);
            index
        })
        .await;
    let standing = match index.failures {
        0 if all => Standing::Whole,
        0 => Standing::Behind,
        _ => Standing::Failing,
    };
    slot.give_back(index);
    standing
}

/// Brings up an index that is behind, for as long as the store is open.
pub async fn run_index(shared: &Rc<Shared>) {
    let Some(slot) = &shared.index else { return };
    while !shared.closing.get() {
        let behind = {
            let index = slot.take().await;
            let behind = shared
                .state
                .borrow_mut()
                .pending_keys()
                .is_some_and(|keys| keys.is_ahead_of(&index));
            slot.give_back(index);
            behind
        };
        let pause = if behind && round(shared, slot).await != Standing::Failing {
            STEP_PAUSE
        } else {
            IDLE_PAUSE
        };
        shared.edge.sleep(pause).await;
    }
}

/// What a step of a search found.
#[derive(Debug, Default)]
pub struct KeyHits {
    /// Physical offsets of records that may be meant, newest first.
    pub physical: Vec<i64>,
    /// Where to go on, `None` at the end.
    pub next: Option<IndexCursor>,
}

impl StoreHandle {
    /// Whether keys are indexed.
    pub fn has_index(&self) -> bool {
        self.shared().index.is_some()
    }

    /// Waits until the keys of all that was appended before are in the index; not
    /// for ever where it is far behind. Returns store time and physical offset of the
    /// newest record in it, zeros where there is none.
    pub async fn settle_index(&self) -> (i64, i64) {
        let shared = self.shared();
        let Some(slot) = &shared.index else {
            return (0, 0);
        };
        let began = shared.edge.now();
        loop {
            let standing = round(shared, slot).await;
            let waited = shared.edge.now().saturating_sub(began);
            if standing != Standing::Behind || waited >= QUERY_PATIENCE {
                break;
            }
        }
        let index = slot.take().await;
        let last = index.last_update();
        slot.give_back(index);
        last
    }

    /// Looks for a key, a bounded step; see [`KeyHits::next`].
    pub async fn find_key(&self, query: KeyQuery, from: Option<IndexCursor>) -> KeyHits {
        let shared = self.shared();
        let Some(slot) = &shared.index else {
            return KeyHits::default();
        };
        let index = slot.take().await;
        let files = shared.files.clone();
        let (index, hits) = shared
            .edge
            .blocking(move || {
                let mut hits = KeyHits::default();
                hits.next = index.find(&*files, &query, from, &mut hits.physical);
                (index, hits)
            })
            .await;
        slot.give_back(index);
        hits
    }

    /// Removes the index files of which all records lie in front of a position of
    /// the log, as when its segments are gone.
    pub async fn remove_index_before(&self, position: u64) {
        let shared = self.shared();
        let Some(slot) = &shared.index else { return };
        let physical = shared.state.borrow().log().physical(position);
        let mut index = slot.take().await;
        let files = shared.files.clone();
        let (index, removed) = shared
            .edge
            .blocking(move || {
                let removed = index.remove_before(&*files, physical);
                (index, removed)
            })
            .await;
        slot.give_back(index);
        if let Err(error) = removed {
            let shard: ShardId = shared.shard;
            tracing::warn!(%shard, %error, "an index file cannot be removed");
        }
    }
}
