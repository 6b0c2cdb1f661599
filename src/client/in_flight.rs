//! The bound on what one producer has on its way.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::net::clock_ms;

/// Counts messages and bytes. Who is above the bound waits, in the order of coming, and no
/// longer than until his own deadline: the client's thread looks after that.
pub(crate) struct InFlight {
    count_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
    /// Nobody has waited too long before then, ms of the client's clock.
    due: AtomicU64,
    /// Has the client's thread look at `due` again.
    alarm: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    count: usize,
    bytes: usize,
    /// In the order of coming.
    waiting: VecDeque<Waiting>,
    last_waiter: u64,
}

struct Waiting {
    number: u64,
    bytes: usize,
    deadline: u64,
    waker: Waker,
    /// It was told that there is room, or that its time is over. Until it comes for it, others may: it may never come.
    woken: bool,
}

impl State {
    /// Whether it is the turn of the one with this number, or of a newcomer.
    fn is_turn_of(&self, number: Option<u64>) -> bool {
        let first = self.waiting.iter().find(|waiting| !waiting.woken);
        // Its own entry is still marked as woken when it comes.
        first.is_none_or(|first| number.is_some_and(|number| number <= first.number))
    }

    /// Who is to be told that there is room: the next one that it is enough for, and all where
    /// nothing is on its way whose end would tell another one.
    fn tell_next(&mut self, fits: impl Fn(&State, usize) -> bool) -> Vec<Waker> {
        let most = if self.count == 0 { usize::MAX } else { 1 };
        let next = self.waiting.iter().position(|waiting| !waiting.woken);
        let Some(next) = next.filter(|&at| fits(self, self.waiting[at].bytes)) else {
            return Vec::new();
        };
        let told = self.waiting.iter_mut().skip(next).take(most);
        told.map(|waiting| {
            waiting.woken = true;
            waiting.waker.clone()
        })
        .collect()
    }
}

/// Room that one send takes, until it is dropped.
pub(crate) struct Room {
    of: Arc<InFlight>,
    bytes: usize,
}

thread_local! {
    static UNBOUNDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a callback, whose sends never wait for room: it would wait for that of sends whose
/// callbacks come after it.
pub(crate) fn unbounded<T>(callback: impl FnOnce() -> T) -> T {
    struct Bounded;
    impl Drop for Bounded {
        fn drop(&mut self) {
            UNBOUNDED.set(false);
        }
    }
    let _bounded = Bounded;
    UNBOUNDED.set(true);
    callback()
}

/// Waits for room; resolves to `None` where none comes in time.
pub(crate) struct Acquire {
    of: Arc<InFlight>,
    bytes: usize,
    deadline: u64,
    /// Its number in the list of those who wait, once it is there.
    waiter: Option<u64>,
}

impl InFlight {
    /// No more than `count_max` sends and `bytes_max` bytes; one send alone always has room.
    /// `alarm` has somebody call [`InFlight::expire`] at [`InFlight::due`], which is earlier now.
    pub fn new(
        count_max: usize,
        bytes_max: usize,
        alarm: impl Fn() + Send + Sync + 'static,
    ) -> Arc<InFlight> {
        Arc::new(InFlight {
            count_max,
            bytes_max,
            state: Mutex::default(),
            due: AtomicU64::new(u64::MAX),
            alarm: Box::new(alarm),
        })
    }

    /// Nobody has waited too long before then, ms of the client's clock.
    pub fn due(&self) -> u64 {
        self.due.load(Ordering::Acquire)
    }

    /// Tells those who have waited too long.
    pub fn expire(&self) {
        let now = clock_ms();
        let (mut late, mut due) = (Vec::new(), u64::MAX);
        let mut state = self.lock();
        for waiting in state.waiting.iter_mut().filter(|waiting| !waiting.woken) {
            if waiting.deadline <= now {
                waiting.woken = true;
                late.push(waiting.waker.clone());
            } else {
                due = due.min(waiting.deadline);
            }
        }
        self.due.store(due, Ordering::Release);
        drop(state);
        late.into_iter().for_each(Waker::wake);
    }

    /// Room at once, unless there is none or others wait for some.
    pub fn try_acquire(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let mut state = self.lock();
        if !state.is_turn_of(None) && !UNBOUNDED.get() {
            return None;
        }
        self.take(&mut state, bytes)
    }

    /// Room as soon as there is some, until `deadline`, ms of the client's clock.
    pub fn acquire(self: &Arc<Self>, bytes: usize, deadline: u64) -> Acquire {
        Acquire {
            of: self.clone(),
            bytes,
            deadline,
            waiter: None,
        }
    }

    fn take(self: &Arc<Self>, state: &mut State, bytes: usize) -> Option<Room> {
        if !self.fits(state, bytes) && !UNBOUNDED.get() {
            return None;
        }
        state.count += 1;
        state.bytes += bytes;
        Some(Room {
            of: self.clone(),
            bytes,
        })
    }

    fn fits(&self, state: &State, bytes: usize) -> bool {
        let fits =
            state.count < self.count_max && state.bytes.saturating_add(bytes) <= self.bytes_max;
        fits || state.count == 0
    }

    /// Tells those that there is room for.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let told = state.tell_next(|state, bytes| self.fits(state, bytes));
        drop(state);
        told.into_iter().for_each(Waker::wake);
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
        self.of.wake(state);
    }
}

impl Future for Acquire {
    type Output = Option<Room>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Room>> {
        let of = self.of.clone();
        let mut state = of.lock();
        if state.is_turn_of(self.waiter) || UNBOUNDED.get() {
            if let Some(room) = of.take(&mut state, self.bytes) {
                if let Some(number) = self.waiter.take() {
                    state.waiting.retain(|waiting| waiting.number != number);
                }
                // There may be room for the next one as well.
                of.wake(state);
                return Poll::Ready(Some(room));
            }
        }
        if self.deadline <= clock_ms() {
            drop(state);
            self.leave();
            return Poll::Ready(None);
        }
        let waker = cx.waker().clone();
        match self.waiter {
            Some(number) => {
                let mut waiting = state.waiting.iter_mut();
                if let Some(place) = waiting.find(|waiting| waiting.number == number) {
                    (place.waker, place.woken) = (waker, false);
                }
            }
            None => {
                state.last_waiter += 1;
                let number = state.last_waiter;
                state.waiting.push_back(Waiting {
                    number,
                    bytes: self.bytes,
                    deadline: self.deadline,
                    waker,
                    woken: false,
                });
                self.waiter = Some(number);
            }
        }
        let earlier = self.deadline < of.due();
        if earlier {
            of.due.store(self.deadline, Ordering::Release);
        }
        drop(state);
        if earlier {
            (of.alarm)();
        }
        Poll::Pending
    }
}

impl Acquire {
    /// Waits no more.
    fn leave(&mut self) {
        let Some(number) = self.waiter.take() else {
            return;
        };
        let mut state = self.of.lock();
        state.waiting.retain(|waiting| waiting.number != number);
        // Whoever is next may have room.
        self.of.wake(state);
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    /// A bound whose alarm nobody hears.
    fn bound(count_max: usize, bytes_max: usize) -> Arc<InFlight> {
        InFlight::new(count_max, bytes_max, || ())
    }

    #[test]
    fn who_is_above_the_bound_waits_and_comes_in_order() {
        let bound = bound(2, 100);
        let first = bound.try_acquire(60).unwrap();
        assert!(bound.try_acquire(60).is_none(), "too many bytes");
        let second = bound.try_acquire(40).unwrap();
        assert!(bound.try_acquire(0).is_none(), "too many");
        let (mut third, mut fourth) = (
            pin!(bound.acquire(50, u64::MAX)),
            pin!(bound.acquire(10, u64::MAX)),
        );
        assert!(block_on(poll_once(&mut third)).is_none());
        assert!(block_on(poll_once(&mut fourth)).is_none());
        drop(second);
        assert!(
            block_on(poll_once(&mut fourth)).is_none(),
            "the third is before it"
        );
        drop(first);
        let third = block_on(poll_once(&mut third)).unwrap().unwrap();
        assert!(block_on(poll_once(&mut fourth)).is_some());
        drop(third);
    }

    #[test]
    fn one_alone_always_has_room() {
        let bound = bound(1, 10);
        let room = bound.try_acquire(1000).unwrap();
        assert!(bound.try_acquire(1).is_none());
        drop(room);
        assert!(bound.try_acquire(1000).is_some());
    }

    #[test]
    fn one_who_gives_up_is_in_nobodys_way() {
        let bound = bound(1, 10);
        let room = bound.try_acquire(1).unwrap();
        let mut given_up = Box::pin(bound.acquire(1, u64::MAX));
        assert!(block_on(poll_once(&mut given_up)).is_none());
        let other = bound.clone();
        let thread = std::thread::spawn(move || drop(block_on(other.acquire(1, u64::MAX))));
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
    fn one_who_does_not_come_for_its_room_is_in_nobodys_way() {
        let bound = bound(1, 10);
        let room = bound.try_acquire(1).unwrap();
        let mut parked = [
            pin!(bound.acquire(1, u64::MAX)),
            pin!(bound.acquire(1, u64::MAX)),
        ];
        for parked in &mut parked {
            assert!(block_on(poll_once(parked)).is_none());
        }
        let other = bound.clone();
        let thread = std::thread::spawn(move || drop(block_on(other.acquire(1, u64::MAX))));
        while bound.lock().waiting.len() < 3 {
            std::thread::yield_now();
        }
        drop(room);
        thread.join().unwrap();
        assert!(bound.try_acquire(1).is_some(), "nor of newcomers");
        for parked in &mut parked {
            assert!(block_on(poll_once(parked)).is_some(), "it may still come");
        }
    }

    #[test]
    fn nobody_waits_longer_than_his_own_deadline() {
        let rung = Arc::new(AtomicU64::new(0));
        let alarm = rung.clone();
        let bound = InFlight::new(1, 10, move || {
            alarm.fetch_add(1, Ordering::SeqCst);
        });
        let room = bound.try_acquire(1).unwrap();
        let now = clock_ms();
        let mut patient = pin!(bound.acquire(1, now + 60_000));
        let mut hasty = pin!(bound.acquire(1, now + 20));
        assert!(block_on(poll_once(&mut patient)).is_none());
        assert!(block_on(poll_once(&mut hasty)).is_none());
        assert_eq!((rung.load(Ordering::SeqCst), bound.due()), (2, now + 20));
        let of = bound.clone();
        let clock = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            of.expire();
        });
        assert!(block_on(hasty).is_none(), "there was no room in time");
        clock.join().unwrap();
        assert_eq!(bound.due(), now + 60_000);
        assert!(block_on(poll_once(&mut patient)).is_none());
        drop(room);
        assert!(block_on(patient).is_some());
        assert!(block_on(bound.acquire(1, 0)).is_some(), "room comes first");
        assert!(bound.lock().waiting.is_empty());
    }

    #[test]
    fn callbacks_do_not_wait_for_room() {
        let bound = bound(1, 10);
        let room = bound.try_acquire(1).unwrap();
        let more = unbounded(|| [bound.try_acquire(1), bound.try_acquire(1)]);
        assert!(more.iter().all(Option::is_some));
        assert!(bound.try_acquire(1).is_none());
        drop((room, more));
        assert_eq!(bound.lock().count, 0);
    }

    #[test]
    fn many_threads_share_little_room() {
        let bound = bound(3, 1 << 20);
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let bound = bound.clone();
                std::thread::spawn(move || {
                    for _ in 0..2_000 {
                        drop(block_on(bound.acquire(10, u64::MAX)));
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
