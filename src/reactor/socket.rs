//! Sockets: readiness from the ring, bytes by the system calls that do not wait.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use io_uring::{opcode, types};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Type};

use super::executor::next_turn;
use super::operation::operate;
use super::ring::Reactor;
use super::slots::{Slot, Watch};

/// A stream or listener of this thread. The kernel watches it from its first to its last
/// moment and says once when something comes: nothing is asked for per read.
pub struct Socket {
    fd: OwnedFd,
    reactor: Rc<Reactor>,
    watch: Rc<Watch>,
    place: usize,
}

impl Socket {
    /// Takes a socket over, whether it blocks or not.
    pub fn new(fd: impl Into<OwnedFd>) -> Rc<Socket> {
        let fd = fd.into();
        let reactor = Reactor::current();
        let watch = Rc::new(Watch::new(fd.as_raw_fd()));
        let place = reactor.watch(&watch);
        Rc::new(Socket {
            fd,
            reactor,
            watch,
            place,
        })
    }

    /// Reads what is there; 0 is the end.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_receive(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let watch = &self.watch;
        while watch.is_ready.get() {
            // SAFETY: the descriptor is open, and `buffer` has as many bytes as are named.
            let received = unsafe {
                libc::recv(
                    self.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            if let Ok(received) = usize::try_from(received) {
                // Less than there is room for is all there was: what comes later is told.
                // The end was told already.
                watch
                    .is_ready
                    .set(received == buffer.len() || watch.is_ended.get());
                return Poll::Ready(Ok(received));
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => watch.is_ready.set(false),
                _ => return Poll::Ready(Err(error)),
            }
        }
        self.poll_ready(cx).map(|refused| match refused {
            Ok(()) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error),
        })
    }

    /// Reads, and waits for it.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_receive(cx, buffer)).await
    }

    /// Waits until there may be something to read, or an error to be had.
    pub async fn readable(&self) {
        // Who reads gets the error.
        let _ = poll_fn(|cx| self.poll_ready(cx)).await;
    }

    /// Ends both directions: whoever waits for it goes on and sees that.
    ///
    /// # Errors
    /// It is not connected any more.
    pub fn shut_down(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.fd).shutdown(std::net::Shutdown::Both)
    }

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(number) = self.watch.refused.get() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(number)));
        }
        if self.watch.is_ready.get() {
            return Poll::Ready(Ok(()));
        }
        *self.watch.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Accepts a connection, and waits for it.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn accept(&self) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        // However many there are: what else is to be done comes before each.
        next_turn().await;
        loop {
            match self.accept_now() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.watch.is_ready.set(false);
                    poll_fn(|cx| self.poll_ready(cx)).await?;
                }
                accepted => return accepted,
            }
        }
    }

    fn accept_now(&self) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let accept = |address: *mut SockAddrStorage, len| {
            // SAFETY: the descriptor is open; `address` and `len` name storage for any
            // address and its size.
            let fd = unsafe { libc::accept4(self.as_raw_fd(), address.cast(), len, flags) };
            match fd {
                // SAFETY: the descriptor was just made and has no other owner.
                0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure above fills both, or fails.
        let (fd, address): (OwnedFd, SockAddr) = unsafe { SockAddr::try_init(accept)? };
        Ok((fd, address.as_socket()))
    }

    /// Waits until there is room for more bytes, or an error to be had.
    ///
    /// # Errors
    /// The kernel does not watch the socket.
    pub async fn writable(self: &Rc<Self>) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fd(self.as_raw_fd()), libc::POLLOUT as u32).build();
        // SAFETY: the entry names the descriptor, which is kept.
        unsafe { operate(entry, self.clone()) }
            .while_awaited()
            .await
            .0
            .map(|_| ())
    }

    /// Sends all bytes, and waits for room.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn send_all(self: &Rc<Self>, mut bytes: &[u8]) -> io::Result<()> {
        let socket = socket2::SockRef::from(&self.fd);
        while !bytes.is_empty() {
            match socket.send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reactor.give_up(&self.watch, self.place);
    }
}

/// Connects, with `TCP_NODELAY`.
///
/// # Errors
/// Those of the socket.
pub async fn connect(address: SocketAddr) -> io::Result<Rc<Socket>> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = socket2::Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => return Ok(Socket::new(socket)),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let socket = Socket::new(socket);
    socket.writable().await?;
    match socket2::SockRef::from(&socket.fd).take_error()? {
        Some(error) => Err(error),
        None => Ok(socket),
    }
}

impl Reactor {
    /// Has the kernel watch a descriptor; returns the place of that.
    fn watch(&self, watch: &Rc<Watch>) -> usize {
        let place = self.slots.borrow_mut().insert(Slot::Watch(watch.clone()));
        self.arm(watch.fd, place);
        place
    }
}
