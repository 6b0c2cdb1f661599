//! What a shard's thread waits with: one ring for its sockets, its files, its timers and
//! what other threads tell it.
//!
//! glommio runs the tasks, one executor a thread. Its own reactor would add four system
//! calls, three rings and two timers to each wake; here a turn is one `io_uring_enter`,
//! which tells the kernel of all that the turn has begun and waits for what is ready. It
//! is called by a task that is always there, and waits only after a round in which no
//! other task had anything to do: tasks are counted as they run, so all are started by
//! [`spawn`].
//!
//! glommio's own sockets, files, timers and wake-ups from other threads are not served by
//! that, and so not to be used: [`Socket`], [`Operation`], [`sleep`] and [`from_thread`]
//! stand in their place.

mod busy_poll;
mod executor;
mod helper;
mod operation;
mod ring;
mod rounds;
mod slots;
mod socket;
#[cfg(test)]
mod tests;
mod timers;
mod turns;
mod visitors;

pub use executor::{allowed_cpus, block_on, next_turn, spawn, spawn_executor};
pub use operation::{Operation, operate};
pub use rounds::round_of_its_own;
pub use socket::{Socket, connect};
pub use turns::{begin_turn_anew, long_turns, turn_began};

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use ring::Reactor;

/// Waits.
pub async fn sleep(time: Duration) {
    timers::Sleep::new(Reactor::current(), time).await;
}

/// Has this thread poll for so long at most, where that pays, before it sleeps.
pub fn busy_poll(longest: Duration) {
    Reactor::with(|reactor| reactor.busy_poll.set_longest(longest));
}

/// Tells the kernel at once of operations that it would be told of at the end of the turn.
pub fn submit() {
    Reactor::with(|reactor| reactor.submit());
}

/// Runs work that waits for the disk on the thread's helper, one piece after the other.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let result = Reactor::with(|reactor| reactor.helper.run(work));
    receive(&result)
        .await
        .expect("the helper does what it is given")
}

/// The next of what other threads send.
///
/// # Errors
/// Nothing more will come.
pub async fn receive<T>(channel: &flume::Receiver<T>) -> Result<T, flume::RecvError> {
    if let Ok(there) = channel.try_recv() {
        return Ok(there);
    }
    from_thread(channel.recv_async()).await
}

/// Sends to another thread, when its channel has room.
///
/// # Errors
/// Nobody is there to receive it.
pub async fn send<T>(channel: &flume::Sender<T>, value: T) -> Result<(), flume::SendError<T>> {
    match channel.try_send(value) {
        Ok(()) => Ok(()),
        Err(flume::TrySendError::Disconnected(value)) => Err(flume::SendError(value)),
        Err(flume::TrySendError::Full(value)) => from_thread(channel.send_async(value)).await,
    }
}

/// Awaits what another thread may wake: a plain waker of this thread's tasks would not
/// interrupt its wait.
async fn from_thread<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let visitor = visitors::Visitor::new(Reactor::current());
    poll_fn(|cx| {
        visitor.stays(cx.waker());
        future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(visitor.waker()))
    })
    .await
}
