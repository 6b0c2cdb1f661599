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

use super::BrokerShard;
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
}

impl Target {
    /// Calls the nameserver. With `only_if_reachable`, does not try one that did
    /// not answer last time, also when that is found out while waiting for it.
    async fn call(
        &self,
        request: Request,
        timeout: Duration,
        only_if_reachable: bool,
    ) -> Result<Response, RemoteError> {
        let mut remote = loop {
            if only_if_reachable && !self.reachable.get() {
                return Err(RemoteError::Timeout(Duration::ZERO));
            }
            if let Some(remote) = self.remote.borrow_mut().take() {
                break remote;
            }
            self.free.wait().await;
        };
        let answer = remote.call(request, timeout).await;
        let was_reachable = self.reachable.replace(answer.is_ok());
        match &answer {
            Err(error) if was_reachable => {
                tracing::warn!(nameserver = remote.address(), "{error}");
            }
            Ok(_) if !was_reachable => {
                tracing::info!(nameserver = remote.address(), "reached");
            }
            _ => {}
        }
        *self.remote.borrow_mut() = Some(remote);
        self.free.notify();
        answer
    }
}

impl Registrar {
    /// For the nameservers at these addresses.
    pub fn new(addresses: &[String], identity: Identity) -> Registrar {
        let target = |address: &String| Target {
            remote: RefCell::new(Some(Remote::new(address))),
            free: LocalEvent::default(),
            reachable: Cell::new(true),
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

impl BrokerShard {
    /// Tells all shards of made or changed topics, writes the table, and registers
    /// the topics; returns when a route asked for now shows them.
    pub(super) async fn publish_topics(&self, topics: &[Arc<TopicConfig>]) {
        let Some(control) = &self.control else {
            return;
        };
        for topic in topics {
            self.broadcast(|| super::Message::Topic(topic.clone()));
        }
        self.save_tables().await;
        let registrar = &control.registrar;
        let version = control.state.borrow().topics.version();
        let table: BTreeMap<_, _> = topics.iter().map(|topic| registrar.masked(topic)).collect();
        self.with_each_target(move |me, index| {
            let table = table.clone();
            async move { me.register_some(index, version, table).await }
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
            spawn(async move {
                work.await;
                left.0.set(left.0.get() - 1);
                left.1.notify();
            });
        }
        while left.0.get() > 0 {
            left.1.wait().await;
        }
    }

    async fn register_some(
        &self,
        index: usize,
        version: DataVersion,
        table: BTreeMap<String, TopicConfig>,
    ) {
        let Some(control) = self.control.as_ref().filter(|c| !c.registrar.closed.get()) else {
            return;
        };
        let target = &control.registrar.targets[index];
        let request = control.registrar.registration(version, table);
        match target.call(request, SHORT_TIMEOUT, true).await {
            // It does not know this broker: a part of the table is no use to it.
            Ok(answer) if answer.code != response::SUCCESS => self.register_whole(index).await,
            _ => {}
        }
    }

    async fn register_whole(&self, index: usize) {
        let Some(control) = self.control.as_ref().filter(|c| !c.registrar.closed.get()) else {
            return;
        };
        let registrar = &control.registrar;
        let target = &registrar.targets[index];
        let (version, topics) = {
            let state = control.state.borrow();
            let topics: Vec<_> = state.topics.iter().map(|t| registrar.masked(t)).collect();
            (state.topics.version(), topics)
        };
        for part in topics.chunks(TOPICS_PER_REGISTRATION) {
            let request = registrar.registration(version, part.iter().cloned().collect());
            match target.call(request, LONG_TIMEOUT, false).await {
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
            sleep(ASK_INTERVAL).await;
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

    /// Asks a nameserver whether it knows this broker as it is, and tells it if not.
    async fn ask_if_known(&self, index: usize) {
        let Some(control) = &self.control else {
            return;
        };
        let target = &control.registrar.targets[index];
        let version = control.state.borrow().topics.version();
        let body = serde_json::to_vec(&version).unwrap_or_default();
        let ask = control.registrar.named(request::QUERY_DATA_VERSION);
        let answer = target.call(ask.with_body(body), SHORT_TIMEOUT, false).await;
        if answer.is_ok_and(|answer| answer.get("changed") != Some("false")) {
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
                let _ = target.call(request, SHORT_TIMEOUT, true).await;
            }
        })
        .await;
    }
}
