//! Reading the log's blocks from the device, for readers behind the tail.
//!
//! A block that is asked for is read once for all who want it at the same time. Who reads on
//! finds the next ones there: when he comes to the first of those that were read ahead, the
//! next are read.

use std::io;
use std::pin::pin;
use std::rc::Rc;

use futures_lite::future;

use super::blocks::{CACHE_BLOCK_BYTES, Reached};
use super::edge::{LogFile, LogMode};
use super::handle::Shared;
use super::segment;

/// Segment files kept open for reading. At the bound all are closed.
const READ_FILES_MAX: usize = 32;

/// Blocks that are read ahead at once, at most: from there on a device gives no more.
const AHEAD_BLOCKS_MAX: u64 = 8;

/// And no more than this part of the cache, which readers at other places use as well.
const AHEAD_PART: u64 = 16;

/// Loads a block that is asked for.
pub(super) async fn load_block(shared: &Rc<Shared>, position: u64) -> io::Result<()> {
    let loading = shared.loading.borrow().get(&position).cloned();
    if let Some(loading) = loading {
        loading.wait().await;
        return Ok(());
    }
    begin(shared, position, 1);
    let mut load = pin!(load(shared, position, 1, 0));
    // The device is asked for this one first.
    if let Some(loaded) = future::poll_once(&mut load).await {
        return loaded;
    }
    if shared.state.borrow().reads_on(position) {
        begin_read_ahead(shared, position + CACHE_BLOCK_BYTES, 1);
    }
    load.await
}

/// A reader has come to blocks that were read ahead: more are read behind them, twice as many
/// each time. Those who send come first: as long as messages arrive one block is read, as a
/// reader that never waits leaves them no processor.
pub(super) fn read_on(shared: &Rc<Shared>, reached: Reached) {
    let (written, cached) = {
        let state = shared.state.borrow();
        (state.log.written(), state.blocks_cached_max())
    };
    let most = match shared.written_at_read.replace(written) == written {
        true => (cached / AHEAD_PART).clamp(1, AHEAD_BLOCKS_MAX),
        false => 1,
    };
    begin_read_ahead(shared, reached.next, most.min(reached.blocks * 2));
}

/// Begins to read `blocks` blocks before anybody asks for them, or what there is of them.
fn begin_read_ahead(shared: &Rc<Shared>, position: u64, blocks: u64) {
    let (blocks, cached) = {
        let state = shared.state.borrow();
        (
            state.blocks_ahead(position, blocks),
            state.blocks_cached_max(),
        )
    };
    let is_loading = |n: &u64| {
        let start = position + n * CACHE_BLOCK_BYTES;
        shared.loading.borrow().contains_key(&start)
    };
    let blocks = (0..blocks).take_while(|n| !is_loading(n)).count() as u64;
    // However many readers there are at different places.
    let loading = shared.loading.borrow().len() as u64;
    let blocks = blocks.min((cached / 2).saturating_sub(loading));
    if blocks == 0 {
        return;
    }
    begin(shared, position, blocks);
    let me = shared.clone();
    shared.edge.spawn(
        "blocks read ahead",
        Box::pin(async move {
            // Who needs it and does not find it says what is wrong.
            let _ = load(&me, position, blocks, blocks).await;
        }),
    );
}

fn begin(shared: &Shared, position: u64, blocks: u64) {
    let mut loading = shared.loading.borrow_mut();
    for n in 0..blocks {
        loading.insert(position + n * CACHE_BLOCK_BYTES, Rc::default());
    }
}

async fn load(shared: &Shared, position: u64, blocks: u64, ahead: u64) -> io::Result<()> {
    let loaded = read(shared, position, blocks, ahead).await;
    for n in 0..blocks {
        let start = position + n * CACHE_BLOCK_BYTES;
        let done = shared.loading.borrow_mut().remove(&start);
        done.inspect(|done| done.notify());
    }
    if position < shared.state.borrow().log.min() {
        // Deleted meanwhile: who asks again finds that there is no record.
        return Ok(());
    }
    loaded
}

async fn read(shared: &Shared, position: u64, blocks: u64, ahead: u64) -> io::Result<()> {
    let (base, end) = {
        let log = &shared.state.borrow().log;
        let base = position - position % log.segment_bytes();
        let end = log.flushed().min(base + log.segment_bytes());
        (base, end.min(position + blocks * CACHE_BLOCK_BYTES))
    };
    if end <= position {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("position {position} is not in the log"),
        ));
    }
    let file = open(shared, base).await?;
    let len = (end - position) as usize;
    let pieces = file.read(position - base, len).await?;
    let read: usize = pieces.iter().map(|piece| piece.len()).sum();
    if read < len {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "segment {base} ends at byte {}",
                position - base + read as u64
            ),
        ));
    }
    let mut state = shared.state.borrow_mut();
    for (n, piece) in (0..).zip(pieces) {
        let ahead = if n == 0 { ahead } else { 0 };
        state.insert_block(position + n * CACHE_BLOCK_BYTES, piece, ahead);
    }
    Ok(())
}

async fn open(shared: &Shared, base: u64) -> io::Result<Rc<dyn LogFile>> {
    if let Some(file) = shared.read_files.borrow().get(&base) {
        return Ok(file.clone());
    }
    let path = segment::path(&shared.dir, shared.shard, base);
    let file = shared.edge.open_log(&path, LogMode::Read).await?;
    if base < shared.state.borrow().log.min() {
        return Ok(file);
    }
    let mut files = shared.read_files.borrow_mut();
    if files.len() >= READ_FILES_MAX {
        files.clear();
    }
    files.insert(base, file.clone());
    Ok(file)
}
