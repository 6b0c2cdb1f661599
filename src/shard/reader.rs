//! Reading frames from a connection.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_lite::AsyncRead;
use glommio::net::TcpStream;

use super::executor::sleep;
use super::{ConnId, Flow, Service, Shard, Turn};
use crate::wire::frame::{self, Split};

/// Bytes read at once. One buffer serves all connections of a shard: what is not
/// a whole frame is copied out before another one reads.
const READ_BYTES: usize = 256 * 1024;

/// Frames up to this size are read without asking for room.
const SMALL_FRAME_BYTES: usize = 64 * 1024;

/// Bytes of large frames that a shard is reading. At the bound a connection with
/// the start of one more is not read until one of them is done or given up.
const LARGE_FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes that were read and are not handled yet, for want of room in the log, say.
/// At the bound connections of which nothing was read yet are not read.
const UNHANDLED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Time between two looks for room.
const LOOK: Duration = Duration::from_millis(10);

/// Reads the connections of one shard.
pub(super) struct Reader<S: Service> {
    pub shard: Rc<Shard<S::Message>>,
    pub service: Rc<S>,
    buffer: RefCell<Vec<u8>>,
    large: Cell<usize>,
    unhandled: Cell<usize>,
}

/// Why the handing over of frames stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// No whole frame is left.
    Read,
    /// The service has no room for the next one.
    Later,
    /// Too many answers wait to be written.
    Write,
    /// The connection is to be closed.
    Close,
}

impl<S: Service> Reader<S> {
    pub fn new(shard: &Rc<Shard<S::Message>>, service: &Rc<S>) -> Reader<S> {
        Reader {
            shard: shard.clone(),
            service: service.clone(),
            buffer: RefCell::new(vec![0; READ_BYTES]),
            large: Cell::new(0),
            unhandled: Cell::new(0),
        }
    }

    /// Reads frames and hands them over until the connection ends.
    pub async fn connection(&self, id: ConnId, stream: &mut TcpStream) {
        let mut partial = Partial {
            bytes: Vec::new(),
            admitted: 0,
            large: &self.large,
            unhandled: &self.unhandled,
        };
        while self.may_read(id, &mut partial).await {
            // The buffer is borrowed inside the poll only; what was read is used up
            // before anything is awaited.
            let read = poll_fn(|cx| {
                let mut buffer = self.buffer.borrow_mut();
                match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                    Poll::Ready(Ok(n)) => Poll::Ready(n),
                    Poll::Ready(Err(_)) => Poll::Ready(0),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
            if read == 0 {
                return;
            }
            let mut stop = self.turn(id, &mut partial, read);
            while stop != Stop::Read {
                match stop {
                    Stop::Later => self.service.room().wait().await,
                    Stop::Write => self.written(id).await,
                    Stop::Read | Stop::Close => return,
                }
                if self.is_broken(id) {
                    return;
                }
                stop = self.turn(id, &mut partial, 0);
            }
            glommio::yield_if_needed().await;
        }
    }

    fn is_broken(&self, id: ConnId) -> bool {
        let conns = self.shard.conns.borrow();
        conns.get(id).is_none_or(|conn| conn.broken)
    }

    /// Waits until there is memory for what the connection may send next. `false`:
    /// it is at its end.
    async fn may_read(&self, id: ConnId, partial: &mut Partial<'_>) -> bool {
        loop {
            if self.is_broken(id) {
                return false;
            }
            if partial.bytes.is_empty() {
                // It holds nothing, so it can wait for those that do.
                if self.unhandled.get() <= UNHANDLED_BYTES_MAX {
                    return true;
                }
            } else if partial.admit() {
                return true;
            }
            sleep(LOOK).await;
        }
    }

    /// Waits until answers have been written, or never will be.
    async fn written(&self, id: ConnId) {
        loop {
            let drained = match self.shard.conns.borrow().get(id) {
                Some(conn) if conn.unread() > self.out_max() && !conn.broken => {
                    if !conn.draining && conn.expected == 0 {
                        // Written in full or about to be: nobody tells.
                        return;
                    }
                    conn.drained.clone()
                }
                _ => return,
            };
            drained.wait().await;
        }
    }

    fn out_max(&self) -> usize {
        self.shard.limits.out_bytes_max
    }

    /// Hands over what is left of earlier reads and the frames in the first `read`
    /// bytes of the buffer, then writes the answers. What is left goes to `partial`.
    fn turn(&self, id: ConnId, partial: &mut Partial<'_>, read: usize) -> Stop {
        let this = Turn::begin();
        let began = this.began;
        if let Some(conn) = self.shard.conns.borrow_mut().get_mut(id) {
            conn.in_turn = true;
            conn.last_active = began;
        }
        let buffer = self.buffer.borrow();
        let mut bytes = &buffer[..read];
        let mut stop = Stop::Read;
        let mut handled = false;
        if !partial.bytes.is_empty() {
            // The frame that had begun is finished first, so that the rest need not be copied.
            while let Ok(Split::Incomplete(total)) = frame::split(&partial.bytes) {
                let take = (total - partial.bytes.len()).min(bytes.len());
                if take == 0 {
                    break;
                }
                partial.extend(&bytes[..take]);
                bytes = &bytes[take..];
            }
            let used;
            (used, stop) = self.frames(id, &partial.bytes);
            handled = used > 0;
            partial.consume(used);
        }
        if partial.bytes.is_empty() && stop == Stop::Read {
            let used;
            (used, stop) = self.frames(id, bytes);
            handled |= used > 0;
            bytes = &bytes[used..];
        }
        partial.extend(bytes);
        drop(buffer);
        self.service.turn_end();
        let mut write = true;
        if let Some(conn) = self.shard.conns.borrow_mut().get_mut(id) {
            conn.in_turn = false;
            let few = conn.out.len() <= self.out_max();
            if conn.awaiting > 0 && !conn.out.is_empty() && few {
                write = false;
                self.shard.schedule(id, conn);
            }
            conn.frame_since = match stop {
                Stop::Read if partial.bytes.is_empty() => None,
                Stop::Read if !handled => conn.frame_since.or(Some(began)),
                Stop::Read => Some(began),
                // It is not the peer that keeps the frame from being handled.
                _ => None,
            };
        }
        if write {
            self.shard.flush(id);
        }
        self.shard.end_turn(this, "frames of a connection");
        stop
    }

    /// Hands over every whole frame at the start of `bytes`; returns how many
    /// bytes they took and why it stopped.
    fn frames(&self, id: ConnId, bytes: &[u8]) -> (usize, Stop) {
        let mut used = 0;
        loop {
            match frame::split(&bytes[used..]) {
                Ok(Split::Frame(frame, len)) => match self.service.frame(id, &frame) {
                    Flow::Continue => {
                        used += len;
                        if self.is_over_out_max(id) {
                            return (used, Stop::Write);
                        }
                    }
                    Flow::Later => return (used, Stop::Later),
                    Flow::Close => return (used, Stop::Close),
                },
                Ok(Split::Incomplete(_)) => return (used, Stop::Read),
                Err(error) => {
                    self.shard.count_bad(id, &error);
                    return (used, Stop::Close);
                }
            }
        }
    }

    fn is_over_out_max(&self, id: ConnId) -> bool {
        let conns = self.shard.conns.borrow();
        conns
            .get(id)
            .is_some_and(|conn| conn.unread() > self.out_max())
    }
}

/// What was read of a connection and is not handled yet, counted against the
/// shard's bounds.
struct Partial<'a> {
    bytes: Vec<u8>,
    /// Size of the large frame that has room, 0 without one.
    admitted: usize,
    large: &'a Cell<usize>,
    unhandled: &'a Cell<usize>,
}

impl Partial<'_> {
    /// Whether the frame that has begun may be read to its end.
    fn admit(&mut self) -> bool {
        let total = match frame::split(&self.bytes) {
            Ok(Split::Incomplete(total)) => total,
            _ => 0,
        };
        if total <= SMALL_FRAME_BYTES || self.admitted > 0 {
            return true;
        }
        if self.large.get() + total > LARGE_FRAME_BYTES_MAX {
            return false;
        }
        self.large.set(self.large.get() + total);
        self.admitted = total;
        self.bytes.reserve_exact(total - self.bytes.len());
        true
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.unhandled.set(self.unhandled.get() + bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    fn consume(&mut self, used: usize) {
        if used == 0 {
            return;
        }
        self.unhandled.set(self.unhandled.get() - used);
        self.large.set(self.large.get() - self.admitted);
        self.admitted = 0;
        if used == self.bytes.len() {
            self.bytes = Vec::new();
        } else {
            self.bytes.drain(..used);
        }
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        self.unhandled.set(self.unhandled.get() - self.bytes.len());
        self.large.set(self.large.get() - self.admitted);
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
