//! The bound on what one producer has on its way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Counts messages and bytes. Who is above the bound waits, in the order of coming.
pub(crate) struct InFlight {
    count_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    count: usize,
    bytes: usize,
    waiting: VecDeque<(u64, Waker)>,
    last_waiter: u64,
}

/// Room that one send takes, until it is dropped.
pub(crate) struct Room {
    of: Arc<InFlight>,
    bytes: usize,
}

/// Waits for room.
pub(crate) struct Acquire {
    of: Arc<InFlight>,
    bytes: usize,
    /// Its number in the list of those who wait, once it is there.
    waiter: Option<u64>,
}

impl InFlight {
    /// No more than `count_max` sends and `bytes_max` bytes; one send alone always has room.
    pub fn new(count_max: usize, bytes_max: usize) -> Arc<InFlight> {
        Arc::new(InFlight {
            count_max,
            bytes_max,
            state: Mutex::default(),
        })
    }

    /// Room at once, unless there is none or others wait for some.
    pub fn try_acquire(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let mut state = self.lock();
        if !state.waiting.is_empty() {
            return None;
        }
        self.take(&mut state, bytes)
    }

    /// Room as soon as there is some.
    pub fn acquire(self: &Arc<Self>, bytes: usize) -> Acquire {
        Acquire {
            of: self.clone(),
            bytes,
            waiter: None,
        }
    }

    fn take(self: &Arc<Self>, state: &mut State, bytes: usize) -> Option<Room> {
        let fits =
            state.count < self.count_max && state.bytes.saturating_add(bytes) <= self.bytes_max;
        if !fits && state.count > 0 {
            return None;
        }
        state.count += 1;
        state.bytes += bytes;
        Some(Room {
            of: self.clone(),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        state.count -= 1;
        state.bytes -= self.bytes;
        // The first in the list stays there until it has its room, so that nobody overtakes it.
        let first = state.waiting.front().map(|(_, waker)| waker.clone());
        drop(state);
        if let Some(waker) = first {
            waker.wake();
        }
    }
}

impl Future for Acquire {
    type Output = Room;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Room> {
        let of = self.of.clone();
        let mut state = of.lock();
        let first = state.waiting.front().map(|(number, _)| *number);
        if first.is_none() || first == self.waiter {
            if let Some(room) = of.take(&mut state, self.bytes) {
                if self.waiter.take().is_some() {
                    state.waiting.pop_front();
                }
                // There may be room for the next one as well.
                let next = state.waiting.front().map(|(_, waker)| waker.clone());
                drop(state);
                if let Some(waker) = next {
                    waker.wake();
                }
                return Poll::Ready(room);
            }
        }
        let waker = cx.waker().clone();
        match self.waiter {
            Some(number) => {
                if let Some(place) = state.waiting.iter_mut().find(|(n, _)| *n == number) {
                    place.1 = waker;
                }
            }
            None => {
                state.last_waiter += 1;
                let number = state.last_waiter;
                state.waiting.push_back((number, waker));
                self.waiter = Some(number);
            }
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(number) = self.waiter else {
            return;
        };
        let mut state = self.of.lock();
        let was_first = state.waiting.front().is_some_and(|(n, _)| *n == number);
        state.waiting.retain(|(n, _)| *n != number);
        // Whoever is first now may have room.
        let next = was_first.then(|| state.waiting.front().map(|(_, waker)| waker.clone()));
        drop(state);
        if let Some(waker) = next.flatten() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    #[test]
    fn who_is_above_the_bound_waits_and_comes_in_order() {
        let bound = InFlight::new(2, 100);
        let first = bound.try_acquire(60).unwrap();
        assert!(bound.try_acquire(60).is_none(), "too many bytes");
        let second = bound.try_acquire(40).unwrap();
        assert!(bound.try_acquire(0).is_none(), "too many");
        let (mut third, mut fourth) = (pin!(bound.acquire(50)), pin!(bound.acquire(10)));
        assert!(block_on(poll_once(&mut third)).is_none());
        assert!(block_on(poll_once(&mut fourth)).is_none());
        drop(second);
        assert!(
            block_on(poll_once(&mut fourth)).is_none(),
            "the third is before it"
        );
        drop(first);
        let third = block_on(poll_once(&mut third)).unwrap();
        assert!(block_on(poll_once(&mut fourth)).is_some());
        drop(third);
    }

    #[test]
    fn one_alone_always_has_room() {
        let bound = InFlight::new(1, 10);
        let room = bound.try_acquire(1000).unwrap();
        assert!(bound.try_acquire(1).is_none());
        drop(room);
        assert!(bound.try_acquire(1000).is_some());
    }

    #[test]
    fn one_who_gives_up_is_in_nobodys_way() {
        let bound = InFlight::new(1, 10);
        let room = bound.try_acquire(1).unwrap();
        let mut given_up = Box::pin(bound.acquire(1));
        assert!(block_on(poll_once(&mut given_up)).is_none());
        let other = bound.clone();
        let thread = std::thread::spawn(move || drop(block_on(other.acquire(1))));
        while bound.lock().waiting.len() < 2 {
            std::thread::yield_now();
        }
        drop(given_up);
        drop(room);
        thread.join().unwrap();
        let state = bound.lock();
        assert_eq!((state.count, state.bytes, state.waiting.len()), (0, 0, 0));
    }

    #[test]
    fn many_threads_share_little_room() {
        let bound = InFlight::new(3, 1 << 20);
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let bound = bound.clone();
                std::thread::spawn(move || {
                    for _ in 0..2_000 {
                        drop(block_on(bound.acquire(10)));
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(bound.lock().count, 0);
    }
}
