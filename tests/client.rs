//! The Rust client against the running binary, and against servers that lie.

mod common;

#[path = "client/examples.rs"]
mod examples;
#[path = "client/impostor.rs"]
mod impostor;
#[path = "client/producer.rs"]
mod producer;
#[path = "client/pull.rs"]
mod pull;
#[path = "client/push.rs"]
mod push;
#[path = "client/restart.rs"]
mod restart;
#[path = "client/support.rs"]
mod support;
#[path = "client/turns.rs"]
mod turns;
#[path = "client/turns_lies.rs"]
mod turns_lies;
