//! Memory that is shared out among shards.
//!
//! | what | of each shard |
//! | --- | --- |
//! | blocks of the log for lagging readers | 1/16 of the memory among all shards, 8 to 32 MiB |
//! | blocks that are being read | half of that |
//! | buffers that wait for the next reads of it | 8 MiB |
//! | ring of append buffers | `tailFileBytes`, 16 MiB unless set |
//! | chunks of queue files | 6 MiB |
//! | entries that queue files cannot take | 24 MB |
//!
//! The memory is the machine's, or the smallest limit of the cgroups that the process
//! is in. Disk space is that of the file system of the store, as it tells of it.

use super::flush_choice::FlushChoice;
use crate::config::{FlushDiskType, Settings};
use crate::store::{AckLevel, DelayTable, IndexGeometry, StoreSettings};

/// Most bytes of log blocks that a shard caches for lagging readers.
const CACHE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Fewest: 32 blocks, so that the largest message fits.
const CACHE_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Part of the memory that all shards together cache blocks in.
const CACHE_PART: u64 = 16;

/// Bytes of log blocks that each shard caches: a sixteenth of the memory among all of
/// them, 8 to 32 MiB.
fn cache_bytes(memory_bytes: u64, shards: u16) -> usize {
    let share = memory_bytes / CACHE_PART / u64::from(shards.max(1));
    share.clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX) as usize
}

/// What a shard's store is made with, on a machine or in a container with this much
/// memory, in bytes.
pub(super) fn store_settings(
    settings: &Settings,
    memory_bytes: u64,
    shards: u16,
    after_crash: bool,
    flush: FlushChoice,
) -> StoreSettings {
    StoreSettings {
        segment_bytes: settings.mapped_file_size_commit_log,
        queue_file_bytes: settings.mapped_file_size_consume_queue,
        tail_bytes: settings.tail_file_bytes,
        cache_bytes: cache_bytes(memory_bytes, shards),
        ack: match settings.flush_disk_type {
            FlushDiskType::Async => AckLevel::Written,
            FlushDiskType::Sync => AckLevel::Durable,
        },
        flush_after_write: flush.after_write,
        flush_bytes_max: flush.write_bytes_max,
        rebuild_queues: false,
        flush_interval_ms: settings.flush_interval_commit_log_ms,
        after_crash,
        delays: DelayTable(
            settings
                .message_delay_level
                .iter()
                .map(|delay| delay.as_millis() as i64)
                .collect(),
        ),
        index: settings
            .message_index_enable
            .then_some(IndexGeometry::ROCKETMQ),
    }
}

#[cfg(test)]
mod tests {
    use super::cache_bytes;

    #[test]
    fn small_machines_cache_less() {
        const MIB: u64 = 1024 * 1024;
        let cache = |mib: u64, shards| cache_bytes(mib * MIB, shards) as u64 / MIB;
        assert_eq!(cache(128, 1), 8);
        assert_eq!(cache(256, 1), 16);
        assert_eq!(cache(512, 2), 16);
        assert_eq!(cache(16_384, 8), 32);
    }
}
