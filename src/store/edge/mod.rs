//! The store's edge: all that it asks of the world. What lies behind is the
//! kernel, or, in tests, a simulated machine that loses power.
//!
//! [`Files`] may wait for the disk: it is called before a shard serves and on
//! its helper thread. [`Edge`] never does: it is what the shard's loop awaits.

mod block_pool;
mod blocks_to_write;
mod disk;
mod ring;

use std::any::Any;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;

pub use blocks_to_write::BlocksToWrite;
pub use disk::Disk;
pub use ring::Ring;

/// How a file is opened; every mode can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads only.
    Read,
    /// Writes; the file must be there.
    Write,
    /// Writes; made where it is missing.
    Create,
    /// Writes; made where it is missing, emptied where it is not.
    Empty,
}

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It may.
    Wait,
    /// `WouldBlock` when the bytes are not in memory.
    Cached,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: OsString,
    /// Whether it is a folder.
    pub is_dir: bool,
}

/// A file system. Errors name the path.
pub trait Files: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of the file system.
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn StoreFile>>;

    /// The entries of a folder, in no order.
    ///
    /// # Errors
    /// Those of the file system.
    fn list(&self, dir: &Path) -> io::Result<Vec<Listed>>;

    /// Size of a file, in bytes.
    ///
    /// # Errors
    /// Those of the file system.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Makes a folder and those above it.
    ///
    /// # Errors
    /// Those of the file system.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Gives a file another name, which may be another file's.
    ///
    /// # Errors
    /// Those of the file system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder with all in it.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the entries of a folder durable.
    ///
    /// # Errors
    /// Those of the file system.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes everything durable that was written to the file system of `path`, at once;
    /// `false` where that cannot be done.
    ///
    /// # Errors
    /// Those of the device; never to be tried again.
    fn sync_file_system(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Makes or takes over the file at `path`, of `bytes` bytes, and maps it
    /// shared: what is written to the map outlives the process.
    ///
    /// # Errors
    /// Those of the file system.
    fn map(&self, path: &Path, bytes: usize) -> io::Result<SharedMap>;

    /// Maps the first `bytes` bytes of a file that is there shared, and takes blocks
    /// for them, so that writing to the map cannot fail for want of space. Reads of
    /// the file see what is written to the map, and [`StoreFile::sync`] makes it
    /// durable.
    ///
    /// # Errors
    /// Those of the file system; a file that is shorter.
    fn map_existing(&self, path: &Path, bytes: usize) -> io::Result<SharedMap>;

    /// The id of this boot of the machine.
    ///
    /// # Errors
    /// Those of reading it.
    fn boot_id(&self) -> io::Result<[u8; 16]>;
}

impl dyn Files + '_ {
    /// The whole content of a file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, Mode::Read)?;
        let mut bytes = vec![0; file.len()? as usize];
        let read = file.read_at(&mut bytes, 0, Patience::Wait)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// The whole content of a file; `None` where there is no file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read_if_there(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match self.read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Whether there is a file or folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.len(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Passes over that something is not there.
///
/// # Errors
/// All others.
pub fn if_there(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// An open file of the store. Errors name the path.
pub trait StoreFile: Send + Sync {
    /// Size, in bytes.
    ///
    /// # Errors
    /// Those of the file system.
    fn len(&self) -> io::Result<u64>;

    /// Reads to the end of the buffer or of the file, and returns how much.
    ///
    /// # Errors
    /// Those of the device; `WouldBlock` as [`Patience`] says.
    fn read_at(&self, buffer: &mut [u8], at: u64, patience: Patience) -> io::Result<usize>;

    /// Writes all bytes.
    ///
    /// # Errors
    /// Those of the file system; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// Those of the file system.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Sets the size and reserves the blocks where the file system can.
    ///
    /// # Errors
    /// Those of the file system.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Sets the bytes from `from` to the end, `bytes`, to zero, without giving the
    /// blocks back. Waits for direct writes that a killed process may have left in
    /// flight (the kernel does so before it changes a file's extents), so that none
    /// of them can land on what is written later.
    ///
    /// # Errors
    /// Those of the file system.
    fn clear(&self, from: u64, bytes: u64) -> io::Result<()>;

    /// The first byte at or behind `from` whose block is reserved and was never written; the
    /// file's size where there is none, or the file system does not tell.
    ///
    /// # Errors
    /// Those of the file system.
    fn unwritten(&self, from: u64) -> io::Result<u64>;

    /// Makes the device promise the content and the size.
    ///
    /// # Errors
    /// Those of the device; never to be tried again.
    fn sync(&self) -> io::Result<()>;
}

/// Bytes that outlive the process: a mapped file.
pub struct SharedMap {
    start: *mut u8,
    len: usize,
    /// Keeps the bytes where they are.
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the bytes belong to the map alone, wherever it goes, and so does their keeper.
unsafe impl Send for SharedMap {}

impl SharedMap {
    /// # Safety
    /// The `len` bytes at `start` stay where they are, and are reached by nobody
    /// else, as long as `keep` lives.
    pub(in crate::store) unsafe fn new(
        start: *mut u8,
        len: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> SharedMap {
        SharedMap { start, len, keep }
    }

    /// What keeps the bytes where they are.
    fn keeper(&self) -> Arc<dyn Any + Send + Sync> {
        self.keep.clone()
    }
}

impl Deref for SharedMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as promised to `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for SharedMap {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as promised to `new`; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// Something to await on the shard's thread.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a store's tasks ask of the loop they run on.
pub trait Edge {
    /// The file system behind it.
    fn files(&self) -> Arc<dyn Files>;

    /// Time since some moment in the past.
    fn now(&self) -> Duration;

    /// Resolves after a time.
    fn sleep(&self, time: Duration) -> Local<'static, ()>;

    /// Runs a task to its end; lines about it say `name`. None is ever cancelled.
    fn spawn(&self, name: &'static str, task: Local<'static, ()>);

    /// Runs on the helper thread what may wait for the disk.
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) -> Local<'static, ()>;

    /// Opens a segment. With [`LogMode::WriteThrough`] a write completes when the
    /// device has promised its bytes.
    fn open_log<'a>(
        &'a self,
        path: &'a Path,
        mode: LogMode,
    ) -> Local<'a, io::Result<Rc<dyn LogFile>>>;
}

impl dyn Edge + '_ {
    /// Runs on the helper thread what may wait for the disk, and returns what it came to.
    pub async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        let (done, result) = mpsc::sync_channel(1);
        self.run_blocking(Box::new(move || {
            let _ = done.send(work());
        }))
        .await;
        result.recv().expect("the work was done")
    }
}

/// How a segment is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Reads.
    Read,
    /// Writes; [`LogFile::sync`] makes them durable.
    Write,
    /// Writes that are durable when they complete (O_DSYNC).
    WriteThrough,
}

/// An open segment.
pub trait LogFile {
    /// Writes whole blocks at byte `at`, the start of a block. Those of a map are read
    /// from it until the write is done. A short write is an error.
    fn write(&self, at: u64, blocks: BlocksToWrite) -> Local<'_, io::Result<()>>;

    /// Reads up to `len` bytes at byte `at`, the start of a block: whole cached blocks, and
    /// what is left.
    fn read(&self, at: u64, len: usize) -> Local<'_, io::Result<Vec<Bytes>>>;

    /// Makes the device promise all that was written. Never to be tried again.
    fn sync(&self) -> Local<'_, io::Result<()>>;
}
