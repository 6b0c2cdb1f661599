//! An event between tasks of one thread.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Wakes every task that waits for it. Never leaves its thread; nothing is locked.
///
/// It has no memory: who waits after [`LocalEvent::notify`] waits for the next
/// one, so a waiter checks its condition first, with nothing awaited in between.
#[derive(Debug, Default)]
pub struct LocalEvent {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    waiters: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl LocalEvent {
    /// Wakes all that wait.
    pub fn notify(&self) {
        let mut state = self.state.borrow_mut();
        state.epoch += 1;
        state.free.clear();
        for waker in state.waiters.drain(..).flatten() {
            waker.wake();
        }
    }

    /// Resolves at the next [`LocalEvent::notify`] after this call.
    pub fn wait(&self) -> Wait<'_> {
        Wait {
            event: self,
            epoch: self.state.borrow().epoch,
            place: None,
        }
    }
}

/// See [`LocalEvent::wait`]. May be dropped at any time.
#[derive(Debug)]
pub struct Wait<'a> {
    event: &'a LocalEvent,
    epoch: u64,
    place: Option<usize>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.event.state.borrow_mut();
        if state.epoch != self.epoch {
            return Poll::Ready(());
        }
        let place = match self.place {
            Some(place) => place,
            None => state.free.pop().unwrap_or_else(|| {
                state.waiters.push(None);
                state.waiters.len() - 1
            }),
        };
        state.waiters[place] = Some(cx.waker().clone());
        drop(state);
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut state = self.event.state.borrow_mut();
        if let Some(place) = self.place.filter(|_| state.epoch == self.epoch) {
            state.waiters[place] = None;
            state.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

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

    #[test]
    fn waits_that_are_given_up_leave_nothing_behind() {
        let event = LocalEvent::default();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            let mut kept = pin!(event.wait());
            assert!(kept.as_mut().poll(&mut cx).is_pending());
            let mut dropped = Box::pin(event.wait());
            assert!(dropped.as_mut().poll(&mut cx).is_pending());
            drop(dropped);
            assert!(event.state.borrow().waiters.len() <= 2);
        }
        event.notify();
        assert!(event.state.borrow().waiters.is_empty());
    }
}
