//! What a run shows of itself while it lasts, and how its threads are stopped.

use super::clock;
use crate::bench::measure::recorder::Window;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How often threads tell their figures, in ns.
pub const TICK_NS: u64 = 50 * clock::MS;

/// Shared by the threads of a run.
#[derive(Debug, Default)]
pub struct Live {
    /// Messages acknowledged or received since the start, the warm-up included.
    pub messages: AtomicU64,
    /// Requests refused.
    pub failed: AtomicU64,
    /// 99 % of the latencies of the last second, in microseconds.
    pub p99_us: AtomicU64,
    abort: AtomicBool,
}

impl Live {
    /// All threads end as soon as they notice.
    pub fn abort(&self) {
        self.abort.store(true, Relaxed);
    }

    /// Whether they are to end.
    pub fn is_aborted(&self) -> bool {
        self.abort.load(Relaxed)
    }
}

/// Processor time of a thread in the window, noted by the thread itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    begin: Option<(u64, u64)>,
    end: Option<(u64, u64)>,
}

impl Share {
    /// To be called every now and then.
    pub fn note(&mut self, now: u64, window: &Window) {
        if self.begin.is_none() && now >= window.from {
            self.begin = Some((now, clock::thread_cpu()));
        }
        if self.end.is_none() && now >= window.until {
            self.end = Some((now, clock::thread_cpu()));
        }
    }

    /// Share of the time in which the thread was on a processor, 0 to 1. To be called by the
    /// thread at its end.
    pub fn finish(mut self) -> f64 {
        self.end = self
            .end
            .or_else(|| Some((clock::now(), clock::thread_cpu())));
        let (Some((began, cpu_began)), Some((ended, cpu_ended))) = (self.begin, self.end) else {
            return 0.0;
        };
        let length = ended.saturating_sub(began).max(1);
        cpu_ended.saturating_sub(cpu_began) as f64 / length as f64
    }
}
