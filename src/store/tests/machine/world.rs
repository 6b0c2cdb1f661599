//! A loop in virtual time: one thread, tasks in an order drawn from the dice.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::super::Dice;
use super::disk::Machine;
use crate::store::blocks::CACHE_BLOCK_BYTES;
use crate::store::edge::{BlocksToWrite, Edge, Files, Local, LogFile, LogMode, Mode};

/// Polls of one life, more than any needs.
const POLLS_MAX: u64 = 3_000_000;

/// How a run of the world ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// The main task came to its end.
    Done(T),
    /// The process died before.
    Died,
    /// Nothing can ever happen any more, or too much did.
    Stuck(&'static str),
}

#[derive(Default)]
struct Ready(Mutex<Vec<usize>>);

struct TaskWaker {
    task: usize,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.0.lock().unwrap();
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

struct Loop {
    machine: Machine,
    dice: RefCell<Dice>,
    now: Cell<Duration>,
    tasks: RefCell<Vec<Option<Local<'static, ()>>>>,
    ready: Arc<Ready>,
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    timer: Cell<u64>,
    /// When the helper thread is done with what it has.
    helper_free: Cell<Duration>,
}

/// The loop of one process. Clones are the same one.
#[derive(Clone)]
pub struct World(Rc<Loop>);

impl World {
    pub fn new(machine: &Machine, seed: u64) -> World {
        World(Rc::new(Loop {
            machine: machine.clone(),
            dice: RefCell::new(Dice::new(seed ^ 0x1009)),
            now: Cell::default(),
            tasks: RefCell::default(),
            ready: Arc::default(),
            timers: RefCell::default(),
            timer: Cell::default(),
            helper_free: Cell::default(),
        }))
    }

    /// Runs a task, and those that it spawns, until it ends or the process dies. All
    /// others are dropped then.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Outcome<T> {
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let done = result.clone();
        self.spawn(
            "main",
            Box::pin(async move {
                let value = main.await;
                *done.borrow_mut() = Some(value);
            }),
        );
        let mut outcome = Outcome::Stuck("too many steps");
        for _ in 0..POLLS_MAX {
            if self.0.machine.is_dead() {
                outcome = Outcome::Died;
                break;
            }
            if let Some(value) = result.borrow_mut().take() {
                outcome = Outcome::Done(value);
                break;
            }
            if !self.turn() {
                outcome = Outcome::Stuck("nothing is left to wait for");
                break;
            }
        }
        // Tasks hold the store, which holds this world.
        let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
        drop(tasks);
        self.0.timers.borrow_mut().clear();
        outcome
    }

    /// Polls one task, or lets time pass to the next timer.
    fn turn(&self) -> bool {
        let task = {
            let mut ready = self.0.ready.0.lock().unwrap();
            let len = ready.len() as u64;
            (len > 0).then(|| ready.swap_remove(self.0.dice.borrow_mut().below(len) as usize))
        };
        let Some(task) = task else {
            let next = self.0.timers.borrow_mut().pop_first();
            let Some(((at, _), waker)) = next else {
                return false;
            };
            self.0.now.set(at);
            waker.wake();
            return true;
        };
        let future = self.0.tasks.borrow_mut()[task].take();
        let Some(mut future) = future else {
            return true;
        };
        let ready = self.0.ready.clone();
        let waker = Waker::from(Arc::new(TaskWaker { task, ready }));
        if future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
        {
            self.0.tasks.borrow_mut()[task] = Some(future);
        }
        true
    }

    fn sleep_until(&self, at: Duration) -> Sleep {
        Sleep {
            world: self.clone(),
            at,
            timer: None,
        }
    }

    fn delay(&self) -> Duration {
        Duration::from_micros(1 + self.0.machine.delay_us())
    }
}

struct Sleep {
    world: World,
    at: Duration,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let inner = self.world.0.clone();
        if inner.now.get() >= self.at {
            return Poll::Ready(());
        }
        let timer = *self.timer.get_or_insert_with(|| {
            inner.timer.set(inner.timer.get() + 1);
            inner.timer.get()
        });
        let mut timers = inner.timers.borrow_mut();
        timers.insert((self.at, timer), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.world.0.timers.borrow_mut().remove(&(self.at, timer));
        }
    }
}

impl Edge for World {
    fn files(&self) -> Arc<dyn Files> {
        self.0.machine.files()
    }

    fn now(&self) -> Duration {
        self.0.now.get()
    }

    fn sleep(&self, time: Duration) -> Local<'static, ()> {
        Box::pin(self.sleep_until(self.now() + time))
    }

    fn spawn(&self, _: &'static str, task: Local<'static, ()>) {
        let mut tasks = self.0.tasks.borrow_mut();
        tasks.push(Some(task));
        self.0.ready.0.lock().unwrap().push(tasks.len() - 1);
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) -> Local<'static, ()> {
        // One helper thread, which does one thing after the other.
        let begin = self.0.helper_free.get().max(self.now());
        let end = begin + self.delay();
        self.0.helper_free.set(end);
        let done = self.sleep_until(end);
        Box::pin(async move {
            done.await;
            work();
        })
    }

    fn open_log<'a>(
        &'a self,
        path: &'a Path,
        mode: LogMode,
    ) -> Local<'a, io::Result<Rc<dyn LogFile>>> {
        Box::pin(async move {
            self.sleep_until(self.now() + self.delay()).await;
            let file_mode = if mode == LogMode::Read {
                Mode::Read
            } else {
                Mode::Write
            };
            let inode = self.0.machine.inode(path, file_mode)?;
            Ok(Rc::new(Segment {
                world: self.clone(),
                inode,
                through: mode == LogMode::WriteThrough,
            }) as Rc<dyn LogFile>)
        })
    }
}

struct Segment {
    world: World,
    inode: usize,
    through: bool,
}

impl LogFile for Segment {
    fn write(&self, at: u64, blocks: BlocksToWrite) -> Local<'_, io::Result<()>> {
        let bytes = blocks.to_vec();
        let begun = self.world.0.machine.begin(self.inode, at, &bytes);
        let done = self
            .world
            .sleep_until(self.world.now() + self.world.delay());
        Box::pin(async move {
            let id = begun?;
            done.await;
            // A device reads them at any time until it is done.
            assert!(
                blocks.to_vec() == bytes,
                "bytes at {at} were changed while they were written"
            );
            self.world.0.machine.finish(self.inode, id, self.through)
        })
    }

    fn read(&self, at: u64, len: usize) -> Local<'_, io::Result<Vec<Bytes>>> {
        let done = self
            .world
            .sleep_until(self.world.now() + self.world.delay());
        Box::pin(async move {
            done.await;
            let mut bytes = vec![0; len];
            let read = self.world.0.machine.read(self.inode, &mut bytes, at)?;
            bytes.truncate(read);
            let blocks = bytes.chunks(CACHE_BLOCK_BYTES as usize);
            Ok(blocks.map(Bytes::copy_from_slice).collect())
        })
    }

    fn sync(&self) -> Local<'_, io::Result<()>> {
        let done = self
            .world
            .sleep_until(self.world.now() + self.world.delay());
        let mark = self.world.0.machine.begin_sync(self.inode);
        Box::pin(async move {
            let mark = mark?;
            done.await;
            self.world.0.machine.finish_sync(self.inode, mark)
        })
    }
}
