//! How consumed messages are written.

use super::super::admin::message_json;
use super::super::show::{Charset, clean, clean_lines, escape_json, local_time};
use clap::ValueEnum;
use ringmq::client::admin::StoredMessage;

/// How a message is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Its body and a line end.
    #[default]
    Text,
    /// A JSON object on one line, with everything there is to know.
    Json,
    /// Its body alone, as it is.
    Raw,
    /// What --template says.
    Template,
}

/// How messages are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Body and line end.
    Text,
    /// One JSON object a line.
    Json,
    /// Body alone.
    Raw,
    /// Pieces of text and values.
    Template(Vec<Piece>),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As it is.
    Text(String),
    /// A value of the message.
    Value(Value),
}

/// A value of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `{topic}`
    Topic,
    /// `{broker}`: address.
    Broker,
    /// `{queue}`
    Queue,
    /// `{offset}`
    Offset,
    /// `{id}`: of the sender.
    Id,
    /// `{tag}`
    Tag,
    /// `{keys}`
    Keys,
    /// `{born}`: local time.
    Born,
    /// `{stored}`: local time.
    Stored,
    /// `{size}`: bytes of the body.
    Size,
    /// `{retries}`
    Retries,
    /// `{body}`
    Body,
    /// `{property:NAME}`
    Property(String),
}

/// What a template may be made of.
pub const TEMPLATE_HELP: &str = "{topic} {broker} {queue} {offset} {id} {tag} {keys} {born} \
                                 {stored} {size} {retries} {body} {property:NAME}, \\n and \\t, {{ and }}";

impl Format {
    /// Reads `{value}` pieces in text.
    ///
    /// # Errors
    /// Text with the piece that is none.
    pub fn template(text: &str) -> Result<Format, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('n') => plain.push('\n'),
                    Some('t') => plain.push('\t'),
                    Some('0') => plain.push('\0'),
                    Some('\\') | None => plain.push('\\'),
                    Some(other) => {
                        return Err(format!("\\{other} is no escape: \\n, \\t, \\0, \\\\"));
                    }
                },
                '{' | '}' if chars.peek() == Some(&c) => {
                    chars.next();
                    plain.push(c);
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match chars.next() {
                            Some('}') => break,
                            Some(c) => name.push(c),
                            None => return Err(format!("{{{name} has no end")),
                        }
                    }
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Value(value(&name)?));
                }
                '}' => return Err("} without {".to_owned()),
                c => plain.push(c),
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Format::Template(pieces))
    }

    /// Appends a message. For a terminal, nothing that it obeys comes from the message.
    pub fn write(&self, out: &mut Vec<u8>, message: &StoredMessage, terminal: bool) {
        match self {
            Format::Text => {
                push_body(out, &message.body, terminal);
                out.push(b'\n');
            }
            Format::Raw => push_body(out, &message.body, terminal),
            Format::Json => {
                let line = message_json(message, Some(Charset::default())).to_string();
                out.extend_from_slice(escape_json(&line).as_bytes());
                out.push(b'\n');
            }
            Format::Template(pieces) => {
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                        Piece::Value(Value::Body) => push_body(out, &message.body, terminal),
                        Piece::Value(value) => {
                            let text = value.of(message);
                            match terminal {
                                true => out.extend_from_slice(clean(&text).as_bytes()),
                                false => out.extend_from_slice(text.as_bytes()),
                            }
                        }
                    }
                }
            }
        }
    }
}

fn push_body(out: &mut Vec<u8>, body: &[u8], terminal: bool) {
    match terminal {
        true => out.extend_from_slice(clean_lines(&String::from_utf8_lossy(body)).as_bytes()),
        false => out.extend_from_slice(body),
    }
}

fn value(name: &str) -> Result<Value, String> {
    Ok(match name {
        "topic" => Value::Topic,
        "broker" => Value::Broker,
        "queue" => Value::Queue,
        "offset" => Value::Offset,
        "id" => Value::Id,
        "tag" | "tags" => Value::Tag,
        "key" | "keys" => Value::Keys,
        "born" => Value::Born,
        "stored" => Value::Stored,
        "size" => Value::Size,
        "retries" => Value::Retries,
        "body" => Value::Body,
        _ => match name.strip_prefix("property:") {
            Some(name) if !name.is_empty() => Value::Property(name.to_owned()),
            _ => return Err(format!("{{{name}}} is no value: {TEMPLATE_HELP}")),
        },
    })
}

impl Value {
    fn of(&self, message: &StoredMessage) -> String {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        match self {
            Value::Topic => message.topic.clone(),
            Value::Broker => message.store_host.clone(),
            Value::Queue => message.queue_id.to_string(),
            Value::Offset => message.queue_offset.to_string(),
            Value::Id => text(message.unique_key().or(Some(&message.message_id))),
            Value::Tag => text(message.tags()),
            Value::Keys => text(message.keys()),
            Value::Born => local_time(message.born_time),
            Value::Stored => local_time(message.store_time),
            Value::Size => message.body.len().to_string(),
            Value::Retries => message.reconsume_times.to_string(),
            Value::Body => String::from_utf8_lossy(&message.body).into_owned(),
            Value::Property(name) => text(message.property(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> StoredMessage {
        StoredMessage {
            topic: "T".into(),
            queue_id: 3,
            queue_offset: 7,
            physical_offset: 0,
            store_size: 0,
            flag: 0,
            sys_flag: 0,
            born_time: 1,
            born_host: "h:1".into(),
            store_time: 2,
            store_host: "b:1".into(),
            reconsume_times: 0,
            prepared_offset: 0,
            message_id: "OFF".into(),
            properties: vec![("TAGS".into(), "t\x1b".into()), ("a".into(), "1".into())],
            body: b"b\x1b[2J\n\xff".to_vec(),
            sound: true,
        }
    }

    fn written(format: &Format, terminal: bool) -> Vec<u8> {
        let mut out = Vec::new();
        format.write(&mut out, &message(), terminal);
        out
    }

    #[test]
    fn bodies_are_written_as_they_are_but_not_to_a_terminal() {
        assert_eq!(written(&Format::Text, false), b"b\x1b[2J\n\xff\n");
        assert_eq!(written(&Format::Raw, false), b"b\x1b[2J\n\xff");
        let shown = "b\\u{1b}[2J\n\u{fffd}\n".as_bytes();
        assert_eq!(written(&Format::Text, true), shown);
    }

    #[test]
    fn a_template_has_values_in_text() {
        let format = Format::template(
            "{topic}/{queue}@{offset} {{{tag}}} {property:a}{property:x}\\t{id}\\n",
        );
        let text = written(&format.unwrap(), true);
        assert_eq!(String::from_utf8_lossy(&text), "T/3@7 {t\\u{1b}} 1\tOFF\n");
        for bad in ["{", "{x}", "}", "{property:}", "\\q", "{body"] {
            assert!(Format::template(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn json_is_one_line_that_no_terminal_obeys() {
        let text = String::from_utf8(written(&Format::Json, false)).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["bodyBase64"], "YhtbMkoK/w==");
        assert_eq!(value["tags"], "t\x1b");
        assert!(!text.contains('\x1b'));
    }

    proptest! {
        #[test]
        fn any_template_is_read_or_refused(text: String) {
            let _ = Format::template(&text);
        }
    }
}
