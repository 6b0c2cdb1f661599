//! Whether the store's folder can be written, and how its file system does direct I/O.

use super::Missing;
use crate::config::limits::BLOCK_BYTES;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// How a file system does direct I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Addresses, positions and lengths must be multiples of so many bytes: a power of two, at
    /// most the 4096 that RingMQ aligns to.
    Aligned(u32),
    /// Not at all, for this reason. Files are written through the page cache.
    Unsupported(String),
}

/// Makes the folder where it is missing, and writes there once.
pub(super) fn prepare(path: &Path) -> Result<DirectIo, Missing> {
    let failed = |doing| {
        move |error| Missing::Store {
            path: path.to_owned(),
            doing,
            error,
        }
    };
    fs::create_dir_all(path).map_err(failed("create"))?;
    let name = path.join(format!(".probe-{}", std::process::id()));
    let file = unnamed(&name, 0).map_err(failed("write to"))?;
    file.write_all_at(b"ringmq", 0)
        .map_err(failed("write to"))?;
    Ok(direct_io(path))
}

/// How the file system of an existing folder does direct I/O: asked, and tried with one block
/// in a file without a name.
pub fn direct_io(folder: &Path) -> DirectIo {
    // Newer kernels accept O_DIRECT here, and it means nothing.
    if let Some(name @ ("tmpfs" | "ramfs")) = file_system(folder) {
        return DirectIo::Unsupported(format!("{name} keeps files in memory, not on a device"));
    }
    let name = folder.join(format!(".probe-direct-{}", std::process::id()));
    let tried = unnamed(&name, libc::O_DIRECT).and_then(|file| {
        let told = told_alignment(&file);
        write_block(&file)?;
        Ok(told)
    });
    decide(tried, file_system(folder))
}

/// The outcome: from the alignment that the kernel tells, if it does, or why there is none.
fn decide(tried: io::Result<Option<u32>>, file_system: Option<&str>) -> DirectIo {
    let file_system = file_system.unwrap_or("this file system");
    match tried {
        Ok(Some(bytes)) if u64::from(bytes) <= BLOCK_BYTES && bytes.is_power_of_two() => {
            DirectIo::Aligned(bytes)
        }
        Ok(Some(bytes)) => DirectIo::Unsupported(format!(
            "{file_system} asks for direct I/O in blocks of {bytes} bytes, above {BLOCK_BYTES}"
        )),
        // A kernel before 6.1 does not tell; one block did go through.
        Ok(None) => DirectIo::Aligned(BLOCK_BYTES as u32),
        Err(error) => DirectIo::Unsupported(format!("{file_system} has no direct I/O ({error})")),
    }
}

/// A new file that is gone when it is closed. `O_TMPFILE` would do, but not everywhere.
fn unnamed(path: &Path, flags: i32) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path);
    // Some file systems refuse the flags after they have made the file.
    match fs::remove_file(path) {
        Err(error) if file.is_ok() => Err(error),
        _ => file,
    }
}

#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES as usize]);

const _: () = assert!(align_of::<Block>() == BLOCK_BYTES as usize);

fn write_block(file: &File) -> io::Result<()> {
    let block = Box::new(Block([0; BLOCK_BYTES as usize]));
    file.write_all_at(&block.0, 0)
}

/// What `statx` says about direct I/O on a file; `None` where the kernel or the file system
/// says nothing.
fn told_alignment(file: &File) -> Option<u32> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty string ended by zero, `found` a valid place for the result.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &mut found,
        )
    };
    if result != 0 || found.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    // Zero on both means "not supported"; the write that follows will tell.
    let bytes = found.stx_dio_mem_align.max(found.stx_dio_offset_align);
    (bytes > 0).then_some(bytes)
}

/// What `statfs` says that the file system of a folder is, and the number that it is told from
/// others by.
///
/// # Errors
/// Those of the system call.
pub(super) fn file_system_magic(folder: &Path) -> io::Result<(u32, u64)> {
    let found = statfs(folder)?;
    // SAFETY: the structure is two numbers, which libc keeps private.
    let id: [u32; 2] = unsafe { std::mem::transmute(found.f_fsid) };
    Ok((
        found.f_type as u32,
        u64::from(id[1]) << 32 | u64::from(id[0]),
    ))
}

/// Bytes of a folder's file system that this user may still take.
///
/// # Errors
/// Those of the system call.
pub(super) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = statfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_bsize as u64))
}

fn statfs(folder: &Path) -> io::Result<libc::statfs> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in zero, and `found` is a valid place for the result.
    match unsafe { libc::statfs(path.as_ptr(), &mut found) } {
        0 => Ok(found),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The name of the file system that a folder is on, if it is one of the usual ones.
fn file_system(folder: &Path) -> Option<&'static str> {
    Some(match statfs(folder).ok()?.f_type as u32 {
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlayfs",
        0x0000_ef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x0000_6969 => "nfs",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_word_is_taken_where_it_fits_our_blocks() {
        assert_eq!(decide(Ok(Some(512)), None), DirectIo::Aligned(512));
        assert_eq!(decide(Ok(Some(4096)), None), DirectIo::Aligned(4096));
        assert_eq!(decide(Ok(None), Some("ext4")), DirectIo::Aligned(4096));
        assert_eq!(
            decide(Ok(Some(16_384)), Some("xfs")),
            DirectIo::Unsupported(
                "xfs asks for direct I/O in blocks of 16384 bytes, above 4096".into()
            )
        );
    }

    #[test]
    fn a_file_system_without_direct_io_is_named() {
        let refused = io::Error::from_raw_os_error(libc::EINVAL);
        let DirectIo::Unsupported(reason) = decide(Err(refused), Some("9p")) else {
            panic!("supported");
        };
        assert!(reason.starts_with("9p has no direct I/O ("), "{reason}");
    }

    #[test]
    fn the_folder_is_made_and_left_empty() {
        let home = tempfile::tempdir().expect("a folder");
        let store = home.path().join("a/b");
        let first = prepare(&store).expect("writable");
        assert_eq!(prepare(&store).expect("writable"), first);
        assert_eq!(fs::read_dir(&store).expect("there").count(), 0);
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(matches!(
            prepare(file.path()),
            Err(Missing::Store {
                doing: "create",
                ..
            })
        ));
    }

    #[test]
    fn memory_is_no_device() {
        let shm = Path::new("/dev/shm");
        if file_system(shm) == Some("tmpfs") {
            assert!(matches!(direct_io(shm), DirectIo::Unsupported(_)));
        }
    }
}
