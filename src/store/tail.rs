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
//! | 56 | u64 | durable: position up to which the device has promised them |
//! | 64 | u64 | the complement of durable |
//! | 72 | u64 | first position that this file ever held |
//!
//! What lies in `flushed .. written` is nowhere else. After a power loss (the
//! boot id differs) the file proves nothing of it and is not used; that the device
//! had promised the log up to `durable` stays true.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::edge::{BlocksToWrite, Files, SharedMap};
use super::{BLOCK_BYTES, align_down};

const MAGIC: &[u8; 8] = b"RINGTAIL";
const AT_BOOT_ID: usize = 8;
const AT_CAPACITY: usize = 24;
const AT_SHARD: usize = 32;
const AT_WRITTEN: usize = 40;
const AT_FLUSHED: usize = 48;
const AT_DURABLE: usize = 56;
const AT_COMPLEMENT: usize = 64;
const AT_START: usize = 72;
const HEADER_BYTES: usize = BLOCK_BYTES;

/// Bytes in front of a survivor that are compared with the segments.
const BEFORE_BYTES: u64 = 4096;

/// A shard's mapped tail file. Lives on its shard's thread.
pub struct Tail {
    map: SharedMap,
    capacity: usize,
}

/// What a tail file left by an earlier process proves to be in the log.
#[derive(Debug, PartialEq, Eq)]
pub struct Survivor {
    /// What the segments have in front of it, as far as the file holds it: a file
    /// whose bytes differ is another log's.
    pub before: Vec<u8>,
    /// Log position of the first byte.
    pub start: u64,
    /// The bytes from there on.
    pub bytes: Vec<u8>,
}

/// What a tail file left by an earlier process says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Position up to which the device had promised the log, at least.
    pub durable: u64,
    /// What it proves to be in the log; nothing where it is of another boot.
    pub survivor: Option<Survivor>,
}

impl Tail {
    /// Makes or takes over the tail file at `path` and touches its pages.
    /// `capacity` is a power of two, in bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(
        files: &dyn Files,
        path: &Path,
        capacity: usize,
        shard: u16,
        position: u64,
    ) -> io::Result<Tail> {
        assert!(capacity.is_power_of_two());
        let mut map = files.map(path, HEADER_BYTES + capacity)?;
        // Every page is made now, so that no append waits for one.
        for page in map.chunks_mut(BLOCK_BYTES) {
            page[0] = 0;
        }
        let mut tail = Tail { map, capacity };
        // The numbers first: without the magic the file proves nothing, and it must
        // not do so with half of them.
        tail.set_durable(position);
        tail.set_flushed(position);
        tail.set_written(position);
        let map = &mut tail.map;
        map[AT_BOOT_ID..AT_BOOT_ID + 16].copy_from_slice(&files.boot_id()?);
        map[AT_CAPACITY..AT_CAPACITY + 8].copy_from_slice(&(capacity as u64).to_be_bytes());
        map[AT_SHARD..AT_SHARD + 8].copy_from_slice(&u64::from(shard).to_be_bytes());
        let start = align_down(position);
        map[AT_START..AT_START + 8].copy_from_slice(&start.to_be_bytes());
        fence(Ordering::SeqCst);
        map[..8].copy_from_slice(MAGIC);
        fence(Ordering::SeqCst);
        Ok(tail)
    }

    /// Reads what an earlier process left at `path`: nothing where there is no
    /// file, or one that is not a tail file of this shard.
    ///
    /// # Errors
    /// Those of reading; a missing or strange file is not an error.
    pub fn left(files: &dyn Files, path: &Path, shard: u16) -> io::Result<Left> {
        let Some(bytes) = files.read_if_there(path)? else {
            return Ok(Left::default());
        };
        Ok(left_in(&bytes, shard, &files.boot_id()?).unwrap_or_default())
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

    /// The blocks of the log from `start`, which one begins at, to `end`: whole ones in
    /// place, the last one copied where it is not whole.
    pub fn blocks(&self, start: u64, end: u64) -> BlocksToWrite {
        let whole = align_down(end);
        let (first, second) = self.read(start, (whole - start) as usize);
        let last = self.read(whole, (end - whole) as usize);
        BlocksToWrite::new(&self.map, first, second, last)
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

    /// Publishes that the device has promised the log up to `position`.
    pub fn set_durable(&self, position: u64) {
        let (value, complement) = (self.counter(AT_DURABLE), self.counter(AT_COMPLEMENT));
        value.store(position.to_be(), Ordering::Release);
        complement.store(!position.to_be(), Ordering::Release);
    }
}

fn left_in(file: &[u8], shard: u16, boot_id: &[u8; 16]) -> Option<Left> {
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_be_bytes(file.get(at..at + 8)?.try_into().ok()?))
    };
    let ring = file.get(HEADER_BYTES..)?;
    let capacity = ring.len();
    let valid = file.starts_with(MAGIC)
        && capacity.is_power_of_two()
        && number(AT_CAPACITY)? == capacity as u64
        && number(AT_SHARD)? == u64::from(shard);
    if !valid {
        return None;
    }
    let durable = number(AT_DURABLE)?;
    let mut left = Left {
        durable: if number(AT_COMPLEMENT)? == !durable {
            durable
        } else {
            0
        },
        survivor: None,
    };
    let (written, flushed) = (number(AT_WRITTEN)?, number(AT_FLUSHED)?);
    let held = flushed <= written && written - flushed <= capacity as u64;
    if !held || &file[AT_BOOT_ID..AT_BOOT_ID + 16] != boot_id {
        return Some(left);
    }
    let run = |from: u64, to: u64| {
        let (at, len) = (from as usize & (capacity - 1), (to - from) as usize);
        let first = len.min(capacity - at);
        let mut bytes = ring[at..at + first].to_vec();
        bytes.extend_from_slice(&ring[..len - first]);
        bytes
    };
    let oldest = written
        .saturating_sub(capacity as u64)
        .max(number(AT_START)?)
        .max(flushed.saturating_sub(BEFORE_BYTES));
    left.survivor = Some(Survivor {
        before: run(oldest.min(flushed), flushed),
        start: flushed,
        bytes: run(flushed, written),
    });
    Some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::edge::Disk;
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
            let mut tail = Tail::create(&Disk, &path, CAPACITY, 3, start).unwrap();
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
            let left = Tail::left(&Disk, &path, 3).unwrap();
            prop_assert_eq!(left.durable, start);
            let survivor = left.survivor.unwrap();
            prop_assert_eq!((survivor.start, survivor.bytes), (flushed, expected));
            // In front of the first piece nothing was written: zeros.
            let mut before = vec![0; (start - align_down(start)) as usize];
            before.extend_from_slice(&log[..(flushed - start) as usize]);
            prop_assert!(before.ends_with(&survivor.before));
            prop_assert_eq!(Tail::left(&Disk, &path, 4).unwrap(), Left::default());
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
            let _ = left_in(&bytes, 0, &[0; 16]);
        }
    }

    #[test]
    fn a_file_of_another_boot_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tail");
        let mut tail = Tail::create(&Disk, &path, CAPACITY, 0, 0).unwrap();
        tail.write(0, b"bytes");
        tail.set_written(5);
        tail.set_durable(3);
        drop(tail);
        let mut bytes = std::fs::read(&path).unwrap();
        let boot = Disk.boot_id().unwrap();
        assert!(left_in(&bytes, 0, &boot).unwrap().survivor.is_some());
        bytes[AT_BOOT_ID] ^= 1;
        let left = left_in(&bytes, 0, &boot).unwrap();
        // But what the device had promised it has.
        assert_eq!((left.durable, left.survivor), (3, None));
        bytes[AT_COMPLEMENT] ^= 1;
        assert_eq!(left_in(&bytes, 0, &boot).unwrap().durable, 0);
        let none = Tail::left(&Disk, &dir.path().join("none"), 0).unwrap();
        assert_eq!(none, Left::default());
    }
}
