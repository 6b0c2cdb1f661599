//! The client: what speaks to brokers and nameservers, RingMQ's or Apache RocketMQ's.

pub mod admin;
pub mod remote;
