//! Random changes of inputs. The same seed makes the same changes.

/// Numbers that look random (xorshift).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of case `case` of a run with seed `seed`.
    pub fn new(seed: u64, case: u64) -> Dice {
        let mixed = (seed ^ case.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut dice = Dice(mixed ^ mixed >> 29 | 1);
        for _ in 0..4 {
            dice.next();
        }
        dice
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            0
        } else {
            (self.next() >> 11) as usize % bound
        }
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

const INTERESTING: [i64; 22] = [
    0,
    1,
    -1,
    2,
    7,
    8,
    16,
    90,
    91,
    127,
    128,
    255,
    256,
    i16::MAX as i64,
    i16::MIN as i64,
    u16::MAX as i64,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    1 << 48,
    i64::MAX,
    i64::MIN,
];

/// Changes `input` a few times. `others` are spliced in; `words` are inserted.
pub fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], words: &[&[u8]], dice: &mut Dice) {
    let most = 1 << dice.below(4);
    let rounds = 1 + dice.below(most);
    for _ in 0..rounds {
        step(input, others, words, dice);
    }
}

fn range(len: usize, dice: &mut Dice) -> std::ops::Range<usize> {
    let start = dice.below(len + 1);
    let most = if dice.below(4) == 0 {
        len - start
    } else {
        (len - start).min(16)
    };
    start..start + dice.below(most + 1)
}

fn step(input: &mut Vec<u8>, others: &[Vec<u8>], words: &[&[u8]], dice: &mut Dice) {
    let len = input.len();
    match dice.below(10) {
        0 if len > 0 => input[dice.below(len)] ^= 1 << dice.below(8),
        1 if len > 0 => input[dice.below(len)] = dice.next() as u8,
        2 => {
            let at = dice.below(len + 1);
            let count = 1 + dice.below(8);
            let bytes: Vec<u8> = (0..count).map(|_| dice.next() as u8).collect();
            input.splice(at..at, bytes);
        }
        3 => {
            let range = range(len, dice);
            input.drain(range);
        }
        4 => {
            let bytes = input[range(len, dice)].to_vec();
            let at = dice.below(len + 1);
            input.splice(at..at, bytes);
        }
        5 if !others.is_empty() => {
            let other = dice.pick(others);
            let bytes = other[range(other.len(), dice)].to_vec();
            let place = range(len, dice);
            input.splice(place, bytes);
        }
        6 => integer(input, dice),
        7 => near_length(input, dice),
        8 if !words.is_empty() => {
            let word = dice.pick(words);
            let at = dice.below(len + 1);
            let end = if dice.below(2) == 0 {
                at
            } else {
                (at + word.len()).min(len)
            };
            input.splice(at..end, word.iter().copied());
        }
        9 => {
            let range = range(len, dice);
            let byte = *dice.pick(&[0, 0xFF, b'0', b' ', 1, 2]);
            input[range].fill(byte);
        }
        _ => {}
    }
}

/// Puts an interesting number at some place.
fn integer(input: &mut [u8], dice: &mut Dice) {
    let width = *dice.pick(&[1, 2, 4, 4, 8]);
    if input.len() < width {
        return;
    }
    let at = dice.below(input.len() - width + 1);
    let number = dice
        .pick(&INTERESTING)
        .wrapping_add(dice.below(3) as i64 - 1);
    input[at..at + width].copy_from_slice(&number.to_be_bytes()[8 - width..]);
}

/// Changes a number that may be a length: a little, or to about what is left.
fn near_length(input: &mut [u8], dice: &mut Dice) {
    let width = *dice.pick(&[1, 2, 3, 4, 4, 8]);
    if input.len() < width {
        return;
    }
    // Lengths are small: look for a place where a small number stands.
    let mut at = dice.below(input.len() - width + 1);
    for _ in 0..20 {
        if width == 1 || input[at] == 0 {
            break;
        }
        at = dice.below(input.len() - width + 1);
    }
    let mut bytes = [0; 8];
    bytes[8 - width..].copy_from_slice(&input[at..at + width]);
    let old = i64::from_be_bytes(bytes);
    let left = (input.len() - at - width) as i64;
    let by = dice.below(9) as i64 - 4;
    let new = if dice.below(2) == 0 {
        old.wrapping_add(by)
    } else {
        left + by
    };
    input[at..at + width].copy_from_slice(&new.to_be_bytes()[8 - width..]);
}
