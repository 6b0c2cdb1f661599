//! The client's thread and what it runs on: the only place that names the runtime.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use glommio::net::TcpStream;
use glommio::{LocalExecutorBuilder, Placement, PoolPlacement};
use socket2::Socket;

use super::lead::READ_MAX;

/// Longest time that ready tasks run before the ring is looked at. Not shorter, as a thread whose
/// processor is taken away for longer at the wrong moment sleeps although a task is ready, and a
/// virtual machine may stand still for some hundredths of a second. No task here runs so long.
const PREEMPT: Duration = Duration::from_secs(10);

/// Requests that the ring holds: connections are made by it, and a client has few.
const RING_DEPTH: usize = 256;

/// Memory for direct I/O, in bytes. The client has no files of this kind, the runtime wants
/// some; the ring registers it, so it counts against the limit of locked memory.
const IO_MEMORY_BYTES: usize = 64 * 1024;

/// Runs `main` on a thread of its own until it ends. Returns when its executor runs, or has
/// been refused what it needs.
///
/// # Errors
/// Text with what the kernel refused.
pub(super) fn spawn_thread<F>(
    name: &str,
    main: impl FnOnce() -> F + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, String>
where
    F: Future<Output = ()> + 'static,
{
    let (ready_in, ready) = flume::bounded(1);
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let made = LocalExecutorBuilder::new(Placement::Unbound)
                .ring_depth(RING_DEPTH)
                .io_memory(IO_MEMORY_BYTES)
                .preempt_timer(PREEMPT)
                .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
                .make();
            match made {
                Ok(executor) => {
                    let _ = ready_in.send(Ok(()));
                    executor.run(async move { main().await });
                }
                Err(error) => {
                    let _ = ready_in.send(Err(format!("the client needs io_uring: {error}")));
                }
            }
        })
        .map_err(|error| format!("cannot start the client's thread: {error}"))?;
    match ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err("the client's thread ended at its start".to_owned()),
    }
}

/// Starts a task on this thread. It is polled at once, inside the call: hold no borrow across
/// it. It is never cancelled (the runtime would leak it): it ends by itself.
pub(super) fn spawn(task: impl Future<Output = ()> + 'static) {
    glommio::spawn_local(task).detach();
}

/// Waits.
pub(super) async fn sleep(time: Duration) {
    glommio::timer::sleep(time).await;
}

/// Lets the runtime have its turn. A sleep of no length would be over before it looked at its
/// ring.
pub(super) async fn runtimes_turn() {
    sleep(Duration::from_micros(50)).await;
}

/// Connects, with `TCP_NODELAY`.
///
/// # Errors
/// Those of the socket, or that it took longer than `limit`.
pub(super) async fn connect_to(to: SocketAddr, limit: Duration) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(to, limit).await?;
    stream.set_nodelay(true)?;
    // The runtime keeps its own descriptor and closes it.
    // SAFETY: a plain system call.
    let fd = unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // Whoever does not say otherwise waits for what comes, so long at most.
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(READ_MAX))?;
    Ok(socket.into())
}
