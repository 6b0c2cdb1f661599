//! Latencies of a thread, second by second, and of all threads together.

use crate::bench::load::clock::SECOND;
use crate::bench::result::{Latency, Second};
use hdrhistogram::Histogram;

/// Quantiles of the curve that is plotted.
const CURVE: [f64; 25] = [
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.995,
    0.9975, 0.999, 0.9995, 0.9999, 0.99995, 0.99999, 0.999999, 1.0,
];

/// The part of a run that counts: from, and until, in ns of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its begin.
    pub from: u64,
    /// Its end; what happens at that time does not count any more.
    pub until: u64,
}

impl Window {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.until.saturating_sub(self.from) as f64 / SECOND as f64
    }

    /// Whether a time is in it.
    pub fn contains(&self, at: u64) -> bool {
        (self.from..self.until).contains(&at)
    }
}

/// What one thread, or all together, measured.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The part that counts.
    pub window: Window,
    /// Messages in it.
    pub messages: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    total: Histogram<u64>,
    seconds: Vec<OneSecond>,
    /// Latencies of the second that lasts, and which it is.
    current: Histogram<u64>,
    current_second: usize,
}

/// A second that is over: latencies as (value, count), to be merged with other threads'.
#[derive(Clone, Debug, Default)]
struct OneSecond {
    messages: u64,
    latencies: Vec<(u64, u64)>,
}

impl Recorder {
    /// Nothing measured yet.
    pub fn new(window: Window) -> Recorder {
        Recorder {
            window,
            messages: 0,
            body_bytes: 0,
            total: histogram(),
            seconds: Vec::new(),
            current: histogram(),
            current_second: 0,
        }
    }

    /// Notes `messages` that belong to the time `at`, if it counts.
    pub fn count(&mut self, at: u64, messages: u64, body_bytes: u64) {
        if let Some(second) = self.enter(at) {
            self.messages += messages;
            self.body_bytes += body_bytes;
            self.seconds[second].messages += messages;
        }
    }

    /// The second of a time, if it counts.
    fn enter(&mut self, at: u64) -> Option<usize> {
        if !self.window.contains(at) {
            return None;
        }
        let second = ((at - self.window.from) / SECOND) as usize;
        if second > self.current_second {
            self.close_second();
            self.current_second = second;
        }
        if self.seconds.len() <= second {
            self.seconds.resize_with(second + 1, OneSecond::default);
        }
        Some(second)
    }

    /// The same, with one latency in ns.
    pub fn record(&mut self, at: u64, latency: u64, messages: u64, body_bytes: u64) {
        self.count(at, messages, body_bytes);
        self.latency_of(at, latency);
    }

    /// Notes one latency in ns that belongs to the time `at`, and no message.
    pub fn latency_of(&mut self, at: u64, latency: u64) {
        let Some(second) = self.enter(at) else {
            return;
        };
        let latency = latency / 1000;
        if second == self.current_second {
            note(&mut self.current, latency);
        } else {
            // Of a second that is over: an answer that came late.
            note(&mut self.total, latency);
            self.seconds[second].latencies.push((latency, 1));
        }
    }

    /// 99 % of the latencies of the last whole second, in microseconds.
    pub fn last_p99_us(&self) -> u64 {
        let whole = self.current_second.checked_sub(1);
        let last = whole.and_then(|at| self.seconds.get(at));
        last.map_or(0, |second| quantile_of(&second.latencies, 0.99))
    }

    fn close_second(&mut self) {
        if self.current.is_empty() {
            return;
        }
        let values = self.current.iter_recorded();
        let values = values.map(|value| (value.value_iterated_to(), value.count_at_value()));
        if self.seconds.len() <= self.current_second {
            self.seconds
                .resize_with(self.current_second + 1, OneSecond::default);
        }
        let second = &mut self.seconds[self.current_second];
        second.latencies.extend(values);
        add(&mut self.total, &self.current);
        self.current.reset();
    }

    /// Adds what another thread measured in the same window.
    pub fn merge(&mut self, mut other: Recorder) {
        self.close_second();
        other.close_second();
        self.messages += other.messages;
        self.body_bytes += other.body_bytes;
        add(&mut self.total, &other.total);
        if self.seconds.len() < other.seconds.len() {
            self.seconds
                .resize_with(other.seconds.len(), OneSecond::default);
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(other.seconds) {
            mine.messages += theirs.messages;
            mine.latencies.extend(theirs.latencies);
        }
    }

    /// The distribution of all latencies; `None` without any.
    pub fn latency(&mut self) -> Option<Latency> {
        self.close_second();
        let all = &self.total;
        if all.is_empty() {
            return None;
        }
        let at = |quantile| all.value_at_quantile(quantile);
        Some(Latency {
            count: all.len(),
            mean_us: all.mean(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: all.max(),
            curve: CURVE.map(|quantile| (quantile, at(quantile))).to_vec(),
        })
    }

    /// Whole seconds in order. A window that ends within a second loses that last part.
    pub fn timeline(&mut self) -> Vec<Second> {
        self.close_second();
        let whole = (self.window.until.saturating_sub(self.window.from) / SECOND) as usize;
        let second = |at: usize| {
            let Some(second) = self.seconds.get_mut(at) else {
                return Second::default();
            };
            second.latencies.sort_unstable();
            Second {
                messages: second.messages,
                p99_us: quantile_of(&second.latencies, 0.99),
                max_us: second.latencies.last().map_or(0, |&(value, _)| value),
            }
        };
        (0..whole).map(second).collect()
    }
}

/// Microseconds with three digits.
fn histogram() -> Histogram<u64> {
    // Three digits are within what the type allows.
    Histogram::new(3).expect("three significant digits")
}

fn note(to: &mut Histogram<u64>, latency: u64) {
    // A histogram that resizes itself takes everything.
    to.record(latency).expect("resizable");
}

fn add(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    // A histogram that resizes itself takes everything.
    to.add(from).expect("resizable");
}

/// The value of a quantile in (value, count) pairs that are sorted.
fn quantile_of(values: &[(u64, u64)], quantile: f64) -> u64 {
    let total: u64 = values.iter().map(|&(_, count)| count).sum();
    let wanted = (total as f64 * quantile).ceil() as u64;
    let mut seen = 0;
    for &(value, count) in values {
        seen += count;
        if seen >= wanted {
            return value;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        from: 10 * SECOND,
        until: 13 * SECOND + SECOND / 2,
    };

    #[test]
    fn only_what_is_in_the_window_counts() {
        let mut recorder = Recorder::new(WINDOW);
        recorder.record(WINDOW.from - 1, 5_000_000, 1, 10);
        recorder.record(WINDOW.until, 5_000_000, 1, 10);
        assert_eq!(recorder.latency().map(|all| all.count), None);
        recorder.record(WINDOW.from, 5_000_000, 2, 10);
        let all = recorder.latency().expect("one");
        assert_eq!(all.count, 1);
        near(all.max_us, 5000);
        assert_eq!((recorder.messages, recorder.body_bytes), (2, 10));
        assert_eq!(WINDOW.seconds(), 3.5);
    }

    /// Latencies of 1 to 1000 us in each of three seconds, the second ones ten times as long.
    fn filled(step: usize, of: usize) -> Recorder {
        let mut recorder = Recorder::new(WINDOW);
        for second in 0..3 {
            for value in (1..=1000).skip(step).step_by(of) {
                let at = WINDOW.from + second * SECOND + value * 1000;
                let times = if second == 1 { 10 } else { 1 };
                recorder.record(at, value * times * 1000, 1, 7);
            }
        }
        recorder
    }

    fn near(found: u64, wanted: u64) {
        let error = found.abs_diff(wanted) as f64 / wanted as f64;
        assert!(error < 0.002, "{found} instead of {wanted}");
    }

    #[test]
    fn threads_together_are_as_one() {
        let mut one = filled(0, 1);
        let mut many = filled(0, 3);
        many.merge(filled(1, 3));
        many.merge(filled(2, 3));
        let (one_latency, latency) = (one.latency(), many.latency().expect("some"));
        let one_latency = one_latency.expect("some");
        assert_eq!(latency.count, 3000);
        assert_eq!(latency.p50_us, one_latency.p50_us);
        assert_eq!(latency.p999_us, one_latency.p999_us);
        assert_eq!(latency.curve, one_latency.curve);
        near(latency.max_us, 10_000);
        near(latency.p90_us, 7_000);
        assert_eq!(many.messages, one.messages);
        let (one, many) = (one.timeline(), many.timeline());
        assert_eq!(many.len(), 3);
        for (one, many) in one.iter().zip(&many) {
            assert_eq!(many.messages, 1000);
            assert_eq!((one.p99_us, one.max_us), (many.p99_us, many.max_us));
        }
        near(many[0].p99_us, 990);
        near(many[1].p99_us, 9_900);
        near(many[1].max_us, 10_000);
    }

    #[test]
    fn an_answer_that_comes_late_belongs_to_its_own_second() {
        let mut recorder = filled(0, 1);
        recorder.record(WINDOW.from + 5, 2_500_000_000, 1, 0);
        let timeline = recorder.timeline();
        assert_eq!(timeline[0].messages, 1001);
        assert_eq!(timeline[0].max_us, 2_500_000);
        assert_eq!(recorder.latency().expect("some").count, 3001);
    }

    #[test]
    fn a_message_counts_when_it_is_answered_and_its_latency_when_it_was_sent() {
        let mut recorder = Recorder::new(WINDOW);
        recorder.count(WINDOW.from + 5, 3, 30);
        recorder.latency_of(WINDOW.from - 5, 1_000_000);
        recorder.count(WINDOW.until + 5, 2, 20);
        recorder.latency_of(WINDOW.until - 5, 7_000_000);
        assert_eq!((recorder.messages, recorder.body_bytes), (3, 30));
        let latency = recorder.latency().expect("one");
        assert_eq!(latency.count, 1);
        near(latency.max_us, 7_000);
    }

    #[test]
    fn seconds_without_messages_are_there() {
        let mut recorder = Recorder::new(WINDOW);
        recorder.record(WINDOW.from + 2 * SECOND, 1000, 1, 0);
        let messages: Vec<u64> = recorder.timeline().iter().map(|s| s.messages).collect();
        assert_eq!(messages, [0, 0, 1]);
    }
}
