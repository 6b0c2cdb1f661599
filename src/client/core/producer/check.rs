//! What a message must be like to be sent (`Validators.checkMessage`).

use crate::client::error::{Error, Result};
use crate::client::message::Message;
use crate::client::settings::ProducerSettings;
use crate::wire::names;
use crate::wire::properties::PROPERTIES_BYTES_MAX;

/// Bytes of properties that are left to the client and the broker for their own.
const OWN_PROPERTIES_BYTES: usize = 512;

/// Most bytes of a message's own properties.
pub const MESSAGE_PROPERTIES_BYTES_MAX: usize = PROPERTIES_BYTES_MAX - OWN_PROPERTIES_BYTES;

/// Checks a message before it is sent.
///
/// # Errors
/// [`crate::client::error::ErrorKind::Message`] with the first thing that is wrong, its
/// size and the limit.
pub fn check(message: &Message, settings: &ProducerSettings) -> Result<()> {
    check_topic(message.topic())?;
    check_content(message, settings)
}

/// Checks all of a message but its topic.
///
/// # Errors
/// As [`check`].
pub fn check_content(message: &Message, settings: &ProducerSettings) -> Result<()> {
    let refuse = |what: String| {
        let error = Error::message(what);
        Err(error.of_topic(&message.topic().into()))
    };
    if let Some(fault) = message.fault() {
        return refuse(format!("property {:?} {}", fault.name, fault.what));
    }
    let size = message.body_bytes().len();
    if size == 0 {
        return refuse("the body is empty".to_owned());
    }
    if size > settings.max_message_size {
        let max = settings.max_message_size;
        return refuse(format!(
            "the body has {size} bytes, more than max_message_size {max}"
        ));
    }
    let properties = message.properties_bytes().len();
    if properties > MESSAGE_PROPERTIES_BYTES_MAX {
        return refuse(format!(
            "the properties have {properties} bytes, more than {MESSAGE_PROPERTIES_BYTES_MAX}"
        ));
    }
    if message
        .get("INNER_MULTI_DISPATCH")
        .is_some_and(|path| path.contains('/'))
    {
        return refuse("INNER_MULTI_DISPATCH contains '/'".to_owned());
    }
    Ok(())
}

/// Checks a topic that is to be sent to.
///
/// # Errors
/// [`crate::client::error::ErrorKind::Message`].
pub fn check_topic(topic: &str) -> Result<()> {
    names::check_topic(topic).map_err(|error| Error::message(error.to_string()))?;
    if topic.len() > names::TOPIC_BYTES_MAX && !topic.starts_with(names::RETRY_PREFIX) {
        let (len, max) = (topic.len(), names::TOPIC_BYTES_MAX);
        return Err(Error::message(format!(
            "the topic has {len} bytes, more than {max}"
        )));
    }
    if names::is_closed_to_senders(topic) {
        let error = Error::message("the topic is the broker's own: sending to it is forbidden");
        return Err(error.of_topic(&topic.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: Message) -> String {
        let settings = ProducerSettings {
            max_message_size: 10,
            ..ProducerSettings::default()
        };
        check(&message, &settings).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_size_and_the_limit() {
        assert_eq!(
            refused(Message::new("t", "12345678901")),
            "message refused: the body has 11 bytes, more than max_message_size 10 (topic t)"
        );
        assert!(refused(Message::new("t", "")).contains("empty"));
        let path = refused(Message::new("../../../fuzz2019", "b"));
        assert!(path.contains("illegal character '.'"), "{path}");
        assert!(refused(Message::new("t".repeat(128), "b")).contains("127"));
        assert!(refused(Message::new("", "b")).contains("blank"));
        assert!(refused(Message::new("SCHEDULE_TOPIC_XXXX", "b")).contains("forbidden"));
        let property = Message::new("t", "b").property("KEYS", "k");
        assert!(refused(property).contains("KEYS"));
        let long = Message::new("t", "b").property("p", "x".repeat(40_000));
        assert!(refused(long).contains("40003 bytes, more than 32255"));
    }

    #[test]
    fn what_fits_exactly_is_sent() {
        let settings = ProducerSettings {
            max_message_size: 10,
            ..ProducerSettings::default()
        };
        check(&Message::new("t".repeat(127), "1234567890"), &settings).unwrap();
        let value = "x".repeat(MESSAGE_PROPERTIES_BYTES_MAX - 3);
        check(&Message::new("t", "b").property("p", value), &settings).unwrap();
    }
}
