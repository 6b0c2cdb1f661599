//! Accepting connections and reading frames from them.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_lite::AsyncRead;
use glommio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, Socket, Type};

use super::conn::Conn;
use super::executor::{sleep, spawn};
use super::{ConnId, Flow, Service, Shard};
use crate::wire::frame::{self, Split};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Bytes read at once. One buffer serves all connections of a shard: what is not
/// a whole frame is copied out before another one reads.
const READ_BYTES: usize = 256 * 1024;

/// Bytes of unfinished frames that a shard holds. At the bound a connection with
/// more of its frame to come is not read until others are done with theirs.
const PARTIAL_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Makes a listening socket. Several shards may bind the same address: the kernel
/// spreads connections over them.
///
/// # Errors
/// Those of the socket, with the address in the text.
pub fn bind(address: SocketAddr) -> io::Result<StdListener> {
    let bind = || -> io::Result<StdListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    bind().map_err(|error| io::Error::new(error.kind(), format!("listen on {address}: {error}")))
}

/// Accepts connections and serves them until the shard stops.
pub fn serve<S: Service>(shard: &Rc<Shard<S::Message>>, service: &Rc<S>, listener: StdListener) {
    let sweeper = shard.clone();
    spawn(async move { sweeper.sweep().await });
    let reader = Rc::new(Reader {
        shard: shard.clone(),
        service: service.clone(),
        buffer: RefCell::new(vec![0; READ_BYTES]),
        partial_bytes: std::cell::Cell::new(0),
    });
    // SAFETY: the descriptor is a listening socket that is given away here.
    let listener = unsafe { TcpListener::from_raw_fd(listener.into_raw_fd()) };
    spawn(async move { reader.accept(listener).await });
}

struct Reader<S: Service> {
    shard: Rc<Shard<S::Message>>,
    service: Rc<S>,
    buffer: RefCell<Vec<u8>>,
    partial_bytes: std::cell::Cell<usize>,
}

impl<S: Service> Reader<S> {
    async fn accept(self: Rc<Self>, listener: TcpListener) {
        let mut refused: u64 = 0;
        loop {
            let stream = match listener.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if self.shard.stopping.get() {
                continue;
            }
            let open = self.shard.open.fetch_add(1, Ordering::Relaxed);
            let limit = self.shard.limits.connections_max;
            if open >= limit {
                self.shard.open.fetch_sub(1, Ordering::Relaxed);
                refused += 1;
                if refused.is_power_of_two() {
                    tracing::warn!(limit, refused, "connection refused: too many are open");
                }
                continue;
            }
            let Ok(peer) = stream.peer_addr() else {
                self.shard.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            };
            let reader = self.clone();
            spawn(async move {
                let _ = stream.set_nodelay(true);
                let conn = Conn::new(peer, stream.as_raw_fd());
                let id = reader.shard.conns.borrow_mut().insert(conn);
                reader.connection(id, stream).await;
                reader.shard.conns.borrow_mut().remove(id);
                reader.shard.open.fetch_sub(1, Ordering::Relaxed);
                reader.service.closed(id);
            });
        }
    }

    /// Reads frames and hands them over until the connection ends.
    async fn connection(&self, id: ConnId, mut stream: TcpStream) {
        let mut partial = Partial {
            bytes: Vec::new(),
            budget: &self.partial_bytes,
        };
        loop {
            while !partial.bytes.is_empty() && self.partial_bytes.get() > PARTIAL_BYTES_MAX {
                sleep(Duration::from_millis(10)).await;
            }
            // The buffer is borrowed inside the poll only; what was read is used up
            // before anything is awaited.
            let read = poll_fn(|cx| {
                let mut buffer = self.buffer.borrow_mut();
                match Pin::new(&mut stream).poll_read(cx, &mut buffer) {
                    Poll::Ready(Ok(n)) => Poll::Ready(n),
                    Poll::Ready(Err(_)) => Poll::Ready(0),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
            if read == 0 || !self.turn(id, &mut partial, read) {
                return;
            }
            while !self.settle(id, &mut partial).await {}
            if self.shard.conns.borrow().get(id).is_none() {
                return;
            }
            glommio::yield_if_needed().await;
        }
    }

    /// Hands over the frames in the first `read` bytes of the buffer, then writes
    /// the answers. What is left goes to `partial`. `false`: the connection ends.
    fn turn(&self, id: ConnId, partial: &mut Partial<'_>, read: usize) -> bool {
        let began = Instant::now();
        if let Some(conn) = self.shard.conns.borrow_mut().get_mut(id) {
            conn.in_turn = true;
            conn.last_active = began;
        }
        let buffer = self.buffer.borrow();
        let mut bytes = &buffer[..read];
        let mut outcome = Ok(Flow::Continue);
        if !partial.bytes.is_empty() {
            // The frame that had begun is finished first, so that the rest need not be copied.
            while let Ok(Split::Incomplete(total)) = frame::split(&partial.bytes) {
                let missing = total.max(frame::PREFIX_BYTES) - partial.bytes.len();
                let take = missing.min(bytes.len());
                if take == 0 {
                    break;
                }
                partial.extend(&bytes[..take]);
                bytes = &bytes[take..];
            }
            let (used, flow) = self.frames(id, &partial.bytes);
            partial.consume(used);
            outcome = flow;
        }
        if partial.bytes.is_empty() && outcome == Ok(Flow::Continue) {
            let (used, flow) = self.frames(id, bytes);
            bytes = &bytes[used..];
            outcome = flow;
        }
        partial.extend(bytes);
        self.finish_turn(id, began, partial, outcome)
    }

    fn finish_turn(
        &self,
        id: ConnId,
        began: Instant,
        partial: &Partial<'_>,
        outcome: Result<Flow, ()>,
    ) -> bool {
        self.service.turn_end();
        let mut write = true;
        if let Some(conn) = self.shard.conns.borrow_mut().get_mut(id) {
            conn.in_turn = false;
            if conn.awaiting > 0 && !conn.out.is_empty() {
                write = false;
                self.shard.schedule(id, conn);
            }
            conn.frame_since = match (partial.bytes.is_empty(), outcome) {
                (false, Ok(Flow::Continue)) => conn.frame_since.or(Some(began)),
                _ => None,
            };
        }
        if write {
            self.shard.flush(id);
        }
        self.shard.end_turn(began, "frames of a connection", 0);
        outcome != Ok(Flow::Close) && outcome.is_ok()
    }

    /// Waits for room where a frame found none, and for the peer to read where it
    /// has not; then hands over what is left. `true`: nothing whole is left.
    async fn settle(&self, id: ConnId, partial: &mut Partial<'_>) -> bool {
        loop {
            let wait = match self.shard.conns.borrow().get(id) {
                None => return true,
                Some(conn) => {
                    (conn.out.len() > self.shard.limits.out_bytes_max).then(|| conn.drained.clone())
                }
            };
            match wait {
                Some(drained) => drained.wait().await,
                None => break,
            }
        }
        if !matches!(frame::split(&partial.bytes), Ok(Split::Frame(..))) {
            return true;
        }
        let began = Instant::now();
        if let Some(conn) = self.shard.conns.borrow_mut().get_mut(id) {
            conn.in_turn = true;
        }
        let (used, outcome) = self.frames(id, &partial.bytes);
        partial.consume(used);
        if !self.finish_turn(id, began, partial, outcome) {
            self.shard.close(id);
            self.shard.conns.borrow_mut().remove(id);
            return true;
        }
        if outcome == Ok(Flow::Later) {
            self.service.room().wait().await;
        }
        false
    }

    /// Hands over every whole frame at the start of `bytes`; returns how many
    /// bytes they took and why it stopped. Stops early when too many answers wait.
    fn frames(&self, id: ConnId, bytes: &[u8]) -> (usize, Result<Flow, ()>) {
        let mut used = 0;
        loop {
            match frame::split(&bytes[used..]) {
                Ok(Split::Frame(frame, len)) => {
                    match self.service.frame(id, &frame) {
                        Flow::Continue => used += len,
                        flow => return (used, Ok(flow)),
                    }
                    if self.is_over_out_limit(id) {
                        return (used, Ok(Flow::Continue));
                    }
                }
                Ok(Split::Incomplete(_)) => return (used, Ok(Flow::Continue)),
                Err(error) => {
                    self.shard.count_bad(id, &error);
                    return (used, Err(()));
                }
            }
        }
    }

    fn is_over_out_limit(&self, id: ConnId) -> bool {
        let conns = self.shard.conns.borrow();
        conns
            .get(id)
            .is_some_and(|conn| conn.out.len() > self.shard.limits.out_bytes_max)
    }
}

impl<M: Send + 'static> Shard<M> {
    /// Counts what could not be read as a frame or header; one line for each
    /// power of two, so that a flood of it does not become a flood of lines.
    pub fn count_bad(&self, conn: ConnId, error: &dyn std::fmt::Display) {
        let count = self.bad_frames.get() + 1;
        self.bad_frames.set(count);
        if count.is_power_of_two() {
            let peer = self.peer(conn).map(|peer| peer.to_string());
            tracing::warn!(
                peer = peer.as_deref().unwrap_or("gone"),
                total = count,
                "connection closed: {error}"
            );
        }
    }
}

/// The start of a frame that is not all there yet, counted in the shard's budget.
struct Partial<'a> {
    bytes: Vec<u8>,
    budget: &'a std::cell::Cell<usize>,
}

impl Partial<'_> {
    fn extend(&mut self, bytes: &[u8]) {
        self.budget.set(self.budget.get() + bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    fn consume(&mut self, used: usize) {
        self.budget.set(self.budget.get() - used);
        if used == self.bytes.len() {
            self.bytes = Vec::new();
        } else {
            self.bytes.drain(..used);
        }
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        self.budget.set(self.budget.get() - self.bytes.len());
    }
}
