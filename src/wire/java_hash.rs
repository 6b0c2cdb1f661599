//! Java's `String.hashCode`, which tags and keys are compared by.

/// `s[0]*31^(n-1) + … + s[n-1]` over UTF-16 code units, wrapping at 32 bits.
/// Bytes that are not UTF-8 are hashed as Java decodes them, with U+FFFD.
pub fn java_hash(text: &[u8]) -> i32 {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    if text.is_ascii() {
        return text
            .iter()
            .fold(0, |hash, &byte| step(hash, u16::from(byte)));
    }
    String::from_utf8_lossy(text).encode_utf16().fold(0, step)
}

#[cfg(test)]
mod tests {
    use super::java_hash;

    #[test]
    fn agrees_with_java() {
        assert_eq!(java_hash(b""), 0);
        assert_eq!(java_hash(b"TagA"), 2_598_919);
        assert_eq!(java_hash(b"Aa"), java_hash(b"BB"));
        assert_eq!(java_hash("日本".as_bytes()), 835_047);
        assert_eq!(java_hash("😀".as_bytes()), 1_772_899);
        assert_eq!(java_hash(b"polygenelubricants"), i32::MIN);
    }
}
