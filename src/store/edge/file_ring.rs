//! A ring of the shard's own for its segments.
//!
//! glommio's files write from buffers of glommio's own only, which would cost the log one
//! more copy of every byte. Here a write takes the tail file's mapping itself as its source,
//! and a read ends in the block that the cache keeps. The kernel says through an eventfd that
//! something is done; glommio's ring waits for that while there is something to wait for.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use glommio::io::BufferedFile;
use io_uring::{IoUring, squeue};

/// Operations that the kernel is told of at a time; more wait in [`FileRing::backlog`].
const ENTRIES: u32 = 64;

/// Completions that the ring holds: more than a store has under way.
const COMPLETIONS: u32 = 4096;

/// Time after which the kernel is told again what it did not take, for want of memory say.
const AGAIN: Duration = Duration::from_millis(1);

/// The ring of one thread.
pub(super) struct FileRing {
    ring: RefCell<IoUring>,
    /// What the ring has no room for.
    backlog: RefCell<VecDeque<squeue::Entry>>,
    slots: RefCell<Slots>,
    /// Signalled by the kernel for every completion.
    event: BufferedFile,
    /// A task waits for completions.
    is_watched: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    in_flight: usize,
}

/// One operation.
struct Slot {
    /// What the kernel reads from or writes to, until it is done.
    keep: Box<dyn Any>,
    result: Option<i32>,
    waker: Option<Waker>,
    /// Nobody waits for it any more.
    is_given_up: bool,
}

impl FileRing {
    /// Makes the ring of the calling thread, on which glommio's executor must run.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn new() -> io::Result<Rc<FileRing>> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS);
        let ring = match builder.clone().setup_coop_taskrun().build(ENTRIES) {
            // Kernels before 5.19.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => builder.build(ENTRIES)?,
            other => other?,
        };
        // SAFETY: a plain system call.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let event = unsafe { BufferedFile::from_raw_fd(event) };
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(Rc::new(FileRing {
            ring: RefCell::new(ring),
            backlog: RefCell::default(),
            slots: RefCell::default(),
            event,
            is_watched: Cell::new(false),
        }))
    }

    /// Has the kernel do an operation, and resolves with its result and with `keep`.
    ///
    /// # Safety
    /// All memory and descriptors that `entry` names stay valid as long as `keep` lives.
    pub unsafe fn run<K: 'static>(self: &Rc<Self>, entry: squeue::Entry, keep: K) -> Operation<K> {
        let place = self.slots.borrow_mut().insert(Box::new(keep));
        let entry = entry.user_data(place as u64);
        self.backlog.borrow_mut().push_back(entry);
        self.submit();
        self.watch();
        Operation {
            ring: self.clone(),
            place: Some(place),
            keep: std::marker::PhantomData,
        }
    }

    /// Tells the kernel of what waits for that. What it does not take now it is told of again.
    fn submit(&self) {
        let mut ring = self.ring.borrow_mut();
        let mut backlog = self.backlog.borrow_mut();
        while let Some(entry) = backlog.front() {
            // SAFETY: as promised by the caller of `run`: the slot keeps what the entry names
            // until the operation is done.
            if unsafe { ring.submission().push(entry) }.is_err() {
                break;
            }
            backlog.pop_front();
        }
        if let Err(error) = ring.submit()
            && !matches!(
                error.raw_os_error(),
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
            )
        {
            // A ring that is not one any more: as with its eventfd, below.
            panic!("a shard's file ring takes nothing: {error}");
        }
    }

    /// Whether the kernel has yet to be told of something.
    fn has_untold(&self) -> bool {
        !self.backlog.borrow().is_empty() || !self.ring.borrow_mut().submission().is_empty()
    }

    /// Hands out what is done, as long as something is under way.
    fn watch(self: &Rc<Self>) {
        if self.is_watched.replace(true) {
            return;
        }
        let me = self.clone();
        glommio::spawn_local(async move {
            while me.slots.borrow().in_flight > 0 {
                if me.has_untold() {
                    glommio::timer::sleep(AGAIN).await;
                    me.submit();
                } else if let Err(error) = me.event.read_at(0, size_of::<u64>()).await {
                    // Without it nothing more is known to be done: the process ends, and what
                    // it acknowledged is in the tail file.
                    panic!("the eventfd of a shard's file ring cannot be read: {error}");
                }
                me.reap();
            }
            me.is_watched.set(false);
        })
        .detach();
    }

    fn reap(&self) {
        let mut slots = self.slots.borrow_mut();
        loop {
            let mut ring = self.ring.borrow_mut();
            for done in ring.completion() {
                slots.complete(done.user_data() as usize, done.result());
            }
            if !ring.submission().cq_overflow() {
                return;
            }
            // The kernel kept some to itself, and gives them when it is entered.
            drop(ring);
            self.submit();
        }
    }
}

impl Drop for FileRing {
    /// Waits for the kernel, which still uses what the slots keep.
    fn drop(&mut self) {
        let ring = self.ring.get_mut();
        let slots = self.slots.get_mut();
        // The kernel knows nothing of these.
        slots.in_flight -= self.backlog.get_mut().len();
        while slots.in_flight > 0 {
            if let Err(error) = ring.submit_and_wait(1)
                && error.raw_os_error() != Some(libc::EINTR)
            {
                // What is left must stay where it is.
                std::mem::forget(std::mem::take(slots));
                return;
            }
            for done in ring.completion() {
                slots.complete(done.user_data() as usize, done.result());
            }
        }
    }
}

impl Slots {
    fn insert(&mut self, keep: Box<dyn Any>) -> usize {
        self.in_flight += 1;
        let slot = Some(Slot {
            keep,
            result: None,
            waker: None,
            is_given_up: false,
        });
        match self.free.pop() {
            Some(place) => {
                self.slots[place] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    fn complete(&mut self, place: usize, result: i32) {
        let slot = self.slots[place].as_mut().expect("it is under way");
        self.in_flight -= 1;
        slot.result = Some(result);
        if slot.is_given_up {
            self.remove(place);
        } else if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    fn remove(&mut self, place: usize) -> Slot {
        self.free.push(place);
        self.slots[place].take().expect("it is removed once")
    }
}

/// An operation under way. It goes on when this is dropped, and so does what it works on.
pub(super) struct Operation<K> {
    ring: Rc<FileRing>,
    place: Option<usize>,
    keep: std::marker::PhantomData<K>,
}

impl<K: Unpin + 'static> Future for Operation<K> {
    type Output = (io::Result<usize>, K);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let place = self.place.expect("not polled after its end");
        let mut slots = self.ring.slots.borrow_mut();
        let slot = slots.slots[place].as_mut().expect("it is under way");
        let Some(result) = slot.result else {
            slot.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let slot = slots.remove(place);
        drop(slots);
        self.place = None;
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        let keep = slot.keep.downcast().expect("what it was made with");
        Poll::Ready((result, *keep))
    }
}

impl<K> Drop for Operation<K> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut slots = self.ring.slots.borrow_mut();
            let slot = slots.slots[place].as_mut().expect("it is under way");
            if slot.result.is_some() {
                slots.remove(place);
            } else {
                slot.is_given_up = true;
            }
        }
    }
}

/// The descriptor of a file, for an entry.
pub(super) fn target(file: &impl AsRawFd) -> io_uring::types::Fd {
    let fd: RawFd = file.as_raw_fd();
    io_uring::types::Fd(fd)
}
