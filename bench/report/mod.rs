//! What people see of a run.

pub mod html;
pub mod progress;
pub mod table;
