//! Bytes to values and back, without I/O: frames, headers, records, bodies.
//!
//! Everything here is a pure function of its input. Every length is checked
//! against the bytes that are really there before it is used, so that no input
//! can make the process read out of bounds, allocate without limit or panic.

pub mod batch;
pub mod body;
pub mod codes;
pub mod command;
pub mod frame;
pub mod header;
pub mod ids;
pub mod java_hash;
pub mod message;
pub mod names;
pub mod properties;
pub mod pull_header;
pub mod send_header;
pub mod send_request;

mod header_binary;
mod header_json;
mod header_shape;
mod scan;
mod send_shape;
