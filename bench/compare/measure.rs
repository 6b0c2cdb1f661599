//! The figures that can be measured of a run.

use crate::bench::result::{Latency, Run};

/// Names of further figures in [`Run::extra`].
pub mod extra {
    /// Average round trip that a foreign client reports, in microseconds.
    pub const MEAN_TRIP_US: &str = "mean_trip_us";
    /// Resident memory after the start, in bytes.
    pub const IDLE_BYTES: &str = "idle_bytes";
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Messages a second.
    Rate,
    /// Messages for each second of processor time of the broker.
    PerCpu,
    /// Median latency.
    P50,
    /// 99 % of the latencies are at or below.
    P99,
    /// 99.9 %.
    P999,
    /// Greatest latency.
    Max,
    /// Average round trip that a foreign client reports.
    MeanTrip,
    /// Messages a second of a reader beside producers.
    ReaderRate,
    /// How many times the producers' p99 grows when old messages are read beside them.
    MixedRatio,
    /// Rate of one cell over the rate of another, of the same broker.
    ShareOfRate,
    /// Resident memory after the start.
    IdleMemory,
    /// Most resident memory in any run.
    LoadMemory,
}

impl Measure {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Rate => "messages",
            Measure::PerCpu => "messages per CPU-second",
            Measure::P50 => "p50",
            Measure::P99 => "p99",
            Measure::P999 => "p99.9",
            Measure::Max => "max",
            Measure::MeanTrip => "mean round trip",
            Measure::ReaderRate => "reader's messages",
            Measure::MixedRatio => "growth of p99",
            Measure::ShareOfRate => "share of rate",
            Measure::IdleMemory => "idle",
            Measure::LoadMemory => "under load",
        }
    }

    /// Unit as [`super::units::value`] takes it.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Rate | Measure::ReaderRate => "/s",
            Measure::PerCpu | Measure::MixedRatio | Measure::ShareOfRate => "",
            Measure::IdleMemory | Measure::LoadMemory => "bytes",
            _ => "us",
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(
            self,
            Measure::Rate | Measure::PerCpu | Measure::ReaderRate | Measure::ShareOfRate
        )
    }

    /// Whether it is a rate, or made of rates.
    pub fn is_rate(self) -> bool {
        matches!(
            self,
            Measure::Rate | Measure::ReaderRate | Measure::ShareOfRate
        )
    }

    /// Whether it sets a broker against itself, so that only RingMQ's own value is asked for.
    pub fn only_limit(self) -> bool {
        matches!(self, Measure::MixedRatio | Measure::ShareOfRate)
    }

    /// Its value in one run; `None` where the run does not have it, or where it needs more than
    /// one run.
    pub fn of(self, run: &Run) -> Option<f64> {
        let latency = |value: fn(&Latency) -> u64| {
            // 0 is less than a microsecond.
            run.latency.as_ref().map(|l| value(l).max(1) as f64)
        };
        let messages = run.messages as f64;
        match self {
            Measure::Rate => ratio(messages, run.seconds),
            Measure::PerCpu => ratio(messages, run.server.as_ref()?.cpu_seconds),
            Measure::P50 => latency(|l| l.p50_us),
            Measure::P99 => latency(|l| l.p99_us),
            Measure::P999 => latency(|l| l.p999_us),
            Measure::Max => latency(|l| l.max_us),
            Measure::MeanTrip => run.extra.get(extra::MEAN_TRIP_US).copied(),
            Measure::ReaderRate => run.extra.get(READER_RATE).copied(),
            Measure::MixedRatio => run.extra.get(MIXED_RATIO).copied(),
            Measure::IdleMemory => run.extra.get(extra::IDLE_BYTES).copied(),
            Measure::ShareOfRate | Measure::LoadMemory => None,
        }
    }
}

/// Where the workload `mixed` has the rate of its reader, and its ratio.
const READER_RATE: &str = "reader_messages_per_s";
const MIXED_RATIO: &str = "p99_ratio";

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::ServerUse;

    #[test]
    fn figures_come_from_their_parts() {
        let run = Run {
            seconds: 2.0,
            messages: 1_000,
            latency: Some(Latency {
                p99_us: 70,
                ..Latency::default()
            }),
            server: Some(ServerUse {
                cpu_seconds: 0.5,
                ..ServerUse::default()
            }),
            ..Run::default()
        };
        assert_eq!(Measure::Rate.of(&run), Some(500.0));
        assert_eq!(Measure::PerCpu.of(&run), Some(2_000.0));
        assert_eq!(Measure::P99.of(&run), Some(70.0));
        assert_eq!(Measure::P50.of(&run), Some(1.0));
        assert_eq!(Measure::MixedRatio.of(&run), None);
    }

    #[test]
    fn what_was_not_measured_has_no_value() {
        let run = Run::default();
        for measure in [
            Measure::Rate,
            Measure::PerCpu,
            Measure::P50,
            Measure::IdleMemory,
        ] {
            assert_eq!(measure.of(&run), None, "{measure:?}");
        }
    }
}
