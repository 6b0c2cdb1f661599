//! Runs what the command line asks for.

use crate::config::Settings;
use std::fmt;
use std::sync::Arc;

pub use crate::config::Role;

/// Why the process could not start.
#[derive(Debug)]
pub struct StartError(
    /// What went wrong, for people.
    pub String,
);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Runs until the process is asked to stop.
pub fn run(_role: Role, _settings: Arc<Settings>) -> Result<(), StartError> {
    Ok(())
}
