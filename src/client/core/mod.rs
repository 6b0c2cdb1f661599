//! The core of a client: state and decisions, without I/O, clock, thread or channel.

pub mod consumer;
pub mod io;
