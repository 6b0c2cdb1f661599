//! The ring, and the wait.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::busy_poll::BusyPoll;
use super::helper::Helper;
use super::slots::{Slots, Watch};
use super::timers::Timers;
use super::turns;
use super::visitors::{Rung, Visitors};

/// Requests that the kernel is told of at a time; more wait in [`Reactor::backlog`].
const ENTRIES: u32 = 512;

/// Completions that the ring holds. The kernel keeps more to itself, at a cost.
const COMPLETIONS: u32 = 4096;

/// Time after which the kernel is asked again for what it had no memory for.
const AGAIN: Duration = Duration::from_millis(1);

/// What a descriptor is watched for. Without the end of the peer's side, one that comes with
/// the last bytes would be told together with them and never again.
const READABLE: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;

/// After any of these reading never has to wait.
const ENDED: u32 = (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as u32;

/// Names what nobody waits for.
const NOBODY: u64 = u64::MAX;

/// Names the bell.
const BELL: u64 = u64::MAX - 1;

const IORING_ENTER_GETEVENTS: u32 = 1 << 0;
const IORING_ENTER_EXT_ARG: u32 = 1 << 3;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Reactor>>> = const { RefCell::new(None) };
}

/// What a thread's reactor is made of, made where its errors can be told.
pub(super) struct Parts {
    ring: IoUring,
    rung: Arc<Rung>,
    helper: Helper,
}

impl Parts {
    /// # Errors
    /// Those of the kernel: no ring, no descriptor, no thread.
    pub fn make(name: &str) -> io::Result<Parts> {
        Ok(Parts {
            ring: make_ring()?,
            rung: Rung::new()?,
            helper: Helper::start(name)?,
        })
    }
}

/// A ring that belongs to the thread that enables it.
fn make_ring() -> io::Result<IoUring> {
    let mut plain = IoUring::builder();
    plain.setup_r_disabled().setup_cqsize(COMPLETIONS);
    let mut cooperative = plain.clone();
    cooperative.setup_coop_taskrun().setup_taskrun_flag();
    let mut deferred = plain.clone();
    deferred
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag();
    // The kernel works for the ring when the thread asks for it, since 6.1; at the next
    // system call, since 5.19; and before that whenever something comes, which it interrupts
    // the thread for.
    for builder in [deferred, cooperative, plain] {
        match builder.build(ENTRIES) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            other => return other,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// The reactor of one thread.
pub(super) struct Reactor {
    ring: RefCell<IoUring>,
    /// What the ring has no room for.
    backlog: RefCell<VecDeque<squeue::Entry>>,
    pub slots: RefCell<Slots>,
    pub timers: RefCell<Timers>,
    pub rung: Arc<Rung>,
    pub visitors: RefCell<Visitors>,
    pub helper: Helper,
    /// When the kernel was last asked what is ready.
    asked: Cell<Instant>,
    pub busy_poll: BusyPoll,
}

impl Reactor {
    /// The calling thread's, from now on.
    pub fn start(parts: Parts) -> Rc<Reactor> {
        let Parts { ring, rung, helper } = parts;
        ring.submitter()
            .register_enable_rings()
            .expect("a ring that was made to be enabled");
        let reactor = Rc::new(Reactor {
            ring: RefCell::new(ring),
            backlog: RefCell::default(),
            slots: RefCell::default(),
            timers: RefCell::default(),
            rung,
            visitors: RefCell::default(),
            helper,
            asked: Cell::new(Instant::now()),
            busy_poll: BusyPoll::default(),
        });
        reactor.arm_bell();
        CURRENT.set(Some(reactor.clone()));
        reactor
    }

    /// The thread has none any more.
    pub fn end() {
        drop(CURRENT.take());
    }

    /// The calling thread's.
    pub fn current() -> Rc<Reactor> {
        Reactor::with(Rc::clone)
    }

    /// Works with the calling thread's.
    pub fn with<T>(work: impl FnOnce(&Rc<Reactor>) -> T) -> T {
        CURRENT.with_borrow(|current| {
            work(current.as_ref().expect("on a thread that an executor runs"))
        })
    }

    /// Tells the kernel of a request, at the end of the turn.
    pub fn push(&self, entry: squeue::Entry) {
        let mut backlog = self.backlog.borrow_mut();
        let mut ring = self.ring.borrow_mut();
        // SAFETY: as promised by those who make entries: what an entry names stays until it
        // is done.
        if !backlog.is_empty() || unsafe { ring.submission().push(&entry) }.is_err() {
            backlog.push_back(entry);
        }
    }

    /// Has a descriptor watched, as the one at `place`.
    pub fn arm(&self, fd: RawFd, place: usize) {
        self.push(watch_entry(fd, place as u64));
    }

    fn arm_bell(&self) {
        self.push(watch_entry(self.rung.bell().fd(), BELL));
    }

    /// Ends the watch at `place`; the kernel lets go of the descriptor within the turn.
    pub fn give_up(&self, watch: &Watch, place: usize) {
        watch.is_given_up.set(true);
        watch.waker.take();
        if watch.refused.get().is_some() {
            self.slots.borrow_mut().remove(place);
            return;
        }
        self.cancel(place);
    }

    /// Ends what is at `place`, which keeps it until the kernel says that it is over.
    pub fn cancel(&self, place: usize) {
        let cancel = opcode::AsyncCancel::new(place as u64).build();
        self.push(cancel.user_data(NOBODY));
    }

    /// Waits until something is ready, which may be at once, and wakes who waits for it.
    pub fn wait(&self) {
        let next = self.timers.borrow().next();
        let left = || next.map(|next| next.saturating_duration_since(Instant::now()));
        let time = left();
        if time.is_some_and(|time| time.is_zero()) || !self.rung.may_sleep() {
            self.look();
            return;
        }
        match self.busy_poll.begin() {
            None => self.enter(1, time),
            Some(longest) => {
                let longest = time.map_or(longest, |time| longest.min(time));
                if !self.poll(longest) {
                    self.enter(1, left());
                }
            }
        }
        self.rung.bell().awake();
        self.wake();
    }

    /// Polls for what comes, for so long at most. Whether something came.
    fn poll(&self, longest: Duration) -> bool {
        if self.has_orders() {
            self.enter(0, None);
        }
        let began = Instant::now();
        let came = loop {
            let came = self.has_news();
            let spent = began.elapsed();
            if came || spent >= longest {
                self.busy_poll.end(spent.min(longest));
                break came;
            }
        };
        if came {
            self.enter(0, None);
        }
        came
    }

    /// Whether the kernel is to be told of something.
    fn has_orders(&self) -> bool {
        !self.ring.borrow_mut().submission().is_empty() || !self.backlog.borrow().is_empty()
    }

    /// Whether the kernel has something for this thread.
    fn has_news(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        ring.submission().taskrun() || !ring.completion().is_empty()
    }

    /// Wakes who waits for what is ready.
    pub fn look(&self) {
        self.enter(0, None);
        self.wake();
    }

    /// Time since the kernel was last asked.
    pub fn since_look(&self) -> Duration {
        self.asked.get().elapsed()
    }

    /// Tells the kernel of what waits for that. What it does not take now it is told of at
    /// the end of the turn.
    pub fn submit(&self) {
        self.tell(|ring, told, _| {
            // SAFETY: there is no argument.
            unsafe { ring.submitter().enter::<()>(told, 0, 0, None) }
        });
    }

    /// Tells the kernel of what waits for that, and waits for `want` completions, but no
    /// longer than `time`.
    fn enter(&self, want: u32, time: Option<Duration>) {
        let time = time.map(types::Timespec::from);
        let mut args = types::SubmitArgs::new();
        if let Some(time) = &time {
            args = args.timespec(time);
        }
        let no_memory = self.tell(|ring, told, is_all| {
            // What is not told of could be what would end the wait.
            let want = if is_all { want } else { 0 };
            let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
            // SAFETY: `args` is what EXT_ARG says that it is, and the time that it names
            // lives as long.
            unsafe { ring.submitter().enter(told, want, flags, Some(&args)) }
        });
        if no_memory && self.ring.borrow_mut().completion().is_empty() {
            // Nothing goes on without, and nothing is there to be done meanwhile.
            std::thread::sleep(AGAIN);
        }
        let now = Instant::now();
        self.asked.set(now);
        turns::awake(now);
    }

    /// Enters the kernel with what it is to be told of: once, or as often as it takes. `true`:
    /// it has no memory for some of it.
    fn tell(&self, enter: impl Fn(&IoUring, u32, bool) -> io::Result<usize>) -> bool {
        let mut ring = self.ring.borrow_mut();
        let mut backlog = self.backlog.borrow_mut();
        loop {
            let mut queue = ring.submission();
            while let Some(entry) = backlog.front() {
                // SAFETY: as for `push`.
                if unsafe { queue.push(entry) }.is_err() {
                    break;
                }
                backlog.pop_front();
            }
            let told = queue.len() as u32;
            drop(queue);
            match enter(&ring, told, backlog.is_empty()).map_err(|error| error.raw_os_error()) {
                Ok(_) if !backlog.is_empty() => {}
                Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => return false,
                Err(Some(libc::EAGAIN | libc::ENOMEM)) => return true,
                // A ring that is not one any more: the process ends, and what it
                // acknowledged is in the tail file.
                Err(number) => panic!("a shard's ring takes nothing: error {number:?}"),
            }
        }
    }

    fn wake(&self) {
        let mut rang = false;
        loop {
            let mut ring = self.ring.borrow_mut();
            let Some(done) = ring.completion().next() else {
                break;
            };
            drop(ring);
            match done.user_data() {
                NOBODY => {}
                BELL => {
                    // Without it no other thread is heard.
                    assert!(is_watching(&done), "a shard's bell is not watched");
                    rang = true;
                    if !cqueue::more(done.flags()) {
                        self.arm_bell();
                    }
                }
                place => self.complete(place as usize, &done),
            }
        }
        if rang {
            self.rung.bell().silence();
        }
        self.hear();
        self.timers.borrow_mut().fire();
    }

    /// Wakes whom other threads have rung for.
    pub fn hear(&self) {
        let rung = self.rung.take();
        if !rung.is_empty() {
            self.visitors.borrow_mut().wake(rung);
        }
    }

    fn complete(&self, place: usize, done: &cqueue::Entry) {
        let mut slots = self.slots.borrow_mut();
        let Some(watch) = slots.watch(place) else {
            let given_up = slots.complete(place, done.result());
            drop(slots);
            drop(given_up);
            return;
        };
        let goes_on = cqueue::more(done.flags());
        if watch.is_given_up.get() {
            if !goes_on {
                slots.remove(place);
            }
            return;
        }
        drop(slots);
        let events = u32::try_from(done.result()).unwrap_or(0);
        if events & ENDED != 0 {
            watch.is_ended.set(true);
        }
        if !is_watching(done) {
            watch.refused.set(Some(-done.result()));
        } else if !goes_on {
            self.arm(watch.fd, place);
        }
        watch.wake();
    }
}

/// Whether the kernel watches, or would again: it ends a watch for want of room for its
/// completions, some kernels with this error.
fn is_watching(done: &cqueue::Entry) -> bool {
    done.result() >= 0 || done.result() == -libc::ECANCELED || cqueue::more(done.flags())
}

fn watch_entry(fd: RawFd, user_data: u64) -> squeue::Entry {
    opcode::PollAdd::new(types::Fd(fd), READABLE)
        .multi(true)
        .build()
        .user_data(user_data)
}

impl Drop for Reactor {
    /// Waits for the kernel, which still uses what operations keep.
    fn drop(&mut self) {
        let told_to = Instant::now() + Duration::from_secs(10);
        while self.slots.get_mut().operations > 0 {
            self.enter(1, Some(AGAIN));
            self.wake();
            if Instant::now() > told_to {
                // What is left must stay where it is.
                std::mem::forget(std::mem::take(self.slots.get_mut()));
                return;
            }
        }
    }
}
