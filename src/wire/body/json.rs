//! Reading and writing the dialect of JSON that fastjson, RocketMQ's JSON library, speaks.
//!
//! Most bodies are plain JSON. Some are not: `Map<Integer, …>` is written with
//! bare keys, `{0:1}`, and `Map<MessageQueue, …>` with whole objects as keys,
//! `{{"brokerName":"b","queueId":0,"topic":"T"}:1}`. Official clients and tools
//! write both and read the second in no other form.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

/// Deepest nesting of a body that is not plain JSON; plain JSON may nest 127 deep.
pub const DEPTH_MAX: usize = 64;

/// Why a body is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    what: Cow<'static, str>,
    at: Option<usize>,
}

impl JsonError {
    /// Offset in the body, in bytes, at which it was noticed. `None` where a
    /// body that is not plain JSON is well formed but holds a value of another type.
    pub fn at(&self) -> Option<usize> {
        self.at
    }

    fn from_serde(error: &serde_json::Error, text: Option<&[u8]>) -> JsonError {
        let at = text.filter(|_| error.line() > 0).map(|text| {
            let lines = text.split(|&b| b == b'\n').take(error.line() - 1);
            lines.map(|line| line.len() + 1).sum::<usize>() + error.column()
        });
        JsonError {
            what: Cow::Owned(error.to_string()),
            at,
        }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JSON: {}", self.what)?;
        match self.at {
            Some(at) => write!(f, " (byte {at})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for JsonError {}

/// Reads plain JSON or fastjson's dialect of it: keys that are bare numbers,
/// bare words or objects, strings in single quotes, commas before a closing
/// bracket, Java's escapes.
///
/// An object used as a key reaches `T` as a string that holds it as JSON, which
/// is what [`MessageQueue`] reads.
///
/// # Errors
/// [`JsonError`] for what is neither, nests deeper than [`DEPTH_MAX`] or is no `T`.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    let strict = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let plain = normalise(bytes)?;
    serde_json::from_slice(&plain).map_err(|error| match strict.classify() {
        // The strict reader got as far as the value that is no `T`.
        Category::Data => JsonError::from_serde(&strict, Some(bytes)),
        _ => JsonError::from_serde(&error, None),
    })
}

/// Rewrites the dialect as plain JSON, dropping white space between tokens.
fn normalise(bytes: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        in_key: false,
    };
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 4);
    reader.value(&mut out, 0)?;
    reader.white();
    if reader.at != bytes.len() {
        return Err(reader.error("more after the value"));
    }
    Ok(out)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Inside an object that is a key: escaping such an object once more for
    /// every level would double its size for every level.
    in_key: bool,
}

impl Reader<'_> {
    fn error(&self, what: &'static str) -> JsonError {
        JsonError {
            what: Cow::Borrowed(what),
            at: Some(self.at),
        }
    }

    fn white(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b) if b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Result<u8, JsonError> {
        self.white();
        let next = self.bytes.get(self.at).copied();
        next.ok_or_else(|| self.error("ends early"))
    }

    /// Takes `close` if it is next.
    fn closes(&mut self, close: u8) -> Result<bool, JsonError> {
        let closes = self.peek()? == close;
        self.at += usize::from(closes);
        Ok(closes)
    }

    /// Takes bytes as long as they are part of a bare word or number.
    fn word(&mut self) -> &[u8] {
        let start = self.at;
        while matches!(self.bytes.get(self.at),
            Some(b) if b.is_ascii_alphanumeric() || b"_$+-.".contains(b) || !b.is_ascii())
        {
            self.at += 1;
        }
        &self.bytes[start..self.at]
    }

    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), JsonError> {
        if depth == DEPTH_MAX {
            return Err(self.error("nested too deeply"));
        }
        match self.peek()? {
            b'{' => self.object(out, depth),
            b'[' => self.list(out, depth, b']', Reader::value),
            quote @ (b'"' | b'\'') => self.string(out, quote),
            _ => {
                let start = self.at;
                let word = self.word();
                let known = matches!(word, b"true" | b"false" | b"null");
                let number = word
                    .first()
                    .is_some_and(|&b| b == b'-' || b.is_ascii_digit());
                if known || number {
                    out.extend_from_slice(word);
                    return Ok(());
                }
                self.at = start;
                Err(self.error("expected a value"))
            }
        }
    }

    fn object(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), JsonError> {
        self.list(out, depth, b'}', |reader, out, depth| {
            reader.key(out, depth)?;
            if reader.peek()? != b':' {
                return Err(reader.error("expected :"));
            }
            reader.at += 1;
            out.push(b':');
            reader.value(out, depth)
        })
    }

    /// What stands between brackets, separated by commas.
    fn list(
        &mut self,
        out: &mut Vec<u8>,
        depth: usize,
        close: u8,
        mut item: impl FnMut(&mut Self, &mut Vec<u8>, usize) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        out.push(self.bytes[self.at]);
        self.at += 1;
        let mut first = true;
        while !self.closes(close)? {
            if !first {
                out.push(b',');
            }
            first = false;
            item(self, out, depth + 1)?;
            if self.peek()? == b',' {
                self.at += 1;
            } else if self.peek()? != close {
                return Err(self.error("expected , or a closing bracket"));
            }
        }
        out.push(close);
        Ok(())
    }

    fn key(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), JsonError> {
        match self.peek()? {
            b'{' if self.in_key => Err(self.error("object as a key within a key")),
            b'{' => {
                self.in_key = true;
                let mut key = Vec::new();
                self.value(&mut key, depth)?;
                self.in_key = false;
                out.push(b'"');
                for byte in key {
                    if matches!(byte, b'"' | b'\\') {
                        out.push(b'\\');
                    }
                    out.push(byte);
                }
                out.push(b'"');
                Ok(())
            }
            quote @ (b'"' | b'\'') => self.string(out, quote),
            _ => {
                let word = self.word();
                if word.is_empty() {
                    return Err(self.error("expected a member name"));
                }
                out.push(b'"');
                out.extend_from_slice(word);
                out.push(b'"');
                Ok(())
            }
        }
    }

    fn string(&mut self, out: &mut Vec<u8>, quote: u8) -> Result<(), JsonError> {
        self.at += 1;
        out.push(b'"');
        loop {
            let byte = *self
                .bytes
                .get(self.at)
                .ok_or_else(|| self.error("string does not end"))?;
            self.at += 1;
            match byte {
                b'\\' => self.escape(out)?,
                _ if byte == quote => {
                    out.push(b'"');
                    return Ok(());
                }
                b'"' => out.extend_from_slice(b"\\\""),
                0..0x20 => push_code(out, byte),
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        let next = *self
            .bytes
            .get(self.at)
            .ok_or_else(|| self.error("string does not end"))?;
        self.at += 1;
        match next {
            b'\'' => out.push(b'\''),
            b'v' => push_code(out, 0x0b),
            b'0'..=b'7' => push_code(out, next - b'0'),
            b'x' => {
                let digits = self.bytes.get(self.at..self.at + 2);
                let digits = digits.filter(|d| d.iter().all(u8::is_ascii_hexdigit));
                let digits = digits.ok_or_else(|| self.error("bad \\x escape"))?;
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(digits);
                self.at += 2;
            }
            // The others are JSON's own or are refused by the strict reader.
            _ => out.extend_from_slice(&[b'\\', next]),
        }
        Ok(())
    }
}

fn push_code(out: &mut Vec<u8>, code: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\u00");
    out.push(HEX[usize::from(code >> 4)]);
    out.push(HEX[usize::from(code & 15)]);
}

/// Reads a member that may be `null` where its Java class would keep the default.
///
/// # Errors
/// Whatever reading a `T` can give.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The name of one queue: a value in some bodies, a key of maps in others.
///
/// As a key it is read from what [`parse`] makes of an object, or from an object
/// quoted by its sender, as the Go admin tools do.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageQueue {
    /// Name of the broker.
    pub broker_name: String,
    /// Number of the queue in its topic on that broker, from 0.
    pub queue_id: i32,
    /// Name of the topic.
    pub topic: String,
}

impl<'de> Deserialize<'de> for MessageQueue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QueueVisitor;
        impl<'de> Visitor<'de> for QueueVisitor {
            type Value = MessageQueue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message queue")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MessageQueue, E> {
                // A string within the string would come here again.
                if !text.trim_start().starts_with('{') {
                    return Err(E::custom("expected a message queue"));
                }
                parse(text.as_bytes()).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MessageQueue, A::Error> {
                let mut queue = MessageQueue::default();
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    match &*key {
                        "brokerName" => queue.broker_name = map.next_value()?,
                        "queueId" => queue.queue_id = map.next_value()?,
                        "topic" => queue.topic = map.next_value()?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(queue)
            }
        }
        deserializer.deserialize_any(QueueVisitor)
    }
}

/// Appends `value` as JSON. A value that has no form in JSON, such as a map
/// whose keys are not strings or numbers, becomes `null`.
pub fn write_value<V: Serialize + ?Sized>(out: &mut String, value: &V) {
    match serde_json::to_string(value) {
        Ok(text) => out.push_str(&text),
        Err(_) => out.push_str("null"),
    }
}

/// `value` as a JSON body; see [`write_value`].
pub fn encode<V: Serialize + ?Sized>(value: &V) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec())
}

/// Appends a map whose keys are queues, in the only form that official tools
/// read: `{{"brokerName":"b","queueId":0,"topic":"T"}:value,…}`.
pub fn write_queue_map<'a, V: Serialize + 'a>(
    out: &mut String,
    entries: impl Iterator<Item = (&'a MessageQueue, &'a V)>,
) {
    out.push('{');
    for (index, (queue, value)) in entries.enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_value(out, queue);
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn read(text: &str) -> Result<Value, JsonError> {
        parse(text.as_bytes())
    }

    fn queue(topic: &str, queue_id: i32) -> MessageQueue {
        MessageQueue {
            broker_name: "b".into(),
            queue_id,
            topic: topic.into(),
        }
    }

    #[test]
    fn offsets_are_read_with_bare_and_with_quoted_queue_ids() {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Body {
            offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
        }
        let body: Body = parse(br#"{"offsetTable":{"T@G":{0:1,"1":2, -3 : 4,}}}"#).unwrap();
        assert_eq!(body.offset_table["T@G"], [(-3, 4), (0, 1), (1, 2)].into());
    }

    #[test]
    fn a_map_with_objects_as_keys_is_read_as_it_is_written() {
        let table: BTreeMap<_, _> = [(queue("T\"\\\n", 0), 7i64), (queue("日", 1), 8)].into();
        let mut text = String::new();
        write_queue_map(&mut text, table.iter());
        assert!(text.starts_with(r#"{{"brokerName":"b","queueId":0,"topic":"T\"\\\n"}:7,{"#));
        let back: BTreeMap<MessageQueue, i64> = parse(text.as_bytes()).unwrap();
        assert_eq!(back, table);
    }

    #[test]
    fn a_queue_is_read_in_every_form() {
        let quoted = r#"{"{\"topic\":\"T\",\"queueId\":3,\"brokerName\":\"b\"}":1}"#;
        let bare = r#"{{topic:'T',queueId:3,brokerName:"b",x:[{}]}:1}"#;
        for text in [quoted, bare] {
            let map: BTreeMap<MessageQueue, i64> = parse(text.as_bytes()).unwrap();
            assert_eq!(map, [(queue("T", 3), 1)].into(), "{text}");
        }
        let list: Vec<MessageQueue> =
            parse(br#"[{"topic":"T","queueId":3,"brokerName":"b"}]"#).unwrap();
        assert_eq!(list, [queue("T", 3)]);
        assert!(parse::<BTreeMap<MessageQueue, i64>>(br#"{"\"\"":1}"#).is_err());
    }

    #[test]
    fn the_dialect_is_understood() {
        for (text, value) in [
            (r#"{0:"a",1:{2:3}}"#, json!({"0":"a","1":{"2":3}})),
            (r#"{a_b$:true,日:null}"#, json!({"a_b$":true,"日":null})),
            ("['a\"b','it\\'s',]", json!(["a\"b", "it's"])),
            (r#"["\x41\v\0","é"#, json!(null)),
            (r#"['\x41\v\0',"é"]"#, json!(["A\u{b}\0", "é"])),
            ("[\"raw\ttab\"]", json!(["raw\ttab"])),
            (r#"[1,-2.5e3,{},[],]"#, json!([1, -2.5e3, {}, []])),
        ] {
            match read(text) {
                Ok(read) => assert_eq!(read, value, "{text}"),
                Err(error) => assert!(value.is_null(), "{text}: {error}"),
            }
        }
    }

    #[test]
    fn garbage_is_refused_with_its_place() {
        for (text, at) in [
            ("", 0),
            ("{0:1", 4),
            ("{0:1}}", 5),
            ("{0:x}", 3),
            ("{0 1}", 3),
            ("[1 2]", 3),
            ("[,]", 1),
            ("{:1}", 1),
            ("['a", 3),
            ("{{{a:1}:1}:1}", 2),
        ] {
            assert_eq!(read(text).unwrap_err().at(), Some(at), "{text}");
        }
        let wrong_type = parse::<Vec<i32>>(b"[1,\n\"x\"]").unwrap_err();
        assert_eq!(wrong_type.at(), Some(7));
    }

    #[test]
    fn depth_is_bounded() {
        for open in ["[", "{a:"] {
            let error = read(&open.repeat(1_000_000)).unwrap_err();
            assert!(error.to_string().contains("too deeply"), "{error}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn plain_json_keeps_its_meaning(value in any_json()) {
            for text in [serde_json::to_vec(&value), serde_json::to_vec_pretty(&value)] {
                let plain = normalise(&text.unwrap()).unwrap();
                prop_assert_eq!(serde_json::from_slice::<Value>(&plain).unwrap(), value.clone());
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[{}\\[\\]:,'\"\\\\a0x.-é \n]{0,40}") {
            let _ = read(&text);
        }
    }
}
