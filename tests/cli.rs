//! `ringmq admin`, `status`, `produce` and `consume` as people and programs run them.

mod common;

#[path = "cli/brokers.rs"]
mod brokers;
#[path = "cli/command.rs"]
mod command;
#[path = "cli/faults.rs"]
mod faults;
#[path = "cli/follow.rs"]
mod follow;
#[path = "cli/groups.rs"]
mod groups;
#[path = "cli/inputs.rs"]
mod inputs;
#[path = "cli/liars.rs"]
mod liars;
#[path = "cli/manual.rs"]
mod manual;
#[path = "cli/messages.rs"]
mod messages;
#[path = "cli/nameservers.rs"]
mod nameservers;
#[path = "cli/status.rs"]
mod status;
#[path = "cli/streams.rs"]
mod streams;
#[path = "cli/topics.rs"]
mod topics;
