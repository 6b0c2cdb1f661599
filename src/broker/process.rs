//! What the brokers of a process share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::disk::DiskGauge;
use super::flush_choice::FlushChoice;
use crate::shard::busy_poll;
use crate::store::StoreLayout;

/// What the brokers of a process share.
pub(super) struct Process {
    /// The store's folder: log 0 in it, the others below.
    pub layout: StoreLayout,
    /// Connections.
    pub open: Arc<AtomicUsize>,
    /// Space on the store's device.
    pub disk: Arc<DiskGauge>,
    /// Memory of the machine or container, in bytes.
    pub memory_bytes: u64,
    /// How the logs are written.
    pub flush: FlushChoice,
    /// Shards of all brokers.
    pub shards: u16,
    /// Processors that the process may use.
    pub cpus: Vec<usize>,
    /// Longest time that a shard polls before it sleeps.
    pub busy_poll: Duration,
}

impl Process {
    /// Has the calling shard poll before it sleeps, where a processor is left without a shard:
    /// otherwise whoever is to send something may have to wait for this one. Measured with two
    /// shards on two processors and a client beside them: half as much processor time again a
    /// message, for three quarters of the latency.
    pub fn begin_busy_poll(&self) {
        if usize::from(self.shards) < self.cpus.len() {
            busy_poll(self.busy_poll);
        }
    }
}
