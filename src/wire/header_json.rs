//! The JSON form of a header, read in one pass over its bytes.

use super::header::{FIELDS_MAX, Fixed, HeaderError, LANGUAGES, Scratch, Span};
use super::scan::find_either;

/// Deepest nesting of values that are skipped because their member is unknown.
const DEPTH_MAX: usize = 32;

pub(super) fn decode(
    bytes: &[u8],
    scratch: &mut Scratch,
) -> Result<(Fixed, Option<Span>), HeaderError> {
    decode_with_opaque(bytes, scratch).map(|(fixed, remark, _)| (fixed, remark))
}

/// The header, and where the digits of the opaque stand in it.
pub(super) fn decode_with_opaque(
    bytes: &[u8],
    scratch: &mut Scratch,
) -> Result<(Fixed, Option<Span>, Option<Span>), HeaderError> {
    let mut reader = Reader { bytes, at: 0 };
    let mut fixed = Fixed::default();
    let mut remark = None;
    let mut opaque = None;
    reader.object(scratch, |reader, scratch, key| {
        match reader.text(key, scratch) {
            b"code" => fixed.code = reader.integer()?,
            b"version" => fixed.version = reader.integer()?,
            b"opaque" => {
                let quoted = usize::from(reader.peek()? == b'"');
                let start = reader.at + quoted;
                fixed.opaque = reader.integer()?;
                opaque = Some(Span::plain(start, reader.at - quoted));
            }
            b"flag" => fixed.flag = reader.integer()?,
            b"language" => {
                if let Some(span) = reader.scalar(scratch)? {
                    fixed.language = language_code(reader.text(span, scratch));
                }
            }
            b"remark" => remark = reader.scalar(scratch)?,
            b"extFields" if !reader.null() => {
                reader.object(scratch, |reader, scratch, key| {
                    if let Some(value) = reader.scalar(scratch)? {
                        reader.push_field(scratch, key, value)?;
                        reader.letter_fields(scratch)?;
                    }
                    Ok(())
                })?;
            }
            b"extFields" => {}
            _ => reader.skip(scratch, 0)?,
        }
        Ok(())
    })?;
    reader.white();
    if reader.at != bytes.len() {
        return Err(reader.error("bytes after the object"));
    }
    Ok((fixed, remark, opaque))
}

fn language_code(name: &[u8]) -> u8 {
    const OTHER: u8 = 7;
    LANGUAGES
        .iter()
        .position(|known| known.as_bytes() == name)
        .map_or(OTHER, |index| index as u8)
}

/// A place in a header.
pub(super) struct Reader<'a> {
    pub bytes: &'a [u8],
    /// Bytes that have been read.
    pub at: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, what: &'static str) -> HeaderError {
        HeaderError { what, at: self.at }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn text<'s>(&self, span: Span, scratch: &'s Scratch) -> &'s [u8]
    where
        'a: 's,
    {
        let from = if span.unescaped {
            &scratch.unescaped[..]
        } else {
            self.bytes
        };
        &from[span.start as usize..(span.start + span.len) as usize]
    }

    fn white(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// The next byte that is not white space; not taken.
    pub fn peek(&mut self) -> Result<u8, HeaderError> {
        self.white();
        self.bytes
            .get(self.at)
            .copied()
            .ok_or_else(|| self.error("ends early"))
    }

    /// Takes `byte`, with white space in front of it.
    pub fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), HeaderError> {
        if self.peek()? != byte {
            return Err(self.error(what));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes `null` if it is next.
    fn null(&mut self) -> bool {
        self.white();
        let null = self.bytes[self.at..].starts_with(b"null");
        if null {
            self.at += 4;
        }
        null
    }

    fn object(
        &mut self,
        scratch: &mut Scratch,
        mut member: impl FnMut(&mut Self, &mut Scratch, Span) -> Result<(), HeaderError>,
    ) -> Result<(), HeaderError> {
        self.expect(b'{', "expected {")?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.peek()? != b'"' {
                return Err(self.error("expected a member name"));
            }
            let key = self.string(scratch)?;
            self.expect(b':', "expected :")?;
            member(self, scratch, key)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.error("expected , or }")),
            }
        }
    }

    fn push_field(&self, scratch: &mut Scratch, key: Span, value: Span) -> Result<(), HeaderError> {
        if scratch.fields.len() == FIELDS_MAX {
            return Err(self.error("too many ext fields"));
        }
        scratch.fields.push((key, value));
        Ok(())
    }

    /// Takes as many ext fields as have the form of a send's: `,"a":"value"`, a name
    /// of one letter and no white space. Leaves the rest to the general way.
    fn letter_fields(&mut self, scratch: &mut Scratch) -> Result<(), HeaderError> {
        while let Some(&[b',', b'"', name, b'"', b':', b'"']) = self.bytes.get(self.at..self.at + 6)
        {
            if matches!(name, b'"' | b'\\') {
                return Ok(());
            }
            let key = Span::plain(self.at + 2, self.at + 3);
            self.at += 5;
            let value = self.string(scratch)?;
            self.push_field(scratch, key, value)?;
        }
        Ok(())
    }

    /// A string, number or boolean as text; `None` for `null`.
    fn scalar(&mut self, scratch: &mut Scratch) -> Result<Option<Span>, HeaderError> {
        match self.peek()? {
            b'"' => self.string(scratch).map(Some),
            b'{' | b'[' => Err(self.error("expected a string")),
            _ => {
                let start = self.at;
                while matches!(self.bytes.get(self.at), Some(b) if b.is_ascii_alphanumeric() || b"+-.".contains(b))
                {
                    self.at += 1;
                }
                let word = &self.bytes[start..self.at];
                match word {
                    b"" => Err(self.error("expected a value")),
                    b"null" => Ok(None),
                    b"true" | b"false" => Ok(Some(Span::plain(start, self.at))),
                    _ if word[0] == b'-' || word[0].is_ascii_digit() => {
                        Ok(Some(Span::plain(start, self.at)))
                    }
                    _ => Err(self.error("expected a value")),
                }
            }
        }
    }

    /// A number, quoted or not; `null` is 0.
    fn integer(&mut self) -> Result<i32, HeaderError> {
        if self.null() {
            return Ok(0);
        }
        let start = self.at;
        let quoted = self.bytes.get(start) == Some(&b'"');
        self.at += usize::from(quoted);
        let value = self.digits()?;
        if quoted {
            self.expect(b'"', "expected a 32-bit number")?;
        }
        Ok(value)
    }

    /// The digits of a number, and its sign.
    pub fn digits(&mut self) -> Result<i32, HeaderError> {
        let start = self.at;
        while matches!(self.bytes.get(self.at), Some(b) if b.is_ascii_digit() || *b == b'-') {
            self.at += 1;
        }
        super::header::parse_int("", &self.bytes[start..self.at])
            .map_err(|_| self.error("expected a 32-bit number"))
    }

    /// A string, from its opening quote on.
    pub fn string(&mut self, scratch: &mut Scratch) -> Result<Span, HeaderError> {
        self.at += 1;
        let start = self.at;
        self.at = self.next_special(start)?;
        if self.bytes[self.at] == b'\\' {
            return self.escaped_string(start, scratch);
        }
        self.at += 1;
        Ok(Span::plain(start, self.at - 1))
    }

    /// Place of the next quote or backslash.
    fn next_special(&self, from: usize) -> Result<usize, HeaderError> {
        let at = find_either(b'"', b'\\', &self.bytes[from..]);
        at.map(|at| from + at).ok_or(HeaderError {
            what: "string does not end",
            at: self.bytes.len(),
        })
    }

    fn escaped_string(&mut self, start: usize, scratch: &mut Scratch) -> Result<Span, HeaderError> {
        let out_start = scratch.unescaped.len();
        let mut plain = start;
        loop {
            let special = self.next_special(plain)?;
            scratch
                .unescaped
                .extend_from_slice(&self.bytes[plain..special]);
            if self.bytes[special] == b'"' {
                self.at = special + 1;
                return Ok(Span {
                    start: out_start as u32,
                    len: (scratch.unescaped.len() - out_start) as u32,
                    unescaped: true,
                });
            }
            let escape = *self
                .bytes
                .get(special + 1)
                .ok_or_else(|| self.error("string does not end"))?;
            self.at = special + 2;
            let byte = match escape {
                // What stands between properties.
                b'u' if self.rest().starts_with(b"000")
                    && matches!(self.bytes.get(special + 5), Some(b'1' | b'2')) =>
                {
                    self.at = special + 6;
                    self.bytes[special + 5] - b'0'
                }
                b'u' => {
                    let c = self.unicode_escape()?;
                    let utf8 = &mut [0; 4];
                    scratch
                        .unescaped
                        .extend_from_slice(c.encode_utf8(utf8).as_bytes());
                    plain = self.at;
                    continue;
                }
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'f' => 12,
                b'"' | b'\\' | b'/' => escape,
                _ => return Err(self.error("unknown escape")),
            };
            scratch.unescaped.push(byte);
            plain = self.at;
        }
    }

    /// The character of `\uXXXX`, or of a surrogate pair of them; a lone
    /// surrogate becomes U+FFFD, as no UTF-8 can hold it.
    fn unicode_escape(&mut self) -> Result<char, HeaderError> {
        let first = self.four_hex()?;
        if (0xd800..0xdc00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.four_hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_hex(&mut self) -> Result<u32, HeaderError> {
        let digits = self
            .bytes
            .get(self.at..self.at + 4)
            .ok_or_else(|| self.error("short unicode escape"))?;
        let mut value = 0;
        for &digit in digits {
            let nibble = (digit as char)
                .to_digit(16)
                .ok_or_else(|| self.error("bad unicode escape"))?;
            value = value << 4 | nibble;
        }
        self.at += 4;
        Ok(value)
    }

    /// Passes over one value of any kind.
    fn skip(&mut self, scratch: &mut Scratch, depth: usize) -> Result<(), HeaderError> {
        if depth == DEPTH_MAX {
            return Err(self.error("nested too deeply"));
        }
        match self.peek()? {
            b'{' => self.object(scratch, |reader, scratch, _| {
                reader.skip(scratch, depth + 1)
            }),
            b'[' => {
                self.at += 1;
                if self.peek()? == b']' {
                    self.at += 1;
                    return Ok(());
                }
                loop {
                    self.skip(scratch, depth + 1)?;
                    match self.peek()? {
                        b',' => self.at += 1,
                        b']' => {
                            self.at += 1;
                            return Ok(());
                        }
                        _ => return Err(self.error("expected , or ]")),
                    }
                }
            }
            _ => self.scalar(scratch).map(drop),
        }
    }
}

/// Appends `text` as a JSON string. Bytes that are not UTF-8 are passed through.
pub(super) fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    write_escaped(out, text);
    out.push(b'"');
}

/// Appends `text` as a part of a JSON string.
pub(super) fn write_escaped(out: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut plain = 0;
    for (at, &byte) in text.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[plain..at]);
        plain = at + 1;
        if byte < 0x20 {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
        } else {
            out.push(b'\\');
            out.push(byte);
        }
    }
    out.extend_from_slice(&text[plain..]);
}
