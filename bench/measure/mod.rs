//! What is measured: latencies, the server's use of the machine, the harness's own.

pub mod floor;
pub mod machine;
pub mod recorder;
pub mod server;
