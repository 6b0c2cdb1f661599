//! Attributes of topics and groups, and requests to change them.
//!
//! Source of the rules: `AttributeParser`, `AttributeUtil`, `TopicAttributes`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The attribute that says which type of messages a topic is for.
pub const MESSAGE_TYPE: &str = "message.type";
/// The value of [`MESSAGE_TYPE`] that stands for all types.
pub const MIXED: &str = "MIXED";

/// The attribute that says for how many hours messages of a topic are kept; 0 and below
/// stand for `fileReservedTime`.
pub const RESERVE_TIME: &str = "reserve.time";
/// Most hours of [`RESERVE_TIME`].
const RESERVE_HOURS_MAX: i64 = 1_000_000;

/// Hours that messages of a topic with these attributes are kept; `None`: as all others.
pub fn reserve_hours(attributes: &BTreeMap<String, String>) -> Option<u64> {
    let hours = attributes.get(RESERVE_TIME)?.parse().ok()?;
    (1..=RESERVE_HOURS_MAX as u64)
        .contains(&hours)
        .then_some(hours)
}

/// Values of an attribute.
#[derive(Clone, Copy)]
enum Values {
    OneOf(&'static [&'static str]),
    /// A number within both bounds.
    Number(i64, i64),
}

impl Values {
    fn allow(self, value: &str) -> bool {
        match self {
            Values::OneOf(values) => values.contains(&value),
            Values::Number(min, max) => value.parse().is_ok_and(|n: i64| (min..=max).contains(&n)),
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::OneOf(values) => write!(f, "one of {values:?}"),
            Values::Number(min, max) => write!(f, "a number from {min} to {max}"),
        }
    }
}

/// What an attribute may be.
struct Attribute {
    name: &'static str,
    values: Values,
    /// Whether it may change after the topic was made.
    changeable: bool,
}

/// RocketMQ also knows batch queues and compaction; promising them without doing them
/// would lose messages.
const TOPIC_ATTRIBUTES: [Attribute; 4] = [
    Attribute {
        name: "queue.type",
        values: Values::OneOf(&["SimpleCQ"]),
        changeable: false,
    },
    Attribute {
        name: "cleanup.policy",
        values: Values::OneOf(&["DELETE"]),
        changeable: false,
    },
    Attribute {
        name: MESSAGE_TYPE,
        values: Values::OneOf(&[
            "UNSPECIFIED",
            "NORMAL",
            "FIFO",
            "DELAY",
            "TRANSACTION",
            MIXED,
        ]),
        changeable: true,
    },
    Attribute {
        name: RESERVE_TIME,
        values: Values::Number(-1, RESERVE_HOURS_MAX),
        changeable: true,
    },
];

/// Why attributes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeError(String);

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AttributeError {}

fn refuse<T>(what: impl Into<String>) -> Result<T, AttributeError> {
    Err(AttributeError(what.into()))
}

/// Reads a request to change attributes, `+name=value,-name`: the names keep their signs.
///
/// # Errors
/// A sign is missing or a name is there twice.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, AttributeError> {
    let mut changes = BTreeMap::new();
    for change in text.split(',').filter(|change| !change.is_empty()) {
        let (name, value) = change.split_once('=').unwrap_or((change, ""));
        let sign = if change.contains('=') { '+' } else { '-' };
        if !name.starts_with(sign) {
            return refuse(format!(
                "attribute {change:?} is neither \"+name=value\" nor \"-name\""
            ));
        }
        if changes.insert(name.to_owned(), value.to_owned()).is_some() {
            return refuse(format!("attribute {name:?} is changed twice"));
        }
    }
    Ok(changes)
}

/// The attributes of a topic after `changes`; `current` is `None` for a new topic.
///
/// # Errors
/// An attribute or a value is unknown, may not change, or is removed without being there.
pub fn alter_topic(
    current: Option<&BTreeMap<String, String>>,
    changes: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, AttributeError> {
    let mut after = current.cloned().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for (signed, value) in changes {
        let (sign, name) = if let Some(name) = signed.strip_prefix('+') {
            ('+', name)
        } else if let Some(name) = signed.strip_prefix('-') {
            ('-', name)
        } else {
            return refuse(format!("attribute {signed:?} has no sign"));
        };
        if !seen.insert(name) {
            return refuse(format!("attribute {name:?} is changed twice"));
        }
        let Some(attribute) = TOPIC_ATTRIBUTES.iter().find(|known| known.name == name) else {
            return refuse(format!("attribute {name:?} is not supported"));
        };
        if current.is_some() && !attribute.changeable {
            return refuse(format!("attribute {name:?} cannot change"));
        }
        if sign == '-' {
            if after.remove(name).is_none() {
                return refuse(format!("attribute {name:?} is not there to be removed"));
            }
        } else if attribute.values.allow(value) {
            after.insert(name.to_owned(), value.clone());
        } else {
            return refuse(format!(
                "attribute {name:?} cannot be {value:?}, only {}",
                attribute.values
            ));
        }
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(current: Option<&str>, changes: &str) -> Result<String, String> {
        let current = current.map(|text| {
            let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
            pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
        });
        let after = parse(changes).and_then(|changes| alter_topic(current.as_ref(), &changes));
        let after = after.map_err(|error| error.to_string())?;
        let pairs: Vec<_> = after.iter().map(|(k, v)| format!("{k}={v}")).collect();
        Ok(pairs.join(","))
    }

    #[test]
    fn attributes_are_added_changed_and_removed() {
        assert_eq!(change(None, "").unwrap(), "");
        let made = change(None, "+message.type=FIFO,+queue.type=SimpleCQ").unwrap();
        assert_eq!(made, "message.type=FIFO,queue.type=SimpleCQ");
        assert_eq!(
            change(Some(&made), "-message.type").unwrap(),
            "queue.type=SimpleCQ"
        );
        assert_eq!(
            change(Some("message.type=FIFO"), "+message.type=DELAY").unwrap(),
            "message.type=DELAY"
        );
    }

    #[test]
    fn a_topic_may_have_a_time_of_its_own() {
        let hours = |value: &str| {
            let made = change(None, &format!("+reserve.time={value}")).unwrap();
            let pairs = made.split(',').filter_map(|pair| pair.split_once('='));
            reserve_hours(&pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
        };
        assert_eq!(
            (hours("24"), hours("0"), hours("-1")),
            (Some(24), None, None)
        );
        assert_eq!(reserve_hours(&BTreeMap::new()), None);
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        for (current, changes, what) in [
            (None, "message.type=FIFO", "neither"),
            (None, "message.type", "neither"),
            (None, "+message.type=BLUE", "only one of"),
            (None, "+colour=blue", "not supported"),
            (None, "+queue.type=BatchCQ", "only one of"),
            (None, "+reserve.time=-2", "only a number from -1 to"),
            (None, "+reserve.time=1h", "only a number"),
            (None, "-message.type", "not there"),
            (None, "+message.type=FIFO,+message.type=DELAY", "twice"),
            (
                Some("message.type=FIFO"),
                "+message.type=DELAY,-message.type",
                "twice",
            ),
            (Some("queue.type=SimpleCQ"), "-queue.type", "cannot change"),
        ] {
            let refused = change(current, changes).unwrap_err();
            assert!(refused.contains(what), "{changes}: {refused}");
        }
    }
}
