//! What moves the log to the device where nobody waits for it (ASYNC_FLUSH).

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future;

use super::commit_log::FlushPlan;
use super::edge::LogMode;
use super::handle::Shared;
use super::log_writer::{Doing, LogWriter};
use super::prepare::prepare_segment;
use super::promise::Promise;

/// Longest time that bytes gather before they are written.
const GATHER: Duration = Duration::from_millis(10);

/// Writes what gathers in the tail to the segments, one write in flight. The device is asked
/// for its promise once an interval, and sooner for half of what the tail takes: there are
/// devices whose flush takes as long as the bytes took to arrive, and which serve nothing else
/// meanwhile. What arrives then must fit in the tail beside what is being written.
pub(super) async fn flush_gathered(shared: &Rc<Shared>) {
    let settings = shared.state.borrow().settings().clone();
    let unsynced_max = settings.tail_bytes as u64 / 2;
    let mut writer = LogWriter::new(shared, LogMode::Write);
    let mut promise = Promise::new(shared);
    loop {
        prepare_segment(shared);
        if shared.state.borrow().log.failure().is_some() {
            return;
        }
        let next = || {
            let log = &shared.state.borrow().log;
            log.next_flush(settings.flush_bytes_max, false)
        };
        let (plan, unsynced, interval, is_gathered) = {
            let state = shared.state.borrow();
            let unsynced = state.log.flushed() - state.log.durable();
            let interval = Duration::from_millis(state.settings().flush_interval_ms);
            (next(), unsynced, interval, state.is_gathered())
        };
        let closing = shared.closing.get();
        // The next promise is of another file: this one is made durable first.
        let leaves = unsynced > 0 && plan.as_ref().is_some_and(|plan| !writer.goes_on(plan));
        let is_due = unsynced >= unsynced_max || promise.age() >= interval;
        if unsynced > 0 && !promise.is_asked() && (is_due || leaves || (closing && plan.is_none()))
        {
            promise.ask(writer.last().expect("flushed to a file").clone());
        }
        match plan {
            Some(_) if !leaves => {}
            Some(_) => {
                promise.or(future::pending()).await;
                continue;
            }
            None if promise.is_asked() => {
                promise.or(shared.work.wait()).await;
                continue;
            }
            None if unsynced > 0 => {
                let left = interval.saturating_sub(promise.age());
                sleep_or_work(shared, left).await;
                continue;
            }
            None => {
                shared.work.wait().await;
                promise.due_from_now();
                continue;
            }
        }
        if !is_gathered && !closing {
            promise.beside(sleep_or_work(shared, GATHER)).await;
        }
        // Planned again: more may have come while it gathered.
        let Some(plan) = next() else { continue };
        if promise.beside(write(&mut writer, &plan)).await.is_break() {
            return;
        }
    }
}

/// Writes what is planned, or waits where that cannot be done now.
async fn write(writer: &mut LogWriter<'_>, plan: &FlushPlan) -> ControlFlow<()> {
    let file = match writer.segment(plan).await {
        Ok(file) => file,
        Err(end) => return end,
    };
    let shared = writer.shared();
    let blocks = {
        let mut state = shared.state.borrow_mut();
        state.log.begin(plan);
        state.log.blocks(plan)
    };
    if let Err(error) = file.write(plan.start - plan.segment, blocks).await {
        return writer.failed(Doing::Write, plan.start, &error).await;
    }
    writer.wrote(plan.end);
    shared.progress.notify();
    ControlFlow::Continue(())
}

/// Waits until there is something to do, for `time` at most.
async fn sleep_or_work(shared: &Shared, time: Duration) {
    let pause = shared.edge.sleep(time);
    future::or(shared.work.wait(), pause).await;
}
