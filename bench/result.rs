//! What a run found: the one form in which tables, JSON, pages and comparisons have it.
//!
//! Units are in the names. Everything here is written to the file of `--json` as it stands.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that one call of the harness measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The command as it was given.
    pub command: String,
    /// When it began, ms since 1970.
    pub began_ms: u64,
    /// What it ran on.
    pub machine: Machine,
    /// All runs in the order in which they were made, failed ones too.
    pub runs: Vec<Run>,
    /// Of `compare`: the cells, each over all its rounds.
    pub cells: Vec<Cell>,
    /// What a reader must know to judge the figures, e.g. of a heap that had to be smaller.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// E.g. `AMD EPYC`.
    pub processor: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Memory of the machine or container, in bytes.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// File system that the stores were on, e.g. `ext4`; empty if the broker is elsewhere.
    pub file_system: String,
}

/// One run of one workload against one broker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// Name of the cell, e.g. `async-4x16`, or of the workload.
    pub cell: String,
    /// Kind of the workload, e.g. `produce`.
    pub workload: String,
    /// `RingMQ 0.1.0`, `Apache RocketMQ 5.5.0`: what the broker says of itself.
    pub broker: String,
    /// Round of a comparison, from 1; 0 outside of one.
    pub round: u32,
    /// What was asked for, by the long names of the options.
    pub options: BTreeMap<String, String>,
    /// Why the run failed. Figures of a failed run are not used.
    pub error: Option<String>,
    /// Length of the measured part, without the warm-up.
    pub seconds: f64,
    /// Messages acknowledged or received in it. Sent without answers: those that were found when
    /// they were read back; if that was not wanted, those that were written to the sockets.
    pub messages: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Requests that were refused or not answered in time.
    pub failed: u64,
    /// Of an open loop: sends that began more than 1 ms after their intended time.
    pub late: u64,
    /// From the (intended) send to the acknowledgement or receipt.
    pub latency: Option<Latency>,
    /// Whole seconds of the measured part, in order.
    pub timeline: Vec<Second>,
    /// What was found when all messages were read back, unless that was not wanted.
    pub verified: Option<Verified>,
    /// What the broker's process used, where it is on this machine.
    pub server: Option<ServerUse>,
    /// What the harness itself used.
    pub client: ClientUse,
    /// Further figures of single workloads, e.g. `downtime_ms`.
    pub extra: BTreeMap<String, f64>,
}

/// Names of figures in [`Run::extra`] that belong beside the percentiles.
pub mod extra {
    /// Requests due in the measured part of which no latency is known: they were under way when
    /// their connection was lost.
    pub const LOST_IN_FLIGHT: &str = "lost_in_flight";
    /// The longest time from when one of them was due until its sender had a connection again, in
    /// ms.
    pub const LOST_LONGEST_MS: &str = "lost_in_flight_longest_ms";
}

impl Run {
    /// Requests without a latency, for they were lost in flight, and the longest time in ms from
    /// when one of them was due until its sender had a connection again; `None` without any.
    pub fn lost_in_flight(&self) -> Option<(u64, f64)> {
        let of = |name| self.extra.get(name).copied();
        let count = of(extra::LOST_IN_FLIGHT)? as u64;
        let longest = of(extra::LOST_LONGEST_MS).unwrap_or(0.0);
        (count > 0).then_some((count, longest))
    }

    /// Whether messages were sent without answers, and nobody looked what became of them.
    pub fn counts_what_was_written(&self) -> bool {
        let is_one_way = self
            .options
            .get("mode")
            .is_some_and(|mode| mode == "oneway");
        is_one_way && self.is_unverified()
    }

    /// Whether messages were not to be looked at.
    pub fn is_unverified(&self) -> bool {
        self.options.contains_key("no-verify")
    }
}

/// A distribution, in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Number of values.
    pub count: u64,
    /// Average.
    pub mean_us: f64,
    /// Median.
    pub p50_us: u64,
    /// 90 % are at or below.
    pub p90_us: u64,
    /// 99 %.
    pub p99_us: u64,
    /// 99.9 %.
    pub p999_us: u64,
    /// 99.99 %.
    pub p9999_us: u64,
    /// Greatest.
    pub max_us: u64,
    /// Quantile (0 to 1) and value, for a plot over the logarithm of `1 - quantile`.
    pub curve: Vec<(f64, u64)>,
}

/// One second of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Messages acknowledged or received.
    pub messages: u64,
    /// 99 % of the latencies are at or below.
    pub p99_us: u64,
    /// Greatest latency.
    pub max_us: u64,
}

/// All acknowledged messages, read back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verified {
    /// Read, once each, in order, with their content.
    pub good: u64,
    /// Acknowledged, but not there.
    pub missing: u64,
    /// There more than once.
    pub doubled: u64,
    /// Behind one of the same producer and queue that was sent after its acknowledgement.
    pub misplaced: u64,
    /// With another content than was sent.
    pub wrong: u64,
    /// Queues in which messages are not at the queue offsets that were answered.
    pub misnumbered: u64,
    /// Behind one of the same producer and queue that was sent later, while both waited for
    /// their answers, or without an answer to it. No fault: brokers with several threads do so.
    pub overtaken: u64,
    /// There, although never acknowledged. No fault: the answer was lost.
    pub unacknowledged: u64,
}

impl Verified {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.missing + self.doubled + self.misplaced + self.wrong + self.misnumbered == 0
    }

    /// Adds what another group of consumers found.
    pub fn add(&mut self, other: &Verified) {
        self.good += other.good;
        self.missing += other.missing;
        self.doubled += other.doubled;
        self.misplaced += other.misplaced;
        self.wrong += other.wrong;
        self.misnumbered += other.misnumbered;
        self.overtaken += other.overtaken;
        self.unacknowledged += other.unacknowledged;
    }
}

/// What a process used in the measured part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerUse {
    /// Processor time, user and system.
    pub cpu_seconds: f64,
    /// Most resident memory in the measured part; where the system does not tell that, the more
    /// of its begin and its end.
    pub resident_bytes: u64,
    /// Bytes written to the device on its account; `None` where the system does not tell.
    #[serde(default)]
    pub written_bytes: Option<u64>,
    /// Context switches of all threads that it has at the end.
    pub context_switches: u64,
    /// Turns of RingMQ's loops longer than 10 ms; none for other brokers.
    pub long_turns: Option<u64>,
    /// Allocations of RingMQ above 128 KiB on the way of messages; none for other brokers.
    pub large_allocations: Option<u64>,
}

/// What the harness used in the measured part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClientUse {
    /// Processor time of all its threads.
    pub cpu_seconds: f64,
    /// Share of the time that its busiest thread was on a processor, 0 to 1.
    pub busiest_thread: f64,
    /// Share of the time that this thread was ready, but others were on the processors, 0 to 1.
    #[serde(default)]
    pub run_delay: f64,
    /// The harness, not the broker, set the pace: its busiest thread had no time left, as the
    /// two shares above add up to more than 0.9.
    pub is_the_limit: bool,
    /// When nothing ran.
    #[serde(default)]
    pub stalls: Stalls,
}

/// Times when the machine stood still: a thread of the harness that only sleeps woke up more than
/// [`Stalls::LEAST_US`] too late, and not because others ran meanwhile, brokers for instance. A
/// virtual machine stops so when it has used what its host gives it, and no latency of a broker
/// is shorter than that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// How often.
    pub count: u64,
    /// For how long, all together, in microseconds.
    pub total_us: u64,
    /// The longest one.
    pub longest_us: u64,
}

impl Stalls {
    /// Two ticks of a kernel with 250 a second, which is how exactly it counts who ran.
    pub const LEAST_US: u64 = 8_000;

    /// A thread woke up so much too late, and waited so long of that for others to leave it a
    /// processor.
    pub fn late(&mut self, late_us: u64, delay_us: u64) {
        let stood_us = late_us.saturating_sub(delay_us);
        if stood_us > Stalls::LEAST_US {
            self.add(&Stalls {
                count: 1,
                total_us: stood_us,
                longest_us: stood_us,
            });
        }
    }

    /// Adds those of another time.
    pub fn add(&mut self, other: &Stalls) {
        self.count += other.count;
        self.total_us += other.total_us;
        self.longest_us = self.longest_us.max(other.longest_us);
    }
}

/// One cell of a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Figures, each as a comparison.
    pub figures: Vec<Figure>,
    /// Rounds in which both brokers' runs went well.
    pub rounds: u32,
    /// What failed, as text.
    pub failures: Vec<String>,
}

/// One figure of a cell: RingMQ's over the other's.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// E.g. `messages per CPU-second`, `p99.9`.
    pub name: String,
    /// E.g. `/s`, `us`, `bytes`.
    pub unit: String,
    /// More is better.
    pub more_is_better: bool,
    /// Median of RingMQ's rounds.
    pub ours: f64,
    /// Median of the other's rounds.
    pub theirs: f64,
    /// Median over the rounds of how many times better RingMQ was; below 1 it lost.
    pub factor: f64,
    /// Smallest and greatest factor of a round.
    pub spread: (f64, f64),
    /// The factor that is asked for, if any.
    pub bar: Option<f64>,
    /// What is asked of RingMQ's own value, if anything: at least this where more is better, at
    /// most this otherwise.
    #[serde(default)]
    pub limit: Option<f64>,
    /// Rounds in which both brokers have a value; 0 where it was not measured.
    #[serde(default)]
    pub rounds: u32,
    /// Only the limit is asked for: the figure sets a broker against itself.
    #[serde(default)]
    pub only_limit: bool,
    /// In a run that it is made from the harness was the limit, not the broker.
    #[serde(default)]
    pub harness_was_limit: bool,
}

impl Figure {
    /// Whether both brokers have a value; if not, values and factor are 0.
    pub fn is_measured(&self) -> bool {
        self.factor > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_wait_for_each_other_is_no_stall() {
        let mut stalls = Stalls::default();
        [0, 4_000, 8_000]
            .into_iter()
            .for_each(|us| stalls.late(us, 0));
        for (late, delay) in [(20_000, 15_000), (9_000, 1_000), (9_000, 30_000)] {
            stalls.late(late, delay);
        }
        assert_eq!(stalls, Stalls::default());
        [20_000, 9_000]
            .into_iter()
            .for_each(|us| stalls.late(us, 0));
        let mut twice = stalls;
        twice.add(&stalls);
        assert_eq!((stalls.count, stalls.total_us), (2, 29_000));
        assert_eq!((twice.count, twice.total_us), (4, 58_000));
        assert_eq!((stalls.longest_us, twice.longest_us), (20_000, 20_000));
    }
}
