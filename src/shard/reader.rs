//! Reading frames from a connection.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::partial::{COPY_BYTES_MAX, Partial, READ_BYTES, Unhandled, read_buffer};
use super::{ConnId, Flow, Service, Shard, next_turn, round_of_its_own, sleep};
use crate::reactor::{Socket, turn_began};
use crate::wire::frame::{self, Split};

/// Time between two looks for room.
const LOOK: Duration = Duration::from_millis(10);

/// Reads the connections of one shard.
pub(super) struct Reader<S: Service> {
    pub shard: Rc<Shard<S::Message>>,
    pub service: Rc<S>,
    buffer: RefCell<Box<[u8]>>,
    counts: Unhandled,
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
            buffer: RefCell::new(read_buffer()),
            counts: Unhandled::new(),
        }
    }

    /// Reads frames and hands them over until the connection ends.
    pub async fn connection(&self, id: ConnId, socket: &Socket) {
        let mut partial = Partial::new(&self.counts);
        while self.may_read(id, &mut partial).await {
            if self.is_busy(id) {
                socket.readable().await;
                round_of_its_own().await;
            }
            // The buffer is borrowed inside the poll only; what was read is used up
            // before anything is awaited.
            let holds_nothing = partial.bytes.is_empty();
            let read = poll_fn(|cx| {
                // Others may have taken the room while it waited for its peer.
                if holds_nothing && !self.counts.has_room() {
                    return Poll::Ready(None);
                }
                let mut buffer = self.buffer.borrow_mut();
                let read = socket.poll_receive(cx, &mut buffer);
                read.map(|read| Some(read.unwrap_or(0)))
            })
            .await;
            let Some(read) = read else {
                continue;
            };
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
            if read == READ_BYTES {
                // There may be more, and nothing makes this task wait for it.
                next_turn().await;
            }
        }
    }

    fn is_busy(&self, id: ConnId) -> bool {
        let conns = self.shard.conns.borrow();
        conns.get(id).is_some_and(|conn| conn.is_busy)
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
                if self.counts.has_room() {
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
        let began = turn_began();
        if let Some(conn) = self.shard.conns.borrow_mut().get_mut(id) {
            conn.in_turn = true;
            conn.last_active = began;
        }
        let mut shared = self.buffer.borrow_mut();
        let taken = partial.taken.take();
        let mut bytes = match &taken {
            Some((buffer, range)) => &buffer[range.clone()],
            None => &shared[..read],
        };
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
        let rest = bytes.len();
        if stop == Stop::Read || (taken.is_none() && rest <= COPY_BYTES_MAX) {
            partial.extend(bytes);
            if let Some((buffer, _)) = taken {
                self.counts.give_back(buffer);
            }
        } else if let Some((buffer, range)) = taken {
            partial.taken = Some((buffer, range.end - rest..range.end));
        } else {
            let buffer = std::mem::replace(&mut *shared, self.counts.lend());
            partial.taken = Some((buffer, read - rest..read));
        }
        drop(shared);
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
