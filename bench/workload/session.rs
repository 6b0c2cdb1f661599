//! A run's place: the topics it works on, and the broker it looks at.

use super::Spec;
use crate::bench::load::clock;
use crate::bench::load::payload::Payloads;
use crate::bench::load::template::{Extras, Queue, Send};
use crate::bench::measure::machine::allow_connections;
use crate::bench::measure::server::{Usage, listener};
use crate::bench::report::progress::Progress;
use crate::bench::result::ServerUse;
use crate::bench::target::{self, Route, Target, Wanted};
use crate::bench::verify::mix;
use ringmq::client::remote::Remote;
use ringmq::wire::codes::request;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Connections beside those of the load.
const CONNECTIONS_BESIDE: usize = 32;

/// What all parts of a run share.
pub(super) struct Session<'a> {
    pub spec: &'a Spec,
    pub progress: &'a Progress,
    pub route: Route,
    pub payloads: Payloads,
    pub sends: Vec<Send>,
    /// Number of the run, in every body.
    pub run: u32,
    /// What the broker is.
    pub product: String,
    pub timeout: Duration,
    pids: Vec<u32>,
}

/// What the broker had used at some moment.
pub(super) struct ServerState {
    usage: Vec<Usage>,
    info: BTreeMap<String, String>,
}

impl<'a> Session<'a> {
    /// Finds the broker and makes the topics.
    pub fn open(
        spec: &'a Spec,
        target: &Target,
        progress: &'a Progress,
    ) -> Result<Session<'a>, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let run = mix(clock::now() ^ u64::from(std::process::id()) << 40 ^ u64::from(number));
        let connections = spec.connections + spec.consumers + CONNECTIONS_BESIDE;
        allow_connections(connections)?;
        let fresh = format!("bench-{:x}-{:x}", clock::epoch_ms(), run & 0xffff);
        let wanted = Wanted {
            topic: spec.topic.as_deref(),
            fresh: &fresh,
            topics: spec.topics,
            queues: spec.queues,
        };
        let timeout = Duration::from_secs_f64(spec.timeout);
        let route = target::prepare(target, &wanted, timeout)?;
        let info = info(&route, timeout);
        let product = target.name.clone().or_else(|| {
            let info = info.as_ref().ok()?;
            Some(target::product(info))
        });
        let pids = match target.server_pid {
            Some(pid) if Usage::of(pid).is_none() => {
                return Err(format!("--server-pid {pid}: there is no such process"));
            }
            Some(_) if route.brokers.len() > 1 => {
                return Err(format!(
                    "--server-pid is one process, but the load goes to {} brokers",
                    route.brokers.len()
                ));
            }
            Some(pid) => vec![pid],
            None => {
                let brokers = route.brokers.iter();
                let pids: Option<Vec<u32>> =
                    brokers.map(|broker| listener(broker.address)).collect();
                // Figures of some brokers for the load of all would be wrong.
                let mut pids = pids.unwrap_or_default();
                pids.sort_unstable();
                pids.dedup();
                pids
            }
        };
        let extras = Extras {
            keys: spec.keys,
            tags: spec.tags,
        };
        let is_one_way = spec.mode == super::Mode::OneWay;
        let sends = (0..route.places.len() as u32)
            .map(|place| Send::new(queue(&route, place), spec.batch > 1, is_one_way, extras))
            .collect();
        Ok(Session {
            spec,
            progress,
            payloads: Payloads::new(&spec.size, spec.compressible),
            sends,
            run: run as u32,
            product: product.unwrap_or_default(),
            timeout,
            pids,
            route,
        })
    }

    /// Deletes what was made for the run alone.
    pub fn close(&self) {
        if self.route.is_new {
            target::delete_topics(&self.route, self.timeout);
        }
    }

    /// The queue of a place.
    pub fn queue(&self, place: u32) -> Queue<'_> {
        queue(&self.route, place)
    }

    /// Number of places.
    pub fn places(&self) -> usize {
        self.route.places.len()
    }

    /// One above the highest queue offset, of each place.
    pub fn max_offsets(&self) -> Result<Vec<i64>, String> {
        target::offsets(&self.route, request::GET_MAX_OFFSET, self.timeout)
    }

    /// The lowest queue offset, of each place.
    pub fn min_offsets(&self) -> Result<Vec<i64>, String> {
        target::offsets(&self.route, request::GET_MIN_OFFSET, self.timeout)
    }

    /// What the broker has used by now, by [`Usage::begin`] or [`Usage::of`]; `None` where its
    /// process cannot be looked at.
    pub fn server_state(&self, usage: fn(u32) -> Option<Usage>) -> Option<ServerState> {
        let usage: Option<Vec<Usage>> = self.pids.iter().map(|&pid| usage(pid)).collect();
        let usage = usage.filter(|usage| !usage.is_empty())?;
        let info = info(&self.route, self.timeout).unwrap_or_default();
        Some(ServerState { usage, info })
    }
}

/// Figures that the brokers tell, the numbers of several added up.
fn info(route: &Route, timeout: Duration) -> Result<BTreeMap<String, String>, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for broker in &route.brokers {
        let mut remote = Remote::connect(broker.address, timeout)?;
        for (name, value) in target::runtime_info(&mut remote)? {
            let sum = |had: &String| {
                let sum = had.parse::<u64>().ok()?.checked_add(value.parse().ok()?)?;
                Some(sum.to_string())
            };
            let sum = all.get(&name).and_then(sum);
            all.insert(name, sum.unwrap_or(value));
        }
    }
    Ok(all)
}

fn queue(route: &Route, place: u32) -> Queue<'_> {
    let place = route.places[place as usize];
    Queue {
        topic: route.topic(place),
        queues: route.queues,
        queue: place.queue,
        broker: &route.brokers[place.broker as usize].name,
    }
}

/// What was used between two moments; `None` where the process is another one.
pub(super) fn server_use(
    earlier: Option<&ServerState>,
    later: Option<&ServerState>,
) -> Option<ServerUse> {
    let (earlier, later) = (earlier?, later?);
    let mut sum = ServerUse {
        written_bytes: Some(0),
        ..ServerUse::default()
    };
    for (before, after) in earlier.usage.iter().zip(&later.usage) {
        let part = after.since(before)?;
        sum.cpu_seconds += part.cpu_seconds;
        sum.resident_bytes += part.resident_bytes;
        sum.written_bytes = match (sum.written_bytes, part.written_bytes) {
            (Some(sum), Some(part)) => Some(sum + part),
            _ => None,
        };
        sum.context_switches += part.context_switches;
    }
    let counted = |name: &str| {
        let of = |state: &ServerState| state.info.get(name)?.parse::<u64>().ok();
        Some(of(later)?.saturating_sub(of(earlier)?))
    };
    sum.long_turns = counted("longTurns");
    sum.large_allocations = counted("largeAllocations");
    Some(sum)
}
