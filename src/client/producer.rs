//! Sending messages (`DefaultMQProducer`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_lite::future::block_on;

use super::core::io::{Answer, Command, Outgoing, ProducerId, SendMode, Ticket};
use super::core::producer::prepare::{SendOptions, prepare, prepare_batch};
use super::error::{Error, ErrorKind, Result};
use super::in_flight::{InFlight, Room};
use super::message::{Message, MessageQueue, SendResult};
use super::net::{Call, Instance, Post, clock_ms, clock_ms_up};
use super::pending::{Pending, nothing};
use super::pull_consumer::millis;
use super::settings::{ClientSettings, ProducerSettings};

/// Picks the queue of a message: gets the topic's queues, one at least, ordered by broker and
/// number, or, of an ordered topic, as its nameserver has them; and answers an index.
type Selector = Box<dyn FnOnce(&[MessageQueue], &Message) -> usize + Send>;

/// What is to be sent, and how. Made from a [`Message`], or from several of one topic, which
/// travel as one batch.
///
/// ```
/// use ringmq::client::{Message, SendRequest};
/// use std::time::Duration;
///
/// let order = 4711;
/// let request = SendRequest::from(Message::new("orders", "one coffee"))
///     .select(move |queues, _message| order % queues.len())
///     .timeout(Duration::from_millis(500));
/// # let _ = request;
/// ```
///
/// A batch:
///
#[doc = example!("send_batch")]
pub struct SendRequest {
    what: What,
    to: To,
    timeout: Option<Duration>,
}

enum What {
    One(Message),
    Batch(Vec<Message>),
}

enum To {
    Any,
    Queue(MessageQueue),
    Select(Selector),
}

impl From<Message> for SendRequest {
    fn from(message: Message) -> SendRequest {
        SendRequest {
            what: What::One(message),
            to: To::Any,
            timeout: None,
        }
    }
}

impl From<Vec<Message>> for SendRequest {
    fn from(messages: Vec<Message>) -> SendRequest {
        SendRequest {
            what: What::Batch(messages),
            to: To::Any,
            timeout: None,
        }
    }
}

impl SendRequest {
    /// Sends to this queue. Another broker is never tried.
    #[must_use]
    pub fn queue(mut self, queue: MessageQueue) -> SendRequest {
        self.to = To::Queue(queue);
        self
    }

    /// Sends to the queue whose index `selector` answers; it gets the topic's queues, and the
    /// message (of a batch, the first one). Another broker is never tried. For an order by key
    /// alone, [`Message::sharding_key`] is simpler.
    #[must_use]
    pub fn select(
        mut self,
        selector: impl FnOnce(&[MessageQueue], &Message) -> usize + Send + 'static,
    ) -> SendRequest {
        self.to = To::Select(Box::new(selector));
        self
    }

    /// Time for the whole call, in place of the producer's `send_timeout_ms`: for the room and
    /// the route that it may wait for, and for all tries together.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> SendRequest {
        self.timeout = Some(timeout);
        self
    }

    fn first(&self) -> Option<&Message> {
        match &self.what {
            What::One(message) => Some(message),
            What::Batch(messages) => messages.first(),
        }
    }
}

/// A producer: a handle that can be cloned and used from any thread. It stops with
/// [`Producer::shutdown`], or when its last handle is dropped; sends on their way are waited for.
///
/// Blocking:
///
#[doc = example!("send")]
///
/// In any async runtime, or none. A send begins when it is called, so that many can be on their
/// way before the first is awaited:
///
#[doc = example!("send_async")]
///
/// With a callback, which is called on a thread for callbacks:
///
#[doc = example!("send_with_callback")]
#[derive(Clone)]
pub struct Producer(Arc<Inner>);

struct Inner {
    instance: Arc<Instance>,
    producer: ProducerId,
    settings: Arc<ProducerSettings>,
    in_flight: Arc<InFlight>,
    /// A shutdown was begun.
    stopped: AtomicBool,
    /// It has come to its end; not one whose caller stopped waiting.
    ended: AtomicBool,
}

impl Producer {
    /// Starts a producer. Await [`Producer::start_async`] where a runtime's tasks run.
    ///
    /// # Errors
    /// Settings that cannot be; no nameserver; another producer of the group in the same client
    /// instance.
    pub fn start(client: &ClientSettings, settings: ProducerSettings) -> Result<Producer> {
        let (producer, started) = begin(client, settings)?;
        started.wait()?;
        Ok(producer)
    }

    /// As [`Producer::start`], as a future.
    ///
    /// # Errors
    /// As [`Producer::start`].
    pub async fn start_async(
        client: &ClientSettings,
        settings: ProducerSettings,
    ) -> Result<Producer> {
        let (producer, started) = begin(client, settings)?;
        started.await?;
        Ok(producer)
    }

    /// The producer group.
    pub fn group(&self) -> &str {
        &self.0.settings.group
    }

    /// Sends a message or a batch and waits until it is stored. Tried anew at other brokers, up
    /// to `retry_times_when_send_failed` times more, where that can help. Waits for room first
    /// while `in_flight_max` sends or `in_flight_bytes_max` bytes are on their way.
    ///
    /// # Errors
    /// What is wrong with the message, or what the last try came to.
    pub fn send(&self, request: impl Into<SendRequest>) -> Result<SendResult> {
        self.begin(request.into(), SendMode::Sync, sent).wait()
    }

    /// As [`Producer::send`], as a future of any runtime. The send begins now, unless there is
    /// no room for it, or a selector needs queues that are not known yet; then it does when the
    /// future is first polled.
    pub fn send_async(&self, request: impl Into<SendRequest>) -> Pending<SendResult> {
        self.begin(request.into(), SendMode::Async, sent)
    }

    /// As [`Producer::send`], with a function that gets the result, on a thread for callbacks
    /// that all callbacks of the client share. Waits for room as [`Producer::send`] does. A
    /// shutdown waits for the send, but not for what is done with its result.
    pub fn send_with(
        &self,
        request: impl Into<SendRequest>,
        callback: impl FnOnce(Result<SendResult>) + Send + 'static,
    ) {
        let (inner, mut request, began) = (&self.0, request.into(), clock_ms_up());
        let prepared = if inner.try_select(&mut request) {
            inner.prepare(request, SendMode::Async, began)
        } else {
            block_on(inner.clone().outgoing(request, SendMode::Async, began))
        };
        let prepared = prepared.and_then(|send| {
            let room = match inner.in_flight.try_acquire(send.bytes()) {
                Some(room) => room,
                None => block_on(inner.clone().room(&send))?,
            };
            Ok((send, room))
        });
        match prepared {
            Ok((send, room)) => {
                let callback = Box::new(move |result: Result<Answer>| {
                    callback(result.and_then(|answer| sent(answer).ok_or_else(no_result)));
                });
                let command = inner.command(send);
                inner.instance.call_with(command, Some(room), callback);
            }
            Err(error) => callback(Err(error)),
        }
    }

    /// Sends without waiting for an answer: one try, and nobody knows whether it is stored.
    /// Waits until it is handed to the network.
    ///
    /// # Errors
    /// What is wrong with the message; no route; no connection.
    pub fn send_one_way(&self, request: impl Into<SendRequest>) -> Result<()> {
        self.send_one_way_async(request).wait()
    }

    /// As [`Producer::send_one_way`], as a future.
    pub fn send_one_way_async(&self, request: impl Into<SendRequest>) -> Pending<()> {
        self.begin(request.into(), SendMode::OneWay, nothing)
    }

    /// The queues that a topic can be sent to, ordered by broker and number, or, of an ordered
    /// topic, as its nameserver has them.
    pub fn publish_queues(&self, topic: impl Into<Arc<str>>) -> Pending<Arc<[MessageQueue]>> {
        let timeout_ms = self.0.settings.send_timeout_ms;
        let call = self.0.ask_queues(topic.into(), timeout_ms);
        Pending::call(call, |answer| match answer {
            Answer::Queues(queues) => Some(queues),
            _ => None,
        })
    }

    /// Stops: takes no more sends, waits for those on their way, each at most for its timeout,
    /// and tells the brokers. A second time does nothing.
    ///
    /// # Errors
    /// The client's thread has ended before.
    pub fn shutdown(&self) -> Result<()> {
        self.shutdown_async().wait()
    }

    /// As [`Producer::shutdown`], as a future.
    pub fn shutdown_async(&self) -> Pending<()> {
        let inner = self.0.clone();
        let stop = async move {
            if inner.stopped.swap(true, Ordering::SeqCst) {
                return Ok(Answer::Nothing);
            }
            let ended = inner.instance.call(inner.stopping()).await;
            inner.ended.store(true, Ordering::SeqCst);
            ended
        };
        Pending::steps(stop, nothing)
    }

    fn begin<T>(
        &self,
        mut request: SendRequest,
        mode: SendMode,
        turn: fn(Answer) -> Option<T>,
    ) -> Pending<T> {
        let (inner, began) = (&self.0, clock_ms_up());
        if !inner.try_select(&mut request) {
            let inner = inner.clone();
            let steps = async move {
                let send = inner.clone().outgoing(request, mode, began).await?;
                inner.send_in_room(send).await
            };
            return Pending::steps(steps, turn);
        }
        let send = match inner.prepare(request, mode, began) {
            Ok(send) => send,
            Err(error) => return Pending::refused(error),
        };
        match inner.in_flight.try_acquire(send.bytes()) {
            Some(room) => {
                let command = inner.command(send);
                let waits = mode == SendMode::Sync;
                let call = inner.instance.call_now(command, Some(room), waits);
                Pending::call(call, turn)
            }
            None => {
                let inner = inner.clone();
                Pending::steps(async move { inner.send_in_room(send).await }, turn)
            }
        }
    }
}

impl Inner {
    /// Has the selector, if there is one, pick a queue; `false` where the queues are not known.
    fn try_select(&self, request: &mut SendRequest) -> bool {
        if !matches!(request.to, To::Select(_)) {
            return true;
        }
        let Some(first) = request.first() else {
            // It is refused for what it is.
            return true;
        };
        let queues = self.instance.published.get(first.topic());
        queues.map(|queues| select(request, &queues)).is_some()
    }

    /// What is to be sent, once its queue is known.
    async fn outgoing(
        self: Arc<Self>,
        mut request: SendRequest,
        mode: SendMode,
        began: u64,
    ) -> Result<Box<Outgoing>> {
        if !self.try_select(&mut request) {
            let topic: Arc<str> = request.first().map_or("", Message::topic).into();
            let limit_ms = request.timeout.map(millis);
            let limit_ms = limit_ms.unwrap_or(self.settings.send_timeout_ms);
            // A client's thread counts from the last full millisecond on.
            let left_ms = began.saturating_add(limit_ms).saturating_sub(clock_ms());
            let asked = self.ask_queues(topic.clone(), left_ms);
            let late = |error: Error| match error.kind() {
                // The time is that of the whole send.
                ErrorKind::Timeout { .. } => {
                    let elapsed_ms = clock_ms_up().saturating_sub(began);
                    let whole = Error::new(ErrorKind::Timeout { limit_ms });
                    whole.at(error.place().clone()).after(elapsed_ms, 0)
                }
                _ => error,
            };
            match asked.await.map_err(late)? {
                Answer::Queues(queues) if !queues.is_empty() => {
                    self.instance.published.set(topic, queues.clone());
                    select(&mut request, &queues);
                }
                _ => {
                    let what = "there is none for the selector to pick".to_owned();
                    let error = Error::new(ErrorKind::NoQueue { what });
                    return Err(error.of_topic(&topic));
                }
            }
        }
        self.prepare(request, mode, began)
    }

    fn prepare(&self, request: SendRequest, mode: SendMode, began: u64) -> Result<Box<Outgoing>> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(ErrorKind::NotRunning.into());
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let options = SendOptions {
            queue: match request.to {
                To::Queue(queue) => Some(queue),
                To::Any | To::Select(_) => None,
            },
            mode,
            began,
            timeout_ms: request.timeout.map(millis),
            wall_ms: wall.map_or(0, |since| since.as_millis() as i64),
        };
        let keys = &self.instance.keys;
        match request.what {
            What::One(message) => prepare(message, &self.settings, keys, options),
            What::Batch(messages) => prepare_batch(messages, &self.settings, keys, options),
        }
    }

    /// Waits for room, which others' ends make, as long as the send may take.
    async fn room(self: Arc<Self>, send: &Outgoing) -> Result<Room> {
        let room = self.in_flight.acquire(send.bytes(), send.deadline()).await;
        let spent_ms = clock_ms().saturating_sub(send.began);
        let limit_ms = send.timeout_ms;
        let kind = match room {
            Some(room) if spent_ms <= limit_ms => return Ok(room),
            // What came before has taken all of its time.
            Some(_) => ErrorKind::Timeout { limit_ms },
            None => ErrorKind::TooMuchInFlight {
                what: "in_flight_max and in_flight_bytes_max",
                limit: self.settings.in_flight_max as u64,
            },
        };
        Err(Error::new(kind).of_topic(&send.topic).after(spent_ms, 0))
    }

    async fn send_in_room(self: Arc<Self>, send: Box<Outgoing>) -> Result<Answer> {
        let room = self.clone().room(&send).await?;
        let command = self.command(send);
        self.instance.call_in(command, Some(room)).await
    }

    fn command(&self, send: Box<Outgoing>) -> Command {
        Command::Send {
            ticket: Ticket(0),
            producer: self.producer,
            send,
        }
    }

    fn ask_queues(&self, topic: Arc<str>, timeout_ms: u64) -> Call {
        self.instance.call(Command::PublishQueues {
            ticket: Ticket(0),
            producer: self.producer,
            topic,
            timeout_ms,
        })
    }

    /// Sends on their way end by themselves, each when its time is over at the latest.
    fn stopping(&self) -> Command {
        Command::StopProducer {
            ticket: Ticket(0),
            producer: self.producer,
            wait_ms: u64::MAX,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.ended.get_mut() {
            self.instance.abandon(self.stopping());
        }
    }
}

fn begin(client: &ClientSettings, settings: ProducerSettings) -> Result<(Producer, Call)> {
    settings.check()?;
    let settings = Arc::new(settings);
    let instance = Instance::of(client)?;
    let producer = instance.producer_id();
    let started = instance.call(Command::StartProducer {
        ticket: Ticket(0),
        producer,
        settings: settings.clone(),
    });
    let (count_max, bytes_max) = (settings.in_flight_max, settings.in_flight_bytes_max);
    let clock = instance.poster();
    let in_flight = InFlight::new(count_max, bytes_max, move || clock.ring());
    instance.post(Post::Bound(Arc::downgrade(&in_flight)));
    let inner = Inner {
        in_flight,
        instance,
        producer,
        settings,
        stopped: AtomicBool::new(false),
        ended: AtomicBool::new(false),
    };
    Ok((Producer(Arc::new(inner)), started))
}

/// Has the selector pick the queue; an index beyond the last one counts on from the first.
fn select(request: &mut SendRequest, queues: &[MessageQueue]) {
    let to = std::mem::replace(&mut request.to, To::Any);
    if let (To::Select(selector), Some(first)) = (to, request.first()) {
        let index = selector(queues, first) % queues.len().max(1);
        if let Some(queue) = queues.get(index) {
            request.to = To::Queue(queue.clone());
        }
    }
}

fn sent(answer: Answer) -> Option<SendResult> {
    match answer {
        Answer::Sent(result) => Some(result),
        _ => None,
    }
}

fn no_result() -> Error {
    let what = "a send ended without a result".to_owned();
    ErrorKind::BadAnswer { what }.into()
}
