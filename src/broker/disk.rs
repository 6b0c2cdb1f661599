//! Space on the store's file system, and what the store uses of it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::control::runtime_info::Disk;
use crate::shard::ShardId;

/// Time between two looks at the file system.
const LOOK: Duration = Duration::from_secs(1);

/// Size and free space of the file system that `path` is in, as this process may use it
/// (`UtilAll.getDiskPartitionSpaceUsedPercent`; what is reserved for root does not
/// count, a quota of a container's folder does where the file system tells). `None`
/// where the kernel does not tell.
pub fn space(path: &Path) -> Option<Disk> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: zero is a valid `statvfs`.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in NUL and `stat` has room for the result.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return None;
    }
    let used = stat.f_blocks.saturating_sub(stat.f_bfree);
    Some(Disk {
        total: (used + stat.f_bavail) * stat.f_frsize,
        free: stat.f_bavail * stat.f_frsize,
    })
}

/// What is known of the disk, for all shards. Looked at once a second by a thread of
/// its own: neither a slow deletion nor a file system that hangs holds up a shard or
/// the look.
#[derive(Debug)]
pub struct DiskGauge {
    root: PathBuf,
    total: AtomicU64,
    free: AtomicU64,
    /// By log.
    stores: Vec<StoreBytes>,
}

#[derive(Debug, Default)]
struct StoreBytes {
    log: AtomicU64,
    files: AtomicU64,
}

impl DiskGauge {
    /// A gauge that has looked, and goes on as long as it is held.
    ///
    /// # Errors
    /// Text, where no thread can be made.
    pub fn watch(root: &Path, shards: u16) -> Result<Arc<DiskGauge>, String> {
        let gauge = Arc::new(DiskGauge {
            root: root.to_owned(),
            total: AtomicU64::new(0),
            free: AtomicU64::new(0),
            stores: (0..shards).map(|_| StoreBytes::default()).collect(),
        });
        gauge.look();
        let watched: Weak<DiskGauge> = Arc::downgrade(&gauge);
        let watch = move || {
            while let Some(gauge) = watched.upgrade() {
                gauge.look();
                drop(gauge);
                std::thread::sleep(LOOK);
            }
        };
        let thread = std::thread::Builder::new().name("disk".to_owned());
        thread.spawn(watch).map_err(|error| error.to_string())?;
        Ok(gauge)
    }

    fn look(&self) {
        if let Some(disk) = space(&self.root) {
            self.total.store(disk.total, Ordering::Relaxed);
            self.free.store(disk.free, Ordering::Relaxed);
        }
    }

    /// The store's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file system when it was last looked at.
    pub fn disk(&self) -> Disk {
        Disk {
            total: self.total.load(Ordering::Relaxed),
            free: self.free.load(Ordering::Relaxed),
        }
    }

    /// The owner of log `number` tells of its files: bytes of its segments, and of all.
    pub fn publish(&self, number: ShardId, log: u64, files: u64) {
        let store = &self.stores[number.index()];
        store.log.store(log, Ordering::Relaxed);
        store.files.store(files, Ordering::Relaxed);
    }

    /// Bytes of the segments of all shards.
    pub fn log_bytes(&self) -> u64 {
        let logs = self.stores.iter().map(|store| &store.log);
        logs.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of all files of all shards.
    pub fn file_bytes(&self) -> u64 {
        let files = self.stores.iter().map(|store| &store.files);
        files.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }
}
