//! Sending one message and waiting for it, as operators do to try a topic.

use super::{Admin, AdminError, number_of};
use crate::wire::codes::{request, response};
use crate::wire::command::Request;
use crate::wire::names;
use crate::wire::properties;
use std::time::{SystemTime, UNIX_EPOCH};

/// The group of producers that operators send as.
pub const SENDERS_GROUP: &str = "RINGMQ_TOOLS";

/// A message to send.
#[derive(Clone, Debug, Default)]
pub struct Outgoing<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Body.
    pub body: &'a [u8],
    /// Properties, names and values without the two bytes that end them.
    pub properties: Vec<(&'a str, &'a str)>,
    /// Queue number; `None`: the broker takes one.
    pub queue: Option<i32>,
    /// The sender's flag.
    pub flag: i32,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// `SEND_OK`, `FLUSH_DISK_TIMEOUT`, `FLUSH_SLAVE_TIMEOUT` or `SLAVE_NOT_AVAILABLE`.
    pub status: &'static str,
    /// The offset message id.
    pub message_id: String,
    /// The queue it went to.
    pub queue: i32,
    /// Its offset there.
    pub offset: i64,
}

/// Code of a message that is stored while a slave is missing.
const SLAVE_NOT_AVAILABLE: i32 = 11;

impl Admin {
    /// Sends a message to a broker, once.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn send(&mut self, broker: &str, message: &Outgoing<'_>) -> Result<Receipt, AdminError> {
        let mut text = Vec::new();
        for (name, value) in &message.properties {
            properties::push(&mut text, name, value.as_bytes());
        }
        let born = SystemTime::now().duration_since(UNIX_EPOCH);
        let send = Request::new(request::SEND_MESSAGE_V2)
            .with("a", SENDERS_GROUP)
            .with("b", message.topic)
            .with("c", names::AUTO_CREATE_TOPIC)
            .with("d", 4)
            .with("e", message.queue.unwrap_or(-1))
            .with("f", 0)
            .with("g", born.map_or(0, |since| since.as_millis()))
            .with("h", message.flag)
            .with("i", String::from_utf8_lossy(&text))
            .with("j", 0)
            .with("k", false)
            .with("m", false)
            .with_body(message.body.to_vec());
        let answer = self.ask_all(broker, vec![send])?.remove(0);
        let status = match answer.code {
            response::FLUSH_DISK_TIMEOUT => "FLUSH_DISK_TIMEOUT",
            response::FLUSH_SLAVE_TIMEOUT => "FLUSH_SLAVE_TIMEOUT",
            SLAVE_NOT_AVAILABLE => "SLAVE_NOT_AVAILABLE",
            _ => "SEND_OK",
        };
        let answer = match status {
            "SEND_OK" => super::succeeded(
                crate::client::remote::resolve(broker)?,
                request::SEND_MESSAGE_V2,
                answer,
            )
            .map_err(|error| error.topic(message.topic))?,
            _ => answer,
        };
        let queue = number_of(broker, &answer, "queueId")?;
        let queue = i32::try_from(queue)
            .map_err(|_| AdminError::unsound(broker, format!("queueId={queue}")))?;
        Ok(Receipt {
            status,
            message_id: answer.get("msgId").unwrap_or_default().to_owned(),
            queue,
            offset: number_of(broker, &answer, "queueOffset")?,
        })
    }
}
