//! What the client's thread does: it waits for its sockets, its inbox and the clock, and has
//! connections made.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flume::Receiver;
use futures_lite::future;

use super::driver::{Post, Shared, turn};
use super::executor::{connect_to, runtimes_turn, sleep};
use super::poll_set::PollSet;
use super::resolve::resolve;
use crate::bell::Bell;
use crate::client::core::io::{Input, PeerId};

/// Posts of one turn: with more, sockets have their turn in between.
const POSTS_PER_TURN: usize = 1024;

/// Longest time between two looks at the clock, ms.
const TICK_MAX_MS: u64 = 1000;

/// Longest wait for sockets while connections are made, which the runtime does, ms.
const CONNECTING_MS: u64 = 1;

/// With so many who wait for answers, and answers coming, posts do not wake the thread: the next
/// answer does, and then posts leave together.
const GATHER_MIN: usize = 8;

/// Longest time that posts gather where no answer comes, ms.
const GATHER_MS: u64 = 1;

/// Longest time that the end waits for bytes to leave and connections to be given up.
const END_MAX: Duration = Duration::from_secs(1);

/// The same between two looks at whether they have, ms.
const END_LOOK_MS: u64 = 10;

/// Hands what comes to the core, all of it that is there in one turn, until the core has
/// stopped and every byte has left.
///
/// It waits in poll(2), not in the runtime: that would cost several system calls a wake. The
/// runtime has its turn only while a connection is being made.
pub(super) async fn serve(shared: Shared, posts: Receiver<Post>, bell: Arc<Bell>) {
    let mut set = PollSet::default();
    let mut until = None;
    // All that were there at once: whoever takes one at a time contends for the lock of the inbox.
    let mut taken = posts.drain();
    loop {
        let answered = set.ready().any(|(id, _)| id.is_some());
        let overdue = turn(&shared, |driver, now| {
            for (id, writable) in set.ready() {
                match id {
                    None => bell.silence(),
                    Some(id) => driver.is_ready(now, id, writable),
                }
            }
            driver.look_around(now);
            if driver.stopped {
                return Vec::new();
            }
            if taken.len() == 0 {
                taken = posts.drain();
            }
            for post in taken.by_ref().take(POSTS_PER_TURN) {
                driver.posted(now, post);
            }
            if driver.wake_at() <= now.at {
                driver.input(now, Input::Tick);
            }
            driver.overdue(now)
        });
        overdue.iter().for_each(|bound| bound.expire());
        set.clear();
        set.add(None, bell.fd(), true, false);
        // From here on whatever is left for this thread rings.
        bell.listen();
        let connecting = shared.running.get() > 0;
        let wait = {
            let mut driver = shared.lock();
            if driver.stopped {
                let until = *until.get_or_insert_with(|| Instant::now() + END_MAX);
                if driver.peers.are_drained() || Instant::now() >= until {
                    break;
                }
            }
            let longest = if connecting {
                CONNECTING_MS
            } else if driver.stopped {
                END_LOOK_MS
            } else {
                TICK_MAX_MS
            };
            let waiters = driver.waiters();
            let wait = driver.before_wait(longest, &mut set);
            if taken.len() > 0 {
                0
            } else if answered && waiters >= GATHER_MIN && posts.len() < waiters {
                bell.awake();
                wait.min(GATHER_MS)
            } else if posts.is_empty() {
                wait
            } else {
                0
            }
        };
        set.wait(wait);
        bell.awake();
        if connecting {
            runtimes_turn().await;
        }
    }
    bell.awake();
    {
        let mut driver = shared.lock();
        driver.stopped = true;
        driver.peers.remove_all();
    }
    shared.stopped.notify();
    let until = Instant::now() + END_MAX;
    while shared.running.get() > 0 && Instant::now() < until {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Makes one connection.
pub(super) async fn connect(shared: Shared, id: PeerId, address: Arc<str>) {
    let _running = shared.task();
    let socket = attempt(&shared, &address).await;
    turn(&shared, |driver, now| match socket {
        Ok(socket) => {
            if driver.peers.opened(id, socket) {
                driver.input(now, Input::Connected { peer: id });
            }
        }
        Err(why) => driver.lost(now, id, why),
    });
}

async fn attempt(shared: &Shared, address: &str) -> Result<OwnedFd, String> {
    let limit = shared.lock().connect_timeout;
    let stopped = async {
        while !shared.lock().stopped {
            shared.stopped.wait().await;
        }
        Err("the client stops".to_owned())
    };
    let late = async {
        sleep(limit).await;
        Err(format!("no connection within {} ms", limit.as_millis()))
    };
    let attempt = async {
        let mut fault = String::new();
        for to in resolve(address).await? {
            match connect_to(to, limit).await {
                Ok(socket) => return Ok(socket),
                Err(error) => fault = error.to_string(),
            }
        }
        Err(fault)
    };
    future::or(attempt, future::or(late, stopped)).await
}
