//! How long the tasks of this thread run without a pause: each time one is polled is a turn.
//! While it lasts the thread serves nobody else.

use std::cell::Cell;
use std::future::poll_fn;
use std::time::{Duration, Instant};

/// Longest turn that is not worth a word.
pub const TURN_MAX: Duration = Duration::from_millis(10);

/// Least time between two lines about long turns: a thread that is starved has many.
const LINE_PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    static TURNS: Turns = const {
        Turns {
            count: Cell::new(0),
            depth: Cell::new(0),
            began: Cell::new(None),
            within: Cell::new((Duration::ZERO, "")),
            long: Cell::new(0),
            told: Cell::new(None),
        }
    };
}

struct Turns {
    count: Cell<u64>,
    /// Turns within a turn: a task is polled at once where it is spawned.
    depth: Cell<u32>,
    /// The end of the last turn, or of the wait after it: that is when this one began.
    began: Cell<Option<Instant>>,
    /// The longest turn within this one, and whose it is.
    within: Cell<(Duration, &'static str)>,
    long: Cell<u64>,
    told: Cell<Option<Instant>>,
}

impl Turns {
    fn began(&self) -> Instant {
        self.began.get().unwrap_or_else(|| {
            let now = Instant::now();
            self.began.set(Some(now));
            now
        })
    }

    /// When a turn within another one begins.
    fn begin(&self) -> Option<Instant> {
        self.count.set(self.count.get() + 1);
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        self.began();
        (depth > 0).then(Instant::now)
    }

    fn end(&self, task: &'static str, began_within: Option<Instant>) {
        self.depth.set(self.depth.get() - 1);
        let now = Instant::now();
        if let Some(began) = began_within {
            let (longest, _) = self.within.get();
            if now - began > longest {
                self.within.set((now - began, task));
            }
            return;
        }
        let took = now - self.began();
        self.began.set(Some(now));
        let (took_within, task_within) = self.within.replace((Duration::ZERO, ""));
        if took > TURN_MAX {
            self.long.set(self.long.get() + 1);
            let task = match took_within > took / 2 {
                true => task_within,
                false => task,
            };
            self.tell(task, took, now);
        }
    }

    fn tell(&self, task: &str, took: Duration, now: Instant) {
        let told = self.told.get();
        if told.is_some_and(|told| now - told < LINE_PAUSE) {
            return;
        }
        self.told.set(Some(now));
        tracing::warn!(
            thread = std::thread::current().name(),
            millis = took.as_millis() as u64,
            limit_millis = TURN_MAX.as_millis() as u64,
            task,
            total = self.long.get(),
            "long turn"
        );
    }
}

/// A task whose turns are counted and timed. Lines about long ones name it.
pub(super) async fn in_turns<T>(name: &'static str, task: impl Future<Output = T>) -> T {
    let mut task = Box::pin(task);
    poll_fn(|cx| {
        let began_within = TURNS.with(Turns::begin);
        let polled = task.as_mut().poll(cx);
        TURNS.with(|turns| turns.end(name, began_within));
        polled
    })
    .await
}

/// What the turn under way has done so far held nobody up, as nobody is served yet.
pub fn begin_turn_anew() {
    awake(Instant::now());
}

/// What comes now begins after a wait that ended at `now`.
pub(super) fn awake(now: Instant) {
    TURNS.with(|turns| turns.began.set(Some(now)));
}

/// Turns of this thread so far.
pub(super) fn count() -> u64 {
    TURNS.with(|turns| turns.count.get())
}

/// When the turn began that is under way.
pub fn turn_began() -> Instant {
    TURNS.with(Turns::began)
}

/// Turns of this thread that took longer than [`TURN_MAX`].
pub fn long_turns() -> u64 {
    TURNS.with(|turns| turns.long.get())
}
