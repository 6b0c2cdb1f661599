//! What a thread of producers is told, and what it found.

use super::connection::Connection;
use super::live::{Busy, Live};
use super::outage::Outage;
use super::pacing::Pace;
use super::payload::Payloads;
use super::slots::Slots;
use super::template::Send;
use crate::bench::measure::recorder::{Recorder, Window};
use crate::bench::target::Route;
use crate::bench::verify::Sent;
use crate::bench::workload::Mode;

/// Requests are put together up to this size before they are written, in bytes.
const OUTPUT_BYTES: usize = 256 * 1024;

/// What all threads of a load have in common.
pub struct Plan<'a> {
    /// Where to.
    pub route: &'a Route,
    /// Requests, one for each place.
    pub sends: &'a [Send],
    /// Bodies.
    pub payloads: &'a Payloads,
    /// When the next request is sent.
    pub mode: Mode,
    /// Requests of a connection that wait for their answers, at most.
    pub in_flight: usize,
    /// Messages of a request.
    pub batch: usize,
    /// When to begin, in ns.
    pub begin: u64,
    /// The part that counts. Nothing is sent after it.
    pub window: Window,
    /// Longest wait for an answer, in ns.
    pub timeout_ns: u64,
    /// Number of the run.
    pub run: u32,
    /// Lost connections are made again, and what was under way is counted as lost.
    pub reconnect: bool,
    /// Figures while it lasts.
    pub live: &'a Live,
}

/// What one thread does.
pub struct Job {
    /// Its connections.
    pub lines: Vec<Line>,
    /// When requests are due; `None`: as fast as answers come.
    pub pace: Option<Pace>,
    /// Messages after which it ends.
    pub limit: Option<u64>,
    /// Where it notes what it sends, if that is to be verified.
    pub sent: Option<Sent>,
}

/// One connection and its requests.
pub struct Line {
    /// Its number among all of the run.
    pub producer: u32,
    /// Index of its broker.
    pub broker: usize,
    /// The connection, while there is one.
    pub connection: Option<Connection>,
    /// When to connect again, in ns.
    pub retry_at: u64,
    /// When the first request was due that was lost with the connection, in ns.
    pub lost_due: Option<u64>,
    /// Requests that wait for their answers.
    pub slots: Slots,
    /// Places that it sends to in turn.
    pub places: Vec<u32>,
    /// Requests made so far.
    pub next: u64,
    /// It has something to write, or room for more.
    pub is_dirty: bool,
}

impl Line {
    /// A producer with a connection to one of the brokers.
    pub fn new(plan: &Plan<'_>, producer: u32, broker: usize, connection: Connection) -> Line {
        Line {
            producer,
            broker,
            connection: Some(connection),
            retry_at: 0,
            lost_due: None,
            slots: Slots::new(match plan.mode {
                Mode::Sync => 1,
                Mode::Pipelined | Mode::OneWay => plan.in_flight,
            }),
            places: plan.route.places_of(broker),
            next: 0,
            is_dirty: false,
        }
    }

    /// Whether another request can be sent.
    pub fn wants(&self, mode: Mode) -> bool {
        let Some(connection) = &self.connection else {
            return false;
        };
        match mode {
            Mode::OneWay => connection.pending() < OUTPUT_BYTES / 4,
            Mode::Sync | Mode::Pipelined => {
                self.slots.has_room() && connection.pending() < OUTPUT_BYTES
            }
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        let pending = self.connection.as_ref().map_or(0, Connection::pending);
        self.slots.open() == 0 && pending == 0
    }
}

/// What one thread found.
pub struct Outcome {
    /// Latencies.
    pub recorder: Recorder,
    /// What was sent.
    pub sent: Option<Sent>,
    /// Messages sent, the warm-up included.
    pub requested: u64,
    /// Messages acknowledged, the warm-up included.
    pub acknowledged: u64,
    /// Requests refused.
    pub failed: u64,
    /// The first refusal.
    pub refusal: Option<String>,
    /// Requests in the window that were sent more than 1 ms after their time.
    pub late: u64,
    /// How the thread spent the window.
    pub busy: Busy,
    /// Acknowledgements in time.
    pub outage: Outage,
    /// What ended it early.
    pub error: Option<String>,
}
