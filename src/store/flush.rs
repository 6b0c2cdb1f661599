//! What moves the log to the device where nobody waits for it (ASYNC_FLUSH).

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future;

use super::edge::LogMode;
use super::handle::Shared;
use super::log_writer::{Doing, LogWriter};
use super::prepare::prepare_segment;

/// Longest time that bytes gather before they are written.
const GATHER: Duration = Duration::from_millis(10);

/// Writes what gathers in the tail to the segments, one write in flight. The device is asked
/// for its promise once an interval.
pub(super) async fn flush_gathered(shared: &Rc<Shared>) {
    let settings = shared.state.borrow().settings().clone();
    let interval = Duration::from_millis(settings.flush_interval_ms);
    let edge = &shared.edge;
    let mut writer = LogWriter::new(shared, LogMode::Write);
    let mut synced_at = edge.now();
    loop {
        prepare_segment(shared);
        let next = || {
            let log = &shared.state.borrow().log;
            log.next_flush(settings.flush_bytes_max, false)
        };
        let (plan, unsynced, is_gathered) = {
            let state = shared.state.borrow();
            let unsynced = state.log.durable() < state.log.flushed();
            (next(), unsynced, state.is_gathered())
        };
        let is_due = edge.now() - synced_at >= interval;
        if unsynced && (is_due || (shared.closing.get() && plan.is_none())) {
            if sync(shared, &mut writer).await.is_break() {
                return;
            }
            synced_at = edge.now();
            continue;
        }
        let Some(plan) = plan else {
            if unsynced {
                let left = interval.saturating_sub(edge.now() - synced_at);
                sleep_or_work(shared, left).await;
            } else {
                shared.work.wait().await;
                synced_at = edge.now();
            }
            continue;
        };
        if !is_gathered && !shared.closing.get() {
            sleep_or_work(shared, GATHER).await;
        }
        // Planned again: more may have come while it gathered.
        let plan = next().unwrap_or(plan);
        // The next promise is of another file: this one is made durable first.
        let leaves = unsynced && !writer.goes_on(&plan);
        if leaves && sync(shared, &mut writer).await.is_break() {
            return;
        }
        let end = match writer.segment(&plan).await {
            Ok(file) => {
                let blocks = {
                    let mut state = shared.state.borrow_mut();
                    state.log.begin(&plan);
                    state.log.blocks(&plan)
                };
                match file.write(plan.start - plan.segment, blocks).await {
                    Ok(()) => {
                        writer.wrote(plan.end);
                        shared.progress.notify();
                        ControlFlow::Continue(())
                    }
                    Err(error) => writer.failed(Doing::Write, plan.start, &error).await,
                }
            }
            Err(end) => end,
        };
        if end.is_break() {
            return;
        }
    }
}

/// Has the device promise what it was given.
async fn sync(shared: &Rc<Shared>, writer: &mut LogWriter<'_>) -> ControlFlow<()> {
    let flushed = shared.state.borrow().log.flushed();
    let file = writer.last().expect("flushed to a file").clone();
    if let Err(error) = file.sync().await {
        return writer.failed(Doing::Flush, flushed - 1, &error).await;
    }
    let mut state = shared.state.borrow_mut();
    state.log.set_durable(flushed);
    state.show_durable();
    shared.progress.notify();
    ControlFlow::Continue(())
}

/// Waits until there is something to do, for `time` at most.
async fn sleep_or_work(shared: &Shared, time: Duration) {
    let pause = shared.edge.sleep(time);
    future::or(shared.work.wait(), pause).await;
}
