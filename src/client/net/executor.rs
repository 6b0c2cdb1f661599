//! The client's thread and what it runs on: the only place that names the runtime.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;
use glommio::{LocalExecutorBuilder, Placement, PoolPlacement};

/// Longest time that ready tasks run before sockets and timers are looked at. It is seldom
/// reached: tasks wait for sockets after every turn. Not shorter, as a thread whose processor is
/// taken away for longer at the wrong moment sleeps although a task is ready.
const PREEMPT: Duration = Duration::from_millis(10);

/// Requests that the ring holds: a client has few connections, one read of each.
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

/// Lets sockets have their turn: yielding alone lets in only tasks that are ready already.
pub(super) async fn look_at_sockets() {
    sleep(Duration::ZERO).await;
}

/// One connection's socket.
pub(super) struct Socket(TcpStream);

impl Socket {
    /// Connects, with `TCP_NODELAY`.
    ///
    /// # Errors
    /// Those of the socket, or that it took longer than `limit`.
    pub async fn connect(to: SocketAddr, limit: Duration) -> io::Result<Socket> {
        let stream = TcpStream::connect_timeout(to, limit).await?;
        stream.set_nodelay(true)?;
        Ok(Socket(stream))
    }

    /// Its descriptor, open as long as the socket lives.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Another socket for the same connection, so that one task can write while another reads.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn duplicate(fd: RawFd) -> io::Result<Socket> {
        // SAFETY: a plain system call.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        Ok(Socket(unsafe { TcpStream::from_raw_fd(copy) }))
    }

    /// Reads what is there, or has the task woken when something is.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }

    /// Writes what there is room for, or has the task woken when there is some.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }
}
