//! The topics of the broker: settings of each, and the edition of the whole.
//!
//! Owned by the control shard; other shards have copies of single settings, which
//! are replaced and never changed. Source of the rules: `TopicConfigManager`,
//! `AdminBrokerProcessor`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::attributes::{self, AttributeError};
use super::boot;
use super::limits::{QUEUES_PER_TOPIC_MAX, TOPICS_MAX};
use super::settings::ControlSettings;
use crate::wire::body::json::{self, JsonError};
use crate::wire::body::topic::{DataVersion, TopicConfig, TopicConfigWrapper, perm};
use crate::wire::codes::response;
use crate::wire::names::{self, NameError};

/// Bit of a topic's system flag: the topic belongs to a unit.
pub const SYS_FLAG_UNIT: i32 = 1;
/// Bit of a topic's system flag: a group that reads the topic belongs to a unit.
pub const SYS_FLAG_UNIT_SUB: i32 = 2;

/// Why a topic is not created, changed or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicError {
    /// The name is not one.
    Name(NameError),
    /// The topic is the broker's own.
    System,
    /// [`TOPICS_MAX`] is reached.
    TooMany,
    /// The number of queues is not within `0..=`[`QUEUES_PER_TOPIC_MAX`].
    Queues(i32),
    /// The permission has bits that mean nothing.
    Perm(i32),
    /// The attributes cannot be as asked.
    Attributes(AttributeError),
    /// Messages of all types are not enabled.
    Mixed,
    /// `autoCreateTopicEnable` is off.
    AutoCreateOff,
    /// The topic to take settings from does not exist.
    NoTemplate,
    /// The topic to take settings from does not pass them on.
    NotInherited,
}

impl TopicError {
    /// The code of the answer to an administrator.
    pub fn admin_code(&self) -> i32 {
        match self {
            TopicError::TooMany | TopicError::Attributes(_) => response::SYSTEM_ERROR,
            _ => response::INVALID_PARAMETER,
        }
    }
}

impl fmt::Display for TopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicError::Name(error) => error.fmt(f),
            TopicError::System => f.write_str("the topic is conflict with system topic"),
            TopicError::TooMany => write!(f, "the broker has {TOPICS_MAX} topics, the most it can"),
            TopicError::Queues(queues) => {
                write!(
                    f,
                    "{queues} queues are not within 0..={QUEUES_PER_TOPIC_MAX}"
                )
            }
            TopicError::Perm(perm) => write!(f, "permission {perm} is not within 0..=15"),
            TopicError::Attributes(error) => error.fmt(f),
            TopicError::Mixed => f.write_str("MIXED message type is not supported"),
            TopicError::AutoCreateOff => f.write_str(
                "the topic does not exist and is not created, as autoCreateTopicEnable is false",
            ),
            TopicError::NoTemplate => f.write_str(
                "the topic does not exist and is not created, as the default topic does not exist",
            ),
            TopicError::NotInherited => f.write_str(
                "the topic does not exist and is not created, as the default topic may not be \
                 inherited from",
            ),
        }
    }
}

impl std::error::Error for TopicError {}

impl From<NameError> for TopicError {
    fn from(error: NameError) -> TopicError {
        TopicError::Name(error)
    }
}

/// A topic as it is after a request for it.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its settings.
    pub config: Arc<TopicConfig>,
    /// Whether the request made or changed it: shards and nameservers must be told.
    pub changed: bool,
}

/// All topics of the broker.
#[derive(Debug)]
pub struct TopicTable {
    configs: BTreeMap<String, Arc<TopicConfig>>,
    version: DataVersion,
    dirty: bool,
    /// System topics with names of this broker's own.
    own: [String; 3],
}

impl TopicTable {
    /// The topics that a broker with these settings has from the start.
    pub fn new(settings: &ControlSettings) -> TopicTable {
        let boot = boot::topics(settings).into_iter();
        TopicTable {
            configs: boot.map(|c| (c.topic_name.clone(), Arc::new(c))).collect(),
            version: DataVersion::default(),
            dirty: false,
            own: [
                settings.cluster_name.clone(),
                settings.broker_name.clone(),
                boot::reply_topic(&settings.cluster_name),
            ],
        }
    }

    /// Adds what a `topics.json` holds. Topics of [`TopicTable::new`] keep their
    /// settings, but no queue that the file has is taken away. The template of
    /// automatically created topics comes from the settings alone.
    ///
    /// # Errors
    /// The text is not such a file; the table is unchanged.
    pub fn load(&mut self, text: &[u8]) -> Result<(), JsonError> {
        let file: TopicConfigWrapper = json::parse(text)?;
        for (name, mut config) in file.topic_config_table {
            if name == names::AUTO_CREATE_TOPIC || name.is_empty() {
                continue;
            }
            config.topic_name.clone_from(&name);
            if let Some(boot) = self.configs.get(&name) {
                config = TopicConfig {
                    read_queue_nums: config.read_queue_nums.max(boot.read_queue_nums),
                    write_queue_nums: config.write_queue_nums.max(boot.write_queue_nums),
                    ..TopicConfig::clone(boot)
                };
            }
            self.configs.insert(name, Arc::new(config));
        }
        self.version = file.data_version;
        Ok(())
    }

    /// The settings of a topic.
    pub fn get(&self, topic: &str) -> Option<&Arc<TopicConfig>> {
        self.configs.get(topic)
    }

    /// All topics by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicConfig>> {
        self.configs.values()
    }

    /// Number of topics.
    pub fn len(&self) -> usize {
        self.configs.len()
    }

    /// Whether there is no topic.
    pub fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }

    /// The edition of the table.
    pub fn version(&self) -> DataVersion {
        self.version
    }

    /// Whether the table changed since the last call: `topics.json` must be written.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// The file could not be written: it must be tried again.
    pub fn set_dirty(&mut self) {
        self.dirty = true;
    }

    /// Whether the topic is the broker's own and closed to administrators.
    pub fn is_system(&self, topic: &str) -> bool {
        names::is_system_topic(topic) || self.own.iter().any(|own| own == topic)
    }

    /// Names of all system topics.
    pub fn system_topics(&self) -> Vec<&str> {
        let mut all: Vec<&str> = names::SYSTEM_TOPICS.to_vec();
        let present = self.configs.keys().map(String::as_str);
        all.extend(present.filter(|topic| self.is_system(topic)));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The topic of a message that was sent. Where it is not there, it is made
    /// after the example of `template` with at most `queues` queues
    /// (`createTopicInSendMessageMethod`).
    ///
    /// `autoCreateTopicEnable` counts for every template: a client that names the
    /// cluster instead of `TBW102` gets no further.
    ///
    /// # Errors
    /// Why the topic is not made: code 17 of a send.
    pub fn get_or_create(
        &mut self,
        topic: &str,
        template: &str,
        queues: i32,
        sys_flag: i32,
        settings: &ControlSettings,
        now_ms: u64,
    ) -> Result<Topic, TopicError> {
        if let Some(config) = self.configs.get(topic) {
            let config = Arc::clone(config);
            return Ok(Topic {
                config,
                changed: false,
            });
        }
        if !settings.auto_create_topic {
            return Err(TopicError::AutoCreateOff);
        }
        names::check_topic(topic)?;
        if self.is_system(topic) {
            return Err(TopicError::System);
        }
        let template = self.configs.get(template).ok_or(TopicError::NoTemplate)?;
        if !perm::is_inherited(template.perm) {
            return Err(TopicError::NotInherited);
        }
        let queues = queues.min(template.write_queue_nums).max(0);
        let config = TopicConfig {
            topic_sys_flag: sys_flag,
            topic_filter_type: template.topic_filter_type,
            ..TopicConfig::new(topic, queues, template.perm & !perm::INHERIT)
        };
        self.put(config, now_ms)
    }

    /// The topic named in `config`, made as `config` says where it is not there.
    /// For retry and dead letter topics, which exist whenever a group needs them
    /// (`createTopicInSendMessageBackMethod`).
    ///
    /// # Errors
    /// [`TopicError::Name`], [`TopicError::Queues`], [`TopicError::TooMany`].
    pub fn ensure(&mut self, config: TopicConfig, now_ms: u64) -> Result<Topic, TopicError> {
        if let Some(config) = self.configs.get(&config.topic_name) {
            let config = Arc::clone(config);
            return Ok(Topic {
                config,
                changed: false,
            });
        }
        names::check_topic(&config.topic_name)?;
        check_queues(&config)?;
        self.put(config, now_ms)
    }

    /// Creates or changes a topic for an administrator. The attributes of `config`
    /// are changes, with signs; see [`attributes::parse`]. Settings that are what
    /// they were have no effect.
    ///
    /// # Errors
    /// See [`TopicError::admin_code`].
    pub fn update(
        &mut self,
        config: TopicConfig,
        settings: &ControlSettings,
        now_ms: u64,
    ) -> Result<Topic, TopicError> {
        let config = self.check_update(config, settings)?;
        match self.configs.get(&config.topic_name) {
            Some(current) if **current == config => {
                let config = Arc::clone(current);
                Ok(Topic {
                    config,
                    changed: false,
                })
            }
            _ => self.put(config, now_ms),
        }
    }

    /// What [`TopicTable::update`] would make of the topic, without making it.
    ///
    /// # Errors
    /// As of [`TopicTable::update`].
    pub fn check_update(
        &self,
        mut config: TopicConfig,
        settings: &ControlSettings,
    ) -> Result<TopicConfig, TopicError> {
        names::check_topic(&config.topic_name)?;
        if self.is_system(&config.topic_name) {
            return Err(TopicError::System);
        }
        check_queues(&config)?;
        if !(0..=15).contains(&config.perm) {
            return Err(TopicError::Perm(config.perm));
        }
        let mixed = ["+", attributes::MESSAGE_TYPE].concat();
        if !settings.mixed_message_type
            && config
                .attributes
                .get(&mixed)
                .is_some_and(|v| v == attributes::MIXED)
        {
            return Err(TopicError::Mixed);
        }
        let current = self.configs.get(&config.topic_name);
        let current = current.map(|current| &current.attributes);
        config.attributes =
            attributes::alter_topic(current, &config.attributes).map_err(TopicError::Attributes)?;
        Ok(config)
    }

    /// Removes a topic; `None` where there is none of this name.
    ///
    /// # Errors
    /// [`TopicError::System`], [`TopicError::Name`] for a blank name.
    pub fn remove(
        &mut self,
        topic: &str,
        now_ms: u64,
    ) -> Result<Option<Arc<TopicConfig>>, TopicError> {
        if topic.trim().is_empty() {
            names::check_topic(topic)?;
        }
        if self.is_system(topic) {
            return Err(TopicError::System);
        }
        let removed = self.configs.remove(topic);
        if removed.is_some() {
            self.changed(now_ms);
        }
        Ok(removed)
    }

    /// Makes the template of automatically created topics what the settings say,
    /// after they changed. Returns it if it must be told to shards and nameservers;
    /// one that is no longer to be used stays without the permission to inherit,
    /// as nameservers keep what they were told.
    pub fn apply_auto_create(
        &mut self,
        settings: &ControlSettings,
        now_ms: u64,
    ) -> Option<Arc<TopicConfig>> {
        let mut wanted = boot::auto_create_template(settings);
        let current = self.configs.get(names::AUTO_CREATE_TOPIC);
        if !settings.auto_create_topic {
            current?;
            wanted.perm &= !perm::INHERIT;
        }
        if current.is_some_and(|current| **current == wanted) {
            return None;
        }
        let config = Arc::new(wanted);
        self.configs
            .insert(config.topic_name.clone(), Arc::clone(&config));
        self.changed(now_ms);
        Some(config)
    }

    fn put(&mut self, config: TopicConfig, now_ms: u64) -> Result<Topic, TopicError> {
        if self.configs.len() >= TOPICS_MAX && !self.configs.contains_key(&config.topic_name) {
            return Err(TopicError::TooMany);
        }
        let config = Arc::new(config);
        self.configs
            .insert(config.topic_name.clone(), Arc::clone(&config));
        self.changed(now_ms);
        Ok(Topic {
            config,
            changed: true,
        })
    }

    fn changed(&mut self, now_ms: u64) {
        self.version.next(now_ms);
        self.dirty = true;
    }

    /// The table as `topics.json`, and as the body of a registration.
    pub fn to_json(&self) -> Vec<u8> {
        self.encode(self.version, self.configs.iter(), false)
    }

    /// The table as the answer to GET_ALL_TOPIC_CONFIG
    /// (`TopicConfigAndMappingSerializeWrapper`): `count` topics from the `first` on.
    pub fn page(&self, first: usize, count: usize) -> Vec<u8> {
        self.encode(
            self.version,
            self.configs.iter().skip(first).take(count),
            true,
        )
    }

    fn encode<'a>(
        &self,
        data_version: DataVersion,
        topics: impl Iterator<Item = (&'a String, &'a Arc<TopicConfig>)>,
        mapping: bool,
    ) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Page<'a> {
            data_version: DataVersion,
            #[serde(skip_serializing_if = "Option::is_none")]
            mapping_data_version: Option<DataVersion>,
            topic_config_table: BTreeMap<&'a str, &'a TopicConfig>,
            #[serde(skip_serializing_if = "Option::is_none")]
            topic_queue_mapping_detail_map: Option<BTreeMap<&'a str, ()>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            topic_queue_mapping_info_map: Option<BTreeMap<&'a str, ()>>,
        }
        let page = Page {
            data_version,
            mapping_data_version: mapping.then(DataVersion::default),
            topic_config_table: topics.map(|(k, v)| (k.as_str(), &**v)).collect(),
            topic_queue_mapping_detail_map: mapping.then(BTreeMap::new),
            topic_queue_mapping_info_map: mapping.then(BTreeMap::new),
        };
        let mut out = String::new();
        json::write_value(&mut out, &page);
        out.into_bytes()
    }
}

fn check_queues(config: &TopicConfig) -> Result<(), TopicError> {
    for queues in [config.read_queue_nums, config.write_queue_nums] {
        if !(0..=QUEUES_PER_TOPIC_MAX).contains(&queues) {
            return Err(TopicError::Queues(queues));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
