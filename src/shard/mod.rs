//! The loop: one executor per core, its connections, lanes and timers.

mod ids;

pub use ids::{ConnId, ShardId};
