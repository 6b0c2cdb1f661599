//! The header of a pull (`PullMessageRequestHeader`).

use super::header::{FieldError, Header, parse_int, parse_str, required};

/// Bits of a pull's system flag (`PullSysFlag`).
pub mod pull_flag {
    /// Commit `commit_offset` on the way.
    pub const COMMIT_OFFSET: i32 = 0x1;
    /// Wait for messages when there are none.
    pub const SUSPEND: i32 = 0x2;
    /// The subscription is in this request.
    pub const SUBSCRIPTION: i32 = 0x4;
    /// The subscription is a class filter: the client filters.
    pub const CLASS_FILTER: i32 = 0x8;
}

/// What a consumer wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullHeader<'a> {
    /// Consumer group.
    pub group: &'a str,
    /// Topic.
    pub topic: &'a str,
    /// Queue number.
    pub queue_id: i32,
    /// First queue offset wanted.
    pub queue_offset: i64,
    /// Most messages wanted.
    pub max_messages: i32,
    /// [`pull_flag`].
    pub sys_flag: i32,
    /// Offset to commit with [`pull_flag::COMMIT_OFFSET`].
    pub commit_offset: i64,
    /// How long to wait with [`pull_flag::SUSPEND`], ms.
    pub suspend_timeout_ms: i64,
    /// Subscription expression with [`pull_flag::SUBSCRIPTION`].
    pub subscription: &'a str,
    /// Version of the subscription that the consumer has.
    pub sub_version: i64,
    /// `TAG` or `SQL92`; empty: `TAG`.
    pub expression_type: &'a str,
}

impl<'a> PullHeader<'a> {
    /// Reads the header of request 11 or 361.
    ///
    /// # Errors
    /// [`FieldError`] for the first field that is missing or not of its type.
    pub fn parse(header: &Header<'a>) -> Result<PullHeader<'a>, FieldError> {
        let mut group = None;
        let mut topic = None;
        let mut queue_id = None;
        let mut queue_offset = None;
        let mut max_messages = None;
        let mut sys_flag = None;
        let mut commit_offset = None;
        let mut suspend_timeout = None;
        let mut subscription = None;
        let mut sub_version = None;
        let mut expression_type = None;
        for (key, value) in header.fields() {
            let place = match key {
                b"consumerGroup" => &mut group,
                b"topic" => &mut topic,
                b"queueId" => &mut queue_id,
                b"queueOffset" => &mut queue_offset,
                b"maxMsgNums" => &mut max_messages,
                b"sysFlag" => &mut sys_flag,
                b"commitOffset" => &mut commit_offset,
                b"suspendTimeoutMillis" => &mut suspend_timeout,
                b"subscription" => &mut subscription,
                b"subVersion" => &mut sub_version,
                b"expressionType" => &mut expression_type,
                _ => continue,
            };
            *place = Some(value);
        }
        Ok(PullHeader {
            group: parse_str("consumerGroup", required("consumerGroup", group)?)?,
            topic: parse_str("topic", required("topic", topic)?)?,
            queue_id: parse_int("queueId", required("queueId", queue_id)?)?,
            queue_offset: parse_int("queueOffset", required("queueOffset", queue_offset)?)?,
            max_messages: parse_int("maxMsgNums", required("maxMsgNums", max_messages)?)?,
            sys_flag: parse_int("sysFlag", required("sysFlag", sys_flag)?)?,
            commit_offset: parse_int("commitOffset", required("commitOffset", commit_offset)?)?,
            suspend_timeout_ms: parse_int(
                "suspendTimeoutMillis",
                required("suspendTimeoutMillis", suspend_timeout)?,
            )?,
            subscription: parse_str("subscription", subscription.unwrap_or(b""))?,
            sub_version: parse_int("subVersion", required("subVersion", sub_version)?)?,
            expression_type: parse_str("expressionType", expression_type.unwrap_or(b""))?,
        })
    }
}
