//! The tasks of the client's thread: its inbox, its timer, and those of each connection.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use flume::Receiver;
use futures_lite::future;

use super::driver::{Post, Shared, turn};
use super::executor::{Socket, look_at_sockets, sleep};
use super::peers::write_failed;
use super::resolve::resolve;
use crate::client::core::io::{Input, PeerId};

/// Bytes read at once. One buffer serves all connections: what is not a whole frame is copied
/// out before another one reads.
const READ_BYTES: usize = 256 * 1024;

/// A buffer that one large frame grew beyond this is not kept, in bytes.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Posts of one turn: with more, sockets have their turn in between.
const POSTS_PER_TURN: usize = 1024;

/// Longest time between two looks at the clock.
const TICK_MAX: Duration = Duration::from_secs(1);

/// The same while somebody waits for an answer: see "The runtime" in the module above.
const TICK_MAX_BUSY: Duration = Duration::from_millis(100);

/// Longest time that the end waits for bytes to leave and connections to close.
const END_MAX: Duration = Duration::from_secs(1);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Hands what other threads want to the core, all of it that has come in one turn, until the
/// core has stopped or nobody can want anything any more.
pub(super) async fn inbox(shared: Shared, posts: Receiver<Post>) {
    loop {
        let stopped = async {
            while !shared.lock().stopped {
                shared.changed.wait().await;
            }
            None
        };
        let first = future::or(async { posts.recv_async().await.ok() }, stopped).await;
        let Some(first) = first else {
            break;
        };
        turn(&shared, |driver, now| {
            driver.posted(now, first);
            let mut taken = 1;
            while taken < POSTS_PER_TURN {
                let Ok(post) = posts.try_recv() else { break };
                driver.posted(now, post);
                taken += 1;
            }
        });
        if !posts.is_empty() {
            look_at_sockets().await;
        }
    }
    end(&shared).await;
}

/// Closes every connection once everything has left.
async fn end(shared: &Shared) {
    let until = Instant::now() + END_MAX;
    let pause = Duration::from_millis(1);
    while !shared.lock().peers.are_drained() && Instant::now() < until {
        sleep(pause).await;
    }
    {
        let mut driver = shared.lock();
        driver.stopped = true;
        driver.peers.remove_all();
    }
    shared.changed.notify();
    while shared.running.get() > 0 && Instant::now() < until {
        sleep(pause).await;
    }
}

/// Tells the core the time when it wants to know it.
pub(super) async fn timer(shared: Shared) {
    let _running = shared.task();
    loop {
        let wait = {
            let mut driver = shared.lock();
            if driver.stopped {
                return;
            }
            driver.armed = driver.wake_at();
            let left = driver.armed.saturating_sub(driver.now().at);
            // Not less than a millisecond, the unit of the clock: no busy loop whatever the
            // core says.
            let longest = if driver.is_busy() {
                TICK_MAX_BUSY
            } else {
                TICK_MAX
            };
            Duration::from_millis(left.max(1)).min(longest)
        };
        let early = future::or(
            async {
                sleep(wait).await;
                false
            },
            async {
                shared.changed.wait().await;
                true
            },
        );
        if early.await {
            continue;
        }
        let due = {
            let driver = shared.lock();
            driver.wake_at() <= driver.now().at
        };
        if due {
            turn(&shared, |driver, now| driver.input(now, Input::Tick));
        }
    }
}

/// One connection from its beginning to its end.
pub(super) async fn connection(shared: Shared, id: PeerId, address: Arc<str>) {
    let _running = shared.task();
    let why = match connect(&shared, &address).await {
        Ok(mut socket) => {
            let wanted = turn(&shared, |driver, now| {
                let wanted = driver.peers.opened(id, socket.fd());
                if wanted {
                    driver.input(now, Input::Connected { peer: id });
                }
                wanted
            });
            if wanted {
                let why = read(&shared, id, &mut socket).await;
                // Told before the socket is closed, and its number somebody else's.
                turn(&shared, |driver, now| driver.lost(now, id, why));
            }
            None
        }
        Err(why) => Some(why),
    };
    if let Some(why) = why {
        turn(&shared, |driver, now| driver.lost(now, id, why));
    }
}

async fn connect(shared: &Shared, address: &str) -> Result<Socket, String> {
    let limit = shared.lock().connect_timeout;
    let stopped = async {
        while !shared.lock().stopped {
            shared.changed.wait().await;
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
            match Socket::connect(to, limit).await {
                Ok(socket) => return Ok(socket),
                Err(error) => fault = error.to_string(),
            }
        }
        Err(fault)
    };
    future::or(attempt, future::or(late, stopped)).await
}

/// Hands what comes to the core until the end, and tells why that is.
async fn read(shared: &Shared, id: PeerId, socket: &mut Socket) -> String {
    let mut partial: Vec<u8> = Vec::new();
    loop {
        let read = poll_fn(|cx| {
            READ_BUFFER.with_borrow_mut(|buffer| {
                buffer.resize(READ_BYTES, 0);
                socket.poll_read(cx, buffer)
            })
        });
        let read = match read.await {
            Ok(0) if partial.is_empty() => return "closed by the peer".to_owned(),
            Ok(0) => {
                let bytes = partial.len();
                return format!("closed by the peer in the middle of a frame, after {bytes} bytes");
            }
            Ok(read) => read,
            Err(error) => return format!("read: {error}"),
        };
        // Nothing else has run since the buffer was filled.
        let open = READ_BUFFER.with_borrow(|buffer| {
            let fresh = &buffer[..read];
            turn(shared, |driver, now| {
                if partial.is_empty() {
                    let used = driver.received(now, id, fresh);
                    partial.extend_from_slice(&fresh[used..]);
                } else {
                    partial.extend_from_slice(fresh);
                    let used = driver.received(now, id, &partial);
                    if used == partial.len() && partial.capacity() > KEPT_BYTES_MAX {
                        partial = Vec::new();
                    } else {
                        partial.drain(..used);
                    }
                }
            });
            shared.lock().peers.get(id).is_some()
        });
        if !open {
            return "closed".to_owned();
        }
    }
}

/// Writes what waits for a peer whose socket was full, with a descriptor of its own: the other
/// one is in the hands of the task that reads.
pub(super) async fn drain(shared: Shared, id: PeerId, fd: RawFd) {
    let _running = shared.task();
    let drained = write_all(&shared, id, fd).await;
    turn(&shared, |driver, now| match drained {
        Ok(()) => driver.drained(id),
        Err(error) => driver.lost(now, id, write_failed(&error)),
    });
}

async fn write_all(shared: &Shared, id: PeerId, fd: RawFd) -> io::Result<()> {
    let mut socket = Socket::duplicate(fd)?;
    loop {
        let written = poll_fn(|cx| {
            let mut driver = shared.lock();
            let Some(peer) = driver.peers.get(id).filter(|peer| !peer.out.is_empty()) else {
                return Poll::Ready(Ok(None));
            };
            socket
                .poll_write(cx, peer.out.waiting())
                .map(|done| done.map(Some))
        });
        let Some(count) = written.await? else {
            return Ok(());
        };
        if let Some(peer) = shared.lock().peers.get(id) {
            peer.out.advance(count);
        }
    }
}
