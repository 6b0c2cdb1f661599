//! What glommio 0.9 has no settings for, done where it calls liburing: the linker (`--wrap`,
//! see `build.rs`) sends those calls here.
//!
//! # `IORING_SETUP_COOP_TASKRUN` for the main ring of every shard
//!
//! Without it the kernel interrupts the core of a ring whenever one of its sockets becomes
//! ready, also when that core is busy in user space and will ask soon anyway; between two busy
//! shards this more than halves the round trips.
//!
//! # No sleep while tasks are ready
//!
//! `LocalExecutor::run` starts the preemption timer, then asks whether it has fired before it
//! runs the first task. Where the core was taken away in between for longer than the timer,
//! nothing is run, and what was not run counts as nothing to run: the executor goes to sleep
//! with tasks that are ready, for as long as nothing else wakes it. So a sleep is put off by
//! one round of the loop unless it follows the last one within the timer: then the timer
//! cannot have fired before the tasks were run.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::time::Instant;

// The wrapped functions come with it.
use glommio as _;
use ringmq::shard::PREEMPT;

const IORING_SETUP_IOPOLL: u32 = 1 << 0;
/// Since Linux 5.19.
const IORING_SETUP_COOP_TASKRUN: u32 = 1 << 8;

/// Entries of the ring with which liburing asks for the kernel's operations, in the first
/// thread that makes an executor. LLD sends this call here as well, GNU ld does not.
const PROBE_RING_ENTRIES: c_uint = 2;

/// The beginning of `struct io_uring_params`.
#[repr(C)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
}

thread_local! {
    /// Whether this thread has its main ring, which is the first that an executor makes. The
    /// ones that follow are a ring for polled devices, which has no interrupts, and one whose
    /// completions glommio reads from memory to see that its preemption timer has fired: they
    /// must appear without a system call.
    static HAS_MAIN_RING: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    /// When this thread's executor last went, or was sent, from a sleep back into its loop.
    static IN_LOOP_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

unsafe extern "C" {
    fn __real_io_uring_queue_init_params(
        entries: c_uint,
        ring: *mut c_void,
        params: *mut Params,
    ) -> c_int;

    fn __real_io_uring_wait_cqes(
        ring: *mut c_void,
        cqe: *mut *mut c_void,
        count: c_uint,
        time: *const c_void,
        signals: *const c_void,
    ) -> c_int;
}

/// Stands in for liburing's function of the name without `__wrap_`, with its contract.
///
/// # Safety
/// `ring` is a place for a `struct io_uring`, `params` points to a `struct io_uring_params`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    params: *mut Params,
) -> c_int {
    // SAFETY: the caller's promise; its own `params` stay as they are until the call below.
    let flags = unsafe { (*params).flags };
    let is_executors = entries > PROBE_RING_ENTRIES && flags & IORING_SETUP_IOPOLL == 0;
    if is_executors && !HAS_MAIN_RING.replace(true) {
        // SAFETY: as above.
        unsafe { (*params).flags = flags | IORING_SETUP_COOP_TASKRUN };
        // SAFETY: all arguments are the caller's.
        let result = unsafe { __real_io_uring_queue_init_params(entries, ring, params) };
        if result != -libc::EINVAL {
            return result;
        }
        // A kernel without the flag. SAFETY: as above.
        unsafe { (*params).flags = flags };
    }
    // SAFETY: all arguments are the caller's.
    unsafe { __real_io_uring_queue_init_params(entries, ring, params) }
}

/// Stands in for liburing's function of the name without `__wrap_`, with its contract.
///
/// # Safety
/// That of the function: `ring` is a ring, `cqe` a place for a pointer, the others may be null.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_io_uring_wait_cqes(
    ring: *mut c_void,
    cqe: *mut *mut c_void,
    count: c_uint,
    time: *const c_void,
    signals: *const c_void,
) -> c_int {
    let since = IN_LOOP_SINCE.get();
    let result = if since.is_some_and(|since| since.elapsed() < PREEMPT) {
        // SAFETY: all arguments are the caller's.
        unsafe { __real_io_uring_wait_cqes(ring, cqe, count, time, signals) }
    } else {
        // glommio takes it for a signal, and goes round its loop.
        -libc::EINTR
    };
    IN_LOOP_SINCE.set(Some(Instant::now()));
    result
}
