//! The file system that the stores are on.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that this user may still write in the file system of `folder`; `None` where it does not
/// say.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: zero is a valid `statvfs`.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in NUL and `stat` has room for the result.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return None;
    }
    Some(stat.f_bavail * stat.f_frsize)
}

/// Its kind, e.g. `ext4`; empty where it is not known.
pub fn file_system(folder: &Path) -> String {
    let Ok(folder) = fs::canonicalize(folder) else {
        return String::new();
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    kind(&mounts, &folder).unwrap_or_default()
}

/// The kind of the mount that is nearest above `folder`; of two at one place the later one counts.
fn kind(mounts: &str, folder: &Path) -> Option<String> {
    let mut nearest: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut parts = line.split(' ').skip(1);
        let (Some(place), Some(kind)) = (parts.next(), parts.next()) else {
            continue;
        };
        let place = place.replace("\\040", " ");
        let is_nearer = nearest.is_none_or(|(length, _)| place.len() >= length);
        if folder.starts_with(&place) && is_nearer {
            nearest = Some((place.len(), kind));
        }
    }
    nearest.map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "overlay / overlay rw 0 0\n/dev/a /data ext4 rw 0 0\n\
                      /dev/b /data/in\\040side xfs rw 0 0\ntmpfs /data tmpfs rw 0 0\n";
        for (folder, name) in [
            ("/home", "overlay"),
            ("/data", "tmpfs"),
            ("/database", "overlay"),
            ("/data/in side/store", "xfs"),
        ] {
            assert_eq!(
                kind(mounts, Path::new(folder)).as_deref(),
                Some(name),
                "{folder}"
            );
        }
        assert_eq!(kind("", Path::new("/")), None);
    }

    #[test]
    fn this_machine_says_what_is_free() {
        assert!(free_bytes(Path::new("/tmp")).is_some_and(|bytes| bytes > 0));
        assert!(!file_system(Path::new("/")).is_empty());
        assert_eq!(free_bytes(Path::new("/nowhere/at-all")), None);
    }
}
