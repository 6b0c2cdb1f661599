//! `tuning/`: what its scripts find, change and bring back, the profile of a device, the units and
//! the seccomp profile.

mod common;

#[path = "tuning/apply.rs"]
mod apply;
#[path = "tuning/calls.rs"]
mod calls;
#[path = "tuning/check.rs"]
mod check;
#[path = "tuning/devices.rs"]
mod devices;
#[path = "tuning/filter.rs"]
mod filter;
#[path = "tuning/machine.rs"]
mod machine;
#[path = "tuning/profile.rs"]
mod profile;
#[path = "tuning/record.rs"]
mod record;
#[path = "tuning/rings.rs"]
mod rings;
#[path = "tuning/scheduler.rs"]
mod scheduler;
#[path = "tuning/seccomp.rs"]
mod seccomp;
#[path = "tuning/service.rs"]
mod service;
