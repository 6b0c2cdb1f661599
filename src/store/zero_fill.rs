//! Zeros ahead of the log, under SYNC_FLUSH: to a block that was never written a file system
//! has to note with the first write that it is in use now, and to promise that along with the
//! bytes. That takes as long again as the write itself.
//!
//! A segment is filled before it is given its name, as far as there is time. What is left of
//! it is filled in place, well ahead of the log, which takes nothing meanwhile that would come
//! to lie there.
//!
//! A log that moves much faster than zeros do is not followed: it would catch up with them, and
//! they would have taken half of what the device can do. What comes at that rate is written in
//! large pieces, for which the notes of the file system count little.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::commit_log::CommitLog;
use super::edge::{BlocksToWrite, LogFile, LogMode, Mode};
use super::handle::Shared;
use super::{BLOCK_BYTES, align_down, segment};

/// Bytes of zeros in one write.
const ZERO_BYTES: usize = 1024 * 1024;

/// The device is left to others for so many times the time that a write of zeros took.
const REST: u32 = 3;

/// But never for longer: it is looked whether the segment is needed. For that long too while
/// the log is too fast.
const REST_MAX: Duration = Duration::from_millis(20);

/// The log is too fast when it moves so many times as fast as zeros do.
const TOO_FAST: u32 = 2;

/// Bytes between the end of the log and what is filled.
const LEAD_BYTES: u64 = 64 * 1024 * 1024;

/// Furthest that the log can come before a segment of `bytes` bytes must be there.
fn lead(bytes: u64) -> u64 {
    LEAD_BYTES.min(bytes / 4)
}

/// Fills a segment that has no name yet, as long as it is not needed.
pub(super) async fn fill_unfinished(
    shared: &Shared,
    unfinished: &Path,
    bytes: u64,
) -> io::Result<()> {
    let file = shared.edge.open_log(unfinished, LogMode::Write).await?;
    let zeros = Zeros::new(bytes)?;
    let mut at = 0;
    while at < bytes {
        let is_needed = {
            let log = &shared.state.borrow().log;
            log.written() + lead(bytes) > log.prepared_end()
        };
        if is_needed || shared.closing.get() {
            break;
        }
        let len = zeros.len(bytes - at);
        let rest = zeros.write(shared, &*file, at, len).await?;
        at += len;
        shared.edge.sleep(rest).await;
    }
    Ok(())
}

/// Fills what the log's segments lack behind its end, as long as no other is needed.
pub(super) async fn fill_in_place(shared: &Rc<Shared>) {
    let (bytes, written, end) = {
        let log = &shared.state.borrow().log;
        (log.segment_bytes(), log.written(), log.prepared_end())
    };
    if lead(bytes) < 2 * BLOCK_BYTES as u64 {
        // The log would be where zeros are written.
        return;
    }
    let mut base = written - written % bytes;
    while base < end {
        match fill_segment(shared, base, bytes).await {
            Ok(true) => base += bytes,
            Ok(false) => break,
            Err(error) => {
                tracing::warn!(shard = %shared.shard, %error, "a segment is not filled with zeros");
                break;
            }
        }
    }
}

/// Fills one segment; whether there may be more to fill behind it.
async fn fill_segment(shared: &Shared, base: u64, bytes: u64) -> io::Result<bool> {
    // Where the log may be soon.
    let ahead = |log: &CommitLog| align_down((log.written() + lead(bytes)).saturating_sub(base));
    let path = segment::path(&shared.dir, shared.shard, base);
    let (files, hole_of) = (shared.files.clone(), path.clone());
    let from = ahead(&shared.state.borrow().log);
    let hole = move || files.open(&hole_of, Mode::Read)?.unwritten(from);
    let mut at = align_down(shared.edge.blocking(hole).await?);
    let mut file = None;
    let zeros = Zeros::new(bytes)?;
    loop {
        {
            let mut state = shared.state.borrow_mut();
            let log = &mut state.log;
            at = at.max(ahead(log));
            if at >= bytes {
                return Ok(true);
            }
            if shared.closing.get() || log.needs_segment() {
                return Ok(false);
            }
            log.set_zeroed(Some(base + at));
        }
        let len = zeros.len(bytes - at);
        let written = async {
            let file = match &mut file {
                Some(file) => file,
                None => file.insert(shared.edge.open_log(&path, LogMode::Write).await?),
            };
            zeros.write(shared, &**file, at, len).await
        };
        let written = written.await;
        shared.state.borrow_mut().log.set_zeroed(None);
        shared.progress.notify();
        shared.edge.sleep(written?).await;
        at += len;
    }
}

struct Zeros {
    blocks: BlocksToWrite,
    /// When the last write began, and where the log ended then.
    last: Cell<Option<(Duration, u64)>>,
}

impl Zeros {
    fn new(bytes: u64) -> io::Result<Zeros> {
        let blocks = BlocksToWrite::zeros(ZERO_BYTES.min(bytes as usize))?;
        let last = Cell::new(None);
        Ok(Zeros { blocks, last })
    }

    /// Bytes of a write where `left` are to be filled.
    fn len(&self, left: u64) -> u64 {
        left.min(self.blocks.len() as u64)
    }

    /// Writes `len` zeros at byte `at`, and returns how long to rest.
    async fn write(
        &self,
        shared: &Shared,
        file: &dyn LogFile,
        at: u64,
        len: u64,
    ) -> io::Result<Duration> {
        let (began, end) = (shared.edge.now(), shared.state.borrow().log.written());
        file.write(at, self.blocks.start(len as usize)).await?;
        let took = shared.edge.now() - began;
        let moved = self.last.replace(Some((began, end)));
        let moved = moved.map(|(then, from)| (end - from, began - then));
        Ok(rest(len, took, moved))
    }
}

/// How long to rest after a write of `len` zeros that `took` so long, if the log has `moved` by
/// so many bytes in such a time.
fn rest(len: u64, took: Duration, moved: Option<(u64, Duration)>) -> Duration {
    let round = took * (REST + 1);
    let is_too_fast = moved.is_some_and(|(bytes, time)| {
        bytes as f64 * round.as_secs_f64() > f64::from(TOO_FAST) * len as f64 * time.as_secs_f64()
    });
    match is_too_fast {
        true => REST_MAX,
        false => (took * REST).min(REST_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_left_to_others_and_to_a_log_that_is_faster() {
        let ms = Duration::from_millis;
        assert_eq!(rest(1 << 20, ms(2), None), ms(6));
        assert_eq!(rest(1 << 20, ms(9), None), REST_MAX);
        // Zeros move by 1 MiB in 8 ms: by 16 MiB while the log is looked at.
        assert_eq!(rest(1 << 20, ms(2), Some((31 << 20, ms(128)))), ms(6));
        assert_eq!(rest(1 << 20, ms(2), Some((33 << 20, ms(128)))), REST_MAX);
        assert_eq!(rest(1 << 20, ms(2), Some((0, ms(0)))), ms(6));
    }
}
