//! Answers, read for the two or three fields that matter.

use memchr::memmem::Finder;
use ringmq::wire::frame::{Frame, Serialize};
use ringmq::wire::header::{Header, Scratch};

/// Reads answers. The usual JSON is searched for its fields; whatever is written
/// otherwise is decoded as a whole.
pub struct Reader {
    opaque: Finder<'static>,
    code: Finder<'static>,
    flag: Finder<'static>,
    scratch: Scratch,
}

/// The fixed part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Response code.
    pub code: i32,
    /// Number of the request.
    pub opaque: i32,
    /// Whether it is an answer; brokers also send requests of their own.
    pub is_answer: bool,
}

/// An ext field with a number.
pub struct Field {
    name: &'static str,
    finder: Finder<'static>,
}

impl Field {
    /// `quoted` is the name as JSON: in quotes, with the colon and the quote behind it.
    fn new(name: &'static str, quoted: &'static str) -> Field {
        Field {
            name,
            finder: Finder::new(quoted),
        }
    }

    /// Queue offset of the first message of a send.
    pub fn queue_offset() -> Field {
        Field::new("queueOffset", "\"queueOffset\":\"")
    }

    /// Where a pull goes on.
    pub fn next_begin_offset() -> Field {
        Field::new("nextBeginOffset", "\"nextBeginOffset\":\"")
    }
}

impl Reader {
    /// A reader.
    pub fn new() -> Reader {
        Reader {
            opaque: Finder::new("\"opaque\":"),
            code: Finder::new("\"code\":"),
            flag: Finder::new("\"flag\":"),
            scratch: Scratch::default(),
        }
    }

    /// The fixed part.
    ///
    /// # Errors
    /// The header is not well formed.
    pub fn fixed(&mut self, frame: &Frame<'_>) -> Result<Fixed, String> {
        if frame.serialize == Serialize::Json {
            let number = |finder: &Finder<'_>| {
                let at = finder.find(frame.header)? + finder.needle().len();
                number_at(frame.header, at)
            };
            let found = (number(&self.code), number(&self.opaque), number(&self.flag));
            if let (Some(code), Some(opaque), Some(flag)) = found {
                return Ok(Fixed {
                    code: code as i32,
                    opaque: opaque as i32,
                    is_answer: flag & 1 == 1,
                });
            }
        }
        let header = Header::decode(frame, &mut self.scratch).map_err(|error| error.to_string())?;
        Ok(Fixed {
            code: header.fixed.code,
            opaque: header.fixed.opaque,
            is_answer: header.fixed.is_response(),
        })
    }

    /// The number in an ext field, if it is there.
    pub fn field(&mut self, frame: &Frame<'_>, field: &Field) -> Option<i64> {
        if frame.serialize == Serialize::Json {
            let at = field.finder.find(frame.header);
            let at = at.map(|at| at + field.finder.needle().len());
            if let Some(number) = at.and_then(|at| number_at(frame.header, at)) {
                return Some(number);
            }
        }
        let header = Header::decode(frame, &mut self.scratch).ok()?;
        std::str::from_utf8(header.get(field.name)?)
            .ok()?
            .parse()
            .ok()
    }

    /// The remark, for a message about a refusal.
    pub fn remark(&mut self, frame: &Frame<'_>) -> String {
        let header = Header::decode(frame, &mut self.scratch);
        let remark = header.ok().and_then(|header| header.remark());
        remark.map_or(String::new(), |remark| {
            String::from_utf8_lossy(remark).into_owned()
        })
    }
}

/// The decimal number at this place; `None` where there is none.
fn number_at(bytes: &[u8], at: usize) -> Option<i64> {
    let negative = bytes.get(at) == Some(&b'-');
    let start = at + usize::from(negative);
    let digits = bytes[start..]
        .iter()
        .take_while(|digit| digit.is_ascii_digit());
    let mut value: i64 = 0;
    let mut count = 0;
    for digit in digits {
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'));
        count += 1;
    }
    // What follows must end the number; a number with a space in front, a fraction or too
    // many digits is left to the decoder.
    let ends = matches!(bytes.get(start + count), Some(b',' | b'}' | b'"'));
    (1..19)
        .contains(&count)
        .then_some(if negative { -value } else { value })
        .filter(|_| ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmq::wire::command::Response;
    use ringmq::wire::frame::{Split, split};

    fn check(serialize: Serialize, response: &Response, code: i32) {
        let mut bytes = Vec::new();
        response.encode(&mut bytes, serialize, 1_234_567_890);
        let Ok(Split::Frame(frame, _)) = split(&bytes) else {
            panic!("no frame");
        };
        let mut reader = Reader::new();
        let fixed = Fixed {
            code,
            opaque: 1_234_567_890,
            is_answer: true,
        };
        assert_eq!(reader.fixed(&frame), Ok(fixed));
        assert_eq!(reader.field(&frame, &Field::queue_offset()), Some(77));
        assert_eq!(reader.field(&frame, &Field::next_begin_offset()), None);
    }

    #[test]
    fn both_kinds_of_headers_are_read() {
        for serialize in [Serialize::Json, Serialize::Binary] {
            let mut response = Response::ok()
                .with("msgId", "0A\"code\":5")
                .with("queueOffset", 77);
            check(serialize, &response, 0);
            response.code = 14;
            response.remark = Some("no \"opaque\":3, \"flag\":0".to_owned());
            check(serialize, &response, 14);
        }
    }

    fn with_header(header: &str) -> (Vec<u8>, usize) {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(4 + header.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&(header.len() as u32).to_be_bytes());
        bytes.extend_from_slice(header.as_bytes());
        let length = bytes.len();
        (bytes, length)
    }

    #[test]
    fn unusual_json_is_read_by_the_decoder() {
        let header =
            r#"{ "flag" : 1, "opaque" : 8, "extFields" : {"queueOffset" : 5}, "code": 2 }"#;
        let (bytes, length) = with_header(header);
        let Ok(Split::Frame(frame, used)) = split(&bytes) else {
            panic!("no frame");
        };
        assert_eq!(used, length);
        let mut reader = Reader::new();
        let fixed = reader.fixed(&frame).expect("well formed");
        assert_eq!((fixed.code, fixed.opaque, fixed.is_answer), (2, 8, true));
        assert_eq!(reader.field(&frame, &Field::queue_offset()), Some(5));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let (bytes, _) = with_header("nothing of the kind");
        let Ok(Split::Frame(frame, _)) = split(&bytes) else {
            panic!("no frame");
        };
        assert!(Reader::new().fixed(&frame).is_err());
    }
}
