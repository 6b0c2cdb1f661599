//! What moves the log to the device where nobody waits for it (ASYNC_FLUSH).

use std::rc::Rc;
use std::time::Duration;

use futures_lite::future;

use super::edge::LogMode;
use super::handle::Shared;
use super::log_writer::{Doing, LogWriter};
use super::prepare::prepare_segment;
use super::promise::Promise;

/// Longest time that bytes gather before they are written.
const GATHER: Duration = Duration::from_millis(10);

/// Writes what gathers in the tail to the segments, one write in flight. The device is asked
/// for its promise once an interval, and sooner for half of what the tail takes: some devices
/// have their flush write all that they were given and serve nothing else meanwhile, and the
/// other half must do for so long.
pub(super) async fn flush_gathered(shared: &Rc<Shared>) {
    let settings = shared.state.borrow().settings().clone();
    let interval = Duration::from_millis(settings.flush_interval_ms);
    let unsynced_max = settings.tail_bytes as u64 / 2;
    let mut writer = LogWriter::new(shared, LogMode::Write);
    let mut promise = Promise::new(shared);
    loop {
        prepare_segment(shared);
        if let Some((from, error)) = promise.take_failed() {
            if writer.failed(Doing::Flush, from, &error).await.is_break() {
                return;
            }
        }
        let next = || {
            let log = &shared.state.borrow().log;
            log.next_flush(settings.flush_bytes_max, false)
        };
        let (plan, unsynced, is_gathered) = {
            let state = shared.state.borrow();
            let unsynced = state.log.flushed() - state.log.durable();
            (next(), unsynced, state.is_gathered())
        };
        let closing = shared.closing.get();
        // The next promise is of another file: this one is made durable first.
        let leaves = unsynced > 0 && plan.as_ref().is_some_and(|plan| !writer.goes_on(plan));
        let is_due = unsynced >= unsynced_max || promise.age() >= interval;
        if unsynced > 0 && !promise.is_asked() && (is_due || leaves || (closing && plan.is_none()))
        {
            promise.ask(writer.last().expect("flushed to a file").clone());
        }
        let plan = match plan {
            Some(plan) if !leaves => plan,
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
        };
        if !is_gathered && !closing {
            promise.beside(sleep_or_work(shared, GATHER)).await;
        }
        // Planned again: more may have come while it gathered.
        let plan = next().unwrap_or(plan);
        let end = match promise.beside(writer.segment(&plan)).await {
            Ok(file) => {
                let blocks = {
                    let mut state = shared.state.borrow_mut();
                    state.log.begin(&plan);
                    state.log.blocks(&plan)
                };
                match promise
                    .beside(file.write(plan.start - plan.segment, blocks))
                    .await
                {
                    Ok(()) => {
                        writer.wrote(plan.end);
                        shared.progress.notify();
                        continue;
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

/// Waits until there is something to do, for `time` at most.
async fn sleep_or_work(shared: &Shared, time: Duration) {
    let pause = shared.edge.sleep(time);
    future::or(shared.work.wait(), pause).await;
}
