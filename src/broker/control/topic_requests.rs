//! Requests about topics: 17, 18, 21, 202, 215, 300, 305, 351.
//!
//! Source of the rules: `AdminBrokerProcessor`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;

use super::Control;
use super::answer::{Answer, body, no_topic, page};
use super::attributes;
use super::settings::ControlSettings;
use super::topics::TopicError;
use super::view::Effects;
use crate::broker::peers::{Peers, QueueInfo};
use crate::wire::body::json::{MessageQueue, null_as_default};
use crate::wire::body::stats::{GroupList, TopicList, TopicOffset, TopicStatsTable, to_body};
use crate::wire::body::topic::{TopicConfig, TopicFilterType};
use crate::wire::command::{Request, Response};
use crate::wire::names::{self, RETRY_PREFIX};

impl From<TopicError> for Response {
    fn from(error: TopicError) -> Response {
        Response::error(error.admin_code(), error.to_string())
    }
}

/// UPDATE_AND_CREATE_TOPIC.
///
/// # Errors
/// The answer, where nothing was changed.
pub fn update(
    control: &mut Control,
    request: &Request,
    settings: &ControlSettings,
    now_ms: u64,
) -> Result<Effects, Response> {
    let changes = attributes::parse(request.get("attributes").unwrap_or_default());
    let config = TopicConfig {
        attributes: changes.map_err(TopicError::Attributes)?,
        order: request.bool_or("order", false)?,
        perm: request.int("perm")?,
        read_queue_nums: request.int("readQueueNums")?,
        topic_filter_type: TopicFilterType::from_name(
            request.get("topicFilterType").unwrap_or_default(),
        ),
        topic_name: request.str("topic")?.to_owned(),
        topic_sys_flag: request.int_or("topicSysFlag", 0)?,
        write_queue_nums: request.int("writeQueueNums")?,
    };
    apply(control, vec![config], settings, now_ms)
}

/// UPDATE_AND_CREATE_TOPIC_LIST: all of it, or nothing.
///
/// # Errors
/// The answer, where nothing was changed.
pub fn update_list(
    control: &mut Control,
    request: &Request,
    settings: &ControlSettings,
    now_ms: u64,
) -> Result<Effects, Response> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Body {
        #[serde(deserialize_with = "null_as_default")]
        topic_config_list: Vec<TopicConfig>,
    }
    let asked: Body = body(request)?;
    apply(control, asked.topic_config_list, settings, now_ms)
}

fn apply(
    control: &mut Control,
    configs: Vec<TopicConfig>,
    settings: &ControlSettings,
    now_ms: u64,
) -> Result<Effects, Response> {
    for config in &configs {
        control.topics.check_update(config.clone(), settings)?;
    }
    let mut effects = Effects::default();
    for config in configs {
        let topic = control.topics.update(config, settings, now_ms)?;
        if topic.changed {
            effects.topics.push(topic.config);
        }
    }
    Ok(effects)
}

/// DELETE_TOPIC_IN_BROKER, with the retry topics that POP made for it. A topic that
/// is not there has its leftovers removed.
pub async fn delete(
    control: &RefCell<Control>,
    peers: &Peers,
    request: &Request,
    now_ms: u64,
) -> Answer {
    let topic = request.str("topic")?;
    let known = control.borrow_mut().topics.remove(topic, now_ms)?.is_some();
    if !known && names::check_topic(topic).is_err() {
        return Ok(Response::ok());
    }
    let groups = peers.groups_of_topic(topic).await;
    peers.drop_topic(topic).await;
    for group in groups {
        for derived in pop_retry_topics(&group, topic) {
            let removed = control.borrow_mut().topics.remove(&derived, now_ms);
            if matches!(removed, Ok(Some(_))) {
                peers.drop_topic(&derived).await;
            }
        }
    }
    tracing::info!("topic {topic} deleted");
    Ok(Response::ok())
}

/// The retry topics that POP makes for a group and a topic, of both its versions.
fn pop_retry_topics(group: &str, topic: &str) -> [String; 2] {
    ['_', '+'].map(|between| format!("{RETRY_PREFIX}{group}{between}{topic}"))
}

/// GET_ALL_TOPIC_CONFIG.
pub fn all(control: &Control, request: &Request) -> Answer {
    let topics = &control.topics;
    let (first, count) = page(request, "topicSeq", "maxTopicNum", topics.version())?;
    Ok(Response::body(topics.page(first, count)).with("totalTopicNum", topics.len()))
}

/// GET_TOPIC_CONFIG.
pub fn get(control: &Control, request: &Request) -> Answer {
    let topic = request.str("topic")?;
    match control.topics.get(topic) {
        Some(config) => Ok(Response::body(to_body(&**config))),
        None => no_topic(topic),
    }
}

/// GET_SYSTEM_TOPIC_LIST_FROM_BROKER.
pub fn system_list(control: &Control) -> Answer {
    let answer = TopicList {
        broker_addr: None,
        topic_list: control.topics.system_topics(),
    };
    Ok(Response::body(to_body(&answer)))
}

/// GET_TOPIC_STATS_INFO.
pub async fn stats(
    control: &RefCell<Control>,
    peers: &Peers,
    request: &Request,
    settings: &ControlSettings,
) -> Answer {
    let topic = request.str("topic")?;
    let config = control.borrow().topics.get(topic).map(Arc::clone);
    let Some(config) = config else {
        return no_topic(topic);
    };
    let queues = peers.queues(topic).await;
    let table = stats_table(&config, &queues, settings);
    Ok(Response::body(table.to_json()))
}

fn stats_table(
    config: &TopicConfig,
    queues: &[QueueInfo],
    settings: &ControlSettings,
) -> TopicStatsTable {
    let by_id: HashMap<i32, &QueueInfo> = queues.iter().map(|info| (info.queue, info)).collect();
    let mut table = TopicStatsTable::default();
    for queue_id in 0..config.read_queue_nums.max(config.write_queue_nums) {
        let info = by_id.get(&queue_id);
        let offset = info.map_or_else(TopicOffset::default, |info| TopicOffset {
            last_update_timestamp: info.last_timestamp,
            max_offset: info.max.max(0),
            min_offset: info.min.max(0),
        });
        let queue = MessageQueue {
            broker_name: settings.broker_name.clone(),
            queue_id,
            topic: config.topic_name.clone(),
        };
        table.offset_table.insert(queue, offset);
    }
    table
}

/// QUERY_TOPIC_CONSUME_BY_WHO: groups that are connected or have been.
pub async fn consumed_by(control: &RefCell<Control>, peers: &Peers, request: &Request) -> Answer {
    let topic = request.str("topic")?;
    let offline = peers.groups_of_topic(topic).await;
    let control = control.borrow();
    let live = control.clients.groups_of_topic(topic);
    let mut group_list: Vec<&str> = offline.iter().map(String::as_str).chain(live).collect();
    group_list.sort_unstable();
    group_list.dedup();
    Ok(Response::body(to_body(&GroupList { group_list })))
}

#[cfg(test)]
mod tests;
