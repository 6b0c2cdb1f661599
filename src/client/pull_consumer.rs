//! A consumer that is asked for messages (`DefaultLitePullConsumer`).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use super::core::io::{
    Answer, Command, ConsumerCall, ConsumerId, Filter, OffsetOf, SeekTo, Ticket,
};
use super::error::Result;
use super::message::{MessageQueue, ReceivedMessage};
use super::net::{Call, Instance, Post, Waiter};
use super::pending::{Pending, nothing};
use super::push_consumer::{Subscription, subscriptions_of};
use super::settings::{ClientSettings, PullConsumerSettings};

/// Longest time that the end of the last handle leaves to commits on their way.
const STOP_MS: u64 = 3_000;

/// A pull consumer: a handle that can be cloned and used from any thread. It stops with
/// [`PullConsumer::shutdown`], or when its last handle is dropped.
///
/// With subscriptions the queues are shared out among the members of the group; without, they
/// are named with [`PullConsumer::assign`]. Messages are fetched ahead, within the thresholds
/// of the settings; unless `auto_commit` is off, what a poll has answered is committed by and by.
///
#[doc = example!("pull")]
///
/// With queues and offsets of the application's own choice:
///
#[doc = example!("assign_and_seek")]
#[derive(Clone)]
pub struct PullConsumer(Arc<Inner>);

struct Inner {
    instance: Arc<Instance>,
    consumer: ConsumerId,
    settings: Arc<PullConsumerSettings>,
    api_timeout_ms: u64,
    /// A shutdown was begun.
    stopped: AtomicBool,
    /// It has come to its end; not one whose caller stopped waiting.
    ended: AtomicBool,
}

/// Filters for the subscriptions of a pull consumer that names its queues itself: none.
pub const NO_SUBSCRIPTIONS: [Subscription; 0] = [];

impl PullConsumer {
    /// Starts a consumer; give [`NO_SUBSCRIPTIONS`] where queues are to be assigned. Await
    /// [`PullConsumer::start_async`] where a runtime's tasks run.
    ///
    /// # Errors
    /// Settings or subscriptions that cannot be; no nameserver; another member of the group in
    /// the same client instance.
    pub fn start<S: Into<Subscription>>(
        client: &ClientSettings,
        settings: PullConsumerSettings,
        subscriptions: impl IntoIterator<Item = S>,
    ) -> Result<PullConsumer> {
        let (consumer, started) = begin(client, settings, subscriptions_of(subscriptions))?;
        started.wait()?;
        Ok(consumer)
    }

    /// As [`PullConsumer::start`], as a future.
    ///
    /// # Errors
    /// As [`PullConsumer::start`].
    pub async fn start_async<S: Into<Subscription>>(
        client: &ClientSettings,
        settings: PullConsumerSettings,
        subscriptions: impl IntoIterator<Item = S>,
    ) -> Result<PullConsumer> {
        let (consumer, started) = begin(client, settings, subscriptions_of(subscriptions))?;
        started.await?;
        Ok(consumer)
    }

    /// The consumer group.
    pub fn group(&self) -> &str {
        &self.0.settings.setup.group
    }

    /// Messages that are there, or come within `timeout`; none where none come. `None`: the
    /// setting `poll_timeout_ms`.
    ///
    /// # Errors
    /// The consumer has stopped, or has nothing to pull from.
    pub fn poll(&self, timeout: impl Into<Option<Duration>>) -> Result<Vec<ReceivedMessage>> {
        self.poll_async(timeout).wait()
    }

    /// As [`PullConsumer::poll`], as a future. What comes for one that is dropped before its end
    /// goes to the next poll.
    pub fn poll_async(
        &self,
        timeout: impl Into<Option<Duration>>,
    ) -> Pending<Vec<ReceivedMessage>> {
        let timeout_ms = timeout.into().map(millis);
        let timeout_ms = timeout_ms.unwrap_or(self.0.settings.poll_timeout_ms);
        let instance = self.0.instance.clone();
        let call = instance.call(self.command(ConsumerCall::Poll { timeout_ms }));
        let polling = Polling { call, instance };
        Pending::steps(polling, |answer| match answer {
            Answer::Messages(polled) => Some(unpacked(polled.messages)),
            _ => None,
        })
    }

    /// Consumes these queues and no others, without a share-out in the group.
    pub fn assign(&self, queues: Vec<MessageQueue>) -> Pending<()> {
        self.call(ConsumerCall::Assign(queues), nothing)
    }

    /// The queues that this consumer has now.
    pub fn assignment(&self) -> Pending<Arc<[MessageQueue]>> {
        self.call(ConsumerCall::Assignment, queues)
    }

    /// The queues of a topic that can be read.
    pub fn fetch_queues(&self, topic: impl Into<Arc<str>>) -> Pending<Arc<[MessageQueue]>> {
        let call = ConsumerCall::FetchQueues {
            topic: topic.into(),
            timeout_ms: self.0.api_timeout_ms,
        };
        self.call(call, queues)
    }

    /// Adds a subscription, or changes what of a topic is wanted.
    pub fn subscribe(&self, subscription: impl Into<Subscription>) -> Pending<()> {
        let Subscription { topic, filter } = subscription.into();
        self.call(ConsumerCall::Subscribe { topic, filter }, nothing)
    }

    /// Drops a subscription.
    pub fn unsubscribe(&self, topic: impl Into<Arc<str>>) -> Pending<()> {
        let topic = topic.into();
        self.call(ConsumerCall::Unsubscribe { topic }, nothing)
    }

    /// Does not pull these queues until [`PullConsumer::resume`].
    pub fn pause(&self, queues: Vec<MessageQueue>) -> Pending<()> {
        self.call(ConsumerCall::Pause(queues), nothing)
    }

    /// Pulls these queues again.
    pub fn resume(&self, queues: Vec<MessageQueue>) -> Pending<()> {
        self.call(ConsumerCall::ResumeQueues(queues), nothing)
    }

    /// Goes on elsewhere in a queue that this consumer has.
    pub fn seek(&self, queue: MessageQueue, to: SeekTo) -> Pending<()> {
        self.call(ConsumerCall::Seek { queue, to }, nothing)
    }

    /// Commits what polls have answered, and ends when the brokers have it, or, broadcasting,
    /// the file of offsets.
    pub fn commit(&self) -> Pending<()> {
        self.call(ConsumerCall::Commit(None), nothing)
    }

    /// Commits these offsets, each that of the next message to be consumed.
    pub fn commit_offsets(&self, offsets: Vec<(MessageQueue, i64)>) -> Pending<()> {
        self.call(ConsumerCall::Commit(Some(offsets)), nothing)
    }

    /// The group's committed offset of a queue, `None` where there is none.
    pub fn committed(&self, queue: MessageQueue) -> Pending<Option<i64>> {
        self.call(ConsumerCall::Committed(queue), offset)
    }

    /// An offset of a queue that its broker knows.
    pub fn offset(&self, queue: MessageQueue, which: OffsetOf) -> Pending<Option<i64>> {
        self.call(ConsumerCall::Offset { queue, which }, offset)
    }

    /// Has a message consumed again later: at once given up for a negative `delay_level`, after
    /// that level's delay for a positive one, and for 0 as its failures so far say.
    pub fn send_back(&self, message: ReceivedMessage, delay_level: i32) -> Pending<()> {
        let message = Box::new(message);
        let call = ConsumerCall::SendBack {
            message,
            delay_level,
        };
        self.call(call, nothing)
    }

    /// Stops: offsets are committed where that is automatic, and the queues left to others. A
    /// second time does nothing.
    ///
    /// # Errors
    /// The first offset that could not be committed, or of which nobody said in time that it
    /// is: what was polled since the last one comes again. It has stopped all the same.
    pub fn shutdown(&self) -> Result<()> {
        self.shutdown_async().wait()
    }

    /// As [`PullConsumer::shutdown`], as a future.
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

    fn call<T>(&self, call: ConsumerCall, turn: fn(Answer) -> Option<T>) -> Pending<T> {
        Pending::call(self.0.instance.call(self.command(call)), turn)
    }

    fn command(&self, call: ConsumerCall) -> Command {
        Command::Consumer {
            ticket: Ticket(0),
            consumer: self.0.consumer,
            call,
        }
    }
}

/// A poll; dropped it gives back what has come.
struct Polling {
    call: Call,
    instance: Arc<Instance>,
}

impl Future for Polling {
    type Output = Result<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Answer>> {
        Pin::new(&mut self.call).poll(cx)
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        if let Some(Ok(Answer::Messages(polled))) = self.call.give_up() {
            let command = Command::Unpolled(polled);
            self.instance.post(Post::Command(command, Waiter::NOBODY));
        }
    }
}

impl Inner {
    fn stopping(&self) -> Command {
        Command::StopConsumer {
            ticket: Ticket(0),
            consumer: self.consumer,
            wait_ms: STOP_MS,
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

fn begin(
    client: &ClientSettings,
    settings: PullConsumerSettings,
    subscriptions: Vec<(Arc<str>, Filter)>,
) -> Result<(PullConsumer, Call)> {
    settings.check()?;
    let settings = Arc::new(settings);
    let instance = Instance::of(client)?;
    let consumer = instance.consumer_id();
    let started = instance.call(Command::StartPullConsumer {
        ticket: Ticket(0),
        consumer,
        settings: settings.clone(),
        subscriptions,
    });
    let inner = Inner {
        instance,
        consumer,
        settings,
        api_timeout_ms: client.api_timeout_ms,
        stopped: AtomicBool::new(false),
        ended: AtomicBool::new(false),
    };
    Ok((PullConsumer(Arc::new(inner)), started))
}

fn queues(answer: Answer) -> Option<Arc<[MessageQueue]>> {
    match answer {
        Answer::Queues(queues) => Some(queues),
        _ => None,
    }
}

fn offset(answer: Answer) -> Option<Option<i64>> {
    match answer {
        Answer::Offset(offset) => Some(offset),
        _ => None,
    }
}

/// A duration as the core takes it.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Messages with their bodies as they were before they were compressed; one that cannot be
/// got back stays as it is, and says so ([`ReceivedMessage::is_compressed`]).
fn unpacked(mut messages: Vec<ReceivedMessage>) -> Vec<ReceivedMessage> {
    for message in &mut messages {
        if let Err(fault) = message.unpack() {
            let (queue, offset) = (&message.queue, message.queue_offset);
            tracing::error!(%queue, offset, %fault, "a body cannot be read");
        }
    }
    messages
}
