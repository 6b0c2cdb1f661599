//! The load: connections, requests, pace, contents.

pub mod payload;
