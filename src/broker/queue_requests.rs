//! Requests about the offsets of one queue: 14, 15, 29 to 32.
//! (`ConsumerManageProcessor`, `AdminBrokerProcessor`)

use std::io;

use super::message::{Ask, Message, QueueJob, ReplyTo};
use super::{BrokerShard, DEFERRED_MAX};
use crate::shard::{Flow, LaneKind, spawn};
use crate::store::{Entry, Fetch, QueueIndex};
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};
use crate::wire::frame::Frame;
use crate::wire::header::{FieldError, Header};
use crate::wire::message::Record;

/// Part of the memory that a log may have grown by since a queue's first message
/// for the queue to count as young (`accessMessageInMemoryMaxRatio`), percent.
const YOUNG_MEMORY_PERCENT: u64 = 40;

/// Loads that one look into a queue may cause.
const LOADS_MAX: usize = 256;

impl BrokerShard {
    /// Checks a request about a queue and sends it to the queue's owner.
    pub(super) fn queue_request(
        &self,
        to: ReplyTo,
        frame: &Frame<'_>,
        header: &Header<'_>,
    ) -> Flow {
        let request = Request::from_header(frame, header);
        let code = request.fixed.code;
        match self.parse_queue_request(&request) {
            Ok((job, topic, queue_id)) => {
                if code == request::UPDATE_CONSUMER_OFFSET {
                    let view = self.view.borrow();
                    if view.topic(&topic).is_none() {
                        drop(view);
                        self.refuse(
                            &to,
                            response::TOPIC_NOT_EXIST,
                            format!("topic {topic} does not exist"),
                        );
                        return Flow::Continue;
                    }
                    if let QueueJob::CommitOffset { group, .. } = &job {
                        if view.group(group).is_none() {
                            drop(view);
                            if self.deferred.get() >= DEFERRED_MAX {
                                return Flow::Later;
                            }
                            self.defer(to, frame, Ask::EnsureGroup(group.clone()));
                            return Flow::Continue;
                        }
                    }
                }
                self.to_queue_owner(to, job, &topic, queue_id)
            }
            Err(error) => {
                self.reply(&to, &error.into());
                Flow::Continue
            }
        }
    }

    fn parse_queue_request(
        &self,
        request: &Request,
    ) -> Result<(QueueJob, String, i32), FieldError> {
        let group = || request.str("consumerGroup").map(str::to_owned);
        let job = match request.fixed.code {
            request::QUERY_CONSUMER_OFFSET => QueueJob::QueryOffset {
                group: group()?,
                zero_if_young: request.get("setZeroIfNotFound") != Some("false"),
            },
            request::UPDATE_CONSUMER_OFFSET => QueueJob::CommitOffset {
                group: group()?,
                offset: request.int("commitOffset")?,
            },
            request::SEARCH_OFFSET_BY_TIMESTAMP => QueueJob::OffsetByTime {
                timestamp: request.int("timestamp")?,
                upper: request
                    .get("boundaryType")
                    .is_some_and(|kind| kind.eq_ignore_ascii_case("upper")),
            },
            request::GET_MAX_OFFSET => QueueJob::MaxOffset,
            request::GET_MIN_OFFSET => QueueJob::MinOffset,
            _ => QueueJob::EarliestTime,
        };
        Ok((
            job,
            request.str("topic")?.to_owned(),
            request.int("queueId")?,
        ))
    }

    /// Handles a request about a queue of this shard.
    pub(super) fn queue_job(&self, job: (QueueJob, String, i32), to: ReplyTo) {
        let (job, topic, queue_id) = job;
        let offset = |offset: i64| Response::ok().with("offset", offset);
        let response = match job {
            QueueJob::QueryOffset {
                group,
                zero_if_young,
            } => self.query_offset(&group, &topic, queue_id, zero_if_young),
            QueueJob::CommitOffset {
                group,
                offset: value,
            } => {
                self.offsets
                    .borrow_mut()
                    .commit(&group, &topic, queue_id, value);
                Response::ok()
            }
            QueueJob::MaxOffset => offset(self.bounds(&topic, queue_id).1),
            QueueJob::MinOffset => offset(self.bounds(&topic, queue_id).0),
            QueueJob::OffsetByTime { timestamp, upper } => {
                let me = self.rc();
                self.begin_cold();
                spawn("a search by time", async move {
                    let found = me.offset_by_time(&topic, queue_id, timestamp, upper).await;
                    me.end_cold();
                    me.reply(&to, &offset(found));
                });
                return;
            }
            QueueJob::EarliestTime => {
                let me = self.rc();
                self.begin_cold();
                spawn("the time of the first message", async move {
                    let min = me.bounds(&topic, queue_id).0;
                    let time = me.store_time(&topic, queue_id, min).await;
                    me.end_cold();
                    me.reply(&to, &Response::ok().with("timestamp", time));
                });
                return;
            }
        };
        if to.one_way && !self.is_local(&to) {
            self.shard
                .send(to.conn.shard, LaneKind::Reply, Message::Done(to));
        } else {
            self.reply(&to, &response);
        }
    }

    /// First readable offset of a queue and one above its last; 0 and 0 for a
    /// queue that is not there.
    pub(super) fn bounds(&self, topic: &str, queue_id: i32) -> (i64, i64) {
        self.store.with(|store| {
            let index = store.find_queue(topic, queue_id);
            index.map_or((0, 0), |index| {
                let queue = store.queue(index);
                (queue.min as i64, queue.visible as i64)
            })
        })
    }

    /// The offset that a group goes on at. A group without one starts at 0 in a
    /// young queue: RocketMQ's answer when the first message is still in memory, so
    /// that a new group on a new topic misses nothing.
    fn query_offset(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        zero_if_young: bool,
    ) -> Response {
        let known = self.offsets.borrow().query(group, topic, queue_id);
        if let Some(known) = known.filter(|&known| known >= 0) {
            return Response::ok().with("offset", known);
        }
        let (min, max) = self.bounds(topic, queue_id);
        if zero_if_young && min <= 0 && max > 0 && self.is_log_young() {
            return Response::ok().with("offset", 0);
        }
        Response::error(
            response::QUERY_NOT_FOUND,
            format!("group {group} has no offset for queue {queue_id} of topic {topic}"),
        )
    }

    fn is_log_young(&self) -> bool {
        let bytes = self
            .store
            .with(|store| store.log().written() - store.log().min());
        bytes <= self.memory_bytes / 100 * YOUNG_MEMORY_PERCENT
    }

    /// Entries of a queue from `from` on, `max` at most, loaded where they must be.
    ///
    /// # Errors
    /// Those of reading; it may work the next time.
    pub(super) async fn load_entries(
        &self,
        queue: QueueIndex,
        from: i64,
        max: usize,
    ) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for _ in 0..LOADS_MAX {
            let read = self
                .store
                .with(|store| store.entries(queue, from.max(0) as u64, max, &mut entries));
            match read {
                Ok(()) => return Ok(entries),
                Err(missing) => self.store.load(missing).await?,
            }
        }
        Err(too_many_loads())
    }

    /// The record of an entry, loaded where it must be; `None` where there is none.
    ///
    /// # Errors
    /// Those of reading; it may work the next time.
    pub(super) async fn load_record(&self, entry: Entry) -> io::Result<Option<Vec<u8>>> {
        for _ in 0..LOADS_MAX {
            let mut fetch = Fetch::default();
            match self
                .store
                .with(|store| store.fetch(&entry, None, &mut fetch))
            {
                Ok(found) => return Ok(found.then(|| fetch.into_pieces().concat())),
                Err(missing) => self.store.load(missing).await?,
            }
        }
        Err(too_many_loads())
    }

    /// The record at a physical offset of this shard's log, checked.
    ///
    /// # Errors
    /// Those of reading; it may work the next time.
    pub(super) async fn load_record_at(&self, physical: i64) -> io::Result<Option<Vec<u8>>> {
        for _ in 0..LOADS_MAX {
            match self.store.with(|store| store.record_len(physical)) {
                Ok(None) => return Ok(None),
                Ok(Some(size)) => {
                    let entry = Entry {
                        physical,
                        size,
                        tags_code: 0,
                    };
                    let bytes = self.load_record(entry).await?;
                    return Ok(bytes.filter(|bytes| {
                        Record::parse(bytes)
                            .is_ok_and(|r| r.verify().is_ok() && r.physical_offset() == physical)
                    }));
                }
                Err(missing) => self.store.load(missing).await?,
            }
        }
        Err(too_many_loads())
    }

    /// Store time of the message at a queue offset, ms; -1 where there is none.
    pub(super) async fn store_time(&self, topic: &str, queue_id: i32, offset: i64) -> i64 {
        let Some(queue) = self.store.with(|store| store.find_queue(topic, queue_id)) else {
            return -1;
        };
        match self.load_entries(queue, offset, 1).await.as_deref() {
            Ok(&[entry, ..]) if offset >= 0 => self.entry_time(entry).await.unwrap_or(-1),
            _ => -1,
        }
    }

    async fn entry_time(&self, entry: Entry) -> Option<i64> {
        let bytes = self.load_record(entry).await.ok()??;
        Record::parse(&bytes)
            .ok()
            .map(|record| record.store_timestamp())
    }

    /// First queue offset whose message was stored at or after `timestamp`; with
    /// `upper`, the last one stored at or before it where there is one at that very
    /// time. One above the last for a later time (`ConsumeQueue.getOffsetInQueueByTime`).
    pub(super) async fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
        upper: bool,
    ) -> i64 {
        let Some(queue) = self.store.with(|store| store.find_queue(topic, queue_id)) else {
            return 0;
        };
        let (min, max) = self.bounds(topic, queue_id);
        let first = self
            .partition(queue, min, max, |time| time < timestamp)
            .await;
        if !upper {
            return first;
        }
        let behind = self
            .partition(queue, first, max, |time| time <= timestamp)
            .await;
        if behind > first { behind - 1 } else { first }
    }

    /// First offset in `low..high` for which `before` is false of its store time.
    async fn partition(
        self: &BrokerShard,
        queue: QueueIndex,
        mut low: i64,
        mut high: i64,
        before: impl Fn(i64) -> bool,
    ) -> i64 {
        while low < high {
            let middle = low + (high - low) / 2;
            // A message that cannot be read is one that is gone: it was before.
            let time = match self.load_entries(queue, middle, 1).await.as_deref() {
                Ok(&[entry, ..]) => self.entry_time(entry).await,
                _ => None,
            };
            if time.is_none_or(&before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

fn too_many_loads() -> io::Error {
    io::Error::other(format!("not read after {LOADS_MAX} loads"))
}
