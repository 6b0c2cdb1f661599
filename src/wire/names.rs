//! Names of topics and groups: what they may be made of, and the ones that mean
//! something to every broker.
//!
//! Source of the rules: `TopicValidator`, `MixAll`, `KeyBuilder`.

use std::fmt;

/// Most bytes in the name of an ordinary topic.
pub const TOPIC_BYTES_MAX: usize = 127;
/// Most bytes in the name of a retry or dead letter topic, prefix included.
pub const DERIVED_TOPIC_BYTES_MAX: usize = 255;
/// Most bytes in the name of a group. Its retry topic then fits in the one
/// length byte of a first-version message record.
pub const GROUP_BYTES_MAX: usize = 120;

/// Prefix of the topic that holds what a group failed to consume.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of the topic that holds what a group has given up on.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Prefix of topics that are the broker's own.
pub const SYSTEM_PREFIX: &str = "rmq_sys_";

/// The template of automatically created topics.
pub const AUTO_CREATE_TOPIC: &str = "TBW102";
/// The topic that delayed messages wait in, one queue a level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// The topic of RocketMQ's own benchmark programs.
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// The topic that prepared messages of transactions wait in.
pub const TRANS_HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// The topic that records which prepared messages are settled.
pub const TRANS_OP_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// The topic of clients' message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// A topic for the broker's check of itself.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// A topic of events about offsets that moved.
pub const OFFSET_MOVED_TOPIC: &str = "OFFSET_MOVED_EVENT";
/// The topic of prepared messages that were asked about too often.
pub const TRANS_CHECK_MAX_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";

/// Consumer groups that every broker makes for itself and its tools
/// (`SubscriptionGroupManager.init`).
pub const SYSTEM_GROUPS: [&str; 8] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
];

/// System topics that every broker has in common; see [`is_system_topic`].
pub const SYSTEM_TOPICS: [&str; 10] = [
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    TRANS_HALF_TOPIC,
    TRACE_TOPIC,
    TRANS_OP_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
    "CHECKPOINT_TOPIC",
];

/// System topics that a client may not send to.
const NOT_FOR_SENDING: [&str; 6] = [
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
];

/// Whether the topic belongs to brokers in general. A broker has a few more of
/// its own, named after itself and its cluster.
pub fn is_system_topic(topic: &str) -> bool {
    SYSTEM_TOPICS.contains(&topic) || topic.starts_with(SYSTEM_PREFIX)
}

/// Whether the topic is one that clients may not send to
/// (`TopicValidator.isNotAllowedSendTopic`).
pub fn is_closed_to_senders(topic: &str) -> bool {
    NOT_FOR_SENDING.contains(&topic)
}

/// The retry topic of a group.
pub fn retry_topic(group: &str) -> String {
    [RETRY_PREFIX, group].concat()
}

/// The dead letter topic of a group.
pub fn dlq_topic(group: &str) -> String {
    [DLQ_PREFIX, group].concat()
}

/// What a name is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A topic.
    Topic,
    /// A producer or consumer group.
    Group,
}

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFault {
    /// Nothing but white space.
    Blank,
    /// A character that names may not have.
    Character {
        /// The character.
        character: char,
        /// Its offset in bytes.
        at: usize,
    },
    /// Longer than the limit.
    TooLong {
        /// Length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
}

/// Why a name is refused. The name itself is not repeated: it may be long, or
/// made to confuse a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameError {
    /// What the name is for.
    pub kind: NameKind,
    /// What is wrong with it.
    pub fault: NameFault,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            NameKind::Topic => "topic",
            NameKind::Group => "group",
        };
        match self.fault {
            NameFault::Blank => write!(f, "the specified {kind} is blank"),
            NameFault::Character { character, at } => write!(
                f,
                "the specified {kind} contains the illegal character {character:?} at byte {at}, \
                 allowing only ^[%|a-zA-Z0-9_-]+$"
            ),
            NameFault::TooLong { len, max } => write!(
                f,
                "the specified {kind} has {len} bytes, which is longer than {kind} max length {max}"
            ),
        }
    }
}

impl std::error::Error for NameError {}

/// Checks the name of a topic: [`TOPIC_BYTES_MAX`] bytes, or
/// [`DERIVED_TOPIC_BYTES_MAX`] for retry and dead letter topics. A retry topic may
/// also have a `+`, which stands between group and topic in those of POP groups.
///
/// # Errors
/// The first fault found.
pub fn check_topic(topic: &str) -> Result<(), NameError> {
    let retry = topic.starts_with(RETRY_PREFIX);
    let max = if retry || topic.starts_with(DLQ_PREFIX) {
        DERIVED_TOPIC_BYTES_MAX
    } else {
        TOPIC_BYTES_MAX
    };
    check(NameKind::Topic, topic, max, retry)
}

/// Checks the name of a group: [`GROUP_BYTES_MAX`] bytes.
///
/// # Errors
/// The first fault found.
pub fn check_group(group: &str) -> Result<(), NameError> {
    check(NameKind::Group, group, GROUP_BYTES_MAX, false)
}

fn check(kind: NameKind, name: &str, max: usize, plus: bool) -> Result<(), NameError> {
    let fault = if name.trim().is_empty() {
        NameFault::Blank
    } else if name.len() > max {
        let len = name.len();
        NameFault::TooLong { len, max }
    } else {
        let allowed = |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '_' | '-') || (plus && c == '+')
        };
        match name.char_indices().find(|&(_, c)| !allowed(c)) {
            None => return Ok(()),
            Some((at, character)) => NameFault::Character { character, at },
        }
    };
    Err(NameError { kind, fault })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_control_characters_are_no_names() {
        for name in [
            "../../../fuzz2019",
            "a/b",
            "a.b",
            "a\0b",
            "a b",
            "tópico",
            "a@b",
            "+a",
        ] {
            assert!(check_topic(name).is_err(), "{name:?}");
            assert!(check_group(name).is_err(), "{name:?}");
        }
        assert_eq!(check_topic(" ").unwrap_err().fault, NameFault::Blank);
        assert_eq!(check_group("").unwrap_err().fault, NameFault::Blank);
        let refused = check_topic("a/b").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the specified topic contains the illegal character '/' at byte 1, \
             allowing only ^[%|a-zA-Z0-9_-]+$"
        );
    }

    #[test]
    fn limits_are_named() {
        assert!(check_topic(&"t".repeat(127)).is_ok());
        let refused = check_topic(&"t".repeat(10_000)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the specified topic has 10000 bytes, which is longer than topic max length 127"
        );
        assert!(check_group(&"g".repeat(121)).is_err());
    }

    #[test]
    fn every_group_has_valid_derived_topics() {
        let group = "g".repeat(GROUP_BYTES_MAX);
        assert!(check_group(&group).is_ok());
        assert!(check_topic(&retry_topic(&group)).is_ok());
        assert!(check_topic(&dlq_topic(&group)).is_ok());
        assert!(check_topic(&retry_topic("group+topic")).is_ok());
        assert!(check_topic("group+topic").is_err());
    }

    #[test]
    fn system_topics_are_known() {
        assert!(is_system_topic("TBW102"));
        assert!(is_system_topic("rmq_sys_wheel_timer"));
        assert!(!is_system_topic("orders"));
        assert!(is_closed_to_senders(SCHEDULE_TOPIC));
        assert!(!is_closed_to_senders(BENCHMARK_TOPIC));
    }
}
