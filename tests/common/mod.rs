//! What the tests of the running binary share: processes, connections, requests, records.

#![allow(dead_code, unused_imports)]

mod client;
mod process;
mod record;
mod requests;
mod shared;
mod witness;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use client::{Client, Reply};
pub use process::{Config, Server, free_port};
pub use record::{Record, records};
pub use requests::{
    Consumer, Pull, Send, batch_item, commit, committed, heartbeat, max_offset, min_offset,
    queue_offset, topic,
};
pub use shared::{Shared, shared};
pub use witness::Witness;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_millis() as i64
}

/// Waits until `holds` does, for `limit` at most; panics with `what` where it never does.
pub fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A name that no other test of this process uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A body that names itself: `tag`, a number, and filling up to `bytes`.
pub fn body(tag: &str, number: u64, bytes: usize) -> Vec<u8> {
    let mut body = format!("{tag}:{number}:").into_bytes();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while body.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        body.push(state as u8);
    }
    body
}
