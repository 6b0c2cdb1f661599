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

/// How a thread spent the window, as shares of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// On a processor, 0 to 1.
    pub on_cpu: f64,
    /// Ready to run while others were on the processors, 0 to 1.
    pub waiting: f64,
}

impl Busy {
    /// That of the thread with less time left.
    pub fn max(self, other: Busy) -> Busy {
        if other.on_cpu + other.waiting > self.on_cpu + self.waiting {
            other
        } else {
            self
        }
    }
}

/// Times of a thread by some moment, in ns.
#[derive(Clone, Copy, Debug)]
struct Times {
    now: u64,
    on_cpu: u64,
    waiting: u64,
}

impl Times {
    fn read(now: u64) -> Times {
        Times {
            now,
            on_cpu: clock::thread_cpu(),
            waiting: clock::thread_run_delay().unwrap_or(0),
        }
    }
}

/// Processor time of a thread in the window, noted by the thread itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    begin: Option<Times>,
    end: Option<Times>,
}

impl Share {
    /// To be called every now and then.
    pub fn note(&mut self, now: u64, window: &Window) {
        if self.begin.is_none() && now >= window.from {
            self.begin = Some(Times::read(now));
        }
        if self.end.is_none() && now >= window.until {
            self.end = Some(Times::read(now));
        }
    }

    /// How the thread spent the time. To be called by the thread at its end.
    pub fn finish(self) -> Busy {
        let end = self.end.unwrap_or_else(|| Times::read(clock::now()));
        let Some(begin) = self.begin else {
            return Busy::default();
        };
        let length = end.now.saturating_sub(begin.now).max(1) as f64;
        Busy {
            on_cpu: end.on_cpu.saturating_sub(begin.on_cpu) as f64 / length,
            waiting: end.waiting.saturating_sub(begin.waiting) as f64 / length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More threads than processors: each is on one for a part of the time, and waits otherwise.
    #[test]
    fn a_thread_that_waits_for_a_processor_is_busy() {
        let threads = 4 * std::thread::available_parallelism().map_or(1, |n| n.get());
        let window = Window {
            from: clock::now(),
            until: clock::now() + 400 * clock::MS,
        };
        let spin = || {
            let mut share = Share::default();
            share.note(clock::now(), &window);
            while clock::now() < window.until {
                std::hint::spin_loop();
            }
            share.note(clock::now(), &window);
            share.finish()
        };
        let all: Vec<Busy> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(spin)).collect();
            all.into_iter().filter_map(|one| one.join().ok()).collect()
        });
        let busiest = all.into_iter().fold(Busy::default(), Busy::max);
        assert!(busiest.on_cpu + busiest.waiting > 0.9, "{busiest:?}");
        assert!(busiest.waiting > 0.2, "{busiest:?}");
    }

    #[test]
    fn the_busiest_has_the_least_time_left() {
        let one = Busy {
            on_cpu: 0.6,
            waiting: 0.0,
        };
        let other = Busy {
            on_cpu: 0.4,
            waiting: 0.4,
        };
        assert_eq!(one.max(other), other);
        assert_eq!(other.max(one), other);
    }
}
