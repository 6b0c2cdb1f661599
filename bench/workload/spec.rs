//! Whether a specification makes sense, and how it is written into the result.

use super::{Mode, Spec, Workload};
use crate::bench::load::payload::BODY_BYTES_MAX;
use crate::bench::load::template::TAGS_MAX;
use crate::bench::verify::Sent;
use crate::bench::verify::stamp::STAMP_BYTES;
use std::collections::BTreeMap;

/// Largest batch, in bytes of its bodies: it must fit into a frame.
const BATCH_BYTES_MAX: usize = BODY_BYTES_MAX;

/// Longest time of any kind, in seconds: a week.
const SECONDS_MAX: f64 = 7.0 * 86_400.0;

/// Most queues of all topics together, times groups: each has a request made in advance.
const QUEUES_MAX: u64 = 1 << 20;

/// Most pairs of a connection and a queue of those it sends to: each takes four bytes.
const PAIRS_MAX: u64 = 1 << 26;

/// Most requests that wait for their answers, of all connections: each has its place.
const IN_FLIGHT_MAX: u64 = 1 << 23;

impl Spec {
    /// Whether what is asked for fits into memory, before any of it is made. Queues are those of
    /// one broker.
    fn check_products(&self) -> Result<(), String> {
        let queues = u64::from(self.topics) * u64::from(self.queues);
        let connections = self.connections as u64;
        let groups = match self.workload {
            Workload::FanOut => self.groups.into(),
            _ => 1,
        };
        let products = [
            (
                "topics times queues times groups",
                queues * groups,
                QUEUES_MAX,
            ),
            (
                "topics times queues times connections",
                queues * connections,
                PAIRS_MAX,
            ),
            (
                "connections times requests in flight",
                connections * self.in_flight as u64,
                IN_FLIGHT_MAX,
            ),
        ];
        for (name, product, most) in products {
            if product > most {
                return Err(format!("{name} is {product}, above the limit of {most}"));
            }
        }
        if self.verify && self.workload != Workload::Tail {
            let parts = match self.workload {
                Workload::Mixed => super::mixed::PARTS,
                _ => 1,
            };
            Sent::check(parts * self.connections, queues as usize)?;
        }
        Ok(())
    }

    /// Whether bodies must have room for a stamp.
    fn needs_stamps(&self) -> bool {
        let measures_receipt = matches!(
            self.workload,
            Workload::EndToEnd | Workload::FanOut | Workload::Tail
        );
        self.verify || measures_receipt
    }

    /// # Errors
    /// Text with the option that is out of its range, and the range.
    pub(super) fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(format!("--{name} is {value}, not within {low}..={high}"))
            }
        };
        within("queues", self.queues.into(), 1, 4096)?;
        within("topics", self.topics.into(), 1, 100_000)?;
        within("connections", self.connections as u64, 1, 100_000)?;
        within("consumers", self.consumers as u64, 1, 100_000)?;
        within("in-flight", self.in_flight as u64, 1, 1 << 20)?;
        within("batch", self.batch as u64, 1, 10_000)?;
        within("tags", self.tags.into(), 0, TAGS_MAX.into())?;
        within("threads", self.threads as u64, 1, 256)?;
        within("max", self.max.into(), 1, 10_000)?;
        within("groups", self.groups.into(), 1, 1000)?;
        self.check_products()?;
        let bounded = |name: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("--{name} is {value}, not within {least}..={most}"))
            }
        };
        bounded("seconds", self.seconds, 0.1, SECONDS_MAX)?;
        bounded("warm-up", self.warm_up, 0.0, SECONDS_MAX)?;
        bounded("timeout", self.timeout, 0.1, SECONDS_MAX)?;
        if let Some(rate) = self.rate {
            bounded("rate", rate, 0.001, 1e9)?;
        }
        if self.mode == Mode::OneWay && self.workload != Workload::Produce {
            return Err("--mode oneway: only `produce` can do without answers".to_owned());
        }
        if !(0.0..=1.0).contains(&self.compressible) {
            return Err(format!(
                "--compressible is {}, not within 0..=1",
                self.compressible
            ));
        }
        let (least, most) = (self.size.least(), self.size.most());
        if self.needs_stamps() && least < STAMP_BYTES {
            return Err(format!(
                "bodies of {least} bytes have no room for the {STAMP_BYTES} bytes that tell \
                 them apart: larger ones, or --no-verify"
            ));
        }
        if self.batch * most > BATCH_BYTES_MAX {
            return Err(format!(
                "a batch of {} messages of {most} bytes is larger than {BATCH_BYTES_MAX} bytes",
                self.batch
            ));
        }
        if self.workload == Workload::Restart && self.restart_command.is_none() {
            return Err("--restart-command is missing".to_owned());
        }
        Ok(())
    }

    /// The options by their long names.
    pub(super) fn options(&self) -> BTreeMap<String, String> {
        let mut options = BTreeMap::new();
        let mut put = |name: &str, value: String| {
            options.insert(name.to_owned(), value);
        };
        put("queues", self.queues.to_string());
        put("topics", self.topics.to_string());
        put("seconds", self.seconds.to_string());
        put("warm-up", self.warm_up.to_string());
        put("threads", self.threads.to_string());
        if let Some(topic) = &self.topic {
            put("topic", topic.clone());
        }
        if self.workload != Workload::Tail {
            put("connections", self.connections.to_string());
            put("in-flight", self.in_flight.to_string());
            put("batch", self.batch.to_string());
            put("size", self.size.to_string());
            put("compressible", self.compressible.to_string());
            put("keys", self.keys.to_string());
            put("tags", self.tags.to_string());
            let mode = match self.mode {
                Mode::Sync => "sync",
                Mode::Pipelined => "pipelined",
                Mode::OneWay => "oneway",
            };
            put("mode", mode.to_owned());
        }
        if let Some(rate) = self.rate {
            put("rate", rate.to_string());
        }
        if !matches!(self.workload, Workload::Produce | Workload::Restart) {
            put("max", self.max.to_string());
            put("consumers", self.consumers.to_string());
        }
        if self.workload == Workload::FanOut {
            put("groups", self.groups.to_string());
        }
        if let Some(fill) = self.fill {
            put("fill", fill.to_string());
        }
        if let Some(command) = &self.restart_command {
            put("restart-command", command.clone());
        }
        if !self.verify {
            put("no-verify", "true".to_owned());
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(Spec::default().check(), Ok(()));
        let refused = |change: fn(&mut Spec), text: &str| {
            let mut spec = Spec::default();
            change(&mut spec);
            let error = spec.check().expect_err(text);
            assert!(error.contains(text), "{error}");
        };
        refused(|spec| spec.queues = 0, "--queues is 0");
        refused(|spec| spec.rate = Some(0.0), "--rate is 0");
        refused(|spec| spec.seconds = f64::NAN, "--seconds is NaN");
        refused(|spec| spec.seconds = f64::INFINITY, "--seconds is inf");
        refused(|spec| spec.timeout = 1e18, "not within 0.1..=604800");
        refused(|spec| spec.warm_up = -1.0, "--warm-up is -1");
        let most = |spec: &mut Spec| (spec.topics, spec.queues) = (100_000, 4096);
        refused(most, "409600000, above the limit of 1048576");
        refused(
            |spec| (spec.verify, spec.topics, spec.connections) = (false, 10_000, 10_000),
            "connections is 800000000",
        );
        refused(
            |spec| (spec.connections, spec.in_flight) = (1000, 1 << 20),
            "in flight is 1048576000",
        );
        refused(
            |spec| (spec.topics, spec.connections) = (1000, 1000),
            "orders to verify",
        );
        for workload in [Workload::CatchUp, Workload::EndToEnd, Workload::Mixed] {
            let spec = Spec {
                workload,
                mode: Mode::OneWay,
                ..Spec::default()
            };
            let error = spec.check().expect_err("without answers");
            assert!(error.contains("--mode oneway"), "{error}");
        }
        refused(
            |spec| spec.size = "list:4096=9,10=1".parse().expect("sizes"),
            "no room",
        );
        refused(|spec| spec.batch = 10_000, "larger than");
        refused(
            |spec| spec.workload = Workload::Restart,
            "--restart-command",
        );
        let small = Spec {
            size: "10".parse().expect("a size"),
            verify: false,
            ..Spec::default()
        };
        assert_eq!(small.check(), Ok(()));
    }
}
