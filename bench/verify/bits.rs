//! Sets of small numbers, one bit each.

/// A set of numbers that begin at 0 and lie close together.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Adds a number. Returns whether it was new.
    pub fn insert(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let was = self.words[word] & bit != 0;
        self.words[word] |= bit;
        !was
    }

    /// Whether the number is in it.
    pub fn contains(&self, number: u32) -> bool {
        let word = self.words.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Numbers in it.
    pub fn count(&self) -> u64 {
        let ones = |word: &u64| u64::from(word.count_ones());
        self.words.iter().map(ones).sum()
    }

    /// Numbers that are in both.
    pub fn count_common(&self, other: &Bits) -> u64 {
        let both = self.words.iter().zip(&other.words);
        both.map(|(a, b)| u64::from((a & b).count_ones())).sum()
    }

    /// Adds all numbers of the other.
    pub fn merge(&mut self, other: &Bits) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        let both = self.words.iter_mut().zip(&other.words);
        both.for_each(|(mine, theirs)| *mine |= theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_set() {
        let mut set = Bits::default();
        assert!(!set.contains(3));
        assert!(set.insert(3) && set.insert(64) && set.insert(1000));
        assert!(!set.insert(64));
        assert!(set.contains(64) && !set.contains(65) && !set.contains(5000));
        assert_eq!(set.count(), 3);
        let mut other = Bits::default();
        other.insert(64);
        other.insert(7);
        assert_eq!(set.count_common(&other), 1);
        other.merge(&set);
        assert_eq!(other.count(), 4);
    }
}
