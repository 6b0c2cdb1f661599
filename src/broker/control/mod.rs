//! The control shard: what exists on the broker, and who is connected to it.
//!
//! Lives on shard 0, which alone changes it; other shards work with copies that
//! they are sent. Everything is synchronous and given the time; what must be told
//! to others comes back as [`Effects`].
//!
//! | file | what it holds |
//! | --- | --- |
//! | `topics`, `boot`, `attributes` | topics and their settings |
//! | `groups` | subscription groups and their settings |
//! | `clients`, `consumer_group` | live producers and consumers |
//! | `locks` | queues locked by ordered consumers |
//! | `offsets` | the offsets of one shard; on every shard |
//! | `view` | what shards and clients are told after a change |
//! | `handle` | from request code to the function that answers it |
//! | `*_requests`, `consume_stats`, `relay`, `runtime_info` | the answers, a family each; `answer` is what they share |
//! | `settings`, `limits` | what is set by the operator, and what is not |

mod answer;
pub mod attributes;
pub mod boot;
mod client_requests;
pub mod clients;
mod consume_stats;
pub mod consumer_group;
mod group_requests;
pub mod groups;
pub mod handle;
pub mod limits;
pub mod locks;
pub mod offsets;
mod queue_requests;
mod relay;
pub mod runtime_info;
pub mod settings;
mod topic_requests;
pub mod topics;
pub mod view;

use std::net::SocketAddr;
use std::sync::Arc;

use clients::{Changes, Client, ClientError, ClientTable};
use groups::GroupTable;
use locks::LockTable;
use runtime_info::Runtime;
use settings::ControlSettings;
use topics::TopicTable;
use view::{Effects, GroupChange, GroupView};

use crate::shard::ConnId;
use crate::wire::body::heartbeat::{ConsumerData, HeartbeatData, MessageModel};
use crate::wire::body::topic::{TopicConfig, perm};
use crate::wire::command::Response;
use crate::wire::names;

/// The connection that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// Which it is.
    pub id: ConnId,
    /// Its other end.
    pub addr: SocketAddr,
}

/// Everything that the control shard owns.
#[derive(Debug)]
pub struct Control {
    /// Topics.
    pub topics: TopicTable,
    /// Subscription groups.
    pub groups: GroupTable,
    /// Live clients.
    pub clients: ClientTable,
    /// Queues locked by ordered consumers.
    pub locks: LockTable,
    /// What rates of runtime info are made from.
    pub runtime: Runtime,
}

impl Control {
    /// A broker that nobody has used yet.
    pub fn new(settings: &ControlSettings) -> Control {
        Control {
            topics: TopicTable::new(settings),
            groups: GroupTable::new(),
            clients: ClientTable::default(),
            locks: LockTable::default(),
            runtime: Runtime::default(),
        }
    }

    /// A group as other shards must know it; `None` where there is none.
    pub fn view(&self, group: &str) -> Option<Arc<GroupView>> {
        let config = Arc::clone(self.groups.get(group)?);
        Some(Arc::new(GroupView {
            config,
            forbidden: self.groups.forbidden(group).cloned().unwrap_or_default(),
            live: self.clients.consumer_group(group).map(|live| live.live()),
        }))
    }

    /// A group as it must be told to other shards.
    pub fn change(&self, group: &str) -> GroupChange {
        GroupChange {
            group: group.to_owned(),
            view: self.view(group),
        }
    }

    /// All groups, for a shard that knows none.
    pub fn all_groups(&self) -> Vec<GroupChange> {
        self.groups
            .iter()
            .map(|(group, _)| self.change(group))
            .collect()
    }

    /// The group of a request that needs one, for shards that do not know it:
    /// made if it may be. The effects make every shard know it.
    pub fn ensure_group(
        &mut self,
        group: &str,
        settings: &ControlSettings,
        now_ms: u64,
    ) -> (Option<Arc<GroupView>>, Effects) {
        let mut effects = Effects::default();
        let made = self.groups.get_or_create(group, settings, now_ms);
        if made.is_some_and(|made| made.changed) {
            effects.groups.push(self.change(group));
        }
        (self.view(group), effects)
    }

    /// Notes a heartbeat (`ClientManageProcessor.heartBeat`). A consumer whose group
    /// neither is there nor may be made is passed over in silence.
    pub fn heartbeat(
        &mut self,
        data: &HeartbeatData,
        mut client: Client,
        settings: &ControlSettings,
    ) -> (Response, Effects) {
        let now_ms = client.last_update_ms;
        let mut changes = Changes::default();
        let mut effects = Effects::default();
        let second_version = data.heartbeat_fingerprint != 0;
        let mut resend = !second_version;
        let mut refused: Option<ClientError> = None;
        if let Err(error) = ClientTable::check_client_id(&data.client_id) {
            return (refuse(&error), effects);
        }
        client.client_id = data.client_id.as_str().into();
        for consumer in &data.consumer_data_set {
            let group = consumer.group_name.as_str();
            let Some(made) = self.groups.get_or_create(group, settings, now_ms) else {
                continue;
            };
            if made.changed {
                changes.views.insert(group.to_owned());
            }
            self.ensure_retry_topic(consumer, made.config.retry_queue_nums, now_ms, &mut effects);
            let fingerprint = data.heartbeat_fingerprint;
            let subscriptions = !(second_version && data.without_sub);
            let noted =
                self.clients
                    .consumer(consumer, &client, fingerprint, subscriptions, &mut changes);
            match noted {
                Ok(again) => resend |= again,
                Err(error) => refused = Some(error),
            }
        }
        for producer in &data.producer_data_set {
            if let Err(error) = self.clients.producer(&producer.group_name, &client) {
                refused = Some(error);
            }
        }
        self.finish(changes, settings, &mut effects);
        let response = match refused {
            Some(error) => refuse(&error),
            None => Response::ok()
                .with("IS_SUPPORT_HEART_BEAT_V2", true)
                .with("IS_SUB_CHANGE", resend),
        };
        (response, effects)
    }

    /// A topic that cannot be made is no reason to refuse the heartbeat: the group
    /// reads without it, and failed messages say what is missing.
    fn ensure_retry_topic(
        &mut self,
        consumer: &ConsumerData,
        queues: i32,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let subscriptions = &consumer.subscription_data_set;
        let order = subscriptions.iter().any(|data| {
            self.topics
                .get(&data.topic)
                .is_some_and(|topic| topic.order)
        });
        let unit = consumer.unit_mode;
        let config = TopicConfig {
            order,
            topic_sys_flag: if unit { topics::SYS_FLAG_UNIT_SUB } else { 0 },
            ..TopicConfig::new(
                names::retry_topic(&consumer.group_name),
                queues.max(0),
                perm::READ | perm::WRITE,
            )
        };
        match self.topics.ensure(config, now_ms) {
            Ok(topic) if topic.changed => effects.topics.push(topic.config),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!("no retry topic for group {}: {error}", consumer.group_name);
            }
        }
    }

    /// Ends a membership by request (`ClientManageProcessor.unregisterClient`).
    pub fn unregister(
        &mut self,
        conn: ConnId,
        producer_group: Option<&str>,
        consumer_group: Option<&str>,
        settings: &ControlSettings,
    ) -> Effects {
        let mut changes = Changes::default();
        if let Some(group) = producer_group {
            self.clients.leave_producer(group, conn);
        }
        if let Some(group) = consumer_group {
            self.clients.leave_consumer(group, conn, &mut changes);
        }
        let mut effects = Effects::default();
        self.finish(changes, settings, &mut effects);
        effects
    }

    /// Ends all memberships of a connection that is closed.
    pub fn connection_closed(&mut self, conn: ConnId, settings: &ControlSettings) -> Effects {
        let mut changes = Changes::default();
        self.clients.close(conn, &mut changes);
        let mut effects = Effects::default();
        self.finish(changes, settings, &mut effects);
        effects
    }

    /// Ends memberships without a heartbeat. To be called every 10 s.
    pub fn expire(&mut self, settings: &ControlSettings, now_ms: u64) -> Effects {
        let mut changes = Changes::default();
        self.clients
            .expire(now_ms, settings.client_expiry_ms, &mut changes);
        self.locks.expire(now_ms);
        let mut effects = Effects::default();
        self.finish(changes, settings, &mut effects);
        effects
    }

    /// Turns changes of membership into what must be done about them.
    fn finish(&mut self, changes: Changes, settings: &ControlSettings, effects: &mut Effects) {
        for (group, client) in &changes.gone {
            self.locks.release(group, client);
        }
        effects.warnings.extend(changes.warnings);
        effects
            .groups
            .extend(changes.views.iter().map(|group| self.change(group)));
        for group in changes.members {
            let Some(live) = self.clients.consumer_group(&group) else {
                continue;
            };
            let wanted = settings.notify_consumers
                && live.message_model() != MessageModel::Broadcasting
                && self
                    .groups
                    .get(&group)
                    .is_none_or(|config| config.notify_consumer_ids_changed_enable);
            if wanted {
                let members = live.members().map(|client| client.conn).collect();
                effects.notify.push((group, members));
            }
        }
    }
}

fn refuse(error: &ClientError) -> Response {
    Response::error(
        crate::wire::codes::response::SYSTEM_ERROR,
        error.to_string(),
    )
}
