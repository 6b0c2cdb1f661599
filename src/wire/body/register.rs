//! Registration of a broker: all its topics, or those that changed
//! (`RegisterBrokerBody`), in the three forms that brokers have sent so far.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{self, JsonError, null_as_default};
use super::topic::{DataVersion, TopicConfig, TopicConfigWrapper, TopicFilterType};

/// Most bytes that a compressed registration may inflate to.
pub const INFLATED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most topics in one registration. At the bound it is refused as a whole.
pub const TOPICS_MAX: usize = 300_000;

/// Most objects in a registration in JSON: two a topic, and a few. Checked by
/// counting braces, so that a body of nothing but tiny objects is found out
/// before it takes fifty times its size in memory.
const OBJECTS_MAX: usize = 3 * TOPICS_MAX;

/// From this version on (`V3_0_11`) the body is more than the bare topic table.
const VERSION_WRAPPED: i32 = 37;
/// From this version on (`V5_0_0`) the compressed form ends with queue mappings.
const VERSION_MAPPINGS: i32 = 413;

/// The topics of a broker and the mappings of its static topics
/// (`TopicConfigAndMappingSerializeWrapper`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicsAndMappings {
    /// Edition of the topic table.
    #[serde(deserialize_with = "null_as_default")]
    pub data_version: DataVersion,
    /// Edition of the mappings.
    #[serde(deserialize_with = "null_as_default")]
    pub mapping_data_version: DataVersion,
    /// Topics by name.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_config_table: BTreeMap<String, TopicConfig>,
    /// Mappings in full, by topic; nameservers do not use them.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_queue_mapping_detail_map: BTreeMap<String, Value>,
    /// Mappings in brief, by topic; nameservers pass them on.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_queue_mapping_info_map: BTreeMap<String, Value>,
}

/// The body of `REGISTER_BROKER`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegisterBrokerBody {
    /// Filter servers; none exist any more.
    #[serde(deserialize_with = "null_as_default")]
    pub filter_server_list: Vec<String>,
    /// The topics.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_config_serialize_wrapper: TopicsAndMappings,
}

/// Why a registration cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// A part of it that should be JSON is not.
    Json(JsonError),
    /// It is not a zlib stream.
    Inflate(String),
    /// It inflates to more than [`INFLATED_BYTES_MAX`].
    TooLong,
    /// It has more topics than [`TOPICS_MAX`].
    TooManyTopics,
    /// The inflated bytes are not laid out as they should be.
    Layout {
        /// What was wrong.
        what: &'static str,
        /// Offset in the inflated bytes.
        at: usize,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Json(error) => write!(f, "registration: {error}"),
            RegisterError::Inflate(error) => write!(f, "registration is not zlib: {error}"),
            RegisterError::TooLong => {
                write!(
                    f,
                    "registration inflates to more than {INFLATED_BYTES_MAX} bytes"
                )
            }
            RegisterError::TooManyTopics => {
                write!(f, "registration has more than {TOPICS_MAX} topics")
            }
            RegisterError::Layout { what, at } => write!(f, "registration: {what} at byte {at}"),
        }
    }
}

impl std::error::Error for RegisterError {}

impl From<JsonError> for RegisterError {
    fn from(error: JsonError) -> RegisterError {
        RegisterError::Json(error)
    }
}

impl RegisterBrokerBody {
    /// A registration of `topics` in the edition `data_version`.
    pub fn new(data_version: DataVersion, topics: BTreeMap<String, TopicConfig>) -> Self {
        RegisterBrokerBody {
            filter_server_list: Vec::new(),
            topic_config_serialize_wrapper: TopicsAndMappings {
                data_version,
                topic_config_table: topics,
                ..TopicsAndMappings::default()
            },
        }
    }

    /// Reads the body that a broker of version ordinal `version` sent; an empty
    /// one registers no topics.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn decode(body: &[u8], compressed: bool, version: i32) -> Result<Self, RegisterError> {
        let body = if body.is_empty() {
            return Ok(RegisterBrokerBody::default());
        } else if version >= VERSION_WRAPPED && compressed {
            decode_compressed(&inflate(body)?, version)?
        } else {
            if body.iter().filter(|&&byte| byte == b'{').count() > OBJECTS_MAX {
                return Err(RegisterError::TooManyTopics);
            }
            if version >= VERSION_WRAPPED {
                json::parse(body)?
            } else {
                let bare: TopicConfigWrapper = json::parse(body)?;
                RegisterBrokerBody::new(bare.data_version, bare.topic_config_table)
            }
        };
        if body.topic_config_serialize_wrapper.topic_config_table.len() > TOPICS_MAX {
            return Err(RegisterError::TooManyTopics);
        }
        Ok(body)
    }

    /// The body as JSON.
    pub fn encode(&self) -> Vec<u8> {
        json::encode(self)
    }

    /// The body in the compressed form of a broker of our version. It has no
    /// room for `order` and `topic_sys_flag`.
    pub fn encode_compressed(&self) -> Vec<u8> {
        let wrapper = &self.topic_config_serialize_wrapper;
        let mut parts = Parts(Vec::new());
        parts.json(&wrapper.data_version);
        parts.count(wrapper.topic_config_table.len());
        for topic in wrapper.topic_config_table.values() {
            parts.text(&topic_text(topic));
        }
        parts.json(&self.filter_server_list);
        parts.count(wrapper.topic_queue_mapping_info_map.len());
        for mapping in wrapper.topic_queue_mapping_info_map.values() {
            parts.json(mapping);
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        // Writing into memory does not fail.
        let _ = encoder.write_all(&parts.0);
        encoder.finish().unwrap_or_default()
    }
}

/// Writes the parts of the compressed form.
struct Parts(Vec<u8>);

impl Parts {
    fn count(&mut self, count: usize) {
        self.0.extend_from_slice(&(count as i32).to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn json(&mut self, value: &impl Serialize) {
        let text = json::encode(value);
        self.count(text.len());
        self.0.extend_from_slice(&text);
    }
}

fn inflate(body: &[u8]) -> Result<Vec<u8>, RegisterError> {
    let mut out = Vec::new();
    ZlibDecoder::new(body)
        .take(INFLATED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut out)
        .map_err(|error| RegisterError::Inflate(error.to_string()))?;
    if out.len() > INFLATED_BYTES_MAX {
        return Err(RegisterError::TooLong);
    }
    Ok(out)
}

fn decode_compressed(bytes: &[u8], version: i32) -> Result<RegisterBrokerBody, RegisterError> {
    let mut reader = Reader { bytes, at: 0 };
    let mut body = RegisterBrokerBody::default();
    let wrapper = &mut body.topic_config_serialize_wrapper;
    wrapper.data_version = json::parse(reader.part()?)?;
    let topics = reader.count()?;
    if topics > TOPICS_MAX {
        return Err(RegisterError::TooManyTopics);
    }
    for _ in 0..topics {
        let at = reader.at;
        let topic = std::str::from_utf8(reader.part()?)
            .ok()
            .and_then(topic_from_text)
            .ok_or(RegisterError::Layout {
                what: "no topic",
                at,
            })?;
        let table = &mut wrapper.topic_config_table;
        table.insert(topic.topic_name.clone(), topic);
    }
    // Nobody uses the list; Java goes on without it where it cannot be read.
    body.filter_server_list = json::parse(reader.part()?).unwrap_or_default();
    if version >= VERSION_MAPPINGS {
        for _ in 0..reader.count()? {
            let mapping: Value = json::parse(reader.part()?)?;
            if let Some(topic) = mapping.get("topic").and_then(Value::as_str) {
                let topic = topic.to_owned();
                wrapper.topic_queue_mapping_info_map.insert(topic, mapping);
            }
        }
    }
    Ok(body)
}

/// `name read write perm FILTERTYPE attributes`, parted by single spaces
/// (`TopicConfig.encode`).
fn topic_text(topic: &TopicConfig) -> String {
    let mut text = format!(
        "{} {} {} {} {} ",
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type.name()
    );
    json::write_value(&mut text, &topic.attributes);
    text
}

fn topic_from_text(text: &str) -> Option<TopicConfig> {
    let mut parts = text.split(' ');
    Some(TopicConfig {
        topic_name: parts.next().filter(|name| !name.is_empty())?.to_owned(),
        read_queue_nums: parts.next()?.parse().ok()?,
        write_queue_nums: parts.next()?.parse().ok()?,
        perm: parts.next()?.parse().ok()?,
        topic_filter_type: TopicFilterType::from_name(parts.next()?),
        // Attributes with a space in them do not survive this form, in Java neither.
        attributes: parts
            .next()
            .and_then(|json| json::parse(json.as_bytes()).ok())
            .unwrap_or_default(),
        ..TopicConfig::default()
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn layout(&self, what: &'static str) -> RegisterError {
        RegisterError::Layout { what, at: self.at }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], RegisterError> {
        let rest = &self.bytes[self.at..];
        let taken = rest
            .get(..length)
            .ok_or_else(|| self.layout("ends early"))?;
        self.at += length;
        Ok(taken)
    }

    fn int(&mut self) -> Result<usize, RegisterError> {
        let b = self.take(4)?;
        let value = i32::from_be_bytes([b[0], b[1], b[2], b[3]]);
        usize::try_from(value).map_err(|_| self.layout("negative length"))
    }

    /// A number of parts, each of which takes four bytes at least.
    fn count(&mut self) -> Result<usize, RegisterError> {
        let count = self.int()?;
        if count > (self.bytes.len() - self.at) / 4 {
            return Err(self.layout("more parts than bytes"));
        }
        Ok(count)
    }

    fn part(&mut self) -> Result<&'a [u8], RegisterError> {
        let length = self.int()?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::topic::perm;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn topic() -> impl Strategy<Value = TopicConfig> {
        let attributes = prop::collection::btree_map("[a-z.]{1,5}", "[A-Z\"]{0,5}", 0..3);
        (
            "[%a-zA-Z0-9_-]{1,20}",
            0..99i32,
            0..99i32,
            0..8i32,
            attributes,
        )
            .prop_map(
                |(topic_name, read_queue_nums, write_queue_nums, perm, attributes)| TopicConfig {
                    topic_name,
                    read_queue_nums,
                    write_queue_nums,
                    perm,
                    attributes,
                    ..TopicConfig::default()
                },
            )
    }

    fn body() -> impl Strategy<Value = RegisterBrokerBody> {
        (
            prop::collection::vec(topic(), 0..20),
            any::<(i64, i64, i64)>(),
        )
            .prop_map(|(topics, (counter, state_version, timestamp))| {
                let version = DataVersion {
                    counter,
                    state_version,
                    timestamp,
                };
                let topics = topics.into_iter().map(|t| (t.topic_name.clone(), t));
                let mut body = RegisterBrokerBody::new(version, topics.collect());
                let wrapper = &mut body.topic_config_serialize_wrapper;
                let mapping = json!({"topic":"S","bname":"b","currIdMap":{"0":0}});
                wrapper
                    .topic_queue_mapping_info_map
                    .insert("S".into(), mapping);
                body
            })
    }

    proptest! {
        #[test]
        fn a_registration_is_read_as_it_was_written(body in body()) {
            let json = RegisterBrokerBody::decode(&body.encode(), false, 479);
            prop_assert_eq!(json.unwrap(), body.clone());
            let compressed = RegisterBrokerBody::decode(&body.encode_compressed(), true, 479);
            prop_assert_eq!(compressed.unwrap(), body);
        }

        #[test]
        fn damaged_registrations_never_panic(
            body in body(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
        ) {
            let mut parts = inflate(&body.encode_compressed()).unwrap();
            let at = at.index(parts.len());
            parts[at] = byte;
            parts.truncate(cut.index(parts.len() + 1));
            let _ = decode_compressed(&parts, 479);
        }
    }

    #[test]
    fn the_json_has_rocketmqs_members() {
        let topics = [("T".to_owned(), TopicConfig::new("T", 8, perm::READ))].into();
        let version = DataVersion {
            counter: 3,
            state_version: 0,
            timestamp: 17,
        };
        let text = String::from_utf8(RegisterBrokerBody::new(version, topics).encode()).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"filterServerList":[],"topicConfigSerializeWrapper":{"#,
                r#""dataVersion":{"counter":3,"stateVersion":0,"timestamp":17},"#,
                r#""mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"#,
                r#""topicConfigTable":{"T":{"attributes":{},"order":false,"perm":4,"readQueueNums":8,"#,
                r#""topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}},"#,
                r#""topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}"#
            )
        );
    }

    #[test]
    fn brokers_older_than_the_wrapper_are_read() {
        let text = br#"{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":{"topicName":"T"}}}"#;
        let body = RegisterBrokerBody::decode(text, false, 36).unwrap();
        let wrapper = body.topic_config_serialize_wrapper;
        assert_eq!(wrapper.data_version.counter, 1);
        assert!(wrapper.topic_config_table.contains_key("T"));
        assert_eq!(
            RegisterBrokerBody::decode(b"", true, 479),
            Ok(RegisterBrokerBody::default())
        );
    }

    #[test]
    fn the_compressed_form_of_brokers_before_5_ends_without_mappings() {
        let mut parts = Parts(Vec::new());
        parts.json(&DataVersion::default());
        parts.count(1);
        parts.text("T 8 4 6 SINGLE_TAG");
        parts.text("[]");
        let body = decode_compressed(&parts.0, 401).unwrap();
        let topic = &body.topic_config_serialize_wrapper.topic_config_table["T"];
        assert_eq!(
            (topic.read_queue_nums, topic.write_queue_nums, topic.perm),
            (8, 4, 6)
        );
        assert!(decode_compressed(&parts.0, 479).is_err());
    }

    #[test]
    fn a_registration_that_inflates_without_end_is_refused() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        let zeros = vec![0; 1 << 20];
        for _ in 0..65 {
            encoder.write_all(&zeros).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert_eq!(
            RegisterBrokerBody::decode(&bomb, true, 479),
            Err(RegisterError::TooLong)
        );
    }

    #[test]
    fn counts_are_held_against_the_bytes_that_are_there() {
        let mut parts = Parts(Vec::new());
        parts.json(&DataVersion::default());
        parts.count(i32::MAX as usize);
        let error = decode_compressed(&parts.0, 479).unwrap_err();
        assert!(
            error.to_string().contains("more parts than bytes"),
            "{error}"
        );
        let crowd = format!("[{}]", "{},".repeat(OBJECTS_MAX + 1));
        assert_eq!(
            RegisterBrokerBody::decode(crowd.as_bytes(), false, 479),
            Err(RegisterError::TooManyTopics)
        );
    }
}
