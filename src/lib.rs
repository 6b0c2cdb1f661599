//! RingMQ: a message broker and nameserver that speaks Apache RocketMQ's protocol
//! and keeps RocketMQ's files, with one io_uring event loop per core.
//!
//! # The way of a message
//!
//! ```text
//! socket ─> wire::frame ─> wire::header ─> broker::dispatch
//!                                              │
//!                              broker::send    checks, properties, delay
//!                                              │
//!                          owner of the queue? ─┬─ this shard
//!                                               └─ another: shard::lane, and the same there
//!                                              │
//!                            broker::append ─> store::commit_log   place, stamp
//!                                              ├─> store::tail      one copy: the bytes outlive the process
//!                                              ├─> store::consume_queue   20-byte entry
//!                                              │     └─> broker::long_poll  parked pulls wake in this turn
//!                                              └─> store::flush     what gathered goes to the device
//!                                              │
//!                              broker::acks    answer when its watermark is reached
//!                                              │
//! socket <─ shard::out  <──────────────────────┘ one write per connection and turn
//! ```
//!
//! A pull goes the same way and returns slices of the log: what is on the disk is
//! what is on the wire.
//!
//! # The modules, from top to bottom
//!
//! Arrows point down only.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`server`] | starts and stops what the command line asks for |
//! | [`broker`] | what a request means, one file per family |
//! | [`nameserver`] | topic routes, as brokers tell them |
//! | [`client`] | producers and consumers for applications, and what tools ask of a cluster |
//! | [`shard`] | the loop: executors, connections, lanes |
//! | [`store`] | one shard's files |
//! | `reactor` | what a shard's thread waits with |
//! | [`probe`] | what the machine must have, and what its disks do |
//! | [`large_alloc`] | an allocator that counts what is large |
//! | [`config`] | settings under RocketMQ's names, and every bound |
//! | [`wire`] | bytes to values and back, pure |

mod bell;
pub mod broker;
pub mod client;
pub mod config;
pub mod large_alloc;
mod local_event;
pub mod nameserver;
pub mod probe;
mod reactor;
pub mod server;
pub mod shard;
pub mod store;
pub mod wire;
