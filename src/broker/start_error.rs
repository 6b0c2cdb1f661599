//! Why a broker cannot start.

use std::fmt;

/// Why the broker cannot start.
#[derive(Debug)]
pub struct StartError(pub(super) String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// The error with the text of another.
pub(super) fn refused(error: impl fmt::Display) -> StartError {
    StartError(error.to_string())
}
