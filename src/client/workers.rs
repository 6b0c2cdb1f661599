//! Threads of an application's own code: listeners and callbacks.
//!
//! They never run on the client's thread, which everyone's messages go through: a listener may
//! take its time, and may call the client again.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A pool that runs jobs of one kind. Threads are started when there is work for them, and end
/// with the pool once every job is done.
pub(crate) struct Workers<J: Send + 'static>(Arc<Shared<J>>);

struct Shared<J> {
    name: String,
    threads_max: usize,
    run: Box<dyn Fn(J) + Send + Sync>,
    state: Mutex<State<J>>,
    /// A job has come, or the end.
    work: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl<J: Send + 'static> Workers<J> {
    /// A pool of at most `threads` threads, at least one, that are called `name`. `run` does
    /// one job; a panic in it ends that job alone.
    pub fn new(name: &str, threads: usize, run: impl Fn(J) + Send + Sync + 'static) -> Workers<J> {
        Workers(Arc::new(Shared {
            name: name.to_owned(),
            threads_max: threads.max(1),
            run: Box::new(run),
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                threads: 0,
                idle: 0,
                closed: false,
            }),
            work: Condvar::new(),
        }))
    }

    /// Has a thread do a job. How many wait is bounded by those who submit. Given back where
    /// the pool is closed, or no thread can be started and there is none.
    pub fn submit(&self, job: J) -> Result<(), J> {
        let mut jobs = vec![job];
        self.submit_all(&mut jobs);
        jobs.pop().map_or(Ok(()), Err)
    }

    /// The same for many, with one wake-up a thread. Those that are refused stay in `jobs`.
    pub fn submit_all(&self, jobs: &mut Vec<J>) {
        let mut state = self.0.lock();
        if state.closed {
            return;
        }
        let count = jobs.len();
        state.jobs.extend(jobs.drain(..));
        let (waiting, idle) = (state.jobs.len(), state.idle);
        // Those that were there before have their threads.
        let without = waiting.saturating_sub(idle).min(count);
        for _ in 0..without.min(self.0.threads_max - state.threads) {
            state.threads += 1;
            let shared = self.0.clone();
            let thread = std::thread::Builder::new().name(self.0.name.clone());
            if thread.spawn(move || shared.serve()).is_err() {
                // Those that there are will come to it.
                state.threads -= 1;
                if state.threads == 0 {
                    let kept = state.jobs.len() - count;
                    jobs.extend(state.jobs.drain(kept..));
                }
                break;
            }
        }
        drop(state);
        for _ in 0..idle.min(count) {
            self.0.work.notify_one();
        }
    }
}

impl<J: Send + 'static> Drop for Workers<J> {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }
}

impl<J> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // No job runs while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        // The only thread takes all that is there; of several each one job.
        let mut taken = VecDeque::new();
        loop {
            if self.threads_max == 1 {
                std::mem::swap(&mut taken, &mut state.jobs);
            } else {
                taken.extend(state.jobs.pop_front());
            }
            if !taken.is_empty() {
                drop(state);
                for job in taken.drain(..) {
                    self.run(job);
                }
                state = self.lock();
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let waited = self.work.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        state.threads -= 1;
    }

    fn run(&self, job: J) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.run)(job))) {
            tracing::error!(thread = self.name, panic = panic_text(&*panic), "panic");
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn jobs_run_side_by_side_within_the_bound_and_all_before_the_end() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (done_in, done) = flume::unbounded();
        let pool = Workers::new("test-pool", 4, move |job: usize| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            now.fetch_sub(1, Ordering::SeqCst);
            done_in.send((job, most.load(Ordering::SeqCst))).unwrap();
        });
        for job in 0..50 {
            assert!(pool.submit(job).is_ok());
        }
        drop(pool);
        // Ends when the last thread has.
        let mut done: Vec<_> = done.iter().collect();
        done.sort_unstable();
        assert_eq!(done.len(), 50);
        let most = done.iter().map(|&(_, most)| most).max();
        assert!((1..=4).contains(&most.unwrap()), "{most:?}");
    }

    #[test]
    fn a_panic_ends_its_job_alone() {
        let (done_in, done) = flume::unbounded();
        let pool = Workers::new("test-panics", 1, move |job: u32| {
            assert!(job != 1, "job one");
            done_in.send(job).unwrap();
        });
        for job in 0..3 {
            pool.submit(job).unwrap();
        }
        drop(pool);
        assert_eq!(done.iter().collect::<Vec<_>>(), [0, 2]);
    }
}
