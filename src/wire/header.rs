//! Headers, decoded in place: nothing is allocated per request.
//!
//! A header has six fixed members and a map of strings, the "ext fields". The
//! map is kept as spans into the frame; only values written with JSON escapes
//! are copied, into a scratch buffer that its owner uses again and again.

use std::fmt;

use super::frame::{self, Frame, Serialize};
use super::header_shape::{self, Shape, Shapes};
use super::{header_binary, header_json};

/// Version that replies carry: the ordinal of `MQVersion.V5_3_3`.
pub const VERSION: i32 = 479;

/// Most ext fields that a header may have. Official requests have at most about 20.
pub const FIELDS_MAX: usize = 256;

/// Bit of `flag` that marks a response.
pub const FLAG_RESPONSE: i32 = 1;
/// Bit of `flag` that marks a request without an answer.
pub const FLAG_ONE_WAY: i32 = 2;

/// Names of `LanguageCode`, at the index of their wire code.
pub const LANGUAGES: [&str; 14] = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
];

/// Why a header cannot be read. The connection it came from is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderError {
    /// What was wrong.
    pub what: &'static str,
    /// Offset in the header, in bytes, at which it was noticed.
    pub at: usize,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "header: {} at byte {}", self.what, self.at)
    }
}

impl std::error::Error for HeaderError {}

/// A run of bytes in the header, or in the scratch buffer when it was unescaped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub start: u32,
    pub len: u32,
    pub unescaped: bool,
}

impl Span {
    /// Bytes of the header.
    pub fn plain(start: usize, end: usize) -> Span {
        Span {
            start: start as u32,
            len: (end - start) as u32,
            unescaped: false,
        }
    }

    pub fn end(self) -> usize {
        self.start as usize + self.len as usize
    }

    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end()
    }
}

/// The reusable memory that a decoded header points into.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Names and values; of a header that has a shape, those that vary, without names.
    pub(super) fields: Vec<(Span, Span)>,
    pub(super) unescaped: Vec<u8>,
    pub(super) shapes: Shapes,
}

impl Scratch {
    /// Takes out what the last header left.
    pub(super) fn clear(&mut self) {
        self.fields.clear();
        self.unescaped.clear();
    }
}

/// The fixed members of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// Request code, or response code in a response.
    pub code: i32,
    /// Sender's language, an index of [`LANGUAGES`].
    pub language: u8,
    /// Sender's version ordinal.
    pub version: i32,
    /// Number that pairs a response with its request.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`], [`FLAG_ONE_WAY`].
    pub flag: i32,
}

impl Fixed {
    /// Whether this heads a response.
    pub const fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether the sender wants no answer.
    pub const fn is_one_way(&self) -> bool {
        self.flag & FLAG_ONE_WAY != 0
    }
}

/// A decoded header, borrowed from its frame and its [`Scratch`].
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// The fixed members.
    pub fixed: Fixed,
    remark: Option<Span>,
    bytes: &'a [u8],
    scratch: &'a Scratch,
    shape: Option<&'a Shape>,
}

impl<'a> Header<'a> {
    /// Decodes the header of `frame`, using `scratch` for what cannot be borrowed.
    ///
    /// # Errors
    /// [`HeaderError`] when the header is not well formed or has more than
    /// [`FIELDS_MAX`] ext fields.
    pub fn decode(frame: &Frame<'a>, scratch: &'a mut Scratch) -> Result<Header<'a>, HeaderError> {
        scratch.clear();
        let (fixed, remark) = match frame.serialize {
            Serialize::Json => header_json::decode(frame.header, scratch),
            Serialize::Binary => header_binary::decode(frame.header, scratch),
        }?;
        Ok(Header {
            fixed,
            remark,
            bytes: frame.header,
            scratch,
            shape: None,
        })
    }

    /// As [`Header::decode`], and quicker where `sender`, a number that stands for who
    /// sends, sends headers that are alike.
    ///
    /// # Errors
    /// As of [`Header::decode`].
    pub fn decode_from(
        frame: &Frame<'a>,
        sender: usize,
        scratch: &'a mut Scratch,
    ) -> Result<Header<'a>, HeaderError> {
        if frame.serialize != Serialize::Json {
            return Header::decode(frame, scratch);
        }
        scratch.clear();
        let decoded = header_shape::decode(frame.header, sender, scratch)?;
        let scratch = &*scratch;
        Ok(Header {
            fixed: decoded.fixed,
            remark: decoded.remark,
            bytes: frame.header,
            scratch,
            shape: decoded.shape.map(|place| scratch.shapes.at(place)),
        })
    }

    fn bytes_of(&self, span: Span) -> &'a [u8] {
        let from = if span.unescaped {
            &self.scratch.unescaped[..]
        } else {
            self.bytes
        };
        &from[span.range()]
    }

    /// The remark, if there is one.
    pub fn remark(&self) -> Option<&'a [u8]> {
        self.remark.map(|span| self.bytes_of(span))
    }

    /// The shape by which it was read.
    pub(super) fn shape(&self) -> Option<&'a Shape> {
        self.shape
    }

    /// The values of the ext fields that vary in its shape; of all, where it has none.
    pub(super) fn read_values(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        let values = self.scratch.fields.iter();
        values.map(|&(_, value)| self.bytes_of(value))
    }

    /// The ext fields in the order in which they were written.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + '_ {
        let mut read = self.scratch.fields.iter();
        let mut shaped = self.shape.map(Shape::fields);
        std::iter::from_fn(move || {
            let mut next = || {
                let &(name, value) = read.next()?;
                Some((self.bytes_of(name), self.bytes_of(value)))
            };
            match &mut shaped {
                None => next(),
                Some(shaped) => {
                    let (name, value) = shaped.next()?;
                    let value = value.or_else(|| next().map(|(_, value)| value))?;
                    Some((name, value))
                }
            }
        })
    }

    /// The value of ext field `key`; the last one where it is written twice.
    pub fn get(&self, key: &str) -> Option<&'a [u8]> {
        let found = self.fields().filter(|(name, _)| *name == key.as_bytes());
        found.last().map(|(_, value)| value)
    }
}

/// A field of a request that is missing or not of its type; answered with code 1
/// or a more telling one where the protocol has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Name of the field on the wire.
    pub field: &'static str,
    /// What was wrong with it.
    pub what: FieldFault,
}

/// What can be wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldFault {
    /// It is mandatory and not there.
    Missing,
    /// It is not a decimal number within the range of its type.
    NotANumber,
    /// It is neither `true` nor `false`.
    NotABool,
    /// It is not UTF-8.
    NotUtf8,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            FieldFault::Missing => "is missing",
            FieldFault::NotANumber => "is not a number in its range",
            FieldFault::NotABool => "is neither true nor false",
            FieldFault::NotUtf8 => "is not UTF-8",
        };
        write!(f, "request field {} {what}", self.field)
    }
}

impl std::error::Error for FieldError {}

/// Reads a decimal number from the bytes of field `field`.
///
/// # Errors
/// [`FieldFault::NotANumber`].
pub fn parse_int<T>(field: &'static str, bytes: &[u8]) -> Result<T, FieldError>
where
    T: TryFrom<i64>,
{
    let fault = || FieldError {
        field,
        what: FieldFault::NotANumber,
    };
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    if digits.is_empty() || digits.len() > 19 {
        return Err(fault());
    }
    if digits.len() <= 18 {
        // Too few digits to overflow.
        let mut value: i64 = 0;
        for &digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return Err(fault());
            }
            value = value * 10 + i64::from(digit);
        }
        let value = if negative { -value } else { value };
        return T::try_from(value).map_err(|_| fault());
    }
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(fault());
        }
        // Accumulated on the negative side, which is one larger.
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_sub(i64::from(digit - b'0')))
            .ok_or_else(fault)?;
    }
    if !negative {
        value = value.checked_neg().ok_or_else(fault)?;
    }
    T::try_from(value).map_err(|_| fault())
}

/// Reads `true` or `false` from the bytes of field `field`.
///
/// # Errors
/// [`FieldFault::NotABool`].
pub fn parse_bool(field: &'static str, bytes: &[u8]) -> Result<bool, FieldError> {
    match bytes {
        b"true" => Ok(true),
        b"false" | b"" => Ok(false),
        _ => Err(FieldError {
            field,
            what: FieldFault::NotABool,
        }),
    }
}

/// Reads text from the bytes of field `field`.
///
/// # Errors
/// [`FieldFault::NotUtf8`].
pub fn parse_str<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, FieldError> {
    std::str::from_utf8(bytes).map_err(|_| FieldError {
        field,
        what: FieldFault::NotUtf8,
    })
}

/// Unwraps a mandatory field.
///
/// # Errors
/// [`FieldFault::Missing`].
pub fn required<T>(field: &'static str, value: Option<T>) -> Result<T, FieldError> {
    value.ok_or(FieldError {
        field,
        what: FieldFault::Missing,
    })
}

/// Writes the ext fields of one header; see [`encode`].
pub struct ExtWriter<'a> {
    serialize: Serialize,
    out: &'a mut Vec<u8>,
    count: usize,
}

impl ExtWriter<'_> {
    /// Writes one field.
    pub fn str(&mut self, key: &str, value: &str) {
        self.bytes(key, value.as_bytes());
    }

    /// Writes one field whose value is UTF-8 text given as bytes.
    pub fn bytes(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        match self.serialize {
            Serialize::Json => header_json::write_string(self.out, value),
            Serialize::Binary => header_binary::write_value(self.out, value),
        }
    }

    /// Writes one field of which neither key nor value needs JSON escapes.
    pub fn plain(&mut self, key: &str, value: &[u8]) {
        match self.serialize {
            Serialize::Json => {
                self.out
                    .extend_from_slice(if self.count > 0 { b",\"" } else { b"\"" });
                self.out.extend_from_slice(key.as_bytes());
                self.out.extend_from_slice(b"\":\"");
                self.out.extend_from_slice(value);
                self.out.push(b'"');
                self.count += 1;
            }
            Serialize::Binary => {
                self.key(key);
                header_binary::write_value(self.out, value);
            }
        }
    }

    /// Writes one field with a decimal number.
    pub fn int(&mut self, key: &str, value: i64) {
        self.plain(key, itoa::Buffer::new().format(value).as_bytes());
    }

    /// Writes one field with `true` or `false`.
    pub fn bool(&mut self, key: &str, value: bool) {
        self.plain(key, if value { b"true" } else { b"false" });
    }

    fn key(&mut self, key: &str) {
        match self.serialize {
            Serialize::Json => {
                if self.count > 0 {
                    self.out.push(b',');
                }
                header_json::write_string(self.out, key.as_bytes());
                self.out.push(b':');
            }
            Serialize::Binary => header_binary::write_key(self.out, key.as_bytes()),
        }
        self.count += 1;
    }
}

/// Appends a whole frame up to its body to `out`; the caller appends the
/// `body_len` bytes of the body.
///
/// `ext` writes the ext fields. A header that is to have a (possibly empty) map
/// of ext fields always gets one: Java clients read it without asking whether
/// it is there.
pub fn encode(
    out: &mut Vec<u8>,
    serialize: Serialize,
    fixed: &Fixed,
    remark: Option<&str>,
    ext: impl FnOnce(&mut ExtWriter<'_>),
    body_len: usize,
) {
    let start = frame::begin(out);
    match serialize {
        Serialize::Json => {
            out.extend_from_slice(b"{\"code\":");
            let mut buffer = itoa::Buffer::new();
            out.extend_from_slice(buffer.format(fixed.code).as_bytes());
            out.extend_from_slice(b",\"extFields\":{");
            ext(&mut ExtWriter {
                serialize,
                out,
                count: 0,
            });
            out.extend_from_slice(b"},\"flag\":");
            out.extend_from_slice(buffer.format(fixed.flag).as_bytes());
            out.extend_from_slice(b",\"language\":\"");
            let language = LANGUAGES
                .get(usize::from(fixed.language))
                .unwrap_or(&"OTHER");
            out.extend_from_slice(language.as_bytes());
            out.extend_from_slice(b"\",\"opaque\":");
            out.extend_from_slice(buffer.format(fixed.opaque).as_bytes());
            if let Some(remark) = remark {
                out.extend_from_slice(b",\"remark\":");
                header_json::write_string(out, remark.as_bytes());
            }
            out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
            out.extend_from_slice(buffer.format(fixed.version).as_bytes());
            out.push(b'}');
        }
        Serialize::Binary => {
            header_binary::write_fixed(out, fixed, remark);
            let ext_start = header_binary::begin_ext(out);
            ext(&mut ExtWriter {
                serialize,
                out,
                count: 0,
            });
            header_binary::finish_ext(out, ext_start);
        }
    }
    frame::finish(out, start, serialize, body_len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::Split;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(
            prop_oneof![
                any::<char>(),
                Just('\u{1}'),
                Just('\u{2}'),
                Just('"'),
                Just('\\')
            ],
            0..20,
        )
        .prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_again(
            code in -1i32..400, language in 0u8..14, version in 0i32..600,
            opaque: i32, flag in 0i32..4, remark in prop::option::of(text()),
            ext in prop::collection::vec((text(), text()), 0..20), binary: bool,
        ) {
            let serialize = if binary { Serialize::Binary } else { Serialize::Json };
            let fixed = Fixed { code, language, version, opaque, flag };
            let mut out = Vec::new();
            encode(&mut out, serialize, &fixed, remark.as_deref(),
                |w| for (k, v) in &ext { w.str(k, v) }, 0);
            let Ok(Split::Frame(frame, _)) = frame::split(&out) else { panic!("no frame") };
            let mut scratch = Scratch::default();
            let header = Header::decode(&frame, &mut scratch).unwrap();
            prop_assert_eq!(header.fixed, fixed);
            // The binary layout cannot tell an empty remark from none.
            let remark = remark.filter(|r| !(binary && r.is_empty()));
            prop_assert_eq!(header.remark(), remark.as_deref().map(str::as_bytes));
            let fields: Vec<_> = header.fields().collect();
            let expected: Vec<_> = ext.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect();
            prop_assert_eq!(fields, expected);
        }

        #[test]
        fn arbitrary_headers_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), binary: bool,
        ) {
            let serialize = if binary { Serialize::Binary } else { Serialize::Json };
            let frame = Frame { serialize, header: &bytes, body: &[] };
            let mut scratch = Scratch::default();
            let _ = Header::decode(&frame, &mut scratch).map(|h| h.fields().count());
        }

        #[test]
        fn numbers_read_as_the_standard_library_reads_them(value: i64) {
            prop_assert_eq!(parse_int::<i64>("x", value.to_string().as_bytes()), Ok(value));
            prop_assert_eq!(
                parse_int::<i32>("x", value.to_string().as_bytes()).ok(),
                i32::try_from(value).ok()
            );
        }
    }

    #[test]
    fn a_json_header_of_any_shape_is_read() {
        let header =
            br#" { "extFields" : {"a":1, "b":true,"c":null,"d":"\u00e9\ud83d\ude00\n","e":-2.5},
            "unknown":{"deep":[1,{"x":"}"}]},"language":"GO","opaque":-7,"code":34,"flag":2 } "#;
        let frame = Frame {
            serialize: Serialize::Json,
            header,
            body: &[],
        };
        let mut scratch = Scratch::default();
        let header = Header::decode(&frame, &mut scratch).unwrap();
        assert_eq!(header.fixed.code, 34);
        assert_eq!(header.fixed.language, 9);
        assert_eq!(header.fixed.opaque, -7);
        assert!(header.fixed.is_one_way());
        assert_eq!(header.get("a"), Some(&b"1"[..]));
        assert_eq!(header.get("b"), Some(&b"true"[..]));
        assert_eq!(header.get("c"), None);
        assert_eq!(header.get("d"), Some("é😀\n".as_bytes()));
        assert_eq!(header.get("e"), Some(&b"-2.5"[..]));
    }
}
