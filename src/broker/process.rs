//! What the brokers of a process share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::disk::DiskGauge;
use super::flush_choice::FlushChoice;
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
}
