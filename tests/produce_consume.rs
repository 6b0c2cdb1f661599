//! What clients do all day, and what operators ask about it.

mod common;

#[path = "produce_consume/admin.rs"]
mod admin;
#[path = "produce_consume/groups.rs"]
mod groups;
#[path = "produce_consume/long_poll.rs"]
mod long_poll;
#[path = "produce_consume/offsets.rs"]
mod offsets;
#[path = "produce_consume/pull.rs"]
mod pull;
#[path = "produce_consume/query.rs"]
mod query;
#[path = "produce_consume/retry.rs"]
mod retry;
#[path = "produce_consume/send.rs"]
mod send;
#[path = "produce_consume/topics.rs"]
mod topics;
