//! The text form of `java.util.Properties`, read and written.
//!
//! `#` and `!` start a comment; the key ends at `=`, `:` or white space; a line that ends in an
//! odd number of backslashes goes on in the next; `\t \n \r \f \uXXXX` are escapes. White space
//! at the end of a value is dropped as well, which `Properties` keeps and RocketMQ trims.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// One `key=value` of a properties text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The key, with its escapes resolved.
    pub key: String,
    /// The value, with its escapes resolved and without white space around it.
    pub value: String,
    /// The line on which the key begins, from 1.
    pub line: usize,
}

/// What makes a text no properties text: an escape `\u` without four hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertiesError {
    /// The line on which the broken key or value begins, from 1.
    pub line: usize,
}

/// Bytes of a file as text: UTF-8, or ISO 8859-1 where they are not (the encoding of
/// `Properties.load`).
pub fn decode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// Reads all properties of `text`, in its order. A key may occur more than once.
pub fn parse(text: &str) -> Result<Vec<Property>, PropertiesError> {
    let mut found = Vec::new();
    let mut lines = NaturalLines::new(text);
    while let Some((line, logical)) = lines.next_logical() {
        let (key, value) = split(&logical);
        let broken = PropertiesError { line };
        found.push(Property {
            key: unescape(key).ok_or(broken)?,
            value: unescape(trim_end(value)).ok_or(broken)?,
            line,
        });
    }
    Ok(found)
}

/// Appends `key=value` and a line end, escaped so that `Properties.load` reads the same value
/// back. Only what must be is escaped: people read this text too.
pub fn write(out: &mut String, key: &str, value: &str) {
    out.push_str(key);
    out.push('=');
    for (i, c) in value.char_indices() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0c' => out.push_str("\\f"),
            ' ' if i == 0 || i + 1 == value.len() => out.push_str("\\ "),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04X}").expect("a string takes everything");
                }
            }
        }
    }
    out.push('\n');
}

const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// Lines as they stand, ended by `\n`, `\r` or `\r\n`.
struct NaturalLines<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> NaturalLines<'a> {
    fn new(rest: &'a str) -> Self {
        NaturalLines { rest, line: 0 }
    }

    fn next_natural(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        self.line += 1;
        let end = self.rest.find(['\n', '\r']).unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest
            .strip_prefix("\r\n")
            .or_else(|| rest.strip_prefix(['\n', '\r']))
            .unwrap_or(rest);
        Some(line.trim_start_matches(is_space))
    }

    /// The next line that holds a property, joined with those it goes on in, and its number.
    fn next_logical(&mut self) -> Option<(usize, String)> {
        loop {
            let first = self.next_natural()?;
            if first.is_empty() || first.starts_with(['#', '!']) {
                continue;
            }
            let number = self.line;
            let mut logical = first.to_owned();
            while goes_on(&logical) {
                logical.pop();
                match self.next_natural() {
                    Some(next) => logical.push_str(next),
                    None => break,
                }
            }
            // A lone backslash: nothing is left of the line.
            if !logical.is_empty() {
                return Some((number, logical));
            }
        }
    }
}

/// Whether a line ends in an odd number of backslashes.
fn goes_on(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// Key and value of a logical line, still escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .find(|c| {
            let ends = !escaped && (is_space(c) || c == '=' || c == ':');
            escaped = c == '\\' && !escaped;
            ends
        })
        .unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(is_space);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, value.trim_start_matches(is_space))
}

/// The value without white space at its end, unless a backslash stands before it.
fn trim_end(value: &str) -> &str {
    let trimmed = value.trim_end_matches(is_space);
    if goes_on(trimmed) && trimmed.len() < value.len() {
        // A white space is one byte.
        &value[..trimmed.len() + 1]
    } else {
        trimmed
    }
}

fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0c'),
            Some('u') => out.push(unescape_unicode(&mut chars)?),
            Some(other) => out.push(other),
            None => {}
        }
    }
    Some(out)
}

/// The character of `XXXX` or of a surrogate pair `XXXX\uXXXX`; a lone surrogate is U+FFFD.
fn unescape_unicode(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    let first = hex4(chars)?;
    if (0xd800..0xdc00).contains(&first) {
        let mut ahead = chars.clone();
        if ahead.next() == Some('\\') && ahead.next() == Some('u') {
            let second = hex4(&mut ahead)?;
            if let Some(Ok(c)) = char::decode_utf16([first, second]).next() {
                *chars = ahead;
                return Some(c);
            }
        }
    }
    Some(char::from_u32(u32::from(first)).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn hex4(chars: &mut Peekable<Chars<'_>>) -> Option<u16> {
    let mut value = 0;
    for _ in 0..4 {
        let digit = chars.next()?.to_digit(16)?;
        value = value << 4 | digit as u16;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let found = parse(text).expect("readable");
        found.into_iter().map(|p| (p.key, p.value)).collect()
    }

    fn one(text: &str) -> (String, String) {
        let mut all = pairs(text);
        assert_eq!(all.len(), 1, "{text:?}");
        all.remove(0)
    }

    #[test]
    fn the_key_ends_at_equals_colon_or_space() {
        for text in ["a=b", "a:b", "a b", "  a = b  ", "a\t:\tb\r\n", "a  b"] {
            assert_eq!(one(text), ("a".into(), "b".into()), "{text:?}");
        }
        assert_eq!(one("a = = b"), ("a".into(), "= b".into()));
        assert_eq!(one("a"), ("a".into(), "".into()));
        assert_eq!(one("a\\=b = c:d=e"), ("a=b".into(), "c:d=e".into()));
    }

    #[test]
    fn comments_and_empty_lines_hold_nothing() {
        assert_eq!(
            pairs("# a=b\n\n  ! c=d\r\n \t\nx=#1\n"),
            [("x".into(), "#1".into())]
        );
    }

    #[test]
    fn a_backslash_at_the_end_joins_lines() {
        assert_eq!(
            one("a = 1s \\\n   5s \\\n 10s"),
            ("a".into(), "1s 5s 10s".into())
        );
        assert_eq!(pairs("a=b\\\\\nc=d").len(), 2);
        assert_eq!(pairs("a=b\\").len(), 1);
        assert_eq!(pairs("\\\n\\\n").len(), 0);
    }

    #[test]
    fn lines_are_counted_where_the_key_begins() {
        let found = parse("#1\r\na=\\\r\nb\rc=d\n\ne=f").expect("readable");
        assert_eq!(found.iter().map(|p| p.line).collect::<Vec<_>>(), [2, 4, 6]);
    }

    #[test]
    fn escapes_are_resolved_and_broken_ones_refused() {
        assert_eq!(
            one("k=\\u65e5\\u672C\\t\\q\\ "),
            ("k".into(), "日本\tq ".into())
        );
        assert_eq!(one("k=\\ud83d\\ude00"), ("k".into(), "😀".into()));
        assert_eq!(one("k=\\ud83d!"), ("k".into(), "\u{fffd}!".into()));
        assert_eq!(parse("a=b\nk=\\u12"), Err(PropertiesError { line: 2 }));
        assert_eq!(parse("\\uzzzz=b"), Err(PropertiesError { line: 1 }));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_latin1() {
        assert_eq!(decode(b"a=\xe9"), "a=\u{e9}");
        assert_eq!(decode("\u{feff}a=é".as_bytes()), "a=é");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in "\\PC*|[ \\t\\n\\\\=:#!a-z]*") {
            let mut text = String::new();
            write(&mut text, "key", &value);
            prop_assert!(text.is_ascii());
            let found = parse(&text).expect("readable");
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(&found[0].value, &value);
        }

        #[test]
        fn no_text_breaks_the_reader(text in "(?s).{0,200}|[\\\\u0-9a-f=: \\r\\n#]{0,60}") {
            let _ = parse(&text);
        }
    }
}
