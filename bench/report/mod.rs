//! What is shown of a report.

pub mod html;
