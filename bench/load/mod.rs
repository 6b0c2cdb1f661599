//! The load: connections, requests, pace, contents.
//!
//! One thread serves any number of connections: it waits until some can be read, takes all
//! answers that are there, puts the next requests of each connection behind each other and
//! writes them at once. Nothing is allocated for a message.

pub mod answer;
pub mod clock;
pub mod connection;
pub mod consumer;
pub mod live;
pub mod others;
pub mod outage;
pub mod pacing;
pub mod payload;
pub mod producer;
pub mod production;
pub mod slots;
pub mod template;
