//! Start of the brokers of a process: stores locked and opened, tables read, shards
//! running, ports listening.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flume::{Receiver, Sender};

use super::control::Control;
use super::control::offsets::OffsetSnapshot;
use super::control_requests::control_settings;
use super::disk::DiskGauge;
use super::flush_choice::choose;
use super::members::{Member, members, owners};
use super::message::Message;
use super::now_ms;
use super::persistence::{DELAYS, GROUPS, OFFSETS, TOPICS, load};
use super::placement::Placement;
use super::process::Process;
use super::serve_shard::{Common, ControlParts, Go, Opened, Orders, run_shard};
use super::siblings::{Siblings, siblings};
use super::start_error::{StartError, refused};
use crate::config::{Addresses, Settings};
use crate::probe::memory_bytes;
use crate::shard::{ShardId, allowed_cpus, mesh, spawn_executor};
use crate::store::{LogOwners, StoreLayout, StoreLock};
use crate::wire::body::offset::DelayOffsets;
use crate::wire::body::subscription_group::SubscriptionGroupConfig;
use crate::wire::body::topic::{DataVersion, TopicConfig, perm};
use crate::wire::names::SCHEDULE_TOPIC;

/// A running broker.
pub struct Broker {
    member: Arc<Member>,
    stop: Sender<()>,
    stopped: Receiver<Result<(), String>>,
    _lock: StoreLock,
}

impl Broker {
    /// What it runs with.
    pub fn settings(&self) -> &Settings {
        &self.member.settings
    }

    /// Number of shards that run.
    pub fn shards(&self) -> u16 {
        self.member.shards()
    }

    /// What it listens on.
    pub fn listen(&self) -> SocketAddr {
        self.member.listen
    }

    /// The address that clients are given.
    pub fn advertised(&self) -> SocketAddr {
        self.member.store_host
    }
}

/// Stops brokers, all at once: no new requests, everything acknowledged on the device,
/// offsets written, the nameservers told.
///
/// # Errors
/// Text with what could not be done.
pub fn stop(brokers: &[Broker]) -> Result<(), String> {
    for broker in brokers {
        let _ = broker.stop.send(());
    }
    let stopped = brokers.iter().map(|broker| {
        let gone = |_| Err("the control shard is gone".to_owned());
        broker.stopped.recv().unwrap_or_else(gone)
    });
    let faults: Vec<String> = stopped.filter_map(Result::err).collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("; "))
    }
}

/// Starts the broker, or one for each shard (`routeMode`): opens the store, then serves.
/// `nameserver_port` is the port of a nameserver in this process.
///
/// # Errors
/// [`StartError`] with what is in the way.
pub fn start(
    settings: &Arc<Settings>,
    addresses: &Addresses,
    nameserver_port: Option<u16>,
) -> Result<Vec<Broker>, StartError> {
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
    let members = members(settings, addresses, shards, nameserver_port).map_err(StartError)?;
    let owners = owners(settings.route_mode);
    claim(&layout, logs, owners)?;
    layout.create(shards, owners).map_err(refused)?;
    let mut locks = vec![lock];
    for member in members.iter().skip(1) {
        locks.push(StoreLock::acquire(member.layout.root()).map_err(refused)?);
    }
    let mut tables = Vec::new();
    for member in &members {
        tables.push(Tables::load(member)?);
    }
    if let Some((first, others)) = tables.split_first_mut() {
        for tables in others {
            tables.adopt(&first.state);
        }
    }
    let process = Arc::new(Process {
        layout: layout.clone(),
        open: Arc::default(),
        disk: DiskGauge::watch(layout.root(), shards).map_err(StartError)?,
        memory_bytes: memory_bytes(),
        flush: choose(settings)?,
        shards,
        cpus: allowed_cpus().map_err(refused)?,
        busy_poll: Duration::from_micros(settings.busy_poll_micros),
    });
    let ends = siblings(members.len());
    // Each step for all of them before the next. Stores are read at the same time; none
    // listens while another may turn out damaged, and none serves while a port may turn
    // out taken: a start that fails has registered and acknowledged nothing.
    let mut opening = Vec::new();
    for member in members {
        opening.push(Opening::begin(&process, member)?);
    }
    let mut found = Vec::new();
    for broker in &opening {
        found.push(broker.collect_opened()?);
    }
    opening.iter().for_each(Opening::listen);
    for broker in &opening {
        wait_for_all(&broker.done, broker.common.member.shards())?;
    }
    let mut starting = Vec::new();
    for ((((opening, found), tables), siblings), lock) in opening
        .into_iter()
        .zip(found)
        .zip(tables)
        .zip(ends)
        .zip(locks)
    {
        starting.push(opening.serve(found, tables, siblings, lock));
    }
    for (broker, done) in &starting {
        wait_for_all(done, broker.shards())?;
    }
    Ok(starting.into_iter().map(|(broker, _)| broker).collect())
}

/// Waits until so many shards have done a step.
fn wait_for_all(done: &Receiver<Result<(), String>>, shards: u16) -> Result<(), StartError> {
    for _ in 0..shards {
        match done.recv() {
            Ok(done) => done.map_err(StartError)?,
            Err(_) => return Err(StartError("a shard ended at its start".to_owned())),
        }
    }
    Ok(())
}

/// Checks that the store was made for these owners of its logs, or makes it so where it
/// still may be.
fn claim(layout: &StoreLayout, logs: u16, wanted: LogOwners) -> Result<(), StartError> {
    let made_for = layout.log_owners().map_err(refused)?;
    if made_for == wanted {
        return Ok(());
    }
    if logs <= 1 {
        return layout.set_log_owners(wanted).map_err(refused);
    }
    let mode = |owners| match owners {
        LogOwners::One => "single",
        LogOwners::Each => "perShard",
    };
    Err(StartError(format!(
        "{}: the store has {logs} shards and was made with routeMode={}; it cannot be used with \
         routeMode={}, under which its queues are others",
        layout.root().display(),
        mode(made_for),
        mode(wanted),
    )))
}

/// What a broker reads from its `config/`.
struct Tables {
    state: Control,
    offsets: OffsetSnapshot,
    offsets_version: DataVersion,
    delays: DelayOffsets,
    /// There is no table of topics yet.
    no_topics: bool,
    /// There is no table of groups yet.
    no_groups: bool,
}

impl Tables {
    fn load(member: &Member) -> Result<Tables, StartError> {
        let (settings, layout) = (&member.settings, &member.layout);
        let address = member.store_host.to_string();
        let mut state = Control::new(&control_settings(settings, &address));
        state.locks.live_ms = settings.lock_max_live_time_ms;
        let topics = load(layout, TOPICS, |bytes| {
            state.topics.load(bytes).map_err(|error| error.to_string())
        });
        let no_topics = topics.map_err(StartError)?.is_none();
        let groups = load(layout, GROUPS, |bytes| {
            state.groups.load(bytes).map_err(|error| error.to_string())
        });
        let no_groups = groups.map_err(StartError)?.is_none();
        let offsets = load(layout, OFFSETS, |bytes| {
            OffsetSnapshot::parse(bytes).map_err(|error| error.to_string())
        });
        let (offsets, offsets_version) = offsets.map_err(StartError)?.unwrap_or_default();
        let delays = load(layout, DELAYS, |bytes| {
            crate::wire::body::json::parse(bytes).map_err(|error| error.to_string())
        });
        Ok(Tables {
            state,
            offsets,
            offsets_version,
            delays: delays.map_err(StartError)?.unwrap_or_default(),
            no_topics,
            no_groups,
        })
    }

    /// A shard that is added has the topics and groups of shard 0, so that it gets its
    /// part of the messages. Each table is taken over where its own file is missing: a
    /// crash may fall between the first writes of the two. Both are then written even
    /// if there was nothing to take, so that this is done once.
    fn adopt(&mut self, first: &Control) {
        let new = &mut self.state;
        if self.no_topics {
            let topics = first.topics.iter();
            for topic in topics.filter(|topic| !first.topics.is_system(&topic.topic_name)) {
                if let Err(error) = new.topics.ensure(TopicConfig::clone(topic), now_ms()) {
                    tracing::warn!(topic = topic.topic_name, "not on the new shard: {error}");
                }
            }
            new.topics.set_dirty();
        }
        if self.no_groups {
            for (group, config) in first.groups.iter() {
                let config = SubscriptionGroupConfig::clone(config);
                if let Err(error) = new.groups.update(config, now_ms()) {
                    tracing::warn!(group, "not on the new shard: {error}");
                }
            }
            new.groups.set_dirty();
        }
    }
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

/// A broker whose shards open their stores, and then listen.
struct Opening {
    common: Common,
    opened: Receiver<Result<Opened, String>>,
    orders: Vec<(Sender<()>, Sender<Go>)>,
    /// One word of each shard when it listens, and one when it serves.
    done: Receiver<Result<(), String>>,
}

impl Opening {
    fn begin(process: &Arc<Process>, member: Member) -> Result<Opening, StartError> {
        let abort = member.layout.abort_file();
        let crashed = abort.exists();
        std::fs::write(abort, std::process::id().to_string()).map_err(refused)?;
        let common = Common {
            process: process.clone(),
            member: Arc::new(member),
            crashed,
        };
        let (opened_in, opened) = flume::unbounded();
        let (done_in, done) = flume::unbounded();
        let mut orders = Vec::new();
        let logs = common.member.logs.clone();
        for (log, lanes) in logs.clone().zip(mesh::<Message>(logs.len())) {
            let shard = ShardId(log - logs.start);
            let (listen_in, listen) = flume::bounded(1);
            let (go_in, go) = flume::bounded(1);
            orders.push((listen_in, go_in));
            let (common, opened_in, done_in) = (common.clone(), opened_in.clone(), done_in.clone());
            // With more logs than processors, several shards share one.
            let cpu = process.cpus[usize::from(log) % process.cpus.len()];
            spawn_executor(&format!("shard-{log}"), cpu, move || async move {
                common.process.begin_busy_poll();
                run_shard(
                    shard,
                    common,
                    lanes,
                    &opened_in,
                    Orders { listen, go },
                    &done_in,
                )
                .await;
            })
            .map_err(StartError)?;
        }
        Ok(Opening {
            common,
            opened,
            orders,
            done,
        })
    }

    /// Has the shards listen.
    fn listen(&self) {
        for (listen, _) in &self.orders {
            let _ = listen.send(());
        }
    }

    /// Has the shards serve.
    fn serve(
        self,
        found: FoundQueues,
        tables: Tables,
        siblings: Siblings,
        lock: StoreLock,
    ) -> (Broker, Receiver<Result<(), String>>) {
        let Tables {
            mut state,
            offsets,
            offsets_version,
            delays,
            ..
        } = tables;
        add_lost_topics(&mut state, &found);
        let shards = self.common.member.shards();
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
            siblings,
            stop: (stop_out, stopped_in),
        });
        for (index, (_, go)) in self.orders.into_iter().enumerate() {
            let _ = go.send(Go {
                placement: placement.clone(),
                topics: topics.clone(),
                offsets: std::mem::take(&mut parts[index]),
                delays: owned_delays(&delays.offset_table, &placement, ShardId(index as u16)),
                control: control.take(),
            });
        }
        let broker = Broker {
            member: self.common.member,
            stop,
            stopped,
            _lock: lock,
        };
        (broker, self.done)
    }

    /// Waits until the stores of all shards are open.
    fn collect_opened(&self) -> Result<FoundQueues, StartError> {
        let mut found = Vec::new();
        for _ in 0..self.common.member.shards() {
            let opened = match self.opened.recv() {
                Ok(Ok(opened)) => opened,
                Ok(Err(why)) => return Err(StartError(why)),
                Err(_) => {
                    return Err(StartError(
                        "a shard ended while its store was opened".to_owned(),
                    ));
                }
            };
            let log = self.common.log(opened.shard);
            let report = &opened.report;
            tracing::info!(
                shard = %log,
                left_by = report.left_by,
                after = if self.common.crashed { "a crash" } else { "a clean stop" },
                log_bytes = report.log_bytes,
                queues = report.queues,
                from_tail_bytes = report.from_tail,
                scanned_bytes = report.scanned,
                indexed = report.indexed,
                millis = report.millis,
                "store open"
            );
            if let Some(stopped) = &report.stopped_at {
                tracing::warn!(shard = %log, "the log ends at {stopped}");
            }
            found.push((opened.shard, opened.queues));
        }
        Ok(found)
    }
}

/// The queues that the logs of a broker's shards have.
type FoundQueues = Vec<(ShardId, Vec<(String, i32)>)>;

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
