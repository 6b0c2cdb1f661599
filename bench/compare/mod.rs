//! `ringmq bench compare`: RingMQ and Apache RocketMQ under the same load, in turn, on this machine.

pub mod judge;
pub mod statistics;
pub mod units;
