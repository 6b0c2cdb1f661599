//! A consumer whose listener is called with messages as they come (`DefaultMQPushConsumer`).

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::core::io::{
    Answer, Command, ConsumerCall, ConsumerId, Delivery, Filter, Outcome, Ticket,
};
use super::error::{Error, Result};
use super::hooks::ConsumeContext;
use super::message::{MessageQueue, ReceivedMessage};
use super::net::{Instance, Post, Waiter};
use super::pending::{Pending, nothing};
use super::settings::{ClientSettings, PushConsumerSettings};
use super::workers::{Workers, panic_text};

/// A topic, and what of it a consumer wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The topic.
    pub topic: Arc<str>,
    /// What of it.
    pub filter: Filter,
}

impl Subscription {
    /// Messages of `topic` whose tag is one of those in `tags`, joined by `||`; `*` for all.
    pub fn tags(topic: impl Into<Arc<str>>, tags: impl Into<String>) -> Subscription {
        Subscription {
            topic: topic.into(),
            filter: Filter::Tags(tags.into()),
        }
    }

    /// Messages of `topic` whose properties meet an SQL92 expression, where the broker serves it.
    pub fn sql(topic: impl Into<Arc<str>>, expression: impl Into<String>) -> Subscription {
        Subscription {
            topic: topic.into(),
            filter: Filter::Sql(expression.into()),
        }
    }
}

impl From<(&str, &str)> for Subscription {
    /// Topic and tags.
    fn from((topic, tags): (&str, &str)) -> Subscription {
        Subscription::tags(topic, tags)
    }
}

impl From<()> for Outcome {
    /// All of it is consumed.
    fn from((): ()) -> Outcome {
        Outcome::Success { ack_index: None }
    }
}

impl<E: Display> From<std::result::Result<(), E>> for Outcome {
    /// Consumed, or failed: then it comes again.
    fn from(result: std::result::Result<(), E>) -> Outcome {
        match result {
            Ok(()) => Outcome::Success { ack_index: None },
            Err(error) => Outcome::Failed {
                what: error.to_string(),
            },
        }
    }
}

/// What a listener is called with: messages of one queue, in order, one at least.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The queue that they were read from; for messages that come again, one of the group's
    /// retry topic.
    pub queue: MessageQueue,
    /// The messages; more than one where `consume_message_batch_max_size` allows it.
    pub messages: Vec<ReceivedMessage>,
}

/// A push consumer: a handle that can be cloned and used from any thread. The consumer stops
/// with [`PushConsumer::shutdown`], or when its last handle is dropped.
///
/// The listener is called on threads of its own, at most `consume_threads` at a time. It may
/// take its time and may use the client itself; what it returns becomes an [`Outcome`]: nothing
/// and `Ok(())` for success, `Err` for messages that are to come again. A panic counts as such an
/// error. (In a program that is built with `panic = "abort"` it ends the program.)
///
#[doc = example!("consume_concurrently")]
///
/// In order, queue by queue, with failures that make the queue wait:
///
#[doc = example!("consume_in_order")]
///
/// A message that is to come again after a time that the listener chooses:
///
#[doc = example!("retry_later")]
///
/// Every member of the group gets every message, and keeps its offsets in a file:
///
#[doc = example!("broadcast")]
#[derive(Clone)]
pub struct PushConsumer(Arc<Inner>);

struct Inner {
    instance: Arc<Instance>,
    consumer: ConsumerId,
    settings: Arc<PushConsumerSettings>,
    /// A shutdown was begun.
    stopped: AtomicBool,
    /// It has come to its end; not one whose caller stopped waiting.
    ended: AtomicBool,
}

impl PushConsumer {
    /// Starts a consumer and waits until it is registered with the brokers that are known.
    /// Await [`PushConsumer::start_async`] where a runtime's tasks run.
    ///
    /// # Errors
    /// Settings or subscriptions that cannot be; no nameserver; another member of the group in
    /// the same client instance.
    pub fn start<S, O>(
        client: &ClientSettings,
        settings: PushConsumerSettings,
        subscriptions: impl IntoIterator<Item = S>,
        listener: impl Fn(&Batch) -> O + Send + Sync + 'static,
    ) -> Result<PushConsumer>
    where
        S: Into<Subscription>,
        O: Into<Outcome>,
    {
        let begun = begin(client, settings, subscriptions, listener)?;
        begun.1.wait()?;
        Ok(begun.0)
    }

    /// As [`PushConsumer::start`], as a future.
    ///
    /// # Errors
    /// As [`PushConsumer::start`].
    pub async fn start_async<S, O>(
        client: &ClientSettings,
        settings: PushConsumerSettings,
        subscriptions: impl IntoIterator<Item = S>,
        listener: impl Fn(&Batch) -> O + Send + Sync + 'static,
    ) -> Result<PushConsumer>
    where
        S: Into<Subscription>,
        O: Into<Outcome>,
    {
        let (consumer, started) = begin(client, settings, subscriptions, listener)?;
        started.await?;
        Ok(consumer)
    }

    /// The consumer group.
    pub fn group(&self) -> &str {
        &self.0.settings.setup.group
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

    /// Pauses: no more pulls and no more calls of the listener, until [`PushConsumer::resume`].
    pub fn suspend(&self) -> Pending<()> {
        self.call(ConsumerCall::Suspend, nothing)
    }

    /// Goes on after [`PushConsumer::suspend`].
    pub fn resume(&self) -> Pending<()> {
        self.call(ConsumerCall::Resume, nothing)
    }

    /// The queues that this member of the group has now.
    pub fn assignment(&self) -> Pending<Arc<[MessageQueue]>> {
        self.call(ConsumerCall::Assignment, |answer| match answer {
            Answer::Queues(queues) => Some(queues),
            _ => None,
        })
    }

    /// Stops: nothing more is pulled; batches that the listener has or is about to get are
    /// waited for, `await_termination_ms` at most; offsets are stored and the queues left to
    /// others. A second time does nothing.
    ///
    /// # Errors
    /// The first offset that could not be stored, or of which nobody said in time that it is:
    /// what was consumed since the last one comes again. It has stopped all the same.
    pub fn shutdown(&self) -> Result<()> {
        self.shutdown_async().wait()
    }

    /// As [`PushConsumer::shutdown`], as a future.
    pub fn shutdown_async(&self) -> Pending<()> {
        let inner = self.0.clone();
        Pending::steps(async move { inner.stop().await }, nothing)
    }

    fn call<T>(&self, call: ConsumerCall, turn: fn(Answer) -> Option<T>) -> Pending<T> {
        let command = Command::Consumer {
            ticket: Ticket(0),
            consumer: self.0.consumer,
            call,
        };
        Pending::call(self.0.instance.call(command), turn)
    }
}

impl Inner {
    async fn stop(&self) -> Result<Answer> {
        if self.stopped.swap(true, Ordering::SeqCst) {
            return Ok(Answer::Nothing);
        }
        let ended = self.instance.call(self.stopping()).await;
        self.ended.store(true, Ordering::SeqCst);
        self.instance.post(Post::Sink(self.consumer, None));
        ended
    }

    fn stopping(&self) -> Command {
        Command::StopConsumer {
            ticket: Ticket(0),
            consumer: self.consumer,
            wait_ms: self.settings.await_termination_ms,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.ended.get_mut() {
            self.instance.abandon(self.stopping());
        }
        // Nothing is delivered any more; the threads end when they are done.
        self.instance.post(Post::Sink(self.consumer, None));
    }
}

/// Hands over a consumer with its listener's threads; its start goes on.
fn begin<S, O>(
    client: &ClientSettings,
    settings: PushConsumerSettings,
    subscriptions: impl IntoIterator<Item = S>,
    listener: impl Fn(&Batch) -> O + Send + Sync + 'static,
) -> Result<(PushConsumer, super::net::Call)>
where
    S: Into<Subscription>,
    O: Into<Outcome>,
{
    settings.check()?;
    let subscriptions = subscriptions_of(subscriptions);
    if subscriptions.is_empty() {
        let what = "a push consumer needs a topic to listen to";
        return Err(Error::setting("subscriptions", what));
    }
    let settings = Arc::new(settings);
    let instance = Instance::of(client)?;
    let consumer = instance.consumer_id();
    let poster = instance.poster();
    let name = format!("ringmq-listener-{}", consumer.0);
    let of_listener = settings.clone();
    let workers = Workers::new(
        &name,
        settings.consume_threads,
        move |delivery: Delivery| {
            let (consumer, number) = (delivery.consumer, delivery.delivery);
            let outcome = consume(&of_listener, &listener, delivery);
            let command = Command::Consumed {
                consumer,
                delivery: number,
                outcome,
            };
            let _ = poster.post(Post::Command(command, Waiter::NOBODY));
        },
    );
    instance.post(Post::Sink(
        consumer,
        Some(Box::new(move |delivery| {
            let refused = |_| "no thread for the listener can be started".to_owned();
            workers.submit(delivery).map_err(refused)
        })),
    ));
    let started = instance.call(Command::StartPushConsumer {
        ticket: Ticket(0),
        consumer,
        settings: settings.clone(),
        subscriptions,
    });
    let inner = Inner {
        instance,
        consumer,
        settings,
        stopped: AtomicBool::new(false),
        ended: AtomicBool::new(false),
    };
    Ok((PushConsumer(Arc::new(inner)), started))
}

/// Topics and filters, as the core takes them.
pub(super) fn subscriptions_of<S: Into<Subscription>>(
    subscriptions: impl IntoIterator<Item = S>,
) -> Vec<(Arc<str>, Filter)> {
    let parts = |subscription: S| {
        let Subscription { topic, filter } = subscription.into();
        (topic, filter)
    };
    subscriptions.into_iter().map(parts).collect()
}

/// Calls the hooks and the listener; what any of them panics with is a failure of the batch.
fn consume<O: Into<Outcome>>(
    settings: &PushConsumerSettings,
    listener: &impl Fn(&Batch) -> O,
    delivery: Delivery,
) -> Outcome {
    let hooked = AssertUnwindSafe(|| consume_hooked(settings, listener, delivery));
    catch_unwind(hooked).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        tracing::error!(panic = text, "a consume hook panicked");
        Outcome::Failed {
            what: format!("a consume hook panicked: {text}"),
        }
    })
}

fn consume_hooked<O: Into<Outcome>>(
    settings: &PushConsumerSettings,
    listener: &impl Fn(&Batch) -> O,
    delivery: Delivery,
) -> Outcome {
    let mut batch = Batch {
        queue: delivery.queue,
        messages: delivery.messages,
    };
    for message in &mut batch.messages {
        if let Err(fault) = message.unpack() {
            let (queue, offset) = (&message.queue, message.queue_offset);
            tracing::error!(%queue, offset, %fault, "a message cannot be read");
            return Outcome::Failed {
                what: fault.to_string(),
            };
        }
    }
    let hooks = &settings.consume_hooks;
    let context = || ConsumeContext {
        group: &settings.setup.group,
        queue: &batch.queue,
        messages: &batch.messages,
        now_ms: wall_ms(),
    };
    hooks
        .iter()
        .for_each(|hook| hook.before_consume(&context()));
    let called = catch_unwind(AssertUnwindSafe(|| listener(&batch).into()));
    let outcome = called.unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        tracing::error!(queue = %batch.queue, panic = text, "a listener panicked");
        Outcome::Failed {
            what: format!("the listener panicked: {text}"),
        }
    });
    let success = matches!(
        outcome,
        Outcome::Success { .. } | Outcome::SuccessUncommitted | Outcome::Commit
    );
    for hook in hooks.iter() {
        hook.after_consume(&context(), success);
    }
    outcome
}

/// Wall clock, ms since 1970.
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::core::io::DeliveryId;

    fn settings() -> PushConsumerSettings {
        PushConsumerSettings::new("g")
    }

    fn delivery() -> Delivery {
        Delivery {
            consumer: ConsumerId(1),
            delivery: DeliveryId(1),
            queue: MessageQueue::new("t", "b", 0),
            messages: Vec::new(),
        }
    }

    #[test]
    fn what_a_listener_returns_becomes_an_outcome() {
        let success = Outcome::Success { ack_index: None };
        assert_eq!(consume(&settings(), &|_: &Batch| (), delivery()), success);
        assert_eq!(
            consume(&settings(), &|_: &Batch| Ok::<(), String>(()), delivery()),
            success
        );
        let failed = consume(&settings(), &|_: &Batch| Err::<(), _>("no"), delivery());
        assert_eq!(
            failed,
            Outcome::Failed {
                what: "no".to_owned()
            }
        );
        let later = Outcome::ReconsumeLater { delay_level: 3 };
        assert_eq!(
            consume(&settings(), &|_: &Batch| later.clone(), delivery()),
            later
        );
    }

    #[test]
    fn a_panic_in_a_listener_is_a_failure_with_its_words() {
        let listener = |batch: &Batch| -> () { panic!("bad {}", batch.queue) };
        let Outcome::Failed { what } = consume(&settings(), &listener, delivery()) else {
            panic!("no failure");
        };
        assert_eq!(what, "the listener panicked: bad t/b/0");
    }

    #[test]
    fn a_panic_in_a_hook_is_a_failure_too() {
        struct Broken;
        impl crate::client::hooks::ConsumeHook for Broken {
            fn before_consume(&self, _: &ConsumeContext<'_>) {
                panic!("bad hook");
            }
        }
        let mut settings = settings();
        settings.consume_hooks = crate::client::hooks::Hooks(vec![Arc::new(Broken) as _]);
        let Outcome::Failed { what } = consume(&settings, &|_: &Batch| (), delivery()) else {
            panic!("no failure");
        };
        assert_eq!(what, "a consume hook panicked: bad hook");
    }

    #[test]
    fn a_consumer_without_a_topic_is_refused_before_anything_is_started() {
        let client = ClientSettings::with_name_servers("127.0.0.1:1");
        let settings = PushConsumerSettings::new("g");
        let none: [(&str, &str); 0] = [];
        let error = PushConsumer::start(&client, settings, none, |_| ())
            .err()
            .unwrap();
        assert!(error.to_string().contains("subscriptions"), "{error}");
    }
}
