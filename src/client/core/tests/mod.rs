//! The core against simulated nameservers and brokers.
//!
//! `world` is a small world with a virtual clock: nameservers that know routes, brokers that
//! store messages, and a network that loses, delays, doubles and garbles, all by seed. It
//! keeps a ledger of what was stored and of how each send ended.

mod cases;
mod cost;
mod seeds;
mod world;
