//! Connections: their state, their bounds, and the writing of answers.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::out::OutQueue;
use super::{ConnId, LocalEvent, Shard, ShardId, sleep, spawn};
use crate::reactor::Socket;

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnLimits {
    /// Connections of the whole process. One more is closed at once.
    pub connections_max: usize,
    /// Time without a byte in either direction after which a connection is closed.
    pub idle: Duration,
    /// Time that a frame may take to arrive once it has begun.
    pub frame_time: Duration,
    /// Bytes of answers that wait for the peer to read. Above it the connection is
    /// not read: a peer that does not take answers cannot ask for more.
    pub out_bytes_max: usize,
}

/// Time between two looks at idle connections.
const SWEEP: Duration = Duration::from_secs(5);

/// More bytes than that take long to write, and to get ready: readers of old messages ask for
/// them.
const BUSY_BYTES: usize = 16 * 1024;

/// State of one connection.
pub(super) struct Conn {
    pub peer: SocketAddr,
    pub socket: Rc<Socket>,
    pub out: OutQueue,
    /// Its own task is handling frames and will write when it is done.
    pub in_turn: bool,
    /// What was last written to it was much ([`BUSY_BYTES`]): its next turn has a round of its
    /// own.
    pub is_busy: bool,
    /// It is in the shard's list of connections to be written.
    pub dirty: bool,
    /// Requests of this connection that another shard is about to answer.
    pub awaiting: u32,
    /// Bytes that their answers may have: they count like answers that wait.
    pub expected: usize,
    /// It is in the shard's list of connections that wait for such answers.
    pub held: bool,
    /// The socket was full: a task of its own writes now.
    pub draining: bool,
    /// It is at its end: nothing is written any more, and its task stops reading.
    pub broken: bool,
    /// Notified when everything was written, or nothing will be any more.
    pub drained: Rc<LocalEvent>,
    pub last_active: Instant,
    /// When the frame that is arriving began.
    pub frame_since: Option<Instant>,
}

impl Conn {
    pub fn new(peer: SocketAddr, socket: Rc<Socket>) -> Conn {
        Conn {
            peer,
            socket,
            out: OutQueue::default(),
            in_turn: false,
            is_busy: false,
            dirty: false,
            awaiting: 0,
            expected: 0,
            held: false,
            draining: false,
            broken: false,
            drained: Rc::default(),
            last_active: Instant::now(),
            frame_since: None,
        }
    }
}

impl Conn {
    /// Bytes of answers that wait to be written or may come any moment.
    pub fn unread(&self) -> usize {
        self.out.len() + self.expected
    }

    /// Ends the connection: what waits to be written is dropped, whoever waits for
    /// it goes on, and its task sees the end.
    pub fn fail(&mut self) {
        self.broken = true;
        self.draining = false;
        self.out = OutQueue::default();
        self.drained.notify();
        // It fails where the peer is gone already.
        let _ = self.socket.shut_down();
    }
}

/// The connections of one shard.
pub(super) struct Conns {
    shard: ShardId,
    slots: Vec<(u32, Option<Conn>)>,
    free: Vec<u32>,
}

impl Conns {
    pub fn new(shard: ShardId) -> Conns {
        Conns {
            shard,
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub fn insert(&mut self, conn: Conn) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, place) = &mut self.slots[slot as usize];
        *generation += 1;
        *place = Some(conn);
        ConnId {
            shard: self.shard,
            slot,
            generation: *generation,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn remove(&mut self, id: ConnId) {
        if self.get(id).is_some() {
            self.slots[id.slot as usize].1 = None;
            self.free.push(id.slot);
        }
    }

    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        debug_assert_eq!(id.shard, self.shard);
        let (generation, conn) = self.slots.get(id.slot as usize)?;
        conn.as_ref().filter(|_| *generation == id.generation)
    }

    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        debug_assert_eq!(id.shard, self.shard);
        let (generation, conn) = self.slots.get_mut(id.slot as usize)?;
        conn.as_mut().filter(|_| *generation == id.generation)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.slots.iter_mut().filter_map(|(_, conn)| conn.as_mut())
    }
}

impl<M: Send + 'static> Shard<M> {
    /// Writes what a connection is to be sent, as far as its socket takes it; a
    /// task of its own goes on where it does not.
    pub(super) fn flush(self: &Rc<Self>, id: ConnId) {
        let mut conns = self.conns.borrow_mut();
        let Some(conn) = conns.get_mut(id) else {
            return;
        };
        if conn.draining || conn.out.is_empty() {
            return;
        }
        conn.is_busy = conn.out.len() > BUSY_BYTES;
        match conn.out.send(conn.socket.as_raw_fd()) {
            Ok(true) => {
                conn.last_active = Instant::now();
                conn.drained.notify();
            }
            Ok(false) => {
                conn.draining = true;
                drop(conns);
                let shard = self.clone();
                spawn(
                    "answers to a slow reader",
                    async move { shard.drain(id).await },
                );
            }
            Err(_) => conn.fail(),
        }
    }

    /// Writes to a socket that is full, waiting for it. Ends by itself: with the last
    /// byte, or with an error after a shutdown.
    async fn drain(self: Rc<Self>, id: ConnId) {
        loop {
            let socket = match self.conns.borrow().get(id) {
                Some(conn) if conn.draining => conn.socket.clone(),
                _ => return,
            };
            let waited = socket.writable().await;
            let mut conns = self.conns.borrow_mut();
            let Some(conn) = conns.get_mut(id).filter(|conn| conn.draining) else {
                return;
            };
            let before = conn.out.len();
            match waited.and_then(|()| conn.out.send(socket.as_raw_fd())) {
                Ok(all) => {
                    if conn.out.len() < before {
                        conn.last_active = Instant::now();
                    }
                    if all {
                        conn.draining = false;
                        conn.drained.notify();
                        return;
                    }
                }
                Err(_) => {
                    conn.fail();
                    return;
                }
            }
        }
    }

    /// Closes connections that are idle, or whose frame does not get done.
    pub(super) async fn sweep(self: Rc<Self>) {
        loop {
            sleep(SWEEP).await;
            for conn in self.conns.borrow_mut().iter_mut() {
                let idle = conn.last_active.elapsed();
                let frame = conn.frame_since.map(|since| since.elapsed());
                if idle > self.limits.idle {
                    tracing::debug!(peer = %conn.peer, seconds = idle.as_secs(), "idle connection closed");
                    conn.fail();
                } else if frame.is_some_and(|time| time > self.limits.frame_time) {
                    tracing::info!(
                        peer = %conn.peer,
                        limit_seconds = self.limits.frame_time.as_secs(),
                        "connection closed: its frame does not get done"
                    );
                    conn.fail();
                }
            }
        }
    }
}
