//! Reading a queue for a pull, on the shard that owns it
//! (`DefaultMessageStore.getMessage`).

use std::rc::Rc;

use bytes::Bytes;

use super::message::{Filter, Message, PullJob};
use super::reply::{PullReply, write_pull_reply};
use super::{BrokerShard, count};
use crate::shard::{LaneKind, round_of_its_own, spawn};
use crate::store::{Entry, Fetch, Missing};
use crate::wire::codes::response;

/// Entries looked at for one pull that filters, at least.
const SCAN_ENTRIES_MIN: usize = 800;

/// Entries taken from a queue at once.
const SCAN_STEP: usize = 64;

/// So many entries later a record's first bytes are needed when the processor is asked for
/// them: a record that was read from the device is in no cache.
const LATER: usize = 4;

/// Loads that one pull may cause before it is answered with what is known:
/// an answer that says "again" is better than a read without an end.
const LOADS_MAX: usize = 64;

/// Pulls that wait for the device, per shard. At the bound pulls of what is not in
/// memory wait where they came from: in their connection or lane.
pub(super) const COLD_MAX: usize = 64;

/// Messages that a read found. Clones share the bytes.
#[derive(Clone)]
struct Found {
    pieces: Vec<Bytes>,
    len: usize,
    messages: usize,
    next: i64,
}

/// What was read for one of the pulls that a new message wakes, for the others
/// that want the same.
pub(super) struct SharedRead {
    offset: i64,
    max_messages: usize,
    filter: Filter,
    found: Found,
}

/// There is no room for the pull now; it is given back.
pub(super) struct TooCold(pub Box<PullJob>);

/// What a read came to.
enum Read {
    /// Messages, and where to go on.
    Found(Found),
    /// None: response code, status, and where to go on.
    Nothing(i32, &'static str, i64),
    /// Something must be loaded first.
    Missing(Missing),
}

impl BrokerShard {
    /// Handles a pull from a queue of this shard.
    pub(super) fn pull_owned(&self, mut job: PullJob) -> Result<(), TooCold> {
        let outcome = self.read(&job);
        if matches!(outcome, Read::Missing(_)) && self.cold.get() >= COLD_MAX {
            return Err(TooCold(Box::new(job)));
        }
        {
            let mut offsets = self.offsets.borrow_mut();
            let (group, topic) = (&job.group, &job.topic);
            if let Some(offset) = job.commit.take() {
                offsets.commit(group, topic, job.queue_id, offset);
            }
            if job.suspend_ms > 0 || job.guard_offset {
                offsets.pulled(group, topic, job.queue_id, job.offset);
            }
        }
        self.go_on(job, outcome);
        Ok(())
    }

    /// Answers a pull, parks it, or has loaded what it lacks.
    fn go_on(&self, job: PullJob, outcome: Read) {
        match outcome {
            Read::Missing(missing) => self.load_and_pull(job, missing),
            outcome => self.finish_pull(job, outcome),
        }
    }

    /// Counts a task that reads what is not in memory.
    pub(super) fn begin_cold(&self) {
        self.cold.set(self.cold.get() + 1);
    }

    /// The task is done.
    pub(super) fn end_cold(&self) {
        let before = self.cold.get();
        self.cold.set(before - 1);
        if before == COLD_MAX {
            self.room.notify();
        }
    }

    fn load_and_pull(&self, job: PullJob, missing: Missing) {
        self.begin_cold();
        let me: Rc<BrokerShard> = self.rc();
        spawn("a pull of old messages", async move {
            let outcome = me.load_and_read(&job, missing).await;
            me.end_cold();
            me.finish_pull(job, outcome);
        });
    }

    async fn load_and_read(&self, job: &PullJob, mut missing: Missing) -> Read {
        for _ in 0..LOADS_MAX {
            if let Err(error) = self.store.load(missing).await {
                tracing::warn!(
                    topic = &*job.topic,
                    queue = job.queue_id,
                    offset = job.offset,
                    %error,
                    "a pull cannot be read"
                );
                break;
            }
            // All that waited for the same bytes go on now.
            round_of_its_own().await;
            match self.read(job) {
                Read::Missing(next) => missing = next,
                outcome => return outcome,
            }
        }
        let again = response::PULL_RETRY_IMMEDIATELY;
        Read::Nothing(again, "MESSAGE_WAS_REMOVING", job.offset)
    }

    fn finish_pull(&self, job: PullJob, outcome: Read) {
        if let Read::Nothing(response::PULL_NOT_FOUND, ..) = outcome {
            if job.suspend_ms > 0 {
                self.park(job);
                return;
            }
        }
        self.answer_pull(&job, outcome);
    }

    /// Looks for messages for a parked pull: given back when there are none
    /// yet, moved on over what it does not want.
    pub(super) fn try_parked(
        &self,
        mut job: PullJob,
        shared: &mut Option<SharedRead>,
    ) -> Option<PullJob> {
        if let Some(shared) = shared {
            let same = shared.offset == job.offset
                && shared.max_messages == job.max_messages
                && shared.filter == job.filter;
            if same && !self.has_reset(&job) {
                self.answer_pull(&job, Read::Found(shared.found.clone()));
                return None;
            }
        }
        match self.read(&job) {
            Read::Nothing(response::PULL_NOT_FOUND, ..) => Some(job),
            Read::Nothing(response::PULL_RETRY_IMMEDIATELY, status, next) => {
                let max = self.bounds(&job.topic, job.queue_id).1;
                if next < max {
                    // There is more to look at than one read looks at.
                    let again = response::PULL_RETRY_IMMEDIATELY;
                    self.answer_pull(&job, Read::Nothing(again, status, next));
                    return None;
                }
                job.offset = next;
                Some(job)
            }
            Read::Missing(missing) => {
                // It does not wait again: whatever the read comes to is its answer.
                job.suspend_ms = 0;
                self.load_and_pull(job, missing);
                None
            }
            Read::Found(found) => {
                *shared = Some(SharedRead {
                    offset: job.offset,
                    max_messages: job.max_messages,
                    filter: job.filter.clone(),
                    found: found.clone(),
                });
                self.answer_pull(&job, Read::Found(found));
                None
            }
            outcome => {
                self.answer_pull(&job, outcome);
                None
            }
        }
    }

    fn has_reset(&self, job: &PullJob) -> bool {
        let offsets = self.offsets.borrow();
        offsets.has_reset(&job.group, &job.topic, job.queue_id)
    }

    /// Ends the wait of a parked pull: there is nothing for it.
    pub(super) fn end_parked(&self, mut job: PullJob) {
        job.suspend_ms = 0;
        let outcome = self.read(&job);
        self.go_on(job, outcome);
    }

    fn read(&self, job: &PullJob) -> Read {
        let queue = (job.topic.as_ref(), job.queue_id);
        let reset = {
            let mut offsets = self.offsets.borrow_mut();
            offsets.take_reset(&job.group, queue.0, queue.1)
        };
        if let Some(next) = reset {
            return Read::Nothing(response::PULL_OFFSET_MOVED, "OFFSET_RESET", next);
        }
        let moved_or_not = if job.offset == 0 {
            response::PULL_NOT_FOUND
        } else {
            response::PULL_OFFSET_MOVED
        };
        self.store.with(|store| {
            let Some(index) = store.find_queue(queue.0, queue.1) else {
                return Read::Nothing(moved_or_not, "NO_MATCHED_LOGIC_QUEUE", 0);
            };
            let (min, max) = {
                let queue = store.queue(index);
                (queue.min as i64, queue.visible as i64)
            };
            if max == 0 {
                return Read::Nothing(moved_or_not, "NO_MESSAGE_IN_QUEUE", 0);
            }
            if job.offset < min {
                let next = self.committed_within(job, min, max).unwrap_or(min);
                return Read::Nothing(response::PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", next);
            }
            if job.offset == max {
                return Read::Nothing(response::PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", job.offset);
            }
            if job.offset > max {
                return Read::Nothing(response::PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", max);
            }
            let settings = self.settings.borrow();
            let max_messages = job
                .max_messages
                .min(settings.max_transfer_count_on_message_in_memory as usize);
            let max_bytes = settings.max_transfer_bytes_on_message_in_memory;
            let scan_end = job.offset as u64 + SCAN_ENTRIES_MIN.max(job.max_messages) as u64;
            let mut fetch = Fetch::default();
            let mut messages = 0;
            let mut at = job.offset as u64;
            let mut entries: Vec<Entry> = Vec::with_capacity(SCAN_STEP);
            'scan: while at < scan_end {
                entries.clear();
                if let Err(missing) = store.entries(index, at, SCAN_STEP, &mut entries) {
                    if messages > 0 || at > job.offset as u64 {
                        break;
                    }
                    return Read::Missing(missing);
                }
                if entries.is_empty() {
                    break;
                }
                for (n, entry) in entries.iter().enumerate() {
                    let size = entry.size.max(0) as usize;
                    if messages > 0 && (messages >= max_messages || fetch.len() + size > max_bytes)
                    {
                        break 'scan;
                    }
                    if job.filter.accepts(entry.tags_code) {
                        match store.fetch(entry, entries.get(n + LATER), &mut fetch) {
                            Ok(true) => messages += 1,
                            Ok(false) => {}
                            // What is there is an answer; the rest is loaded next time.
                            Err(_) if messages > 0 => break 'scan,
                            Err(missing) => return Read::Missing(missing),
                        }
                    }
                    at += 1;
                    if at == scan_end {
                        break;
                    }
                }
            }
            let next = at as i64;
            if messages == 0 {
                return Read::Nothing(response::PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", next);
            }
            let len = fetch.len();
            Read::Found(Found {
                pieces: fetch.into_pieces(),
                len,
                messages,
                next,
            })
        })
    }

    /// Where a group with an offset that cannot be right goes on: at what it
    /// committed, so that a consumer that lost its offset does not read history again.
    fn committed_within(&self, job: &PullJob, min: i64, max: i64) -> Option<i64> {
        if !job.guard_offset {
            return None;
        }
        let offsets = self.offsets.borrow();
        offsets
            .query(&job.group, &job.topic, job.queue_id)
            .filter(|committed| (min..=max).contains(committed))
    }

    fn answer_pull(&self, job: &PullJob, outcome: Read) {
        let (min, max) = self.store.with(|store| {
            let index = store.find_queue(&job.topic, job.queue_id);
            index.map_or((0, 0), |index| {
                let queue = store.queue(index);
                (queue.min as i64, queue.visible as i64)
            })
        });
        let mut reply = PullReply {
            code: response::SUCCESS,
            remark: "FOUND",
            next: 0,
            min,
            max,
            suggest_broker: job.suggest_broker,
            topic_sys_flag: job.topic_sys_flag,
            group_sys_flag: job.group_sys_flag,
        };
        let (pieces, len) = match outcome {
            Read::Found(found) => {
                reply.next = found.next;
                count(&self.counters.pulls_found, 1);
                count(&self.counters.got_messages, found.messages as u64);
                (found.pieces, found.len)
            }
            Read::Nothing(code, status, next) => {
                (reply.code, reply.remark, reply.next) = (code, status, next);
                count(&self.counters.pulls_missed, 1);
                (Vec::new(), 0)
            }
            Read::Missing(_) => unreachable!("loaded before it is answered"),
        };
        self.write_pull(job, &reply, pieces, len);
    }

    fn write_pull(&self, job: &PullJob, reply: &PullReply, body: Vec<Bytes>, len: usize) {
        let to = &job.reply_to;
        if self.is_local(to) {
            if !to.one_way {
                self.shard.write(to.conn, |out| {
                    write_pull_reply(out.buffer(), to.serialize, to.opaque, reply, len);
                    out.push_body(body, len);
                });
            }
            return;
        }
        let mut head = Vec::with_capacity(320);
        write_pull_reply(&mut head, to.serialize, to.opaque, reply, len);
        let mut pieces: Vec<Bytes> = vec![head.into()];
        pieces.extend(body);
        let message = match (to.one_way, job.parked) {
            (true, true) => return,
            (true, false) => Message::Done(*to),
            (false, true) => Message::Push(to.conn, pieces),
            (false, false) => Message::Reply(*to, pieces),
        };
        self.shard.send(to.conn.shard, LaneKind::Reply, message);
    }
}
