//! A shard's store as its shard holds it, and what it loads for readers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future;

use super::block_loads::{load_block, read_on};
use super::checkpoint::{IndexMark, Vouched};
use super::consume_queue::{Entry, QueueIndex};
use super::edge::{Edge, Files, LogFile, Patience, Ring, if_there};
use super::flush::flush_gathered;
use super::index::{IndexFiles, IndexSlot, run_index};
use super::layout::consume_queue_root;
use super::prepare::fill_found;
use super::queue_files::{self, Touched};
use super::queue_writer::write_queues;
use super::retention::Retention;
use super::shard_store::{AckLevel, Missing, ShardStore, StoreSettings};
use super::sync_flush::flush_awaited;
use super::{OpenError, RecoveryReport, ShardId, recovery, spare};
use crate::local_event::LocalEvent;

/// Time between two rounds of queue writes.
const QUEUE_WRITE_INTERVAL: Duration = Duration::from_millis(250);

/// Time between two rounds of queue writes that are synced.
const QUEUE_SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// What the tasks of a store share.
pub(super) struct Shared {
    pub edge: Rc<dyn Edge>,
    pub files: Arc<dyn Files>,
    pub dir: PathBuf,
    pub shard: ShardId,
    pub state: RefCell<ShardStore>,
    /// There is something to write, or enough has gathered.
    pub work: LocalEvent,
    /// So many entries have gathered that they are written before their time.
    pub many_entries: LocalEvent,
    /// A watermark moved, or room appeared.
    pub progress: LocalEvent,
    pub closing: Cell<bool>,
    pub preparing: Cell<bool>,
    /// What queue files hold, for a log that the device has yet to promise.
    pub unpromised: Cell<Option<Vouched>>,
    /// The newest of these that it has promised.
    pub promised: Cell<Vouched>,
    /// What the device holds of the index, as the checkpoint says.
    pub index_synced: Cell<IndexMark>,
    /// A round of queue writes is under way.
    pub writing_queues: Cell<bool>,
    pub retention: Retention,
    /// Segments that are open for reading.
    pub read_files: RefCell<HashMap<u64, Rc<dyn LogFile>>>,
    /// Where the log ended when blocks were read ahead last.
    pub written_at_read: Cell<u64>,
    /// Blocks that are being read.
    pub loading: RefCell<HashMap<u64, Rc<LocalEvent>>>,
    /// Queue files written since the last sync.
    pub touched: RefCell<Touched>,
    /// The index; `None`: keys are not indexed.
    pub index: Option<IndexSlot>,
}

impl Shared {
    /// Closes the segments in front of `position` when those who read them are done.
    pub fn forget_read_files(&self, position: u64) {
        let mut files = self.read_files.borrow_mut();
        files.retain(|&base, _| base >= position);
    }
}

/// A shard's store, shared by the tasks of its shard.
#[derive(Clone)]
pub struct StoreHandle {
    shared: Rc<Shared>,
}

impl StoreHandle {
    /// Opens the store in a shard's folder and makes it whole, on the thread that runs its
    /// loop. Waits for the disk.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        dir: &Path,
        shard: ShardId,
        settings: StoreSettings,
    ) -> Result<(StoreHandle, RecoveryReport), OpenError> {
        StoreHandle::open_on(Rc::new(Ring::new()), dir, shard, settings)
    }

    /// Opens the store behind another edge.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(super) fn open_on(
        edge: Rc<dyn Edge>,
        dir: &Path,
        shard: ShardId,
        settings: StoreSettings,
    ) -> Result<(StoreHandle, RecoveryReport), OpenError> {
        let files = edge.files();
        let opened = recovery::open(&*files, dir, shard, &settings)?;
        spare::keep(&*files, dir);
        let retention = Retention::new(opened.log.min(), opened.synced);
        let index = settings
            .index
            .map(|geometry| IndexSlot::new(IndexFiles::new(shard, dir, geometry, opened.index)));
        let state = ShardStore::new(
            opened.log,
            opened.queues,
            settings,
            opened.message_timestamp,
        );
        let shared = Shared {
            edge,
            files,
            dir: dir.to_owned(),
            shard,
            state: RefCell::new(state),
            work: LocalEvent::default(),
            many_entries: LocalEvent::default(),
            progress: LocalEvent::default(),
            closing: Cell::new(false),
            preparing: Cell::new(false),
            unpromised: Cell::default(),
            promised: Cell::default(),
            index_synced: Cell::new(opened.index.left.synced),
            writing_queues: Cell::new(false),
            retention,
            read_files: RefCell::default(),
            written_at_read: Cell::default(),
            loading: RefCell::default(),
            touched: RefCell::new(opened.touched),
            index,
        };
        let handle = StoreHandle {
            shared: Rc::new(shared),
        };
        Ok((handle, opened.report))
    }

    pub(super) fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }

    /// Sets the time between device flushes under ASYNC_FLUSH, ms.
    pub fn set_flush_interval(&self, ms: u64) {
        self.shared.state.borrow_mut().settings.flush_interval_ms = ms;
        self.shared.work.notify();
    }

    /// Works on the state. Nothing may be awaited inside, and nothing is held after.
    pub fn with<R>(&self, work: impl FnOnce(&mut ShardStore) -> R) -> R {
        let mut state = self.shared.state.borrow_mut();
        let was_clean = state.log.flushed() == state.log.written();
        let was_gathered = state.is_gathered();
        let had_many = state.has_many_entries();
        let result = work(&mut state);
        let is_clean = state.log.flushed() == state.log.written();
        if (was_clean && !is_clean) || (!was_gathered && state.is_gathered()) {
            self.shared.work.notify();
        }
        if !had_many && state.has_many_entries() {
            self.shared.many_entries.notify();
        }
        let reached = state.take_reached();
        drop(state);
        if let Some(reached) = reached {
            read_on(&self.shared, reached);
        }
        result
    }

    /// Notified when a watermark moves or room appears.
    pub fn progress(&self) -> &LocalEvent {
        &self.shared.progress
    }

    /// Loads what a read was missing.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn load(&self, missing: Missing) -> io::Result<()> {
        match missing {
            Missing::Entries { queue, first } => self.load_entries(queue, first).await,
            Missing::Block { position } => load_block(&self.shared, position).await,
        }
    }

    async fn load_entries(&self, queue: QueueIndex, first: u64) -> io::Result<()> {
        let shared = &self.shared;
        let (dir, file_bytes, count) =
            shared
                .state
                .borrow()
                .chunk_source(&shared.dir, queue, first);
        let read = move |files: &dyn Files, dir: &Path, patience| {
            queue_files::read(files, dir, file_bytes, first, count, patience)
        };
        let cached = read(&*shared.files, &dir, Patience::Cached);
        let entries: Vec<Entry> = match cached {
            Ok(entries) if !entries.is_empty() => entries,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {
                let files = shared.files.clone();
                let waiting = move || read(&*files, &dir, Patience::Wait);
                shared.edge.blocking(waiting).await?
            }
        };
        if entries.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("queue file has no entry {first}"),
            ));
        }
        shared
            .state
            .borrow_mut()
            .insert_chunk(queue, first, entries);
        Ok(())
    }

    /// Removes a topic's queues and their files.
    pub async fn remove_topic(&self, topic: &str) {
        let removed = self.with(|store| store.remove_topic(topic));
        if removed.is_empty() {
            return;
        }
        let dir = consume_queue_root(&self.shared.dir).join(topic);
        let (files, path) = (self.shared.files.clone(), dir.clone());
        let remove = move || files.remove_dir_all(&path);
        if let Err(error) = if_there(self.shared.edge.blocking(remove).await) {
            tracing::warn!(path = %dir.display(), %error, "queue files of a removed topic stay");
        }
        // A restart that read the log from before the removal would bring the topic back.
        if let Err(error) = write_queues(&self.shared, true).await {
            tracing::warn!(topic, %error, "a restart may bring the removed topic back");
        }
    }

    /// Writes everything, makes it durable and records that: a store closed like
    /// this opens without reading its log. The caller appends nothing any more.
    ///
    /// # Errors
    /// Text with the cause; what was acknowledged is safe as its level says.
    pub async fn close(&self) -> io::Result<()> {
        let shared = &self.shared;
        shared.closing.set(true);
        shared.state.borrow_mut().log.close();
        shared.work.notify();
        loop {
            let (is_durable, failed) = {
                let log = &shared.state.borrow().log;
                let failed = log.failure().map(str::to_owned);
                (log.durable() == log.written() && !log.is_zeroed(), failed)
            };
            if let Some(why) = failed {
                return Err(io::Error::other(why));
            }
            if is_durable {
                break;
            }
            shared.progress.wait().await;
        }
        write_queues(shared, true).await
    }
}

/// Starts the tasks of a store on its loop. They run until the process ends; none
/// is ever cancelled. Nothing may be read or appended before.
pub fn run_background(handle: &StoreHandle) {
    let edge = &handle.shared.edge;
    let shared = handle.shared.clone();
    fill_found(&shared);
    let ack = shared.state.borrow().settings().ack;
    edge.spawn(
        "the log",
        Box::pin(async move {
            match ack {
                AckLevel::Written => flush_gathered(&shared).await,
                AckLevel::Durable => flush_awaited(&shared).await,
            }
        }),
    );
    let shared = handle.shared.clone();
    edge.spawn(
        "index files",
        Box::pin(async move { run_index(&shared).await }),
    );
    let shared = handle.shared.clone();
    edge.spawn(
        "queue files",
        Box::pin(async move { keep_queues_written(&shared).await }),
    );
}

async fn keep_queues_written(shared: &Rc<Shared>) {
    let (mut synced, mut cooled) = (shared.edge.now(), shared.edge.now());
    let mut is_failing = false;
    while !shared.closing.get() {
        let pause = shared.edge.sleep(QUEUE_WRITE_INTERVAL);
        if is_failing {
            pause.await;
        } else if !shared.state.borrow().has_many_entries() {
            future::or(pause, shared.many_entries.wait()).await;
        }
        if !shared.closing.get() {
            let now = shared.edge.now();
            let sync = now - synced >= QUEUE_SYNC_INTERVAL;
            if sync {
                synced = now;
            }
            // Told of where it happens, and tried again.
            is_failing = write_queues(shared, sync).await.is_err();
            if now - cooled >= QUEUE_WRITE_INTERVAL {
                cooled = now;
                shared.state.borrow_mut().cool_queues();
            }
        }
    }
}
