//! Segments made ahead of their need.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::handle::Shared;
use super::segment;
use super::shard_store::AckLevel;
use super::zero_fill::{fill_in_place, fill_unfinished};

/// Time before a refused segment file, or a write that found no space, is tried again.
pub(super) const SPACE_RETRY: Duration = Duration::from_secs(1);

/// Makes the next segment when the log comes near the end of the last one.
pub(super) fn prepare_segment(shared: &Rc<Shared>) {
    let (end, bytes) = {
        let log = &shared.state.borrow().log;
        if !log.needs_segment() {
            return;
        }
        (log.prepared_end(), log.segment_bytes())
    };
    if shared.preparing.replace(true) {
        return;
    }
    let shared = shared.clone();
    let edge = shared.edge.clone();
    edge.spawn("the next segment", Box::pin(async move {
        match make(&shared, end, bytes).await {
            Ok(()) => {
                shared.state.borrow_mut().log.set_prepared(end + bytes);
                shared.progress.notify();
                shared.work.notify();
                if is_filled(&shared) {
                    fill_in_place(&shared).await;
                }
            }
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

/// Fills with zeros what the segments that a start found lack.
pub(super) fn fill_found(shared: &Rc<Shared>) {
    if !is_filled(shared) || shared.preparing.replace(true) {
        return;
    }
    let shared = shared.clone();
    let edge = shared.edge.clone();
    edge.spawn(
        "zeros ahead",
        Box::pin(async move {
            fill_in_place(&shared).await;
            shared.preparing.set(false);
            shared.work.notify();
        }),
    );
}

fn is_filled(shared: &Shared) -> bool {
    shared.state.borrow().settings().ack == AckLevel::Durable
}

/// Makes the segment at `position`.
async fn make(shared: &Rc<Shared>, position: u64, bytes: u64) -> io::Result<()> {
    let (dir, shard, files) = (shared.dir.clone(), shared.shard, shared.files.clone());
    let reserve = move || segment::reserve(&*files, &dir, shard, position, bytes);
    let Some(unfinished) = shared.edge.blocking(reserve).await? else {
        return Ok(());
    };
    if is_filled(shared) {
        if let Err(error) = fill_unfinished(shared, &unfinished, bytes).await {
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
