//! How a message is shown.

use crate::cli::show::{Cell, Charset, Document, Table, clean, clean_lines};
use ringmq::client::admin::StoredMessage;
use serde_json::{Map, Value, json};

/// Most bytes of a body that are shown to people.
const SHOWN_BYTES_MAX: usize = 16 * 1024;

/// A message for programs. The body, unless it is left out, is `body` where it is text, and
/// `bodyBase64` where it is not.
pub fn message_json(message: &StoredMessage, body: Option<Charset>) -> Value {
    let mut members = Map::new();
    let mut put = |key: &str, value: Value| {
        members.insert(key.to_owned(), value);
    };
    put("topic", json!(message.topic));
    put("queueId", json!(message.queue_id));
    put("queueOffset", json!(message.queue_offset));
    put("msgId", json!(message.unique_key()));
    put("offsetMsgId", json!(message.message_id));
    put("tags", json!(message.tags()));
    put("keys", json!(message.keys()));
    put("flag", json!(message.flag));
    put("sysFlag", json!(message.sys_flag));
    put("bornTimestamp", json!(message.born_time));
    put("bornHost", json!(message.born_host));
    put("storeTimestamp", json!(message.store_time));
    put("storeHost", json!(message.store_host));
    put("storeSize", json!(message.store_size));
    put("commitLogOffset", json!(message.physical_offset));
    put("reconsumeTimes", json!(message.reconsume_times));
    put("preparedTransactionOffset", json!(message.prepared_offset));
    put("crcValid", json!(message.sound));
    let properties = message.properties.iter();
    let properties = properties.map(|(name, value)| (name.clone(), json!(value)));
    put("properties", Value::Object(properties.collect()));
    if let Some(charset) = body {
        match charset.text(&message.body) {
            Some(text) => put("body", json!(text)),
            None => put("bodyBase64", json!(base64(&message.body))),
        }
    }
    Value::Object(members)
}

/// Base64 as in RFC 4648, with its padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            match digit <= chunk.len() {
                true => {
                    let index = group >> (18 - 6 * digit) & 63;
                    out.push(char::from(DIGITS[index as usize]));
                }
                false => out.push('='),
            }
        }
    }
    out
}

/// A body for people: text as it is, else what it is and its first bytes.
pub(super) fn body_text(body: &[u8], charset: Charset) -> String {
    match charset.text(body) {
        Some(text) => {
            let mut end = text.len().min(SHOWN_BYTES_MAX);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let more = match text.len().saturating_sub(SHOWN_BYTES_MAX) {
                0 => String::new(),
                more => format!("\n... and {more} bytes more"),
            };
            clean_lines(&text[..end]).into_owned() + &more
        }
        None => {
            let mut text = format!("{} bytes that are no text", body.len());
            for (at, line) in body.chunks(16).take(16).enumerate() {
                let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
                let shown = line.iter().map(|&byte| match byte {
                    0x20..0x7f => char::from(byte),
                    _ => '.',
                });
                let shown: String = shown.collect();
                text.push_str(&format!(
                    "\n{:06x}  {:<47}  {shown}",
                    at * 16,
                    hex.join(" ")
                ));
            }
            if body.len() > 256 {
                text.push_str(&format!("\n... and {} bytes more", body.len() - 256));
            }
            text
        }
    }
}

/// One message with everything there is to know.
pub(super) fn message_document(message: &StoredMessage, charset: Charset) -> Document {
    let mut properties = Table::new(
        "properties",
        &[("name", "PROPERTY"), ("value", "VALUE")],
        "no properties",
    )
    .for_people();
    for (name, value) in &message.properties {
        properties.row([Cell::text(name), Cell::text(value)]);
    }
    let text = |text: Option<&str>| Cell::of(text, Cell::text);
    let fields = [
        ("Topic", Cell::text(&message.topic)),
        ("Message id", text(message.unique_key())),
        ("Offset message id", Cell::text(&message.message_id)),
        ("Tags", text(message.tags())),
        ("Keys", text(message.keys())),
        ("Queue", Cell::Plain(message.queue_id.into())),
        ("Queue offset", Cell::Plain(message.queue_offset)),
        ("Log offset", Cell::Plain(message.physical_offset)),
        ("Size in the log", Cell::Bytes(message.store_size as i64)),
        ("Born", Cell::Time(message.born_time)),
        ("Born at", Cell::text(&message.born_host)),
        ("Stored", Cell::Time(message.store_time)),
        ("Stored at", Cell::text(&message.store_host)),
        ("Given back", Cell::Count(message.reconsume_times.into())),
        ("System flag", Cell::Plain(message.sys_flag.into())),
        (
            "Checksum",
            match message.sound {
                true => Cell::Good("right".to_owned()),
                false => Cell::Bad("wrong".to_owned()),
            },
        ),
    ];
    let mut document = Document::new();
    for (label, cell) in fields {
        document = document.label(label, cell);
    }
    document
        .table(properties)
        .note_lines(body_text(&message.body, charset))
        .for_programs("message", message_json(message, Some(charset)))
}

/// Several messages, one a row, with their bodies or without.
pub(super) fn messages_document(messages: &[StoredMessage], body: Option<Charset>) -> Document {
    let mut columns = vec![
        ("storeHost", "BROKER"),
        ("queueId", "QUEUE"),
        ("queueOffset", "OFFSET"),
        ("storeTimestamp", "STORED"),
        ("msgId", "MESSAGE ID"),
        ("tags", "TAGS"),
        ("keys", "KEYS"),
        ("size", "BODY"),
    ];
    if body.is_some() {
        columns.push(("body", "TEXT"));
    }
    let mut table = Table::new("messages", &columns, "no messages").for_people();
    for message in messages {
        let id = message.unique_key().unwrap_or(&message.message_id);
        let mut row = vec![
            Cell::text(&message.store_host),
            Cell::Plain(message.queue_id.into()),
            Cell::Plain(message.queue_offset),
            Cell::Time(message.store_time),
            Cell::text(id),
            Cell::of(message.tags(), Cell::text),
            Cell::of(message.keys(), Cell::text),
            Cell::Bytes(message.body.len() as i64),
        ];
        row.extend(body.map(|charset| Cell::Text(one_line(&message.body, charset))));
        table.row(row);
    }
    let values = messages.iter().map(|message| message_json(message, body));
    Document::new()
        .table(table)
        .for_programs("messages", values.collect())
}

/// The beginning of a body on one line.
fn one_line(body: &[u8], charset: Charset) -> String {
    let start = charset.lossy(&body[..body.len().min(512)]);
    let mut text: String = clean(&start).chars().take(200).collect();
    if body.len() > 512 {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_its_padding() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn bodies_are_shown_within_bounds() {
        let body_text = |body: &[u8]| body_text(body, Charset::default());
        assert_eq!(body_text("a\n\x1bb".as_bytes()), "a\n\\u{1b}b");
        let long = body_text("é".repeat(SHOWN_BYTES_MAX).as_bytes());
        assert!(
            long.ends_with("... and 16384 bytes more"),
            "{}",
            &long[long.len() - 40..]
        );
        let binary = body_text([0xff; 300].as_slice());
        assert!(
            binary.starts_with("300 bytes that are no text\n000000  ff ff"),
            "{binary}"
        );
        assert!(binary.ends_with("... and 44 bytes more"), "{binary}");
    }
}
