//! What moves the log to the device.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future;

use super::edge::{LogFile, LogMode};
use super::group::Group;
use super::handle::Shared;
use super::prepare::{SPACE_RETRY, prepare_segment};
use super::segment;
use super::shard_store::AckLevel;
use super::spare::is_no_space;

/// Longest time that bytes gather under ASYNC_FLUSH before they are written.
const GATHER: Duration = Duration::from_millis(10);

/// How often a write that finds no space is tried while the store is closed. What is
/// not written then is in the tail file, for the next start.
const TRIES_AT_CLOSE: u32 = 3;

/// Writes what gathers in the tail to the segments, one write in flight.
///
/// Under SYNC_FLUSH what arrives during a write forms the next one, after a moment in which
/// more may come ([`Group`]); the device's promise comes with the write, or with a flush after it where that takes less time. Under
/// ASYNC_FLUSH nobody waits for the write, so it gathers, and the device is asked
/// for its promise once an interval.
pub(super) async fn flush_log(shared: &Rc<Shared>) {
    let settings = shared.state.borrow().settings().clone();
    let is_awaited = settings.ack == AckLevel::Durable;
    let dsync = is_awaited && !settings.flush_after_write;
    let edge = &shared.edge;
    let mode = if dsync {
        LogMode::WriteThrough
    } else {
        LogMode::Write
    };
    let mut file: Option<(u64, Rc<dyn LogFile>)> = None;
    let mut synced_at = edge.now();
    let mut tries_at_close = 0;
    let mut group = Group::default();
    let mut began = synced_at;
    loop {
        prepare_segment(shared);
        if is_awaited {
            shared.state.borrow_mut().worth_a_write = group.worth();
        }
        let (plan, gathered, unsynced) = {
            let state = shared.state.borrow();
            let log = &state.log;
            let unsynced = log.durable() < log.flushed();
            (
                log.next_flush(settings.flush_bytes_max),
                state.is_gathered(),
                unsynced,
            )
        };
        let interval = Duration::from_millis(settings.flush_interval_ms);
        let sync_due = is_awaited || edge.now() - synced_at >= interval;
        if unsynced && (sync_due || (shared.closing.get() && plan.is_none())) {
            let Some((_, file)) = &file else {
                unreachable!("flushed without a file")
            };
            let flushed = shared.state.borrow().log.flushed();
            match file.sync().await {
                Ok(()) => {
                    let mut state = shared.state.borrow_mut();
                    let bytes = flushed - state.log.durable();
                    group.written(bytes, state.unflushed(), edge.now() - began);
                    state.log.set_durable(flushed);
                    state.show_durable();
                }
                Err(error) => {
                    fail(shared, "flush", flushed - 1, &error);
                    shared.progress.notify();
                    return;
                }
            }
            synced_at = edge.now();
            shared.progress.notify();
            continue;
        }
        let Some(plan) = plan else {
            if unsynced {
                let left = Duration::from_millis(settings.flush_interval_ms)
                    .saturating_sub(edge.now() - synced_at);
                future::or(shared.work.wait(), async {
                    edge.sleep(left).await;
                })
                .await;
            } else {
                shared.work.wait().await;
                synced_at = edge.now();
            }
            continue;
        };
        if !gathered && !shared.closing.get() {
            let patience = if is_awaited { group.patience() } else { GATHER };
            future::or(shared.work.wait(), async {
                edge.sleep(patience).await;
            })
            .await;
        }
        // Planned again: more may have come while it gathered.
        let plan = shared
            .state
            .borrow()
            .log
            .next_flush(settings.flush_bytes_max)
            .unwrap_or(plan);
        if file.as_ref().is_none_or(|(base, _)| *base != plan.segment) {
            if let Some((_, done)) = file.take() {
                if !dsync {
                    // The next flush goes to another file: this one is made durable first.
                    if let Err(error) = done.sync().await {
                        fail(shared, "flush", plan.start - 1, &error);
                        shared.progress.notify();
                        return;
                    }
                }
            }
            let path = segment::path(&shared.dir, shared.shard, plan.segment);
            match edge.open_log(&path, mode).await {
                Ok(opened) => file = Some((plan.segment, opened)),
                Err(error) if is_passing(&error) && tries_at_close < TRIES_AT_CLOSE => {
                    let why = describe(shared, "open", plan.start, &error);
                    refuse_for_now(shared, why);
                    tries_at_close += u32::from(shared.closing.get());
                    edge.sleep(SPACE_RETRY).await;
                    continue;
                }
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
        let blocks = shared.state.borrow().log.blocks(&plan);
        began = edge.now();
        let write = file.write(plan.start - plan.segment, blocks);
        match write.await {
            Ok(()) => {
                let mut state = shared.state.borrow_mut();
                if state.log.set_unwritable(None) {
                    tracing::info!(shard = %shared.shard, "the log is written again");
                }
                state.log.set_flushed(plan.end);
                if dsync {
                    let bytes = plan.end - state.log.durable();
                    group.written(bytes, state.unflushed(), edge.now() - began);
                    state.log.set_durable(plan.end);
                    state.show_durable();
                }
            }
            Err(error) if is_no_space(&error) && tries_at_close < TRIES_AT_CLOSE => {
                // The bytes stay in the tail, and were given to nobody as durable.
                refuse_for_now(shared, describe(shared, "write", plan.start, &error));
                tries_at_close += u32::from(shared.closing.get());
                edge.sleep(SPACE_RETRY).await;
                continue;
            }
            Err(error) => fail(shared, "write", plan.start, &error),
        }
        shared.progress.notify();
        if shared.state.borrow().log.failure().is_some() {
            return;
        }
    }
}

/// Nothing was written, and it is tried again.
fn refuse_for_now(shared: &Shared, why: String) {
    let news = {
        let mut state = shared.state.borrow_mut();
        state.log.set_unwritable(Some(why.clone()))
    };
    if news {
        tracing::error!(
            shard = %shared.shard,
            "{why}; the shard takes no messages until that is over; it is tried again every second"
        );
    }
    shared.progress.notify();
}

/// Whether a file that cannot be opened now may be later.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    )
}

/// A failed write or flush is final for the log: what the device did with the
/// bytes is unknown, and asking again may be answered with a lie.
fn fail(shared: &Shared, what: &str, position: u64, error: &io::Error) {
    let why = describe(shared, what, position, error);
    tracing::error!(shard = %shared.shard, "{why}; the shard takes no more messages");
    shared.state.borrow_mut().log.fail(why);
}

fn describe(shared: &Shared, what: &str, position: u64, error: &io::Error) -> String {
    let base = {
        let log = &shared.state.borrow().log;
        position - position % log.segment_bytes()
    };
    let path = segment::path(&shared.dir, shared.shard, base);
    format!(
        "{}: {what} at byte {} failed: {error}",
        path.display(),
        position - base
    )
}
