//! From a message to what is sent: checked, with its unique key, compressed, encoded. Done
//! on the caller's thread.

use std::sync::Arc;

use bytes::Bytes;

use super::check::{check, check_content, check_topic};
use super::compress::compress;
use super::unique_key::{KEY_CHARS_MAX, UniqueKeys};
use crate::client::core::io::{Destination, Outgoing, SendMode};
use crate::client::error::{Error, Result};
use crate::client::message::{Message, MessageQueue, SHARDING_KEY};
use crate::client::settings::ProducerSettings;
use crate::wire::batch;
use crate::wire::java_hash::java_hash;
use crate::wire::names::RETRY_PREFIX;
use crate::wire::properties::{self, name};

/// Bytes of a message in a batch beside its body and its own properties.
const OWN_BYTES_MAX: usize = batch::FIXED_BYTES + name::UNIQ_KEY.len() + KEY_CHARS_MAX + 2;

/// What a caller says about a send apart from the message.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// The queue, where the caller picked one.
    pub queue: Option<MessageQueue>,
    /// How the caller waits.
    pub mode: SendMode,
    /// When the call began, ms of the client's clock.
    pub began: u64,
    /// Time from then on for all tries together, ms; that of the settings where it is not set.
    pub timeout_ms: Option<u64>,
    /// Wall clock, ms since 1970.
    pub wall_ms: i64,
}

/// Makes a message ready to be sent.
///
/// # Errors
/// [`crate::client::error::ErrorKind::Message`] where it cannot be.
pub fn prepare(
    message: Message,
    settings: &ProducerSettings,
    keys: &UniqueKeys,
    options: SendOptions,
) -> Result<Box<Outgoing>> {
    check(&message, settings)?;
    let mut reconsume = None;
    if message.topic().starts_with(RETRY_PREFIX) {
        let number = |name| message.get(name).and_then(|text| text.parse().ok());
        let times = number("RECONSUME_TIME").unwrap_or(0);
        reconsume = number("MAX_RECONSUME_TIMES").map(|max| (times, max));
    }
    let to = match options.queue {
        Some(queue) => to_queue(queue, message.topic())?,
        None => match message.get(SHARDING_KEY) {
            Some(key) => Destination::Hash(java_hash(key.as_bytes())),
            None => Destination::Any,
        },
    };
    let flag = message.user_flag();
    let (topic, body, properties) = message.into_parts();
    let (body, sys_flag) = smaller(body, settings);
    Ok(Box::new(Outgoing {
        topic,
        body,
        properties,
        key_follows: true,
        flag,
        sys_flag,
        batch: false,
        message_id: keys.next(options.wall_ms),
        to,
        mode: options.mode,
        began: options.began,
        timeout_ms: options.timeout_ms.unwrap_or(settings.send_timeout_ms),
        reconsume,
    }))
}

/// Makes a batch ready to be sent: all messages of one topic, none with a delay.
///
/// # Errors
/// [`crate::client::error::ErrorKind::Message`] where it cannot be, with the number of the
/// message at fault.
pub fn prepare_batch(
    messages: Vec<Message>,
    settings: &ProducerSettings,
    keys: &UniqueKeys,
    options: SendOptions,
) -> Result<Box<Outgoing>> {
    let Some(first) = messages.first() else {
        return Err(Error::message("the batch is empty"));
    };
    check_topic(first.topic())?;
    let topic: Arc<str> = first.topic().into();
    let wait = first.get(name::WAIT).map(str::to_owned);
    let refuse = |index: usize, what: &str| {
        let what = format!("message {index} of the batch {what}");
        Err(Error::message(what).of_topic(&topic))
    };
    if topic.starts_with(RETRY_PREFIX) {
        return refuse(0, "goes to a retry topic, which takes no batches");
    }
    let size: usize = messages
        .iter()
        .map(|message| {
            message.body_bytes().len() + message.properties_bytes().len() + OWN_BYTES_MAX
        })
        .sum();
    let mut body = Vec::with_capacity(size.min(settings.max_message_size + OWN_BYTES_MAX));
    let mut new_keys = keys.next_ones(messages.len(), options.wall_ms);
    let mut ids = Vec::with_capacity(messages.len() * (KEY_CHARS_MAX + 1));
    for (index, message) in messages.iter().enumerate() {
        check_content(message, settings)?;
        if message.topic() != &*topic {
            return refuse(index, "has another topic than the first");
        }
        let marks = Marks::of(message.properties_bytes());
        if marks.is_delayed {
            return refuse(index, "is delayed, which batches cannot be");
        }
        let waits = |value: Option<&[u8]>| value != Some(b"false");
        if waits(marks.wait) != waits(wait.as_deref().map(str::as_bytes)) {
            return refuse(
                index,
                "waits otherwise for the broker's disk than the first",
            );
        }
        if index > 0 {
            ids.push(b',');
        }
        let (flag, inner) = (message.user_flag(), message.body_bytes());
        batch::push_with(&mut body, flag, inner, |out| {
            out.extend_from_slice(message.properties_bytes());
            let key = new_keys.next_key();
            properties::push(out, name::UNIQ_KEY, key);
            ids.extend_from_slice(key);
        });
        if body.len() > settings.max_message_size {
            let (size, max) = (body.len(), settings.max_message_size);
            let what = format!("brings it to {size} bytes, more than max_message_size {max}");
            return refuse(index, &what);
        }
    }
    let to = match options.queue {
        Some(queue) => to_queue(queue, &topic)?,
        None => Destination::Any,
    };
    let mut properties = Vec::new();
    if let Some(wait) = wait {
        properties::push(&mut properties, name::WAIT, wait.as_bytes());
    }
    Ok(Box::new(Outgoing {
        topic,
        body: body.into(),
        properties,
        key_follows: false,
        flag: 0,
        sys_flag: 0,
        batch: true,
        message_id: String::from_utf8(ids)
            .unwrap_or_else(|ids| String::from_utf8_lossy(ids.as_bytes()).into_owned())
            .into(),
        to,
        mode: options.mode,
        began: options.began,
        timeout_ms: options.timeout_ms.unwrap_or(settings.send_timeout_ms),
        reconsume: None,
    }))
}

/// What matters to a batch of a message's properties.
#[derive(Default)]
struct Marks<'a> {
    is_delayed: bool,
    wait: Option<&'a [u8]>,
}

impl Marks<'_> {
    fn of(properties: &[u8]) -> Marks<'_> {
        let mut marks = Marks::default();
        for (key, value) in properties::iter(properties) {
            match std::str::from_utf8(key) {
                Ok(
                    name::DELAY
                    | name::TIMER_DELAY_MS
                    | name::TIMER_DELAY_SEC
                    | name::TIMER_DELIVER_MS,
                ) => marks.is_delayed = true,
                Ok(name::WAIT) => marks.wait = Some(value),
                _ => {}
            }
        }
        marks
    }
}

fn to_queue(queue: MessageQueue, topic: &str) -> Result<Destination> {
    if &*queue.topic != topic {
        let what = format!("the queue {queue} is of another topic than the message, {topic}");
        return Err(Error::message(what));
    }
    Ok(Destination::Queue(queue))
}

fn smaller(body: Bytes, settings: &ProducerSettings) -> (Bytes, i32) {
    if body.len() < settings.compress_body_over {
        return (body, 0);
    }
    match compress(&body, settings.compression, settings.compress_level) {
        Some(packed) => packed,
        None => (body, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::core::producer::compress::decompress;

    fn keys() -> UniqueKeys {
        UniqueKeys::new([10, 0, 0, 1].into(), 1, 1)
    }

    fn options() -> SendOptions {
        SendOptions {
            queue: None,
            mode: SendMode::Sync,
            began: 0,
            timeout_ms: None,
            wall_ms: 1_000,
        }
    }

    fn made(message: Message) -> Box<Outgoing> {
        prepare(message, &ProducerSettings::default(), &keys(), options()).unwrap()
    }

    fn refused(messages: Vec<Message>) -> String {
        let settings = ProducerSettings {
            max_message_size: 1_000,
            ..ProducerSettings::default()
        };
        let made = prepare_batch(messages, &settings, &keys(), options());
        made.unwrap_err().to_string()
    }

    #[test]
    fn a_message_gets_its_key_behind_its_properties() {
        let send = made(Message::new("t", "b").tag("x"));
        assert_eq!(send.message_id.len(), 32);
        assert_eq!(send.properties, b"TAGS\x01x\x02");
        assert_eq!(send.key(), Some(&*send.message_id));
        assert_eq!((send.to, send.timeout_ms), (Destination::Any, 3_000));
    }

    #[test]
    fn bodies_from_the_threshold_on_are_compressed() {
        let small = made(Message::new("t", vec![b'a'; 4_095]));
        assert_eq!((small.sys_flag, small.body.len()), (0, 4_095));
        let large = made(Message::new("t", vec![b'a'; 4_096]));
        assert_eq!(large.sys_flag, 0x301);
        let back = decompress(&large.body, large.sys_flag, 4_096).unwrap();
        assert_eq!(back.as_ref(), [b'a'; 4_096]);
    }

    #[test]
    fn a_sharding_key_is_hashed_as_java_does() {
        let send = made(Message::new("t", "b").sharding_key("TagA"));
        assert_eq!(send.to, Destination::Hash(2_598_919));
        let elsewhere = SendOptions {
            queue: Some(MessageQueue::new("u", "b", 0)),
            ..options()
        };
        let other = prepare(
            Message::new("t", "b"),
            &ProducerSettings::default(),
            &keys(),
            elsewhere,
        );
        assert!(other.unwrap_err().to_string().contains("another topic"));
    }

    #[test]
    fn a_batch_is_of_one_topic_and_kind() {
        let good = || Message::new("t", "one").tag("a");
        let settings = ProducerSettings::default();
        let batch = prepare_batch(vec![good(), good()], &settings, &keys(), options()).unwrap();
        let items: Vec<_> = batch::items(&batch.body)
            .map(|item| item.unwrap())
            .collect();
        assert_eq!(items.len(), 2);
        let ids: Vec<_> = items
            .iter()
            .map(|item| properties::get(item.properties, "UNIQ_KEY").unwrap())
            .collect();
        let told: Vec<_> = batch.message_id.split(',').map(str::as_bytes).collect();
        assert_eq!(ids, told);
        assert!(batch.batch);

        assert!(refused(vec![]).contains("empty"));
        let other = vec![good(), Message::new("u", "b")];
        assert!(refused(other).contains("message 1 of the batch has another topic"));
        assert!(refused(vec![good().delay_level(1)]).contains("delayed"));
        assert!(refused(vec![good().delay_ms(1)]).contains("delayed"));
        assert!(refused(vec![Message::new("%RETRY%g", "b")]).contains("retry"));
        assert!(refused(vec![good(), good().wait_store(false)]).contains("waits"));
        let sum = vec![Message::new("t", vec![0; 600]); 2];
        assert!(refused(sum).contains("more than max_message_size 1000"));
    }
}
