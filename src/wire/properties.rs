//! Message properties: `name 0x01 value 0x02`, repeated (`MessageDecoder`).

use super::scan::{find, find_either};

/// Between a name and its value.
pub const NAME_END: u8 = 1;
/// Behind a value; the last one may be missing.
pub const VALUE_END: u8 = 2;

/// Longest stored properties, in bytes: their length is a signed 16-bit number.
pub const PROPERTIES_BYTES_MAX: usize = i16::MAX as usize;

/// Names that the broker reads or writes (`MessageConst`).
pub mod name {
    #![allow(missing_docs)]

    pub const KEYS: &str = "KEYS";
    pub const TAGS: &str = "TAGS";
    pub const WAIT: &str = "WAIT";
    pub const DELAY: &str = "DELAY";
    pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
    pub const REAL_TOPIC: &str = "REAL_TOPIC";
    pub const REAL_QUEUE_ID: &str = "REAL_QID";
    pub const TRAN_MSG: &str = "TRAN_MSG";
    pub const UNIQ_KEY: &str = "UNIQ_KEY";
    pub const MSG_REGION: &str = "MSG_REGION";
    pub const TRACE_ON: &str = "TRACE_ON";
    pub const CLUSTER: &str = "CLUSTER";
    pub const POP_CK: &str = "POP_CK";
    pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
    pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
    pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
    pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
}

/// Walks over properties as (name, value). Entries without a separator, without
/// a name or without a value are passed over, as in Java.
pub fn iter(properties: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    entries(properties).map(|entry| (entry.name, entry.value))
}

/// One property, and how it is written.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Both, without the end of the value.
    pub written: &'a [u8],
}

/// The properties that [`iter`] walks over, as they are written.
#[inline]
pub fn entries(properties: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = properties;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let at = find_either(NAME_END, VALUE_END, rest).unwrap_or(rest.len());
            let has_name = rest.get(at) == Some(&NAME_END);
            let end = match has_name {
                true => find(VALUE_END, &rest[at..]).map_or(rest.len(), |behind| at + behind),
                false => at,
            };
            let entry = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            if has_name && at > 0 && at + 1 < end {
                return Some(Entry {
                    name: &entry[..at],
                    value: &entry[at + 1..],
                    written: entry,
                });
            }
        }
        None
    })
}

/// The value of property `name`; the last one where it is written twice.
pub fn get<'a>(properties: &'a [u8], name: &str) -> Option<&'a [u8]> {
    iter(properties)
        .filter(|&(key, _)| key == name.as_bytes())
        .last()
        .map(|(_, value)| value)
}

/// Appends one property.
pub fn push(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.push(NAME_END);
    out.extend_from_slice(value);
    out.push(VALUE_END);
}

/// Appends all of `properties` to `out` but those named in `except`, so that the
/// caller can append them anew.
pub fn copy_except(out: &mut Vec<u8>, properties: &[u8], except: &[&str]) {
    for entry in entries(properties) {
        if except.iter().any(|name| name.as_bytes() == entry.name) {
            continue;
        }
        out.extend_from_slice(entry.written);
        out.push(VALUE_END);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(3u8..=255, 1..12)
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_read_again(
            entries in prop::collection::vec((word(), word()), 0..10), cut_end: bool,
        ) {
            let mut bytes = Vec::new();
            for (name, value) in &entries {
                bytes.extend_from_slice(name);
                bytes.push(NAME_END);
                bytes.extend_from_slice(value);
                bytes.push(VALUE_END);
            }
            if cut_end {
                bytes.pop();
            }
            let read: Vec<_> = iter(&bytes).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(read, entries);
        }

        #[test]
        fn any_bytes_are_parted_at_the_ends_of_values_and_then_of_names(
            bytes in prop::collection::vec(prop::sample::select(b"\x01\x02ab\xff".to_vec()), 0..90),
        ) {
            let parted = bytes.split(|&byte| byte == VALUE_END).filter_map(|written| {
                let at = written.iter().position(|&byte| byte == NAME_END)?;
                let (name, value) = (&written[..at], &written[at + 1..]);
                (!name.is_empty() && !value.is_empty()).then_some((name, value, written))
            });
            let read = entries(&bytes).map(|entry| (entry.name, entry.value, entry.written));
            prop_assert!(read.eq(parted));
        }
    }

    #[test]
    fn incomplete_entries_are_passed_over() {
        let bytes = b"A\x01\x02\x02noseparator\x02\x01x\x02KEYS\x01k1 k2\x02KEYS\x01k3";
        assert_eq!(get(bytes, "KEYS"), Some(&b"k3"[..]));
        assert_eq!(iter(bytes).count(), 2);
        let mut out = Vec::new();
        copy_except(&mut out, b"A\x01b\x02C\x01d", &["A"]);
        assert_eq!(out, b"C\x01d\x02");
    }
}
