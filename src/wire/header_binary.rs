//! The binary form of a header (`RocketMQSerializable`).
//!
//! `code i16 | language u8 | version i16 | opaque i32 | flag i32 |
//! remark length i32, remark | ext length i32, entries of (key length i16, key,
//! value length i32, value)`.

use super::header::{FIELDS_MAX, Fixed, HeaderError, Scratch, Span};

/// Codes above 32,767 lose their upper half on the wire; these are put back.
/// (`RequestCode.POP_MESSAGE` .. `BATCH_ACK_MESSAGE`)
const WIDE_CODES: [i32; 8] = [
    200_050, 200_051, 200_052, 200_053, 200_054, 200_055, 200_056, 200_151,
];

pub(super) fn decode(
    bytes: &[u8],
    scratch: &mut Scratch,
) -> Result<(Fixed, Option<Span>), HeaderError> {
    let mut reader = Reader { bytes, at: 0 };
    let code = i32::from(reader.i16()?);
    let mut fixed = Fixed {
        code,
        language: reader.take(1)?.1[0],
        version: i32::from(reader.i16()?),
        opaque: reader.i32()?,
        flag: reader.i32()?,
    };
    if !fixed.is_response() {
        if let Some(&wide) = WIDE_CODES.iter().find(|&&wide| wide as i16 as i32 == code) {
            fixed.code = wide;
        }
    }
    let remark_len = reader.length()?;
    let remark = (remark_len > 0)
        .then(|| reader.take(remark_len).map(|(span, _)| span))
        .transpose()?;
    let ext_len = reader.length()?;
    let end = reader.at + ext_len;
    if end > bytes.len() {
        return Err(reader.error("ext fields longer than the header"));
    }
    reader.bytes = &bytes[..end];
    while reader.at < end {
        let key_len = reader.i16()?;
        let key_len = usize::try_from(key_len).map_err(|_| reader.error("negative length"))?;
        let (key, _) = reader.take(key_len)?;
        let value_len = reader.length()?;
        let (value, _) = reader.take(value_len)?;
        if scratch.fields.len() == FIELDS_MAX {
            return Err(reader.error("too many ext fields"));
        }
        scratch.fields.push((key, value));
    }
    Ok((fixed, remark))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, what: &'static str) -> HeaderError {
        HeaderError { what, at: self.at }
    }

    fn take(&mut self, len: usize) -> Result<(Span, &'a [u8]), HeaderError> {
        let bytes = self
            .bytes
            .get(self.at..self.at.saturating_add(len))
            .ok_or_else(|| self.error("ends early"))?;
        let span = Span {
            start: self.at as u32,
            len: len as u32,
            unescaped: false,
        };
        self.at += len;
        Ok((span, bytes))
    }

    fn i16(&mut self) -> Result<i16, HeaderError> {
        let (_, b) = self.take(2)?;
        Ok(i16::from_be_bytes([b[0], b[1]]))
    }

    fn i32(&mut self) -> Result<i32, HeaderError> {
        let (_, b) = self.take(4)?;
        Ok(i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn length(&mut self) -> Result<usize, HeaderError> {
        let length = self.i32()?;
        usize::try_from(length).map_err(|_| self.error("negative length"))
    }
}

pub(super) fn write_fixed(out: &mut Vec<u8>, fixed: &Fixed, remark: Option<&str>) {
    out.extend_from_slice(&(fixed.code as i16).to_be_bytes());
    out.push(fixed.language);
    out.extend_from_slice(&(fixed.version as i16).to_be_bytes());
    out.extend_from_slice(&fixed.opaque.to_be_bytes());
    out.extend_from_slice(&fixed.flag.to_be_bytes());
    let remark = remark.unwrap_or("").as_bytes();
    out.extend_from_slice(&(remark.len() as i32).to_be_bytes());
    out.extend_from_slice(remark);
}

pub(super) fn begin_ext(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

pub(super) fn finish_ext(out: &mut [u8], start: usize) {
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

pub(super) fn write_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(&(key.len() as i16).to_be_bytes());
    out.extend_from_slice(key);
}

pub(super) fn write_value(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(&(value.len() as i32).to_be_bytes());
    out.extend_from_slice(value);
}
