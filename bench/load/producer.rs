//! Producers: one thread that keeps many connections busy.

use super::answer::{Field, Reader};
use super::clock;
use super::connection::{Connection, Ended};
use super::live::{Busy, Share, TICK_NS};
use super::outage::Outage;
use super::pacing::{LATE_NS, Pace, TURN_NS, Timer, precise_timers};
use super::production::{Job, Line, Outcome, Plan};
use super::slots::Open;
use super::template::{OPAQUE_MIN, born};
use crate::bench::measure::recorder::Recorder;
use crate::bench::verify::stamp::Stamp;
use crate::bench::workload::Mode;
use mio::{Events, Poll, Token};
use ringmq::client::remote::refusal;
use ringmq::wire::codes::{request, response};
use ringmq::wire::frame::Frame;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Refusals without a single success after which a run is given up.
const REFUSALS_MAX: u64 = 100;

/// Longest sleep of the loop.
const SLEEP: Duration = Duration::from_millis(50);

/// Time between two attempts to reach a broker that is away, in ns.
const RETRY_NS: u64 = 10 * clock::MS;

/// Longest wait for one such attempt.
const RETRY_TIMEOUT: Duration = Duration::from_millis(200);

/// Token of the timer; connections have their indices.
const TIMER: Token = Token(usize::MAX);

struct Producer<'a> {
    plan: &'a Plan<'a>,
    reader: Reader,
    queue_offset: Field,
    is_paced: bool,
    /// Monotonic time and time since 1970, in ns and ms, of one moment.
    epoch: (u64, u64),
    born_ms: u64,
    born: [u8; 13],
    out: Outcome,
}

/// Sends until the window or the limit ends, and waits for the last answers.
pub fn run(plan: &Plan<'_>, job: Job) -> Outcome {
    let Job {
        mut lines,
        pace,
        limit,
        sent,
    } = job;
    let mut producer = Producer {
        plan,
        reader: Reader::new(),
        queue_offset: Field::queue_offset(),
        is_paced: pace.is_some(),
        epoch: (clock::now(), clock::epoch_ms()),
        born_ms: 0,
        born: born(0),
        out: Outcome {
            recorder: Recorder::new(plan.window),
            sent,
            requested: 0,
            acknowledged: 0,
            failed: 0,
            refusal: None,
            late: 0,
            busy: Busy::default(),
            outage: Outage::new(plan.window),
            error: None,
        },
    };
    let mut share = Share::default();
    clock::sleep_until(plan.begin);
    let ended = producer.work(&mut lines, pace, limit, &mut share);
    if let Err(error) = ended {
        plan.live.abort();
        producer.out.error = Some(error);
    }
    let now = clock::now();
    for line in &mut lines {
        producer.connected(line, now);
    }
    producer.out.busy = share.finish();
    producer.out
}

impl Producer<'_> {
    fn work(
        &mut self,
        lines: &mut [Line],
        mut pace: Option<Pace>,
        limit: Option<u64>,
        share: &mut Share,
    ) -> Result<(), String> {
        let system = |error: std::io::Error| format!("epoll: {error}");
        let mut poll = Poll::new().map_err(system)?;
        let mut events = Events::with_capacity(1024);
        for (index, line) in lines.iter_mut().enumerate() {
            if let Some(connection) = &mut line.connection {
                connection
                    .register(poll.registry(), Token(index))
                    .map_err(system)?;
            }
            line.is_dirty = true;
        }
        let timer = Timer::new(poll.registry(), TIMER).map_err(system)?;
        if pace.is_some() {
            precise_timers();
        }
        let limit = limit.unwrap_or(u64::MAX);
        let mut dirty: Vec<usize> = (0..lines.len()).collect();
        let (mut turn, mut armed) = (0, 0);
        let mut tick_at = 0;
        let mut told = 0;
        loop {
            let now = clock::now();
            share.note(now, &self.plan.window);
            if self.plan.live.is_aborted() {
                return Ok(());
            }
            let is_sending = self.is_sending(now, pace.as_ref())? && self.out.requested < limit;
            let mut sleep = SLEEP;
            if is_sending {
                match &mut pace {
                    Some(pace) => self.send_due(lines, &mut dirty, pace, &mut turn, limit),
                    None => self.fill(lines, &dirty, limit),
                }
            } else if lines.iter().all(|line| line.is_idle()) {
                return Ok(());
            }
            for index in std::mem::take(&mut dirty) {
                let line = &mut lines[index];
                line.is_dirty = false;
                if let Some(connection) = &mut line.connection {
                    if let Err(ended) = connection.flush() {
                        self.lose(line, ended.into())?;
                    }
                }
                if is_sending && !self.is_paced && line.wants(self.plan.mode) {
                    // More fits: without answers (one-way), or above what one write takes.
                    line.is_dirty = true;
                    dirty.push(index);
                    sleep = Duration::ZERO;
                }
            }
            if let (Some(pace), true) = (&pace, is_sending) {
                let due = pace.due();
                let now = clock::now();
                if due <= now && lines.iter().any(|line| line.wants(self.plan.mode)) {
                    sleep = Duration::ZERO;
                } else if due > now && due != armed {
                    timer.set(due.max(now + TURN_NS));
                    armed = due;
                }
            }
            if let Err(error) = poll.poll(&mut events, Some(sleep)) {
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(system(error));
                }
            }
            for event in &events {
                let index = event.token().0;
                let Some(line) = lines.get_mut(index) else {
                    continue;
                };
                match self.receive(line) {
                    Ok(()) => {}
                    Err(Ended::Lost(error)) => self.lose(line, error)?,
                    Err(Ended::Fault(error)) => return Err(error),
                }
                if !line.is_dirty {
                    line.is_dirty = true;
                    dirty.push(index);
                }
            }
            let now = clock::now();
            if now >= tick_at {
                tick_at = now + TICK_NS;
                self.tick(lines, &mut dirty, &poll, &mut told, now)?;
            }
        }
    }

    /// Whether there are requests left. What was due in the window is sent, however late.
    fn is_sending(&self, now: u64, pace: Option<&Pace>) -> Result<bool, String> {
        let until = self.plan.window.until;
        let Some(pace) = pace else {
            return Ok(now < until);
        };
        if pace.due() < until && now > until + self.plan.timeout_ns {
            return Err(format!(
                "the broker is too slow for this rate: sends are {:.1} s late at the end",
                now.saturating_sub(pace.due()) as f64 / clock::SECOND as f64
            ));
        }
        Ok(pace.due() < until)
    }

    /// Fills the windows of the connections that had answers (closed loop).
    fn fill(&mut self, lines: &mut [Line], dirty: &[usize], limit: u64) {
        for &index in dirty {
            let line = &mut lines[index];
            let now = clock::now();
            while line.wants(self.plan.mode) && self.out.requested < limit {
                self.send(line, now, now);
            }
        }
    }

    /// Sends what is due by now on the next connections that have room (open loop).
    fn send_due(
        &mut self,
        lines: &mut [Line],
        dirty: &mut Vec<usize>,
        pace: &mut Pace,
        turn: &mut usize,
        limit: u64,
    ) {
        let now = clock::now();
        let until = self.plan.window.until;
        while pace.due() <= now && pace.due() < until && self.out.requested < limit {
            let count = lines.len();
            let free = (0..count)
                .map(|step| (*turn + step) % count)
                .find(|&index| lines[index].wants(self.plan.mode));
            let Some(index) = free else {
                return;
            };
            *turn = index + 1;
            let due = pace.due();
            if now - due > LATE_NS && self.plan.window.contains(due) {
                self.out.late += 1;
            }
            self.send(&mut lines[index], due, now);
            pace.advance();
            if !lines[index].is_dirty {
                lines[index].is_dirty = true;
                dirty.push(index);
            }
        }
    }

    /// Appends the next request to the connection's output.
    fn send(&mut self, line: &mut Line, due: u64, now: u64) {
        let Some(connection) = &mut line.connection else {
            return;
        };
        let plan = self.plan;
        let batch = plan.batch as u32;
        let number = line.next + u64::from(line.producer);
        let place = line.places[(number % line.places.len() as u64) as usize];
        line.next += 1;
        let is_one_way = plan.mode == Mode::OneWay;
        let (first, floor) = match &mut self.out.sent {
            Some(sent) => {
                let (first, floor) = sent.begin(line.producer, place, batch);
                // None is ever answered.
                (first, if is_one_way { 0 } else { floor })
            }
            None => ((line.next as u32).wrapping_mul(batch), 0),
        };
        let body = number.wrapping_mul(plan.batch as u64);
        let sizes = (0..plan.batch as u64).map(|step| plan.payloads.size(body + step));
        let bytes: usize = sizes.sum();
        let opaque = if is_one_way {
            OPAQUE_MIN + (line.next % OPAQUE_MIN as u64) as i32
        } else {
            let open = Open {
                due,
                sent: now,
                place,
                first,
                bytes: bytes as u32,
            };
            let Some(opaque) = line.slots.put(open) else {
                return;
            };
            opaque
        };
        let is_checked = self.out.sent.is_some();
        let mut stamp = Stamp {
            run: plan.run,
            producer: line.producer,
            place,
            sequence: first,
            floor,
            due,
        };
        self.stamp_born(now);
        let send = &plan.sends[place as usize];
        let out = &mut connection.output;
        if batch == 1 {
            send.single(opaque, &self.born, &stamp, bytes, out);
            plan.payloads.write(body, &stamp, is_checked, out);
        } else {
            let total = bytes + plan.batch * send.item_overhead();
            send.batch(opaque, &self.born, total, out);
            for step in 0..batch {
                stamp.sequence = first.wrapping_add(step);
                let number = body + u64::from(step);
                let size = plan.payloads.size(number);
                send.item(&stamp, size, out, |out| {
                    plan.payloads.write(number, &stamp, is_checked, out);
                });
            }
        }
        self.out.requested += u64::from(batch);
        if is_one_way {
            self.out.recorder.count(due, u64::from(batch), bytes as u64);
            if let Some(sent) = &mut self.out.sent {
                sent.give_up(line.producer, place, first, batch);
            }
        }
    }

    fn stamp_born(&mut self, now: u64) {
        let ms = self.epoch.1 + now.saturating_sub(self.epoch.0) / clock::MS;
        if ms != self.born_ms {
            self.born_ms = ms;
            self.born = born(ms);
        }
    }

    /// Takes the answers that are there.
    fn receive(&mut self, line: &mut Line) -> Result<(), Ended> {
        let Some(mut connection) = line.connection.take() else {
            return Ok(());
        };
        let ended = connection.drain(|frame, now| self.answer(line, &frame, now));
        line.connection = Some(connection);
        ended
    }

    fn answer(&mut self, line: &mut Line, frame: &Frame<'_>, now: u64) -> Result<(), String> {
        let fixed = self.reader.fixed(frame)?;
        if !fixed.is_answer {
            return Ok(());
        }
        let Some(open) = line.slots.take(fixed.opaque) else {
            return Err(format!(
                "answer {} with code {} belongs to no request that waits",
                fixed.opaque, fixed.code
            ));
        };
        let batch = self.plan.batch as u32;
        if fixed.code != response::SUCCESS {
            return self.refused(line, frame, fixed.code, &open);
        }
        if let Some(sent) = &mut self.out.sent {
            let offset = self.reader.field(frame, &self.queue_offset);
            let offset = offset.ok_or("acknowledgement without queueOffset")?;
            if offset < 0 || offset.checked_add(i64::from(batch)).is_none() {
                return Err(format!("acknowledgement with queueOffset {offset}"));
            }
            sent.acknowledge(line.producer, open.place, open.first, batch, offset);
        }
        self.out.acknowledged += u64::from(batch);
        // Of an open loop everything that was due in the window counts, however late it is
        // answered: otherwise a broker that stalls would be measured without its stall. Of a
        // closed loop, where a request is due when it is sent, the same holds for latencies, but
        // messages count when they are answered: those under way at the end are no throughput.
        let counts_at = if self.is_paced { open.due } else { now };
        let (messages, bytes) = (u64::from(batch), u64::from(open.bytes));
        self.out.recorder.count(counts_at, messages, bytes);
        let latency = now.saturating_sub(open.due);
        self.out.recorder.latency_of(open.due, latency);
        if self.plan.reconnect {
            self.out.outage.acknowledged(now, u64::from(batch));
        }
        Ok(())
    }

    fn refused(
        &mut self,
        line: &Line,
        frame: &Frame<'_>,
        code: i32,
        open: &Open,
    ) -> Result<(), String> {
        let batch = self.plan.batch as u32;
        self.out.failed += 1;
        if let Some(sent) = &mut self.out.sent {
            sent.give_up(line.producer, open.place, open.first, batch);
        }
        if self.out.refusal.is_none() {
            let address = self.plan.route.brokers[line.broker].address;
            let asked = if batch == 1 {
                request::SEND_MESSAGE_V2
            } else {
                request::SEND_BATCH_MESSAGE
            };
            let remark = self.reader.remark(frame);
            self.out.refusal = Some(refusal(address, asked, code, &remark));
        }
        if self.out.acknowledged == 0 && self.out.failed >= REFUSALS_MAX {
            return Err("every request is refused".to_owned());
        }
        Ok(())
    }

    /// A connection failed: the run does too, unless it is about that.
    fn lose(&mut self, line: &mut Line, error: String) -> Result<(), String> {
        let open = line.slots.take_all();
        if !self.plan.reconnect {
            return Err(match open.len() {
                0 => error,
                count => format!("{error}, with {count} requests unanswered"),
            });
        }
        if line.connection.take().is_none() {
            return Ok(());
        }
        let now = clock::now();
        let dues = open.iter().map(|open| open.due);
        line.lost_due = self.out.outage.lost(now, dues);
        line.retry_at = now + RETRY_NS;
        if let Some(sent) = &mut self.out.sent {
            let batch = self.plan.batch as u32;
            for open in open {
                sent.give_up(line.producer, open.place, open.first, batch);
            }
        }
        Ok(())
    }

    /// A line has a connection again, or needs none any more.
    fn connected(&mut self, line: &mut Line, now: u64) {
        if let Some(due) = line.lost_due.take() {
            self.out.outage.connected(now, due);
        }
    }

    /// Looks for answers that do not come and for brokers that are back, and tells figures.
    fn tick(
        &mut self,
        lines: &mut [Line],
        dirty: &mut Vec<usize>,
        poll: &Poll,
        told: &mut u64,
        now: u64,
    ) -> Result<(), String> {
        let live = self.plan.live;
        let messages = self.out.acknowledged;
        live.messages.fetch_add(messages - *told, Relaxed);
        *told = messages;
        live.failed.fetch_max(self.out.failed, Relaxed);
        live.p99_us.store(self.out.recorder.last_p99_us(), Relaxed);
        for (index, line) in lines.iter_mut().enumerate() {
            let address = self.plan.route.brokers[line.broker].address;
            let waiting = line.slots.oldest();
            if waiting.is_some_and(|sent| now.saturating_sub(sent) > self.plan.timeout_ns) {
                let seconds = self.plan.timeout_ns as f64 / clock::SECOND as f64;
                self.lose(line, format!("{address} did not answer within {seconds} s"))?;
            }
            let since = now.saturating_sub(self.plan.window.until);
            if line.slots.open() == 0 && !line.is_idle() && since > self.plan.timeout_ns {
                let seconds = self.plan.timeout_ns as f64 / clock::SECOND as f64;
                let error = format!("{address} did not take in what was sent within {seconds} s");
                self.lose(line, error)?;
            }
            if line.connection.is_none() && now >= line.retry_at && now < self.plan.window.until {
                line.retry_at = now + RETRY_NS;
                if let Ok(mut connection) = Connection::open(address, RETRY_TIMEOUT) {
                    let registered = connection.register(poll.registry(), Token(index));
                    registered.map_err(|error| format!("epoll: {error}"))?;
                    line.connection = Some(connection);
                    self.connected(line, clock::now());
                    if !line.is_dirty {
                        line.is_dirty = true;
                        dirty.push(index);
                    }
                }
            }
        }
        Ok(())
    }
}
