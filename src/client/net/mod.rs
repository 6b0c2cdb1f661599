//! The driver of a client: its own thread with one io_uring event loop, between the facade on
//! any thread and the pure core.
//!
//! # The runtime
//! The loop is glommio's, and its types stay in `executor`. A program that links this library
//! needs nothing else. A wake-up of its loop is several system calls, which is too much where one
//! message may be all it is for. So the loop makes connections, and otherwise the thread waits in poll(2) for its sockets and
//! for a bell (`crate::bell`), which whoever leaves something for it rings: a wake-up is one poll, one
//! read and one write. Blocking sends that come alone do without it altogether (`lead`).

mod address_server;
mod clock;
mod driver;
mod executor;
mod instance;
mod lead;
mod offset_files;
mod out;
mod peers;
mod poll_set;
mod resolve;
mod tasks;
mod waiters;

#[cfg(test)]
mod tests;

pub(crate) use clock::{clock_ms, clock_ms_up};
pub(crate) use driver::Post;
pub(crate) use instance::{Call, Inbox, Instance, PublishTable, Sink};
pub(crate) use waiters::Waiter;
