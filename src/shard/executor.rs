//! Executors: one pinned to each core.

use std::io;
use std::time::Duration;

use crate::config::limits::IO_MEMORY_BYTES;
use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement, PoolPlacement};

/// Longest time that ready tasks run before sockets, timers and lanes are looked
/// at. glommio's own 100 ms would let a busy shard starve them.
pub const PREEMPT: Duration = Duration::from_millis(1);

/// Requests that an executor's ring holds.
const RING_DEPTH: usize = 1024;

/// The processors that this process may run on.
///
/// # Errors
/// Those of the system call.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: zero is a valid `cpu_set_t`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: `set` has room for `size` bytes.
    if unsafe { libc::sched_getaffinity(0, size, &mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let cpus = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: every index is within the set.
    Ok(cpus
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Starts an executor pinned to `cpu` and runs `main` on it.
///
/// # Errors
/// Text with what the kernel refused.
pub fn spawn_executor<F, T>(
    name: &str,
    cpu: usize,
    main: impl FnOnce() -> F + Send + 'static,
) -> Result<ExecutorJoinHandle<T>, String>
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    LocalExecutorBuilder::new(Placement::Fixed(cpu))
        .name(name)
        .ring_depth(RING_DEPTH)
        .io_memory(IO_MEMORY_BYTES)
        .preempt_timer(PREEMPT)
        // The default pins every shard's helper thread to the first core.
        .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
        .spawn(main)
        .map_err(|error| format!("cannot start an executor on processor {cpu}: {error}"))
}

/// Starts a task on this executor. It is polled at once, inside the call: hold
/// no borrow across it. It is never cancelled (glommio would leak it), so it ends
/// by itself or with the process.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    glommio::spawn_local(task).detach();
}

/// Waits.
pub async fn sleep(time: Duration) {
    glommio::timer::sleep(time).await;
}

/// Runs work that waits for the disk on the shard's helper thread.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    glommio::executor().spawn_blocking(work).await
}

/// Lets every task that is ready run before this one goes on.
pub async fn next_turn() {
    futures_lite::future::yield_now().await;
}
