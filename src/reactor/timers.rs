//! Moments that tasks wait for.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::ring::Reactor;

/// When, and which of those at the same moment.
type Key = (Instant, u64);

/// All that are waited for.
#[derive(Default)]
pub(super) struct Timers {
    waiting: BTreeMap<Key, Waker>,
    made: u64,
}

impl Timers {
    /// When the first is over.
    pub fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(key, _)| key.0)
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Wakes those that are over.
    pub fn fire(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= now
        {
            first.remove().wake();
        }
    }
}

/// Resolves at its moment.
pub(super) struct Sleep {
    reactor: Rc<Reactor>,
    until: Instant,
    key: Option<Key>,
}

impl Sleep {
    pub fn new(reactor: Rc<Reactor>, time: Duration) -> Sleep {
        let now = Instant::now();
        Sleep {
            reactor,
            // What is out of the clock's range is as good as never.
            until: now.checked_add(time).unwrap_or(now + FOREVER),
            key: None,
        }
    }
}

const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let reactor = self.reactor.clone();
        let mut timers = reactor.timers.borrow_mut();
        let key = match self.key {
            Some(key) if timers.waiting.contains_key(&key) => key,
            Some(_) => return Poll::Ready(()),
            None => {
                timers.made += 1;
                (self.until, timers.made)
            }
        };
        timers.waiting.insert(key, cx.waker().clone());
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.reactor.timers.borrow_mut().waiting.remove(&key);
        }
    }
}
