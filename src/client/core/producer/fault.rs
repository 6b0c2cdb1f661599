//! Which brokers are avoided, and for how long (`MQFaultStrategy`,
//! `LatencyFaultToleranceImpl`).
//!
//! Each answer's latency falls into a class, and each class says for how long the broker
//! is not sent to. A failure counts as 10 s. While a broker cannot be reached at all it is
//! sent to only where there is no other.

use std::collections::HashMap;

use crate::client::settings::ProducerSettings;

/// What a failure counts as, ms.
const FAILURE_LATENCY_MS: u64 = 10_000;

/// What is known of the brokers of one producer, by their number.
#[derive(Debug, Default)]
pub struct Faults {
    enabled: bool,
    classes: Vec<(u64, u64)>,
    brokers: HashMap<u32, Fault>,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    /// From when on it is available again, ms.
    available_at: u64,
    reachable: bool,
}

impl Faults {
    /// As the settings say.
    pub fn new(settings: &ProducerSettings) -> Faults {
        let latencies = settings.latency_max_ms.iter().copied();
        Faults {
            enabled: settings.send_latency_fault_enable,
            classes: latencies
                .zip(settings.not_available_duration_ms.iter().copied())
                .collect(),
            brokers: HashMap::new(),
        }
    }

    /// Nothing is ever avoided.
    #[cfg(test)]
    pub fn off() -> Faults {
        Faults::default()
    }

    /// Whether anything is avoided at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// A try ended after `latency_ms`. `failed`: it counts as slow; `reachable`: the broker
    /// could be spoken to.
    pub fn update(
        &mut self,
        broker: u32,
        latency_ms: u64,
        failed: bool,
        reachable: bool,
        now: u64,
    ) {
        if !self.enabled {
            return;
        }
        let latency = if failed {
            FAILURE_LATENCY_MS
        } else {
            latency_ms
        };
        let avoided = self.avoided_ms(latency);
        let fault = self.brokers.entry(broker).or_insert(Fault {
            available_at: 0,
            reachable,
        });
        fault.reachable = reachable;
        // A quick answer does not end what a slow one began.
        if avoided > 0 {
            fault.available_at = fault.available_at.max(now + avoided);
        }
    }

    /// How long a broker with this latency is avoided, ms.
    fn avoided_ms(&self, latency: u64) -> u64 {
        let mut classes = self.classes.iter().rev();
        let class = classes.find(|&&(from, _)| latency >= from);
        class.map_or(0, |&(_, avoided)| avoided)
    }

    /// Whether the broker is not avoided.
    pub fn is_available(&self, broker: u32, now: u64) -> bool {
        self.brokers
            .get(&broker)
            .is_none_or(|fault| now >= fault.available_at)
    }

    /// Whether the broker could be spoken to the last time.
    pub fn is_reachable(&self, broker: u32) -> bool {
        self.brokers
            .get(&broker)
            .is_none_or(|fault| fault.reachable)
    }

    /// The brokers that could not be spoken to, for the detector.
    pub fn unreachable(&self) -> impl Iterator<Item = u32> {
        let lost = self.brokers.iter().filter(|(_, fault)| !fault.reachable);
        lost.map(|(&broker, _)| broker)
    }

    /// The broker answered the detector.
    pub fn found(&mut self, broker: u32) {
        if let Some(fault) = self.brokers.get_mut(&broker) {
            fault.reachable = true;
        }
    }

    /// The broker is gone from all routes.
    pub fn forget(&mut self, broker: u32) {
        self.brokers.remove(&broker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::core::producer::select::select;
    use crate::client::core::routes::PublishQueue;

    fn enabled() -> Faults {
        Faults::new(&ProducerSettings {
            send_latency_fault_enable: true,
            ..ProducerSettings::default()
        })
    }

    #[test]
    fn each_latency_has_its_duration() {
        let classes = [
            (0, 0),
            (49, 0),
            (50, 0),
            (549, 0),
            (550, 2_000),
            (1_799, 2_000),
            (1_800, 5_000),
            (3_000, 6_000),
            (5_000, 10_000),
            (14_999, 10_000),
            (15_000, 30_000),
        ];
        for (latency, avoided) in classes {
            let mut faults = enabled();
            faults.update(1, latency, false, true, 100);
            let ends = 100 + avoided;
            assert!(faults.is_available(1, ends), "{latency}");
            assert!(
                avoided == 0 || !faults.is_available(1, ends - 1),
                "{latency}"
            );
        }
    }

    #[test]
    fn a_failure_counts_as_ten_seconds_and_a_quick_answer_does_not_end_it() {
        let mut faults = enabled();
        faults.update(1, 3, true, true, 0);
        assert!(!faults.is_available(1, 9_999));
        faults.update(1, 3, false, true, 5_000);
        assert!(!faults.is_available(1, 9_999));
        assert!(faults.is_available(1, 10_000));
    }

    #[test]
    fn when_all_are_avoided_the_reachable_come_first_and_then_any() {
        let queue = |broker| PublishQueue {
            broker,
            queue_id: 0,
        };
        let queues = [queue(0), queue(1), queue(2)];
        let mut faults = enabled();
        let mut cursor = 0;
        faults.update(0, 1, true, false, 0);
        faults.update(1, 1, true, true, 0);
        faults.update(2, 1, true, false, 0);
        for _ in 0..3 {
            assert_eq!(
                select(&queues, &mut cursor, None, &faults, 1, |_| true),
                Some(1)
            );
        }
        // The one that could be reached has just failed: any other.
        let other = select(&queues, &mut cursor, Some(1), &faults, 1, |_| true).unwrap();
        assert!(other < 3);
        faults.found(2);
        assert_eq!(
            select(&queues, &mut cursor, Some(1), &faults, 1, |_| true),
            Some(2)
        );
    }

    #[test]
    fn nothing_is_avoided_unless_it_is_asked_for() {
        let mut faults = Faults::new(&ProducerSettings::default());
        faults.update(1, 20_000, true, false, 0);
        assert!(faults.is_available(1, 0) && faults.is_reachable(1));
    }
}
