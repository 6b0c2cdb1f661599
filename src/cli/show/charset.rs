//! Bodies as text of an encoding.

use encoding_rs::{Encoding, UTF_8};
use std::borrow::Cow;
use std::str::FromStr;

/// How bytes are read as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charset(&'static Encoding);

impl Charset {
    /// The bytes as text; `None` where they are none.
    pub fn text(self, bytes: &[u8]) -> Option<Cow<'_, str>> {
        self.0
            .decode_without_bom_handling_and_without_replacement(bytes)
    }

    /// The bytes as text, with a mark for what is none.
    pub fn lossy(self, bytes: &[u8]) -> Cow<'_, str> {
        self.0.decode_without_bom_handling(bytes).0
    }
}

impl Default for Charset {
    fn default() -> Charset {
        Charset(UTF_8)
    }
}

impl FromStr for Charset {
    type Err = String;

    /// Reads a name as Java has it: `UTF-8`, `GBK`, `ISO-8859-1`, ...
    fn from_str(name: &str) -> Result<Charset, String> {
        match Encoding::for_label(name.trim().as_bytes()) {
            Some(encoding) => Ok(Charset(encoding)),
            None => Err(
                "no such encoding; some are UTF-8, GBK, GB18030, Big5, Shift_JIS, EUC-KR, \
                         UTF-16LE, ISO-8859-1"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_by_the_encoding_that_is_named() {
        let bytes = [0xc4, 0xe3, 0xba, 0xc3];
        let gbk: Charset = "GBK".parse().expect("known");
        assert_eq!(gbk.text(&bytes).as_deref(), Some("你好"));
        assert_eq!(Charset::default().text(&bytes), None);
        assert_eq!(Charset::default().lossy(b"a\xff"), "a\u{fffd}");
        let latin: Charset = "iso-8859-1".parse().expect("known");
        assert_eq!(latin.text(&[0xe9]).as_deref(), Some("é"));
        assert_eq!("UTF-8".parse(), Ok(Charset::default()));
        assert!("EBCDIC".parse::<Charset>().is_err());
    }
}
