//! Segments made ahead of their need.
//!
//! Under SYNC_FLUSH they are filled with zeros as well: to a block that was never written a
//! file system has to note with the first write that it is in use now, and to promise that
//! along with the bytes. That takes half as long again as the write itself.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::edge::{BlocksToWrite, LogMode};
use super::handle::Shared;
use super::segment;
use super::shard_store::AckLevel;

/// Time before a refused segment file, or a write that found no space, is tried again.
pub(super) const SPACE_RETRY: Duration = Duration::from_secs(1);

/// Furthest that a segment is made ahead of its need, in bytes.
const AHEAD_MAX: u64 = 512 * 1024 * 1024;

/// Bytes of zeros in one write.
const ZERO_BYTES: usize = 1024 * 1024;

/// The device is left to others for so many times the time that a write of zeros took.
const REST: u32 = 3;

/// But never for longer: it is looked whether the segment is needed.
const REST_MAX: Duration = Duration::from_millis(20);

/// Bytes before the log's end of space at which a segment is needed as it is.
const NEEDED_BYTES: u64 = 64 * 1024 * 1024;

/// Makes the next segment when the log comes near the end of the last one.
pub(super) fn prepare_segment(shared: &Rc<Shared>) {
    let (end, bytes) = {
        let log = &shared.state.borrow().log;
        let bytes = log.segment_bytes();
        let ahead = (bytes / 2).min(AHEAD_MAX);
        if log.written() + ahead <= log.prepared_end() {
            return;
        }
        (log.prepared_end(), bytes)
    };
    if shared.preparing.replace(true) {
        return;
    }
    let shared = shared.clone();
    let edge = shared.edge.clone();
    edge.spawn(Box::pin(async move {
        match make(&shared, end, bytes).await {
            Ok(()) => shared.state.borrow_mut().log.set_prepared(end + bytes),
            Err(error) => {
                let why = format!("the next segment cannot be made: {error}");
                let news = shared.state.borrow_mut().log.set_unprepared(why.clone());
                // Those who wait for it are refused now.
                shared.progress.notify();
                if news {
                    tracing::error!(shard = %shared.shard, "{why}; it is tried again every second");
                }
                shared.edge.sleep(SPACE_RETRY).await;
            }
        }
        shared.preparing.set(false);
        shared.progress.notify();
        shared.work.notify();
    }));
}

async fn make(shared: &Rc<Shared>, position: u64, bytes: u64) -> io::Result<()> {
    let (dir, shard, files) = (shared.dir.clone(), shared.shard, shared.files.clone());
    let reserve = move || segment::reserve(&*files, &dir, shard, position, bytes);
    let Some(unfinished) = shared.edge.blocking(reserve).await? else {
        return Ok(());
    };
    if shared.state.borrow().settings().ack == AckLevel::Durable {
        if let Err(error) = fill(shared, &unfinished, bytes).await {
            // A device that cannot write here is not given messages to write here.
            let files = shared.files.clone();
            let remove = move || files.remove_file(&unfinished);
            let _ = shared.edge.blocking(remove).await;
            return Err(error);
        }
    }
    let path = segment::path(&shared.dir, shard, position);
    let files = shared.files.clone();
    let publish = move || segment::publish(&*files, &unfinished, &path);
    shared.edge.blocking(publish).await
}

/// Fills a segment with zeros, as long as it is not needed, and leaves time for the log.
async fn fill(shared: &Shared, unfinished: &Path, bytes: u64) -> io::Result<()> {
    let edge = &shared.edge;
    let file = edge.open_log(unfinished, LogMode::Write).await?;
    let zeros = BlocksToWrite::zeros(ZERO_BYTES.min(bytes as usize))?;
    let mut at = 0;
    while at < bytes {
        let is_needed = {
            let log = &shared.state.borrow().log;
            log.written() + NEEDED_BYTES.min(bytes / 4) > log.prepared_end()
        };
        if is_needed || shared.closing.get() {
            break;
        }
        let len = (ZERO_BYTES as u64).min(bytes - at);
        let began = edge.now();
        file.write(at, zeros.start(len as usize)).await?;
        at += len;
        edge.sleep(((edge.now() - began) * REST).min(REST_MAX))
            .await;
    }
    Ok(())
}
