//! From the values of single rounds to one figure: medians, factors, spread.

/// The middle value; of an even number the mean of the middle two. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// How many times better `ours` is than `theirs`: 2 is twice as good, 0.5 half as good.
///
/// `None` where one of them is not above zero, as nothing can be said then.
pub fn factor(ours: f64, theirs: f64, more_is_better: bool) -> Option<f64> {
    let usable = |value: f64| value.is_finite() && value > 0.0;
    if !usable(ours) || !usable(theirs) {
        return None;
    }
    Some(if more_is_better {
        ours / theirs
    } else {
        theirs / ours
    })
}

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Median of RingMQ's values.
    pub ours: f64,
    /// Median of the other's values.
    pub theirs: f64,
    /// Median of the factors of the rounds.
    pub factor: f64,
    /// Smallest and greatest factor of a round.
    pub spread: (f64, f64),
    /// Rounds of which a factor could be made.
    pub rounds: u32,
}

/// Compares round by round: each pair is (RingMQ's value, the other's) of one round.
///
/// Rounds of which no factor can be made are passed over; `None` where none is left.
pub fn compare(pairs: &[(f64, f64)], more_is_better: bool) -> Option<Compared> {
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let mut factors = Vec::new();
    for &(our, their) in pairs {
        if let Some(factor) = factor(our, their, more_is_better) {
            ours.push(our);
            theirs.push(their);
            factors.push(factor);
        }
    }
    let least = factors.iter().copied().reduce(f64::min)?;
    let most = factors.iter().copied().reduce(f64::max)?;
    Some(Compared {
        ours: median(&ours)?,
        theirs: median(&theirs)?,
        factor: median(&factors)?,
        spread: (least, most),
        rounds: factors.len() as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[9.0, 1.0, 4.0, 2.0]), Some(3.0));
    }

    #[test]
    fn a_factor_above_one_is_better_in_both_directions() {
        assert_eq!(factor(200.0, 100.0, true), Some(2.0));
        assert_eq!(factor(200.0, 100.0, false), Some(0.5));
        assert_eq!(factor(5.0, 100.0, false), Some(20.0));
    }

    #[test]
    fn nothing_is_said_of_values_that_are_not_above_zero() {
        for (ours, theirs) in [
            (0.0, 1.0),
            (1.0, 0.0),
            (f64::NAN, 1.0),
            (1.0, f64::INFINITY),
        ] {
            assert_eq!(factor(ours, theirs, true), None, "{ours} {theirs}");
        }
        assert_eq!(compare(&[(0.0, 1.0)], true), None);
        assert_eq!(compare(&[], true), None);
    }

    #[test]
    fn factors_are_taken_round_by_round() {
        // One slow round for both: the medians of the values alone would pair different rounds.
        let pairs = [(100.0, 10.0), (40.0, 2.0), (120.0, 20.0)];
        let compared = compare(&pairs, true).expect("three rounds");
        assert_eq!(compared.ours, 100.0);
        assert_eq!(compared.theirs, 10.0);
        assert_eq!(compared.factor, 10.0);
        assert_eq!(compared.spread, (6.0, 20.0));
    }

    #[test]
    fn a_round_without_a_value_is_passed_over() {
        let compared = compare(&[(2.0, 4.0), (1.0, 0.0)], false).expect("one round");
        assert_eq!(compared.factor, 2.0);
        assert_eq!(compared.spread, (2.0, 2.0));
        assert_eq!(compared.rounds, 1);
    }
}
