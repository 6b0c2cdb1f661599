//! The bound on what one producer has on its way.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::net::clock_ms;

/// Bits of [`InFlight::taken`] that count bytes: 1 TiB, far above `in_flight_bytes_max`.
const BYTES_BITS: u32 = 40;

/// Counts messages and bytes. Who is above the bound waits, in the order of coming, and no
/// longer than until his own deadline: the client's thread looks after that.
///
/// Where nobody waits, room is taken and given back without a lock. Whoever begins to wait says
/// so in `waiting` before he looks at `taken` a last time, and whoever gives room back looks at
/// `waiting` after he has: one of them sees the other.
pub(crate) struct InFlight {
    count_max: u64,
    bytes_max: u64,
    /// What is on its way: bytes, and above [`BYTES_BITS`] messages.
    taken: AtomicU64,
    /// How many wait.
    waiting: AtomicUsize,
    state: Mutex<State>,
    /// Nobody has waited too long before then, ms of the client's clock.
    due: AtomicU64,
    /// Has the client's thread look at `due` again.
    alarm: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
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
    fn tell_next(&mut self, taken: Taken, fits: impl Fn(Taken, usize) -> bool) -> Vec<Waker> {
        let most = if taken.count == 0 { usize::MAX } else { 1 };
        let next = self.waiting.iter().position(|waiting| !waiting.woken);
        let Some(next) = next.filter(|&at| fits(taken, self.waiting[at].bytes)) else {
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

/// What is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    count: u64,
    bytes: u64,
}

impl Taken {
    fn of(bits: u64) -> Taken {
        Taken {
            count: bits >> BYTES_BITS,
            bytes: bits & ((1 << BYTES_BITS) - 1),
        }
    }

    /// One message of so many bytes.
    fn one(bytes: usize) -> u64 {
        1 << BYTES_BITS | bytes as u64
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
            count_max: count_max as u64,
            bytes_max: bytes_max as u64,
            taken: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            state: Mutex::default(),
            due: AtomicU64::new(u64::MAX),
            alarm: Box::new(alarm),
        })
    }

    /// Nobody has waited too long before then, ms of the client's clock.
    pub fn due(&self) -> u64 {
        self.due.load(SeqCst)
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
        self.due.store(due, SeqCst);
        drop(state);
        late.into_iter().for_each(Waker::wake);
    }

    /// Room at once, unless there is none or others wait for some.
    pub fn try_acquire(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let none_before = || self.waiting.load(SeqCst) == 0 || self.lock().is_turn_of(None);
        if UNBOUNDED.get() || none_before() {
            self.take(bytes)
        } else {
            None
        }
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

    fn take(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let take = |bits: u64| {
            let room = UNBOUNDED.get() || self.fits(Taken::of(bits), bytes);
            room.then(|| bits + Taken::one(bytes))
        };
        self.taken.fetch_update(SeqCst, SeqCst, take).ok()?;
        Some(Room {
            of: self.clone(),
            bytes,
        })
    }

    fn taken(&self) -> Taken {
        Taken::of(self.taken.load(SeqCst))
    }

    fn fits(&self, taken: Taken, bytes: usize) -> bool {
        let fits = taken.count < self.count_max && taken.bytes + bytes as u64 <= self.bytes_max;
        fits || taken.count == 0
    }

    /// Tells those that there is room for.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let told = state.tell_next(self.taken(), |taken, bytes| self.fits(taken, bytes));
        drop(state);
        told.into_iter().for_each(Waker::wake);
    }

    /// Changes who waits.
    fn waits(&self, state: &mut State, change: impl FnOnce(&mut VecDeque<Waiting>)) {
        change(&mut state.waiting);
        self.waiting.store(state.waiting.len(), SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(Taken::one(self.bytes), SeqCst);
        if self.of.waiting.load(SeqCst) > 0 {
            self.of.wake(self.of.lock());
        }
    }
}

impl Future for Acquire {
    type Output = Option<Room>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Room>> {
        let of = self.of.clone();
        if self.waiter.is_none()
            && let Some(room) = of.try_acquire(self.bytes)
        {
            return Poll::Ready(Some(room));
        }
        let mut state = of.lock();
        let number = self.wait(&mut state, cx.waker());
        // Only now, as whoever gave room back before did not see that this one waits.
        if state.is_turn_of(Some(number)) || UNBOUNDED.get() {
            if let Some(room) = of.take(self.bytes) {
                of.waits(&mut state, |all| all.retain(|one| one.number != number));
                self.waiter = None;
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
        let earlier = self.deadline < of.due();
        if earlier {
            of.due.store(self.deadline, SeqCst);
        }
        drop(state);
        if earlier {
            (of.alarm)();
        }
        Poll::Pending
    }
}

impl Acquire {
    /// Waits, and is to be told by this waker. Its number in the list.
    fn wait(&mut self, state: &mut State, waker: &Waker) -> u64 {
        if let Some(number) = self.waiter {
            let mut waiting = state.waiting.iter_mut();
            if let Some(place) = waiting.find(|waiting| waiting.number == number) {
                place.waker.clone_from(waker);
                place.woken = false;
            }
            return number;
        }
        state.last_waiter += 1;
        let number = state.last_waiter;
        let waiting = Waiting {
            number,
            bytes: self.bytes,
            deadline: self.deadline,
            waker: waker.clone(),
            woken: false,
        };
        self.of.waits(state, |all| all.push_back(waiting));
        self.waiter = Some(number);
        number
    }

    /// Waits no more.
    fn leave(&mut self) {
        let Some(number) = self.waiter.take() else {
            return;
        };
        let mut state = self.of.lock();
        self.of
            .waits(&mut state, |all| all.retain(|one| one.number != number));
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
        assert_eq!(bound.taken(), Taken::of(0));
        assert!(bound.lock().waiting.is_empty());
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
            alarm.fetch_add(1, SeqCst);
        });
        let room = bound.try_acquire(1).unwrap();
        let now = clock_ms();
        let mut patient = pin!(bound.acquire(1, now + 60_000));
        let mut hasty = pin!(bound.acquire(1, now + 20));
        assert!(block_on(poll_once(&mut patient)).is_none());
        assert!(block_on(poll_once(&mut hasty)).is_none());
        assert_eq!((rung.load(SeqCst), bound.due()), (2, now + 20));
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
        assert_eq!(bound.taken(), Taken::of(0));
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
        assert_eq!(bound.taken(), Taken::of(0));
    }
}
