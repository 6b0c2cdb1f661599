//! The consumers of this client.

use super::Core;
use super::io::{Now, Output};
use crate::wire::body::heartbeat::ConsumerData;

impl Core {
    /// Whether there is one.
    pub(super) fn has_consumers(&self) -> bool {
        false
    }

    /// What heartbeats say of them.
    pub(super) fn consumer_data(&self) -> Vec<ConsumerData> {
        Vec::new()
    }

    /// Begins to stop all of them.
    pub(super) fn stop_consumers(&mut self, _now: Now, _wait_ms: u64, _out: &mut Vec<Output>) {}
}
