//! Operations of the ring that are done once: reads and writes of files, readiness to write.

use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use io_uring::squeue;

use super::ring::Reactor;
use super::slots::{Pending, Slot};

/// Has the kernel do an operation, and resolves with its result and with `keep`. The kernel
/// is told at the end of the turn.
///
/// # Safety
/// All memory and descriptors that `entry` names stay valid as long as `keep` lives.
pub unsafe fn operate<K: 'static>(entry: squeue::Entry, keep: K) -> Operation<K> {
    let reactor = Reactor::current();
    let keep: Box<dyn Any> = Box::new(keep);
    let place = reactor.slots.borrow_mut().insert(Slot::Operation(Pending {
        keep,
        result: None,
        waker: None,
        is_given_up: false,
    }));
    reactor.push(entry.user_data(place as u64));
    Operation {
        reactor,
        place: Some(place),
        ends_if_dropped: false,
        keep: PhantomData,
    }
}

/// An operation under way. It goes on when this is dropped, and so does what it works on.
pub struct Operation<K> {
    reactor: Rc<Reactor>,
    place: Option<usize>,
    ends_if_dropped: bool,
    keep: PhantomData<K>,
}

impl<K> Operation<K> {
    /// The same for one that waits for something that may never come: it ends when it is
    /// dropped.
    pub(super) fn while_awaited(mut self) -> Self {
        self.ends_if_dropped = true;
        self
    }
}

impl<K: Unpin + 'static> Future for Operation<K> {
    type Output = (io::Result<usize>, K);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let place = self.place.expect("not polled after its end");
        let mut slots = self.reactor.slots.borrow_mut();
        let pending = slots.operation(place);
        let Some(result) = pending.result else {
            pending.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let Some(Slot::Operation(pending)) = slots.remove(place) else {
            unreachable!("it was there a moment ago");
        };
        drop(slots);
        self.place = None;
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        let keep = pending.keep.downcast().expect("what it was made with");
        Poll::Ready((result, *keep))
    }
}

impl<K> Drop for Operation<K> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut slots = self.reactor.slots.borrow_mut();
            let pending = slots.operation(place);
            if pending.result.is_some() {
                let removed = slots.remove(place);
                drop(slots);
                drop(removed);
            } else {
                pending.is_given_up = true;
                drop(slots);
                if self.ends_if_dropped {
                    self.reactor.cancel(place);
                }
            }
        }
    }
}
