//! The Rust client against nameservers and brokers that lie. Few tests at a time: what this
//! process costs meanwhile is measured.

mod common;

#[path = "client/broker_lies.rs"]
mod broker_lies;
#[path = "client/impostor.rs"]
mod impostor;
#[path = "client/nameserver_lies.rs"]
mod nameserver_lies;
#[path = "client/support.rs"]
mod support;

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a test may cost: no busy loop, no memory without a bound.
pub struct Costs {
    began: Instant,
    cpu: Duration,
    resident: u64,
    _turn: Turn,
}

/// Tests that are measured at a time: each mostly waits.
const TOGETHER: usize = 3;

/// Share of one processor that the clients may use while they are lied to; one that never rests
/// uses all of it.
const CPU_SHARE_MAX: f64 = 0.4;

/// CPU time that is not counted: starts, JSON, whole routes of 10,000 queues.
const CPU_FREE: Duration = Duration::from_millis(400 * TOGETHER as u64);

/// Bytes that may stay.
const RESIDENT_MAX: u64 = 64 * 1024 * 1024;

impl Costs {
    /// Begins to count, once few other tests do.
    pub fn count() -> Costs {
        let turn = Turn::take();
        Costs {
            began: Instant::now(),
            cpu: support::cpu(),
            resident: support::resident(),
            _turn: turn,
        }
    }
}

/// One of [`TOGETHER`].
struct Turn;

static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(TOGETHER), Condvar::new());

impl Turn {
    fn take() -> Turn {
        let left = TURNS.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = TURNS.1.wait_while(left, |left| *left == 0);
        *left.unwrap_or_else(PoisonError::into_inner) -= 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        TURNS.1.notify_one();
    }
}

impl Drop for Costs {
    fn drop(&mut self) {
        let (took, cpu) = (self.began.elapsed(), support::cpu() - self.cpu);
        let grown = support::resident().saturating_sub(self.resident);
        eprintln!("{took:?}, CPU {cpu:?}, {} KiB more", grown / 1024);
        if !std::thread::panicking() {
            assert!(
                cpu < CPU_FREE + took.mul_f64(CPU_SHARE_MAX),
                "CPU {cpu:?} in {took:?}"
            );
            assert!(grown < RESIDENT_MAX, "{grown} bytes more");
        }
    }
}
