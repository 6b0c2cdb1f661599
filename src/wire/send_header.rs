//! The header of a send (`SendMessageRequestHeader`, `SendMessageRequestHeaderV2`).

use super::codes::request;
use super::header::{FieldError, Header, parse_bool, parse_int, parse_str, required};
use super::send_shape::SendShape;

/// What a sender says about its message or batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendHeader<'a> {
    /// Producer group.
    pub producer_group: &'a [u8],
    /// Topic.
    pub topic: &'a str,
    /// Topic whose settings an unknown topic is created with, normally TBW102.
    pub default_topic: &'a str,
    /// Queues that the sender wants for a created topic.
    pub default_topic_queue_nums: i32,
    /// Queue number; negative: the broker picks one.
    pub queue_id: i32,
    /// System flag.
    pub sys_flag: i32,
    /// When the message was made, ms since 1970.
    pub born_timestamp: i64,
    /// User flag.
    pub flag: i32,
    /// Properties.
    pub properties: &'a [u8],
    /// How often consumption failed, in a send to a retry topic.
    pub reconsume_times: i32,
    /// How often it may fail, in a send to a retry topic.
    pub max_reconsume_times: Option<i32>,
    /// Unit mode of the topic to be created.
    pub unit_mode: bool,
    /// Whether the body is a batch.
    pub batch: bool,
}

/// Fields that a send must have: the first ones of [`NAMES`].
const MANDATORY: usize = 8;

/// The fields of a send. In requests 310 and 320 they are called a, b, c and so on.
const NAMES: [&str; 13] = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
];

/// The number in [`NAMES`] of a field of request `code`.
pub(super) fn place(code: i32, name: &[u8]) -> Option<usize> {
    match (code, name) {
        (request::SEND_MESSAGE, _) => NAMES.iter().position(|known| known.as_bytes() == name),
        (_, &[letter]) => {
            let place = usize::from(letter).checked_sub(usize::from(b'a'))?;
            (place < NAMES.len()).then_some(place)
        }
        _ => None,
    }
}

impl<'a> SendHeader<'a> {
    const EMPTY: SendHeader<'static> = SendHeader {
        producer_group: b"",
        topic: "",
        default_topic: "",
        default_topic_queue_nums: 0,
        queue_id: 0,
        sys_flag: 0,
        born_timestamp: 0,
        flag: 0,
        properties: b"",
        reconsume_times: 0,
        max_reconsume_times: None,
        unit_mode: false,
        batch: false,
    };

    /// Reads the header of request 10 (long names), 310 or 320 (letters).
    ///
    /// # Errors
    /// [`FieldError`] for the first field that is missing or not of its type.
    pub fn parse(header: &Header<'a>) -> Result<SendHeader<'a>, FieldError> {
        let Some(shape) = header.shape() else {
            return SendHeader::parse_all(header);
        };
        if let Some(known) = shape.send.get() {
            // What is wrong is told as of any other header.
            let all = |_| SendHeader::parse_all(header);
            return known.parse(header).or_else(all);
        }
        let send = SendHeader::parse_all(header)?;
        let _ = shape
            .send
            .set(SendShape::of(shape, header.fixed.code, &send));
        Ok(send)
    }

    /// The same, from all fields.
    pub(super) fn parse_all(header: &Header<'a>) -> Result<SendHeader<'a>, FieldError> {
        let mut values = [None; NAMES.len()];
        for (name, value) in header.fields() {
            if let Some(place) = place(header.fixed.code, name) {
                values[place] = Some(value);
            }
        }
        let mut send = SendHeader::EMPTY;
        for (place, value) in values.into_iter().enumerate() {
            match value {
                Some(value) => send.set(place, value)?,
                None if place < MANDATORY => {
                    required(NAMES[place], value)?;
                }
                None => {}
            }
        }
        Ok(send)
    }

    /// Takes the value of the field at `place` of [`NAMES`].
    ///
    /// # Errors
    /// [`FieldError`]: it is not of its type.
    #[inline]
    pub(super) fn set(&mut self, place: usize, value: &'a [u8]) -> Result<(), FieldError> {
        let name = NAMES[place];
        match place {
            0 => self.producer_group = value,
            1 => self.topic = parse_str(name, value)?,
            2 => self.default_topic = parse_str(name, value)?,
            3 => self.default_topic_queue_nums = parse_int(name, value)?,
            4 => self.queue_id = parse_int(name, value)?,
            5 => self.sys_flag = parse_int(name, value)?,
            6 => self.born_timestamp = parse_int(name, value)?,
            7 => self.flag = parse_int(name, value)?,
            8 => self.properties = value,
            9 => self.reconsume_times = optional(name, value)?.unwrap_or(0),
            10 => self.unit_mode = parse_bool(name, value)?,
            11 => self.max_reconsume_times = optional(name, value)?,
            _ => self.batch = parse_bool(name, value)?,
        }
        Ok(())
    }
}

/// Clients that write every field write an absent number as "".
fn optional(name: &'static str, value: &[u8]) -> Result<Option<i32>, FieldError> {
    match value {
        b"" => Ok(None),
        value => parse_int(name, value).map(Some),
    }
}
