//! The shard's loop on io_uring, and its segments.
//!
//! Segments are opened with direct I/O where the file system has it, else through
//! the page cache. glommio's alignment figure for a device may be 512; everything
//! here is aligned to 4096, as sub-block direct writes take a file's exclusive lock.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use glommio::io::{BufferedFile, DmaFile, OpenOptions};

use super::{Disk, Edge, Files, Local, LogFile, LogMode};
use crate::store::BLOCK_BYTES;

/// The loop that the caller's thread runs.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    began: Instant,
}

impl Default for Ring {
    fn default() -> Ring {
        Ring {
            began: Instant::now(),
        }
    }
}

impl Edge for Ring {
    fn files(&self) -> Arc<dyn Files> {
        Arc::new(Disk)
    }

    /// Lets glommio find out whether the device can be polled, once per executor, by
    /// a file that has bytes on it. Its probe reads the start of the first file that
    /// an executor opens on a device; in a file with nothing written yet that read
    /// never gets to the device, succeeds, and has every later one fail.
    fn settle<'a>(&'a self, path: &'a Path) -> Local<'a, ()> {
        Box::pin(async move {
            if let Ok(file) = DmaFile::open(path).await {
                let _ = file.close().await;
            }
        })
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&self, time: Duration) -> Local<'static, ()> {
        Box::pin(async move {
            glommio::timer::sleep(time).await;
        })
    }

    fn spawn(&self, task: Local<'static, ()>) {
        glommio::spawn_local(task).detach();
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) -> Local<'static, ()> {
        Box::pin(async move { glommio::executor().spawn_blocking(work).await })
    }

    fn open_log<'a>(
        &'a self,
        path: &'a Path,
        mode: LogMode,
    ) -> Local<'a, io::Result<Rc<dyn LogFile>>> {
        Box::pin(async move {
            let mut options = OpenOptions::new();
            options.read(true).write(mode != LogMode::Read);
            if mode == LogMode::WriteThrough {
                options.custom_flags(libc::O_DSYNC);
            }
            let file = match options.dma_open(path).await {
                Ok(file) => Segment::Direct(file),
                Err(error) => {
                    let error: io::Error = error.into();
                    if error.raw_os_error() != Some(libc::EINVAL) {
                        return Err(text(error, path));
                    }
                    let file = options.buffered_open(path).await;
                    Segment::Buffered(file.map_err(|error| text(error, path))?)
                }
            };
            Ok(Rc::new(file) as Rc<dyn LogFile>)
        })
    }
}

fn text(error: impl std::fmt::Display, path: &Path) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

/// An open segment; closed when it is dropped.
enum Segment {
    /// O_DIRECT.
    Direct(DmaFile),
    /// The file system has no O_DIRECT.
    Buffered(BufferedFile),
}

impl LogFile for Segment {
    fn write<'a>(
        &'a self,
        at: u64,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Local<'a, io::Result<()>> {
        debug_assert!(at % BLOCK_BYTES as u64 == 0 && len % BLOCK_BYTES == 0);
        let checked = move |written: glommio::Result<usize, ()>| {
            let written = written.map_err(io::Error::from)?;
            if written != len {
                return Err(io::Error::new(
                    io::ErrorKind::WriteZero,
                    format!("wrote {written} of {len} bytes at byte {at}"),
                ));
            }
            Ok(())
        };
        match self {
            Segment::Direct(file) => {
                let mut buffer = file.alloc_dma_buffer(len);
                fill(&mut buffer.as_bytes_mut()[..len]);
                buffer.trim_to_size(len);
                Box::pin(async move { checked(file.write_at(buffer, at).await) })
            }
            Segment::Buffered(file) => {
                let mut buffer = vec![0; len];
                fill(&mut buffer);
                Box::pin(async move { checked(file.write_at(buffer, at).await) })
            }
        }
    }

    fn read(&self, at: u64, len: usize) -> Local<'_, io::Result<Bytes>> {
        Box::pin(async move {
            let read = match self {
                Segment::Direct(file) => file.read_at(at, len).await,
                Segment::Buffered(file) => file.read_at(at, len).await,
            };
            Ok(Bytes::copy_from_slice(&read.map_err(io::Error::from)?))
        })
    }

    fn sync(&self) -> Local<'_, io::Result<()>> {
        Box::pin(async move {
            let synced = match self {
                Segment::Direct(file) => file.fdatasync().await,
                Segment::Buffered(file) => file.fdatasync().await,
            };
            synced.map_err(io::Error::from)
        })
    }
}
