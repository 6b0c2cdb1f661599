//! The kernel's file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};

use super::{Files, Listed, Mode, Patience, SharedMap, StoreFile};

/// The kernel's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

struct DiskFile {
    file: File,
    path: PathBuf,
}

fn named<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

impl Files for Disk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn StoreFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != Mode::Read);
        options.create(matches!(mode, Mode::Create | Mode::Empty));
        options.truncate(mode == Mode::Empty);
        let file = named(path, options.open(path))?;
        Ok(Box::new(DiskFile {
            file,
            path: path.to_owned(),
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Listed>> {
        let list = || -> io::Result<Vec<Listed>> {
            let entries = std::fs::read_dir(dir)?;
            entries
                .map(|entry| {
                    let entry = entry?;
                    let kind = entry.file_type()?;
                    let is_dir = kind.is_dir() || (kind.is_symlink() && entry.path().is_dir());
                    Ok(Listed {
                        name: entry.file_name(),
                        is_dir,
                    })
                })
                .collect()
        };
        named(dir, list())
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        named(path, std::fs::metadata(path)).map(|meta| meta.len())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        named(dir, std::fs::create_dir_all(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        named(from, std::fs::rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        named(path, std::fs::remove_file(path))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        named(dir, std::fs::remove_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        named(dir, File::open(dir).and_then(|dir| dir.sync_all()))
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<bool> {
        let file = named(path, File::open(path))?;
        // SAFETY: a plain system call on an open descriptor.
        if unsafe { libc::syncfs(file.as_raw_fd()) } == 0 {
            return Ok(true);
        }
        named(path, Err(io::Error::last_os_error()))
    }

    fn map(&self, path: &Path, bytes: usize) -> io::Result<SharedMap> {
        let map = || -> io::Result<MmapMut> {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?;
            // A page of the map that finds no block later would end the process.
            allocate_for_sure(&file, bytes).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("{bytes} bytes cannot be reserved: {error}"),
                )
            })?;
            // SAFETY: the file was just made by us, is locked by the store's lock file
            // against other brokers, and is never cut while it is mapped.
            unsafe { MmapMut::map_mut(&file) }
        };
        let mut map = named(path, map())?;
        let (start, len) = (map.as_mut_ptr(), map.len());
        // SAFETY: a map stays where it is until it is dropped, and only the result has it.
        Ok(unsafe { SharedMap::new(start, len, Arc::new(map)) })
    }

    fn map_existing(&self, path: &Path, bytes: usize) -> io::Result<SharedMap> {
        let map = || -> io::Result<MmapMut> {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            if file.metadata()?.len() < bytes as u64 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "too short to map",
                ));
            }
            allocate_within(&file, bytes as u64)?;
            // SAFETY: the file is locked by the store's lock file against other brokers,
            // is longer than the map, and is never cut while it is mapped.
            unsafe { MmapOptions::new().len(bytes).map_mut(&file) }
        };
        let mut map = named(path, map())?;
        let (start, len) = (map.as_mut_ptr(), map.len());
        // SAFETY: a map stays where it is until it is dropped, and only the result has it.
        Ok(unsafe { SharedMap::new(start, len, Arc::new(map)) })
    }

    fn boot_id(&self) -> io::Result<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let mut id = [0; 16];
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
        Ok(id)
    }
}

impl DiskFile {
    fn read_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let iov = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let (fd, at_off) = (self.file.as_raw_fd(), at as libc::off_t);
        // SAFETY: one iovec over a buffer that is borrowed for the whole call.
        let n = unsafe { libc::preadv2(fd, &iov, 1, at_off, libc::RWF_NOWAIT) };
        match usize::try_from(n) {
            Ok(n) => Ok(n),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
                    // A file system without the flag: its reads are taken as they come.
                    return self.read_waiting(buffer, at);
                }
                Err(error)
            }
        }
    }

    fn read_waiting(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn is_tmpfs(&self) -> io::Result<bool> {
        let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the descriptor is open and `stat` has room for the result.
        if unsafe { libc::fstatfs(self.file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: filled by the successful call.
        Ok(unsafe { stat.assume_init() }.f_type == libc::TMPFS_MAGIC)
    }
}

impl StoreFile for DiskFile {
    fn len(&self) -> io::Result<u64> {
        named(&self.path, self.file.metadata()).map(|meta| meta.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64, patience: Patience) -> io::Result<usize> {
        let read = match patience {
            Patience::Wait => self.read_waiting(buffer, at),
            Patience::Cached => self.read_cached(buffer, at),
        };
        named(&self.path, read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        named(&self.path, self.file.write_all_at(bytes, at))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        named(&self.path, self.file.set_len(bytes))
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let reserve = || {
            if self.is_tmpfs()? {
                // Reserved blocks of a tmpfs are memory: let them come as they are written.
                return self.file.set_len(bytes);
            }
            allocate(&self.file, bytes)
        };
        named(&self.path, reserve())
    }

    fn clear(&self, from: u64, bytes: u64) -> io::Result<()> {
        if from >= bytes {
            // Nothing to clear; a change of size to what it is waits all the same.
            return self.set_len(bytes);
        }
        let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let (fd, len) = (self.file.as_raw_fd(), (bytes - from) as libc::off_t);
        // SAFETY: a plain system call on an open descriptor.
        if unsafe { libc::fallocate(fd, mode, from as libc::off_t, len) } == 0 {
            return Ok(());
        }
        // Where ranges cannot be zeroed (tmpfs, some network file systems), cutting
        // the file and growing it again does the same.
        self.set_len(from)?;
        self.set_len(bytes)
    }

    fn unwritten(&self, from: u64) -> io::Result<u64> {
        let metadata = named(&self.path, self.file.metadata())?;
        let size = metadata.len();
        if metadata.blocks() * 512 < size {
            // They are not reserved: to write to them takes space.
            return Ok(size);
        }
        let (fd, from) = (self.file.as_raw_fd(), from.min(size) as libc::off_t);
        // SAFETY: a plain system call on an open descriptor.
        let at = unsafe { libc::lseek(fd, from, libc::SEEK_HOLE) };
        // Where holes are not told of, there is none in front of the end.
        Ok(u64::try_from(at).map_or(size, |at| at.min(size)))
    }

    fn sync(&self) -> io::Result<()> {
        named(&self.path, self.file.sync_all())
    }
}

/// Reserves the blocks of a new file, by writing to them where the file system cannot.
fn allocate_for_sure(file: &File, bytes: usize) -> io::Result<()> {
    const PIECE: usize = 1024 * 1024;
    if reserve_blocks(file, bytes as u64)? {
        return Ok(());
    }
    let zeros = vec![0; PIECE.min(bytes)];
    for at in (0..bytes).step_by(PIECE) {
        file.write_all_at(&zeros[..PIECE.min(bytes - at)], at as u64)?;
    }
    Ok(())
}

/// Sets a file's size and reserves its blocks where the file system can.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if reserve_blocks(file, bytes)? {
        return Ok(());
    }
    file.set_len(bytes)
}

/// Sets a file's size and reserves its blocks; `false` where the file system cannot.
fn reserve_blocks(file: &File, bytes: u64) -> io::Result<bool> {
    // SAFETY: a plain system call on a file descriptor that is open.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(false),
        _ => Err(error),
    }
}

/// Reserves the blocks of a file's first bytes where the file system can; the file
/// keeps its size and content.
fn allocate_within(file: &File, bytes: u64) -> io::Result<()> {
    let (fd, mode) = (file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE);
    // SAFETY: a plain system call on a file descriptor that is open.
    if unsafe { libc::fallocate(fd, mode, 0, bytes as libc::off_t) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
            // What is written has its blocks.
            let mut piece = vec![0; 1024 * 1024];
            let mut at = 0;
            while at < bytes {
                let len = (bytes - at).min(piece.len() as u64) as usize;
                file.read_exact_at(&mut piece[..len], at)?;
                file.write_all_at(&piece[..len], at)?;
                at += len as u64;
            }
            Ok(())
        }
        _ => Err(error),
    }
}
