//! A shard's store as its shard holds it, and the tasks that move its bytes:
//! log to device, entries to queue files, segments ahead of their need.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::future;
use glommio::timer::sleep;

use super::blocks::CACHE_BLOCK_BYTES;
use super::checkpoint::{Checkpoint, Vouched};
use super::consume_queue::{ENTRY_BYTES, Entry, QueueIndex};
use super::io::{LogFile, probe_device};
use super::queue_files::{self, WriteJob};
use super::shard_store::{AckLevel, Missing, ShardStore, StoreSettings};
use super::tail::boot_id;
use super::{OpenError, RecoveryReport, ShardId, recovery, segment};
use crate::local_event::LocalEvent;

/// Largest write to the log, in bytes.
const FLUSH_BYTES_MAX: usize = 1024 * 1024;

/// Longest time that bytes gather under ASYNC_FLUSH before they are written.
const GATHER: Duration = Duration::from_millis(10);

/// Time between two rounds of queue writes.
const QUEUE_WRITE_INTERVAL: Duration = Duration::from_millis(250);

/// Bytes of queue entries written in one go, which bounds the memory of a round.
const QUEUE_WRITE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Rounds of queue writes between two that are synced.
const ROUNDS_PER_SYNC: u32 = 20;

/// Segment files kept open for reading. At the bound all are closed.
const READ_FILES_MAX: usize = 32;

/// Time before a refused segment file is tried again.
const PREPARE_RETRY: Duration = Duration::from_secs(1);

struct Shared {
    dir: PathBuf,
    shard: ShardId,
    state: RefCell<ShardStore>,
    /// There is something to write, or enough has gathered.
    work: LocalEvent,
    /// A watermark moved, or room appeared.
    progress: LocalEvent,
    closing: Cell<bool>,
    preparing: Cell<bool>,
    /// What queue files hold, for a log that the device has yet to promise.
    unpromised: Cell<Option<Vouched>>,
    /// The newest of these that it has promised.
    promised: Cell<Vouched>,
    /// A round of queue writes is under way.
    writing_queues: Cell<bool>,
    read_files: RefCell<HashMap<u64, Rc<LogFile>>>,
    /// Blocks that are being read.
    loading: RefCell<HashMap<u64, Rc<LocalEvent>>>,
    /// Queue files written since the last sync.
    touched: RefCell<HashSet<PathBuf>>,
}

/// A shard's store, shared by the tasks of its shard.
#[derive(Clone)]
pub struct StoreHandle {
    shared: Rc<Shared>,
}

impl StoreHandle {
    /// Opens the store in a shard's folder and makes it whole. Waits for the disk.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        dir: &Path,
        shard: ShardId,
        settings: StoreSettings,
    ) -> Result<(StoreHandle, RecoveryReport), OpenError> {
        let opened = recovery::open(dir, shard, &settings)?;
        let state = ShardStore::new(
            opened.log,
            opened.queues,
            settings,
            opened.message_timestamp,
        );
        let shared = Shared {
            dir: dir.to_owned(),
            shard,
            state: RefCell::new(state),
            work: LocalEvent::default(),
            progress: LocalEvent::default(),
            closing: Cell::new(false),
            preparing: Cell::new(false),
            unpromised: Cell::default(),
            promised: Cell::default(),
            writing_queues: Cell::new(false),
            read_files: RefCell::default(),
            loading: RefCell::default(),
            touched: RefCell::new(opened.touched),
        };
        let handle = StoreHandle {
            shared: Rc::new(shared),
        };
        Ok((handle, opened.report))
    }

    /// Works on the state. Nothing may be awaited inside, and nothing is held after.
    pub fn with<R>(&self, work: impl FnOnce(&mut ShardStore) -> R) -> R {
        let mut state = self.shared.state.borrow_mut();
        let was_clean = state.log.flushed() == state.log.written();
        let was_gathered = state.is_gathered();
        let result = work(&mut state);
        let is_clean = state.log.flushed() == state.log.written();
        if (was_clean && !is_clean) || (!was_gathered && state.is_gathered()) {
            self.shared.work.notify();
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
            Missing::Block { position } => self.load_block(position).await,
        }
    }

    async fn load_entries(&self, queue: QueueIndex, first: u64) -> io::Result<()> {
        let shared = &self.shared;
        let (dir, file_bytes, count) = shared.state.borrow().chunk_source(&shared.dir, queue);
        let cached = queue_files::read(&dir, file_bytes, first, count, queue_files::read_cached);
        let entries: Vec<Entry> = match cached {
            Ok(entries) if !entries.is_empty() => entries,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {
                let read = move || {
                    queue_files::read(&dir, file_bytes, first, count, queue_files::read_waiting)
                };
                glommio::executor().spawn_blocking(read).await?
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

    /// Loads a block once for all who want it at the same time; reads ahead for
    /// who reads on.
    async fn load_block(&self, position: u64) -> io::Result<()> {
        let shared = &self.shared;
        let loading = shared.loading.borrow().get(&position).cloned();
        if let Some(loading) = loading {
            loading.wait().await;
            return Ok(());
        }
        let done = Rc::new(LocalEvent::default());
        shared.loading.borrow_mut().insert(position, done.clone());
        let loaded = self.read_block(position).await;
        shared.loading.borrow_mut().remove(&position);
        done.notify();
        let next = position + CACHE_BLOCK_BYTES;
        let reads_on = shared.state.borrow().reads_on(position, next);
        if loaded.is_ok() && reads_on && !shared.loading.borrow().contains_key(&next) {
            let me = self.clone();
            shared.loading.borrow_mut().insert(next, Rc::default());
            glommio::spawn_local(async move {
                // Who needs it and does not find it says what is wrong.
                let _ = me.read_block(next).await;
                let done = me.shared.loading.borrow_mut().remove(&next);
                done.inspect(|done| done.notify());
            })
            .detach();
        }
        loaded
    }

    async fn read_block(&self, position: u64) -> io::Result<()> {
        let shared = &self.shared;
        let (base, end) = {
            let log = &shared.state.borrow().log;
            let base = position - position % log.segment_bytes();
            let end = log.flushed().min(base + log.segment_bytes());
            (base, end.min(position + CACHE_BLOCK_BYTES))
        };
        if end <= position {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("position {position} is not in the log"),
            ));
        }
        let file = self.read_file(base).await?;
        let len = (end - position) as usize;
        let bytes = file.read(position - base, len).await?;
        if bytes.len() < len {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "segment {base} ends at byte {}",
                    position - base + bytes.len() as u64
                ),
            ));
        }
        shared.state.borrow_mut().insert_block(position, bytes);
        Ok(())
    }

    async fn read_file(&self, base: u64) -> io::Result<Rc<LogFile>> {
        let shared = &self.shared;
        if let Some(file) = shared.read_files.borrow().get(&base) {
            return Ok(file.clone());
        }
        let path = segment::path(&shared.dir, shared.shard, base);
        let file = Rc::new(LogFile::open_read(&path).await?);
        let mut files = shared.read_files.borrow_mut();
        if files.len() >= READ_FILES_MAX {
            files.clear();
        }
        files.insert(base, file.clone());
        Ok(file)
    }

    /// Removes a topic's queues and their files.
    pub async fn remove_topic(&self, topic: &str) {
        let removed = self.with(|store| store.remove_topic(topic));
        if removed.is_empty() {
            return;
        }
        let dir = super::layout::consume_queue_root(&self.shared.dir).join(topic);
        let path = dir.clone();
        let remove = move || std::fs::remove_dir_all(path);
        if let Err(error) = glommio::executor().spawn_blocking(remove).await {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %dir.display(), %error, "queue files of a removed topic stay");
            }
        }
        // A restart that read the log from before the removal would bring the topic back.
        write_queues(&self.shared, true).await;
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
            let (target, durable, failed) = {
                let log = &shared.state.borrow().log;
                let failed = log.failure().map(str::to_owned);
                (log.written(), log.durable(), failed)
            };
            if let Some(why) = failed {
                return Err(io::Error::other(why));
            }
            if durable == target {
                break;
            }
            shared.progress.wait().await;
        }
        write_queues(shared, true).await;
        Ok(())
    }
}

/// Starts the tasks of a store on the current executor. They run until the
/// process ends; none is ever cancelled. Nothing may be read or appended before.
pub async fn run_background(handle: &StoreHandle) {
    probe_device(&handle.shared.dir.join("tail")).await;
    let shared = handle.shared.clone();
    glommio::spawn_local(async move { flush_log(&shared).await }).detach();
    let shared = handle.shared.clone();
    glommio::spawn_local(async move {
        let mut round = 0;
        while !shared.closing.get() {
            sleep(QUEUE_WRITE_INTERVAL).await;
            round += 1;
            if !shared.closing.get() {
                write_queues(&shared, round % ROUNDS_PER_SYNC == 0).await;
            }
        }
    })
    .detach();
}

/// Writes what gathers in the tail to the segments, one write in flight.
///
/// Under SYNC_FLUSH what arrives during a write forms the next one. Under
/// ASYNC_FLUSH nobody waits for the write, so it gathers, and the device is asked
/// for its promise once an interval.
async fn flush_log(shared: &Rc<Shared>) {
    let settings = shared.state.borrow().settings().clone();
    let dsync = settings.ack == AckLevel::Durable;
    let mut file: Option<(u64, LogFile)> = None;
    let mut synced_at = Instant::now();
    loop {
        prepare_segment(shared);
        let (plan, gathered, unsynced) = {
            let state = shared.state.borrow();
            let log = &state.log;
            let unsynced = log.durable() < log.flushed();
            (
                log.next_flush(FLUSH_BYTES_MAX),
                state.is_gathered(),
                unsynced,
            )
        };
        let sync_due = synced_at.elapsed() >= Duration::from_millis(settings.flush_interval_ms);
        if unsynced && (sync_due || (shared.closing.get() && plan.is_none())) {
            let Some((_, file)) = &file else {
                unreachable!("flushed without a file")
            };
            let flushed = shared.state.borrow().log.flushed();
            match file.sync().await {
                Ok(()) => shared.state.borrow_mut().log.set_durable(flushed),
                Err(error) => {
                    fail(shared, "flush", flushed, &error);
                    shared.progress.notify();
                    return;
                }
            }
            synced_at = Instant::now();
            shared.progress.notify();
            continue;
        }
        let Some(plan) = plan else {
            if unsynced {
                let left = Duration::from_millis(settings.flush_interval_ms)
                    .saturating_sub(synced_at.elapsed());
                future::or(shared.work.wait(), async {
                    sleep(left).await;
                })
                .await;
            } else {
                shared.work.wait().await;
                synced_at = Instant::now();
            }
            continue;
        };
        if !gathered && !shared.closing.get() {
            future::or(shared.work.wait(), async {
                sleep(GATHER).await;
            })
            .await;
        }
        // Planned again: more may have come while it gathered.
        let plan = shared
            .state
            .borrow()
            .log
            .next_flush(FLUSH_BYTES_MAX)
            .unwrap_or(plan);
        if file.as_ref().is_none_or(|(base, _)| *base != plan.segment) {
            if let Some((_, done)) = file.take() {
                if !dsync {
                    // The next flush goes to another file: this one is made durable first.
                    if let Err(error) = done.sync().await {
                        fail(shared, "flush", plan.start, &error);
                        shared.progress.notify();
                        return;
                    }
                }
                done.close().await;
            }
            let path = segment::path(&shared.dir, shared.shard, plan.segment);
            match LogFile::open_write(&path, dsync).await {
                Ok(opened) => file = Some((plan.segment, opened)),
                Err(error) => {
                    fail(shared, "open", plan.start, &error);
                    shared.progress.notify();
                    return;
                }
            }
        }
        let Some((_, file)) = &file else {
            unreachable!("opened above")
        };
        let write = file.write(plan.start - plan.segment, plan.buffer_len(), |buffer| {
            shared.state.borrow().log.fill(&plan, buffer);
        });
        match write.await {
            Ok(()) => {
                let mut state = shared.state.borrow_mut();
                state.log.set_flushed(plan.end);
                if dsync {
                    state.log.set_durable(plan.end);
                    state.show_durable();
                }
            }
            Err(error) => fail(shared, "write", plan.start, &error),
        }
        shared.progress.notify();
        if shared.state.borrow().log.failure().is_some() {
            return;
        }
    }
}

/// A failed write or flush is final for the log: what the device did with the
/// bytes is unknown, and asking again may be answered with a lie.
fn fail(shared: &Shared, what: &str, position: u64, error: &io::Error) {
    let base = {
        let log = &shared.state.borrow().log;
        position - position % log.segment_bytes()
    };
    let path = segment::path(&shared.dir, shared.shard, base);
    let why = format!(
        "{}: {what} at byte {} failed: {error}",
        path.display(),
        position - base
    );
    tracing::error!(shard = %shared.shard, "{why}; the shard takes no more messages");
    shared.state.borrow_mut().log.fail(why);
}

/// Makes the next segment when the log comes near the end of the last one.
fn prepare_segment(shared: &Rc<Shared>) {
    let (end, bytes) = {
        let log = &shared.state.borrow().log;
        let bytes = log.segment_bytes();
        let ahead = (bytes / 2).min(256 * 1024 * 1024);
        if log.written() + ahead <= log.prepared_end() {
            return;
        }
        (log.prepared_end(), bytes)
    };
    if shared.preparing.replace(true) {
        return;
    }
    let shared = shared.clone();
    glommio::spawn_local(async move {
        let (dir, shard) = (shared.dir.clone(), shared.shard);
        let create = move || segment::create(&dir, shard, end, bytes);
        let created = glommio::executor().spawn_blocking(create).await;
        match &created {
            Ok(()) => shared.state.borrow_mut().log.set_prepared(end + bytes),
            Err(error) => {
                tracing::error!(%shard, %error, "cannot make the next segment");
                shared
                    .state
                    .borrow_mut()
                    .log
                    .set_unprepared(error.to_string());
                sleep(PREPARE_RETRY).await;
            }
        }
        shared.preparing.set(false);
        shared.progress.notify();
        shared.work.notify();
    })
    .detach();
}

/// Writes new entries to the queue files, then the checkpoint. One round at a
/// time: a checkpoint vouches for the entries that rounds before it have taken.
async fn write_queues(shared: &Rc<Shared>, sync: bool) {
    while shared.writing_queues.replace(true) {
        shared.progress.wait().await;
    }
    write_queues_alone(shared, sync).await;
    shared.writing_queues.set(false);
    shared.progress.notify();
}

async fn write_queues_alone(shared: &Rc<Shared>, sync: bool) {
    loop {
        let (jobs, vouched, all) = shared
            .state
            .borrow_mut()
            .take_queue_writes(&shared.dir, QUEUE_WRITE_BYTES_MAX);
        let durable = shared.state.borrow().log.durable();
        let promised = [Some(vouched), shared.unpromised.get()]
            .into_iter()
            .flatten()
            .find(|vouched| vouched.position <= durable);
        if let Some(promised) = promised {
            shared.promised.set(promised);
            shared.unpromised.set(None);
        }
        let checkpoint = Checkpoint {
            written: vouched,
            synced: shared.promised.get(),
            message_timestamp: shared.state.borrow().message_timestamp(),
        };
        let (indexes, jobs): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        let settings = shared.state.borrow().settings().clone();
        let dir = shared.dir.clone();
        let mut touched = shared.touched.take();
        let (done, touched, saved, whole) = glommio::executor()
            .spawn_blocking(move || {
                let done = write_jobs(&jobs, &settings, &mut touched);
                let whole = all && done.iter().all(Option::is_some);
                let saved = if whole {
                    save_checkpoint(&dir, checkpoint, sync.then_some(&mut touched))
                } else {
                    Ok(())
                };
                (done, touched, saved, whole)
            })
            .await;
        shared.touched.borrow_mut().extend(touched);
        if whole && shared.unpromised.get().is_none() {
            shared.unpromised.set(Some(vouched));
        }
        if let Err(error) = saved {
            tracing::warn!(%error, "checkpoint not written; a restart reads more of the log");
        }
        let mut state = shared.state.borrow_mut();
        for (index, end) in indexes.into_iter().zip(done) {
            state.queue_written(index, end);
        }
        if all {
            return;
        }
    }
}

fn write_jobs(
    jobs: &[WriteJob],
    settings: &StoreSettings,
    touched: &mut HashSet<PathBuf>,
) -> Vec<Option<u64>> {
    let mut done = Vec::with_capacity(jobs.len());
    for job in jobs {
        match queue_files::write(job, settings.queue_file_bytes, touched) {
            Ok(()) => done.push(Some(job.first + (job.bytes.len() / ENTRY_BYTES) as u64)),
            Err(error) => {
                tracing::warn!(%error, "queue entries not written; they stay in memory");
                done.push(None);
            }
        }
    }
    done
}

/// Writes the checkpoint; with `sync`, after the named files were made durable.
fn save_checkpoint(
    dir: &Path,
    mut checkpoint: Checkpoint,
    sync: Option<&mut HashSet<PathBuf>>,
) -> io::Result<()> {
    let path = dir.join("checkpoint");
    let boot = boot_id()?;
    // What was synced before stays the promise.
    let before = Checkpoint::load_synced(&path)?;
    if let Some(touched) = sync {
        queue_files::sync(touched)?;
        touched.clear();
        if before.position > checkpoint.synced.position {
            checkpoint.synced = before;
        }
        checkpoint.save(&path, &boot, true)
    } else {
        checkpoint.synced = before;
        checkpoint.save(&path, &boot, false)
    }
}
