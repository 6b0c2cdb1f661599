//! Executors: one a thread.

use std::cell::Cell;
use std::fmt::Display;
use std::io;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use glommio::{LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement};

use super::ring::{Parts, Reactor};
use super::rounds;
use super::turns::{self, in_turns};
use crate::config::limits::IO_MEMORY_BYTES;

/// Longest time that ready tasks run before sockets, timers and lanes are looked at.
const LOOK: Duration = Duration::from_micros(200);

/// Time between two looks at glommio's own rings, on which nothing waits.
const GLOMMIO_LOOK: Duration = Duration::from_secs(3600);

/// Requests that each of glommio's rings holds: the fewest that it takes.
const GLOMMIO_ENTRIES: usize = 128;

/// The processors that this process may run on.
///
/// # Errors
/// Those of the system call.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: zero is a valid `cpu_set_t`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: `set` has room for `size` bytes.
    if unsafe { libc::sched_getaffinity(0, size, &mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let cpus = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: every index is within the set.
    Ok(cpus
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// A thread that runs an executor.
pub struct ExecutorHandle<T>(JoinHandle<Option<T>>);

impl<T> ExecutorHandle<T> {
    /// Waits for its end.
    ///
    /// # Errors
    /// It panicked.
    pub fn join(self) -> Result<T, String> {
        let ended = self.0.join().ok().flatten();
        ended.ok_or_else(|| "the thread of an executor panicked".to_owned())
    }
}

/// Starts an executor pinned to `cpu` and runs `main` on it. Returns when it runs. Call it
/// from a thread that is not pinned: that of the executor's helper is like it.
///
/// # Errors
/// Text with what the kernel refused.
pub fn spawn_executor<F, T>(
    name: &str,
    cpu: usize,
    main: impl FnOnce() -> F + Send + 'static,
) -> Result<ExecutorHandle<T>, String>
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let refused =
        |error: &dyn Display| format!("cannot start a thread on processor {cpu}: {error}");
    let parts = Parts::make(name).map_err(|error| refused(&error))?;
    let (made_in, made) = flume::bounded(1);
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let executor = make_executor(Placement::Fixed(cpu));
            let _ = made_in.send(executor.as_ref().map(|_| ()).map_err(Clone::clone));
            Some(executor.ok()?.run(run(parts, async { main().await })))
        })
        .map_err(|error| refused(&error))?;
    match made.recv() {
        Ok(Ok(())) => Ok(ExecutorHandle(thread)),
        Ok(Err(error)) => Err(refused(&error)),
        Err(error) => Err(refused(&error)),
    }
}

/// Runs an executor on the calling thread until `main` is done.
///
/// # Errors
/// Text with what the kernel refused.
pub fn block_on<T>(main: impl Future<Output = T>) -> Result<T, String> {
    let parts = Parts::make("executor").map_err(|error| format!("no ring: {error}"))?;
    let executor = make_executor(Placement::Unbound)?;
    let result = executor.run(run(parts, main));
    drop(executor);
    Reactor::end();
    Ok(result)
}

fn make_executor(placement: Placement) -> Result<LocalExecutor, String> {
    LocalExecutorBuilder::new(placement)
        .ring_depth(GLOMMIO_ENTRIES)
        .io_memory(IO_MEMORY_BYTES)
        .preempt_timer(GLOMMIO_LOOK)
        // The default pins every shard's pool to the first core.
        .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
        .make()
        .map_err(|error| error.to_string())
}

async fn run<T>(parts: Parts, main: impl Future<Output = T>) -> T {
    // A sleep of some microseconds is not to take the 50 more that the kernel may add to
    // that of a thread that says nothing.
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let reactor = Reactor::start(parts);
    let is_over = Rc::new(Cell::new(false));
    glommio::spawn_local(serve(reactor, is_over.clone())).detach();
    let result = in_turns("main", main).await;
    is_over.set(true);
    result
}

/// Waits whenever no other task has anything to do, until the executor's main task is over.
async fn serve(reactor: Rc<Reactor>, is_over: Rc<Cell<bool>>) {
    let mut turns_before = None;
    while !is_over.get() {
        let turns = turns::count();
        if turns_before.replace(turns) == Some(turns) {
            reactor.wait();
        } else if rounds::is_taken() || reactor.since_look() > LOOK {
            reactor.look();
        } else {
            reactor.hear();
        }
        rounds::begin();
        // Those that were woken, and those that they wake, are before this one.
        next_turn().await;
    }
}

/// Starts a task on this executor; lines about it say `name`. It is polled at once, inside
/// the call: hold no borrow across it. It is never cancelled (glommio would leak it), so it
/// ends by itself or with the process.
pub fn spawn(name: &'static str, task: impl Future<Output = ()> + 'static) {
    glommio::spawn_local(in_turns(name, task)).detach();
}

/// Lets every task that is ready run before this one goes on.
pub async fn next_turn() {
    futures_lite::future::yield_now().await;
}
