//! Java's `String.hashCode`, which tags and keys are compared by.

/// `s[0]*31^(n-1) + … + s[n-1]` over UTF-16 code units, wrapping at 32 bits.
/// Bytes that are not UTF-8 are hashed as Java decodes them, with U+FFFD.
pub fn java_hash(text: &[u8]) -> i32 {
    java_hash_on(0, text)
}

/// The hash of a text that goes on with `text`, and of which the hash so far is `hash`.
pub fn java_hash_on(hash: i32, text: &[u8]) -> i32 {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    if !text.is_ascii() {
        return String::from_utf8_lossy(text)
            .encode_utf16()
            .fold(hash, step);
    }
    // Four at a time: each step waits for the one before.
    let mut fours = text.chunks_exact(4);
    let hash = fours.by_ref().fold(hash, |hash, four| {
        let four = four
            .iter()
            .fold(0, |hash, &byte| step(hash, u16::from(byte)));
        hash.wrapping_mul(31 * 31 * 31 * 31).wrapping_add(four)
    });
    let rest = fours.remainder();
    rest.iter()
        .fold(hash, |hash, &byte| step(hash, u16::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::{java_hash, java_hash_on};

    #[test]
    fn agrees_with_java() {
        assert_eq!(java_hash(b""), 0);
        assert_eq!(java_hash(b"TagA"), 2_598_919);
        assert_eq!(java_hash(b"Aa"), java_hash(b"BB"));
        assert_eq!(java_hash("日本".as_bytes()), 835_047);
        assert_eq!(java_hash("😀".as_bytes()), 1_772_899);
        assert_eq!(java_hash(b"polygenelubricants"), i32::MIN);
        assert_eq!(
            java_hash_on(java_hash(b"poly"), b"genelubricants"),
            i32::MIN
        );
    }
}
