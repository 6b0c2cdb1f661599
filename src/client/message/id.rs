//! Ids of messages as text.

use std::fmt;
use std::ops::Deref;

/// Longest id that needs no memory of its own, in bytes: one with an IPv4 address has 32 digits.
const SHORT_MAX: usize = 38;

/// An id of a message, the client's or the broker's: text, used as a `str`. Usual ones are held
/// in place, as each send gives two of them from one thread to another.
#[derive(Clone)]
pub struct MessageId(Text);

#[derive(Clone)]
enum Text {
    Short(u8, [u8; SHORT_MAX]),
    Long(Box<str>),
}

impl MessageId {
    /// As text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Short(len, bytes) => {
                std::str::from_utf8(&bytes[..usize::from(*len)]).expect("made from text")
            }
            Text::Long(text) => text,
        }
    }
}

impl From<&str> for MessageId {
    fn from(text: &str) -> MessageId {
        if text.len() > SHORT_MAX {
            return MessageId(Text::Long(text.into()));
        }
        let mut bytes = [0; SHORT_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        MessageId(Text::Short(text.len() as u8, bytes))
    }
}

impl From<String> for MessageId {
    fn from(text: String) -> MessageId {
        if text.len() > SHORT_MAX {
            MessageId(Text::Long(text.into_boxed_str()))
        } else {
            text.as_str().into()
        }
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> String {
        id.as_str().to_owned()
    }
}

impl Default for MessageId {
    fn default() -> MessageId {
        "".into()
    }
}

impl Deref for MessageId {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for MessageId {
    fn eq(&self, other: &MessageId) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for MessageId {}

impl PartialEq<str> for MessageId {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for MessageId {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for MessageId {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialOrd for MessageId {
    fn partial_cmp(&self, other: &MessageId) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MessageId {
    fn cmp(&self, other: &MessageId) -> std::cmp::Ordering {
        self.as_str().cmp(other)
    }
}

impl std::hash::Hash for MessageId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_is_the_text_it_was_made_from(text in "\\PC{0,60}", other in "\\PC{0,60}") {
            let id = MessageId::from(text.as_str());
            prop_assert_eq!(&*id, text.as_str());
            prop_assert_eq!(&id, &MessageId::from(text.clone()));
            prop_assert_eq!((id.to_string(), format!("{id:?}")), (text.clone(), format!("{text:?}")));
            let than = MessageId::from(other.as_str());
            prop_assert_eq!((id.cmp(&than), id == than), (text.cmp(&other), text == other));
            prop_assert_eq!(String::from(id), text);
        }
    }
}
