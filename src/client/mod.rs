//! A client for RingMQ and Apache RocketMQ: producers, push and pull consumers.
//!
//! ```text
//! producer, consumers   handles for any thread: blocking calls, futures, callbacks
//!        │ inbox                                          ▲ answers, deliveries
//!        ▼                                                │
//!      net      the client's own thread: sockets, clock, files
//!        │ inputs, bytes                                  ▲ outputs, frames
//!        ▼                                                │
//!      core     state and decisions: routes, selection, retries, rebalance, offsets
//! ```
//!
//! [`core`] is pure: the driver in `net` gives it the time and the bytes, and does what it
//! says. [`core::io`] is the border between the two.
//!
//! [`admin`] is apart from them: what an operator asks, over blocking connections of [`remote`].
//!
//! Examples get the addresses of nameservers, `"127.0.0.1:9876"` for one on this machine:
//!
#![doc = concat!(
    "```no_run\n",
    include_str!("../../tests/client/examples/produce_and_consume.rs"),
    "```"
)]
//!
//! # What a program needs
//! Linux with io_uring (5.8 or newer). No runtime: each client instance has a thread of its own
//! with its event loop, `ringmq-client`, and calls reach it from any thread and from any
//! runtime's tasks alike. Blocking calls (`send`, `poll`, `wait`, `start`, `shutdown`) block
//! their thread: in a runtime's tasks await the futures instead. So does the drop of an
//! instance's last handle if any of them was not shut down: it waits for what is on its way, up
//! to 5 s, as a program that ends would lose it. After `shutdown` or `shutdown_async` it waits
//! for nothing. Nothing is to be set for the linker; see the notes in `net` for what the
//! `ringmq` binary sets for itself.
//!
//! Each producer and consumer has a client instance of its own, with its own connections,
//! unless [`ClientSettings::instance_name`] is set: those with the same name, nameservers and
//! unit share one.

/// An example for the documentation; the tests run it.
macro_rules! example {
    ($name:literal) => {
        concat!(
            "```no_run\n",
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/client/examples/",
                $name,
                ".rs"
            )),
            "```"
        )
    };
}

pub mod admin;
pub mod core;
pub mod error;
pub mod hooks;
mod in_flight;
pub mod message;
mod net;
mod one_shot;
mod pending;
mod producer;
mod pull_consumer;
mod push_consumer;
pub mod remote;
pub mod settings;
mod workers;

pub use crate::wire::body::heartbeat::{ConsumeFromWhere, MessageModel};
pub use core::io::{Filter, OffsetOf, Outcome, SeekTo};
pub use error::{Error, ErrorKind, Result};
pub use message::{Message, MessageId, MessageQueue, ReceivedMessage, SendResult, SendStatus};
pub use pending::Pending;
pub use producer::{Producer, SendRequest};
pub use pull_consumer::{NO_SUBSCRIPTIONS, PullConsumer};
pub use push_consumer::{Batch, PushConsumer, Subscription};
pub use settings::{
    AllocateStrategy, ClientSettings, Compression, Listening, MESSAGE_BYTES_MAX, NameServers,
    ProducerSettings, PullConsumerSettings, PushConsumerSettings,
};
