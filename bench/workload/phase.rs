//! One part of a run: producers, consumers or both for some time, watched from outside.

use super::session::{ServerState, Session, server_use};
use crate::bench::load::clock::{self, nanos, sleep_until};
use crate::bench::load::connection::Connection;
use crate::bench::load::consumer::{self, Aim, Check, Cursor};
use crate::bench::load::live::{Busy, Live};
use crate::bench::load::outage::Outage;
use crate::bench::load::pacing::{Pace, give_way};
use crate::bench::load::producer;
use crate::bench::load::production::{self, Line};
use crate::bench::load::template::Pull;
use crate::bench::measure::recorder::{Recorder, Window};
use crate::bench::measure::server::Usage;
use crate::bench::result::{ClientUse, ServerUse, Stalls, Verified};
use crate::bench::verify::{Read, Sent};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::thread::ScopedJoinHandle;

/// Between the making of the connections and the first request, in ns.
const LEAD_NS: u64 = 10 * clock::MS;

/// How often the terminal is told, in ns.
const SHOW_NS: u64 = 200 * clock::MS;

/// How often it is looked whether all are done, and whether the machine stood still, in ns.
const LOOK_NS: u64 = 5 * clock::MS;

/// A thread that ran, or was ready to run, for more than this share had no time left.
const BUSY: f64 = 0.9;

/// Producers of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Producers {
    /// Number of the first; those of other phases have other numbers.
    pub first: u32,
    /// Of all phases of the run.
    pub total: usize,
    /// Messages per second.
    pub rate: Option<f64>,
    /// Messages after which they end.
    pub limit: Option<u64>,
    /// Lost connections are made again.
    pub reconnect: bool,
}

/// Consumers of a phase.
pub(super) struct Consumers<'a> {
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Where each place is begun.
    pub starts: &'a [i64],
    /// When the reader of a place is at its end.
    pub aim: &'a dyn Fn(usize) -> Aim,
    /// How messages are looked at.
    pub check: Check,
    /// Whose messages may come, where [`Check::Stamps`] looks at them.
    pub ledger: Ledger,
    /// How long the broker may hold a pull, in ms.
    pub wait_ms: u64,
    /// Their threads leave the processor to those that send, whose latency is measured.
    pub gives_way: bool,
}

/// What readers know of what was sent.
#[derive(Clone)]
pub(super) enum Ledger {
    /// Nothing.
    None,
    /// So many producers send, still: what they sent is known at the end.
    Open(usize),
    /// They have sent this. Of the messages that were due in the window it is counted which come.
    Closed(Arc<Sent>, Option<Window>),
}

/// What is done to the broker in the middle of a phase.
pub(super) type Disturb<'a> = dyn Fn(&Window, &Live) -> Result<(), String> + Sync + 'a;

/// What is done, and how long.
pub(super) struct Phase<'a> {
    /// Name for the terminal.
    pub name: &'a str,
    /// What goes before and is not counted, in seconds.
    pub warm_up: f64,
    /// What counts, in seconds.
    pub seconds: f64,
    pub producers: Option<Producers>,
    pub consumers: Option<Consumers<'a>>,
    /// Called in a thread of its own in the middle of the phase.
    pub disturb: Option<&'a Disturb<'a>>,
}

/// What producers found.
pub(super) struct Produced {
    pub recorder: Recorder,
    pub sent: Option<Sent>,
    pub requested: u64,
    pub failed: u64,
    pub refusal: Option<String>,
    pub late: u64,
    pub outage: Outage,
}

/// What consumers found.
pub(super) struct Consumed {
    pub recorder: Recorder,
    pub reads: Vec<Read>,
    pub received: u64,
    pub gaps: u64,
    pub found: Verified,
    pub pulls: u64,
    pub unread: u64,
    pub is_cut: bool,
    pub last: u64,
}

/// What a phase found.
pub(super) struct Measured {
    pub window: Window,
    pub produced: Option<Produced>,
    pub consumed: Option<Consumed>,
    pub server: Option<ServerUse>,
    pub client: ClientUse,
}

/// What was seen from outside.
struct Watched {
    ended: u64,
    cpu_ns: u64,
    stalls: Stalls,
    server: (Option<ServerState>, Option<ServerState>),
}

impl Session<'_> {
    /// Does it. Threads that fail stop all others.
    pub fn run_phase(&self, phase: &Phase<'_>) -> Result<Measured, String> {
        let mut lines = Vec::new();
        if phase.producers.is_some() {
            lines = self.connect(self.spec.connections)?;
        }
        let mut readers = Vec::new();
        if phase.consumers.is_some() {
            let least = self.route.brokers.len();
            readers = self.connect(self.spec.consumers.max(least))?;
        }
        let begin = clock::now() + LEAD_NS;
        let from = begin + nanos(phase.warm_up);
        let window = Window {
            from,
            until: from + nanos(phase.seconds),
        };
        let live = Live::default();
        let ends = OnceLock::new();
        let timeout_ns = self.timeout.as_nanos() as u64;
        let plan = production::Plan {
            route: &self.route,
            sends: &self.sends,
            payloads: &self.payloads,
            mode: self.spec.mode,
            in_flight: self.spec.in_flight,
            batch: self.spec.batch,
            begin,
            window,
            timeout_ns,
            run: self.run,
            reconnect: phase.producers.is_some_and(|producers| producers.reconnect),
            live: &live,
        };
        let check = phase.consumers.as_ref().map_or(Check::Nothing, |c| c.check);
        let wait_ms = phase.consumers.as_ref().map_or(0, |c| c.wait_ms);
        let gives_way = phase.consumers.as_ref().is_some_and(|c| c.gives_way);
        let pulling = consumer::Plan {
            begin,
            window,
            ends: &ends,
            check,
            wait_ns: wait_ms * clock::MS,
            timeout_ns,
            live: phase.producers.is_none().then_some(&live),
            stop: &live,
        };
        let producing = match &phase.producers {
            Some(producers) => self.producer_jobs(&plan, producers, lines)?,
            None => Vec::new(),
        };
        let consuming = match &phase.consumers {
            Some(consumers) => self.consumer_jobs(consumers, readers),
            None => Vec::new(),
        };
        self.progress.part(phase.name);
        std::thread::scope(|scope| {
            let consumers: Vec<_> = consuming
                .into_iter()
                .map(|job| {
                    scope.spawn(|| {
                        if gives_way {
                            give_way();
                        }
                        consumer::run(&pulling, job)
                    })
                })
                .collect();
            let producers: Vec<_> = producing
                .into_iter()
                .map(|job| scope.spawn(|| producer::run(&plan, job)))
                .collect();
            let disturbed = phase.disturb.map(|disturb| {
                scope.spawn(|| disturb(&window, &live).inspect_err(|_| live.abort()))
            });
            let ended = || match &phase.producers {
                Some(_) => producers.iter().all(ScopedJoinHandle::is_finished),
                None => consumers.iter().all(ScopedJoinHandle::is_finished),
            };
            let watched = self.watch(&window, &live, ended);
            let (produced, busy) = join_producers(window, producers);
            let reached = match &produced {
                Some(Ok(produced)) => match &produced.sent {
                    Some(sent) => Ok(sent.ends()),
                    None if consumers.is_empty() => Ok(Vec::new()),
                    None => self.max_offsets(),
                },
                // There is nothing to wait for.
                _ => Ok(vec![0; self.places()]),
            };
            if let Some(Err(_)) = produced {
                live.abort();
            }
            let reached = reached.inspect_err(|_| live.abort());
            if let Ok(reached) = &reached {
                let _ = ends.set(reached.clone());
            }
            let (consumed, also_busy) = join_consumers(window, consumers);
            if let Some(disturbed) = disturbed {
                disturbed
                    .join()
                    .unwrap_or_else(|_| Err(PANICKED.to_owned()))?;
            }
            let busiest = busy.max(also_busy);
            let shares = busiest.on_cpu + busiest.waiting;
            let (produced, consumed) = (produced.transpose()?, consumed.transpose()?);
            reached?;
            Ok(Measured {
                window: Window {
                    from: window.from,
                    until: watched.ended,
                },
                produced,
                consumed,
                server: server_use(watched.server.0.as_ref(), watched.server.1.as_ref()),
                client: ClientUse {
                    cpu_seconds: watched.cpu_ns as f64 / clock::SECOND as f64,
                    busiest_thread: busiest.on_cpu,
                    run_delay: busiest.waiting,
                    is_the_limit: shares > BUSY,
                    stalls: watched.stalls,
                },
            })
        })
    }

    /// Connections, spread over the brokers.
    fn connect(&self, count: usize) -> Result<Vec<(usize, Connection)>, String> {
        let brokers = &self.route.brokers;
        (0..count)
            .map(|number| {
                let broker = number % brokers.len();
                let connection = Connection::open(brokers[broker].address, self.timeout)?;
                Ok((broker, connection))
            })
            .collect()
    }

    fn producer_jobs(
        &self,
        plan: &production::Plan<'_>,
        producers: &Producers,
        connections: Vec<(usize, Connection)>,
    ) -> Result<Vec<production::Job>, String> {
        let threads = self.spec.threads.min(connections.len());
        let requests_rate = producers.rate.map(|rate| rate / self.spec.batch as f64);
        let mut jobs = Vec::new();
        for thread in 0..threads {
            let sent = if self.spec.verify {
                Some(Sent::new(producers.total, self.places())?)
            } else {
                None
            };
            // Threads take turns, so that all together are even.
            let pace = requests_rate.map(|rate| {
                let shift = thread as f64 / rate;
                Pace::new(plan.begin + nanos(shift), rate / threads as f64)
            });
            let share = |limit: u64| {
                let extra = u64::from((thread as u64) < limit % threads as u64);
                limit / threads as u64 + extra
            };
            jobs.push(production::Job {
                lines: Vec::new(),
                pace,
                limit: producers.limit.map(share),
                sent,
            });
        }
        for (number, (broker, connection)) in connections.into_iter().enumerate() {
            let producer = producers.first + number as u32;
            let line = Line::new(plan, producer, broker, connection);
            jobs[number % threads].lines.push(line);
        }
        Ok(jobs)
    }

    fn consumer_jobs(
        &self,
        consumers: &Consumers<'_>,
        connections: Vec<(usize, Connection)>,
    ) -> Vec<consumer::Job> {
        let threads = self.spec.threads.min(connections.len());
        let (places, alone) = (self.places(), self.route.is_new);
        let groups = match consumers.check {
            Check::Stamps => &consumers.groups[..],
            Check::Nothing | Check::Records => &[],
        };
        let reads = || {
            let read = |_: &String| match consumers.ledger.clone() {
                Ledger::None => None,
                Ledger::Open(producers) => Some(Read::new(self.run, producers, places, alone)),
                Ledger::Closed(sent, window) => {
                    let mut read = Read::of(self.run, sent, alone);
                    if let Some(window) = window {
                        read.count_within(window);
                    }
                    Some(read)
                }
            };
            groups.iter().filter_map(read).collect()
        };
        let mut jobs: Vec<consumer::Job> = (0..threads)
            .map(|_| consumer::Job {
                connections: Vec::new(),
                cursors: Vec::new(),
                reads: reads(),
            })
            .collect();
        // Connections of each broker, as (thread, index there).
        let mut of_broker = vec![Vec::new(); self.route.brokers.len()];
        for (number, (broker, connection)) in connections.into_iter().enumerate() {
            let job = &mut jobs[number % threads];
            of_broker[broker].push((number % threads, job.connections.len()));
            job.connections.push(connection);
        }
        for (group, name) in consumers.groups.iter().enumerate() {
            for (place, known) in self.route.places.iter().enumerate() {
                let choices = &of_broker[known.broker as usize];
                let (thread, connection) = choices[(place + group) % choices.len()];
                let queue = self.queue(place as u32);
                jobs[thread].cursors.push(Cursor {
                    group,
                    place: place as u32,
                    connection,
                    pull: Pull::new(queue, name, self.spec.max, consumers.wait_ms),
                    start: consumers.starts[place],
                    aim: (consumers.aim)(place),
                });
            }
        }
        jobs
    }

    /// Looks at the server and the clock while the threads work.
    fn watch(&self, window: &Window, live: &Live, ended: impl Fn() -> bool) -> Watched {
        self.wait(window.from, live, &ended);
        let before = self.server_state(Usage::begin);
        let cpu_began = clock::process_cpu();
        let stalls = self.wait(window.until, live, &ended);
        let (now, cpu_ended) = (clock::now(), clock::process_cpu());
        let after = self.server_state(Usage::of);
        Watched {
            ended: now.clamp(window.from, window.until),
            cpu_ns: cpu_ended - cpu_began,
            stalls,
            server: (before, after),
        }
    }

    /// Waits for the end, and tells when the machine stood still meanwhile.
    fn wait(&self, until: u64, live: &Live, ended: &impl Fn() -> bool) -> Stalls {
        let mut stalls = Stalls::default();
        let (mut shown_at, mut shown) = (clock::now(), live.messages.load(Relaxed));
        let mut delayed = clock::thread_run_delay().unwrap_or(0);
        loop {
            let now = clock::now();
            if now >= until || ended() || live.is_aborted() {
                return stalls;
            }
            if now >= shown_at + SHOW_NS {
                let messages = live.messages.load(Relaxed);
                let rate =
                    (messages - shown) as f64 * clock::SECOND as f64 / (now - shown_at) as f64;
                let mut text = format!("{rate:.0} messages/s");
                let (p99, failed) = (live.p99_us.load(Relaxed), live.failed.load(Relaxed));
                if p99 > 0 {
                    text.push_str(&format!(", p99 {p99} us"));
                }
                if failed > 0 {
                    text.push_str(&format!(", {failed} failed"));
                }
                self.progress.show(text);
                (shown_at, shown) = (now, messages);
            }
            let next = until.min(clock::now() + LOOK_NS);
            sleep_until(next);
            let late = clock::now().saturating_sub(next);
            let delay = clock::thread_run_delay().unwrap_or(0);
            stalls.late(late / 1000, (delay - delayed) / 1000);
            delayed = delay;
        }
    }
}

const PANICKED: &str = "a thread of the harness panicked";

type Joined<T> = Option<Result<T, String>>;

fn join_producers(
    window: Window,
    threads: Vec<ScopedJoinHandle<'_, production::Outcome>>,
) -> (Joined<Produced>, Busy) {
    if threads.is_empty() {
        return (None, Busy::default());
    }
    let mut all = Produced {
        recorder: Recorder::new(window),
        sent: None,
        requested: 0,
        failed: 0,
        refusal: None,
        late: 0,
        outage: Outage::new(window),
    };
    let (mut busy, mut error) = (Busy::default(), None);
    for thread in threads {
        let Ok(one) = thread.join() else {
            error.get_or_insert(PANICKED.to_owned());
            continue;
        };
        busy = busy.max(one.busy);
        error = error.or(one.error);
        all.recorder.merge(one.recorder);
        match (&mut all.sent, one.sent) {
            (Some(sent), Some(more)) => sent.merge(&more),
            (sent, more) => *sent = more.or(sent.take()),
        }
        all.requested += one.requested;
        all.failed += one.failed;
        all.refusal = all.refusal.or(one.refusal);
        all.late += one.late;
        // A phase that looks at outages has one thread.
        all.outage = one.outage;
    }
    let result = match error {
        // What was refused explains more than that the run ended.
        Some(error) => Err(match &all.refusal {
            Some(refusal) => format!("{error}: {refusal}"),
            None => error,
        }),
        None => Ok(all),
    };
    (Some(result), busy)
}

fn join_consumers(
    window: Window,
    threads: Vec<ScopedJoinHandle<'_, consumer::Outcome>>,
) -> (Joined<Consumed>, Busy) {
    if threads.is_empty() {
        return (None, Busy::default());
    }
    let mut all = Consumed {
        recorder: Recorder::new(window),
        reads: Vec::new(),
        received: 0,
        gaps: 0,
        found: Verified::default(),
        pulls: 0,
        unread: 0,
        is_cut: false,
        last: 0,
    };
    let (mut busy, mut error) = (Busy::default(), None);
    for thread in threads {
        let Ok(one) = thread.join() else {
            error.get_or_insert(PANICKED.to_owned());
            continue;
        };
        busy = busy.max(one.busy);
        error = error.or(one.error);
        all.recorder.merge(one.recorder);
        if all.reads.is_empty() {
            all.reads = one.reads;
        } else {
            let pairs = all.reads.iter_mut().zip(one.reads);
            pairs.for_each(|(read, more)| read.merge(more));
        }
        all.received += one.received;
        all.gaps = all.gaps.saturating_add(one.gaps);
        all.found.add(&one.found);
        all.pulls += one.pulls;
        all.unread = all.unread.saturating_add(one.unread);
        all.is_cut |= one.is_cut;
        all.last = all.last.max(one.last);
    }
    (Some(error.map_or(Ok(all), Err)), busy)
}
