//! What other threads wake a shard's thread with.

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use super::ring::Reactor;
use crate::bell::Bell;

/// The thread's end and everybody else's.
pub(super) struct Rung {
    bell: Bell,
    /// Places of the visitors that were woken.
    places: Mutex<Vec<usize>>,
    is_any: AtomicBool,
}

impl Rung {
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Arc<Rung>> {
        Ok(Arc::new(Rung {
            bell: Bell::new()?,
            places: Mutex::default(),
            is_any: AtomicBool::new(false),
        }))
    }

    /// What ends the thread's sleep.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Says that the thread is about to wait. `false`: somebody has rung, do not.
    pub fn may_sleep(&self) -> bool {
        self.bell.listen();
        if self.is_any.load(SeqCst) {
            self.bell.awake();
            return false;
        }
        true
    }

    /// Whose wakers were used since the last call.
    pub fn take(&self) -> Vec<usize> {
        if !self.is_any.load(SeqCst) {
            return Vec::new();
        }
        self.is_any.store(false, SeqCst);
        std::mem::take(&mut *self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ring(&self, place: usize) {
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(place);
        self.is_any.store(true, SeqCst);
        self.bell.ring();
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
    rung: Arc<Rung>,
    place: usize,
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.rung.ring(self.place);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.ring(self.place);
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
        let rung = reactor.rung.clone();
        let waker = Arc::new(Rope { rung, place }).into();
        Visitor {
            reactor,
            place,
            waker,
        }
    }

    /// Who is woken when the other thread rings.
    pub fn stays(&self, task: &Waker) {
        self.reactor.visitors.borrow_mut().places[self.place] = Some(task.clone());
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
