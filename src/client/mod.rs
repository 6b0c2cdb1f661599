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

pub mod admin;
pub mod core;
pub mod error;
pub mod hooks;
pub mod message;
pub mod remote;
pub mod settings;

pub use error::{Error, ErrorKind, Result};
pub use message::{Message, MessageQueue, ReceivedMessage, SendResult, SendStatus};
pub use settings::{
    ClientSettings, NameServers, ProducerSettings, PullConsumerSettings, PushConsumerSettings,
};
