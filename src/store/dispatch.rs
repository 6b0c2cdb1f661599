//! What a record of the log puts into a ConsumeQueue and into the index: a pure
//! function of the record, so that an append and a recovery cannot disagree.

use crate::wire::java_hash::{java_hash, java_hash_on};
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

/// The properties of a record that a store acts on. Of one that is written twice, the
/// last counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acted<'a> {
    tags: Option<&'a [u8]>,
    delay: Option<&'a [u8]>,
    unique_key: Option<&'a [u8]>,
    keys: Option<&'a [u8]>,
}

impl<'a> Acted<'a> {
    /// Found in one walk.
    pub fn of(properties: &'a [u8]) -> Acted<'a> {
        let mut acted = Acted::default();
        for (name, value) in properties::iter(properties) {
            let place = match name {
                b"TAGS" => &mut acted.tags,
                b"DELAY" => &mut acted.delay,
                b"UNIQ_KEY" => &mut acted.unique_key,
                b"KEYS" => &mut acted.keys,
                _ => continue,
            };
            *place = Some(value);
        }
        acted
    }

    /// All keys: the unique key, then each of `KEYS`.
    fn all_keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let words = self.keys.unwrap_or_default().split(|&byte| byte == b' ');
        let words = words.filter(|word| !word.is_empty());
        self.unique_key.into_iter().chain(words)
    }
}

/// The tags code of a record: the hash of its tag, or, for a delayed message,
/// when it is due. (`CommitLog.checkMessageAndReturnSize`)
pub fn tags_code(
    delays: &DelayTable,
    topic: &[u8],
    properties: &Acted<'_>,
    store_timestamp: i64,
) -> i64 {
    if topic == SCHEDULE_TOPIC.as_bytes() {
        if let Some(level) = properties.delay.and_then(level_of) {
            let level = level.min(delays.levels());
            return store_timestamp + delays.delay_ms(level);
        }
    }
    properties.tags.map_or(0, |tag| i64::from(java_hash(tag)))
}

/// The delay level that a message carries, if it is above 0.
pub fn delay_level(properties: &[u8]) -> Option<i32> {
    properties::get(properties, name::DELAY).and_then(level_of)
}

fn level_of(value: &[u8]) -> Option<i32> {
    let level: i32 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (level > 0).then_some(level)
}

/// Hands out the hash of each key that a record is found by, in the order in which
/// they are indexed: its unique key, then each of its `KEYS`. Rolled-back messages
/// have none. (`IndexService.buildIndex`)
pub fn index_keys(topic: &[u8], properties: &Acted<'_>, sys_flag: i32, mut each: impl FnMut(i32)) {
    if sys_flag & sys_flag::ROLLBACK == sys_flag::ROLLBACK {
        return;
    }
    let mut prefix = None;
    for key in properties.all_keys() {
        let prefix = *prefix.get_or_insert_with(|| java_hash_on(java_hash(topic), b"#"));
        each(positive(java_hash_on(prefix, key)));
    }
}

/// The hash that a key of a topic is indexed by. (`IndexFile.indexKeyHashMethod`)
pub fn key_hash(topic: &[u8], key: &[u8]) -> i32 {
    positive(java_hash_on(java_hash_on(java_hash(topic), b"#"), key))
}

/// Whether a message with these properties is found by `key`.
pub fn has_key(properties: &[u8], key: &[u8]) -> bool {
    Acted::of(properties).all_keys().any(|its| its == key)
}

fn positive(hash: i32) -> i32 {
    // What has no positive counterpart counts as 0.
    hash.checked_abs().unwrap_or(0)
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
        let code = |topic: &str, properties: &[u8]| {
            tags_code(&delays, topic.as_bytes(), &Acted::of(properties), 100)
        };
        assert_eq!(code(SCHEDULE_TOPIC, b"DELAY\x012\x02TAGS\x01Aa\x02"), 5100);
        assert_eq!(code(SCHEDULE_TOPIC, b"DELAY\x0199\x02"), 5100);
        assert_eq!(code("T", b"DELAY\x012\x02TAGS\x01Aa\x02"), 2112);
        assert_eq!(code("T", b"KEYS\x01k\x02"), 0);
    }

    fn hashes(properties: &[u8], sys_flag: i32) -> Vec<i32> {
        let mut found = Vec::new();
        index_keys(b"T", &Acted::of(properties), sys_flag, |hash| {
            found.push(hash)
        });
        found
    }

    #[test]
    fn a_message_is_found_by_its_unique_key_and_by_each_of_its_keys() {
        let hash = |key: &str| key_hash(b"T", key.as_bytes());
        let properties = "KEYS\u{1} a  b \u{2}TAGS\u{1}t\u{2}UNIQ_KEY\u{1}u v\u{2}".as_bytes();
        let expected = vec![hash("u v"), hash("a"), hash("b")];
        for state in [0, sys_flag::PREPARED, sys_flag::COMMIT] {
            assert_eq!(hashes(properties, state), expected);
        }
        assert_eq!(hashes(properties, sys_flag::ROLLBACK), Vec::<i32>::new());
        assert_eq!(
            hashes(b"KEYS\x01   \x02TAGS\x01t\x02", 0),
            Vec::<i32>::new()
        );
        assert_eq!(hashes(b"KEYS\x01a\x02KEYS\x01b", 0), vec![hash("b")]);
        assert!(has_key(properties, b"a") && has_key(properties, b"u v"));
        assert!(!has_key(properties, b"u") && !has_key(properties, b"") && !has_key(b"", b""));
    }

    #[test]
    fn hashes_are_those_of_the_joined_text_and_never_negative() {
        assert_eq!(key_hash(b"Topic", b"key"), java_hash(b"Topic#key").abs());
        assert_eq!(
            key_hash("主题".as_bytes(), "键".as_bytes()),
            java_hash("主题#键".as_bytes()).abs()
        );
        assert_eq!((positive(i32::MIN), positive(-7), positive(7)), (0, 7, 7));
    }
}
