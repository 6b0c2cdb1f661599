//! One client instance, as other threads see it (`MQClientInstance`, `MQClientManager`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flume::r#async::SendFut;
use flume::{Receiver, RecvTimeoutError, Sender, TrySendError};
use futures_lite::future;

use super::clock;
use super::driver::{CallersTurn, Guarded, Local, Post, Shared, turn, turn_of_caller};
use super::executor::spawn_thread;
use super::lead::Lead;
use super::waiters::{Callback, How, Waiter};
use super::{address_server, tasks};
use crate::bell::Bell;
use crate::client::core::Core;
use crate::client::core::io::{Answer, Command, ConsumerId, Delivery, Input, ProducerId, Ticket};
use crate::client::core::producer::unique_key::UniqueKeys;
use crate::client::error::{Error, ErrorKind, Result};
use crate::client::in_flight::Room;
use crate::client::message::MessageQueue;
use crate::client::one_shot::{self, one_shot};
use crate::client::settings::{ClientSettings, NameServers};
use crate::config::address;

/// Posts that wait for the client's thread. Who posts more waits until it has taken some.
const INBOX_POSTS: usize = 65_536;

/// Time between two questions to an address server, as in Java.
const ADDRESS_SERVER_INTERVAL: Duration = Duration::from_secs(120);

/// Longest time that the end of the last handle leaves to what is on its way.
const STOP_WAIT_MS: u64 = 3_000;

/// Longest time that the end of an instance waits for its thread.
const THREAD_END_MAX: Duration = Duration::from_secs(5);

/// Where the deliveries of one consumer go: to its workers. Refused with a reason.
pub(crate) type Sink = Box<dyn Fn(Delivery) -> std::result::Result<(), String> + Send>;

/// The queues that topics can be sent to, kept up to date for selectors.
#[derive(Default)]
pub(crate) struct PublishTable(RwLock<HashMap<Arc<str>, Arc<[MessageQueue]>>>);

impl PublishTable {
    /// Topics that are kept. One more takes the place of any other, which is asked for again.
    const TOPICS_MAX: usize = 65_536;

    pub fn get(&self, topic: &str) -> Option<Arc<[MessageQueue]>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(topic).cloned()
    }

    pub fn set(&self, topic: Arc<str>, queues: Arc<[MessageQueue]>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if queues.is_empty() {
            table.remove(&topic);
            return;
        }
        if table.len() >= PublishTable::TOPICS_MAX && !table.contains_key(&topic) {
            let any = table.keys().next().cloned();
            any.map(|any| table.remove(&any));
        }
        table.insert(topic, queues);
    }
}

/// The way to the client's thread.
#[derive(Clone)]
pub(crate) struct Inbox {
    posts: Sender<Post>,
    /// Counted before a post is sent, so that nothing overtakes it.
    posted: Arc<AtomicU64>,
    /// Rung after a post was sent.
    bell: Arc<Bell>,
}

impl Inbox {
    /// Posts. Waits while the inbox is full. Given back once the client's thread has ended.
    pub fn post(&self, post: Post) -> std::result::Result<(), Post> {
        self.posted.fetch_add(1, Ordering::AcqRel);
        let sent = self.posts.send(post).map_err(|error| error.0);
        self.bell.ring();
        sent
    }

    /// Posts without waiting. Given back where the inbox is full, counted as posted.
    fn try_post(&self, post: Post) -> Option<Post> {
        self.posted.fetch_add(1, Ordering::AcqRel);
        let sent = self.posts.try_send(post);
        self.bell.ring();
        match sent {
            Ok(()) | Err(TrySendError::Disconnected(_)) => None,
            Err(TrySendError::Full(post)) => Some(post),
        }
    }

    /// Posts; what is left of it where the inbox is full.
    fn begin_post(&self, post: Post) -> Option<Unsent> {
        let full = self.try_post(post)?;
        Some(Unsent {
            sending: self.posts.clone().into_send_async(full),
            bell: self.bell.clone(),
        })
    }

    /// Has the client's thread look again how long it may wait.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// What wakes the client's thread.
    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

/// A client instance: a thread, its connections, and the producers and consumers that share
/// them. Ends when nobody holds it any more.
pub(crate) struct Instance {
    inbox: Inbox,
    driver: Arc<Guarded>,
    pub published: Arc<PublishTable>,
    /// Makes the ids of messages.
    pub keys: UniqueKeys,
    thread: Mutex<Option<JoinHandle<()>>>,
    numbers: AtomicU32,
    /// A producer or consumer was dropped that was not shut down: its end is waited for.
    abandoned: AtomicBool,
}

/// Which settings share an instance: those of one name, for the same nameservers.
type Key = (String, String, String);

static INSTANCES: Mutex<Option<HashMap<Key, Weak<Instance>>>> = Mutex::new(None);

impl Instance {
    /// The instance for these settings: the one that is there of the same `instance_name`,
    /// nameservers and unit, otherwise, or where none is named, a new one.
    ///
    /// # Errors
    /// Settings out of their bounds; no nameserver; no thread.
    pub fn of(settings: &ClientSettings) -> Result<Arc<Instance>> {
        settings.check()?;
        let settings = resolved(settings)?;
        let Some(name) = &settings.instance_name else {
            return Instance::start(with_own_name(settings));
        };
        let key = (
            format!("{:?}", settings.name_servers),
            name.clone(),
            settings.unit_name.clone().unwrap_or_default(),
        );
        let mut table = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
        let table = table.get_or_insert_default();
        if let Some(found) = table.get(&key).and_then(Weak::upgrade) {
            return Ok(found);
        }
        table.retain(|_, instance| instance.strong_count() > 0);
        let made = Instance::start(settings)?;
        table.insert(key, Arc::downgrade(&made));
        Ok(made)
    }

    fn start(settings: ClientSettings) -> Result<Arc<Instance>> {
        let (posts_in, posts) = flume::bounded(INBOX_POSTS);
        let bell = Bell::new().map_err(|error| thread_error(error.to_string()))?;
        let inbox = Inbox {
            posts: posts_in,
            posted: Arc::default(),
            bell: Arc::new(bell),
        };
        let published = Arc::<PublishTable>::default();
        let keys = unique_keys(&settings);
        let core = Core::new(settings.clone(), clock::now())?;
        let (table, posted) = (published.clone(), inbox.posted.clone());
        let driver = Guarded::new(core, &settings, inbox.clone(), table, posted);
        let own = driver.clone();
        let bell = inbox.bell.clone();
        let main = move || run(own, settings.name_servers, posts, bell);
        let thread = spawn_thread("ringmq-client", main).map_err(thread_error)?;
        Ok(Arc::new(Instance {
            inbox,
            driver,
            published,
            keys,
            thread: Mutex::new(Some(thread)),
            numbers: AtomicU32::new(1),
            abandoned: AtomicBool::new(false),
        }))
    }

    /// A number for a producer.
    pub fn producer_id(&self) -> ProducerId {
        ProducerId(self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a consumer.
    pub fn consumer_id(&self) -> ConsumerId {
        ConsumerId(self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Hands over a command; its end as a future. The command's ticket is set on the way.
    pub fn call(&self, command: Command) -> Call {
        self.call_in(command, None)
    }

    /// The same with the room that it takes until its end.
    pub fn call_in(&self, command: Command, room: Option<Room>) -> Call {
        let (answering, answer) = one_shot();
        let how = How::Answering(answering);
        let post = Post::Command(command, Waiter { how, room });
        let unsent = self.inbox.begin_post(post);
        let lead = None;
        Call {
            answer,
            unsent,
            lead,
        }
    }

    /// The same, on this thread if nothing is on its way: for sends. `waits`: [`Call::wait`] is
    /// called at once.
    pub fn call_now(&self, command: Command, room: Option<Room>, waits: bool) -> Call {
        let (answering, answer) = one_shot();
        let how = How::Answering(answering);
        let post = Post::Command(command, Waiter { how, room });
        let (unsent, lead) = match turn_of_caller(&self.driver, post, waits) {
            Ok(CallersTurn { wake, lead }) => {
                if wake {
                    self.driver.ring();
                }
                (None, lead)
            }
            Err(post) => (self.inbox.begin_post(post), None),
        };
        Call {
            answer,
            unsent,
            lead,
        }
    }

    /// Hands over a command; `callback` is called with its end, on a thread for callbacks.
    /// Waits while the inbox is full.
    pub fn call_with(&self, command: Command, room: Option<Room>, callback: Callback) {
        let how = How::Callback(callback);
        let post = Post::Command(command, Waiter { how, room });
        if let Err(Post::Command(_, waiter)) = self.inbox.post(post)
            && let How::Callback(callback) = waiter.how
        {
            callback(Err(ErrorKind::NotRunning.into()));
        }
    }

    /// Stops what was dropped without being shut down: the end of the instance waits for it.
    pub fn abandon(&self, stop: Command) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.post(Post::Command(stop, Waiter::NOBODY));
    }

    /// For those who must not keep the instance alive, as a listener's threads.
    pub fn poster(&self) -> Inbox {
        self.inbox.clone()
    }

    /// Hands over what nobody waits for the end of. Waits while the inbox is full.
    pub fn post(&self, post: Post) {
        let _ = self.inbox.post(post);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let shutdown = Command::Shutdown {
            ticket: Ticket(0),
            wait_ms: STOP_WAIT_MS,
        };
        let shutdown = Post::Command(shutdown, Waiter::NOBODY);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(thread) = thread else {
            return;
        };
        let own = thread.thread().id() == std::thread::current().id();
        let waits = *self.abandoned.get_mut() && !own;
        if !waits {
            // Everything is shut down, or the last handle was dropped by a hook, on the
            // client's own thread: it ends when it is done.
            if let (Some(shutdown), false) = (self.inbox.try_post(shutdown), own) {
                self.post(shutdown);
            }
            return;
        }
        self.post(shutdown);
        let until = Instant::now() + THREAD_END_MAX;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The end of a command, as a future.
pub(crate) struct Call {
    answer: one_shot::Answer<Result<Answer>>,
    /// Not handed over yet: the inbox was full.
    unsent: Option<Unsent>,
    /// Whoever waits reads the answer himself.
    lead: Option<Lead>,
}

struct Unsent {
    sending: SendFut<'static, Post>,
    bell: Arc<Bell>,
}

impl Call {
    /// Does not wait any more; the end, if it has come and was not taken.
    pub fn give_up(&mut self) -> Option<Result<Answer>> {
        self.answer.give_up()
    }

    /// Waits on this thread.
    pub fn wait(mut self) -> Result<Answer> {
        if let Some(lead) = self.lead.take() {
            lead.read_until(&self.answer);
        }
        future::block_on(self)
    }
}

impl Future for Call {
    type Output = Result<Answer>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<Answer>> {
        use std::pin::Pin;
        use std::task::{Poll, ready};
        // Who does not wait on his thread does not read.
        self.lead = None;
        if let Some(unsent) = &mut self.unsent {
            let polled = Pin::new(&mut unsent.sending).poll(cx);
            unsent.bell.ring();
            let sent = ready!(polled);
            self.unsent = None;
            if sent.is_err() {
                return Poll::Ready(Err(ErrorKind::NotRunning.into()));
            }
        }
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|| Err(ErrorKind::NotRunning.into())))
    }
}

fn thread_error(why: String) -> Error {
    ErrorKind::Thread { why }.into()
}

/// The settings with what they leave to the environment.
fn resolved(settings: &ClientSettings) -> Result<ClientSettings> {
    let mut settings = settings.clone();
    if settings.name_servers == NameServers::Environment {
        let text = std::env::var("NAMESRV_ADDR").unwrap_or_default();
        let addresses = NameServers::parse(&text);
        if addresses.is_empty() {
            return Err(ErrorKind::NoNameServer.into());
        }
        settings.name_servers = NameServers::List(addresses);
        settings.check()?;
    }
    if settings.client_ip.is_none() {
        let found = address::interfaces();
        let own = address::choose(address::Exposure::Open, None, None, &found);
        settings.client_ip = Some(own.advertised);
    }
    Ok(settings)
}

/// An instance of its own has a name of its own: its members would share queues otherwise.
fn with_own_name(mut settings: ClientSettings) -> ClientSettings {
    static NAMED: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos() as u64);
    let number = u64::from(NAMED.fetch_add(1, Ordering::Relaxed));
    let name = format!("{}#{}", std::process::id(), nanos.wrapping_add(number));
    settings.instance_name = Some(name);
    settings
}

/// Ids that no other instance makes, in this process or in another one.
fn unique_keys(settings: &ClientSettings) -> UniqueKeys {
    static INSTANCES: AtomicU32 = AtomicU32::new(0);
    // Where the address is not known, others may have the same process id: the time tells apart.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let start = since.map_or(0, |since| since.as_millis() as u32);
    let number = start.wrapping_add(
        INSTANCES
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9),
    );
    let ip = settings
        .client_ip
        .unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
    UniqueKeys::new(ip, std::process::id(), number)
}

/// What runs on the client's thread.
async fn run(
    driver: Arc<Guarded>,
    name_servers: NameServers,
    posts: Receiver<Post>,
    bell: Arc<Bell>,
) {
    // Whoever waits hears of the end, whatever it is.
    let _end = EndOfDriver(driver.clone());
    let shared = Local::new(driver);
    let _asking = match name_servers {
        // Commands wait for the first answer.
        NameServers::AddressServer(url) => ask_address_server(&shared, url).await,
        _ => None,
    };
    tasks::serve(shared, posts, bell).await;
}

struct EndOfDriver(Arc<Guarded>);

impl Drop for EndOfDriver {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Has an address server asked again and again, on a thread of its own, until what is returned
/// is dropped. Comes back with the first answer.
async fn ask_address_server(shared: &Shared, url: String) -> Option<Sender<()>> {
    let inbox = shared.lock().inbox();
    let (first_in, first) = flume::bounded(1);
    let (asking, over) = flume::bounded::<()>(1);
    let thread = std::thread::Builder::new()
        .name("ringmq-address".to_owned())
        .spawn(move || {
            let _ = first_in.send(fetched(&url));
            while let Err(RecvTimeoutError::Timeout) = over.recv_timeout(ADDRESS_SERVER_INTERVAL) {
                if let Some(command) = fetched(&url) {
                    let _ = inbox.post(Post::Command(command, Waiter::NOBODY));
                }
            }
        });
    if let Err(error) = thread {
        tracing::warn!(why = %error, "nameservers are not known");
        return None;
    }
    if let Ok(Some(command)) = first.recv_async().await {
        turn(shared, |driver, now| {
            driver.input(now, Input::Command(command))
        });
    }
    Some(asking)
}

fn fetched(url: &str) -> Option<Command> {
    match address_server::fetch(url) {
        Ok(text) => Some(Command::NameServers(NameServers::parse(&text))),
        Err(why) => {
            tracing::warn!(why, "nameservers are not known anew");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_instance_waits_only_for_what_was_not_shut_down() {
        for abandons in [false, true] {
            let settings = ClientSettings::with_name_servers("127.0.0.1:1");
            let instance = Instance::of(&settings).unwrap();
            if abandons {
                let stop = Command::StopProducer {
                    ticket: Ticket(0),
                    producer: instance.producer_id(),
                    wait_ms: 0,
                };
                instance.abandon(stop);
            }
            let driver = instance.driver.clone();
            // The client's thread does not get far meanwhile.
            let held = driver.lock();
            let began = Instant::now();
            let dropped = std::thread::spawn(move || drop(instance));
            while began.elapsed() < Duration::from_millis(500) && !dropped.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(dropped.is_finished(), !abandons);
            drop(held);
            dropped.join().unwrap();
        }
    }
}
