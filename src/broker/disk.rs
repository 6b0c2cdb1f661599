//! Space on the store's file system.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::control::runtime_info::Disk;

/// Size and free space of the file system that `path` is in; `None` where the
/// kernel does not tell.
pub fn space(path: &Path) -> Option<Disk> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: zero is a valid `statvfs`.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in NUL and `stat` has room for the result.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return None;
    }
    Some(Disk {
        total: stat.f_blocks * stat.f_frsize,
        free: stat.f_bavail * stat.f_frsize,
    })
}
