//! RingMQ: a message broker and nameserver that speaks Apache RocketMQ's protocol.

pub mod broker;
mod local_event;
pub mod shard;
pub mod store;
pub mod wire;
