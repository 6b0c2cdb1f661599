//! Attributes of topics and groups, and requests to change them.
//!
//! Source of the rules: `AttributeParser`, `AttributeUtil`, `TopicAttributes`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The attribute that says which type of messages a topic is for.
pub const MESSAGE_TYPE: &str = "message.type";
/// The value of [`MESSAGE_TYPE`] that stands for all types.
pub const MIXED: &str = "MIXED";

/// What an attribute may be.
struct Attribute {
    name: &'static str,
    values: &'static [&'static str],
    /// Whether it may change after the topic was made.
    changeable: bool,
}

/// RocketMQ also knows batch queues, compaction and a time to keep messages for;
/// promising them without doing them would lose messages.
const TOPIC_ATTRIBUTES: [Attribute; 3] = [
    Attribute {
        name: "queue.type",
        values: &["SimpleCQ"],
        changeable: false,
    },
    Attribute {
        name: "cleanup.policy",
        values: &["DELETE"],
        changeable: false,
    },
    Attribute {
        name: MESSAGE_TYPE,
        values: &[
            "UNSPECIFIED",
            "NORMAL",
            "FIFO",
            "DELAY",
            "TRANSACTION",
            MIXED,
        ],
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
        } else if attribute.values.contains(&value.as_str()) {
            after.insert(name.to_owned(), value.clone());
        } else {
            return refuse(format!(
                "attribute {name:?} cannot be {value:?}, only one of {:?}",
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
    fn what_cannot_be_done_is_refused_by_name() {
        for (current, changes, what) in [
            (None, "message.type=FIFO", "neither"),
            (None, "message.type", "neither"),
            (None, "+message.type=BLUE", "only one of"),
            (None, "+colour=blue", "not supported"),
            (None, "+queue.type=BatchCQ", "only one of"),
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
