//! The answer to one call, from the client's thread to whoever asked.
//!
//! A future that needs no runtime: its waker may belong to any executor, or to a thread that
//! is parked. One allocation a call.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

enum State<T> {
    /// Not there yet; whom to wake.
    Waiting(Option<Waker>),
    /// There, and not yet taken.
    Ready(T),
    /// Nobody waits any more.
    Unwanted,
    /// The other end is gone without an answer, or the answer was taken.
    Over,
}

struct Slot<T>(Mutex<State<T>>);

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Given back where nobody waits.
    fn put(&self, state: State<T>) -> Option<State<T>> {
        let mut slot = self.lock();
        if let State::Unwanted = *slot {
            return Some(state);
        }
        let before = std::mem::replace(&mut *slot, state);
        drop(slot);
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
        None
    }
}

/// The end that answers. Dropped without an answer it tells so.
pub(crate) struct Answering<T>(Option<Arc<Slot<T>>>);

/// The end that waits. Resolves to `None` where the other end is gone without an answer.
pub(crate) struct Answer<T>(Arc<Slot<T>>);

/// Both ends.
pub(crate) fn one_shot<T>() -> (Answering<T>, Answer<T>) {
    let slot = Arc::new(Slot(Mutex::new(State::Waiting(None))));
    (Answering(Some(slot.clone())), Answer(slot))
}

impl<T> Answering<T> {
    /// Answers.
    ///
    /// # Errors
    /// The answer, where nobody waits for it any more.
    pub fn answer(mut self, value: T) -> Result<(), T> {
        let slot = self.0.take();
        match slot.and_then(|slot| slot.put(State::Ready(value))) {
            Some(State::Ready(value)) => Err(value),
            _ => Ok(()),
        }
    }
}

impl<T> Drop for Answering<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            let _ = slot.put(State::Over);
        }
    }
}

impl<T> Answer<T> {
    /// Whether it is there, or never will be.
    pub fn is_ready(&self) -> bool {
        !matches!(&*self.0.lock(), State::Waiting(_))
    }

    /// Does not wait any more; the answer, if it has come and was not taken.
    pub fn give_up(&mut self) -> Option<T> {
        match std::mem::replace(&mut *self.0.lock(), State::Unwanted) {
            State::Ready(value) => Some(value),
            _ => None,
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<T> Future for Answer<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.lock();
        match &mut *slot {
            State::Waiting(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            State::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => match std::mem::replace(&mut *slot, State::Over) {
                State::Ready(value) => Poll::Ready(Some(value)),
                _ => Poll::Ready(None),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    #[test]
    fn an_answer_arrives_from_another_thread_before_and_after_it_is_waited_for() {
        for round in 0..200 {
            let (answering, answer) = one_shot();
            let thread = std::thread::spawn(move || answering.answer(round).unwrap());
            if round % 2 == 0 {
                std::thread::yield_now();
            }
            assert_eq!(block_on(answer), Some(round));
            thread.join().unwrap();
        }
    }

    #[test]
    fn an_end_that_goes_without_an_answer_is_no_hang() {
        let (answering, answer) = one_shot::<u8>();
        drop(answering);
        assert_eq!(block_on(answer), None);
        let (answering, answer) = one_shot::<u8>();
        let thread = std::thread::spawn(move || block_on(answer));
        drop(answering);
        assert_eq!(thread.join().unwrap(), None);
    }

    #[test]
    fn an_answer_that_nobody_takes_is_given_back() {
        let (answering, answer) = one_shot();
        drop(answer);
        assert_eq!(answering.answer(1), Err(1), "who waited is gone");
        let (answering, mut answer) = one_shot();
        assert_eq!(answering.answer(2), Ok(()));
        assert_eq!(answer.give_up(), Some(2), "it has come, and was not taken");
        let (answering, mut answer) = one_shot();
        assert_eq!(answering.answer(3), Ok(()));
        assert_eq!(block_on(&mut answer), Some(3));
        assert_eq!(answer.give_up(), None, "it was taken");
    }
}
