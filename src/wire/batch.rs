//! The body of a batch send: messages one behind the other
//! (`MessageDecoder.encodeMessages`).
//!
//! `total size i32 | magic i32 | CRC i32 | flag i32 | body length i32, body |
//! properties length i16, properties`; magic and CRC are ignored.

use std::fmt;

/// Bytes of one message apart from its body and properties.
pub const FIXED_BYTES: usize = 22;

/// One message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// User flag.
    pub flag: i32,
    /// Body.
    pub body: &'a [u8],
    /// Properties.
    pub properties: &'a [u8],
}

/// Where a batch body is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// Offset in the body of the message at fault, in bytes.
    pub at: usize,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "batch body: the lengths of the message at byte {} do not add up",
            self.at
        )
    }
}

impl std::error::Error for BatchError {}

/// Walks over the messages of a batch body; ends after the first error.
pub struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The messages of a batch body, in order.
pub fn items(bytes: &[u8]) -> Items<'_> {
    Items { bytes, at: 0 }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.bytes.len() {
            return None;
        }
        let start = self.at;
        match parse(&self.bytes[start..]) {
            Some((item, size)) => {
                self.at += size;
                Some(Ok(item))
            }
            None => {
                self.at = self.bytes.len();
                Some(Err(BatchError { at: start }))
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Option<(Item<'_>, usize)> {
    let int = |at: usize| -> Option<i32> {
        let b = bytes.get(at..at + 4)?;
        Some(i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    let size = usize::try_from(int(0)?).ok()?;
    if size < FIXED_BYTES || size > bytes.len() {
        return None;
    }
    let body_len = usize::try_from(int(16)?).ok()?;
    let body = bytes[..size].get(20..20usize.checked_add(body_len)?)?;
    let at = 20 + body_len;
    let prefix = bytes[..size].get(at..at + 2)?;
    let properties_len = usize::try_from(i16::from_be_bytes([prefix[0], prefix[1]])).ok()?;
    let properties = bytes[..size].get(at + 2..at + 2 + properties_len)?;
    (at + 2 + properties_len == size).then_some((
        Item {
            flag: int(12)?,
            body,
            properties,
        },
        size,
    ))
}

/// Appends one message to a batch body.
pub fn push(out: &mut Vec<u8>, item: &Item<'_>) {
    push_with(out, item.flag, item.body, |out| {
        out.extend_from_slice(item.properties);
    });
}

/// The same with properties that `properties` appends.
pub fn push_with(out: &mut Vec<u8>, flag: i32, body: &[u8], properties: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    let mut head = [0; FIXED_BYTES - 2];
    head[12..16].copy_from_slice(&flag.to_be_bytes());
    head[16..20].copy_from_slice(&(body.len() as i32).to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
    let end = out.len();
    out.extend_from_slice(&[0; 2]);
    properties(out);
    let properties = (out.len() - end - 2) as i16;
    out[end..end + 2].copy_from_slice(&properties.to_be_bytes());
    let size = (out.len() - start) as i32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_pushed_is_read_again(
            messages in prop::collection::vec(
                (any::<i32>(), prop::collection::vec(any::<u8>(), 0..50),
                 prop::collection::vec(any::<u8>(), 0..50)), 1..6),
        ) {
            let mut bytes = Vec::new();
            let items_in: Vec<_> = messages.iter()
                .map(|(flag, body, properties)| Item { flag: *flag, body, properties })
                .collect();
            items_in.iter().for_each(|item| push(&mut bytes, item));
            let read: Result<Vec<_>, _> = items(&bytes).collect();
            prop_assert_eq!(read.unwrap(), items_in);
            bytes.pop();
            prop_assert!(items(&bytes).any(|item| item.is_err()));
        }

        #[test]
        fn arbitrary_bytes_end_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(items(&bytes).count() <= bytes.len());
        }
    }
}
