//! Topics that exist before anybody creates one.
//!
//! Source of the list: `TopicConfigManager.init`.

use super::settings::ControlSettings;
use crate::wire::body::topic::{TopicConfig, perm};
use crate::wire::names;

const READ_WRITE: i32 = perm::READ | perm::WRITE;

/// The topic for replies of the request-reply pattern.
pub fn reply_topic(cluster: &str) -> String {
    format!("{cluster}_REPLY_TOPIC")
}

/// The template of automatically created topics.
pub fn auto_create_template(settings: &ControlSettings) -> TopicConfig {
    TopicConfig::new(
        names::AUTO_CREATE_TOPIC,
        settings.default_topic_queue_nums,
        READ_WRITE | perm::INHERIT,
    )
}

/// Topics that a broker with these settings has.
pub fn topics(settings: &ControlSettings) -> Vec<TopicConfig> {
    let inherit = |enabled| perm::INHERIT | if enabled { READ_WRITE } else { 0 };
    let (cluster, broker) = (&settings.cluster_name, &settings.broker_name);
    let revive = format!("{}REVIVE_LOG_{cluster}", names::SYSTEM_PREFIX);
    let members = format!("{}SYNC_BROKER_MEMBER_{broker}", names::SYSTEM_PREFIX);
    let timer = format!("{}wheel_timer", names::SYSTEM_PREFIX);
    let reply = reply_topic(cluster);
    let topic = |name: &str, queues, perm| TopicConfig::new(name, queues, perm);
    let mut topics = vec![
        topic(names::SELF_TEST_TOPIC, 1, READ_WRITE),
        topic(names::BENCHMARK_TOPIC, 1024, READ_WRITE),
        topic(cluster, 16, inherit(settings.cluster_topic)),
        topic(broker, 1, inherit(settings.broker_topic)),
        topic(names::OFFSET_MOVED_TOPIC, 1, READ_WRITE),
        topic(names::SCHEDULE_TOPIC, settings.delay_levels, READ_WRITE),
        topic(&reply, 1, READ_WRITE),
        topic(&revive, settings.revive_queue_nums, READ_WRITE),
        topic(&members, 1, perm::INHERIT),
        topic(names::TRANS_HALF_TOPIC, 1, READ_WRITE),
        topic(names::TRANS_OP_TOPIC, 1, READ_WRITE),
    ];
    if settings.auto_create_topic {
        topics.push(auto_create_template(settings));
    }
    if settings.trace_topic {
        topics.push(topic(names::TRACE_TOPIC, 1, READ_WRITE));
    }
    if settings.timer_wheel {
        topics.push(topic(&timer, 1, READ_WRITE));
    }
    topics
}
