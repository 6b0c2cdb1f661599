//! What sends of one sender have in common, read once: of the next only the few fields are read
//! that vary from one to the other.

use super::header::{FieldError, Header};
use super::header_shape::Shape;
use super::send_header::{SendHeader, place};

/// A send of a shape.
#[derive(Debug)]
pub(super) struct SendShape {
    /// What is no text.
    plain: SendHeader<'static>,
    producer_group: Box<[u8]>,
    topic: Box<str>,
    default_topic: Box<str>,
    properties: Box<[u8]>,
    /// Of each field that varies, what it is; none: nothing that a send has.
    varying: Vec<Option<usize>>,
}

impl SendShape {
    /// Of `send`, of request `code`, which has the shape.
    pub fn of(shape: &Shape, code: i32, send: &SendHeader<'_>) -> SendShape {
        let varying = shape.fields().filter(|(_, value)| value.is_none());
        SendShape {
            plain: SendHeader {
                producer_group: b"",
                topic: "",
                default_topic: "",
                properties: b"",
                ..*send
            },
            producer_group: send.producer_group.into(),
            topic: send.topic.into(),
            default_topic: send.default_topic.into(),
            properties: send.properties.into(),
            varying: varying.map(|(name, _)| place(code, name)).collect(),
        }
    }

    /// Reads a header that has the shape.
    ///
    /// # Errors
    /// As of [`SendHeader::parse`].
    pub fn parse<'a>(&'a self, header: &Header<'a>) -> Result<SendHeader<'a>, FieldError> {
        let mut send = SendHeader {
            producer_group: &self.producer_group,
            topic: &self.topic,
            default_topic: &self.default_topic,
            properties: &self.properties,
            ..self.plain
        };
        for (place, value) in self.varying.iter().zip(header.read_values()) {
            if let Some(place) = place {
                send.set(*place, value)?;
            }
        }
        Ok(send)
    }
}

#[cfg(test)]
mod tests {
    use super::super::codes::request;
    use super::super::frame::{Frame, Serialize};
    use super::super::header::Scratch;
    use super::*;
    use proptest::prelude::*;

    /// A header with these fields, as clients write it.
    fn header(code: i32, opaque: i32, fields: &[(String, String)]) -> String {
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!(r#""{name}":"{value}""#))
            .collect();
        format!(
            r#"{{"code":{code},"extFields":{{{}}},"flag":0,"opaque":{opaque},"version":477}}"#,
            fields.join(",")
        )
    }

    /// Reads sends of one sender, each also for itself; how many had a shape whose sends are
    /// known.
    fn check(headers: &[String]) -> usize {
        let mut scratch = Scratch::default();
        let mut known = 0;
        for text in headers {
            let frame = Frame {
                serialize: Serialize::Json,
                header: text.as_bytes(),
                body: &[],
            };
            let mut plain = Scratch::default();
            let plain = Header::decode(&frame, &mut plain).unwrap();
            let shaped = Header::decode_from(&frame, 3, &mut scratch).unwrap();
            let shape = shaped.shape().and_then(|shape| shape.send.get());
            known += usize::from(shape.is_some());
            for _ in 0..2 {
                let (shaped, plain) = (SendHeader::parse(&shaped), SendHeader::parse(&plain));
                assert_eq!(shaped, plain, "{text}");
            }
        }
        known
    }

    /// The fields of a send, the first with a name of letters, the second of words.
    fn fields(n: usize) -> Vec<(&'static str, &'static str, String)> {
        let own = |letter, word, value: &str| (letter, word, value.to_owned());
        vec![
            own("a", "producerGroup", "group"),
            own("b", "topic", "topic"),
            own("c", "defaultTopic", "TBW102"),
            own("d", "defaultTopicQueueNums", "4"),
            ("e", "queueId", (n % 8).to_string()),
            own("f", "sysFlag", "0"),
            ("g", "bornTimestamp", (1_700_000_000_000 + n).to_string()),
            own("h", "flag", "0"),
            ("i", "properties", format!("UNIQ_KEY\\u0001{n:032}\\u0002")),
            own("j", "reconsumeTimes", "0"),
            own("k", "unitMode", "false"),
            own("l", "maxReconsumeTimes", ""),
            own("m", "batch", "false"),
            own("n", "brokerName", "broker-a"),
        ]
    }

    #[test]
    fn sends_that_are_alike_are_known_from_the_third_on() {
        for (code, letters) in [
            (request::SEND_MESSAGE, false),
            (request::SEND_MESSAGE_V2, true),
        ] {
            let headers: Vec<String> = (0..50)
                .map(|n| {
                    let named = fields(n).into_iter().map(|(letter, word, value)| {
                        let name = if letters { letter } else { word };
                        (name.to_owned(), value)
                    });
                    header(code, n as i32, &named.collect::<Vec<_>>())
                })
                .collect();
            assert!(check(&headers) >= 46, "{}", check(&headers));
        }
    }

    proptest! {
        /// Whatever varies, is missing, is there twice or is not of its type.
        #[test]
        fn a_send_means_the_same_whatever_came_before(
            sends in prop::collection::vec((0usize..9, prop::collection::vec((
                0usize..14,
                prop::sample::select(vec!["", "1", "-7", "x", "true", "99999999999", "\\u0001k\\u0002"]),
                prop::sample::select(vec!["set", "set", "again", "leave out"]),
            ), 0..3)), 1..12),
            code in prop::sample::select(vec![request::SEND_MESSAGE_V2, request::SEND_BATCH_MESSAGE]),
        ) {
            let mut repeated = Vec::new();
            for (n, (times, changes)) in sends.iter().enumerate() {
                let named = fields(n).into_iter();
                let mut named: Vec<_> = named
                    .map(|(letter, _, value)| (letter.to_owned(), value))
                    .collect();
                for (place, value, how) in changes {
                    let place = place % named.len();
                    match *how {
                        "set" => named[place].1 = (*value).to_owned(),
                        "again" => named.push((named[place].0.clone(), (*value).to_owned())),
                        _ => drop(named.remove(place)),
                    }
                }
                repeated.extend((0..=*times).map(|at| header(code, at as i32, &named)));
            }
            check(&repeated);
        }
    }
}
