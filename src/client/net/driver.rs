//! What goes into the core and what becomes of what comes out.
//!
//! Everything goes in turns: something has come (commands, bytes, a connection, time), the core
//! handles it, and then everything that came of it is done at once, each connection being written
//! one time. A turn waits for nothing.
//!
//! Turns belong to the client's thread, with one exception: while nothing at all is on its way,
//! whoever sends takes the turn on his own thread ([`turn_of_caller`]) and so saves the wake-up
//! of the client's, which costs more than the send. With anything on its way commands gather in
//! the inbox instead, and share their turns.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::executor::spawn;
use super::offset_files;
use super::peers::{Peers, Written};
use super::tasks;
use super::waiters::{Callback, How, Waiter, Waiters, ticket_of};
use super::{Inbox, PublishTable, Sink};
use crate::client::core::Core;
use crate::client::core::io::{
    Answer, Command, ConsumerId, Delivery, FileFault, Input, Now, Outcome, Output, PeerId,
};
use crate::client::error::Result;
use crate::client::in_flight::{self, Room};
use crate::client::settings::ClientSettings;
use crate::client::workers::Workers;
use crate::local_event::LocalEvent;

/// What the facade sends to the client's thread.
pub(crate) enum Post {
    /// A command, and who waits for its end.
    Command(Command, Waiter),
    /// Where deliveries of a consumer go, before it is started; `None` after its end.
    Sink(ConsumerId, Option<Sink>),
    /// A turn of a caller has left something to the client's thread.
    Wake,
}

/// Work that waits for the disk.
pub(super) enum FileJob {
    Load(ConsumerId, String),
    Store(ConsumerId, String, Vec<u8>),
}

/// What a turn leaves to be started after it.
enum Task {
    Connect(PeerId, Arc<str>),
    Drain(PeerId, std::os::fd::RawFd),
}

/// The client's state.
pub(super) struct Driver {
    core: Core,
    outputs: Vec<Output>,
    writes: Vec<PeerId>,
    tasks: Vec<Task>,
    pub peers: Peers,
    waiters: Waiters,
    sinks: HashMap<ConsumerId, Sink>,
    published: Arc<PublishTable>,
    callbacks: Option<Workers<Finished>>,
    files: Option<Workers<FileJob>>,
    inbox: Inbox,
    offsets: PathBuf,
    began: Instant,
    /// The time for which the timer is set.
    pub armed: u64,
    pub stopped: bool,
    /// The timer is to be set anew, or everything is to end.
    changed: bool,
    pub connect_timeout: Duration,
    /// Posts that the inbox was given, and those of them that were handed to the core.
    posted: Arc<AtomicU64>,
    handled: u64,
}

/// The driver as others than the client's thread hold it.
pub(crate) struct Guarded(Mutex<Driver>);

/// What the tasks of the client's thread share. The driver is locked within turns alone.
pub(super) struct Local {
    driver: Arc<Guarded>,
    /// Told when the timer is to be set anew, or everything is to end.
    pub changed: LocalEvent,
    /// Tasks that have not ended, other than the inbox.
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
        began: Instant,
    ) -> Arc<Guarded> {
        let folder = settings.offset_store_dir.clone();
        Arc::new(Guarded(Mutex::new(Driver {
            core,
            outputs: Vec::new(),
            writes: Vec::new(),
            tasks: Vec::new(),
            peers: Peers::default(),
            waiters: Waiters::default(),
            sinks: HashMap::new(),
            published,
            callbacks: None,
            files: None,
            inbox,
            offsets: folder.unwrap_or_else(offset_files::default_folder),
            began,
            armed: u64::MAX,
            stopped: false,
            changed: false,
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
            posted,
            handled: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Driver> {
        // A hook that panicked on a caller's thread: the core goes on with what it has.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's thread ends: nobody waits for an answer any more.
    pub fn end(&self) {
        let mut driver = self.lock();
        driver.stopped = true;
        driver.peers.remove_all();
        driver.sinks.clear();
        let waiters = std::mem::take(&mut driver.waiters);
        drop(driver);
        // Wakes those who wait, who may want the driver.
        drop(waiters);
    }
}

impl Local {
    pub fn new(driver: Arc<Guarded>) -> Shared {
        Rc::new(Local {
            driver,
            changed: LocalEvent::default(),
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
        now_since(self.began)
    }

    /// When the core wants to be told the time, ms.
    pub fn wake_at(&self) -> u64 {
        self.core.wake_at()
    }

    /// Whether anybody waits for an answer.
    pub fn is_busy(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Hands a post of the inbox to the core.
    pub fn posted(&mut self, now: Now, post: Post) {
        self.handled += 1;
        self.post(now, post);
    }

    fn post(&mut self, now: Now, post: Post) {
        match post {
            Post::Command(mut command, waiter) => {
                if let Some(ticket) = ticket_of(&mut command) {
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
            Post::Wake => {}
        }
    }

    /// Hands an input to the core.
    pub fn input(&mut self, now: Now, input: Input) {
        self.core.handle(now, input, &mut self.outputs);
    }

    /// Hands bytes of a peer to the core; how many it used.
    pub fn received(&mut self, now: Now, peer: PeerId, bytes: &[u8]) -> usize {
        self.core.received(now, peer, bytes, &mut self.outputs)
    }

    /// Does what came of a turn.
    fn carry_out(&mut self, now: Now) {
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
                    How::Answering(answering) => {
                        if let Err(Ok(Answer::Messages(polled))) = answering.answer(result) {
                            self.input(now, Input::Command(Command::Unpolled(polled)));
                        }
                    }
                    How::Callback(callback) => self.call_back((callback, result, room)),
                    How::Nobody => {}
                }
            }
            Output::Write { peer } => self.writes.push(peer),
            Output::Deliver(delivery) => self.deliver(now, delivery),
            Output::Connect { peer, address } => {
                self.peers.insert(peer, address.clone());
                self.tasks.push(Task::Connect(peer, address));
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
        let core = &mut self.core;
        match peer.write(|out| core.take_frames(id, out)) {
            Written::Done => {}
            Written::Drain(fd) => self.tasks.push(Task::Drain(id, fd)),
            Written::Failed(why) => self.lost(now, id, why),
        }
    }

    /// A drained peer is written again if the core has more for it.
    pub fn drained(&mut self, id: PeerId) {
        if self.peers.get(id).is_some_and(|peer| peer.drained()) {
            self.writes.push(id);
        }
    }

    /// A connection could not be made or is at its end.
    pub fn lost(&mut self, now: Now, id: PeerId, why: String) {
        if let Some(peer) = self.peers.remove(id) {
            tracing::debug!(address = &*peer.address, why, "connection lost");
            self.input(now, Input::Disconnected { peer: id, why });
        }
    }

    fn call_back(&mut self, finished: Finished) {
        let workers = self.callbacks.get_or_insert_with(|| {
            Workers::new("ringmq-callback", 1, |finished: Finished| {
                let (callback, result, room) = finished;
                // Until now it counts as being on its way: so few wait here.
                drop(room);
                in_flight::unbounded(|| callback(result));
            })
        });
        if workers.submit(finished).is_err() {
            tracing::error!("a callback is lost: no thread can be started");
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
            Workers::new("ringmq-offsets", 1, move |job| {
                let _ = inbox.post(Post::Command(run(&folder, job), Waiter::NOBODY));
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

fn run(folder: &std::path::Path, job: FileJob) -> Command {
    match job {
        FileJob::Load(consumer, file) => Command::OffsetsLoaded {
            consumer,
            result: offset_files::load(folder, &file),
        },
        FileJob::Store(consumer, file, content) => Command::OffsetsStored {
            consumer,
            result: offset_files::store(folder, &file, &content),
        },
    }
}

/// The time, given when the clock began.
pub(super) fn now_since(began: Instant) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    Now {
        at: began.elapsed().as_millis() as u64,
        wall: wall.map_or(0, |since| since.as_millis() as i64),
    }
}

/// One turn: something is handed over, and everything that comes of it is done.
pub(super) fn turn<T>(shared: &Shared, hand: impl FnOnce(&mut Driver, Now) -> T) -> T {
    let mut driver = shared.lock();
    let now = driver.now();
    let result = hand(&mut driver, now);
    driver.carry_out(now);
    let changed = std::mem::take(&mut driver.changed);
    let tasks = std::mem::take(&mut driver.tasks);
    drop(driver);
    if changed {
        shared.changed.notify();
    }
    // A task is polled when it is spawned, and locks the driver then.
    for task in tasks {
        match task {
            Task::Connect(peer, address) => spawn(tasks::connection(shared.clone(), peer, address)),
            Task::Drain(peer, fd) => spawn(tasks::drain(shared.clone(), peer, fd)),
        }
    }
    result
}

/// A turn on the thread of whoever sends, provided that nothing is on its way: neither a command
/// in the inbox, which would be overtaken, nor an answer that somebody waits for, in which case
/// commands gather. Whether the client's thread has something to do, too.
pub(super) fn turn_of_caller(driver: &Guarded, post: Post) -> std::result::Result<bool, Post> {
    let Ok(mut driver) = driver.0.try_lock() else {
        return Err(post);
    };
    if driver.is_busy() || driver.stopped || driver.posted.load(Ordering::Acquire) != driver.handled
    {
        return Err(post);
    }
    let now = driver.now();
    driver.post(now, post);
    driver.carry_out(now);
    Ok(driver.changed || !driver.tasks.is_empty())
}
