//! Messages are read from lines: of text, or of JSON.

use clap::ValueEnum;
use ringmq::client::message::{RESERVED, SHARDING_KEY};
use ringmq::wire::body::json;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::BufRead;

/// What a line of the input is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Input {
    /// The body of a message.
    #[default]
    Text,
    /// A JSON object with `body` (or `bodyBase64`), and if wanted `tags`, `keys`, `properties`,
    /// `delayLevel`, `shardingKey`: what `ringmq consume --format json` writes.
    Json,
    /// There are no lines: all of the input is the body of one message.
    Raw,
}

/// A message as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The body.
    pub body: Vec<u8>,
    /// Keys, with blanks between them.
    pub keys: Option<String>,
    /// The tag.
    pub tags: Option<String>,
    /// Other properties.
    pub properties: Vec<(String, String)>,
    /// Delay level, from 1.
    pub delay_level: Option<u32>,
    /// Messages with the same go to the same queue.
    pub sharding_key: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JsonLine {
    body: Option<String>,
    body_base64: Option<String>,
    keys: Option<String>,
    tags: Option<String>,
    properties: Option<BTreeMap<String, String>>,
    delay_level: Option<u32>,
    sharding_key: Option<String>,
}

/// A line that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFault {
    /// Which line, and what is wrong with it.
    pub what: String,
    /// It is longer than the limit.
    pub too_long: bool,
}

impl From<String> for LineFault {
    fn from(what: String) -> LineFault {
        LineFault {
            what,
            too_long: false,
        }
    }
}

/// Reads messages one after the other.
pub struct Lines<R> {
    input: R,
    kind: Input,
    /// Between key and body of a line of text.
    key_separator: Option<String>,
    limit: usize,
    number: u64,
    done: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads lines of `limit` bytes at most.
    pub fn new(input: R, kind: Input, key_separator: Option<String>, limit: usize) -> Lines<R> {
        Lines {
            input,
            kind,
            key_separator,
            limit,
            number: 0,
            done: false,
        }
    }

    /// Number of the line that was read last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next message; `None` at the end. Empty lines are passed over.
    ///
    /// # Errors
    /// The line is too long, is not what it should be, or cannot be read.
    pub fn next(&mut self) -> Result<Option<Line>, LineFault> {
        loop {
            if self.done {
                return Ok(None);
            }
            let mut bytes = self.read()?;
            if self.kind == Input::Raw {
                self.done = true;
                return Ok((!bytes.is_empty()).then(|| Line {
                    body: bytes,
                    ..Line::default()
                }));
            }
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
            if bytes.is_empty() {
                continue;
            }
            return Ok(Some(self.line(bytes)?));
        }
    }

    fn line(&self, bytes: Vec<u8>) -> Result<Line, String> {
        let number = self.number;
        let bad = |why: String| format!("line {number}: {why}");
        if self.kind == Input::Json {
            return json_line(&bytes).map_err(bad);
        }
        let Some(separator) = &self.key_separator else {
            return Ok(Line {
                body: bytes,
                ..Line::default()
            });
        };
        let at = bytes
            .windows(separator.len())
            .position(|window| window == separator.as_bytes())
            .ok_or_else(|| bad(format!("no {separator:?} between key and body")))?;
        let key = std::str::from_utf8(&bytes[..at])
            .map_err(|_| bad("the key is not UTF-8".to_owned()))?;
        Ok(Line {
            keys: (!key.is_empty()).then(|| key.to_owned()),
            body: bytes[at + separator.len()..].to_vec(),
            ..Line::default()
        })
    }

    /// The bytes up to the end of the line, or of everything.
    fn read(&mut self) -> Result<Vec<u8>, LineFault> {
        self.number += 1;
        let mut out = Vec::new();
        let place = match self.kind {
            Input::Raw => "the input".to_owned(),
            _ => format!("line {}", self.number),
        };
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("{place}: {error}").into()),
            };
            let end = match self.kind {
                Input::Raw => None,
                _ => chunk.iter().position(|&byte| byte == b'\n'),
            };
            let taken = end.unwrap_or(chunk.len());
            if out.len() + taken > self.limit {
                return Err(LineFault {
                    what: format!("{place}: longer than {} bytes", self.limit),
                    too_long: true,
                });
            }
            out.extend_from_slice(&chunk[..taken]);
            let is_end = chunk.is_empty();
            self.input.consume(taken + usize::from(end.is_some()));
            if is_end {
                self.done = true;
            }
            if is_end || end.is_some() {
                return Ok(out);
            }
        }
    }
}

fn json_line(bytes: &[u8]) -> Result<Line, String> {
    let read: JsonLine = json::parse(bytes).map_err(|error| error.to_string())?;
    let body = match (read.body, read.body_base64) {
        (Some(body), None) => body.into_bytes(),
        (None, Some(text)) => {
            from_base64(&text).ok_or_else(|| "bodyBase64 is no base64".to_owned())?
        }
        (Some(_), Some(_)) => return Err("both body and bodyBase64".to_owned()),
        (None, None) => return Err("neither body nor bodyBase64".to_owned()),
    };
    let mut properties = read.properties.unwrap_or_default();
    let sharding_key = properties.remove(SHARDING_KEY);
    // What clients and brokers set themselves is not taken over.
    properties.retain(|name, value| !RESERVED.contains(&name.as_str()) && !value.trim().is_empty());
    Ok(Line {
        body,
        keys: read.keys,
        tags: read.tags,
        properties: properties.into_iter().collect(),
        delay_level: read.delay_level,
        sharding_key: read.sharding_key.or(sharding_key),
    })
}

/// Bytes of base64 as in RFC 4648, with or without its padding.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        let mut group = 0u32;
        for &digit in chunk {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            group = group << 6 | u32::from(value);
        }
        let bits = chunk.len() * 6;
        if chunk.len() == 1 {
            return None;
        }
        group <<= 24 - bits;
        out.extend_from_slice(&group.to_be_bytes()[1..=bits / 8]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::admin::base64;
    use proptest::prelude::*;

    fn all(input: &[u8], kind: Input, separator: Option<&str>) -> Result<Vec<Line>, LineFault> {
        let mut lines = Lines::new(input, kind, separator.map(str::to_owned), 20);
        let mut found = Vec::new();
        while let Some(line) = lines.next()? {
            found.push(line);
        }
        Ok(found)
    }

    fn bodies(lines: &[Line]) -> Vec<&[u8]> {
        lines.iter().map(|line| line.body.as_slice()).collect()
    }

    #[test]
    fn lines_of_text_are_bodies() {
        let lines = all(b"a\r\n\nb\xff\nlast", Input::Text, None).unwrap();
        assert_eq!(bodies(&lines), [b"a".as_slice(), b"b\xff", b"last"]);
        let lines = all(b"k1\tv\n\tw\n", Input::Text, Some("\t")).unwrap();
        assert_eq!(lines[0].keys.as_deref(), Some("k1"));
        assert_eq!(
            (lines[1].keys.as_deref(), lines[1].body.as_slice()),
            (None, b"w".as_slice())
        );
        let raw = all(b"a\nb\n", Input::Raw, None).unwrap();
        assert_eq!(bodies(&raw), [b"a\nb\n"]);
        assert!(all(b"", Input::Raw, None).unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (input, kind, separator, what) in [
            (
                "ok\n123456789012345678901",
                Input::Text,
                None,
                "line 2: longer than 20 bytes",
            ),
            (
                "123456789012345678901",
                Input::Raw,
                None,
                "the input: longer than 20",
            ),
            ("a\nb", Input::Text, Some("="), "line 1: no \"=\" between"),
            ("{}", Input::Json, None, "line 1: neither body"),
            ("{\"body\":1}", Input::Json, None, "line 1: JSON"),
            ("{\"bodyBase64\":\"?\"}", Input::Json, None, "no base64"),
        ] {
            let error = all(input.as_bytes(), kind, separator).unwrap_err();
            assert!(error.what.contains(what), "{error:?}");
            assert_eq!(error.too_long, what.contains("longer"));
        }
    }

    #[test]
    fn json_lines_carry_all_there_is() {
        let line = json_line(
            br#"{"body":"b","tags":"t","keys":"k1 k2","properties":{"a":"1","UNIQ_KEY":"x"},
                "delayLevel":3,"shardingKey":"s","queueId":5}"#,
        );
        assert_eq!(
            line,
            Ok(Line {
                body: b"b".to_vec(),
                keys: Some("k1 k2".into()),
                tags: Some("t".into()),
                properties: vec![("a".into(), "1".into())],
                delay_level: Some(3),
                sharding_key: Some("s".into()),
            })
        );
    }

    proptest! {
        #[test]
        fn base64_is_read_as_it_is_written(bytes: Vec<u8>) {
            prop_assert_eq!(from_base64(&base64(&bytes)), Some(bytes));
        }

        #[test]
        fn any_base64_is_read_or_refused(text: String) {
            let _ = from_base64(&text);
        }
    }
}
