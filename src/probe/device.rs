//! What tells the device and the file system of a folder from others, also after a restart.

use super::store::file_system_magic;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file system of a folder and the block device below it.
///
/// Numbers and names of devices may change with every start of the machine; the rest does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Device numbers of the file system, `major:minor`.
    pub numbers: String,
    /// Name of the whole block device, such as `nvme0n1`; `None` where the file system tells of
    /// none (overlayfs, btrfs, network file systems).
    pub name: Option<String>,
    /// What `statfs` says that the file system is, a hexadecimal number.
    pub file_system: String,
    /// What `statfs` tells file systems apart by, a hexadecimal number; 0 where it does not.
    pub file_system_id: String,
    /// The file system's UUID, where the kernel or udev tells.
    pub uuid: Option<String>,
    /// Model of the device, where it has one.
    pub model: Option<String>,
    /// Serial number of the device, where it has one.
    pub serial: Option<String>,
    /// Size of the device in bytes.
    pub bytes: Option<u64>,
}

impl DeviceIdentity {
    /// Looks at the file system that an existing folder is on.
    ///
    /// # Errors
    /// Those of looking at the folder.
    pub fn of(folder: &Path) -> io::Result<DeviceIdentity> {
        let dir = File::open(folder)?;
        let number = dir.metadata()?.dev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        let (magic, id) = file_system_magic(folder)?;
        let disk = disk_of(Path::new("/sys/dev/block"), major, minor);
        let told = |files: &[&str]| {
            let disk = disk.as_ref()?;
            files.iter().find_map(|file| line(&disk.join(file)))
        };
        let sectors = told(&["size"]).and_then(|text| text.parse::<u64>().ok());
        Ok(DeviceIdentity {
            numbers: format!("{major}:{minor}"),
            name: disk
                .as_ref()
                .and_then(|disk| disk.file_name())
                .map(|name| name.to_string_lossy().into_owned()),
            file_system: format!("{magic:x}"),
            file_system_id: format!("{id:x}"),
            uuid: kernel_uuid(&dir).or_else(|| udev_uuid(number)),
            model: told(&["device/model"]),
            serial: told(&["device/serial", "serial", "device/wwid", "wwid", "dm/uuid"]),
            bytes: sectors.map(|sectors| sectors * 512),
        })
    }

    /// What this one, found earlier, has other than `now`; `None` where it is the same.
    pub fn difference(&self, now: &DeviceIdentity) -> Option<String> {
        let differ = |what: &str, then: &str, now: &str| {
            (then != now).then(|| format!("{what} {then} then, {now} now"))
        };
        let differ_if_known = |what: &str, then: &Option<String>, now: &Option<String>| {
            differ(what, then.as_deref()?, now.as_deref()?)
        };
        let file_system = match (&self.uuid, &now.uuid) {
            (Some(then), Some(now)) => differ("file system UUID", then, now),
            _ => differ("file system id", &self.file_system_id, &now.file_system_id)
                .or_else(|| differ("device numbers", &self.numbers, &now.numbers)),
        };
        let size = |bytes: Option<u64>| bytes.map(|bytes| bytes.to_string());
        differ("file system type", &self.file_system, &now.file_system)
            .or(file_system)
            .or_else(|| differ_if_known("model", &self.model, &now.model))
            .or_else(|| differ_if_known("serial number", &self.serial, &now.serial))
            .or_else(|| differ_if_known("bytes of the device", &size(self.bytes), &size(now.bytes)))
    }
}

/// The folder below `/sys` of the whole device that has these numbers, or has the partition
/// that has them.
fn disk_of(numbers: &Path, major: u32, minor: u32) -> Option<PathBuf> {
    let found = fs::canonicalize(numbers.join(format!("{major}:{minor}"))).ok()?;
    if found.join("partition").exists() {
        return found.parent().map(Path::to_owned);
    }
    Some(found)
}

/// The first line of a file, if there is something in it.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The UUID as the kernel tells it, since Linux 6.9.
fn kernel_uuid(dir: &File) -> Option<String> {
    /// `_IOR(0x15, 0, struct fsuuid2)`.
    const FS_IOC_GETFSUUID: u32 = 0x8011_1500;
    /// `struct fsuuid2`.
    #[repr(C)]
    #[derive(Default)]
    struct Uuid {
        len: u8,
        bytes: [u8; 16],
    }
    let mut uuid = Uuid::default();
    // SAFETY: `uuid` has the size of the structure that the kernel fills.
    let result = unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_GETFSUUID as _, &mut uuid) };
    let known = result == 0 && uuid.len == 16 && uuid.bytes.iter().any(|&byte| byte != 0);
    known.then(|| {
        let hex: String = uuid.bytes.iter().map(|b| format!("{b:02x}")).collect();
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        parts.join("-")
    })
}

/// The UUID under which udev lists the device.
fn udev_uuid(number: u64) -> Option<String> {
    let entries = fs::read_dir("/dev/disk/by-uuid").ok()?;
    entries.flatten().find_map(|entry| {
        let device = fs::metadata(entry.path()).ok()?;
        let name = entry.file_name();
        (device.rdev() == number)
            .then(|| AsRef::<OsStr>::as_ref(&name).to_str().map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> DeviceIdentity {
        DeviceIdentity {
            numbers: "259:1".into(),
            name: Some("nvme0n1".into()),
            file_system: "ef53".into(),
            file_system_id: "1234".into(),
            uuid: Some("11111111-2222-3333-4444-555555555555".into()),
            model: Some("Disk".into()),
            serial: Some("S1".into()),
            bytes: Some(1 << 40),
        }
    }

    #[test]
    fn a_folder_is_on_the_same_device_as_its_parent() {
        let home = tempfile::tempdir().expect("a folder");
        let inner = home.path().join("inner");
        fs::create_dir(&inner).expect("made");
        let (outer, inner) = (DeviceIdentity::of(home.path()), DeviceIdentity::of(&inner));
        let (outer, inner) = (outer.expect("known"), inner.expect("known"));
        assert_eq!(outer, inner);
        assert_eq!(outer.difference(&inner), None);
        let proc = DeviceIdentity::of(Path::new("/proc")).expect("known");
        assert!(outer.difference(&proc).is_some());
        assert!(DeviceIdentity::of(&home.path().join("none")).is_err());
    }

    #[test]
    fn numbers_and_names_may_change_where_a_uuid_is_known() {
        let renamed = DeviceIdentity {
            numbers: "259:7".into(),
            name: Some("nvme1n1".into()),
            file_system_id: "777".into(),
            ..sample()
        };
        assert_eq!(sample().difference(&renamed), None);
        let nameless = |numbers: &str| DeviceIdentity {
            numbers: numbers.into(),
            uuid: None,
            ..sample()
        };
        assert_eq!(nameless("1:1").difference(&nameless("1:1")), None);
        let text = nameless("1:1").difference(&nameless("1:2")).expect("other");
        assert_eq!(text, "device numbers 1:1 then, 1:2 now");
    }

    #[test]
    fn a_copy_of_a_file_system_on_another_device_is_another() {
        for (other, told) in [
            (
                DeviceIdentity {
                    serial: Some("S2".into()),
                    ..sample()
                },
                "serial",
            ),
            (
                DeviceIdentity {
                    model: Some("Disc".into()),
                    ..sample()
                },
                "model",
            ),
            (
                DeviceIdentity {
                    bytes: Some(1),
                    ..sample()
                },
                "bytes of the device",
            ),
            (
                DeviceIdentity {
                    file_system: "58465342".into(),
                    ..sample()
                },
                "type",
            ),
            (
                DeviceIdentity {
                    uuid: Some("0".into()),
                    ..sample()
                },
                "UUID",
            ),
        ] {
            let text = sample().difference(&other).expect("other");
            assert!(text.contains(told), "{text}");
        }
        let untold = DeviceIdentity {
            serial: None,
            model: None,
            bytes: None,
            ..sample()
        };
        assert_eq!(sample().difference(&untold), None);
    }

    #[test]
    fn a_partition_is_of_its_disk() {
        let root = tempfile::tempdir().expect("a folder");
        let disk = root.path().join("devices/sda");
        fs::create_dir_all(disk.join("sda1")).expect("made");
        fs::write(disk.join("sda1/partition"), "1\n").expect("written");
        let numbers = root.path().join("block");
        fs::create_dir(&numbers).expect("made");
        std::os::unix::fs::symlink(disk.join("sda1"), numbers.join("8:1")).expect("linked");
        std::os::unix::fs::symlink(&disk, numbers.join("8:0")).expect("linked");
        let disk = fs::canonicalize(disk).expect("there");
        assert_eq!(disk_of(&numbers, 8, 1), Some(disk.clone()));
        assert_eq!(disk_of(&numbers, 8, 0), Some(disk));
        assert_eq!(disk_of(&numbers, 8, 9), None);
    }
}
