//! The device's promise for what was written, while more is written (ASYNC_FLUSH).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::edge::{Local, LogFile};
use super::handle::Shared;

/// Asks the device, one flush at a time.
pub(super) struct Promise<'a> {
    shared: &'a Shared,
    /// The end of what it is asked for, and its answer.
    asked: Option<(u64, Local<'static, io::Result<()>>)>,
    asked_at: Duration,
    failed: Option<(u64, io::Error)>,
}

impl<'a> Promise<'a> {
    pub(super) fn new(shared: &'a Shared) -> Promise<'a> {
        Promise {
            shared,
            asked: None,
            asked_at: shared.edge.now(),
            failed: None,
        }
    }

    /// Asks for what is in `file` by now, the segment that was written to last. It begins with
    /// the next wait.
    pub(super) fn ask(&mut self, file: Rc<dyn LogFile>) {
        let flushed = self.shared.state.borrow().log.flushed();
        self.asked = Some((flushed, Box::pin(async move { file.sync().await })));
        self.asked_at = self.shared.edge.now();
    }

    /// Whether the device has been asked and has not answered.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// How long ago the device was asked, or nothing was missing.
    pub(super) fn age(&self) -> Duration {
        self.shared.edge.now() - self.asked_at
    }

    /// Nothing was missing until now.
    pub(super) fn due_from_now(&mut self) {
        self.asked_at = self.shared.edge.now();
    }

    /// What the device refused to promise, and why: the start of it in the log.
    pub(super) fn take_failed(&mut self) -> Option<(u64, io::Error)> {
        self.failed.take()
    }

    /// Waits for something else, and takes the answer of the device meanwhile.
    pub(super) async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        poll_fn(|cx| {
            let _ = self.poll(cx);
            other.as_mut().poll(cx)
        })
        .await
    }

    /// Waits for the answer of the device, if it was asked, or for something else.
    pub(super) async fn or(&mut self, other: impl Future<Output = ()>) {
        let mut other = pin!(other);
        poll_fn(|cx| {
            let is_asked = self.is_asked();
            if self.poll(cx).is_ready() && is_asked {
                return Poll::Ready(());
            }
            other.as_mut().poll(cx)
        })
        .await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((flushed, answer)) = &mut self.asked else {
            return Poll::Ready(());
        };
        let Poll::Ready(answer) = answer.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        let flushed = *flushed;
        self.asked = None;
        let mut state = self.shared.state.borrow_mut();
        match answer {
            Ok(()) => {
                state.log.set_durable(flushed);
                state.show_durable();
            }
            Err(error) => self.failed = Some((state.log.durable(), error)),
        }
        self.shared.progress.notify();
        Poll::Ready(())
    }
}
