//! RingMQ: a message broker and nameserver that speaks Apache RocketMQ's protocol.

pub mod broker;
pub mod nameserver;
pub mod shard;
pub mod wire;
