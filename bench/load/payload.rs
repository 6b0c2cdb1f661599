//! Sizes and contents of message bodies.

/// Largest body that can be asked for, in bytes.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How large message bodies are.
#[derive(Clone, Debug, PartialEq)]
pub enum SizeDistribution {
    /// All of one size, in bytes.
    Fixed(usize),
    /// Each size from the first to the second is as likely as the others.
    Uniform(usize, usize),
    /// Exponential with this mean, in bytes; cut at 16 times the mean.
    Exponential(usize),
    /// Sizes in bytes and their weights.
    List(Vec<(usize, f64)>),
}
