//! What the kernel has been asked for and has not finished.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::Waker;

/// One request of the ring, named by its place.
pub(super) enum Slot {
    /// An operation that is done once.
    Operation(Pending),
    /// A descriptor that is watched until it is given up.
    Watch(Rc<Watch>),
}

/// An operation.
pub(super) struct Pending {
    /// What the kernel reads from or writes to, until it is done.
    pub keep: Box<dyn Any>,
    pub result: Option<i32>,
    pub waker: Option<Waker>,
    /// Nobody waits for it any more.
    pub is_given_up: bool,
}

/// What is known of a descriptor that is watched for reading.
pub(super) struct Watch {
    pub fd: RawFd,
    /// There may be something to read.
    pub is_ready: Cell<bool>,
    /// The peer has ended its side, or there is an error: reading never has to wait again.
    pub is_ended: Cell<bool>,
    /// The kernel does not watch it, with this error number.
    pub refused: Cell<Option<i32>>,
    pub waker: RefCell<Option<Waker>>,
    /// The descriptor is closed or about to be.
    pub is_given_up: Cell<bool>,
}

impl Watch {
    pub fn new(fd: RawFd) -> Watch {
        Watch {
            fd,
            is_ready: Cell::new(false),
            is_ended: Cell::new(false),
            refused: Cell::new(None),
            waker: RefCell::default(),
            is_given_up: Cell::new(false),
        }
    }

    pub fn wake(&self) {
        self.is_ready.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// All of them, by place.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Operations that are not done.
    pub operations: usize,
}

impl Slots {
    pub fn insert(&mut self, slot: Slot) -> usize {
        if matches!(slot, Slot::Operation(_)) {
            self.operations += 1;
        }
        match self.free.pop() {
            Some(place) => {
                self.slots[place] = Some(slot);
                place
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        }
    }

    /// The operation at a place, which is under way or has not been asked for its result.
    pub fn operation(&mut self, place: usize) -> &mut Pending {
        match &mut self.slots[place] {
            Some(Slot::Operation(pending)) => pending,
            _ => unreachable!("its place is its own until it is taken"),
        }
    }

    /// The watch at a place; `None` where an operation is.
    pub fn watch(&self, place: usize) -> Option<Rc<Watch>> {
        match &self.slots[place] {
            Some(Slot::Watch(watch)) => Some(watch.clone()),
            _ => None,
        }
    }

    /// An operation is done. One that was given up is returned, to be dropped when nothing
    /// is borrowed.
    pub fn complete(&mut self, place: usize, result: i32) -> Option<Slot> {
        self.operations -= 1;
        let pending = self.operation(place);
        pending.result = Some(result);
        if let Some(waker) = pending.waker.take() {
            waker.wake();
        }
        if pending.is_given_up {
            return self.remove(place);
        }
        None
    }

    pub fn remove(&mut self, place: usize) -> Option<Slot> {
        self.free.push(place);
        self.slots[place].take()
    }
}
