//! What a request means: one file per family of requests.

pub mod control;
pub mod peers;
