//! Consumers: one thread that pulls from many queues for one or more groups.

use super::answer::{Field, Reader};
use super::clock;
use super::connection::Connection;
use super::live::{Busy, Live, Share, TICK_NS};
use super::others::Others;
use super::template::{OPAQUE_MIN, Pull};
use crate::bench::measure::recorder::{Recorder, Window};
use crate::bench::result::Verified;
use crate::bench::verify::{Read, Streams, stamp::Stamp};
use mio::{Events, Poll, Token};
use ringmq::client::remote::refusal;
use ringmq::wire::codes::{request, response};
use ringmq::wire::frame::Frame;
use ringmq::wire::message::Record;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Longest sleep of the loop.
const SLEEP: Duration = Duration::from_millis(20);

/// Time before a queue that should have more is asked again, in ns.
const RETRY_NS: u64 = 5 * clock::MS;

/// A message that is due longer ago than this was sent by another clock, in ns.
const AGE_MAX_NS: u64 = 3600 * clock::SECOND;

/// When a reader of one queue is at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// At the end of the queue, but not before this queue offset; or with the window.
    End(i64),
    /// When the window is over, all of [`Plan::ends`] is read, and nothing is found behind it.
    Tail,
    /// When of each sender that is known something has come that was due after the window; at
    /// the latest [`Plan::timeout_ns`] after it. So a stall at its end is not cut off.
    Others,
    /// At this queue offset it begins again where it began; ends with the window.
    Again(i64),
}

/// How messages are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Not at all.
    Nothing,
    /// Each by its own checksum and, if it has one, by its stamp, and their queue offsets.
    Records,
    /// Against what was sent.
    Stamps,
}

/// What all threads of a load have in common.
pub struct Plan<'a> {
    /// When to begin, in ns.
    pub begin: u64,
    /// The part that counts.
    pub window: Window,
    /// Where the queues end once all producers are done, in the order of the places.
    pub ends: &'a OnceLock<Vec<i64>>,
    /// How messages are looked at.
    pub check: Check,
    /// How long the broker may hold a pull, in ns.
    pub wait_ns: u64,
    /// Longest wait for an answer beyond that, and for messages that must come, in ns.
    pub timeout_ns: u64,
    /// Figures while it lasts; `None`: others tell them.
    pub live: Option<&'a Live>,
    /// Whether to stop.
    pub stop: &'a Live,
}

/// One queue as one group reads it.
pub struct Cursor {
    /// Index of the group.
    pub group: usize,
    /// Index of the place.
    pub place: u32,
    /// Index of the connection, of those of the thread.
    pub connection: usize,
    /// The request.
    pub pull: Pull,
    /// Where it begins.
    pub start: i64,
    /// When it is at its end.
    pub aim: Aim,
}

/// What one thread does.
pub struct Job {
    /// Its connections.
    pub connections: Vec<Connection>,
    /// Its queues.
    pub cursors: Vec<Cursor>,
    /// Where each group notes what it reads.
    pub reads: Vec<Read>,
}

/// What one thread found.
pub struct Outcome {
    /// Latencies: of each message from when it was due, or of pulls.
    pub recorder: Recorder,
    /// What each group read.
    pub reads: Vec<Read>,
    /// Messages received, whenever.
    pub received: u64,
    /// Queue offsets that were passed over.
    pub gaps: u64,
    /// What was wrong with messages that were looked at by themselves ([`Check::Records`]).
    pub found: Verified,
    /// Pulls that were answered.
    pub pulls: u64,
    /// Queue offsets below those of [`Aim::End`] that were not reached.
    pub unread: u64,
    /// Whether the end of the window is why they were not.
    pub is_cut: bool,
    /// When the last message came, in ns.
    pub last: u64,
    /// How the thread spent the window.
    pub busy: Busy,
    /// What ended it early.
    pub error: Option<String>,
}

/// A cursor while it moves.
struct Moving {
    cursor: Cursor,
    offset: i64,
    /// When its pull was sent; `None`: none is under way.
    asked: Option<u64>,
    /// When to ask again, after an answer without messages.
    again: u64,
    is_done: bool,
    /// All that must come was read: pulls that the broker does not hold look for more.
    is_beyond: bool,
    others: Others,
    streams: Streams,
}

struct Consumer<'a> {
    plan: &'a Plan<'a>,
    reader: Reader,
    next_begin: Field,
    /// When something new came last: a message, or the end of the producers.
    progress: u64,
    /// When the first cursor looked for more than must come.
    beyond_since: Option<u64>,
    out: Outcome,
}

/// Pulls until all cursors are at their ends.
pub fn run(plan: &Plan<'_>, job: Job) -> Outcome {
    let mut consumer = Consumer {
        plan,
        reader: Reader::new(),
        next_begin: Field::next_begin_offset(),
        progress: plan.begin,
        beyond_since: None,
        out: Outcome {
            recorder: Recorder::new(plan.window),
            reads: job.reads,
            received: 0,
            gaps: 0,
            found: Verified::default(),
            pulls: 0,
            unread: 0,
            is_cut: false,
            last: 0,
            busy: Busy::default(),
            error: None,
        },
    };
    let moving = |cursor: Cursor| Moving {
        offset: cursor.start,
        asked: None,
        again: 0,
        is_done: false,
        is_beyond: false,
        others: Others::default(),
        streams: Streams::default(),
        cursor,
    };
    let mut cursors: Vec<Moving> = job.cursors.into_iter().map(moving).collect();
    let mut share = Share::default();
    clock::sleep_until(plan.begin);
    let ended = consumer.work(job.connections, &mut cursors, &mut share);
    if let Err(error) = ended {
        plan.stop.abort();
        consumer.out.error = Some(error);
    }
    consumer.out.unread = cursors
        .iter()
        .map(Moving::unread)
        .fold(0, u64::saturating_add);
    for moving in &cursors {
        consumer.out.found.add(moving.streams.found());
    }
    consumer.out.busy = share.finish();
    consumer.out
}

impl Consumer<'_> {
    fn work(
        &mut self,
        mut connections: Vec<Connection>,
        cursors: &mut [Moving],
        share: &mut Share,
    ) -> Result<(), String> {
        let system = |error: std::io::Error| format!("epoll: {error}");
        let mut poll = Poll::new().map_err(system)?;
        let mut events = Events::with_capacity(1024);
        for (index, connection) in connections.iter_mut().enumerate() {
            connection
                .register(poll.registry(), Token(index))
                .map_err(system)?;
        }
        for index in 0..cursors.len() {
            ask(&mut connections, cursors, index);
        }
        let mut touched: Vec<usize> = (0..connections.len()).collect();
        let (mut tick_at, mut told) = (0, 0);
        loop {
            for index in touched.drain(..) {
                connections[index].flush()?;
            }
            if let Err(error) = poll.poll(&mut events, Some(SLEEP)) {
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(system(error));
                }
            }
            for event in &events {
                let index = event.token().0;
                self.receive(&mut connections, index, cursors)?;
                touched.push(index);
            }
            let now = clock::now();
            share.note(now, &self.plan.window);
            if self.plan.stop.is_aborted() {
                return Ok(());
            }
            if now >= tick_at || touched.is_empty() {
                tick_at = now + TICK_NS;
                self.tell(&mut told);
                let ends = self.plan.ends.get();
                for index in 0..cursors.len() {
                    self.look(&mut cursors[index], ends, now)?;
                    let moving = &cursors[index];
                    if !moving.is_done && moving.asked.is_none() && moving.again <= now {
                        ask(&mut connections, cursors, index);
                        touched.push(cursors[index].cursor.connection);
                    }
                }
                if cursors.iter().all(|moving| moving.is_done) {
                    return Ok(());
                }
            }
        }
    }

    fn tell(&mut self, told: &mut u64) {
        if let Some(live) = self.plan.live {
            live.messages.fetch_add(self.out.received - *told, Relaxed);
            *told = self.out.received;
            live.p99_us.store(self.out.recorder.last_p99_us(), Relaxed);
        }
    }

    /// Whether a cursor is at its end, or waits in vain.
    fn look(
        &mut self,
        moving: &mut Moving,
        ends: Option<&Vec<i64>>,
        now: u64,
    ) -> Result<(), String> {
        let waits_in_vain = now.saturating_sub(self.progress) > self.plan.timeout_ns;
        match moving.cursor.aim {
            Aim::End(_) => {
                let is_over = now >= self.plan.window.until;
                self.out.is_cut |= is_over && !moving.is_done && moving.unread() > 0;
                moving.is_done |= is_over || (waits_in_vain && moving.asked.is_none());
            }
            Aim::Again(_) => moving.is_done |= now >= self.plan.window.until,
            Aim::Others => {
                let until = self.plan.window.until;
                let is_late = now.saturating_sub(until) > self.plan.timeout_ns;
                moving.is_done |= now >= until && (moving.others.have_passed() || is_late);
            }
            Aim::Tail => {
                if let Some(end) = ends.map(|ends| ends[moving.cursor.place as usize]) {
                    let is_read = moving.offset >= end;
                    let looks_on = is_read && self.plan.check == Check::Stamps;
                    if looks_on && !moving.is_beyond {
                        // The pull that the broker holds is of no more use.
                        (moving.is_beyond, moving.asked) = (true, None);
                    }
                    // Others may go on sending to the topic.
                    let looks_in_vain = looks_on
                        && now - *self.beyond_since.get_or_insert(now) > self.plan.timeout_ns;
                    moving.is_done |= waits_in_vain || looks_in_vain || (is_read && !looks_on);
                } else {
                    self.progress = now;
                }
            }
        }
        let longest = self.plan.wait_ns + self.plan.timeout_ns;
        let is_late = moving
            .asked
            .is_some_and(|asked| now.saturating_sub(asked) > longest);
        if is_late && !moving.is_done {
            return Err(format!(
                "a pull of queue {} was not answered within {} s",
                moving.cursor.place,
                longest as f64 / clock::SECOND as f64
            ));
        }
        Ok(())
    }

    fn receive(
        &mut self,
        connections: &mut [Connection],
        index: usize,
        cursors: &mut [Moving],
    ) -> Result<(), String> {
        let connection = &mut connections[index];
        let peer = connection.peer();
        let mut output = std::mem::take(&mut connection.output);
        let ended = connection.drain(|frame, now| {
            let index = self.answer(&frame, now, peer, cursors)?;
            let Some(moving) = index.and_then(|index| cursors.get_mut(index)) else {
                return Ok(());
            };
            if !moving.is_done && moving.again <= now {
                moving.write(index.unwrap_or_default(), now, &mut output);
            }
            Ok(())
        });
        connections[index].output = output;
        Ok(ended?)
    }

    /// Takes an answer. Returns the cursor that it was for.
    fn answer(
        &mut self,
        frame: &Frame<'_>,
        now: u64,
        peer: SocketAddr,
        cursors: &mut [Moving],
    ) -> Result<Option<usize>, String> {
        let fixed = self.reader.fixed(frame)?;
        if !fixed.is_answer {
            return Ok(None);
        }
        let number = usize::try_from(i64::from(fixed.opaque) - i64::from(OPAQUE_MIN));
        let pull = number.map(|number| (number / 2, number % 2 == 1));
        let moving = pull.ok().and_then(|(index, _)| cursors.get_mut(index));
        let (Some(moving), Ok((index, is_beyond))) = (moving, pull) else {
            return Err(format!("answer {} belongs to no pull", fixed.opaque));
        };
        if moving.is_beyond && !is_beyond {
            // What it holds comes again with the answer to the pull that took its place.
            return Ok(None);
        }
        let Some(asked) = moving.asked.take() else {
            return Err(format!("pull {} was answered twice", fixed.opaque));
        };
        self.out.pulls += 1;
        match fixed.code {
            response::SUCCESS => self.messages(frame, now, asked, moving)?,
            response::PULL_NOT_FOUND
            | response::PULL_RETRY_IMMEDIATELY
            | response::PULL_OFFSET_MOVED => {
                let next = self.reader.field(frame, &self.next_begin);
                let next = next.ok_or("answer to a pull without nextBeginOffset")?;
                // The queue may not have caught up with what was acknowledged.
                if next > moving.offset {
                    let gap = next.abs_diff(moving.offset);
                    self.out.gaps = self.out.gaps.saturating_add(gap);
                    moving.offset = next;
                } else {
                    moving.found_nothing(now, self.plan.wait_ns);
                }
            }
            code => {
                let remark = self.reader.remark(frame);
                return Err(refusal(peer, request::PULL_MESSAGE, code, &remark));
            }
        }
        Ok(Some(index))
    }

    /// Takes the messages of an answer.
    fn messages(
        &mut self,
        frame: &Frame<'_>,
        now: u64,
        asked: u64,
        moving: &mut Moving,
    ) -> Result<(), String> {
        let mut rest = frame.body;
        let (mut count, mut bytes) = (0, 0);
        let is_tail = matches!(moving.cursor.aim, Aim::Tail | Aim::Others);
        while !rest.is_empty() {
            let record = Record::parse(rest).map_err(|error| format!("a message: {error}"))?;
            rest = &rest[record.bytes().len()..];
            let (offset, body) = (record.queue_offset(), record.body());
            if offset < moving.offset {
                return Err(format!(
                    "queue offset {offset} came where {} was due",
                    moving.offset
                ));
            }
            let gap = offset.abs_diff(moving.offset);
            self.out.gaps = self.out.gaps.saturating_add(gap);
            let next = offset.checked_add(1);
            moving.offset = next.ok_or_else(|| format!("queue offset {offset} has no next"))?;
            count += 1;
            bytes += body.len() as u64;
            let stamp = match self.plan.check {
                Check::Stamps => {
                    let read = &mut self.out.reads[moving.cursor.group];
                    read.note(moving.cursor.place, offset, body)
                }
                Check::Records => moving.streams.note(&record),
                Check::Nothing => Stamp::peek(body),
            };
            if let (true, Some(stamp)) = (is_tail, stamp) {
                let latency = now.saturating_sub(stamp.due);
                if stamp.due <= now && latency < AGE_MAX_NS {
                    moving.others.note(&stamp, self.plan.window.until);
                    self.out
                        .recorder
                        .record(stamp.due, latency, 1, body.len() as u64);
                }
            }
        }
        if count == 0 {
            return Err("a pull was answered with success and no message".to_owned());
        }
        if !is_tail {
            let latency = now.saturating_sub(asked);
            self.out.recorder.record(now, latency, count, bytes);
        }
        self.out.received += count;
        self.out.last = now;
        self.progress = now;
        if let Aim::Again(end) = moving.cursor.aim {
            if moving.offset >= end {
                moving.rewind();
            }
        }
        Ok(())
    }
}

impl Moving {
    /// Queue offsets that are still to be read, where there is an end.
    fn unread(&self) -> u64 {
        match self.cursor.aim {
            Aim::End(end) if end > self.offset => end.abs_diff(self.offset),
            _ => 0,
        }
    }

    /// Nothing was there: the end, or to be asked again.
    fn found_nothing(&mut self, now: u64, wait_ns: u64) {
        match self.cursor.aim {
            Aim::End(end) => {
                self.is_done = self.offset >= end;
                self.again = now + RETRY_NS;
            }
            Aim::Again(_) => self.rewind(),
            Aim::Tail if self.is_beyond => self.is_done = true,
            Aim::Tail | Aim::Others if wait_ns == 0 => self.again = now + RETRY_NS,
            // The broker has waited.
            Aim::Tail | Aim::Others => {}
        }
    }

    /// Begins again at the start.
    fn rewind(&mut self) {
        self.offset = self.cursor.start;
        self.streams.rewind();
    }

    /// Each cursor has two numbers: one for pulls that the broker may hold, one for the others.
    fn write(&mut self, index: usize, now: u64, output: &mut Vec<u8>) {
        self.asked = Some(now);
        let opaque = OPAQUE_MIN + 2 * index as i32;
        let pull = &self.cursor.pull;
        if self.is_beyond {
            pull.write_without_wait(opaque + 1, self.offset, output);
        } else {
            pull.write(opaque, self.offset, output);
        }
    }
}

/// Appends the next pull of a cursor to its connection's output.
fn ask(connections: &mut [Connection], cursors: &mut [Moving], index: usize) {
    let moving = &mut cursors[index];
    let output = &mut connections[moving.cursor.connection].output;
    moving.write(index, clock::now(), output);
}
