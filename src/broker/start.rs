//! Start and stop of the broker: stores opened, shards running, ports listening.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use flume::{Receiver, Sender};

use super::acks::Acks;
use super::budgets::store_settings;
use super::control::Control;
use super::control::offsets::{OffsetSnapshot, OffsetTable};
use super::control_requests::control_settings;
use super::delay::DelayQueues;
use super::disk::DiskGauge;
use super::flush_choice::{FlushChoice, choose};
use super::long_poll::TICK_MS;
use super::message::{Answer, Ask, Message};
use super::persistence::{DELAYS, GROUPS, OFFSETS, TOPICS, TableFiles, load};
use super::placement::Placement;
use super::registration::{Identity, Registrar};
use super::reply::SendReplyConstants;
use super::view::ControlView;
use super::{BrokerShard, ControlShard, Counters, now_ms};
use crate::config::Settings;
use crate::probe::memory_bytes;
use crate::shard::{
    ConnLimits, LaneEnds, LocalEvent, Shard, ShardId, allowed_cpus, bind, blocking, mesh, serve,
    sleep, spawn, spawn_executor,
};
use crate::store::{RecoveryReport, StoreHandle, StoreLayout, StoreLock, run_background};
use crate::wire::body::offset::DelayOffsets;
use crate::wire::body::topic::{DataVersion, TopicConfig, perm};
use crate::wire::names::SCHEDULE_TOPIC;
use crate::wire::properties::{self, name};

/// Bytes of answers that wait for a client to read before it is not read any more.
const OUT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Time that a frame may take to arrive.
const FRAME_TIME: Duration = Duration::from_secs(60);

/// Longest time that a start waits for nameservers.
const FIRST_REGISTRATION: Duration = Duration::from_secs(3);

/// Longest time that a stop waits for requests under way.
const DRAIN: Duration = Duration::from_secs(2);

/// Why the broker cannot start.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

pub(super) fn refused(error: impl fmt::Display) -> StartError {
    StartError(error.to_string())
}

/// A running broker.
pub struct Broker {
    stop: Sender<()>,
    stopped: Receiver<Result<(), String>>,
    shards: u16,
    _lock: StoreLock,
}

impl Broker {
    /// Number of shards that run.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// Stops: no new requests, everything acknowledged on the device, offsets
    /// written, the nameservers told.
    ///
    /// # Errors
    /// Text with what could not be done.
    pub fn stop(&self) -> Result<(), String> {
        let _ = self.stop.send(());
        self.stopped
            .recv()
            .unwrap_or_else(|_| Err("the control shard is gone".to_owned()))
    }
}

/// What a shard tells when its store is open.
struct Opened {
    shard: ShardId,
    queues: Vec<(String, i32)>,
    report: RecoveryReport,
}

/// What a shard needs to serve.
struct Go {
    placement: Arc<Placement>,
    topics: Vec<Arc<TopicConfig>>,
    offsets: OffsetSnapshot,
    delays: BTreeMap<i32, i64>,
    control: Option<ControlParts>,
}

struct ControlParts {
    state: Control,
    offsets: Vec<OffsetSnapshot>,
    offsets_version: DataVersion,
    delays: BTreeMap<i32, i64>,
    delays_version: DataVersion,
    stop: Receiver<()>,
    stopped: Sender<Result<(), String>>,
}

/// What all shards have in common.
#[derive(Clone)]
struct Common {
    settings: Arc<Settings>,
    layout: StoreLayout,
    listen: SocketAddr,
    store_host: SocketAddr,
    open: Arc<AtomicUsize>,
    disk: Arc<DiskGauge>,
    memory_bytes: u64,
    flush: FlushChoice,
    shards: u16,
    crashed: bool,
}

/// Starts the broker: opens the store, then serves on `listen`. `store_host` is the
/// address that clients are given.
///
/// # Errors
/// [`StartError`] with what is in the way.
pub fn start(
    settings: &Arc<Settings>,
    listen: SocketAddr,
    store_host: SocketAddr,
) -> Result<Broker, StartError> {
    let layout = StoreLayout::new(&settings.store_path_root_dir);
    std::fs::create_dir_all(layout.root())
        .map_err(|error| StartError(format!("{}: {error}", layout.root().display())))?;
    let lock = StoreLock::acquire(layout.root()).map_err(refused)?;
    let logs = layout.logs().map_err(refused)?;
    let wanted = settings.shards.unwrap_or(0);
    // A store keeps the logs it has; more are added only when they are asked for.
    let shards = match logs {
        0 => settings.shard_count(),
        logs => logs.max(wanted),
    };
    layout.create(shards).map_err(refused)?;
    let crashed = layout.abort_file().exists();
    std::fs::write(layout.abort_file(), std::process::id().to_string()).map_err(refused)?;
    let address = store_host.to_string();
    let mut state = Control::new(&control_settings(settings, &address));
    state.locks.live_ms = settings.lock_max_live_time_ms;
    load_tables(&layout, &mut state)?;
    let (offsets, offsets_version) = load(&layout, OFFSETS, |bytes| {
        OffsetSnapshot::parse(bytes).map_err(|error| error.to_string())
    })
    .map_err(StartError)?
    .unwrap_or_default();
    let delays: DelayOffsets = load(&layout, DELAYS, |bytes| {
        crate::wire::body::json::parse(bytes).map_err(|error| error.to_string())
    })
    .map_err(StartError)?
    .unwrap_or_default();

    let common = Common {
        settings: settings.clone(),
        layout: layout.clone(),
        listen,
        store_host,
        open: Arc::default(),
        disk: DiskGauge::watch(layout.root(), shards).map_err(StartError)?,
        memory_bytes: memory_bytes(),
        flush: choose(settings)?,
        shards,
        crashed,
    };
    let cpus = allowed_cpus().map_err(refused)?;
    let (opened_in, opened) = flume::unbounded();
    let (ready_in, ready) = flume::unbounded();
    let mut go = Vec::new();
    for (index, lanes) in mesh::<Message>(usize::from(shards)).into_iter().enumerate() {
        let shard = ShardId(index as u16);
        let (go_in, go_out) = flume::bounded(1);
        go.push(go_in);
        let (common, opened_in, ready_in) = (common.clone(), opened_in.clone(), ready_in.clone());
        // With more logs than processors, several shards share one.
        let cpu = cpus[index % cpus.len()];
        spawn_executor(&format!("shard-{shard}"), cpu, move || async move {
            run_shard(shard, common, lanes, &opened_in, go_out, &ready_in).await;
        })
        .map_err(StartError)?;
    }
    drop((opened_in, ready_in));
    let found = collect_opened(&opened, shards, crashed)?;
    add_lost_topics(&mut state, &found);
    let placement = Arc::new(Placement::new(shards, found));
    let mut parts = offsets.split(usize::from(shards), |topic, queue| {
        placement.owner(topic, queue)
    });
    let (stop, stop_out) = flume::bounded(1);
    let (stopped_in, stopped) = flume::bounded(1);
    let topics: Vec<_> = state.topics.iter().cloned().collect();
    let mut control = Some(ControlParts {
        state,
        offsets: parts.clone(),
        offsets_version,
        delays: delays.offset_table.clone(),
        delays_version: delays.data_version,
        stop: stop_out,
        stopped: stopped_in,
    });
    for (index, go) in go.into_iter().enumerate() {
        let _ = go.send(Go {
            placement: placement.clone(),
            topics: topics.clone(),
            offsets: std::mem::take(&mut parts[index]),
            delays: owned_delays(&delays.offset_table, &placement, ShardId(index as u16)),
            control: control.take(),
        });
    }
    for _ in 0..shards {
        match ready.recv() {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(StartError(why)),
            Err(_) => return Err(StartError("a shard ended".to_owned())),
        }
    }
    Ok(Broker {
        stop,
        stopped,
        shards,
        _lock: lock,
    })
}

fn load_tables(layout: &StoreLayout, state: &mut Control) -> Result<(), StartError> {
    let topics = load(layout, TOPICS, |bytes| {
        state.topics.load(bytes).map_err(|error| error.to_string())
    });
    topics.map_err(StartError)?;
    let groups = load(layout, GROUPS, |bytes| {
        state.groups.load(bytes).map_err(|error| error.to_string())
    });
    groups.map_err(StartError)?;
    Ok(())
}

/// Progress of the delay levels whose queues a shard owns: it delivers for these
/// and must not speak for others.
fn owned_delays(
    all: &BTreeMap<i32, i64>,
    placement: &Placement,
    shard: ShardId,
) -> BTreeMap<i32, i64> {
    all.iter()
        .filter(|&(&level, _)| placement.owner(SCHEDULE_TOPIC, level - 1) == shard)
        .map(|(&level, &offset)| (level, offset))
        .collect()
}

type FoundQueues = Vec<(ShardId, Vec<(String, i32)>)>;

fn collect_opened(
    opened: &Receiver<Result<Opened, String>>,
    shards: u16,
    crashed: bool,
) -> Result<FoundQueues, StartError> {
    let mut found = Vec::new();
    for _ in 0..shards {
        let opened = match opened.recv() {
            Ok(Ok(opened)) => opened,
            Ok(Err(why)) => return Err(StartError(why)),
            Err(_) => {
                return Err(StartError(
                    "a shard ended while its store was opened".to_owned(),
                ));
            }
        };
        let report = &opened.report;
        tracing::info!(
            shard = %opened.shard,
            left_by = report.left_by,
            after = if crashed { "a crash" } else { "a clean stop" },
            log_bytes = report.log_bytes,
            queues = report.queues,
            from_tail_bytes = report.from_tail,
            scanned_bytes = report.scanned,
            indexed = report.indexed,
            millis = report.millis,
            "store open"
        );
        if let Some(stopped) = &report.stopped_at {
            tracing::warn!(shard = %opened.shard, "the log ends at {stopped}");
        }
        found.push((opened.shard, opened.queues));
    }
    Ok(found)
}

/// Topics that the log has and the table has not: their messages must be readable.
fn add_lost_topics(state: &mut Control, found: &FoundQueues) {
    let mut lost: HashMap<&str, i32> = HashMap::new();
    for (topic, queue) in found.iter().flat_map(|(_, queues)| queues) {
        if state.topics.get(topic).is_none() {
            let queues = lost.entry(topic).or_default();
            *queues = (*queues).max(queue + 1);
        }
    }
    for (topic, queues) in lost {
        let config = TopicConfig::new(topic, queues, perm::READ | perm::WRITE);
        match state.topics.ensure(config, now_ms()) {
            Ok(_) => tracing::warn!(
                topic,
                queues,
                "found in the log and not in topics.json: added"
            ),
            Err(error) => tracing::warn!(topic, "found in the log and cannot be added: {error}"),
        }
    }
}

async fn run_shard(
    id: ShardId,
    common: Common,
    lanes: LaneEnds<Message>,
    opened: &Sender<Result<Opened, String>>,
    go: Receiver<Go>,
    ready: &Sender<Result<(), String>>,
) {
    let dir = common.layout.shard_dir(id);
    let store = match StoreHandle::open(
        &dir,
        id,
        store_settings(
            &common.settings,
            common.memory_bytes,
            common.shards,
            common.crashed,
            common.flush,
        ),
    ) {
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
            let _ = opened.send(Err(format!("shard {id}: {error}")));
            return;
        }
    };
    let Ok(go) = go.recv_async().await else {
        return;
    };
    let listener = match bind(common.listen) {
        Ok(listener) => listener,
        Err(error) => {
            let _ = ready.send(Err(error.to_string()));
            return;
        }
    };
    let settings = &common.settings;
    let limits = ConnLimits {
        connections_max: settings.connections_max as usize,
        idle: Duration::from_secs(settings.server_channel_max_idle_time_s),
        frame_time: FRAME_TIME,
        out_bytes_max: OUT_BYTES_MAX,
    };
    let shard = Shard::new(id, &lanes, limits, common.open.clone());
    let (broker, stop) = build(&shard, store.clone(), &common, go);
    run_background(&store).await;
    spawn_tasks(&broker);
    lanes.receive(&shard, &broker);
    if let Some(stop) = stop {
        let control = broker.clone();
        spawn(async move { control.stop_when_asked(stop).await });
    }
    serve(&shard, &broker, listener);
    if broker.control.is_some() {
        register_first(&broker).await;
    }
    let _ = ready.send(Ok(()));
    // The tasks of the shard run until the process ends.
    std::future::pending::<()>().await;
}

/// Registers with the nameservers, and waits for it a moment: a broker that says it
/// is ready is mostly in the routes. One that does not answer is told later.
async fn register_first(broker: &Rc<BrokerShard>) {
    let done = Rc::new(LocalEvent::default());
    let (me, told) = (broker.clone(), done.clone());
    let wait = done.wait();
    spawn(async move {
        me.register_everywhere().await;
        told.notify();
        me.keep_registered().await;
    });
    futures_lite::future::or(wait, sleep(FIRST_REGISTRATION)).await;
}

type StopEnds = (Receiver<()>, Sender<Result<(), String>>);

fn build(
    shard: &Rc<Shard<Message>>,
    store: StoreHandle,
    common: &Common,
    go: Go,
) -> (Rc<BrokerShard>, Option<StopEnds>) {
    let settings = &common.settings;
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
        stop = Some((parts.stop, parts.stopped));
        let address = common.store_host.to_string();
        let ha = SocketAddr::new(common.store_host.ip(), settings.listen_port.wrapping_add(1));
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
                common.layout.clone(),
                parts.offsets,
                parts.offsets_version,
                parts.delays,
                parts.delays_version,
            ),
        }
    });
    let broker = Rc::new_cyclic(|me| BrokerShard {
        me: me.clone(),
        shard: shard.clone(),
        store,
        settings: settings.clone().into(),
        constants: SendReplyConstants {
            region: settings.region_id.clone(),
            trace_on: settings.trace_on,
            store_host: common.store_host,
        },
        store_host: common.store_host,
        disk: common.disk.clone(),
        retention: Default::default(),
        memory_bytes: common.memory_bytes,
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
    spawn(async move {
        loop {
            me.store.progress().wait().await;
            me.release_acks();
            me.wake_arrivals();
            me.room.notify();
        }
    });
    let me = broker.clone();
    spawn(async move {
        loop {
            if me.polls.borrow().is_empty() {
                me.poll_event.wait().await;
            }
            sleep(Duration::from_millis(TICK_MS)).await;
            me.expire_polls();
        }
    });
    let me = broker.clone();
    spawn(async move {
        loop {
            sleep(Duration::from_millis(500)).await;
            me.expire_acks();
        }
    });
    spawn(broker.clone().deliver_delayed());
    spawn(broker.clone().watch_disk());
    spawn(broker.clone().retain_messages());
    if broker.control.is_none() {
        return;
    }
    let me = broker.clone();
    spawn(async move {
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

    /// Waits to be asked to stop, and stops the whole broker.
    async fn stop_when_asked(self: Rc<Self>, ends: StopEnds) {
        let (stop, stopped) = ends;
        let _ = stop.recv_async().await;
        let _ = stopped.send(self.stop_all().await);
    }

    /// Waits until nothing is under way on this shard, but not longer than `limit`.
    pub(super) async fn drain(&self, limit: Duration) {
        let began = Instant::now();
        let busy = || {
            self.deferred.get() > 0
                || self.forwarded.get() > 0
                || self.cold.get() > 0
                || !self.acks.borrow().is_empty()
                || self.delay.is_delivering()
        };
        while busy() && began.elapsed() < limit {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop_all(&self) -> Result<(), String> {
        self.unregister().await;
        let mut faults = Vec::new();
        // First every shard stops taking requests, then what is under way ends: a
        // second look catches what one shard sent another in between.
        self.ask_all(|| Ask::StopRequests).await;
        self.ask_all(|| Ask::Drained(DRAIN)).await;
        self.ask_all(|| Ask::Drained(DRAIN)).await;
        self.save_offsets(true).await;
        self.save_delays().await;
        self.save_tables().await;
        for answer in self.ask_all(|| Ask::Close).await {
            if let Answer::Refused(_, why) = answer {
                faults.push(why);
            }
        }
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let abort = StoreLayout::new(&self.settings.borrow().store_path_root_dir).abort_file();
        blocking(move || std::fs::remove_file(abort))
            .await
            .map_err(|error| error.to_string())
    }
}
