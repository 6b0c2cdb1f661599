//! The driver of a client: its own thread with one io_uring event loop, between the facade on
//! any thread and the pure core.
//!
//! # The runtime
//! The loop is glommio's, and its types stay in `executor`. A program that links this library
//! needs nothing else: neither an executor of its own nor settings of the linker. The `ringmq`
//! binary makes its rings with `IORING_SETUP_COOP_TASKRUN` through two `--wrap` arguments of the
//! linker (see `build.rs`), which cargo hands to no other program. Without them a wake-up of
//! this thread may cost an interrupt more, and a sleep that begins although a task is ready (a
//! fault of glommio 0.9 when the processor is taken away for longer than its timer for preemption)
//! lasts until the next event. So that timer is 10 ms here, not the 1 ms of a shard, and
//! `tasks::timer` makes an event every 100 ms while anybody waits for an answer, every second
//! otherwise.

mod address_server;
mod driver;
mod executor;
mod instance;
mod offset_files;
mod out;
mod peers;
mod resolve;
mod tasks;
mod waiters;

pub(crate) use driver::Post;
pub(crate) use instance::{Call, Inbox, Instance, PublishTable, Sink};
pub(crate) use waiters::Waiter;
