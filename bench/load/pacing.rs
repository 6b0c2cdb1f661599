//! When requests are to be sent, whatever the answers do.

use super::clock;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A sender that is later than this is counted, in ns.
pub const LATE_NS: u64 = clock::MS;

/// Requests due closer together than this are sent in one turn, in ns: above 50,000 requests
/// a second nothing is won by a turn for each.
pub const TURN_NS: u64 = 20_000;

/// Times at even distances.
#[derive(Clone, Debug)]
pub struct Pace {
    begin: u64,
    interval: f64,
    next: u64,
}

impl Pace {
    /// `rate` requests per second from `begin` on, in ns.
    pub fn new(begin: u64, rate: f64) -> Pace {
        Pace {
            begin,
            interval: clock::SECOND as f64 / rate,
            next: 0,
        }
    }

    /// When the next request is due.
    pub fn due(&self) -> u64 {
        // From the number, not from the time before: errors do not add up.
        self.begin + (self.next as f64 * self.interval) as u64
    }

    /// The next request was sent.
    pub fn advance(&mut self) {
        self.next += 1;
    }
}

/// A timer that wakes a poll to the microsecond; those of polls count in milliseconds.
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Timer> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: a plain system call.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Timer { fd })
    }

    /// Wakes at this time, in ns, and at no earlier one that was set.
    pub fn set(&self, at: u64) {
        let time = libc::timespec {
            tv_sec: (at / clock::SECOND) as libc::time_t,
            tv_nsec: (at % clock::SECOND) as libc::c_long,
        };
        let spec = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: time,
        };
        // SAFETY: the descriptor is a timer's, and `spec` is valid for the length of the call.
        unsafe {
            libc::timerfd_settime(
                self.fd.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &spec,
                std::ptr::null_mut(),
            )
        };
    }
}

/// Lets timers of this thread fire to the microsecond; by default the kernel takes 50.
pub fn precise_timers() {
    // SAFETY: a plain system call that concerns this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
}

/// Leaves the processor to the other threads of this process from now on.
pub fn give_way() {
    const NICE: libc::c_int = 10;
    // SAFETY: a plain system call that concerns this thread alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use std::time::Duration;

    #[test]
    fn times_keep_their_rate_over_days() {
        let mut pace = Pace::new(500, 30_000.0);
        assert_eq!(pace.due(), 500);
        for _ in 0..30_000 {
            pace.advance();
        }
        assert_eq!(pace.due(), 500 + clock::SECOND);
        pace.next = 30_000 * 86_400;
        assert_eq!(pace.due(), 500 + 86_400 * clock::SECOND);
    }

    #[test]
    fn a_timer_wakes_a_poll_in_time() {
        precise_timers();
        let mut poll = Poll::new().expect("a poll");
        let timer = Timer::new(poll.registry(), Token(7)).expect("a timer");
        let mut events = Events::with_capacity(4);
        let mut best = u64::MAX;
        for _ in 0..20 {
            let due = clock::now() + 300_000;
            timer.set(due);
            poll.poll(&mut events, Some(Duration::from_secs(5)))
                .expect("an event");
            assert!(events.iter().any(|event| event.token() == Token(7)));
            let now = clock::now();
            assert!(now >= due, "woke early");
            best = best.min(now - due);
        }
        assert!(best < 500_000, "late by {best} ns at best");
    }
}
