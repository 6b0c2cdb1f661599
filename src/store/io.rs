//! The edge to the device: segment files behind the ring of io_uring.
//!
//! With direct I/O where the file system has it, else through the page cache.
//! glommio's alignment figure for a device may be 512; everything here is
//! aligned to 4096, as sub-block direct writes take a file's exclusive lock.

use std::io;
use std::path::Path;

use bytes::Bytes;
use glommio::io::{BufferedFile, DmaFile, OpenOptions};

use super::BLOCK_BYTES;

/// An open segment file.
pub enum LogFile {
    /// O_DIRECT.
    Direct(DmaFile),
    /// The file system has no O_DIRECT.
    Buffered(BufferedFile),
}

fn text(error: impl std::fmt::Display, path: &Path) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

/// Lets glommio find out whether the device can be polled, once per executor, by
/// a file that has bytes on it. Its probe reads the start of the first file that
/// an executor opens on a device; in a file with nothing written yet that read
/// never gets to the device, succeeds, and has every later one fail.
pub async fn probe_device(path: &Path) {
    if let Ok(file) = DmaFile::open(path).await {
        let _ = file.close().await;
    }
}

impl LogFile {
    /// Opens a segment for writing. With `dsync`, a write completes when the
    /// device has promised its bytes.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub async fn open_write(path: &Path, dsync: bool) -> io::Result<LogFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if dsync {
            options.custom_flags(libc::O_DSYNC);
        }
        LogFile::open(&options, path).await
    }

    /// Opens a segment for reading.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub async fn open_read(path: &Path) -> io::Result<LogFile> {
        LogFile::open(OpenOptions::new().read(true), path).await
    }

    async fn open(options: &OpenOptions, path: &Path) -> io::Result<LogFile> {
        match options.dma_open(path).await {
            Ok(file) => Ok(LogFile::Direct(file)),
            Err(error) => {
                let error: io::Error = error.into();
                if error.raw_os_error() != Some(libc::EINVAL) {
                    return Err(text(error, path));
                }
                let file = options.buffered_open(path).await;
                file.map(LogFile::Buffered).map_err(|e| text(e, path))
            }
        }
    }

    /// Writes `len` bytes (whole blocks) at byte `at` (the start of a block);
    /// `fill` puts them into the buffer. A short write is an error: what the
    /// device took is written again with the next plan.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn write(&self, at: u64, len: usize, fill: impl FnOnce(&mut [u8])) -> io::Result<()> {
        debug_assert!(at % BLOCK_BYTES as u64 == 0 && len % BLOCK_BYTES == 0);
        let written = match self {
            LogFile::Direct(file) => {
                let mut buffer = file.alloc_dma_buffer(len);
                fill(&mut buffer.as_bytes_mut()[..len]);
                buffer.trim_to_size(len);
                file.write_at(buffer, at).await
            }
            LogFile::Buffered(file) => {
                let mut buffer = vec![0; len];
                fill(&mut buffer);
                file.write_at(buffer, at).await
            }
        };
        let written = written.map_err(io::Error::from)?;
        if written != len {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("wrote {written} of {len} bytes at byte {at}"),
            ));
        }
        Ok(())
    }

    /// Reads up to `len` bytes at byte `at`.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn read(&self, at: u64, len: usize) -> io::Result<Bytes> {
        let read = match self {
            LogFile::Direct(file) => file.read_at(at, len).await,
            LogFile::Buffered(file) => file.read_at(at, len).await,
        };
        Ok(Bytes::copy_from_slice(&read.map_err(io::Error::from)?))
    }

    /// Makes the device promise all that was written.
    ///
    /// # Errors
    /// Those of the device; never to be tried again.
    pub async fn sync(&self) -> io::Result<()> {
        let synced = match self {
            LogFile::Direct(file) => file.fdatasync().await,
            LogFile::Buffered(file) => file.fdatasync().await,
        };
        synced.map_err(io::Error::from)
    }

    /// Closes the file.
    pub async fn close(self) {
        let closed = match self {
            LogFile::Direct(file) => file.close().await,
            LogFile::Buffered(file) => file.close().await,
        };
        if let Err(error) = closed {
            tracing::warn!(%error, "closing a segment failed");
        }
    }
}
