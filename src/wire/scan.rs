//! Searches in short texts: most names and values in headers and properties end within a few
//! bytes, before a vector search that is called for them has begun.

/// Bytes that are looked at here; what is farther away is left to a vector search.
const NEAR: usize = 8 * WORD;

const WORD: usize = size_of::<u64>();
const LOW: u64 = u64::from_ne_bytes([0x01; WORD]);
const HIGH: u64 = u64::from_ne_bytes([0x80; WORD]);

/// A bit in the lowest byte of `word` that is `byte`; above it bits may be wrong.
#[inline(always)]
fn hits(word: u64, byte: u8) -> u64 {
    let zero = word ^ (LOW * u64::from(byte));
    zero.wrapping_sub(LOW) & !zero & HIGH
}

/// Place of the first byte in `text` that `is` one of those for which `hits` has a bit, and
/// that `far` finds in what is longer.
#[inline(always)]
fn first(
    text: &[u8],
    hits: impl Fn(u64) -> u64,
    is: impl Fn(u8) -> bool,
    far: impl Fn(&[u8]) -> Option<usize>,
) -> Option<usize> {
    let mut seen = 0;
    for word in text[..text.len().min(NEAR)].chunks_exact(WORD) {
        let hits = hits(u64::from_le_bytes(word.try_into().expect("a word")));
        if hits != 0 {
            return Some(seen + hits.trailing_zeros() as usize / 8);
        }
        seen += WORD;
    }
    let rest = &text[seen..];
    let at = match rest.len() < WORD {
        true => rest.iter().position(|&byte| is(byte)),
        false => far(rest),
    };
    at.map(|at| seen + at)
}

/// Place of the first `byte` in `text`.
#[inline]
pub fn find(byte: u8, text: &[u8]) -> Option<usize> {
    first(
        text,
        |word| hits(word, byte),
        |found| found == byte,
        |rest| memchr::memchr(byte, rest),
    )
}

/// Place of the first byte in `text` that is one of two.
#[inline]
pub fn find_either(one: u8, other: u8, text: &[u8]) -> Option<usize> {
    first(
        text,
        |word| hits(word, one) | hits(word, other),
        |found| found == one || found == other,
        |rest| memchr::memchr2(one, other, rest),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The first one is found, whatever stands in front of it and behind it.
        #[test]
        fn the_first_is_found_or_none(
            text in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 3, 0x7f, 0x80, 0x81, 0xff]), 0..100),
            plain in prop::collection::vec(any::<u8>(), 0..60),
            (one, other) in (0u8..4, any::<u8>()),
        ) {
            for text in [[&plain[..], &text].concat(), text] {
                let first = |of: &dyn Fn(u8) -> bool| text.iter().position(|&byte| of(byte));
                prop_assert_eq!(find(one, &text), first(&|byte| byte == one));
                prop_assert_eq!(
                    find_either(one, other, &text),
                    first(&|byte| byte == one || byte == other)
                );
            }
        }
    }
}
