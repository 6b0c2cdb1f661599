//! A ring of the shard's own for its segments.
//!
//! glommio's files write from buffers of glommio's own only, which would cost the log one
//! more copy of every byte. Here a write takes the tail file's mapping itself as its source,
//! and a read ends in the block that the cache keeps. The kernel says through an eventfd that
//! something is done; glommio's ring waits for that while there is something to wait for.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use glommio::io::BufferedFile;
use io_uring::{IoUring, squeue};

/// Operations that the ring takes at a time; more wait in its overflow list.
const ENTRIES: u32 = 64;

/// The ring of one thread.
pub(super) struct FileRing {
    ring: RefCell<IoUring>,
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
        let cooperative = IoUring::builder().setup_coop_taskrun().build(ENTRIES);
        let ring = match cooperative {
            // Kernels before 5.19.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(ENTRIES)?,
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
            slots: RefCell::default(),
            event,
            is_watched: Cell::new(false),
        }))
    }

    /// Has the kernel do an operation, and resolves with its result and with `keep`.
    ///
    /// # Safety
    /// All memory and descriptors that `entry` names stay valid as long as `keep` lives.
    pub unsafe fn run<K: 'static>(
        self: &Rc<Self>,
        entry: squeue::Entry,
        keep: K,
    ) -> io::Result<Operation<K>> {
        let place = self.slots.borrow_mut().insert(Box::new(keep));
        let entry = entry.user_data(place as u64);
        let mut ring = self.ring.borrow_mut();
        // SAFETY: as promised by the caller: the slot keeps `keep` until the operation is done.
        while unsafe { ring.submission().push(&entry) }.is_err() {
            submit(&mut ring)?;
        }
        submit(&mut ring)?;
        drop(ring);
        self.watch();
        Ok(Operation {
            ring: self.clone(),
            place: Some(place),
            keep: std::marker::PhantomData,
        })
    }

    /// Hands out what is done, as long as something is under way.
    fn watch(self: &Rc<Self>) {
        if self.is_watched.replace(true) {
            return;
        }
        let me = self.clone();
        glommio::spawn_local(async move {
            while me.slots.borrow().in_flight > 0 {
                if let Err(error) = me.event.read_at(0, size_of::<u64>()).await {
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
        let mut ring = self.ring.borrow_mut();
        let mut slots = self.slots.borrow_mut();
        for done in ring.completion() {
            slots.complete(done.user_data() as usize, done.result());
        }
    }
}

impl Drop for FileRing {
    /// Waits for the kernel, which still uses what the slots keep.
    fn drop(&mut self) {
        let ring = self.ring.get_mut();
        let slots = self.slots.get_mut();
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

/// Tells the kernel of what was queued.
fn submit(ring: &mut IoUring) -> io::Result<()> {
    loop {
        match ring.submit() {
            Ok(_) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
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
