//! How the store's device keeps a write: what a promise costs in each of the two ways.
//!
//! Measured on blocks that were written before, as those are that the log is written to: its
//! segments are filled with zeros ahead of it. To blocks that are reserved only, the two ways
//! may compare otherwise, as the file system has to promise along what it notes of them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use super::io::noise;

/// Bytes of one write: what a small message costs.
const WRITE_BYTES: usize = 4096;

/// Writes measured in each way, in turn: what else the device does meanwhile slows both.
const WRITES: usize = 32;

/// Median time until the device has promised a small write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushCost {
    /// By a write that completes when its bytes are kept (O_DSYNC; FUA where the
    /// device has it).
    pub write_through: Duration,
    /// By a write and a flush of the device's cache (fdatasync).
    pub write_and_flush: Duration,
}

impl FlushCost {
    /// Whether a flush of its own is the better way: by a third. It takes the loop one more
    /// round and a worker thread of the kernel's: where both ways take the same time, 1,024
    /// requests in flight are answered 480,000 times a second with it, and 700,000 times
    /// without.
    pub fn prefers_flush(&self) -> bool {
        self.write_and_flush * 3 < self.write_through * 2
    }
}

/// Measures on a file in `dir`, which is removed again. Takes some milliseconds on a
/// device that is fit for SYNC_FLUSH.
///
/// # Errors
/// Those of the file system.
pub fn flush_cost(dir: &Path) -> io::Result<FlushCost> {
    let path = dir.join("flush-probe.tmp");
    let measured = measure(&path, true).or_else(|error| match error.raw_os_error() {
        // The file system has no direct I/O.
        Some(libc::EINVAL) => measure(&path, false),
        _ => Err(error),
    });
    let _ = std::fs::remove_file(&path);
    measured
}

fn measure(path: &Path, direct: bool) -> io::Result<FlushCost> {
    let buffer = noise(WRITE_BYTES)?;
    let direct = if direct { libc::O_DIRECT } else { 0 };
    let flushed = filled(path, direct)?;
    let through = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DSYNC | direct)
        .open(path)?;
    let time = |file: &File, n: usize, flush: bool| -> io::Result<Duration> {
        let began = Instant::now();
        file.write_all_at(&buffer, (n * WRITE_BYTES) as u64)?;
        if flush {
            file.sync_data()?;
        }
        Ok(began.elapsed())
    };
    let (mut write_through, mut write_and_flush) = (Vec::new(), Vec::new());
    for n in 0..WRITES {
        write_through.push(time(&through, n, false)?);
        write_and_flush.push(time(&flushed, n, true)?);
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok(FlushCost {
        write_through: median(write_through),
        write_and_flush: median(write_and_flush),
    })
}

/// A new file full of zeros that the device has, as a segment is in front of the log.
fn filled(path: &Path, flags: i32) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(flags)
        .open(path)?;
    // A mapping begins at a page, as direct I/O wants it.
    let zeros = MmapMut::map_anon(WRITES * WRITE_BYTES)?;
    file.write_all_at(&zeros, 0)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn both_ways_are_measured_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let cost = flush_cost(dir.path()).expect("a device");
        assert!(cost.write_through > Duration::ZERO && cost.write_and_flush > Duration::ZERO);
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
        assert!(flush_cost(&dir.path().join("none")).is_err());
    }

    #[test]
    fn the_blocks_that_are_measured_were_written_before() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = filled(&dir.path().join("filled"), 0).expect("written");
        // What is reserved only, and not yet written, is a hole to whoever looks for one.
        // SAFETY: a plain system call on an open descriptor.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
        assert_eq!(hole, (WRITES * WRITE_BYTES) as i64);
    }

    #[test]
    fn a_flush_of_its_own_must_be_better_by_a_third() {
        let cost = |through, flush| FlushCost {
            write_through: Duration::from_micros(through),
            write_and_flush: Duration::from_micros(flush),
        };
        assert!(!cost(100, 67).prefers_flush());
        assert!(cost(100, 66).prefers_flush());
    }
}
