//! The loop: one executor per core, its connections, its lanes to other shards.
//!
//! What a request means is a [`Service`]'s business; this module brings it
//! frames, carries messages between shards and writes what it answers. A turn of
//! a connection is: read what is there, hand over every whole frame, write all
//! answers at once.

mod conn;
mod ids;
mod lane;
mod listener;
mod out;
mod partial;
mod reader;
mod remote;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

pub use crate::local_event::LocalEvent;
pub use crate::reactor::{
    allowed_cpus, begin_turn_anew, block_on, blocking, busy_poll, next_turn, receive,
    round_of_its_own, send, sleep, spawn, spawn_executor, turn_began,
};
pub use crate::store::ShardId;
pub use conn::ConnLimits;
pub use ids::ConnId;
pub use lane::{LaneEnds, LaneKind, mesh};
pub use listener::{bind, bind_alone, serve};
pub use out::OutQueue;
pub use remote::{Remote, RemoteError};

use crate::large_alloc;
use crate::reactor::long_turns;
use crate::wire::frame::Frame;
use conn::Conns;
use lane::Outbox;

/// Longest time that an answer waits for those of other shards.
pub const HOLD_MAX: Duration = Duration::from_millis(1);

/// What becomes of a connection after a frame was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// On to the next frame.
    Continue,
    /// There is no room for this one: nothing was done with it. It is handed over
    /// again after [`Service::room`]; until then the connection is not read.
    Later,
    /// The peer does not speak the protocol: the connection is closed.
    Close,
}

/// What a shard serves. All calls come on the shard's thread, one at a time.
pub trait Service: 'static {
    /// What crosses lanes.
    type Message: Send + 'static;

    /// One whole frame of a connection.
    fn frame(&self, conn: ConnId, frame: &Frame<'_>) -> Flow;

    /// A connection is gone; nothing written to it any more arrives.
    fn closed(&self, conn: ConnId);

    /// One message from another shard. Given back when there is no room for it
    /// now: it comes again after [`Service::room`], and its lane waits.
    fn message(&self, from: ShardId, message: Self::Message) -> Option<Self::Message>;

    /// A turn is over: what its frames or messages caused is done now, before
    /// answers are written.
    fn turn_end(&self);

    /// Notified when there is room again.
    fn room(&self) -> &LocalEvent;
}

/// Long turns and large allocations of this thread.
fn turn_figures() -> (u64, u64) {
    (long_turns(), large_alloc::on_this_thread())
}

/// One shard's loop: what a service works with. Lives on its shard's thread.
pub struct Shard<M> {
    id: ShardId,
    /// Its number in the process, for log lines.
    number: ShardId,
    conns: RefCell<Conns>,
    outboxes: Vec<Outbox<M>>,
    /// Connections with answers that their own turn will not write.
    dirty: RefCell<Vec<ConnId>>,
    dirty_event: LocalEvent,
    /// Connections that hold answers back for those of other shards.
    held: RefCell<Vec<ConnId>>,
    held_event: LocalEvent,
    limits: ConnLimits,
    /// Connections of the whole process.
    open: Arc<AtomicUsize>,
    /// Of the thread, when the shard began to serve.
    figures_before: Cell<(u64, u64)>,
    bad_frames: Cell<u64>,
    stopping: Cell<bool>,
}

impl<M: Send + 'static> Shard<M> {
    /// A shard with its ends of the lanes; starts the tasks that serve them. Call
    /// it on the shard's executor. `id` is its number among the shards that it has lanes
    /// to, `number` the one in the process that log lines name. `open` counts the
    /// connections of all shards.
    pub fn new(
        id: ShardId,
        number: ShardId,
        lanes: &LaneEnds<M>,
        limits: ConnLimits,
        open: Arc<AtomicUsize>,
    ) -> Rc<Shard<M>> {
        let shard = Rc::new(Shard {
            id,
            number,
            conns: RefCell::new(Conns::new(id)),
            outboxes: lanes.outboxes(),
            dirty: RefCell::default(),
            dirty_event: LocalEvent::default(),
            held: RefCell::default(),
            held_event: LocalEvent::default(),
            limits,
            open,
            figures_before: Cell::default(),
            bad_frames: Cell::new(0),
            stopping: Cell::new(false),
        });
        let writer = shard.clone();
        spawn("answers", async move { writer.write_dirty().await });
        let writer = shard.clone();
        spawn(
            "answers held back",
            async move { writer.write_held().await },
        );
        shard
    }

    /// This shard's number among those that it has lanes to.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Its number in the process.
    pub fn number(&self) -> ShardId {
        self.number
    }

    /// Sends a message to another shard. Messages of one turn travel together.
    pub fn send(&self, to: ShardId, kind: LaneKind, message: M) {
        self.outboxes[to.index()].push(kind, message);
    }

    /// Appends to what a connection of this shard is to be sent. `false`: it is gone.
    pub fn write(&self, conn: ConnId, append: impl FnOnce(&mut OutQueue)) -> bool {
        let mut conns = self.conns.borrow_mut();
        let Some(state) = conns.get_mut(conn) else {
            return false;
        };
        if state.broken {
            return false;
        }
        append(&mut state.out);
        if !state.in_turn {
            self.schedule(conn, state);
        }
        true
    }

    /// Has a connection written at the end of the turn, or together with the
    /// answers of other shards that it waits for.
    fn schedule(&self, conn: ConnId, state: &mut conn::Conn) {
        let (flag, list, event) = if state.awaiting > 0 {
            (&mut state.held, &self.held, &self.held_event)
        } else {
            (&mut state.dirty, &self.dirty, &self.dirty_event)
        };
        if !std::mem::replace(flag, true) {
            let mut list = list.borrow_mut();
            if list.is_empty() {
                event.notify();
            }
            list.push(conn);
        }
    }

    /// A request of a connection went to another shard, which answers within
    /// microseconds. What this shard answers meanwhile waits for that: a client
    /// with many requests in flight gets their answers in one write and sends the
    /// next ones in one, instead of both in halves. Nothing waits longer than
    /// [`HOLD_MAX`].
    ///
    /// The answer may have `bytes` bytes: until it is there they count as if they
    /// waited to be written, so that a client that asks for much and reads nothing
    /// is not read any further.
    pub fn await_remote(&self, conn: ConnId, bytes: usize) {
        if let Some(state) = self.conns.borrow_mut().get_mut(conn) {
            state.awaiting += 1;
            state.expected += bytes;
        }
    }

    /// The other shard has answered, or will not do so soon.
    pub fn remote_done(&self, conn: ConnId, bytes: usize) {
        if let Some(state) = self.conns.borrow_mut().get_mut(conn) {
            state.awaiting -= 1;
            state.expected -= bytes;
            if bytes > 0 {
                state.drained.notify();
            }
            if state.awaiting == 0 && !state.out.is_empty() {
                self.schedule(conn, state);
            }
        }
    }

    /// Whether so many answers of a connection wait to be written that its peer
    /// gets no more for now.
    pub fn is_full(&self, conn: ConnId) -> bool {
        let conns = self.conns.borrow();
        conns
            .get(conn)
            .is_some_and(|state| state.unread() > self.limits.out_bytes_max)
    }

    /// The peer's address of a connection of this shard.
    pub fn peer(&self, conn: ConnId) -> Option<SocketAddr> {
        self.conns.borrow().get(conn).map(|state| state.peer)
    }

    /// Ends a connection of this shard.
    pub fn close(&self, conn: ConnId) {
        if let Some(state) = self.conns.borrow_mut().get_mut(conn) {
            state.fail();
        }
    }

    /// Takes no new connections, but goes on with those that are there.
    pub fn stop_accepting(&self) {
        self.stopping.set(true);
    }

    /// Connections of this shard.
    pub fn connections(&self) -> usize {
        self.conns.borrow().len()
    }

    /// Turns of this thread above 10 ms and its allocations above 128 KiB since the shard began
    /// to serve, whatever task they belong to.
    pub fn turn_figures(&self) -> (u64, u64) {
        let (turns, allocations) = turn_figures();
        let (turns_before, allocations_before) = self.figures_before.get();
        (turns - turns_before, allocations - allocations_before)
    }

    async fn write_held(self: Rc<Self>) {
        loop {
            if self.held.borrow().is_empty() {
                self.held_event.wait().await;
            }
            sleep(HOLD_MAX).await;
            for conn in self.held.take() {
                if let Some(state) = self.conns.borrow_mut().get_mut(conn) {
                    state.held = false;
                }
                self.flush(conn);
            }
        }
    }

    async fn write_dirty(self: Rc<Self>) {
        loop {
            let dirty = self.dirty.take();
            if dirty.is_empty() {
                self.dirty_event.wait().await;
                continue;
            }
            for conn in dirty {
                if let Some(state) = self.conns.borrow_mut().get_mut(conn) {
                    state.dirty = false;
                }
                self.flush(conn);
            }
        }
    }
}
