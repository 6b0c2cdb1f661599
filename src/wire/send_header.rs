//! The header of a send (`SendMessageRequestHeader`, `SendMessageRequestHeaderV2`).

use super::codes::request;
use super::header::{FieldError, Header, parse_bool, parse_int, parse_str, required};

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

impl<'a> SendHeader<'a> {
    /// Reads the header of request 10 (long names), 310 or 320 (letters).
    ///
    /// # Errors
    /// [`FieldError`] for the first field that is missing or not of its type.
    pub fn parse(header: &Header<'a>) -> Result<SendHeader<'a>, FieldError> {
        let mut raw = Raw::default();
        if header.fixed.code == request::SEND_MESSAGE {
            raw.collect_names(header);
        } else {
            raw.collect_letters(header);
        }
        // Clients that write every field write an absent number as "".
        let optional = |field, bytes: Option<&'a [u8]>| match bytes {
            None | Some(b"") => Ok(None),
            Some(bytes) => parse_int(field, bytes).map(Some),
        };
        let flag = |field, bytes: Option<&'a [u8]>| match bytes {
            None => Ok(false),
            Some(bytes) => parse_bool(field, bytes),
        };
        Ok(SendHeader {
            producer_group: required("producerGroup", raw.producer_group)?,
            topic: parse_str("topic", required("topic", raw.topic)?)?,
            default_topic: parse_str("defaultTopic", required("defaultTopic", raw.default_topic)?)?,
            default_topic_queue_nums: parse_int(
                "defaultTopicQueueNums",
                required("defaultTopicQueueNums", raw.default_topic_queue_nums)?,
            )?,
            queue_id: parse_int("queueId", required("queueId", raw.queue_id)?)?,
            sys_flag: parse_int("sysFlag", required("sysFlag", raw.sys_flag)?)?,
            born_timestamp: parse_int(
                "bornTimestamp",
                required("bornTimestamp", raw.born_timestamp)?,
            )?,
            flag: parse_int("flag", required("flag", raw.flag)?)?,
            properties: raw.properties.unwrap_or(b""),
            reconsume_times: optional("reconsumeTimes", raw.reconsume_times)?.unwrap_or(0),
            max_reconsume_times: optional("maxReconsumeTimes", raw.max_reconsume_times)?,
            unit_mode: flag("unitMode", raw.unit_mode)?,
            batch: flag("batch", raw.batch)?,
        })
    }
}

#[derive(Default)]
struct Raw<'a> {
    producer_group: Option<&'a [u8]>,
    topic: Option<&'a [u8]>,
    default_topic: Option<&'a [u8]>,
    default_topic_queue_nums: Option<&'a [u8]>,
    queue_id: Option<&'a [u8]>,
    sys_flag: Option<&'a [u8]>,
    born_timestamp: Option<&'a [u8]>,
    flag: Option<&'a [u8]>,
    properties: Option<&'a [u8]>,
    reconsume_times: Option<&'a [u8]>,
    unit_mode: Option<&'a [u8]>,
    max_reconsume_times: Option<&'a [u8]>,
    batch: Option<&'a [u8]>,
}

impl<'a> Raw<'a> {
    fn collect_letters(&mut self, header: &Header<'a>) {
        for (key, value) in header.fields() {
            let &[letter] = key else { continue };
            let place = match letter {
                b'a' => &mut self.producer_group,
                b'b' => &mut self.topic,
                b'c' => &mut self.default_topic,
                b'd' => &mut self.default_topic_queue_nums,
                b'e' => &mut self.queue_id,
                b'f' => &mut self.sys_flag,
                b'g' => &mut self.born_timestamp,
                b'h' => &mut self.flag,
                b'i' => &mut self.properties,
                b'j' => &mut self.reconsume_times,
                b'k' => &mut self.unit_mode,
                b'l' => &mut self.max_reconsume_times,
                b'm' => &mut self.batch,
                _ => continue,
            };
            *place = Some(value);
        }
    }

    fn collect_names(&mut self, header: &Header<'a>) {
        for (key, value) in header.fields() {
            let place = match key {
                b"producerGroup" => &mut self.producer_group,
                b"topic" => &mut self.topic,
                b"defaultTopic" => &mut self.default_topic,
                b"defaultTopicQueueNums" => &mut self.default_topic_queue_nums,
                b"queueId" => &mut self.queue_id,
                b"sysFlag" => &mut self.sys_flag,
                b"bornTimestamp" => &mut self.born_timestamp,
                b"flag" => &mut self.flag,
                b"properties" => &mut self.properties,
                b"reconsumeTimes" => &mut self.reconsume_times,
                b"unitMode" => &mut self.unit_mode,
                b"maxReconsumeTimes" => &mut self.max_reconsume_times,
                b"batch" => &mut self.batch,
                _ => continue,
            };
            *place = Some(value);
        }
    }
}
