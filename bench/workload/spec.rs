//! Whether a specification makes sense, and how it is written into the result.

use super::{Mode, Spec, Workload};
use crate::bench::load::payload::BODY_BYTES_MAX;
use crate::bench::load::template::TAGS_MAX;
use crate::bench::verify::stamp::STAMP_BYTES;
use std::collections::BTreeMap;

/// Largest batch, in bytes of its bodies: it must fit into a frame.
const BATCH_BYTES_MAX: usize = BODY_BYTES_MAX;

impl Spec {
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
        let positive = |name: &str, value: f64, least: f64| {
            if value.is_finite() && value >= least {
                Ok(())
            } else {
                Err(format!("--{name} is {value}, not at least {least}"))
            }
        };
        positive("seconds", self.seconds, 0.1)?;
        positive("warm-up", self.warm_up, 0.0)?;
        positive("timeout", self.timeout, 0.1)?;
        if let Some(rate) = self.rate {
            positive("rate", rate, 0.001)?;
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
        refused(|spec| spec.seconds = f64::NAN, "--seconds");
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
