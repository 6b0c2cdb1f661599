//! Entries to queue files, and the checkpoint that vouches for them.

use std::io;
use std::rc::Rc;

use super::checkpoint::{Checkpoint, IndexMark, Stored};
use super::edge::Files;
use super::handle::Shared;
use super::index;
use super::layout::checkpoint_file;
use super::queue_files::{self, Touched, WriteJob};
use super::shard_store::StoreSettings;
use super::spare;

/// Bytes of queue entries written in one go, which bounds the memory of a round.
const QUEUE_WRITE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Files that are made durable in one go.
const SYNC_STEP: usize = 8;

/// Writes new entries to the queue files, then the checkpoint. One round at a
/// time: a checkpoint vouches for the entries that rounds before it have taken.
///
/// # Errors
/// What could not be written: it stays in memory and is tried again with the next
/// round; the checkpoint on the device is the one before.
pub(super) async fn write_queues(shared: &Rc<Shared>, sync: bool) -> io::Result<()> {
    while shared.writing_queues.replace(true) {
        shared.progress.wait().await;
    }
    let written = write_queues_alone(shared, sync).await;
    shared.writing_queues.set(false);
    shared.progress.notify();
    written
}

async fn write_queues_alone(shared: &Rc<Shared>, sync: bool) -> io::Result<()> {
    loop {
        // The keys of what this round vouches for are entered in it.
        let mut index = match &shared.index {
            Some(slot) => Some(slot.take().await),
            None => None,
        };
        let keys = index.as_deref().map(|index| index::plan(shared, index));
        let (jobs, mut vouched, all) = shared
            .state
            .borrow_mut()
            .take_queue_writes(&shared.dir, QUEUE_WRITE_BYTES_MAX);
        let durable = shared.state.borrow().log.durable();
        let starts = shared.state.borrow().starts;
        let message_timestamp = shared.state.borrow().message_timestamp();
        let (indexes, jobs): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        let settings = shared.state.borrow().settings().clone();
        let dir = shared.dir.clone();
        let mut touched = shared.touched.take();
        let files = shared.files.clone();
        let (outcome, touched, index) = shared
            .edge
            .blocking(move || {
                if let (Some(index), Some(keys)) = (&mut index, keys) {
                    index.run(&*files, keys);
                    touched.add_files(index.take_touched());
                }
                let mut outcome = write_jobs(&*files, &jobs, &settings, &mut touched);
                let fault = outcome.fault.as_ref();
                if fault.is_some_and(|error| spare::give(&*files, &dir, error)) {
                    outcome = write_jobs(&*files, &jobs, &settings, &mut touched);
                }
                (outcome, touched, index)
            })
            .await;
        if let (Some(slot), Some(index)) = (&shared.index, index) {
            vouched.index = index.mark();
            slot.give_back(index);
        }
        shared.touched.borrow_mut().join(touched);
        let saved = if all && outcome.fault.is_none() {
            let promised = [Some(vouched), shared.unpromised.get()]
                .into_iter()
                .flatten()
                .find(|vouched| vouched.position <= durable);
            if let Some(promised) = promised {
                shared.promised.set(promised);
                shared.unpromised.set(None);
            }
            if shared.unpromised.get().is_none() {
                shared.unpromised.set(Some(vouched));
            }
            let checkpoint = Checkpoint {
                written: vouched,
                synced: shared.promised.get(),
                durable,
                starts,
                message_timestamp,
            };
            save_checkpoint(shared, checkpoint, sync).await
        } else {
            Ok(0)
        };
        let synced = *saved.as_ref().unwrap_or(&0);
        let retention = &shared.retention.synced;
        retention.set(retention.get().max(synced));
        let mut state = shared.state.borrow_mut();
        for (index, end) in indexes.into_iter().zip(outcome.done) {
            state.queue_written(index, end);
        }
        let fault = outcome.fault.or(saved.err());
        let fault = fault.map(|error| error.to_string());
        // A full disk is told of once, not four times a second.
        if state.set_queues_unwritable(fault.clone()) {
            match &fault {
                Some(fault) => tracing::error!(
                    shard = %shared.shard,
                    "{fault}: queue entries or checkpoint not written; they stay in memory and are tried again"
                ),
                None => tracing::info!(shard = %shared.shard, "queue entries are written again"),
            }
        }
        // What failed is tried again in the next round.
        if let Some(fault) = fault {
            return Err(io::Error::other(fault));
        }
        if all {
            return Ok(());
        }
    }
}

/// What became of a round's jobs.
struct Outcome {
    /// Of each the queue offset behind what was written; `None`: it was not.
    done: Vec<Option<u64>>,
    /// The first thing that went wrong.
    fault: Option<io::Error>,
}

fn write_jobs(
    files: &dyn Files,
    jobs: &[WriteJob],
    settings: &StoreSettings,
    touched: &mut Touched,
) -> Outcome {
    let mut outcome = Outcome {
        done: Vec::with_capacity(jobs.len()),
        fault: None,
    };
    for job in jobs {
        let written = queue_files::write(files, job, settings.queue_file_bytes, touched);
        outcome.done.push(match written {
            Ok(()) => Some(job.end()),
            Err(error) => {
                outcome.fault.get_or_insert(error);
                None
            }
        });
    }
    outcome
}

/// Writes the checkpoint; with `sync`, after all files that were written were made
/// durable. Returns the position up to which the device then holds the queue files, 0
/// without `sync`.
async fn save_checkpoint(
    shared: &Shared,
    mut checkpoint: Checkpoint,
    sync: bool,
) -> io::Result<u64> {
    shared.touched.borrow().check()?;
    // What the device holds of the index is known better than where it is behind, or
    // may have lost something.
    let index = Some(checkpoint.synced.index)
        .filter(|mark| sync && *mark != IndexMark::default())
        .unwrap_or(shared.index_synced.get());
    if sync {
        sync_touched(shared).await?;
    }
    let (files, dir) = (shared.files.clone(), shared.dir.clone());
    let save = move || {
        let path = checkpoint_file(&dir);
        // What was synced before stays the promise.
        let before = Stored::load(&*files, &path)?.synced();
        if !sync || before.position > checkpoint.synced.position {
            checkpoint.synced = before;
        }
        checkpoint.synced.index = index;
        let boot = files.boot_id()?;
        let save = || checkpoint.save(&*files, &path, &boot, sync);
        save().or_else(|error| match spare::give(&*files, &dir, &error) {
            true => save(),
            false => Err(error),
        })?;
        if sync {
            spare::keep(&*files, &dir);
        }
        Ok(checkpoint.synced.position)
    };
    let synced: io::Result<u64> = shared.edge.blocking(save).await;
    if sync && synced.is_ok() {
        shared.index_synced.set(index);
    }
    synced.map(|position| if sync { position } else { 0 })
}

/// Makes the files durable that were written since the last time, a few in one go: the
/// helper thread has other work.
async fn sync_touched(shared: &Shared) -> io::Result<()> {
    let pieces = shared.touched.take().into_pieces(SYNC_STEP);
    for mut piece in pieces {
        let (files, dir) = (shared.files.clone(), shared.dir.clone());
        let sync = move || {
            let synced = queue_files::sync(&*files, &dir, &mut piece);
            (synced, piece)
        };
        let (synced, piece) = shared.edge.blocking(sync).await;
        // That it failed is remembered.
        shared.touched.borrow_mut().join(piece);
        synced?;
    }
    Ok(())
}
