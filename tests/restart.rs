//! What a stop, a kill and a damaged file leave behind: everything that was acknowledged.

mod common;

#[path = "restart/campaign.rs"]
mod campaign;
#[path = "restart/crash.rs"]
mod crash;
#[path = "restart/disk_full.rs"]
mod disk_full;
#[path = "restart/files.rs"]
mod files;
#[path = "restart/ledger.rs"]
mod ledger;
#[path = "restart/many_queues.rs"]
mod many_queues;
#[path = "restart/retention.rs"]
mod retention;
#[path = "restart/stop.rs"]
mod stop;
#[path = "restart/store_command.rs"]
mod store_command;
