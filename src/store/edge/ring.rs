//! The shard's loop on io_uring, and its segments.
//!
//! Segments are opened with direct I/O where the file system has it, else through
//! the page cache. A device may be content with blocks of 512 bytes; everything here
//! is aligned to 4096, as sub-block direct writes take a file's exclusive lock.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use io_uring::{opcode, types};

use super::block_pool::BlockPool;
use super::blocks_to_write::BlocksToWrite;
use super::{Disk, Edge, Files, Local, LogFile, LogMode};
use crate::reactor::{self, Operation, operate};
use crate::store::BLOCK_BYTES;
use crate::store::blocks::CACHE_BLOCK_BYTES;

/// The loop that the caller's thread runs.
pub struct Ring {
    began: Instant,
    pool: BlockPool,
}

impl Ring {
    /// For the loop that the calling thread runs.
    pub fn new() -> Ring {
        Ring {
            began: Instant::now(),
            pool: BlockPool::new(),
        }
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
        Box::pin(reactor::sleep(time))
    }

    fn spawn(&self, name: &'static str, task: Local<'static, ()>) {
        reactor::spawn(name, task);
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) -> Local<'static, ()> {
        Box::pin(reactor::blocking(work))
    }

    fn open_log<'a>(
        &'a self,
        path: &'a Path,
        mode: LogMode,
    ) -> Local<'a, io::Result<Rc<dyn LogFile>>> {
        Box::pin(async move {
            let segment = self.open_segment(path, mode).await?;
            Ok(Rc::new(segment) as Rc<dyn LogFile>)
        })
    }
}

impl Ring {
    async fn open_segment(&self, path: &Path, mode: LogMode) -> io::Result<Segment> {
        let flags = match mode {
            LogMode::Read => libc::O_RDONLY,
            LogMode::Write => libc::O_RDWR,
            LogMode::WriteThrough => libc::O_RDWR | libc::O_DSYNC,
        };
        let path = Rc::new(CString::new(path.as_os_str().as_bytes())?);
        let file = match open(&path, flags | libc::O_DIRECT).await {
            // The file system has no direct I/O.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(&path, flags).await?,
            other => other?,
        };
        Ok(Segment {
            file: Rc::new(file),
            pool: self.pool.clone(),
        })
    }
}

async fn open(path: &Rc<CString>, flags: i32) -> io::Result<File> {
    let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr())
        .flags(flags | libc::O_CLOEXEC)
        .build();
    // SAFETY: the entry names the path, which is kept.
    let fd = unsafe { operate(entry, path.clone()) }.await.0?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the descriptor was just opened, and has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// An open segment; closed when it is dropped and nothing is under way.
struct Segment {
    file: Rc<File>,
    pool: BlockPool,
}

/// What a write works on.
type Writing = (Box<[libc::iovec]>, Rc<BlocksToWrite>, Rc<File>);

impl Segment {
    /// Writes what is behind the first `done` bytes of blocks that begin at byte `at`.
    fn begin_write(&self, at: u64, blocks: Rc<BlocksToWrite>, done: usize) -> Operation<Writing> {
        let iovecs: Box<[libc::iovec]> = blocks.iovecs_from(done).into();
        let entry = opcode::Writev::new(target(&self.file), iovecs.as_ptr(), iovecs.len() as u32)
            .offset(at + done as u64)
            .build();
        // SAFETY: the entry names the list, which is on the heap, the blocks in it, and the
        // file: all are kept.
        let write = unsafe { operate(entry, (iovecs, blocks, self.file.clone())) };
        // The device works while the turn goes on.
        reactor::submit();
        write
    }
}

/// The descriptor of a file, for an entry.
fn target(file: &File) -> types::Fd {
    types::Fd(file.as_raw_fd())
}

impl LogFile for Segment {
    fn write(&self, at: u64, blocks: BlocksToWrite) -> Local<'_, io::Result<()>> {
        let len = blocks.len();
        debug_assert!(at % BLOCK_BYTES as u64 == 0 && len % BLOCK_BYTES == 0);
        let mut write = self.begin_write(at, Rc::new(blocks), 0);
        Box::pin(async move {
            let mut done = 0;
            loop {
                let (written, (_, blocks, _)) = write.await;
                match written? {
                    0 => {
                        return Err(io::Error::new(
                            io::ErrorKind::WriteZero,
                            format!("wrote {done} of {len} bytes at byte {at}"),
                        ));
                    }
                    written => done += written,
                }
                if done >= len {
                    return Ok(());
                }
                // Why it stopped is what the rest is answered with.
                write = self.begin_write(at, blocks, done);
            }
        })
    }

    fn read(&self, at: u64, len: usize) -> Local<'_, io::Result<Vec<Bytes>>> {
        debug_assert!(at % BLOCK_BYTES as u64 == 0);
        let block = CACHE_BLOCK_BYTES as usize;
        let mut loans = Vec::with_capacity(len.div_ceil(block));
        let mut iovecs = Vec::with_capacity(len.div_ceil(block));
        for begin in (0..len).step_by(block) {
            let mut loan = self.pool.take();
            iovecs.push(libc::iovec {
                iov_base: loan.buffer().as_mut_ptr().cast(),
                iov_len: (len - begin).min(block).next_multiple_of(BLOCK_BYTES),
            });
            loans.push(loan);
        }
        let iovecs: Box<[libc::iovec]> = iovecs.into();
        let entry = opcode::Readv::new(target(&self.file), iovecs.as_ptr(), iovecs.len() as u32)
            .offset(at)
            .build();
        // SAFETY: the entry names the list, which is on the heap, the buffers in it, which are
        // that long, and the file: all are kept.
        let read = unsafe { operate(entry, (iovecs, loans, self.file.clone())) };
        Box::pin(async move {
            let (read, (_, loans, _)) = read.await;
            let read = read?.min(len);
            let begins = (0..read).step_by(block);
            Ok(begins
                .zip(loans)
                .map(|(begin, loan)| loan.into_bytes((read - begin).min(block)))
                .collect())
        })
    }

    fn sync(&self) -> Local<'_, io::Result<()>> {
        let entry = opcode::Fsync::new(target(&self.file))
            .flags(types::FsyncFlags::DATASYNC)
            .build();
        // SAFETY: the entry names the file, which is kept.
        let sync = unsafe { operate(entry, self.file.clone()) };
        reactor::submit();
        Box::pin(async move { sync.await.0.map(|_| ()) })
    }
}
