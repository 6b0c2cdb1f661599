//! RingMQ: a message broker and nameserver that speaks Apache RocketMQ's protocol.

pub mod broker;
pub mod config;
mod local_event;
pub mod nameserver;
pub mod probe;
pub mod server;
pub mod shard;
pub mod store;
pub mod wire;
