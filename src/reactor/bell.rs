//! What other threads wake a shard's thread with.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use super::ring::Reactor;

/// The thread's end and everybody else's.
pub(super) struct Bell {
    /// Places of the visitors that were woken.
    rung: Mutex<Vec<usize>>,
    has_rung: AtomicBool,
    /// The thread waits, or is about to: the next to ring has to end that.
    is_asleep: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Arc<Bell>> {
        // SAFETY: a plain system call.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Arc::new(Bell {
            rung: Mutex::default(),
            has_rung: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            // SAFETY: the descriptor was just made and has no other owner.
            event: unsafe { OwnedFd::from_raw_fd(event) },
        }))
    }

    /// What becomes readable when it rings while the thread sleeps.
    pub fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Says that the thread is about to wait. `false`: it has rung, do not.
    pub fn may_sleep(&self) -> bool {
        self.is_asleep.store(true, SeqCst);
        if self.has_rung.load(SeqCst) {
            self.is_asleep.store(false, SeqCst);
            return false;
        }
        true
    }

    /// The thread is back.
    pub fn awake(&self) {
        self.is_asleep.store(false, SeqCst);
    }

    /// Whose wakers were used since the last call.
    pub fn take(&self) -> Vec<usize> {
        if !self.has_rung.load(SeqCst) {
            return Vec::new();
        }
        self.has_rung.store(false, SeqCst);
        std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ring(&self, place: usize) {
        self.rung
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(place);
        self.has_rung.store(true, SeqCst);
        if self.is_asleep.swap(false, SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the descriptor is open and `one` has as many bytes as are named. It
            // fails only when the count is at its end, and then it has rung.
            unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Has the next ring make the event readable again.
    pub fn clear(&self) {
        let mut count = [0u8; size_of::<u64>()];
        // SAFETY: the descriptor is open and `count` has as many bytes as are named. It does
        // not block.
        unsafe {
            libc::read(
                self.event.as_raw_fd(),
                count.as_mut_ptr().cast(),
                count.len(),
            )
        };
    }
}

/// Tasks that wait for other threads. A place that was given up may still be rung for:
/// whoever has it then is woken once for nothing.
#[derive(Default)]
pub(super) struct Visitors {
    places: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Visitors {
    pub fn wake(&mut self, rung: Vec<usize>) {
        for place in rung {
            if let Some(waker) = self.places[place].take() {
                waker.wake();
            }
        }
    }
}

/// One task that waits for another thread.
pub(super) struct Visitor {
    reactor: Rc<Reactor>,
    place: usize,
    waker: Waker,
}

struct Rope {
    bell: Arc<Bell>,
    place: usize,
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.bell.ring(self.place);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.bell.ring(self.place);
    }
}

impl Visitor {
    pub fn new(reactor: Rc<Reactor>) -> Visitor {
        let mut visitors = reactor.visitors.borrow_mut();
        let place = visitors.free.pop().unwrap_or_else(|| {
            visitors.places.push(None);
            visitors.places.len() - 1
        });
        drop(visitors);
        let bell = reactor.bell.clone();
        let waker = Arc::new(Rope { bell, place }).into();
        Visitor {
            reactor,
            place,
            waker,
        }
    }

    /// Who is woken when the other thread rings.
    pub fn stays(&self, task: &Waker) {
        let places: &RefCell<Visitors> = &self.reactor.visitors;
        places.borrow_mut().places[self.place] = Some(task.clone());
    }

    /// What the other thread rings with.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut visitors = self.reactor.visitors.borrow_mut();
        visitors.places[self.place] = None;
        visitors.free.push(self.place);
    }
}
