//! The nameserver: who registers how, what routes it gives, and when they go.

mod common;

#[path = "nameserver/admin.rs"]
mod admin;
#[path = "nameserver/brokers.rs"]
mod brokers;
#[path = "nameserver/registration.rs"]
mod registration;
