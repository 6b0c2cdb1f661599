//! The device's promise for what was written, while more is written (ASYNC_FLUSH).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::future;

use super::edge::{Local, LogFile};
use super::handle::Shared;
use super::log_writer::{Doing, give_up};

/// Asks the device, one flush at a time. One that fails is the end of the log, at once.
pub(super) struct Promise<'a> {
    shared: &'a Shared,
    /// The end of what it is asked for, and its answer.
    asked: Option<(u64, Local<'static, io::Result<()>>)>,
    since: Duration,
}

impl<'a> Promise<'a> {
    pub(super) fn new(shared: &'a Shared) -> Promise<'a> {
        Promise {
            shared,
            asked: None,
            since: shared.edge.now(),
        }
    }

    /// Asks for what is in `file` by now, the segment that was written to last. It begins with
    /// the next wait.
    pub(super) fn ask(&mut self, file: Rc<dyn LogFile>) {
        let flushed = self.shared.state.borrow().log.flushed();
        self.asked = Some((flushed, Box::pin(async move { file.sync().await })));
        self.since = self.shared.edge.now();
    }

    /// Whether the device has been asked and has not answered.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Nothing was missing until now.
    pub(super) fn due_from_now(&mut self) {
        self.since = self.shared.edge.now();
    }

    /// How long ago the device was asked, or nothing was missing.
    pub(super) fn age(&self) -> Duration {
        self.shared.edge.now() - self.since
    }

    /// Waits for something else, and takes the device's answer meanwhile.
    pub(super) async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        poll_fn(|cx| {
            let _ = self.poll(cx);
            other.as_mut().poll(cx)
        })
        .await
    }

    /// Waits for the device's answer, if it was asked, or for something else.
    pub(super) async fn or(&mut self, other: impl Future<Output = ()>) {
        future::or(poll_fn(|cx| self.poll(cx)), other).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((flushed, answer)) = &mut self.asked else {
            return Poll::Pending;
        };
        let Poll::Ready(answer) = answer.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        let flushed = *flushed;
        self.asked = None;
        if let Err(error) = answer {
            give_up(self.shared, Doing::Flush, flushed - 1, &error);
            return Poll::Ready(());
        }
        let mut state = self.shared.state.borrow_mut();
        state.log.set_durable(flushed);
        state.show_durable();
        self.shared.progress.notify();
        Poll::Ready(())
    }
}
