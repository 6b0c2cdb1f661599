//! What crosses lanes between the shards of a broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::control::offsets::OffsetSnapshot;
use super::control::view::GroupChange;
use super::peers::{CallError, OffsetInfo, QueueEntry, QueueInfo, StoreInfo};
use super::query::{KeyAnswer, MessageQuery};
use crate::shard::ConnId;
use crate::wire::body::topic::TopicConfig;
use crate::wire::command::{Request, Response};
use crate::wire::frame::Serialize;
use crate::wire::message::{Parts, body_crc};

/// Whom a request is answered to, and how.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo {
    /// The connection that it came by.
    pub conn: ConnId,
    /// Its number.
    pub opaque: i32,
    /// How its header was written.
    pub serialize: Serialize,
    /// Whether the sender wants no answer.
    pub one_way: bool,
    /// Whether its connection holds back other answers for a moment, to be written
    /// together with this one; see [`crate::shard::Shard::await_remote`].
    pub awaited: bool,
    /// Bytes that the answer was expected to have at most.
    pub expected: u32,
}

/// A message or batch that has passed all checks and goes to its queue. `B` is
/// [`Bytes`] where it crosses a lane, and a borrowed slice where it does not.
#[derive(Clone, Debug)]
pub struct AppendJob<B = Bytes> {
    /// Topic that it is stored under.
    pub topic: Arc<str>,
    /// Queue that it is stored in.
    pub queue_id: i32,
    /// User flag.
    pub flag: i32,
    /// System flag.
    pub sys_flag: i32,
    /// When it was made, ms since 1970.
    pub born_timestamp: i64,
    /// Who made it.
    pub born_host: SocketAddr,
    /// How often its consumption failed.
    pub reconsume_times: i32,
    /// Body, or the messages of a batch.
    pub body: B,
    /// Stored properties; of a batch, none.
    pub properties: B,
    /// Whether the body is a batch.
    pub batch: bool,
    /// Whether the sender waits for the device under SYNC_FLUSH.
    pub wait: bool,
}

impl<B> AppendJob<B> {
    /// The same with other bytes.
    fn with_bytes<C>(&self, body: C, properties: C) -> AppendJob<C> {
        AppendJob {
            topic: self.topic.clone(),
            queue_id: self.queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp: self.born_timestamp,
            born_host: self.born_host,
            reconsume_times: self.reconsume_times,
            body,
            properties,
            batch: self.batch,
            wait: self.wait,
        }
    }
}

/// An [`AppendJob`] that crosses a lane: its bytes lie in one piece, behind the rest.
#[derive(Debug)]
pub struct ForwardedAppend {
    job: AppendJob<()>,
    bytes: Box<[u8]>,
    body_len: usize,
}

impl ForwardedAppend {
    /// Copies a job.
    pub fn new(job: &AppendJob<&[u8]>) -> ForwardedAppend {
        ForwardedAppend {
            job: job.with_bytes((), ()),
            bytes: [job.body, job.properties].concat().into(),
            body_len: job.body.len(),
        }
    }

    /// The job, borrowed.
    pub fn job(&self) -> AppendJob<&[u8]> {
        let (body, properties) = self.bytes.split_at(self.body_len);
        self.job.with_bytes(body, properties)
    }
}

impl<B: AsRef<[u8]>> AppendJob<B> {
    /// The record of a single message.
    pub fn parts(&self, store_host: SocketAddr) -> Parts<'_> {
        let body = self.body.as_ref();
        Parts {
            queue_id: self.queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp: self.born_timestamp,
            born_host: self.born_host,
            store_host,
            reconsume_times: self.reconsume_times,
            prepared_offset: 0,
            body,
            body_crc: body_crc(body),
            topic: self.topic.as_bytes(),
            properties: self.properties.as_ref(),
        }
    }
}

/// Where a message of a forwarded send went.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Response code.
    pub code: i32,
    /// Queue number.
    pub queue_id: i32,
    /// Queue offset.
    pub queue_offset: u64,
    /// Physical offset.
    pub physical: i64,
}

/// Which messages a pull wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Every message.
    All,
    /// Those with a tag of which the hash is one of these, sorted; the client compares the tags.
    Tags(Arc<[i32]>),
}

impl Filter {
    /// Whether a message with this tags code may be wanted.
    pub fn accepts(&self, tags_code: i64) -> bool {
        match self {
            Filter::All => true,
            Filter::Tags(codes) => {
                i32::try_from(tags_code).is_ok_and(|code| codes.binary_search(&code).is_ok())
            }
        }
    }
}

/// A pull that has passed all checks and goes to its queue.
#[derive(Clone, Debug)]
pub struct PullJob {
    /// Whom it is answered to.
    pub reply_to: ReplyTo,
    /// Consumer group.
    pub group: Arc<str>,
    /// Topic.
    pub topic: Arc<str>,
    /// Queue number.
    pub queue_id: i32,
    /// First queue offset wanted.
    pub offset: i64,
    /// Most messages wanted, at least 1.
    pub max_messages: usize,
    /// Offset to commit on the way.
    pub commit: Option<i64>,
    /// How long to wait for messages, ms; 0: not at all.
    pub suspend_ms: u64,
    /// Which messages.
    pub filter: Filter,
    /// Flags of topic and group, for the answer.
    pub topic_sys_flag: i32,
    /// See `topic_sys_flag`.
    pub group_sys_flag: i32,
    /// Broker that the group reads from, for the answer.
    pub suggest_broker: i64,
    /// Whether members of the group share the queue, so that a committed offset counts.
    pub guard_offset: bool,
    /// Whether it has waited: it no longer counts as under way.
    pub parked: bool,
}

/// A request about one queue that its owner answers at once.
#[derive(Clone, Debug)]
pub enum QueueJob {
    /// QUERY_CONSUMER_OFFSET.
    QueryOffset {
        /// Group.
        group: String,
        /// Whether a young queue counts as committed at 0.
        zero_if_young: bool,
    },
    /// UPDATE_CONSUMER_OFFSET.
    CommitOffset {
        /// Group.
        group: String,
        /// The offset.
        offset: i64,
    },
    /// GET_MAX_OFFSET.
    MaxOffset,
    /// GET_MIN_OFFSET.
    MinOffset,
    /// SEARCH_OFFSET_BY_TIMESTAMP.
    OffsetByTime {
        /// Store time, ms since 1970.
        timestamp: i64,
        /// Whether the last instead of the first of several equal times is meant.
        upper: bool,
    },
    /// GET_EARLIEST_MSG_STORETIME.
    EarliestTime,
}

impl QueueJob {
    /// Whether it may have to read what is not in memory.
    pub fn may_load(&self) -> bool {
        matches!(self, QueueJob::OffsetByTime { .. } | QueueJob::EarliestTime)
    }
}

/// What crosses a lane.
#[derive(Debug)]
pub enum Message {
    /// A send to a queue of the receiving shard.
    Append(Box<ForwardedAppend>, ReplyTo),
    /// The answer to a forwarded send of one message; written by the shard that
    /// holds its connection, so that nothing is allocated for it.
    Sent(ReplyTo, Sent),
    /// A pull from a queue of the receiving shard.
    Pull(Box<PullJob>),
    /// A request about a queue of the receiving shard.
    Queue(Box<(QueueJob, String, i32)>, ReplyTo),
    /// A request for the control shard.
    Control(Box<(Request, SocketAddr)>, ReplyTo),
    /// The answer to a forwarded request: a frame for a connection of the receiving shard.
    Reply(ReplyTo, Vec<Bytes>),
    /// A forwarded request has no answer, or none yet.
    Done(ReplyTo),
    /// An answer to a forwarded request that was counted as done before.
    Push(ConnId, Vec<Bytes>),
    /// A connection of the sending shard is gone; for the control shard.
    Closed(ConnId),
    /// A question between shards, with its number.
    Ask(u64, Box<Ask>),
    /// The answer to it.
    Answer(u64, Box<Answer>),
    /// A request to a client of the receiving shard that wants no answer.
    Notify(ConnId, Box<Request>),
    /// A topic was made or changed.
    Topic(Arc<TopicConfig>),
    /// A topic was removed.
    TopicGone(Arc<str>),
    /// A group is now as this says.
    Group(GroupChange),
    /// Settings were changed at run time.
    Settings(Arc<crate::config::Settings>),
}

/// A topic that a send needs.
#[derive(Clone, Debug)]
pub struct WantedTopic {
    /// Topic.
    pub topic: String,
    /// Topic whose settings it is made with.
    pub template: String,
    /// Queues wanted.
    pub queues: i32,
    /// System flag of the topic.
    pub sys_flag: i32,
}

/// A question from one shard to another.
#[derive(Debug)]
pub enum Ask {
    /// The topic of a send that its shard does not know: made if it may be.
    EnsureTopic(WantedTopic),
    /// A retry or dead letter topic, made with these settings where it is missing.
    EnsureDerivedTopic(TopicConfig),
    /// A group that its shard does not know: made if it may be.
    EnsureGroup(String),
    /// Whether any queue lock of the group is live.
    HasLock(String),
    /// Puts a message of the broker's own into a queue of the answering shard.
    Append(AppendJob),
    /// Bounds of the topic's queues on the answering shard.
    Queues(String),
    /// Offsets of a group on the answering shard.
    GroupOffsets(String),
    /// Groups with offsets for a topic on the answering shard.
    GroupsOfTopic(String),
    /// Sets a committed offset.
    SetOffset {
        /// Group.
        group: String,
        /// Topic.
        topic: String,
        /// Queue number.
        queue: i32,
        /// The offset.
        offset: i64,
        /// Whether the next pull is to be told.
        reset: bool,
    },
    /// Forgets a group's offsets.
    DropGroup(String),
    /// Removes a topic's queues and offsets.
    DropTopic(String),
    /// See [`QueueJob::OffsetByTime`].
    OffsetByTime(String, i32, i64),
    /// Store time of the message at a queue offset.
    StoreTime(String, i32, i64),
    /// Entries of a queue from an offset on.
    QueueEntries(String, i32, i64, usize),
    /// The record at a physical offset.
    Record(i64),
    /// Messages of the answering shard's log that have a key.
    FindKey(MessageQuery),
    /// Figures of the store.
    StoreInfo,
    /// Committed offsets, for the file; `None` when nothing changed and not forced.
    Offsets {
        /// Whether they are wanted even if nothing changed.
        force: bool,
    },
    /// Progress of delayed delivery, for the file.
    DelayProgress,
    /// Takes no more requests.
    StopRequests,
    /// Answered when nothing is under way any more, or after this time.
    Drained(Duration),
    /// Closes the store.
    Close,
    /// Calls a client of the answering shard.
    Call(ConnId, Request, Duration),
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Answer {
    /// It is done, or known by the messages that came before.
    Done,
    /// It cannot be done: response code and remark.
    Refused(i32, String),
    /// A truth value.
    Bool(bool),
    /// A number.
    Number(i64),
    /// Where a message was put.
    Appended(AppendOutcome),
    /// See [`Ask::Queues`].
    Queues(Vec<QueueInfo>),
    /// See [`Ask::GroupOffsets`].
    Offsets(Vec<OffsetInfo>),
    /// Names.
    Names(Vec<String>),
    /// See [`Ask::QueueEntries`].
    Entries(Vec<QueueEntry>),
    /// See [`Ask::Record`].
    Record(Option<Bytes>),
    /// See [`Ask::FindKey`].
    Found(KeyAnswer),
    /// See [`Ask::StoreInfo`].
    Store(StoreInfo),
    /// See [`Ask::Offsets`].
    Snapshot(Option<OffsetSnapshot>),
    /// See [`Ask::DelayProgress`].
    Delay(Vec<(i32, i64)>),
    /// A client's answer.
    Client(Result<Response, CallError>),
}

/// What became of a message of the broker's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It is stored as its ack level says.
    Stored,
    /// It is not stored: response code and remark.
    Refused(i32, String),
}
