//! Whether every acknowledged message is there: once, behind those that were acknowledged
//! before it was sent, at the queue offset that was answered, with its content.
//!
//! Producers keep a [`Sent`], readers a [`Read`]; [`judge`] compares them. Readers of what others
//! sent keep [`Streams`]. Memory is a few bits a message: 20 million messages take some 8 MB.

pub mod bits;
pub mod order;
pub mod read;
pub mod sent;
pub mod stamp;
pub mod streams;

pub use read::{Read, judge};
pub use sent::Sent;
pub use streams::Streams;

/// Spreads the bits of a number (the finalizer of splitmix64).
pub const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
