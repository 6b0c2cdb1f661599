//! One shard of a broker: its store opened, its state built, its tasks and listener
//! started. Runs on the shard's thread.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flume::{Receiver, Sender};

use super::acks::Acks;
use super::budgets::store_settings;
use super::control::Control;
use super::control::offsets::{OffsetSnapshot, OffsetTable};
use super::control_requests::control_settings;
use super::delay::DelayQueues;
use super::long_poll::TICK_MS;
use super::members::Member;
use super::message::Message;
use super::persistence::TableFiles;
use super::placement::Placement;
use super::process::Process;
use super::registration::{Identity, Registrar};
use super::reply::SendReplyConstants;
use super::siblings::Siblings;
use super::stop::StopEnds;
use super::view::ControlView;
use super::{BrokerShard, ControlShard, Counters, now_ms};
use crate::config::RouteMode;
use crate::shard::{
    ConnLimits, LaneEnds, LocalEvent, Shard, ShardId, begin_turn_anew, bind, bind_alone, receive,
    serve, sleep, spawn,
};
use crate::store::{RecoveryReport, StoreHandle, run_background};
use crate::wire::body::topic::{DataVersion, TopicConfig};
use crate::wire::properties::{self, name};

/// Bytes of answers that wait for a client to read before it is not read any more.
const OUT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Time that a frame may take to arrive.
const FRAME_TIME: Duration = Duration::from_secs(60);

/// Longest time that a start waits for nameservers.
const FIRST_REGISTRATION: Duration = Duration::from_secs(3);

/// What a shard tells when its store is open.
pub(super) struct Opened {
    /// The shard among those of its broker.
    pub shard: ShardId,
    /// Queues that its log has.
    pub queues: Vec<(String, i32)>,
    /// How the store was found.
    pub report: RecoveryReport,
}

/// What a shard waits for, in this order. It ends where one is dropped instead.
pub(super) struct Orders {
    /// The stores of all brokers of the process are open: listen.
    pub listen: Receiver<()>,
    /// All of them listen: serve.
    pub go: Receiver<Go>,
}

/// What a shard needs to serve.
pub(super) struct Go {
    pub placement: Arc<Placement>,
    pub topics: Vec<Arc<TopicConfig>>,
    pub offsets: OffsetSnapshot,
    pub delays: BTreeMap<i32, i64>,
    pub control: Option<ControlParts>,
}

/// What the control shard needs beside that.
pub(super) struct ControlParts {
    pub state: Control,
    pub offsets: Vec<OffsetSnapshot>,
    pub offsets_version: DataVersion,
    pub delays: BTreeMap<i32, i64>,
    pub delays_version: DataVersion,
    pub siblings: Siblings,
    pub stop: StopEnds,
}

/// What all shards of a broker have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub process: Arc<Process>,
    pub member: Arc<Member>,
    /// The broker did not stop cleanly.
    pub crashed: bool,
}

impl Common {
    /// The log of a shard of this broker, among those of the process.
    pub fn log(&self, shard: ShardId) -> ShardId {
        ShardId(self.member.logs.start + shard.0)
    }
}

/// Opens the store of a shard, listens and serves as it is told to, until the process
/// ends. Says on `done` when it listens, or why it cannot, and when it serves.
pub(super) async fn run_shard(
    id: ShardId,
    common: Common,
    lanes: LaneEnds<Message>,
    opened: &Sender<Result<Opened, String>>,
    orders: Orders,
    done: &Sender<Result<(), String>>,
) {
    let (process, settings) = (&common.process, &common.member.settings);
    // The thread is this broker's alone: its log lines, at every level, say which of
    // several it is.
    let span = match settings.route_mode {
        RouteMode::Single => tracing::Span::none(),
        RouteMode::PerShard => tracing::error_span!("broker", name = settings.broker_name),
    };
    let _named = span.enter();
    let log = common.log(id);
    let opened_as = StoreHandle::open(
        &process.layout.shard_dir(log),
        log,
        store_settings(
            settings,
            process.memory_bytes,
            process.shards,
            common.crashed,
            process.flush,
        ),
    );
    let store = match opened_as {
        Ok((store, report)) => {
            let queues = store.with(|store| store.queue_names());
            let _ = opened.send(Ok(Opened {
                shard: id,
                queues,
                report,
            }));
            store
        }
        Err(error) => {
            let _ = opened.send(Err(format!("shard {log}: {error}")));
            return;
        }
    };
    begin_turn_anew();
    if receive(&orders.listen).await.is_err() {
        return;
    }
    let listener = match common.member.shards() {
        1 => bind_alone(common.member.listen).await,
        _ => bind(common.member.listen),
    };
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            let _ = done.send(Err(error.to_string()));
            return;
        }
    };
    let _ = done.send(Ok(()));
    let Ok(go) = receive(&orders.go).await else {
        return;
    };
    let limits = ConnLimits {
        connections_max: settings.connections_max as usize,
        idle: Duration::from_secs(settings.server_channel_max_idle_time_s),
        frame_time: FRAME_TIME,
        out_bytes_max: OUT_BYTES_MAX,
    };
    let shard = Shard::new(id, log, &lanes, limits, process.open.clone());
    let (broker, stop) = build(&shard, store.clone(), &common, go);
    run_background(&store);
    spawn_tasks(&broker);
    lanes.receive(&broker);
    if let Some(stop) = stop {
        let control = broker.clone();
        spawn(
            "the stop",
            async move { control.stop_when_asked(stop).await },
        );
    }
    serve(&shard, &broker, listener);
    if broker.control.is_some() {
        register_first(&broker).await;
    }
    let _ = done.send(Ok(()));
    // The tasks of the shard run until the process ends.
    std::future::pending::<()>().await;
}

/// Registers with the nameservers, and waits for it a moment: a broker that says it
/// is ready is mostly in the routes. One that does not answer is told later.
async fn register_first(broker: &Rc<BrokerShard>) {
    let done = Rc::new(LocalEvent::default());
    let (me, told) = (broker.clone(), done.clone());
    let wait = done.wait();
    spawn("registration", async move {
        me.register_everywhere().await;
        told.notify();
        me.keep_registered().await;
    });
    futures_lite::future::or(wait, sleep(FIRST_REGISTRATION)).await;
}

fn build(
    shard: &Rc<Shard<Message>>,
    store: StoreHandle,
    common: &Common,
    go: Go,
) -> (Rc<BrokerShard>, Option<StopEnds>) {
    let settings = &common.member.settings;
    let store_host = common.member.store_host;
    let mut own_properties = Vec::new();
    let trace = if settings.trace_on { "true" } else { "false" };
    for (name, value) in [
        (name::MSG_REGION, settings.region_id.as_str()),
        (name::TRACE_ON, trace),
        (name::CLUSTER, &settings.broker_cluster_name),
    ] {
        properties::push(&mut own_properties, name, value.as_bytes());
    }
    let mut view = ControlView::new(go.placement);
    for topic in go.topics {
        view.set_topic(topic);
    }
    let mut offsets = OffsetTable::default();
    offsets.restore(&go.offsets);
    let mut stop = None;
    let control = go.control.map(|parts| {
        for change in parts.state.all_groups() {
            view.set_group(change);
        }
        stop = Some(parts.stop);
        let address = store_host.to_string();
        let ha = SocketAddr::new(store_host.ip(), settings.listen_port.wrapping_add(1));
        let identity = Identity {
            cluster: settings.broker_cluster_name.clone(),
            name: settings.broker_name.clone(),
            address: address.clone(),
            ha_address: ha.to_string(),
            permission: settings.broker_permission as i32,
        };
        ControlShard {
            state: parts.state.into(),
            settings: control_settings(settings, &address).into(),
            registrar: Registrar::new(&settings.namesrv_addr, identity),
            tables: TableFiles::new(
                common.member.layout.clone(),
                parts.offsets,
                parts.offsets_version,
                parts.delays,
                parts.delays_version,
            ),
            siblings: parts.siblings,
        }
    });
    let broker = Rc::new_cyclic(|me| BrokerShard {
        me: me.clone(),
        shard: shard.clone(),
        store,
        settings: settings.clone().into(),
        constants: SendReplyConstants::new(
            settings.region_id.clone(),
            settings.trace_on,
            store_host,
        ),
        store_host,
        disk: common.process.disk.clone(),
        retention: Default::default(),
        memory_bytes: common.process.memory_bytes,
        own_properties,
        view: view.into(),
        offsets: offsets.into(),
        polls: Default::default(),
        acks: Acks::default().into(),
        asks: Default::default(),
        scratch: Default::default(),
        properties: Default::default(),
        physical: Default::default(),
        delay: DelayQueues::new(go.delays),
        turn_ms: Default::default(),
        arrivals: Default::default(),
        cold: 0.into(),
        forwarded: 0.into(),
        deferred: 0.into(),
        queries: 0.into(),
        unique: 0.into(),
        queue_turn: 0.into(),
        counters: Counters::default(),
        poll_event: LocalEvent::default(),
        room: LocalEvent::default(),
        stopping: false.into(),
        control,
    });
    (broker, stop)
}

fn spawn_tasks(broker: &Rc<BrokerShard>) {
    let me = broker.clone();
    spawn("acknowledgements", async move {
        loop {
            me.store.progress().wait().await;
            me.release_acks();
            me.wake_arrivals();
            me.room.notify();
        }
    });
    let me = broker.clone();
    spawn("waiting pulls", async move {
        loop {
            if me.polls.borrow().is_empty() {
                me.poll_event.wait().await;
            }
            sleep(Duration::from_millis(TICK_MS)).await;
            me.expire_polls();
        }
    });
    let me = broker.clone();
    spawn("acknowledgements that are late", async move {
        loop {
            sleep(Duration::from_millis(500)).await;
            me.expire_acks();
        }
    });
    spawn("delayed messages", broker.clone().deliver_delayed());
    spawn("room on the disk", broker.clone().watch_disk());
    spawn("retention", broker.clone().retain_messages());
    if broker.control.is_none() {
        return;
    }
    spawn(
        "other brokers of the process",
        broker.clone().follow_siblings(),
    );
    let me = broker.clone();
    spawn("groups and offsets", async move {
        // The views that the other shards know groups by.
        let groups = me.control.as_ref().map(|c| c.state.borrow().all_groups());
        me.peers().publish_groups(&groups.unwrap_or_default());
        me.save_tables().await;
        let mut seconds: u64 = 0;
        loop {
            sleep(Duration::from_secs(1)).await;
            if me.stopping.get() {
                return;
            }
            seconds += 1;
            me.save_tables().await;
            let settings = me.settings.borrow().clone();
            let every = |millis: u64| seconds % (millis / 1000).max(1) == 0;
            if every(settings.flush_consumer_offset_interval_ms) {
                me.save_offsets(false).await;
            }
            if every(settings.flush_delay_offset_interval_ms) {
                me.save_delays().await;
            }
            if every(10_000) {
                me.expire_clients();
                me.sample_figures().await;
            }
        }
    });
}

impl BrokerShard {
    async fn sample_figures(&self) {
        let Some(control) = &self.control else {
            return;
        };
        let stores = self.peers().store_info().await;
        let mut state = control.state.borrow_mut();
        state.runtime.sample(&stores, now_ms());
        state.runtime.disk = self.disk.disk();
    }
}
