//! The border of the core: everything that goes in and comes out.
//!
//! ```text
//!  facade (any thread)                driver (the client's own thread)         core (pure)
//!  send(..) ── inbox ──────────────>  takes what is there
//!                                     ticket = place of the waiter
//!                                     core.handle(now, Input::Command(..)) ──> decides
//!                                     socket readable: core.received(..) ────> decides
//!                                     clock:  Input::Tick at core.wake_at() ─> decides
//!                                     ... of one turn, then:
//!                                     for each Output <─────────────────────── outputs
//!  waiter wakes  <── Done(ticket) ──
//!  worker runs listener <── Deliver ─
//!                                     Write(peer): core.take_frames(peer, ..), one write
//! ```
//!
//! # What the driver promises
//! - It gives the time with every call: [`Now`] never goes back in `at`.
//! - It calls [`super::Core::handle`] with [`Input::Tick`] once `wake_at` is reached, or
//!   sooner; more often does no harm.
//! - For each [`Output::Connect`] exactly one [`Input::Connected`] or
//!   [`Input::Disconnected`] follows, and after `Connected` one `Disconnected`, unless the
//!   core closed the peer before. What comes for a closed peer is ignored.
//! - It does not interpret frames: bytes go to [`super::Core::received`] as they come, and
//!   what that call did not use is given again with what follows.
//! - Each [`Output::Deliver`] is answered by one [`Command::Consumed`]; each
//!   [`Output::LoadOffsets`] by one [`Command::OffsetsLoaded`]; each
//!   [`Output::StoreOffsets`] by one [`Command::OffsetsStored`].
//!
//! # What the core promises
//! - For each command with a [`Ticket`] exactly one [`Output::Done`] follows, always: at
//!   the latest when the deadline of the command has passed or the core has stopped.
//! - `Write` of a peer is said once and again only after its frames were taken.
//! - What it holds is bounded: sends by the producer's `in_flight_max` and
//!   `in_flight_bytes_max`, requests of its own by what there is to ask, messages for
//!   consumers by their thresholds, deliveries by
//!   [`DELIVERIES_PER_THREAD`] a thread.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::client::error::Error;
use crate::client::message::{MessageId, MessageQueue, ReceivedMessage, SendResult};
use crate::client::settings::{ProducerSettings, PullConsumerSettings, PushConsumerSettings};
use crate::wire::command::{Request, Response};

/// The time, as the driver gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// A clock that only goes forward, ms from any start: deadlines are kept by it.
    pub at: u64,
    /// The wall clock, ms since 1970, which may jump: messages are stamped with it, and
    /// nothing is decided by it.
    pub wall: i64,
}

/// Who waits for the end of a command; a number of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A producer of this client; a number of the facade's, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub u32);

/// A consumer of this client, push or pull; a number of the facade's, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u32);

/// One connection, from the wish to connect to its end: a number of the core's. A new
/// connection to the same address is another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    /// Place in a table, small.
    pub slot: u32,
    /// How often the place was used before.
    pub epoch: u32,
}

/// One batch that a listener has; a number of the core's, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u64);

/// Most deliveries of a consumer that are out, for each of its threads: one in work, and
/// one that is at hand when that is done.
pub const DELIVERIES_PER_THREAD: usize = 2;

/// What goes in, apart from bytes.
#[derive(Debug)]
pub enum Input {
    /// The facade wants something.
    Command(Command),
    /// The connection is there. [`Output::Write`] follows if something waits for it.
    Connected {
        /// As in [`Output::Connect`].
        peer: PeerId,
    },
    /// There is no connection, or no longer.
    Disconnected {
        /// As in [`Output::Connect`].
        peer: PeerId,
        /// What the system said.
        why: String,
    },
    /// Time has passed.
    Tick,
}

/// What the facade wants.
#[derive(Debug)]
pub enum Command {
    /// Replaces the list of nameservers, `host:port` each: what an address server answered.
    /// Wrong ones are left out; an empty list changes nothing.
    NameServers(Vec<String>),

    /// Adds a producer. Ends with [`Answer::Nothing`], or with
    /// [`crate::client::error::ErrorKind::GroupExists`].
    StartProducer {
        /// Who waits.
        ticket: Ticket,
        /// Its number.
        producer: ProducerId,
        /// Its settings, checked.
        settings: Arc<ProducerSettings>,
    },
    /// Removes a producer: waits for its sends, at most `wait_ms` (those left then end with
    /// `NotRunning`), and tells the brokers. Ends with [`Answer::Nothing`].
    StopProducer {
        /// Who waits.
        ticket: Ticket,
        /// Its number.
        producer: ProducerId,
        /// Longest wait, ms.
        wait_ms: u64,
    },
    /// Sends a message or batch. Ends with [`Answer::Sent`], one-way with
    /// [`Answer::Nothing`] when it is written.
    Send {
        /// Who waits.
        ticket: Ticket,
        /// Whose.
        producer: ProducerId,
        /// What.
        send: Box<Outgoing>,
    },
    /// Asks for the queues that a topic can be sent to, for a selector. Ends with
    /// [`Answer::Queues`]; from then on [`Output::PublishQueues`] tells each change.
    PublishQueues {
        /// Who waits.
        ticket: Ticket,
        /// Whose settings make the topic where it is unknown.
        producer: ProducerId,
        /// The topic.
        topic: Arc<str>,
        /// Longest wait, ms.
        timeout_ms: u64,
    },

    /// Adds a push consumer. Ends with [`Answer::Nothing`] once it is registered with the
    /// brokers that are known, or with an error that names what is missing.
    StartPushConsumer {
        /// Who waits.
        ticket: Ticket,
        /// Its number.
        consumer: ConsumerId,
        /// Its settings, checked.
        settings: Arc<PushConsumerSettings>,
        /// Topics with their expressions.
        subscriptions: Vec<(Arc<str>, Filter)>,
    },
    /// Adds a pull consumer, likewise.
    StartPullConsumer {
        /// Who waits.
        ticket: Ticket,
        /// Its number.
        consumer: ConsumerId,
        /// Its settings, checked.
        settings: Arc<PullConsumerSettings>,
        /// Topics with their expressions; none where queues are assigned.
        subscriptions: Vec<(Arc<str>, Filter)>,
    },
    /// Removes a consumer: no new deliveries; waits for those that are out, at most
    /// `wait_ms`; stores offsets, unlocks queues, tells the brokers. Ends with
    /// [`Answer::Nothing`], or with the first offset that could not be stored.
    StopConsumer {
        /// Who waits.
        ticket: Ticket,
        /// Its number.
        consumer: ConsumerId,
        /// Longest wait, ms.
        wait_ms: u64,
    },
    /// Anything else for one consumer.
    Consumer {
        /// Who waits.
        ticket: Ticket,
        /// Its number.
        consumer: ConsumerId,
        /// What.
        call: ConsumerCall,
    },
    /// A listener is done with a delivery.
    Consumed {
        /// Its number.
        consumer: ConsumerId,
        /// Which.
        delivery: DeliveryId,
        /// What it came to.
        outcome: Outcome,
    },
    /// The offset file was read: its content, `None` where there is none.
    OffsetsLoaded {
        /// Whose.
        consumer: ConsumerId,
        /// What came of it.
        result: Result<Option<Vec<u8>>, FileFault>,
    },
    /// Who polled does not want what came any more: the next one gets it.
    Unpolled(Polled),
    /// The offset file was written, or not.
    OffsetsStored {
        /// Whose.
        consumer: ConsumerId,
        /// What came of it.
        result: Result<(), FileFault>,
    },

    /// Sends one request as it is. Ends with [`Answer::Response`], whatever its code;
    /// one-way with [`Answer::Nothing`].
    Invoke {
        /// Who waits.
        ticket: Ticket,
        /// To whom.
        target: Target,
        /// What; its opaque is set here.
        request: Box<Request>,
        /// Longest wait for the answer, ms.
        timeout_ms: u64,
        /// Whether there will be none.
        one_way: bool,
    },

    /// Stops all producers and consumers as their own stop does, waits at most `wait_ms` in
    /// all, and ends with [`Answer::Nothing`], after which [`Output::Stopped`] comes.
    /// Whatever is asked afterwards ends with `NotRunning`.
    Shutdown {
        /// Who waits.
        ticket: Ticket,
        /// Longest wait, ms.
        wait_ms: u64,
    },
}

impl Command {
    /// The ticket by which its end is told; some have none.
    pub fn ticket_mut(&mut self) -> Option<&mut Ticket> {
        match self {
            Command::StartProducer { ticket, .. }
            | Command::StopProducer { ticket, .. }
            | Command::Send { ticket, .. }
            | Command::PublishQueues { ticket, .. }
            | Command::StartPushConsumer { ticket, .. }
            | Command::StartPullConsumer { ticket, .. }
            | Command::StopConsumer { ticket, .. }
            | Command::Consumer { ticket, .. }
            | Command::Invoke { ticket, .. }
            | Command::Shutdown { ticket, .. } => Some(ticket),
            Command::NameServers(_)
            | Command::Consumed { .. }
            | Command::OffsetsLoaded { .. }
            | Command::Unpolled(_)
            | Command::OffsetsStored { .. } => None,
        }
    }
}

/// What a push or pull consumer is asked to do.
#[derive(Clone, Debug)]
pub enum ConsumerCall {
    /// Adds a subscription or changes its expression. [`Answer::Nothing`].
    Subscribe {
        /// Topic.
        topic: Arc<str>,
        /// What of it.
        filter: Filter,
    },
    /// Drops a subscription. [`Answer::Nothing`].
    Unsubscribe {
        /// Topic.
        topic: Arc<str>,
    },
    /// Push: pulls and deliveries pause. [`Answer::Nothing`].
    Suspend,
    /// Push: and go on. [`Answer::Nothing`].
    Resume,
    /// Pull: consumes these queues and no others, without a share-out. [`Answer::Nothing`].
    Assign(Vec<MessageQueue>),
    /// The queues that the consumer has now. [`Answer::Queues`].
    Assignment,
    /// The queues of a topic that can be read. [`Answer::Queues`].
    FetchQueues {
        /// Topic.
        topic: Arc<str>,
        /// Longest wait, ms.
        timeout_ms: u64,
    },
    /// Pull: what has come, or what comes within a time. [`Answer::Messages`], which may be
    /// none.
    Poll {
        /// Longest wait, ms.
        timeout_ms: u64,
    },
    /// Pull: these queues are not pulled for a while. [`Answer::Nothing`].
    Pause(Vec<MessageQueue>),
    /// Pull: and are again. [`Answer::Nothing`].
    ResumeQueues(Vec<MessageQueue>),
    /// Goes on elsewhere in a queue. [`Answer::Nothing`].
    Seek {
        /// Queue, which the consumer has.
        queue: MessageQueue,
        /// Where to.
        to: SeekTo,
    },
    /// Commits what was polled (`None`), or these offsets, and waits for the brokers'
    /// answers. [`Answer::Nothing`].
    Commit(Option<Vec<(MessageQueue, i64)>>),
    /// The committed offset. [`Answer::Offset`], `None` where there is none.
    Committed(MessageQueue),
    /// An offset of a queue that its broker knows. [`Answer::Offset`].
    Offset {
        /// Queue.
        queue: MessageQueue,
        /// Which.
        which: OffsetOf,
    },
    /// Sends one message back to be consumed again later. [`Answer::Nothing`].
    SendBack {
        /// Which.
        message: Box<ReceivedMessage>,
        /// Delay level: 0 by the number of failures, negative: give it up.
        delay_level: i32,
    },
}

/// Where a consumer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// At the first message there is.
    Begin,
    /// Behind the last one.
    End,
    /// At this offset.
    Offset(i64),
}

/// An offset that a broker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetOf {
    /// That of the first message there is.
    Min,
    /// The one behind the last message.
    Max,
    /// That of the first message stored at or after a time, ms since 1970.
    Time(i64),
}

/// What of a topic a consumer wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Messages whose tag is one of those joined by `||`; `*` for every message.
    Tags(String),
    /// Messages whose properties meet an SQL92 expression, where the broker serves it.
    Sql(String),
}

impl Default for Filter {
    fn default() -> Filter {
        Filter::Tags("*".to_owned())
    }
}

/// To whom a raw request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `host:port`.
    Address(Arc<str>),
    /// Whichever nameserver answers.
    NameServer,
}

/// A send, checked and encoded: made on the caller's thread, so that no compression
/// delays anyone else.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Topic.
    pub topic: Arc<str>,
    /// Body as it goes over the wire: perhaps compressed, perhaps a batch.
    pub body: Bytes,
    /// Properties as they go over the wire, but for the unique key.
    pub properties: Vec<u8>,
    /// Whether `message_id` is to follow them as the unique key: they have none yet.
    pub key_follows: bool,
    /// User flag.
    pub flag: i32,
    /// `wire::message::sys_flag`.
    pub sys_flag: i32,
    /// Whether `body` is a batch.
    pub batch: bool,
    /// The client's id: the unique key, or those of a batch joined by commas.
    pub message_id: MessageId,
    /// Which queue.
    pub to: Destination,
    /// Who waits how.
    pub mode: SendMode,
    /// When the call began, ms of the client's clock: its time counts from then.
    pub began: u64,
    /// Time for all tries together, and for what was waited for before them, ms.
    pub timeout_ms: u64,
    /// In a send to a retry topic: how often consumption failed, and how often it may.
    pub reconsume: Option<(i32, i32)>,
}

impl Outgoing {
    /// The unique key that is to follow the properties.
    pub fn key(&self) -> Option<&str> {
        self.key_follows.then_some(&self.message_id)
    }

    /// What it counts against `in_flight_bytes_max`.
    pub fn bytes(&self) -> usize {
        self.body.len() + self.properties.len()
    }

    /// When its time is over, ms of the client's clock.
    pub fn deadline(&self) -> u64 {
        self.began.saturating_add(self.timeout_ms)
    }
}

/// Which queue a message goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// In turn, avoiding brokers that fail.
    Any,
    /// The queue of this Java hash among the topic's queues; brokers are not changed.
    Hash(i32),
    /// This one; brokers are not changed.
    Queue(MessageQueue),
}

/// How the caller waits, which decides how often it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// Blocking: `retry_times_when_send_failed`.
    Sync,
    /// By future or callback: `retry_times_when_send_async_failed`.
    Async,
    /// Not at all: one try, without an answer.
    OneWay,
}

/// What comes out.
#[derive(Debug)]
pub enum Output {
    /// A connection is wanted, within the client's `connect_timeout_ms`.
    Connect {
        /// Name it by this from now on.
        peer: PeerId,
        /// `host:port`, checked.
        address: Arc<str>,
    },
    /// There are frames for a connected peer: [`super::Core::take_frames`], when it can
    /// take them.
    Write {
        /// Which.
        peer: PeerId,
    },
    /// The connection is to be closed, or no longer to be tried.
    Close {
        /// Which.
        peer: PeerId,
        /// Why, for a log.
        why: String,
    },
    /// A command has ended.
    Done {
        /// Whose.
        ticket: Ticket,
        /// How.
        result: Result<Answer, Error>,
    },
    /// The queues that a topic can be sent to are these now.
    PublishQueues {
        /// Topic.
        topic: Arc<str>,
        /// In the order of brokers' names and numbers; none where the topic is gone.
        queues: Arc<[MessageQueue]>,
    },
    /// A batch for a listener.
    Deliver(Delivery),
    /// The offset file of a broadcasting consumer is wanted.
    LoadOffsets {
        /// Whose.
        consumer: ConsumerId,
        /// Path below the folder of offsets, parts joined by `/`.
        file: String,
    },
    /// An offset file is to be replaced, so that a crash leaves the old one or the new one.
    StoreOffsets {
        /// Whose.
        consumer: ConsumerId,
        /// As in `LoadOffsets`.
        file: String,
        /// Its content.
        content: Vec<u8>,
    },
    /// Nothing more will come: after all frames are written, connections can be closed.
    Stopped,
}

/// A batch for a listener.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Whose.
    pub consumer: ConsumerId,
    /// Its number.
    pub delivery: DeliveryId,
    /// The queue that the messages were read from.
    pub queue: MessageQueue,
    /// The messages, one at least, in order.
    pub messages: Vec<ReceivedMessage>,
}

/// What a listener did with a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it is consumed. Of a concurrent batch the messages up to this index are, and
    /// the rest is consumed again later (`ConsumeConcurrentlyContext.ackIndex`).
    Success {
        /// Index of the last one consumed; `None`: all.
        ack_index: Option<usize>,
    },
    /// Concurrent: again later, all of it.
    ReconsumeLater {
        /// 0: as the number of failures says; positive: this delay level; negative: it is
        /// given up at once.
        delay_level: i32,
    },
    /// Orderly: the queue pauses, then the same messages come again.
    SuspendCurrentQueue {
        /// How long, ms; `None`: the setting.
        pause_ms: Option<u64>,
    },
    /// Orderly without automatic commit: what was consumed so far is committed.
    Commit,
    /// Orderly without automatic commit: what was consumed since the last commit comes again.
    Rollback,
    /// Orderly without automatic commit: consumed, to be committed later.
    SuccessUncommitted,
    /// The listener panicked or answered with an error: as `ReconsumeLater` or
    /// `SuspendCurrentQueue`.
    Failed {
        /// Its words.
        what: String,
    },
}

/// How a command ended well.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is done.
    Nothing,
    /// The message is stored.
    Sent(SendResult),
    /// Queues.
    Queues(Arc<[MessageQueue]>),
    /// Messages.
    Messages(Polled),
    /// An offset.
    Offset(Option<i64>),
    /// The answer as it came.
    Response(Box<Response>),
}

/// What a poll has brought. Where it does not get to who polled, it is given back by
/// [`Command::Unpolled`].
#[derive(Clone, Debug, PartialEq)]
pub struct Polled {
    /// Whose.
    pub consumer: ConsumerId,
    /// The consumer's number for this stint of the queue.
    pub epoch: u64,
    /// The messages, of one queue, in order.
    pub messages: Vec<ReceivedMessage>,
}

impl Polled {
    /// Nothing came.
    pub const NOTHING: Polled = Polled {
        consumer: ConsumerId(0),
        epoch: 0,
        messages: Vec::new(),
    };
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// Its path.
    pub path: String,
    /// What the system said.
    pub why: String,
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.epoch)
    }
}
