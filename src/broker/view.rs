//! A shard's copy of the control state: topics and groups, replaced by message.

use foldhash::{HashMap, HashMapExt};
use std::sync::Arc;

use super::control::attributes;
use super::control::view::{GroupChange, GroupView};
use super::placement::Placement;
use crate::shard::ShardId;
use crate::wire::body::topic::TopicConfig;

/// A topic as a shard knows it.
#[derive(Debug)]
pub struct TopicEntry {
    /// Its name, shared by all who keep it.
    pub name: Arc<str>,
    /// Its settings.
    pub config: Arc<TopicConfig>,
    /// Who owns its queues, by queue number.
    owners: Vec<ShardId>,
}

impl TopicEntry {
    /// Number of queues that requests may name.
    pub fn queues(&self) -> i32 {
        self.owners.len() as i32
    }

    /// The owner of a queue; `None` for a number that is out of range.
    pub fn owner(&self, queue_id: i32) -> Option<ShardId> {
        let index = usize::try_from(queue_id).ok()?;
        self.owners.get(index).copied()
    }
}

/// The copy. Lives on its shard's thread.
#[derive(Debug)]
pub struct ControlView {
    topics: HashMap<Arc<str>, Arc<TopicEntry>>,
    groups: HashMap<Arc<str>, Arc<GroupView>>,
    placement: Arc<Placement>,
}

impl ControlView {
    /// An empty copy.
    pub fn new(placement: Arc<Placement>) -> ControlView {
        ControlView {
            topics: HashMap::new(),
            groups: HashMap::new(),
            placement,
        }
    }

    /// A topic.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicEntry>> {
        self.topics.get(name)
    }

    /// Topics with a time of their own to keep messages for, and its hours.
    pub fn reserve_times(&self) -> Vec<(Arc<str>, u64)> {
        let own = self.topics.values().filter_map(|topic| {
            let hours = attributes::reserve_hours(&topic.config.attributes)?;
            Some((topic.name.clone(), hours))
        });
        own.collect()
    }

    /// A group, with its shared name.
    pub fn group(&self, name: &str) -> Option<(&Arc<str>, &Arc<GroupView>)> {
        self.groups.get_key_value(name)
    }

    /// A topic was made or changed.
    pub fn set_topic(&mut self, config: Arc<TopicConfig>) {
        let name: Arc<str> = match self.topics.get_key_value(&*config.topic_name) {
            Some((name, _)) => name.clone(),
            None => Arc::from(config.topic_name.as_str()),
        };
        let queues = config.read_queue_nums.max(config.write_queue_nums).max(0);
        let owners = (0..queues)
            .map(|queue| self.placement.owner(&name, queue))
            .collect();
        let entry = TopicEntry {
            name: name.clone(),
            config,
            owners,
        };
        self.topics.insert(name, Arc::new(entry));
    }

    /// A topic was removed.
    pub fn remove_topic(&mut self, name: &str) {
        self.topics.remove(name);
    }

    /// A group is now as the change says.
    pub fn set_group(&mut self, change: GroupChange) {
        match change.view {
            Some(view) => {
                self.groups.insert(Arc::from(change.group), view);
            }
            None => {
                self.groups.remove(change.group.as_str());
            }
        }
    }

    /// Who owns which queue.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }
}
