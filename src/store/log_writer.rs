//! The segment that is written to, and what becomes of the log when that fails.

use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;

use super::commit_log::FlushPlan;
use super::edge::{LogFile, LogMode};
use super::handle::Shared;
use super::prepare::SPACE_RETRY;
use super::segment;
use super::spare::is_no_space;

/// How often a write that finds no space is tried while the store is closed. What is
/// not written then is in the tail file, for the next start.
const TRIES_AT_CLOSE: u32 = 3;

/// What the device was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Open,
    Write,
    Flush,
}

impl Doing {
    /// Whether it may succeed later, and nothing is lost until then.
    pub(super) fn is_passing(self, error: &io::Error) -> bool {
        match self {
            Doing::Open => matches!(
                error.raw_os_error(),
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
            ),
            // The bytes stay in the tail, and were given to nobody as durable.
            Doing::Write => is_no_space(error),
            Doing::Flush => false,
        }
    }
}

/// Writes one shard's log.
pub(super) struct LogWriter<'a> {
    shared: &'a Rc<Shared>,
    mode: LogMode,
    file: Option<(u64, Rc<dyn LogFile>)>,
    tries_at_close: u32,
}

impl<'a> LogWriter<'a> {
    pub(super) fn new(shared: &'a Rc<Shared>, mode: LogMode) -> LogWriter<'a> {
        LogWriter {
            shared,
            mode,
            file: None,
            tries_at_close: 0,
        }
    }

    pub(super) fn shared(&self) -> &'a Rc<Shared> {
        self.shared
    }

    /// The segment that was written to last.
    pub(super) fn last(&self) -> Option<&Rc<dyn LogFile>> {
        self.file.as_ref().map(|(_, file)| file)
    }

    /// Whether a plan goes to the segment that was written to last.
    pub(super) fn goes_on(&self, plan: &FlushPlan) -> bool {
        self.file
            .as_ref()
            .is_some_and(|(base, _)| *base == plan.segment)
    }

    /// The segment of a plan. Without an answer it cannot be opened: for now, or for good.
    pub(super) async fn segment(
        &mut self,
        plan: &FlushPlan,
    ) -> Result<Rc<dyn LogFile>, ControlFlow<()>> {
        if let Some((_, file)) = self.file.as_ref().filter(|_| self.goes_on(plan)) {
            return Ok(file.clone());
        }
        self.file = None;
        let path = segment::path(&self.shared.dir, self.shared.shard, plan.segment);
        match self.shared.edge.open_log(&path, self.mode).await {
            Ok(file) => {
                self.file = Some((plan.segment, file.clone()));
                Ok(file)
            }
            Err(error) => Err(self.failed(Doing::Open, plan.start, &error).await),
        }
    }

    /// The bytes up to `end` are in the segments.
    pub(super) fn wrote(&self, end: u64) {
        let mut state = self.shared.state.borrow_mut();
        if state.log.set_unwritable(None) {
            tracing::info!(shard = %self.shared.shard, "the log is written again");
        }
        state.log.set_flushed(end);
    }

    /// Goes on after a pause where that can help. Otherwise the log takes nothing any more:
    /// what the device did with the bytes is unknown, and asking again may be answered with
    /// a lie.
    pub(super) async fn failed(
        &mut self,
        doing: Doing,
        position: u64,
        error: &io::Error,
    ) -> ControlFlow<()> {
        let shared = self.shared;
        if !doing.is_passing(error) || self.tries_at_close >= TRIES_AT_CLOSE {
            give_up(shared, doing, position, error);
            return ControlFlow::Break(());
        }
        let why = describe(shared, doing, position, error);
        let news = {
            let mut state = shared.state.borrow_mut();
            state.log.begin_again();
            state.log.set_unwritable(Some(why.clone()))
        };
        if news {
            tracing::error!(
                shard = %shared.shard,
                "{why}; the shard takes no messages until that is over; it is tried again every \
                 second"
            );
        }
        shared.progress.notify();
        self.tries_at_close += u32::from(shared.closing.get());
        shared.edge.sleep(SPACE_RETRY).await;
        ControlFlow::Continue(())
    }
}

/// The log takes nothing any more.
pub(super) fn give_up(shared: &Shared, doing: Doing, position: u64, error: &io::Error) {
    let why = describe(shared, doing, position, error);
    tracing::error!(shard = %shared.shard, "{why}; the shard takes no more messages");
    shared.state.borrow_mut().log.fail(why);
    shared.progress.notify();
}

fn describe(shared: &Shared, doing: Doing, position: u64, error: &io::Error) -> String {
    let base = {
        let log = &shared.state.borrow().log;
        position - position % log.segment_bytes()
    };
    let path = segment::path(&shared.dir, shared.shard, base);
    let what = match doing {
        Doing::Open => "open",
        Doing::Write => "write",
        Doing::Flush => "flush",
    };
    format!(
        "{}: {what} at byte {} failed: {error}",
        path.display(),
        position - base
    )
}
