//! RingMQ: a message broker and nameserver that speaks Apache RocketMQ's protocol.

pub mod broker;
pub mod config;
pub mod probe;
pub mod server;
pub mod shard;
pub mod wire;
