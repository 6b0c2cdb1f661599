//! Registration with the nameservers (`BrokerOuterAPI`).
//!
//! The whole table goes to every nameserver at start and once a period; a topic
//! that was just made goes at once, alone, and the send that made it is answered
//! after that. In between each nameserver is asked whether it still knows this
//! broker: one that was restarted is told everything within seconds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{BrokerShard, now_ms};
use crate::shard::{LocalEvent, Remote, RemoteError, sleep, spawn};
use crate::wire::body::register::RegisterBrokerBody;
use crate::wire::body::topic::{DataVersion, TopicConfig};
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};

/// Longest wait for a nameserver when a client waits for the answer.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for the registration of a whole table (`registerBrokerTimeoutMills`).
const LONG_TIMEOUT: Duration = Duration::from_secs(24);

/// Time between two questions whether a nameserver still knows this broker.
const ASK_INTERVAL: Duration = Duration::from_secs(5);

/// The same while a nameserver does not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Topics in one registration: about 250 bytes each, so that the frame stays
/// well below its limit of 16 MiB.
const TOPICS_PER_REGISTRATION: usize = 30_000;

/// The nameservers of a broker, as its control shard knows them.
pub(super) struct Registrar {
    targets: Vec<Target>,
    identity: Identity,
    /// The broker has taken itself off: nothing may bring it back.
    closed: Cell<bool>,
}

/// How the broker names itself.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub cluster: String,
    pub name: String,
    pub address: String,
    pub ha_address: String,
    pub permission: i32,
}

struct Target {
    /// Taken while a call is under way.
    remote: RefCell<Option<Remote>>,
    free: LocalEvent,
    /// Whether the last call worked. One that does not is left to the period, so
    /// that it does not hold up clients.
    reachable: Cell<bool>,
    /// Version of the table when it was registered last, and the version it went under.
    told: Cell<Option<(DataVersion, DataVersion)>>,
    /// A call was not answered, or the last registration was one of an earlier process: the
    /// nameserver may lack what was in it.
    behind: Cell<bool>,
}

/// The connection to a nameserver, for one caller at a time. What a registration
/// holds is read while it is held, so that an older state never follows a newer.
struct Held<'a> {
    target: &'a Target,
    remote: Option<Remote>,
}

impl Held<'_> {
    async fn call(&mut self, request: Request, timeout: Duration) -> Result<Response, RemoteError> {
        let Some(remote) = &mut self.remote else {
            return Err(RemoteError::Timeout(Duration::ZERO));
        };
        let answer = remote.call(request, timeout).await;
        if answer.is_err() {
            // It must also know the next connection before the last is closed.
            self.target.behind.set(true);
        }
        let was_reachable = self.target.reachable.replace(answer.is_ok());
        match &answer {
            Err(error) if was_reachable => {
                tracing::warn!(nameserver = remote.address(), "{error}");
            }
            Ok(_) if !was_reachable => {
                tracing::info!(nameserver = remote.address(), "reached");
            }
            _ => {}
        }
        answer
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.target.remote.borrow_mut() = self.remote.take();
        self.target.free.notify();
    }
}

impl Target {
    /// Waits until the connection is free.
    async fn hold(&self) -> Held<'_> {
        loop {
            if let Some(remote) = self.remote.borrow_mut().take() {
                return Held {
                    target: self,
                    remote: Some(remote),
                };
            }
            self.free.wait().await;
        }
    }

    /// Like [`Target::hold`], but nothing if the nameserver did not answer the last
    /// call, also when that is found out while waiting.
    async fn hold_if_reachable(&self) -> Option<Held<'_>> {
        if !self.reachable.get() {
            return None;
        }
        let held = self.hold().await;
        self.reachable.get().then_some(held)
    }
}

impl Registrar {
    /// For the nameservers at these addresses.
    pub fn new(addresses: &[String], identity: Identity) -> Registrar {
        let target = |address: &String| Target {
            remote: RefCell::new(Some(Remote::new(address))),
            free: LocalEvent::default(),
            reachable: Cell::new(true),
            told: Cell::new(None),
            behind: Cell::new(true),
        };
        Registrar {
            targets: addresses.iter().map(target).collect(),
            identity,
            closed: Cell::new(false),
        }
    }

    fn registration(&self, version: DataVersion, topics: BTreeMap<String, TopicConfig>) -> Request {
        let body = RegisterBrokerBody::new(version, topics).encode();
        let crc = (crc32fast::hash(&body) & 0x7fff_ffff) as i32;
        self.named(request::REGISTER_BROKER)
            .with("haServerAddr", &self.identity.ha_address)
            .with("compressed", false)
            .with("bodyCrc32", crc)
            .with_body(body)
    }

    fn named(&self, code: i32) -> Request {
        Request::new(code)
            .with("brokerName", &self.identity.name)
            .with("brokerAddr", &self.identity.address)
            .with("clusterName", &self.identity.cluster)
            .with("brokerId", 0)
    }

    fn masked(&self, topic: &TopicConfig) -> (String, TopicConfig) {
        let mut topic = topic.clone();
        const READ_WRITE: i32 = 6;
        if self.identity.permission & READ_WRITE != READ_WRITE {
            topic.perm &= self.identity.permission;
        }
        (topic.topic_name.clone(), topic)
    }
}

impl super::ControlShard {
    /// The version of the table as a nameserver knows it.
    fn version_for(&self, target: &Target) -> DataVersion {
        let table = self.state.borrow().topics.version();
        match target.told.get() {
            Some((of, told)) if of == table => told,
            _ => table,
        }
    }

    /// The version of a registration. One with changes has another than the last, as a
    /// nameserver passes over what a version lists that it knows.
    fn register_as(&self, target: &Target, is_new: bool) -> DataVersion {
        let table = self.state.borrow().topics.version();
        let mut version = self.version_for(target);
        if is_new && target.told.get().is_none_or(|(_, told)| told == version) {
            version.next(now_ms());
        }
        target.told.set(Some((table, version)));
        version
    }
}

impl BrokerShard {
    /// Tells all shards of made or changed topics, writes the table, and registers
    /// the topics as they then are; returns when a route asked for now shows them.
    pub(super) async fn publish_topics(&self, topics: &[Arc<TopicConfig>]) {
        if self.control.is_none() {
            return;
        }
        for topic in topics {
            self.broadcast(|| super::Message::Topic(topic.clone()));
        }
        self.save_tables().await;
        let names = topics.iter().map(|topic| topic.topic_name.clone());
        let names: Rc<[String]> = names.collect();
        self.with_each_target(move |me, index| {
            let names = names.clone();
            async move { me.register_some(index, &names).await }
        })
        .await;
    }

    /// Runs `task` for every nameserver at once, and waits for all of them.
    async fn with_each_target<F: Future<Output = ()> + 'static>(
        &self,
        task: impl Fn(Rc<BrokerShard>, usize) -> F,
    ) {
        let count = self
            .control
            .as_ref()
            .map_or(0, |control| control.registrar.targets.len());
        let left = Rc::new((Cell::new(count), LocalEvent::default()));
        for index in 0..count {
            let work = task(self.rc(), index);
            let left = left.clone();
            spawn("work with a nameserver", async move {
                work.await;
                left.0.set(left.0.get() - 1);
                left.1.notify();
            });
        }
        while left.0.get() > 0 {
            left.1.wait().await;
        }
    }

    async fn register_some(&self, index: usize, names: &[String]) {
        let Some(control) = &self.control else {
            return;
        };
        let registrar = &control.registrar;
        let target = &registrar.targets[index];
        let Some(mut held) = target.hold_if_reachable().await else {
            target.behind.set(true);
            return;
        };
        if registrar.closed.get() {
            return;
        }
        let version = control.register_as(target, true);
        let table: BTreeMap<_, _> = {
            let state = control.state.borrow();
            let topics = names.iter().filter_map(|name| state.topics.get(name));
            topics.map(|topic| registrar.masked(topic)).collect()
        };
        if table.is_empty() {
            return;
        }
        let request = registrar.registration(version, table);
        let answer = held.call(request, SHORT_TIMEOUT).await;
        drop(held);
        match answer {
            Ok(answer) if answer.code == response::SUCCESS => {}
            // It does not know this broker: a part of the table is no use to it.
            Ok(_) => self.register_whole(index).await,
            Err(_) => {}
        }
    }

    async fn register_whole(&self, index: usize) {
        let Some(control) = &self.control else {
            return;
        };
        let registrar = &control.registrar;
        let target = &registrar.targets[index];
        let mut held = target.hold().await;
        if registrar.closed.get() {
            return;
        }
        let mut is_new = target.behind.replace(true);
        let topics: Vec<_> = {
            let state = control.state.borrow();
            state.topics.iter().map(|t| registrar.masked(t)).collect()
        };
        for part in topics.chunks(TOPICS_PER_REGISTRATION) {
            let version = control.register_as(target, std::mem::replace(&mut is_new, true));
            let request = registrar.registration(version, part.iter().cloned().collect());
            match held.call(request, LONG_TIMEOUT).await {
                Ok(answer) if answer.code != response::SUCCESS => {
                    tracing::warn!(
                        code = answer.code,
                        remark = answer.remark.as_deref().unwrap_or(""),
                        "a nameserver refused the registration"
                    );
                    return;
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
        target.behind.set(false);
        if let Some(remote) = &mut held.remote {
            remote.close_unanswered();
        }
    }

    /// Registers the whole table with all nameservers.
    pub(super) async fn register_everywhere(&self) {
        self.with_each_target(|me, index| async move { me.register_whole(index).await })
            .await;
    }

    /// Keeps the nameservers told until the broker stops.
    pub(super) async fn keep_registered(&self) {
        let mut registered = Instant::now();
        loop {
            sleep(self.until_next_question()).await;
            if self.stopping.get() {
                return;
            }
            let period = self.settings.borrow().register_name_server_period_ms;
            if registered.elapsed() >= Duration::from_millis(period) {
                self.register_everywhere().await;
                registered = Instant::now();
                continue;
            }
            self.with_each_target(|me, index| async move { me.ask_if_known(index).await })
                .await;
        }
    }

    fn until_next_question(&self) -> Duration {
        let mut targets = self.control.iter().flat_map(|c| &c.registrar.targets);
        if targets.all(|target| target.reachable.get()) {
            ASK_INTERVAL
        } else {
            ASK_AGAIN
        }
    }

    /// Asks a nameserver whether it knows this broker as it is, and tells it if not.
    async fn ask_if_known(&self, index: usize) {
        let Some(control) = &self.control else {
            return;
        };
        let target = &control.registrar.targets[index];
        let mut held = target.hold().await;
        let version = control.version_for(target);
        let body = serde_json::to_vec(&version).unwrap_or_default();
        let ask = control.registrar.named(request::QUERY_DATA_VERSION);
        let answer = held.call(ask.with_body(body), SHORT_TIMEOUT).await;
        drop(held);
        let behind = target.behind.get();
        if answer.is_ok_and(|answer| behind || answer.get("changed") != Some("false")) {
            self.register_whole(index).await;
        }
    }

    /// Takes the broker off all nameservers, for good.
    pub(super) async fn unregister(&self) {
        let Some(control) = &self.control else {
            return;
        };
        control.registrar.closed.set(true);
        self.with_each_target(|me, index| async move {
            if let Some(control) = &me.control {
                let registrar = &control.registrar;
                let request = registrar.named(request::UNREGISTER_BROKER);
                let target = &registrar.targets[index];
                if let Some(mut held) = target.hold_if_reachable().await {
                    let _ = held.call(request, SHORT_TIMEOUT).await;
                }
            }
        })
        .await;
    }
}
