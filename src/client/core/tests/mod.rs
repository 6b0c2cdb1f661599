//! The core against simulated nameservers and brokers.
//!
//! `world` is a small world with a virtual clock: nameservers that know routes, brokers that
//! store messages, and a network that loses, delays, doubles and garbles, all by seed. It
//! keeps a ledger of what was stored and of how each send ended.

mod cases;
mod cost;
mod seeds;
mod world;

use crate::wire::message::{Parts, Stamp, body_crc};

/// A message of topic `t` as a broker gives it, from its queue 0.
pub(in crate::client) fn record(body: &[u8], offset: i64) -> Vec<u8> {
    let host = ([127, 0, 0, 1], 10911).into();
    let parts = Parts {
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_offset: 0,
        body,
        body_crc: body_crc(body),
        topic: b"t",
        properties: b"",
    };
    let stamp = Stamp {
        queue_offset: offset,
        physical_offset: offset,
        store_timestamp: 2,
    };
    let mut out = Vec::new();
    parts.write(&stamp, |piece| out.extend_from_slice(piece));
    out
}
