//! MD5 (RFC 1321), for the one place where RocketMQ's clients must agree on it: the ring of
//! [`super::allocate`]. It protects nothing.

const ROTATIONS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// The digest of `input`.
pub fn md5(input: &[u8]) -> [u8; 16] {
    let sines = sines();
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = input.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(input.len() as u64).wrapping_mul(8).to_le_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        state = turn(state, &words, &sines);
    }
    let mut digest = [0; 16];
    for (out, word) in digest.chunks_exact_mut(4).zip(state) {
        out.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

fn turn(state: [u32; 4], words: &[u32; 16], sines: &[u32; 64]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = state;
    for step in 0..64 {
        let round = step / 16;
        let (mixed, word) = match round {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), (7 * step) % 16),
        };
        let sum = a
            .wrapping_add(mixed)
            .wrapping_add(words[word])
            .wrapping_add(sines[step]);
        let turned = sum.rotate_left(ROTATIONS[round][step % 4]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
    }
    [
        state[0].wrapping_add(a),
        state[1].wrapping_add(b),
        state[2].wrapping_add(c),
        state[3].wrapping_add(d),
    ]
}

/// The 64 constants of the rounds: `floor(2^32 * |sin(n)|)`.
fn sines() -> [u32; 64] {
    std::array::from_fn(|n| (((n + 1) as f64).sin().abs() * 4_294_967_296.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(input: &str) -> String {
        md5(input.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    #[test]
    fn agrees_with_the_rfc() {
        assert_eq!(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        let long =
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        assert_eq!(hex(long), "57edf4a22be3c955ac49da2e2107b67a");
    }
}
