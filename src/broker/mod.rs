//! What a request means: one file per family of requests.
//!
//! ```text
//! frame ─> dispatch ─┬─ send ──── checks ─┐             ┌─> append ─> acks ─────┐
//!                    ├─ pull ──── checks ─┼─> owner? ───┼─> read ──> long_poll ─┼─> reply
//!                    ├─ queue_requests ───┘   (lane)    └─> queue_requests ─────┤
//!                    └─ control: topics, groups, clients, admin (shard 0) ──────┘
//! ```
//!
//! Checks run on the shard that holds the connection, against its copy of the
//! control state ([`view`]); the owner of the queue does the rest. Handlers are
//! plain functions; what must wait runs as a task of its own.

mod acks;
mod append;
mod ask;
mod budgets;
pub mod control;
mod control_requests;
mod delay;
mod disk;
mod dispatch;
mod flush_choice;
mod long_poll;
mod members;
pub mod message;
pub mod offline;
pub mod peers;
mod persistence;
mod placement;
mod process;
mod pull;
pub mod query;
mod queue_requests;
mod read;
mod registration;
mod reply;
mod retention;
mod send;
mod send_back;
mod serve_shard;
mod siblings;
mod start;
mod start_error;
mod stop;
mod view;

pub use start::{Broker, start, stop};
pub use start_error::StartError;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::config::Settings;
use crate::shard::{LaneKind, LocalEvent, Shard, ShardId};
use crate::store::StoreHandle;
use crate::wire::command::Response;
use crate::wire::header::Scratch;
use acks::Acks;
use ask::Asks;
use control::Control;
use control::offsets::OffsetTable;
use control::settings::ControlSettings;
use long_poll::LongPolls;
use message::{Message, ReplyTo};
use persistence::TableFiles;
use registration::Registrar;
use reply::SendReplyConstants;
use siblings::Siblings;
use view::ControlView;

/// Forwarded requests of one shard that are under way. At the bound its
/// connections wait: they are not read until answers come back.
const FORWARDED_MAX: usize = 8192;

/// Requests that wait for a topic or group to be made, per shard. At the bound
/// connections wait.
const DEFERRED_MAX: usize = 1024;

/// One shard of the broker. Lives on its shard's thread.
pub struct BrokerShard {
    me: Weak<BrokerShard>,
    shard: Rc<Shard<Message>>,
    store: StoreHandle,
    settings: RefCell<Arc<Settings>>,
    constants: SendReplyConstants,
    store_host: SocketAddr,
    disk: Arc<disk::DiskGauge>,
    retention: retention::RetentionState,
    /// Memory of the machine or container, in bytes.
    memory_bytes: u64,
    /// What the broker adds to the properties of every message.
    own_properties: Vec<u8>,
    view: RefCell<ControlView>,
    offsets: RefCell<OffsetTable>,
    polls: RefCell<LongPolls>,
    acks: RefCell<Acks>,
    asks: Asks,
    scratch: RefCell<Scratch>,
    properties: RefCell<Vec<u8>>,
    physical: RefCell<Vec<i64>>,
    delay: delay::DelayQueues,
    /// The time in ms since 1970 at the begin of a connection's turn; 0 between turns.
    turn_ms: Cell<u64>,
    /// Queues with something new, a buffer that is used again.
    arrivals: RefCell<Vec<crate::store::QueueIndex>>,
    /// Tasks that read what is not in memory.
    cold: Cell<usize>,
    forwarded: Cell<usize>,
    deferred: Cell<usize>,
    /// Queries by key that are under way.
    queries: Cell<usize>,
    unique: Cell<u64>,
    queue_turn: Cell<u32>,
    counters: Counters,
    /// A pull was parked where none was.
    poll_event: LocalEvent,
    room: LocalEvent,
    stopping: Cell<bool>,
    /// What only the control shard has.
    control: Option<ControlShard>,
}

/// What the control shard owns.
struct ControlShard {
    state: RefCell<Control>,
    settings: RefCell<ControlSettings>,
    registrar: Registrar,
    tables: TableFiles,
    siblings: Siblings,
}

/// What a shard has done since its start.
#[derive(Default)]
struct Counters {
    put_failed: Cell<u64>,
    got_messages: Cell<u64>,
    pulls_found: Cell<u64>,
    pulls_missed: Cell<u64>,
    /// Requests that went to another shard.
    forwarded: Cell<u64>,
}

fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// Time since 1970, ms.
fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

impl BrokerShard {
    fn id(&self) -> ShardId {
        self.shard.id()
    }

    /// The log that this shard owns: its number in the process.
    fn log(&self) -> ShardId {
        self.shard.number()
    }

    /// The shard as its tasks hold it.
    fn rc(&self) -> Rc<BrokerShard> {
        match self.me.upgrade() {
            Some(me) => me,
            None => unreachable!("a shard lives as long as its process"),
        }
    }

    fn is_local(&self, to: &ReplyTo) -> bool {
        to.conn.shard == self.id()
    }

    /// Answers a request with what `write` appends: at once where its connection
    /// is this shard's, through the lane back where it is not.
    fn reply_with(&self, to: &ReplyTo, write: impl FnOnce(&mut Vec<u8>)) {
        if self.is_local(to) {
            if !to.one_way {
                self.shard.write(to.conn, |out| write(out.buffer()));
            }
            return;
        }
        let message = if to.one_way {
            Message::Done(*to)
        } else {
            let mut frame = Vec::with_capacity(256);
            write(&mut frame);
            Message::Reply(*to, vec![frame.into()])
        };
        self.shard.send(to.conn.shard, LaneKind::Reply, message);
    }

    fn reply(&self, to: &ReplyTo, response: &Response) {
        self.reply_with(to, |out| response.encode(out, to.serialize, to.opaque));
    }

    fn refuse(&self, to: &ReplyTo, code: i32, remark: impl Into<String>) {
        self.reply(to, &Response::error(code, remark));
    }

    /// Takes a forwarded request off the count.
    fn forwarded_done(&self, to: &ReplyTo) {
        if to.awaited {
            self.shard.remote_done(to.conn, to.expected as usize);
        }
        let before = self.forwarded.get();
        self.forwarded.set(before - 1);
        if before == FORWARDED_MAX {
            self.room.notify();
        }
    }

    /// The time, ms since 1970; of a connection's turn, the time at which it began: a look
    /// at the clock is not free.
    fn turn_ms(&self) -> u64 {
        match self.turn_ms.get() {
            0 => now_ms(),
            began => began,
        }
    }

    /// Whether one more request may be forwarded now.
    fn may_forward(&self) -> bool {
        self.forwarded.get() < FORWARDED_MAX
    }

    /// Has the connection of a request wait with other answers for this one.
    /// The answer may have `bytes` bytes.
    fn await_answer(&self, to: &mut ReplyTo, bytes: usize) {
        to.awaited = true;
        to.expected = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.shard.await_remote(to.conn, to.expected as usize);
    }

    fn forward(&self, to: ShardId, message: Message) {
        count(&self.counters.forwarded, 1);
        self.forwarded.set(self.forwarded.get() + 1);
        self.shard.send(to, LaneKind::Request, message);
    }

    fn write_pieces(&self, conn: crate::shard::ConnId, pieces: Vec<Bytes>) {
        let len = pieces.iter().map(Bytes::len).sum();
        self.shard.write(conn, |out| out.push_body(pieces, len));
    }
}
