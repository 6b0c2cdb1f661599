//! What people see of a run.

pub mod progress;
pub mod table;
