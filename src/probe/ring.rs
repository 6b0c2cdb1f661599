//! Whether this process can make a ring, and what its kernel's rings can do.

use super::machine::{self, Kernel};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Oldest kernel on which shards run: a descriptor is watched until it is closed (multishot
/// `POLL_ADD`) since 5.13, and a wait has a time limit (`IORING_ENTER_EXT_ARG`) since 5.11.
pub const KERNEL_MIN: Kernel = Kernel {
    major: 5,
    minor: 13,
};

/// First kernel that works on what comes for a shard when the shard asks (`DEFER_TASKRUN`).
pub const KERNEL_BETTER: Kernel = Kernel { major: 6, minor: 1 };

/// First kernel that leaves it until the shard's next system call (`COOP_TASKRUN`); older ones
/// interrupt the shard.
pub(super) const KERNEL_COOPERATIVE: Kernel = Kernel {
    major: 5,
    minor: 19,
};

/// Operations without which glommio does not start, and those that shards use, with their
/// numbers in `enum io_uring_op`.
const OPERATIONS: [(u8, &str); 24] = [
    (0, "NOP"),
    (1, "READV"),
    (2, "WRITEV"),
    (3, "FSYNC"),
    (4, "READ_FIXED"),
    (5, "WRITE_FIXED"),
    (6, "POLL_ADD"),
    (7, "POLL_REMOVE"),
    (9, "SENDMSG"),
    (10, "RECVMSG"),
    (11, "TIMEOUT"),
    (12, "TIMEOUT_REMOVE"),
    (13, "ACCEPT"),
    (14, "ASYNC_CANCEL"),
    (15, "LINK_TIMEOUT"),
    (16, "CONNECT"),
    (17, "FALLOCATE"),
    (18, "OPENAT"),
    (19, "CLOSE"),
    (21, "STATX"),
    (22, "READ"),
    (23, "WRITE"),
    (26, "SEND"),
    (27, "RECV"),
];

/// Why no ring can be made. Displayed with the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// `kernel.io_uring_disabled` is 2.
    DisabledForAll,
    /// `kernel.io_uring_disabled` is 1, and this process is not of the privileged group.
    DisabledForThisUser,
    /// A seccomp filter stands in the way.
    Filtered,
    /// Refused with this error number, and nothing says by whom.
    Refused(i32),
    /// The kernel has no io_uring.
    Absent,
    /// The kernel has no memory for it.
    NoMemory,
    /// Too many files are open.
    NoFile,
    /// Another error number.
    Other(i32),
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::DisabledForAll => f.write_str(
                "io_uring is switched off on this machine (kernel.io_uring_disabled = 2): \
                 `sysctl kernel.io_uring_disabled=0`",
            ),
            RingError::DisabledForThisUser => f.write_str(
                "io_uring is switched off for this user (kernel.io_uring_disabled = 1): \
                 `sysctl kernel.io_uring_disabled=0`, or add the user to the group of \
                 kernel.io_uring_group",
            ),
            RingError::Filtered => f.write_str(
                "a seccomp filter forbids io_uring: docker and containerd do so by default; run \
                 with a profile that allows io_uring_setup, io_uring_enter and \
                 io_uring_register (tuning/README.md has one), or with --security-opt \
                 seccomp=unconfined; in Kubernetes set securityContext.seccompProfile",
            ),
            RingError::Refused(number) => write!(
                f,
                "io_uring is forbidden ({}): look for a seccomp profile, SELinux, AppArmor or a \
                 sandbox such as gVisor around this process",
                io::Error::from_raw_os_error(*number)
            ),
            RingError::Absent => f.write_str(
                "this kernel has no io_uring: run a kernel with CONFIG_IO_URING, outside of \
                 sandboxes that replace the kernel (gVisor, WSL 1)",
            ),
            RingError::NoMemory => f.write_str(
                "the kernel has no memory for a ring: look at the memory limit of the container, \
                 and since Linux 6.14 at that of locked memory, which is the user's (`ulimit -l`, \
                 LimitMEMLOCK)",
            ),
            RingError::NoFile => f.write_str(
                "no file descriptor is left for a ring: `ulimit -n 1048576` or LimitNOFILE \
                 (systemd)",
            ),
            RingError::Other(number) => write!(
                f,
                "io_uring failed: {}",
                io::Error::from_raw_os_error(*number)
            ),
        }
    }
}

/// Names of the operations that are needed and that the kernel's rings do not have.
pub(super) fn operations_missing() -> Result<Vec<&'static str>, RingError> {
    let cause = |number| explain(number, machine::uring_disabled(), machine::is_filtered());
    let ring = setup().map_err(cause)?;
    enter(ring.as_raw_fd()).map_err(cause)?;
    let table = register_probe(ring.as_raw_fd()).map_err(cause)?;
    Ok(missing(&table))
}

/// What an error number of io_uring's calls means.
fn explain(number: i32, disabled: Option<u8>, filtered: bool) -> RingError {
    match number {
        libc::EPERM if disabled == Some(2) => RingError::DisabledForAll,
        // With 1, the privileged are let through: it may be a filter all the same.
        libc::EPERM if disabled == Some(1) && !filtered => RingError::DisabledForThisUser,
        libc::EPERM | libc::EACCES | libc::ENOSYS if filtered => RingError::Filtered,
        libc::EPERM | libc::EACCES => RingError::Refused(number),
        libc::ENOSYS => RingError::Absent,
        libc::ENOMEM => RingError::NoMemory,
        libc::EMFILE | libc::ENFILE => RingError::NoFile,
        _ => RingError::Other(number),
    }
}

/// Makes a small ring, or returns the error number.
fn setup() -> Result<OwnedFd, i32> {
    // `struct io_uring_params`: 120 bytes, all zero for a ring without flags.
    let mut params = [0u64; 15];
    // SAFETY: `params` has the size of the structure that the kernel reads and fills.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Enters a ring with nothing to do: a filter may forbid that alone.
fn enter(ring: RawFd) -> Result<(), i32> {
    let no_signals: *const libc::sigset_t = std::ptr::null();
    // SAFETY: nothing is submitted or waited for, and no set of signals is given.
    match unsafe { libc::syscall(libc::SYS_io_uring_enter, ring, 0, 0, 0, no_signals, 0) } {
        result if result < 0 => Err(last_error()),
        _ => Ok(()),
    }
}

/// `struct io_uring_probe_op`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProbeOp {
    op: u8,
    reserved: u8,
    flags: u16,
    reserved2: u32,
}

/// `struct io_uring_probe` with room for all operations there can be.
#[repr(C)]
struct Probe {
    last_op: u8,
    ops_len: u8,
    reserved: u16,
    reserved2: [u32; 3],
    ops: [ProbeOp; 256],
}

/// Asks the kernel which operations it has.
fn register_probe(ring: RawFd) -> Result<Vec<ProbeOp>, i32> {
    const IORING_REGISTER_PROBE: u32 = 8;
    let mut probe = Box::new(Probe {
        last_op: 0,
        ops_len: 0,
        reserved: 0,
        reserved2: [0; 3],
        ops: [ProbeOp::default(); 256],
    });
    let place: *mut Probe = &mut *probe;
    // SAFETY: `place` has room for the 256 entries announced, and is zeroed as the kernel asks.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            IORING_REGISTER_PROBE,
            place,
            256,
        )
    };
    if result < 0 {
        return Err(last_error());
    }
    let found = usize::from(probe.ops_len).min(probe.ops.len());
    Ok(probe.ops[..found].to_vec())
}

fn missing(table: &[ProbeOp]) -> Vec<&'static str> {
    const IO_URING_OP_SUPPORTED: u16 = 1;
    let has = |number: u8| {
        table
            .iter()
            .any(|entry| entry.op == number && entry.flags & IO_URING_OP_SUPPORTED != 0)
    };
    OPERATIONS
        .iter()
        .filter(|(number, _)| !has(*number))
        .map(|(_, name)| *name)
        .collect()
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_traced_to_who_refuses() {
        let eperm = libc::EPERM;
        assert_eq!(explain(eperm, Some(2), true), RingError::DisabledForAll);
        assert_eq!(
            explain(eperm, Some(1), false),
            RingError::DisabledForThisUser
        );
        assert_eq!(explain(eperm, Some(1), true), RingError::Filtered);
        assert_eq!(explain(eperm, Some(0), true), RingError::Filtered);
        assert_eq!(explain(eperm, None, false), RingError::Refused(eperm));
        assert_eq!(explain(libc::ENOSYS, None, true), RingError::Filtered);
        assert_eq!(explain(libc::ENOSYS, None, false), RingError::Absent);
    }

    #[test]
    fn what_is_used_up_is_named() {
        assert_eq!(explain(libc::ENOMEM, None, false), RingError::NoMemory);
        assert_eq!(explain(libc::EMFILE, None, false), RingError::NoFile);
        assert_eq!(
            explain(libc::EINVAL, None, false),
            RingError::Other(libc::EINVAL)
        );
    }

    #[test]
    fn every_cause_has_a_remedy() {
        assert!(RingError::DisabledForAll.to_string().contains("sysctl"));
        assert!(
            RingError::DisabledForThisUser
                .to_string()
                .contains("io_uring_group")
        );
        assert!(RingError::Filtered.to_string().contains("seccomp"));
        assert!(RingError::Absent.to_string().contains("CONFIG_IO_URING"));
        assert!(RingError::NoMemory.to_string().contains("container"));
        assert!(RingError::NoFile.to_string().contains("LimitNOFILE"));
    }

    #[test]
    fn operations_are_missing_unless_marked_as_supported() {
        assert_eq!(missing(&[]).len(), OPERATIONS.len());
        let mut table: Vec<ProbeOp> = (0..40)
            .map(|op| ProbeOp {
                op,
                flags: 1,
                ..ProbeOp::default()
            })
            .collect();
        assert_eq!(missing(&table), [""; 0]);
        table[17].flags = 0;
        table.truncate(27);
        assert_eq!(missing(&table), ["FALLOCATE", "RECV"]);
    }
}
