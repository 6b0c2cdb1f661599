//! The tail file: a ring of append buffers that outlives the process.
//!
//! The newest bytes of a shard's log are copied into this file, which is mapped
//! shared: once copied they belong to the page cache, and a kill of the process
//! does not touch them. The ring holds log position *p* at `p mod capacity`.
//!
//! Header page, big-endian:
//!
//! | at | width | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `RINGTAIL` |
//! | 8 | 16 | boot id of the machine when it was written |
//! | 24 | u64 | capacity in bytes |
//! | 32 | u64 | shard |
//! | 40 | u64 | written: position up to which the ring has been filled |
//! | 48 | u64 | flushed: position up to which the segments have the bytes |
//!
//! What lies in `flushed .. written` is nowhere else. After a power loss (the
//! boot id differs) the file proves nothing and is not used.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::MmapMut;

use super::BLOCK_BYTES;

const MAGIC: &[u8; 8] = b"RINGTAIL";
const AT_BOOT_ID: usize = 8;
const AT_CAPACITY: usize = 24;
const AT_SHARD: usize = 32;
const AT_WRITTEN: usize = 40;
const AT_FLUSHED: usize = 48;
const HEADER_BYTES: usize = BLOCK_BYTES;

/// A shard's mapped tail file. Lives on its shard's thread.
pub struct Tail {
    map: MmapMut,
    capacity: usize,
}

/// What a tail file left by an earlier process proves to be in the log.
#[derive(Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Log position of the first byte.
    pub start: u64,
    /// The bytes from there on.
    pub bytes: Vec<u8>,
}

impl Tail {
    /// Makes or takes over the tail file at `path` and touches its pages.
    /// `capacity` is a power of two, in bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path, capacity: usize, shard: u16, position: u64) -> io::Result<Tail> {
        assert!(capacity.is_power_of_two());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        let total = HEADER_BYTES + capacity;
        allocate(&file, total as u64)?;
        // SAFETY: the file was just made by us, is locked by the store's lock file
        // against other brokers, and is never truncated while it is mapped.
        let mut map = unsafe { MmapMut::map_mut(&file)? };
        // Every page is made now, so that no append waits for one.
        for page in map.chunks_mut(BLOCK_BYTES) {
            page[0] = 0;
        }
        let mut tail = Tail { map, capacity };
        // The numbers first: without the magic the file proves nothing, and it must
        // not do so with half of them.
        tail.set_flushed(position);
        tail.set_written(position);
        let map = &mut tail.map;
        map[AT_BOOT_ID..AT_BOOT_ID + 16].copy_from_slice(&boot_id()?);
        map[AT_CAPACITY..AT_CAPACITY + 8].copy_from_slice(&(capacity as u64).to_be_bytes());
        map[AT_SHARD..AT_SHARD + 8].copy_from_slice(&u64::from(shard).to_be_bytes());
        fence(Ordering::SeqCst);
        map[..8].copy_from_slice(MAGIC);
        fence(Ordering::SeqCst);
        Ok(tail)
    }

    /// Reads what an earlier process left at `path`. `None` where there is no
    /// file, or one that proves nothing: of another boot, shard or layout.
    ///
    /// # Errors
    /// Those of reading; a missing or strange file is not an error.
    pub fn survivor(path: &Path, shard: u16) -> io::Result<Option<Survivor>> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(survivor_in(&bytes, shard, &boot_id()?))
    }

    /// Size of the ring, in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies `bytes` to log position `position`.
    pub fn write(&mut self, position: u64, bytes: &[u8]) {
        let at = position as usize & (self.capacity - 1);
        let first = bytes.len().min(self.capacity - at);
        let ring = &mut self.map[HEADER_BYTES..];
        ring[at..at + first].copy_from_slice(&bytes[..first]);
        ring[..bytes.len() - first].copy_from_slice(&bytes[first..]);
    }

    /// The `len` bytes at log position `position`, in one or two runs.
    pub fn read(&self, position: u64, len: usize) -> (&[u8], &[u8]) {
        let at = position as usize & (self.capacity - 1);
        let first = len.min(self.capacity - at);
        let ring = &self.map[HEADER_BYTES..];
        (&ring[at..at + first], &ring[..len - first])
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at % 8 == 0);
        // SAFETY: `at` is inside the header page and aligned to 8; the map is page
        // aligned and lives as long as `self`; these bytes are only reached here.
        unsafe { &*self.map.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Publishes that the ring holds the log up to `position`. The release
    /// order keeps the bytes in front of the number that vouches for them.
    pub fn set_written(&self, position: u64) {
        self.counter(AT_WRITTEN)
            .store(position.to_be(), Ordering::Release);
    }

    /// Publishes that the segments hold the log up to `position`.
    pub fn set_flushed(&self, position: u64) {
        self.counter(AT_FLUSHED)
            .store(position.to_be(), Ordering::Release);
    }
}

fn survivor_in(file: &[u8], shard: u16, boot_id: &[u8; 16]) -> Option<Survivor> {
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_be_bytes(file.get(at..at + 8)?.try_into().ok()?))
    };
    let ring = file.get(HEADER_BYTES..)?;
    let capacity = ring.len();
    let valid = file.starts_with(MAGIC)
        && &file[AT_BOOT_ID..AT_BOOT_ID + 16] == boot_id
        && capacity.is_power_of_two()
        && number(AT_CAPACITY)? == capacity as u64
        && number(AT_SHARD)? == u64::from(shard);
    let (written, flushed) = (number(AT_WRITTEN)?, number(AT_FLUSHED)?);
    if !valid || flushed > written || written - flushed > capacity as u64 {
        return None;
    }
    let len = (written - flushed) as usize;
    let at = flushed as usize & (capacity - 1);
    let first = len.min(capacity - at);
    let mut bytes = ring[at..at + first].to_vec();
    bytes.extend_from_slice(&ring[..len - first]);
    Some(Survivor {
        start: flushed,
        bytes,
    })
}

/// Sets a file's size and reserves its blocks where the file system can.
pub(super) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: a plain system call on a file descriptor that is open.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => file.set_len(bytes),
        _ => Err(error),
    }
}

/// The id of this boot of the machine.
pub(super) fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let mut id = [0; 16];
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] << 4 | pair[1]) as u8;
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPACITY: usize = 64 * 1024;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_was_written_and_not_flushed_survives(
            start in 0u64..1 << 40,
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..9000), 1..20),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tail");
            let mut tail = Tail::create(&path, CAPACITY, 3, start).unwrap();
            let (mut written, mut flushed) = (start, start);
            let mut log = Vec::new();
            for piece in &pieces {
                if (written - flushed) as usize + piece.len() > CAPACITY {
                    flushed = written;
                    tail.set_flushed(flushed);
                }
                tail.write(written, piece);
                let (a, b) = tail.read(written, piece.len());
                prop_assert_eq!([a, b].concat(), piece.clone());
                written += piece.len() as u64;
                tail.set_written(written);
                log.extend_from_slice(piece);
            }
            let expected = log[(flushed - start) as usize..].to_vec();
            drop(tail);
            let survivor = Tail::survivor(&path, 3).unwrap();
            prop_assert_eq!(survivor, Some(Survivor { start: flushed, bytes: expected }));
            prop_assert_eq!(Tail::survivor(&path, 4).unwrap(), None);
        }

        #[test]
        fn arbitrary_files_prove_nothing_and_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), magic: bool, page: bool,
            numbers: [u64; 4],
        ) {
            if page {
                bytes.resize(HEADER_BYTES + 4096, 7);
                for (index, number) in numbers.iter().enumerate() {
                    let at = AT_CAPACITY + 8 * index;
                    bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
                }
            }
            if magic && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(MAGIC);
            }
            let _ = survivor_in(&bytes, 0, &[0; 16]);
        }
    }

    #[test]
    fn a_file_of_another_boot_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tail");
        let mut tail = Tail::create(&path, CAPACITY, 0, 0).unwrap();
        tail.write(0, b"bytes");
        tail.set_written(5);
        drop(tail);
        let mut bytes = std::fs::read(&path).unwrap();
        let boot = boot_id().unwrap();
        assert!(survivor_in(&bytes, 0, &boot).is_some());
        bytes[AT_BOOT_ID] ^= 1;
        assert_eq!(survivor_in(&bytes, 0, &boot), None);
        assert_eq!(Tail::survivor(&dir.path().join("none"), 0).unwrap(), None);
    }
}
