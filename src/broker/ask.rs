//! Questions between shards, and requests to clients: asked, answered, waited for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future;

use super::append::Refusal;
use super::control::topics::{Topic, TopicError};
use super::control::view::GroupView;
use super::message::{Answer, AppendJob, AppendOutcome, Ask, Message, WantedTopic};
use super::peers::{CallError, QueueEntry, QueueInfo, StoreInfo};
use super::{BrokerShard, now_ms};
use crate::shard::{ConnId, LaneKind, LocalEvent, ShardId, sleep, spawn};
use crate::wire::body::topic::TopicConfig;
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};

/// What a task waits for.
pub(super) struct Slot<T> {
    value: RefCell<Option<T>>,
    event: LocalEvent,
}

impl<T> Slot<T> {
    fn new() -> Rc<Slot<T>> {
        Rc::new(Slot {
            value: RefCell::new(None),
            event: LocalEvent::default(),
        })
    }

    fn set(&self, value: T) {
        *self.value.borrow_mut() = Some(value);
        self.event.notify();
    }

    /// Waits for it.
    pub async fn get(&self) -> T {
        loop {
            if let Some(value) = self.value.borrow_mut().take() {
                return value;
            }
            self.event.wait().await;
        }
    }
}

/// What a call to a client waits for.
type CallSlot = Slot<Result<Response, CallError>>;

/// Questions and calls of one shard that wait for their answers.
#[derive(Default)]
pub(super) struct Asks {
    next: Cell<u64>,
    opaque: Cell<i32>,
    open: RefCell<HashMap<u64, Rc<Slot<Answer>>>>,
    calls: RefCell<HashMap<(ConnId, i32), Rc<CallSlot>>>,
}

impl Asks {
    fn open(&self) -> (u64, Rc<Slot<Answer>>) {
        let number = self.next.get();
        self.next.set(number + 1);
        let slot = Slot::new();
        self.open.borrow_mut().insert(number, slot.clone());
        (number, slot)
    }

    /// An answer came.
    pub fn answered(&self, number: u64, answer: Answer) {
        if let Some(slot) = self.open.borrow_mut().remove(&number) {
            slot.set(answer);
        }
    }

    /// A number for a request to a client.
    pub fn next_opaque(&self) -> i32 {
        let next = self.opaque.get().wrapping_add(1);
        self.opaque.set(next);
        next
    }

    /// A client answered.
    pub fn client_answered(&self, conn: ConnId, opaque: i32, response: Response) {
        if let Some(slot) = self.calls.borrow_mut().remove(&(conn, opaque)) {
            slot.set(Ok(response));
        }
    }
}

impl BrokerShard {
    /// Asks a shard, which may be this one.
    pub(super) async fn ask(&self, shard: ShardId, ask: Ask) -> Answer {
        self.start_ask(shard, ask).get().await
    }

    /// Asks a shard; the answer can be waited for later.
    pub(super) fn start_ask(&self, shard: ShardId, ask: Ask) -> Rc<Slot<Answer>> {
        let (number, slot) = self.asks.open();
        if shard == self.id() {
            self.answer_ask(shard, number, ask);
        } else {
            // In the lane of replies: a question is no request of a client's, and
            // must not wait behind those.
            self.shard
                .send(shard, LaneKind::Reply, Message::Ask(number, Box::new(ask)));
        }
        slot
    }

    /// Asks every shard at once; the answers in the order of the shards.
    pub(super) async fn ask_all(&self, ask: impl Fn() -> Ask) -> Vec<Answer> {
        let shards = 0..self.shards();
        let open: Vec<_> = shards.map(|k| self.start_ask(ShardId(k), ask())).collect();
        let mut answers = Vec::new();
        for slot in open {
            answers.push(slot.get().await);
        }
        answers
    }

    pub(super) fn shards(&self) -> u16 {
        self.view.borrow().placement().shards()
    }

    /// The owner of a queue.
    pub(super) fn owner_of(&self, topic: &str, queue: i32) -> ShardId {
        self.view.borrow().placement().owner(topic, queue)
    }

    /// Tells every other shard, and this one, of something.
    pub(super) fn broadcast(&self, message: impl Fn() -> Message) {
        use crate::shard::Service;
        for shard in 0..self.shards() {
            if ShardId(shard) != self.id() {
                self.shard.send(ShardId(shard), LaneKind::Reply, message());
            }
        }
        self.message(self.id(), message());
    }

    fn send_answer(&self, to: ShardId, number: u64, answer: Answer) {
        if to == self.id() {
            self.asks.answered(number, answer);
        } else {
            let message = Message::Answer(number, Box::new(answer));
            self.shard.send(to, LaneKind::Reply, message);
        }
    }

    /// Answers a question of another shard, as a task where it must wait.
    pub(super) fn answer_ask(&self, from: ShardId, number: u64, ask: Ask) {
        let me = self.rc();
        spawn("a question of another shard", async move {
            let answer = me.answer_to(ask).await;
            me.send_answer(from, number, answer);
            me.wake_arrivals();
        });
    }

    async fn answer_to(self: &Rc<Self>, ask: Ask) -> Answer {
        match ask {
            Ask::EnsureTopic(_)
            | Ask::EnsureDerivedTopic(_)
            | Ask::EnsureGroup(_)
            | Ask::HasLock(_) => self.answer_control(ask).await,
            Ask::Append(job) => Answer::Appended(self.append_own(job).await),
            Ask::Queues(topic) => Answer::Queues(self.queue_infos(&topic).await),
            Ask::GroupOffsets(group) => {
                Answer::Offsets(self.offsets.borrow().group_offsets(&group))
            }
            Ask::GroupsOfTopic(topic) => {
                Answer::Names(self.offsets.borrow().groups_of_topic(&topic))
            }
            Ask::SetOffset {
                group,
                topic,
                queue,
                offset,
                reset,
            } => {
                let mut offsets = self.offsets.borrow_mut();
                offsets.set(&group, &topic, queue, offset, reset);
                Answer::Done
            }
            Ask::DropGroup(group) => {
                self.offsets.borrow_mut().drop_group(&group);
                Answer::Done
            }
            Ask::DropTopic(topic) => {
                self.offsets.borrow_mut().drop_topic(&topic);
                self.store.remove_topic(&topic).await;
                Answer::Done
            }
            Ask::OffsetByTime(topic, queue, time) => {
                Answer::Number(self.offset_by_time(&topic, queue, time, false).await)
            }
            Ask::StoreTime(topic, queue, offset) => {
                Answer::Number(self.store_time(&topic, queue, offset).await)
            }
            Ask::QueueEntries(topic, queue, from, count) => {
                Answer::Entries(self.queue_entry_infos(&topic, queue, from, count).await)
            }
            Ask::Record(physical) => {
                let record = self.load_record_at(physical).await.unwrap_or_else(|error| {
                    tracing::warn!(physical, %error, "a message cannot be read");
                    None
                });
                Answer::Record(record.map(Into::into))
            }
            Ask::FindKey(query) => Answer::Found(self.find_key(&query).await),
            Ask::StoreInfo => Answer::Store(self.store_info().await),
            Ask::Offsets { force } => {
                let mut offsets = self.offsets.borrow_mut();
                let wanted = offsets.take_dirty() || force;
                Answer::Snapshot(wanted.then(|| offsets.snapshot()))
            }
            Ask::DelayProgress => Answer::Delay(self.delay.progress()),
            Ask::StopRequests => {
                self.stopping.set(true);
                self.shard.stop_accepting();
                Answer::Done
            }
            Ask::Drained(limit) => {
                self.drain(limit).await;
                Answer::Done
            }
            Ask::Close => match self.store.close().await {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Refused(response::SERVICE_NOT_AVAILABLE, error.to_string()),
            },
            Ask::Call(conn, request, timeout) => {
                Answer::Client(self.call_client(conn, request, timeout).await)
            }
        }
    }

    async fn queue_infos(&self, topic: &str) -> Vec<QueueInfo> {
        let mut infos: Vec<QueueInfo> = self.store.with(|store| {
            store
                .queues_of(topic)
                .map(|queue| QueueInfo {
                    queue: queue.queue_id,
                    min: queue.min as i64,
                    max: queue.visible as i64,
                    last_timestamp: 0,
                })
                .collect()
        });
        for info in &mut infos {
            if info.max > info.min {
                info.last_timestamp = self
                    .store_time(topic, info.queue, info.max - 1)
                    .await
                    .max(0);
            }
        }
        infos
    }

    async fn queue_entry_infos(
        &self,
        topic: &str,
        queue: i32,
        from: i64,
        count: usize,
    ) -> Vec<QueueEntry> {
        let Some(index) = self.store.with(|store| store.find_queue(topic, queue)) else {
            return Vec::new();
        };
        let entries = self
            .load_entries(index, from, count)
            .await
            .unwrap_or_default();
        let mut infos = Vec::with_capacity(entries.len());
        for (n, entry) in entries.into_iter().enumerate() {
            infos.push(QueueEntry {
                physical: entry.physical,
                size: entry.size,
                tags_code: entry.tags_code,
                store_timestamp: self.store_time(topic, queue, from.max(0) + n as i64).await,
            });
        }
        infos
    }

    async fn store_info(&self) -> StoreInfo {
        let (long_turns, large_allocations) = self.shard.turn_figures();
        let (mut info, earliest) = self.store.with(|store| {
            let log = store.log();
            let figures = store.figures();
            let info = StoreInfo {
                shard: self.shard.number().0,
                min_physical: log.physical(log.min()),
                max_physical: log.physical(log.written()),
                unflushed: (log.written() - log.durable()) as i64,
                earliest_timestamp: -1,
                put_messages: figures.put_messages,
                put_bytes: figures.put_bytes,
                put_failed: self.counters.put_failed.get(),
                got_messages: self.counters.got_messages.get(),
                pulls_found: self.counters.pulls_found.get(),
                pulls_missed: self.counters.pulls_missed.get(),
                forwarded: self.counters.forwarded.get(),
                long_turns,
                large_allocations,
                connections: self.shard.connections() as u64,
                purged_total: self.retention.purges.borrow().total(),
                purged: self.retention.purges.borrow().by_group(),
            };
            (info, log.physical(log.min()))
        });
        if info.max_physical > info.min_physical {
            if let Ok(Some(bytes)) = self.load_record_at(earliest).await {
                if let Ok(record) = crate::wire::message::Record::parse(&bytes) {
                    info.earliest_timestamp = record.store_timestamp();
                }
            }
        }
        info
    }

    /// Stores a message of the broker's own, waiting for room and for its ack level.
    async fn append_own(&self, job: AppendJob) -> AppendOutcome {
        let mut physical = Vec::new();
        let appended = loop {
            match self.store_job(&job, &mut physical) {
                Ok(appended) => break appended,
                Err(Refusal::Later) => self.room.wait().await,
                Err(Refusal::Code(code, remark)) => return AppendOutcome::Refused(code, remark),
            }
        };
        loop {
            let (watermark, failure) = self
                .store
                .with(|store| (store.watermark(), store.log().failure().map(str::to_owned)));
            if watermark >= appended.end {
                return AppendOutcome::Stored;
            }
            if let Some(why) = failure {
                return AppendOutcome::Refused(response::SERVICE_NOT_AVAILABLE, why);
            }
            self.store.progress().wait().await;
        }
    }

    /// Calls a client whose connection is this shard's.
    async fn call_client(
        &self,
        conn: ConnId,
        mut request: Request,
        timeout: Duration,
    ) -> Result<Response, CallError> {
        let opaque = self.asks.next_opaque();
        request.fixed.opaque = opaque;
        let slot = Slot::new();
        let key = (conn, opaque);
        self.asks.calls.borrow_mut().insert(key, slot.clone());
        if !self.shard.write(conn, |out| request.encode(out.buffer())) {
            self.asks.calls.borrow_mut().remove(&key);
            return Err(CallError::Gone);
        }
        let answer = future::or(slot.get(), async {
            sleep(timeout).await;
            Err(CallError::Timeout)
        })
        .await;
        self.asks.calls.borrow_mut().remove(&key);
        answer
    }

    /// Ends the calls to a client that is gone.
    pub(super) fn calls_of_closed(&self, conn: ConnId) {
        let mut calls = self.asks.calls.borrow_mut();
        calls.retain(|(called, _), slot| {
            let stays = *called != conn;
            if !stays {
                slot.set(Err(CallError::Gone));
            }
            stays
        });
    }

    /// A group as it is known after it was made where it may be.
    pub(super) async fn ensure_group(&self, group: &str) -> Option<Arc<GroupView>> {
        let known = |me: &BrokerShard| me.view.borrow().group(group).map(|(_, view)| view.clone());
        if let Some(view) = known(self) {
            return Some(view);
        }
        self.ask(ShardId::CONTROL, Ask::EnsureGroup(group.to_owned()))
            .await;
        known(self)
    }

    /// Makes a retry or dead letter topic where it is missing.
    pub(super) async fn ensure_derived_topic(
        &self,
        config: TopicConfig,
    ) -> Result<(), (i32, String)> {
        if self.view.borrow().topic(&config.topic_name).is_some() {
            return Ok(());
        }
        match self
            .ask(ShardId::CONTROL, Ask::EnsureDerivedTopic(config))
            .await
        {
            Answer::Refused(code, remark) => Err((code, remark)),
            _ => Ok(()),
        }
    }

    /// Whether any queue of the group is locked: its consumers work in order.
    pub(super) async fn has_lock(&self, group: &str) -> bool {
        let answer = self
            .ask(ShardId::CONTROL, Ask::HasLock(group.to_owned()))
            .await;
        matches!(answer, Answer::Bool(true))
    }

    /// Puts a message of the broker's own into its queue, wherever that is.
    pub(super) async fn put(&self, job: AppendJob) -> AppendOutcome {
        let owner = self.owner_of(&job.topic, job.queue_id);
        match self.ask(owner, Ask::Append(job)).await {
            Answer::Appended(outcome) => outcome,
            _ => AppendOutcome::Refused(response::SYSTEM_ERROR, "no answer".to_owned()),
        }
    }

    /// The topic of a send, made where it is missing and may be made; `None` on a shard
    /// that makes none.
    pub(super) fn make_topic(&self, wanted: &WantedTopic) -> Option<Result<Topic, TopicError>> {
        let control = self.control.as_ref()?;
        let settings = control.settings.borrow();
        let topics = &mut control.state.borrow_mut().topics;
        Some(topics.get_or_create(
            &wanted.topic,
            &wanted.template,
            wanted.queues,
            wanted.sys_flag,
            &settings,
            now_ms(),
        ))
    }

    /// The answer to who asked for a topic, given when everybody knows it.
    pub(super) async fn answer_topic(&self, made: Result<Topic, TopicError>) -> Answer {
        match made {
            Ok(made) => {
                if made.changed {
                    self.publish_topics(std::slice::from_ref(&made.config))
                        .await;
                }
                Answer::Done
            }
            Err(error) => Answer::Refused(response::TOPIC_NOT_EXIST, error.to_string()),
        }
    }

    /// Answers what only the control shard knows.
    async fn answer_control(&self, ask: Ask) -> Answer {
        let Some(control) = &self.control else {
            return Answer::Refused(response::SYSTEM_ERROR, "not the control shard".to_owned());
        };
        let settings = control.settings.borrow().clone();
        match ask {
            Ask::EnsureTopic(wanted) => {
                let Some(made) = self.make_topic(&wanted) else {
                    return Answer::Done;
                };
                let is_new = made.as_ref().is_ok_and(|made| made.changed);
                let elsewhere = async {
                    if is_new {
                        control.siblings.make(&wanted).await;
                    }
                };
                future::zip(self.answer_topic(made), elsewhere).await.0
            }
            Ask::EnsureDerivedTopic(config) => {
                let made = control.state.borrow_mut().topics.ensure(config, now_ms());
                self.answer_topic(made).await
            }
            Ask::EnsureGroup(group) => {
                let (view, effects) =
                    control
                        .state
                        .borrow_mut()
                        .ensure_group(&group, &settings, now_ms());
                effects.deliver(&self.peers()).await;
                self.save_tables().await;
                match view {
                    Some(_) => Answer::Done,
                    None => Answer::Refused(
                        response::SUBSCRIPTION_GROUP_NOT_EXIST,
                        format!("subscription group {group} does not exist"),
                    ),
                }
            }
            Ask::HasLock(group) => {
                Answer::Bool(control.state.borrow().locks.is_orderly(&group, now_ms()))
            }
            _ => Answer::Done,
        }
    }
}
