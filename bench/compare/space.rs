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

/// What is to be said of stores in memory; `None` where they are not.
///
/// # Errors
/// They are, and nobody asked for that.
pub fn in_memory(
    file_system: &str,
    folder: &Path,
    asked_for: bool,
) -> Result<Option<String>, String> {
    match file_system {
        "tmpfs" | "ramfs" if asked_for => Ok(Some(format!(
            "The stores were in memory ({file_system}): figures of SYNC_FLUSH say nothing of a device."
        ))),
        "tmpfs" | "ramfs" => Err(format!(
            "{} is in memory ({file_system}), where SYNC_FLUSH measures no device: choose a folder on a disk \
             with --dir, or name this one with it",
            fs::canonicalize(folder)
                .unwrap_or_else(|_| folder.to_owned())
                .display()
        )),
        _ => Ok(None),
    }
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
    fn stores_in_memory_must_be_asked_for() {
        let of = |kind, asked| in_memory(kind, Path::new("/"), asked);
        assert_eq!(of("ext4", false), Ok(None));
        let refused = of("tmpfs", false).expect_err("in memory");
        assert!(refused.contains("tmpfs") && refused.contains("--dir"));
        let note = of("tmpfs", true).expect("asked for").expect("a note");
        assert!(note.contains("in memory (tmpfs)"), "{note}");
    }

    #[test]
    fn this_machine_says_what_is_free() {
        assert!(free_bytes(Path::new("/tmp")).is_some_and(|bytes| bytes > 0));
        assert!(!file_system(Path::new("/")).is_empty());
        assert_eq!(free_bytes(Path::new("/nowhere/at-all")), None);
    }
}
