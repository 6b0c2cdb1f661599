//! The subscription groups of the broker: settings of each, and the edition of the whole.
//!
//! Owned by the control shard; other shards have copies, see [`super::view`].
//! Source of the rules: `SubscriptionGroupManager`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::limits::{GROUPS_MAX, QUEUES_PER_TOPIC_MAX};
use super::settings::ControlSettings;
use crate::wire::body::json::{self, JsonError};
use crate::wire::body::subscription_group::{
    ForbiddenTable, SubscriptionGroupConfig, SubscriptionGroupWrapper,
};
use crate::wire::body::topic::DataVersion;
use crate::wire::codes::response;
use crate::wire::names::{self, NameError};

/// Why a group is not created or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// The name is not one.
    Name(NameError),
    /// [`GROUPS_MAX`] is reached.
    TooMany,
    /// An attribute that no group has.
    Attribute(String),
    /// The number of retry queues is above [`QUEUES_PER_TOPIC_MAX`].
    RetryQueues(i32),
}

impl GroupError {
    /// The code of the answer to an administrator.
    pub fn admin_code(&self) -> i32 {
        match self {
            GroupError::Name(_) | GroupError::RetryQueues(_) => response::INVALID_PARAMETER,
            GroupError::TooMany | GroupError::Attribute(_) => response::SYSTEM_ERROR,
        }
    }
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Name(error) => error.fmt(f),
            GroupError::TooMany => write!(f, "the broker has {GROUPS_MAX} groups, the most it can"),
            GroupError::Attribute(name) => write!(f, "attribute {name:?} is not supported"),
            GroupError::RetryQueues(queues) => {
                write!(
                    f,
                    "{queues} retry queues are more than {QUEUES_PER_TOPIC_MAX}"
                )
            }
        }
    }
}

impl std::error::Error for GroupError {}

/// A group as it is after a request for it.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its settings.
    pub config: Arc<SubscriptionGroupConfig>,
    /// Whether the request made or changed it: shards must be told.
    pub changed: bool,
}

/// All subscription groups of the broker.
#[derive(Debug)]
pub struct GroupTable {
    configs: BTreeMap<String, Arc<SubscriptionGroupConfig>>,
    forbidden: ForbiddenTable,
    version: DataVersion,
    dirty: bool,
}

impl Default for GroupTable {
    fn default() -> GroupTable {
        GroupTable::new()
    }
}

impl GroupTable {
    /// The groups that every broker has.
    pub fn new() -> GroupTable {
        let boot = names::SYSTEM_GROUPS.into_iter();
        GroupTable {
            configs: boot
                .map(|name| {
                    (
                        name.to_owned(),
                        Arc::new(SubscriptionGroupConfig::new(name)),
                    )
                })
                .collect(),
            forbidden: ForbiddenTable::new(),
            version: DataVersion::default(),
            dirty: false,
        }
    }

    /// Adds what a `subscriptionGroup.json` holds.
    ///
    /// # Errors
    /// The text is not such a file; the table is unchanged.
    pub fn load(&mut self, text: &[u8]) -> Result<(), JsonError> {
        let file: SubscriptionGroupWrapper = json::parse(text)?;
        for (name, mut config) in file.subscription_group_table {
            config.group_name.clone_from(&name);
            self.configs.insert(name, Arc::new(config));
        }
        self.forbidden.extend(file.forbidden_table);
        self.version = file.data_version;
        Ok(())
    }

    /// The settings of a group.
    pub fn get(&self, group: &str) -> Option<&Arc<SubscriptionGroupConfig>> {
        self.configs.get(group)
    }

    /// All groups by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<SubscriptionGroupConfig>)> {
        self.configs
            .iter()
            .map(|(name, config)| (name.as_str(), config))
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.configs.len()
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }

    /// The edition of the table.
    pub fn version(&self) -> DataVersion {
        self.version
    }

    /// Whether the table changed since the last call: `subscriptionGroup.json` must be written.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// The file could not be written: it must be tried again.
    pub fn set_dirty(&mut self) {
        self.dirty = true;
    }

    /// What a group may not read: bits by topic.
    pub fn forbidden(&self, group: &str) -> Option<&BTreeMap<String, i32>> {
        self.forbidden.get(group)
    }

    /// The group of a client. Where it is not there it is made, if
    /// `autoCreateSubscriptionGroup` is on, the name is one and there is room
    /// (`findSubscriptionGroupConfig`).
    pub fn get_or_create(
        &mut self,
        group: &str,
        settings: &ControlSettings,
        now_ms: u64,
    ) -> Option<Group> {
        if let Some(config) = self.configs.get(group) {
            let config = Arc::clone(config);
            return Some(Group {
                config,
                changed: false,
            });
        }
        if !settings.auto_create_group || names::check_group(group).is_err() {
            return None;
        }
        self.put(SubscriptionGroupConfig::new(group), now_ms).ok()
    }

    /// Creates or changes a group for an administrator. The attributes of `config`
    /// are changes, of which RocketMQ defines none. Settings that are what they
    /// were have no effect.
    ///
    /// # Errors
    /// See [`GroupError::admin_code`].
    pub fn update(
        &mut self,
        mut config: SubscriptionGroupConfig,
        now_ms: u64,
    ) -> Result<Group, GroupError> {
        check_update(&config)?;
        if let Some(current) = self.configs.get(&config.group_name) {
            config.attributes.clone_from(&current.attributes);
            if **current == config {
                let config = Arc::clone(current);
                return Ok(Group {
                    config,
                    changed: false,
                });
            }
        }
        self.put(config, now_ms)
    }

    /// Removes a group, and whether it was there.
    pub fn remove(&mut self, group: &str, now_ms: u64) -> bool {
        let forbidden = self.forbidden.remove(group).is_some();
        let removed = self.configs.remove(group).is_some();
        if removed || forbidden {
            self.changed(now_ms);
        }
        removed
    }

    fn put(&mut self, config: SubscriptionGroupConfig, now_ms: u64) -> Result<Group, GroupError> {
        if self.configs.len() >= GROUPS_MAX && !self.configs.contains_key(&config.group_name) {
            return Err(GroupError::TooMany);
        }
        let config = Arc::new(config);
        self.configs
            .insert(config.group_name.clone(), Arc::clone(&config));
        self.changed(now_ms);
        Ok(Group {
            config,
            changed: true,
        })
    }

    fn changed(&mut self, now_ms: u64) {
        self.version.next(now_ms);
        self.dirty = true;
    }

    /// The table as `subscriptionGroup.json`, which is also the answer to
    /// GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
    pub fn to_json(&self) -> Vec<u8> {
        self.page(0, usize::MAX)
    }

    /// `count` groups from the `first` on, in the form of [`GroupTable::to_json`].
    pub fn page(&self, first: usize, count: usize) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Page<'a> {
            data_version: DataVersion,
            forbidden_table: BTreeMap<&'a str, &'a BTreeMap<String, i32>>,
            subscription_group_table: BTreeMap<&'a str, &'a SubscriptionGroupConfig>,
        }
        let groups: BTreeMap<&str, &SubscriptionGroupConfig> = self
            .iter()
            .map(|(name, config)| (name, &**config))
            .skip(first)
            .take(count)
            .collect();
        let whole = groups.len() == self.len();
        let forbidden = self.forbidden.iter().map(|(k, v)| (k.as_str(), v));
        let page = Page {
            data_version: self.version,
            forbidden_table: forbidden
                .filter(|(group, _)| whole || groups.contains_key(group))
                .collect(),
            subscription_group_table: groups,
        };
        let mut out = String::new();
        json::write_value(&mut out, &page);
        out.into_bytes()
    }
}

/// Whether [`GroupTable::update`] can be asked for this, apart from room.
///
/// # Errors
/// See [`GroupError::admin_code`].
pub fn check_update(config: &SubscriptionGroupConfig) -> Result<(), GroupError> {
    names::check_group(&config.group_name).map_err(GroupError::Name)?;
    if config.retry_queue_nums > QUEUES_PER_TOPIC_MAX {
        return Err(GroupError::RetryQueues(config.retry_queue_nums));
    }
    match config.attributes.keys().next() {
        Some(name) => Err(GroupError::Attribute(name.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn a_client_creates_its_group_once_and_only_where_it_may() {
        let on = ControlSettings::default();
        let off = ControlSettings {
            auto_create_group: false,
            ..ControlSettings::default()
        };
        let mut groups = GroupTable::new();
        assert!(groups.get_or_create("g", &off, NOW).is_none());
        assert!(groups.get_or_create("a/b", &on, NOW).is_none());
        assert!(!groups.take_dirty());
        let group = groups.get_or_create("g", &on, NOW).unwrap();
        assert!(group.changed && groups.take_dirty());
        assert_eq!(group.config.retry_max_times, 16);
        assert!(!groups.get_or_create("g", &off, NOW).unwrap().changed);
        assert!(groups.get_or_create("TOOLS_CONSUMER", &off, NOW).is_some());
    }

    #[test]
    fn the_same_settings_again_have_no_effect() {
        let mut groups = GroupTable::new();
        let mut config = SubscriptionGroupConfig::new("g");
        assert!(groups.update(config.clone(), NOW).unwrap().changed);
        let version = groups.version();
        assert!(!groups.update(config.clone(), NOW).unwrap().changed);
        assert_eq!(groups.version(), version);
        config.retry_max_times = 1;
        assert!(groups.update(config.clone(), NOW).unwrap().changed);
        config.attributes.insert("+a".into(), "b".into());
        assert_eq!(
            groups.update(config.clone(), NOW).unwrap_err().admin_code(),
            1
        );
        config.group_name = "g".repeat(300);
        assert_eq!(groups.update(config, NOW).unwrap_err().admin_code(), 29);
    }

    #[test]
    fn groups_and_what_is_forbidden_survive_a_restart() {
        let text = br#"{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":5},
            "forbiddenTable":{"g":{"T":3}},
            "subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3}}}"#;
        let mut groups = GroupTable::new();
        groups.load(text).unwrap();
        assert_eq!(groups.get("g").unwrap().retry_max_times, 3);
        assert_eq!(groups.forbidden("g").unwrap()["T"], 3);
        let file = groups.to_json();
        let mut again = GroupTable::new();
        again.load(&file).unwrap();
        assert_eq!(again.to_json(), file);
        assert!(again.load(b"[").is_err());
        assert!(again.remove("g", NOW) && !again.remove("g", NOW));
        assert!(again.forbidden("g").is_none() && again.get("g").is_none());
    }

    #[test]
    fn a_page_holds_what_belongs_to_its_groups() {
        let mut groups = GroupTable::new();
        groups
            .load(br#"{"forbiddenTable":{"zz":{"T":1}}}"#)
            .unwrap();
        let page: serde_json::Value = serde_json::from_slice(&groups.page(1, 2)).unwrap();
        assert_eq!(page["subscriptionGroupTable"].as_object().unwrap().len(), 2);
        assert!(page["forbiddenTable"].as_object().unwrap().is_empty());
    }
}
