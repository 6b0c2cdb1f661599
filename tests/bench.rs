//! `ringmq bench` as users run it: against RingMQ, and against brokers that are none.

mod common;

#[path = "bench/command.rs"]
mod command;
#[path = "bench/faults.rs"]
mod faults;
#[path = "bench/impostor.rs"]
mod impostor;
#[path = "bench/lies.rs"]
mod lies;
#[path = "bench/loads.rs"]
mod loads;
#[path = "bench/stalls.rs"]
mod stalls;
