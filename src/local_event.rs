//! An event between tasks of one thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Wakes every task that waits for it. Never leaves its thread; nothing is locked.
///
/// It has no memory: who waits after [`LocalEvent::notify`] waits for the next
/// one, so a waiter checks its condition first, with nothing awaited in between.
#[derive(Debug, Default)]
pub struct LocalEvent {
    waiters: RefCell<Vec<Waker>>,
    epoch: std::cell::Cell<u64>,
}

impl LocalEvent {
    /// Wakes all that wait.
    pub fn notify(&self) {
        self.epoch.set(self.epoch.get() + 1);
        for waker in self.waiters.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Resolves at the next [`LocalEvent::notify`] after this call.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let seen = self.epoch.get();
        poll_fn(move |cx| {
            if self.epoch.get() != seen {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            if !waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn a_notice_wakes_those_that_wait_and_no_later_ones() {
        let event = LocalEvent::default();
        let mut cx = Context::from_waker(Waker::noop());
        event.notify();
        let mut first = pin!(event.wait());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        event.notify();
        assert!(first.as_mut().poll(&mut cx).is_ready());
        let mut second = pin!(event.wait());
        assert!(second.as_mut().poll(&mut cx).is_pending());
    }
}
