//! What goes into the core and what becomes of what comes out.
//!
//! Everything goes in turns: something has come (commands, bytes, a connection, time), the core
//! handles it, and then everything that came of it is done at once, each connection being written
//! one time. A turn waits for nothing.
//!
//! Turns belong to the client's thread, with two exceptions. While nothing at all is on its way,
//! whoever sends takes the turn on his own thread ([`turn_of_caller`]) and so saves the wake-up
//! of the client's, which costs more than the send; and if he waits for the answer, he may read
//! it himself (see `lead`). With anything on its way commands gather in the inbox instead, and
//! share their turns.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::clock;
use super::executor::spawn;
use super::lead::{Lead, Watch};
use super::offset_files::{self, FileJob};
use super::peers::{Peers, Written, receive};
use super::poll_set::PollSet;
use super::tasks;
use super::waiters::{Callback, How, Waiter, Waiters};
use super::{Inbox, PublishTable, Sink};
use crate::bell::Bell;
use crate::client::core::Core;
use crate::client::core::io::{
    Answer, Command, ConsumerId, Delivery, FileFault, Input, Now, Outcome, Output, PeerId,
};
use crate::client::error::Result;
use crate::client::in_flight::{self, InFlight, Room};
use crate::client::one_shot::Answering;
use crate::client::settings::ClientSettings;
use crate::client::workers::Workers;
use crate::local_event::LocalEvent;

/// What the facade sends to the client's thread.
pub(crate) enum Post {
    /// A command, and who waits for its end.
    Command(Command, Waiter),
    /// Where deliveries of a consumer go, before it is started; `None` after its end.
    Sink(ConsumerId, Option<Sink>),
    /// Where senders wait for room: they are told when they have waited too long.
    Bound(Weak<InFlight>),
}

/// Bytes read at once.
const READ_BYTES: usize = 256 * 1024;

/// A buffer that one large frame grew beyond this is not kept, in bytes.
const PARTIAL_KEPT_MAX: usize = 256 * 1024;

/// The client's state.
pub(super) struct Driver {
    core: Core,
    outputs: Vec<Output>,
    writes: Vec<PeerId>,
    /// Those that were written in this turn.
    wrote: Vec<PeerId>,
    /// Connections that are to be made: by the client's thread.
    connects: Vec<(PeerId, Arc<str>)>,
    pub peers: Peers,
    read_buffer: Vec<u8>,
    /// Who reads the sockets.
    pub(super) watch: Watch,
    waiters: Waiters,
    /// Ends of commands that are told after the turn, so that nobody wakes up to a locked driver.
    answers: Vec<(Answering<Result<Answer>>, Result<Answer>)>,
    /// Callbacks that are handed over after the turn, together.
    called: Vec<Finished>,
    sinks: HashMap<ConsumerId, Sink>,
    published: Arc<PublishTable>,
    callbacks: Option<Workers<Finished>>,
    files: Option<Workers<FileJob>>,
    inbox: Inbox,
    offsets: PathBuf,
    /// Bounds at which senders wait for room.
    bounds: Vec<Weak<InFlight>>,
    /// Until when the client's thread waits, unless it is woken.
    armed: u64,
    pub stopped: bool,
    /// The client's thread has waited too long, or for the wrong things.
    changed: bool,
    pub connect_timeout: Duration,
    /// Posts that the inbox was given, and those of them that were handed to the core.
    posted: Arc<AtomicU64>,
    handled: u64,
}

/// The driver as others than the client's thread hold it.
pub(crate) struct Guarded {
    driver: Mutex<Driver>,
    bell: Arc<Bell>,
}

/// What the tasks of the client's thread share. The driver is locked within turns alone.
pub(super) struct Local {
    driver: Arc<Guarded>,
    /// Told when everything is to end.
    pub stopped: LocalEvent,
    /// Connections that are being made.
    pub running: Cell<usize>,
}

/// Held by every task.
pub(super) type Shared = Rc<Local>;

impl Guarded {
    pub fn new(
        core: Core,
        settings: &ClientSettings,
        inbox: Inbox,
        published: Arc<PublishTable>,
        posted: Arc<AtomicU64>,
    ) -> Arc<Guarded> {
        let folder = settings.offset_store_dir.clone();
        let bell = inbox.bell().clone();
        let driver = Driver {
            core,
            outputs: Vec::new(),
            writes: Vec::new(),
            wrote: Vec::new(),
            connects: Vec::new(),
            peers: Peers::default(),
            read_buffer: Vec::new(),
            watch: Watch::default(),
            waiters: Waiters::default(),
            answers: Vec::new(),
            called: Vec::new(),
            sinks: HashMap::new(),
            published,
            callbacks: None,
            files: None,
            inbox,
            offsets: folder.unwrap_or_else(offset_files::default_folder),
            bounds: Vec::new(),
            armed: u64::MAX,
            stopped: false,
            changed: false,
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
            posted,
            handled: 0,
        };
        let driver = Mutex::new(driver);
        Arc::new(Guarded { driver, bell })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Driver> {
        // A hook that panicked on a caller's thread: the core goes on with what it has.
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the client's thread. Not with the driver locked, which it may want.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// The client's thread ends: nobody waits for an answer any more.
    pub fn end(&self) {
        let mut driver = self.lock();
        driver.stopped = true;
        driver.peers.remove_all();
        driver.sinks.clear();
        let waiters = std::mem::take(&mut driver.waiters);
        let answers = std::mem::take(&mut driver.answers);
        drop(driver);
        tell(answers);
        // Wakes those who wait, who may want the driver.
        drop(waiters);
    }
}

impl Local {
    pub fn new(driver: Arc<Guarded>) -> Shared {
        Rc::new(Local {
            driver,
            stopped: LocalEvent::default(),
            running: Cell::new(0),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock()
    }

    /// Counts a task in, and out when the guard is dropped.
    pub fn task(self: &Rc<Self>) -> Running {
        self.running.set(self.running.get() + 1);
        Running(self.clone())
    }
}

/// A task that has not ended.
pub(super) struct Running(Shared);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

impl Driver {
    /// The time.
    pub fn now(&self) -> Now {
        clock::now()
    }

    /// When the core wants to be told the time, ms.
    pub fn wake_at(&self) -> u64 {
        self.core.wake_at()
    }

    /// Whether anybody waits for an answer.
    pub fn is_busy(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// How many wait for answers.
    pub fn waiters(&self) -> usize {
        self.waiters.len()
    }

    /// Hands a post of the inbox to the core.
    pub fn posted(&mut self, now: Now, post: Post) {
        self.handled += 1;
        self.post(now, post);
    }

    fn post(&mut self, now: Now, post: Post) {
        match post {
            Post::Command(mut command, waiter) => {
                if let Some(ticket) = command.ticket_mut() {
                    *ticket = self.waiters.insert(waiter);
                }
                self.input(now, Input::Command(command));
            }
            Post::Sink(consumer, Some(sink)) => {
                self.sinks.insert(consumer, sink);
            }
            Post::Sink(consumer, None) => {
                self.sinks.remove(&consumer);
            }
            Post::Bound(bound) => self.bounds.push(bound),
        }
    }

    /// Bounds at which somebody may have waited too long, to be told once the driver is not
    /// locked.
    pub fn overdue(&mut self, now: Now) -> Vec<Arc<InFlight>> {
        self.bounds.retain(|bound| bound.strong_count() > 0);
        let bounds = self.bounds.iter().filter_map(Weak::upgrade);
        bounds.filter(|bound| bound.due() <= now.at).collect()
    }

    /// Hands an input to the core.
    pub fn input(&mut self, now: Now, input: Input) {
        self.core.handle(now, input, &mut self.outputs);
    }

    /// A way to the client's thread.
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// The client's thread is about to wait: for what, and how long, `longest` at most, ms.
    pub fn before_wait(&mut self, longest: u64, set: &mut PollSet) -> u64 {
        let now = self.now().at;
        let (waiters, delivers) = (self.waiters(), !self.sinks.is_empty());
        let most = self.watch.before_wait(now, waiters, delivers).min(longest);
        self.peers.wait_for(|id| self.watch.watches(id), set);
        if !self.connects.is_empty() {
            return 0;
        }
        let bounds = self.bounds.iter().filter_map(Weak::upgrade);
        let due = bounds.map(|bound| bound.due()).min().unwrap_or(u64::MAX);
        let wake_at = self.core.wake_at().min(due);
        // Not less than a millisecond, the unit of the clock: no busy loop whatever the core says.
        let wait = wake_at.saturating_sub(now).max(1).min(most);
        self.armed = now + wait;
        wait
    }

    /// A socket is to be read, and written if it was full.
    pub fn is_ready(&mut self, now: Now, id: PeerId, writable: bool) {
        if writable {
            let Some(peer) = self.peers.get(id) else {
                return;
            };
            match peer.go_on() {
                (Written::Failed(why), _) => return self.lost(now, id, why),
                (_, true) => self.writes.push(id),
                (_, false) => {}
            }
        }
        self.read(now, id);
    }

    /// Looks at the sockets that nobody watches.
    pub fn look_around(&mut self, now: Now) {
        if self.watch.is_blind() {
            for id in self.peers.ids() {
                self.read(now, id);
            }
        }
    }

    /// Reads a connection, unless a caller does.
    fn read(&mut self, now: Now, id: PeerId) {
        let fd = self.peers.get(id).and_then(|peer| peer.fd());
        let Some(fd) = fd.filter(|_| !self.watch.is_led_at(id)) else {
            return;
        };
        let mut into = std::mem::take(&mut self.read_buffer);
        into.resize(READ_BYTES, 0);
        let read = receive(fd, &mut into, libc::MSG_DONTWAIT);
        self.received(now, id, read.map(|read| &into[..read]));
        self.read_buffer = into;
    }

    /// Hands what has come by a connection to the core.
    fn received(&mut self, now: Now, id: PeerId, read: io::Result<&[u8]>) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let fresh = match read {
            Ok([]) => {
                let why = match peer.partial.len() {
                    0 => "closed by the peer".to_owned(),
                    bytes => {
                        format!("closed by the peer in the middle of a frame, after {bytes} bytes")
                    }
                };
                return self.lost(now, id, why);
            }
            Ok(fresh) => fresh,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => return,
                _ => return self.lost(now, id, format!("read: {error}")),
            },
        };
        let mut partial = std::mem::take(&mut peer.partial);
        if partial.is_empty() {
            let used = self.core.received(now, id, fresh, &mut self.outputs);
            partial.extend_from_slice(&fresh[used..]);
        } else {
            partial.extend_from_slice(fresh);
            let used = self.core.received(now, id, &partial, &mut self.outputs);
            if used == partial.len() && partial.capacity() > PARTIAL_KEPT_MAX {
                partial = Vec::new();
            } else {
                partial.drain(..used);
            }
        }
        if let Some(peer) = self.peers.get(id) {
            peer.partial = partial;
        }
    }

    /// Does what came of a turn.
    fn carry_out(&mut self, now: Now) {
        self.wrote.clear();
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut ticked = false;
        loop {
            for output in outputs.drain(..) {
                self.output(now, output);
            }
            let mut writes = std::mem::take(&mut self.writes);
            for peer in writes.drain(..) {
                self.write(now, peer);
            }
            if self.writes.is_empty() {
                self.writes = writes;
            }
            if !ticked && self.core.wake_at() <= now.at {
                // What was written makes more to do, as the end of one-way sends.
                ticked = true;
                self.input(now, Input::Tick);
            }
            if self.outputs.is_empty() {
                self.outputs = outputs;
                break;
            }
            std::mem::swap(&mut outputs, &mut self.outputs);
        }
        self.call_back();
        let wake_at = self.core.wake_at();
        if wake_at < self.armed {
            self.armed = wake_at;
            self.changed = true;
        }
    }

    fn output(&mut self, now: Now, output: Output) {
        match output {
            Output::Done { ticket, result } => {
                let Some(waiter) = self.waiters.take(ticket) else {
                    debug_assert!(false, "a command that ends twice");
                    return;
                };
                let mut room = waiter.room;
                if !matches!(waiter.how, How::Callback(_)) {
                    // Whoever is woken finds it.
                    room = None;
                }
                match waiter.how {
                    // Back to the queue where nobody waits for it: in this turn.
                    How::Answering(answering) if matches!(result, Ok(Answer::Messages(_))) => {
                        if let Err(Ok(Answer::Messages(polled))) = answering.answer(result) {
                            self.input(now, Input::Command(Command::Unpolled(polled)));
                        }
                    }
                    How::Answering(answering) => self.answers.push((answering, result)),
                    How::Callback(callback) => self.called.push((callback, result, room)),
                    How::Nobody => {}
                }
            }
            Output::Write { peer } => self.writes.push(peer),
            Output::Deliver(delivery) => self.deliver(now, delivery),
            Output::Connect { peer, address } => {
                self.peers.insert(peer, address.clone());
                self.connects.push((peer, address));
            }
            Output::Close { peer, why } => {
                if let Some(peer) = self.peers.remove(peer) {
                    tracing::debug!(address = &*peer.address, why, "connection closed");
                }
            }
            Output::PublishQueues { topic, queues } => self.published.set(topic, queues),
            Output::LoadOffsets { consumer, file } => {
                self.file_job(now, FileJob::Load(consumer, file));
            }
            Output::StoreOffsets {
                consumer,
                file,
                content,
            } => self.file_job(now, FileJob::Store(consumer, file, content)),
            Output::Stopped => {
                self.stopped = true;
                self.changed = true;
            }
        }
    }

    fn write(&mut self, now: Now, id: PeerId) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        self.wrote.push(id);
        let core = &mut self.core;
        match peer.write(|out| core.take_frames(id, out)) {
            Written::Done => {}
            // The client's thread is to wait for it.
            Written::Full => self.changed = true,
            Written::Failed(why) => self.lost(now, id, why),
        }
    }

    /// A connection could not be made or is at its end.
    pub fn lost(&mut self, now: Now, id: PeerId, why: String) {
        if let Some(peer) = self.peers.remove(id) {
            tracing::debug!(address = &*peer.address, why, "connection lost");
            self.input(now, Input::Disconnected { peer: id, why });
        }
    }

    fn call_back(&mut self) {
        if self.called.is_empty() {
            return;
        }
        let workers = self.callbacks.get_or_insert_with(|| {
            Workers::new("ringmq-callback", 1, |finished: Finished| {
                let (callback, result, room) = finished;
                // Until now it counts as being on its way: so few wait here.
                drop(room);
                in_flight::unbounded(|| callback(result));
            })
        });
        workers.submit_all(&mut self.called);
        if !self.called.is_empty() {
            let count = self.called.len();
            tracing::error!(count, "callbacks are lost: no thread can be started");
            self.called.clear();
        }
    }

    fn deliver(&mut self, now: Now, delivery: Delivery) {
        let (consumer, number) = (delivery.consumer, delivery.delivery);
        let refused = match self.sinks.get(&consumer) {
            Some(sink) => sink(delivery),
            None => Err("its consumer is gone".to_owned()),
        };
        if let Err(what) = refused {
            let command = Command::Consumed {
                consumer,
                delivery: number,
                outcome: Outcome::Failed { what },
            };
            self.input(now, Input::Command(command));
        }
    }

    fn file_job(&mut self, now: Now, job: FileJob) {
        let workers = self.files.get_or_insert_with(|| {
            let (folder, inbox) = (self.offsets.clone(), self.inbox.clone());
            Workers::new("ringmq-offsets", 1, move |job: FileJob| {
                let _ = inbox.post(Post::Command(job.run(&folder), Waiter::NOBODY));
            })
        });
        let Err(job) = workers.submit(job) else {
            return;
        };
        let fault = FileFault {
            path: self.offsets.display().to_string(),
            why: "no thread can be started".to_owned(),
        };
        let command = match job {
            FileJob::Load(consumer, _) => Command::OffsetsLoaded {
                consumer,
                result: Err(fault),
            },
            FileJob::Store(consumer, ..) => Command::OffsetsStored {
                consumer,
                result: Err(fault),
            },
        };
        self.input(now, Input::Command(command));
    }
}

/// A callback, what it is called with, and the room that its send takes until then.
type Finished = (Callback, Result<Answer>, Option<Room>);

fn tell(answers: Vec<(Answering<Result<Answer>>, Result<Answer>)>) {
    for (answering, result) in answers {
        // Who does not wait for it any more has no use for it.
        let _ = answering.answer(result);
    }
}

/// One turn on the client's thread: something is handed over, and everything that comes of it is
/// done.
pub(super) fn turn<T>(shared: &Shared, hand: impl FnOnce(&mut Driver, Now) -> T) -> T {
    let mut driver = shared.lock();
    let now = driver.now();
    let result = hand(&mut driver, now);
    driver.carry_out(now);
    driver.changed = false;
    let connects = std::mem::take(&mut driver.connects);
    let answers = std::mem::take(&mut driver.answers);
    let stopped = driver.stopped;
    drop(driver);
    tell(answers);
    if stopped {
        shared.stopped.notify();
    }
    // A task is polled when it is spawned, and locks the driver then.
    for (peer, address) in connects {
        spawn(tasks::connect(shared.clone(), peer, address));
    }
    result
}

/// What came of a caller's turn.
pub(super) struct CallersTurn {
    /// The client's thread has something to do.
    pub wake: bool,
    /// The caller is to read the answer himself.
    pub lead: Option<Lead>,
}

/// A turn on the thread of whoever sends, provided that nothing is on its way: neither a command
/// in the inbox, which would be overtaken, nor an answer that somebody waits for, in which case
/// commands gather. Otherwise the post is given back. `waits`: the caller is going to wait for
/// the answer on this thread, and does nothing before.
pub(super) fn turn_of_caller(
    guarded: &Arc<Guarded>,
    post: Post,
    waits: bool,
) -> std::result::Result<CallersTurn, Post> {
    let Ok(mut driver) = guarded.driver.try_lock() else {
        return Err(post);
    };
    if driver.is_busy() || driver.watch.is_led() {
        driver.watch.not_alone();
        return Err(post);
    }
    if driver.stopped || driver.posted.load(Ordering::Acquire) != driver.handled {
        return Err(post);
    }
    let now = driver.now();
    driver.post(now, post);
    driver.carry_out(now);
    let mut lead = None;
    if driver.is_busy() {
        // The answer comes by the connection that the send left by, if it did.
        let by = match driver.wrote[..] {
            [id] if waits && driver.connects.is_empty() => {
                let socket = driver.peers.get(id).and_then(|peer| peer.drained_socket());
                socket.map(|socket| (id, socket))
            }
            _ => None,
        };
        match by {
            Some((id, socket)) if driver.watch.alone(now.at, id) => {
                lead = Some(Lead::new(guarded.clone(), id, socket));
            }
            Some(_) => {}
            None if driver.watch.gather() => driver.changed = true,
            None => {}
        }
    }
    let wake = end_callers_turn(driver);
    Ok(CallersTurn { wake, lead })
}

/// Unlocks the driver, and tells the ends that came of a caller's turn. Whether the client's
/// thread has something to do.
fn end_callers_turn(mut driver: MutexGuard<'_, Driver>) -> bool {
    let wake = driver.changed || !driver.connects.is_empty();
    driver.changed = false;
    let answers = std::mem::take(&mut driver.answers);
    drop(driver);
    tell(answers);
    wake
}

/// What came of the turn of a caller who reads.
pub(super) struct ReadersTurn {
    /// The client's thread has something to do.
    pub wake: bool,
    /// The same connection is to be read on.
    pub goes_on: bool,
}

/// A turn of a caller who reads a connection: he hands over what it gave.
pub(super) fn turn_of_reader(
    guarded: &Guarded,
    id: PeerId,
    read: io::Result<&[u8]>,
) -> ReadersTurn {
    let mut driver = guarded.lock();
    let now = driver.now();
    driver.received(now, id, read);
    driver.carry_out(now);
    // What was sent again elsewhere is answered there.
    let elsewhere = !driver.connects.is_empty() || driver.wrote.iter().any(|wrote| *wrote != id);
    let goes_on = !elsewhere && driver.peers.get(id).is_some();
    let wake = end_callers_turn(driver);
    ReadersTurn { wake, goes_on }
}
