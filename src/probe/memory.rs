//! Memory that this process may use: that of the machine, or of its container.

use std::fs;
use std::path::Path;

/// What is taken for the memory of a machine that does not say, in bytes.
const UNKNOWN: u64 = 1 << 30;

/// Bytes of memory that this process may use: the machine's, or the smallest limit of
/// the cgroups that it is in (version 2 or 1).
pub fn memory_bytes() -> u64 {
    memory_below(Path::new("/"))
}

fn memory_below(root: &Path) -> u64 {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let machine = read("proc/meminfo")
        .lines()
        .find_map(|line| {
            let kib = line.strip_prefix("MemTotal:")?;
            kib.split_whitespace().next()?.parse::<u64>().ok()
        })
        .map_or(UNKNOWN, |kib| kib * 1024);
    let mut limit = machine;
    // `0::/path` is of version 2, `7:memory:/path` of version 1.
    for line in read("proc/self/cgroup").lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (mount, file) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        // In a container the path may be that of the host, and what is mounted is its
        // end: every group from there up counts, the mount itself last.
        let relative = Path::new(path.trim_start_matches('/'));
        for group in relative.ancestors() {
            let file = Path::new(mount).join(group).join(file);
            let value = fs::read_to_string(root.join(file)).unwrap_or_default();
            // Without a limit it says `max`, or more than any machine has.
            if let Ok(bytes) = value.trim().parse() {
                limit = limit.min(bytes);
            }
        }
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        memory_below(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:        8000 kB\nMemFree: 1 kB\n");

    #[test]
    fn the_smallest_limit_counts() {
        assert_eq!(machine(&[]), UNKNOWN);
        assert_eq!(machine(&[MEMINFO]), 8_192_000);
        let v2 = ("proc/self/cgroup", "0::/a/b\n");
        let unlimited = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(machine(&[MEMINFO, v2, unlimited]), 8_192_000);
        let above = ("sys/fs/cgroup/a/memory.max", "500000\n");
        assert_eq!(machine(&[MEMINFO, v2, unlimited, above]), 500_000);
        // The container's own group is what is mounted.
        let mounted = ("sys/fs/cgroup/memory.max", "400000\n");
        assert_eq!(machine(&[MEMINFO, v2, mounted]), 400_000);
    }

    #[test]
    fn version_1_has_a_folder_for_memory() {
        let groups = (
            "proc/self/cgroup",
            "4:cpu,cpuacct:/x\n3:memory:/docker/x\n1:name=systemd:/\n",
        );
        let file = "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes";
        assert_eq!(machine(&[MEMINFO, groups, (file, "300000")]), 300_000);
        assert_eq!(
            machine(&[MEMINFO, groups, (file, "9223372036854771712")]),
            8_192_000
        );
    }
}
