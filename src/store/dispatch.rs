//! What a record of the log puts into a ConsumeQueue: a pure function of the
//! record, so that an append and a recovery cannot disagree.

use crate::wire::java_hash::java_hash;
use crate::wire::message::sys_flag;
use crate::wire::names::SCHEDULE_TOPIC;
use crate::wire::properties::{self, name};

/// Delay of each level in ms; level 1 is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayTable(pub Vec<i64>);

impl DelayTable {
    /// The delay of a level, ms; 1 s for a level that is not there.
    /// (`ScheduleMessageService.computeDeliverTimestamp`)
    pub fn delay_ms(&self, level: i32) -> i64 {
        usize::try_from(level)
            .ok()
            .and_then(|level| self.0.get(level.checked_sub(1)?))
            .copied()
            .unwrap_or(1000)
    }

    /// Number of levels.
    pub fn levels(&self) -> i32 {
        self.0.len() as i32
    }
}

/// The tags code of a record: the hash of its tag, or, for a delayed message,
/// when it is due. (`CommitLog.checkMessageAndReturnSize`)
pub fn tags_code(
    delays: &DelayTable,
    topic: &[u8],
    properties: &[u8],
    store_timestamp: i64,
) -> i64 {
    if topic == SCHEDULE_TOPIC.as_bytes() {
        if let Some(level) = delay_level(properties) {
            let level = level.min(delays.levels());
            return store_timestamp + delays.delay_ms(level);
        }
    }
    properties::get(properties, name::TAGS).map_or(0, |tag| i64::from(java_hash(tag)))
}

/// The delay level that a message carries, if it is above 0.
pub fn delay_level(properties: &[u8]) -> Option<i32> {
    let value = properties::get(properties, name::DELAY)?;
    let level: i32 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (level > 0).then_some(level)
}

/// Whether a record has an entry in its queue: prepared and rolled-back
/// messages do not.
pub fn is_queued(sys_flag: i32) -> bool {
    matches!(sys_flag & sys_flag::ROLLBACK, 0 | sys_flag::COMMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delayed_message_is_filed_under_its_due_time() {
        let delays = DelayTable(vec![1000, 5000]);
        let code =
            |topic: &str, properties: &[u8]| tags_code(&delays, topic.as_bytes(), properties, 100);
        assert_eq!(code(SCHEDULE_TOPIC, b"DELAY\x012\x02TAGS\x01Aa\x02"), 5100);
        assert_eq!(code(SCHEDULE_TOPIC, b"DELAY\x0199\x02"), 5100);
        assert_eq!(code("T", b"DELAY\x012\x02TAGS\x01Aa\x02"), 2112);
        assert_eq!(code("T", b"KEYS\x01k\x02"), 0);
    }
}
