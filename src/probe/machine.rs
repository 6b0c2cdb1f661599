//! The kernel's version, the limits of this process, and what forbids it rings.

use std::fmt;
use std::fs;
use std::io;

/// Version of a Linux kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl Kernel {
    /// The version at the start of a release name such as `5.15.0-91-generic`.
    pub fn parse(release: &str) -> Option<Kernel> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Kernel {
            major: numbers.next()?.parse().ok()?,
            minor: numbers.next()?.parse().ok()?,
        })
    }

    /// The kernel that runs; 0.0 where it does not say.
    pub fn running() -> Kernel {
        fs::read_to_string("/proc/sys/kernel/osrelease")
            .ok()
            .and_then(|release| Kernel::parse(&release))
            .unwrap_or(Kernel { major: 0, minor: 0 })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Raises the limit of locked memory as far as allowed and returns it, in bytes.
pub(super) fn raise_memlock() -> u64 {
    raise(libc::RLIMIT_MEMLOCK, u64::MAX)
}

/// Raises the limit of open files to `wanted` or as far as allowed, and returns it.
pub(super) fn raise_files(wanted: u64) -> u64 {
    raise(libc::RLIMIT_NOFILE, wanted)
}

/// Raises a soft limit up to the hard one, and both to `wanted` where this user may.
fn raise(resource: libc::__rlimit_resource_t, wanted: u64) -> u64 {
    let Ok(now) = limit(resource) else {
        return 0;
    };
    if now.rlim_cur >= wanted {
        return now.rlim_cur;
    }
    let both = libc::rlimit {
        rlim_cur: wanted,
        rlim_max: wanted.max(now.rlim_max),
    };
    let soft = libc::rlimit {
        rlim_cur: now.rlim_max.min(wanted),
        rlim_max: now.rlim_max,
    };
    for attempt in [both, soft] {
        // SAFETY: `attempt` is a valid limit for the length of the call.
        if unsafe { libc::setrlimit(resource, &attempt) } == 0 {
            return attempt.rlim_cur;
        }
    }
    now.rlim_cur
}

fn limit(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the result.
    match unsafe { libc::getrlimit(resource, &mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the limit of locked memory does not bind this process (`CAP_IPC_LOCK`).
pub(super) fn may_lock_memory() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    capabilities(&status()) >> CAP_IPC_LOCK & 1 == 1
}

/// Whether a seccomp filter is between this process and the kernel.
pub(super) fn is_filtered() -> bool {
    field(&status(), "Seccomp:") == Some("2")
}

/// `kernel.io_uring_disabled`: 0 for all, 1 for a group, 2 for nobody. `None` on kernels
/// without it.
pub(super) fn uring_disabled() -> Option<u8> {
    let text = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

fn status() -> String {
    fs::read_to_string("/proc/self/status").unwrap_or_default()
}

fn capabilities(status: &str) -> u64 {
    field(status, "CapEff:")
        .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        .unwrap_or(0)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|l| l.strip_prefix(name))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_release_names() {
        let version = |text| Kernel::parse(text).map(|k| (k.major, k.minor));
        assert_eq!(version("6.18.44-fc-v782\n"), Some((6, 18)));
        assert_eq!(version("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(version("4.18.0-553.el8_10.x86_64"), Some((4, 18)));
        assert_eq!(version("6.1-rc3"), Some((6, 1)));
        assert_eq!(version("5.10+"), Some((5, 10)));
        for bad in ["", "linux", "6", "6.x", ".1", "99999999999.1"] {
            assert_eq!(version(bad), None, "{bad:?}");
        }
        assert!(Kernel::parse("5.13") > Kernel::parse("5.8"));
        assert!(Kernel::parse("4.19") < Kernel::parse("5.13"));
    }

    #[test]
    fn rights_and_filters_are_read_from_the_status_of_the_process() {
        let text = "Name:\tringmq\nCapEff:\t0000000000004000\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(capabilities(text), 1 << 14);
        assert_eq!(capabilities(""), 0);
        assert_eq!(capabilities("CapEff:\tx"), 0);
        assert_eq!(field(text, "Seccomp:"), Some("2"));
        assert_eq!(field("", "Seccomp:"), None);
    }

    #[test]
    fn a_limit_is_never_lowered() {
        let before = limit(libc::RLIMIT_NOFILE).expect("a limit");
        let raised = raise_files(1);
        assert_eq!(raised, before.rlim_cur);
        assert!(raise_files(before.rlim_max) >= before.rlim_cur);
    }
}
