//! One broker a store: the lock file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Held while a broker uses a store; given back when it is dropped or the
/// process ends. Excludes Apache RocketMQ's broker too, which locks the same file.
#[derive(Debug)]
pub struct StoreLock {
    _file: File,
}

/// Why a store cannot be locked.
#[derive(Debug)]
pub enum StoreLockError {
    /// Another process has it.
    Held {
        /// The store's lock file.
        path: PathBuf,
        /// The process that has it, where the kernel tells.
        pid: i32,
        /// What it is called, where `/proc` tells.
        name: String,
    },
    /// The file system refused.
    Io(PathBuf, io::Error),
}

impl fmt::Display for StoreLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLockError::Held { path, pid, name } => write!(
                f,
                "{}: the store is in use by {name} (pid {pid})",
                path.display()
            ),
            StoreLockError::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for StoreLockError {}

impl StoreLock {
    /// Locks the store in folder `root`, which must exist.
    ///
    /// # Errors
    /// [`StoreLockError`].
    pub fn acquire(root: &Path) -> Result<StoreLock, StoreLockError> {
        let path = root.join("lock");
        let io = |error| StoreLockError::Io(path.clone(), error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        let mut request = whole_file(libc::F_WRLCK);
        // SAFETY: the descriptor is open and `request` is a filled flock.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &mut request) };
        if result != 0 {
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)) {
                return Err(io(error));
            }
            let mut holder = whole_file(libc::F_WRLCK);
            // SAFETY: as above; the kernel overwrites `holder` with the lock in the way.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut holder) };
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            let pid = if holder.l_pid > 0 {
                holder.l_pid
            } else {
                text.trim().parse().unwrap_or(0)
            };
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(
                |_| "another process".to_owned(),
                |name| name.trim().to_owned(),
            );
            return Err(StoreLockError::Held { path, pid, name });
        }
        let write_pid = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "{}", std::process::id())
        };
        write_pid(&mut file).map_err(io)?;
        Ok(StoreLock { _file: file })
    }
}

fn whole_file(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}
