//! The Rust client against nameservers and brokers that lie. One test at a time: what each
//! costs this process is measured.

mod common;

#[path = "client/broker_lies.rs"]
mod broker_lies;
#[path = "client/impostor.rs"]
mod impostor;
#[path = "client/nameserver_lies.rs"]
mod nameserver_lies;
#[path = "client/support.rs"]
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a test may cost: no busy loop, no memory without a bound.
pub struct Costs {
    began: Instant,
    cpu: Duration,
    resident: u64,
    _alone: MutexGuard<'static, ()>,
}

/// Share of one processor that a client may use while it is lied to.
const CPU_SHARE_MAX: f64 = 0.4;

/// CPU time that is not counted: starts, JSON, whole routes of 10,000 queues.
const CPU_FREE: Duration = Duration::from_millis(400);

/// Bytes that may stay.
const RESIDENT_MAX: u64 = 64 * 1024 * 1024;

impl Costs {
    /// Begins to count, once no other test does.
    pub fn count() -> Costs {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Costs {
            began: Instant::now(),
            cpu: support::cpu(),
            resident: support::resident(),
            _alone: alone,
        }
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
