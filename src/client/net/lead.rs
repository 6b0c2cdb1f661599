//! Who reads the sockets: the client's thread, or a caller who waits for an answer anyway.
//!
//! A blocking send that is alone on its way would wake the client's thread by its answer, and
//! that the sender: two hand-overs between threads, each dearer than all the rest. So, while
//! sends come alone and one soon after the other, each sender reads the connection that his send
//! left by, and the client's thread keeps to its inbox and the clock.
//!
//! All of it is decided under the driver's lock, and two things always hold then: a connection is
//! read by one thread alone, and if anybody waits for an answer, a caller reads it or the
//! client's thread watches the socket (or has been woken, and will). What comes while nobody waits
//! is found by the client's thread, which looks at all sockets now and then and takes them back
//! when no send has come for a while.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::driver::{Guarded, turn_of_reader};
use super::peers::receive;
use crate::client::core::io::{Answer, PeerId};
use crate::client::error::Result;
use crate::client::one_shot;

/// Sends that come alone, one after the other, before the client's thread leaves the sockets.
const ALONE_MIN: u32 = 8;

/// Longest time between two of them, and the longest that a socket is not looked at, ms.
const ALONE_MS: u64 = 10;

/// Longest time that a caller waits for more. An answer that takes longer may as well cost a
/// wake-up. In tests it stands out from what a busy machine takes for a hand-over.
pub(super) const READ_MAX: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 20 });

/// How often callers read.
#[cfg(test)]
pub(super) static LEADS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Bytes that a caller reads at once: some answers.
const READ_BYTES: usize = 4096;

/// Who watches the sockets.
#[derive(Debug)]
pub(super) struct Watch {
    /// The client's thread does.
    thread: bool,
    /// It watches all but what a caller reads: there are others who wait.
    others: bool,
    /// What a caller reads, until he says that he does no longer.
    led: Option<PeerId>,
    /// Blocking sends that came alone, one soon after the other; and when the last one was, ms.
    alone: u32,
    alone_at: u64,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            thread: true,
            others: false,
            led: None,
            alone: 0,
            alone_at: 0,
        }
    }
}

impl Watch {
    /// Whether the client's thread watches a socket.
    pub fn watches(&self, id: PeerId) -> bool {
        self.thread || (self.others && self.led != Some(id))
    }

    /// Whether there are sockets that nobody watches. They are to be looked at.
    pub fn is_blind(&self) -> bool {
        !self.thread
    }

    /// Whether a caller reads.
    pub fn is_led(&self) -> bool {
        self.led.is_some()
    }

    /// Whether a caller reads this connection.
    pub fn is_led_at(&self, id: PeerId) -> bool {
        self.led == Some(id)
    }

    /// The client's thread is about to wait: decides whether it watches the sockets. `waiters`:
    /// so many wait for answers; `delivers`: there are consumers, whose messages come at any
    /// time. How long it may wait, ms.
    pub fn before_wait(&mut self, now: u64, waiters: usize, delivers: bool) -> u64 {
        let soon = self.alone >= ALONE_MIN && now.saturating_sub(self.alone_at) <= ALONE_MS;
        self.thread = self.led.is_none() && (waiters > 0 || delivers || !soon);
        self.others = self.led.is_some() && (waiters > 1 || delivers);
        if self.thread { u64::MAX } else { ALONE_MS }
    }

    /// A send comes while others wait for answers.
    pub fn not_alone(&mut self) {
        self.alone = 0;
    }

    /// A send comes alone whose sender is not to read: the client's thread is to watch. Whether
    /// it has to be told.
    pub fn gather(&mut self) -> bool {
        self.alone = 0;
        !std::mem::replace(&mut self.thread, true)
    }

    /// A blocking send comes alone at `now`, while no caller reads, and leaves by one connection.
    /// Whether its sender is to read that.
    pub fn alone(&mut self, now: u64, by: PeerId) -> bool {
        let soon = now.saturating_sub(self.alone_at) <= ALONE_MS;
        self.alone = if soon {
            self.alone.saturating_add(1)
        } else {
            1
        };
        self.alone_at = now;
        self.led = (!self.thread).then_some(by);
        self.led.is_some()
    }

    /// The caller who read reads no longer. `busy`: somebody waits for an answer. Whether the
    /// client's thread has to be told to watch.
    fn ends(&mut self, busy: bool) -> bool {
        self.led = None;
        busy && !std::mem::replace(&mut self.thread, true)
    }
}

/// A caller who reads a connection, until it is dropped.
pub(super) struct Lead {
    guarded: Arc<Guarded>,
    id: PeerId,
    /// Open as long as somebody reads it.
    socket: Arc<OwnedFd>,
}

impl Lead {
    /// For whom [`Watch::alone`] said so.
    pub fn new(guarded: Arc<Guarded>, id: PeerId, socket: Arc<OwnedFd>) -> Lead {
        #[cfg(test)]
        LEADS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Lead {
            guarded,
            id,
            socket,
        }
    }

    /// Reads until the answer is there, or it takes too long, or is to come from elsewhere.
    pub fn read_until(self, answer: &one_shot::Answer<Result<Answer>>) {
        let began = Instant::now();
        let mut bytes = [0; READ_BYTES];
        while !answer.is_ready() {
            // Not longer than READ_MAX, the socket's own limit.
            let read = receive(self.socket.as_raw_fd(), &mut bytes, 0);
            let turn = turn_of_reader(&self.guarded, self.id, read.map(|read| &bytes[..read]));
            if turn.wake {
                self.guarded.ring();
            }
            if !turn.goes_on || began.elapsed() >= READ_MAX {
                return;
            }
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let wake = {
            let mut driver = self.guarded.lock();
            let busy = driver.is_busy();
            driver.watch.ends(busy)
        };
        if wake {
            self.guarded.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerId = PeerId { slot: 0, epoch: 1 };
    const B: PeerId = PeerId { slot: 1, epoch: 1 };

    #[test]
    fn sends_alone_take_the_sockets_over_and_whoever_else_comes_gives_them_back() {
        let mut watch = Watch::default();
        for at in 0..u64::from(ALONE_MIN) {
            watch.before_wait(at, 0, false);
            assert!(watch.watches(A) && !watch.alone(at, A));
            watch.before_wait(at, 1, false);
            assert!(watch.watches(A), "somebody waits");
        }
        assert_eq!(watch.before_wait(8, 0, false), ALONE_MS);
        assert!(!watch.watches(A) && watch.alone(9, A));
        watch.before_wait(9, 1, false);
        assert!(!watch.watches(A) && watch.is_led_at(A), "a caller reads");
        assert!(!watch.watches(B) && watch.is_blind(), "nobody else waits");
        watch.before_wait(9, 2, false);
        assert!(watch.watches(B) && !watch.is_led_at(B), "somebody does");
        assert!(!watch.watches(A), "one thread a connection");
        assert!(!watch.ends(false), "the next one soon comes");
        assert!(watch.alone(10, A));
        assert!(watch.ends(true) && watch.watches(A), "others wait");
        watch.before_wait(11, 0, false);
        assert!(!watch.watches(A));
        assert!(watch.gather() && watch.watches(A));
        watch.before_wait(11, 0, false);
        assert!(watch.watches(A));
    }

    #[test]
    fn sockets_are_watched_again_where_no_send_comes_or_there_are_consumers() {
        let mut watch = Watch::default();
        (0..20).for_each(|at| assert!(!watch.alone(at, A)));
        assert_eq!(watch.before_wait(20, 0, true), u64::MAX);
        assert_eq!(watch.before_wait(20 + ALONE_MS, 0, false), u64::MAX);
        assert_eq!(watch.before_wait(19 + ALONE_MS, 0, false), ALONE_MS);
    }
}
