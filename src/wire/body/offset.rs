//! Offsets of consumer groups and of delay levels: `consumerOffset.json`,
//! `delayOffset.json`, and the answers that repeat them
//! (`ConsumerOffsetSerializeWrapper`, `DelayOffsetSerializeWrapper`).

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::json::{null_as_default, write_value};
use super::topic::DataVersion;

/// Offsets by queue number.
pub type QueueOffsets = BTreeMap<i32, i64>;

/// Committed offsets of all groups: `consumerOffset.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerOffsets {
    /// The edition of the table.
    #[serde(deserialize_with = "null_as_default")]
    pub data_version: DataVersion,
    /// The offsets by `topic@group`.
    #[serde(deserialize_with = "null_as_default")]
    pub offset_table: BTreeMap<String, QueueOffsets>,
}

impl ConsumerOffsets {
    /// As RocketMQ writes it, with bare queue numbers as keys.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = begin(&self.data_version);
        for (index, (key, queues)) in self.offset_table.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write_value(&mut out, key);
            out.push_str(":{");
            write_offsets(&mut out, queues);
            out.push('}');
        }
        out.push_str("}}");
        out.into_bytes()
    }
}

/// How far each delay level has been delivered: `delayOffset.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DelayOffsets {
    /// The edition of the table.
    #[serde(deserialize_with = "null_as_default")]
    pub data_version: DataVersion,
    /// The offsets in the level's queue, by level.
    #[serde(deserialize_with = "null_as_default")]
    pub offset_table: QueueOffsets,
}

impl DelayOffsets {
    /// As RocketMQ writes it, with bare levels as keys.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = begin(&self.data_version);
        write_offsets(&mut out, &self.offset_table);
        out.push_str("}}");
        out.into_bytes()
    }
}

fn begin(version: &impl Serialize) -> String {
    let mut out = String::from(r#"{"dataVersion":"#);
    write_value(&mut out, version);
    out.push_str(r#","offsetTable":{"#);
    out
}

fn write_offsets(out: &mut String, offsets: &QueueOffsets) {
    for (index, (queue, offset)) in offsets.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}{queue}:{offset}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    #[test]
    fn offsets_are_written_as_rocketmq_writes_them() {
        let text = r#"{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"offsetTable":{"T@g":{0:123,1:7},"U@g":{}}}"#;
        let offsets: ConsumerOffsets = json::parse(text.as_bytes()).unwrap();
        assert_eq!(offsets.offset_table["T@g"][&1], 7);
        assert_eq!(String::from_utf8(offsets.to_json()).unwrap(), text);
        let quoted = text.replace("0:", "\"0\":").replace("1:7", "\"1\":7");
        let quoted: ConsumerOffsets = json::parse(quoted.as_bytes()).unwrap();
        assert_eq!(quoted, offsets);
    }

    #[test]
    fn delay_offsets_are_written_as_rocketmq_writes_them() {
        let text = r#"{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"offsetTable":{3:12,4:0}}"#;
        let offsets: DelayOffsets = json::parse(text.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(offsets.to_json()).unwrap(), text);
    }
}
