//! The shard's loop on io_uring, and its segments.
//!
//! Segments are opened with direct I/O where the file system has it, else through
//! the page cache. A device may be content with blocks of 512 bytes; everything here
//! is aligned to 4096, as sub-block direct writes take a file's exclusive lock.

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use io_uring::{opcode, types};

use super::block_pool::{BlockPool, Loan};
use super::blocks_to_write::BlocksToWrite;
use super::file_ring::{FileRing, target};
use super::{Disk, Edge, Files, Local, LogFile, LogMode};
use crate::store::BLOCK_BYTES;

/// The loop that the caller's thread runs.
pub struct Ring {
    began: Instant,
    /// Made with the first segment, on the thread of the loop.
    file_ring: OnceCell<Rc<FileRing>>,
    pool: BlockPool,
}

impl Default for Ring {
    fn default() -> Ring {
        Ring {
            began: Instant::now(),
            file_ring: OnceCell::new(),
            pool: BlockPool::default(),
        }
    }
}

impl Ring {
    fn file_ring(&self) -> io::Result<Rc<FileRing>> {
        if let Some(ring) = self.file_ring.get() {
            return Ok(ring.clone());
        }
        let ring = FileRing::new()?;
        Ok(self.file_ring.get_or_init(|| ring).clone())
    }
}

impl Edge for Ring {
    fn files(&self) -> Arc<dyn Files> {
        Arc::new(Disk)
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
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            let ring = self.file_ring().map_err(named)?;
            let owned = path.to_owned();
            let open = move || open_segment(&owned, mode);
            let file = (self as &dyn Edge).blocking(open).await.map_err(named)?;
            Ok(Rc::new(Segment {
                file: Rc::new(file),
                ring,
                pool: self.pool.clone(),
            }) as Rc<dyn LogFile>)
        })
    }
}

fn open_segment(path: &Path, mode: LogMode) -> io::Result<File> {
    let through = match mode {
        LogMode::WriteThrough => libc::O_DSYNC,
        LogMode::Read | LogMode::Write => 0,
    };
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != LogMode::Read);
        options.custom_flags(through | flags).open(path)
    };
    match open(libc::O_DIRECT) {
        // The file system has none.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0),
        other => other,
    }
}

/// An open segment; closed when it is dropped and nothing is under way.
struct Segment {
    file: Rc<File>,
    ring: Rc<FileRing>,
    pool: BlockPool,
}

impl LogFile for Segment {
    fn write(&self, at: u64, blocks: BlocksToWrite) -> Local<'_, io::Result<()>> {
        let len = blocks.len();
        debug_assert!(at % BLOCK_BYTES as u64 == 0 && len % BLOCK_BYTES == 0);
        let iovecs: Box<[libc::iovec]> = blocks
            .iovecs()
            .into_iter()
            .filter(|run| run.iov_len > 0)
            .collect();
        let entry = opcode::Writev::new(target(&*self.file), iovecs.as_ptr(), iovecs.len() as u32)
            .offset(at)
            .build();
        // SAFETY: the entry names the list, which is on the heap, the blocks in it, and the
        // file: all are kept.
        let write = unsafe { self.ring.run(entry, (iovecs, blocks, self.file.clone())) };
        Box::pin(async move {
            let written = write?.await.0?;
            if written != len {
                return Err(io::Error::new(
                    io::ErrorKind::WriteZero,
                    format!("wrote {written} of {len} bytes at byte {at}"),
                ));
            }
            Ok(())
        })
    }

    fn read(&self, at: u64, len: usize) -> Local<'_, io::Result<Bytes>> {
        debug_assert!(at % BLOCK_BYTES as u64 == 0);
        let whole = len.next_multiple_of(BLOCK_BYTES);
        let mut loan: Box<Loan> = Box::new(self.pool.take(whole));
        let entry = opcode::Read::new(
            target(&*self.file),
            loan.buffer().as_mut_ptr(),
            whole as u32,
        )
        .offset(at)
        .build();
        // SAFETY: the entry names the buffer, which is that long, and the file: both are kept.
        let read = unsafe { self.ring.run(entry, (loan, self.file.clone())) };
        Box::pin(async move {
            let (read, (loan, _)) = read?.await;
            Ok(loan.into_bytes(read?.min(len)))
        })
    }

    fn sync(&self) -> Local<'_, io::Result<()>> {
        let entry = opcode::Fsync::new(target(&*self.file))
            .flags(types::FsyncFlags::DATASYNC)
            .build();
        // SAFETY: the entry names the file, which is kept.
        let sync = unsafe { self.ring.run(entry, self.file.clone()) };
        Box::pin(async move { sync?.await.0.map(|_| ()) })
    }
}
