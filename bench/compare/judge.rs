//! What a figure says: won as far as is asked for, won, or lost.

use crate::bench::result::{Cell, Figure};

/// How RingMQ stands in a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Better than the other, and not below what is asked for.
    Ahead,
    /// As good as is asked for, where that is all that counts, though the other is not worse.
    BarMet,
    /// Neither better nor worse: a tie, or rounds on both sides of it.
    Even,
    /// Not worse than the other, but below what is asked for.
    BelowBar,
    /// Worse than the other.
    Behind,
    /// Asked for, but one of the brokers has no value.
    NotMeasured,
}

/// A factor less than this away from 1 is a tie: it is shown as `1.00x`.
const TIE: f64 = 0.005;

impl Standing {
    /// All of them, the best first.
    pub const ALL: [Standing; 6] = [
        Standing::Ahead,
        Standing::BarMet,
        Standing::Even,
        Standing::BelowBar,
        Standing::Behind,
        Standing::NotMeasured,
    ];

    /// How RingMQ stands in `figure`.
    pub fn of(figure: &Figure) -> Standing {
        if !figure.is_measured() {
            return Standing::NotMeasured;
        }
        let limit_met = match figure.limit {
            None => true,
            Some(limit) if figure.more_is_better => figure.ours >= limit,
            Some(limit) => figure.ours <= limit,
        };
        let bar_met = limit_met && figure.bar.is_none_or(|bar| figure.factor >= bar);
        let (least, most) = figure.spread;
        let even = (figure.factor - 1.0).abs() < TIE || (least < 1.0 && most > 1.0);
        let better = figure.factor > 1.0;
        match (bar_met, even, better) {
            (true, false, true) => Standing::Ahead,
            (true, ..) if figure.only_limit => Standing::BarMet,
            (true, true, _) => Standing::Even,
            (false, true, _) | (false, _, true) => Standing::BelowBar,
            (_, false, false) => Standing::Behind,
        }
    }

    /// The words for it.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Ahead => "ahead",
            Standing::BarMet => "bar met",
            Standing::Even => "even",
            Standing::BelowBar => "below bar",
            Standing::Behind => "behind",
            Standing::NotMeasured => "not measured",
        }
    }
}

/// Said beside a standing where the harness set the pace.
pub const HARNESS_WAS_LIMIT: &str = "harness at its limit";

/// How many figures of `cells` stand how, the best first; a standing that none has is left out.
pub fn counts(cells: &[Cell]) -> Vec<(Standing, usize)> {
    let figures = || cells.iter().flat_map(|cell| &cell.figures);
    let number = |standing| figures().filter(|f| Standing::of(f) == standing).count();
    let all = Standing::ALL.map(|standing| (standing, number(standing)));
    all.into_iter().filter(|(_, number)| *number > 0).collect()
}

/// What is asked for in a figure, as text; empty if nothing is.
pub fn asked(figure: &Figure) -> String {
    use super::units;
    let mut parts = Vec::new();
    if let Some(bar) = figure.bar {
        parts.push(format!("≥ {}", short_factor(bar)));
    }
    if let Some(limit) = figure.limit {
        let sign = if figure.more_is_better { "≥" } else { "≤" };
        parts.push(format!("own {sign} {}", units::value(limit, &figure.unit)));
    }
    parts.join(", ")
}

/// A bar without digits that say nothing: `12x`, `1.8x`.
fn short_factor(bar: f64) -> String {
    let text = format!("{bar:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}x")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(factor: f64, bar: Option<f64>) -> Figure {
        Figure {
            factor,
            spread: (factor, factor),
            bar,
            ..Figure::default()
        }
    }

    #[test]
    fn a_loss_is_a_loss_and_a_bar_a_bar() {
        for (factor, bar, standing) in [
            (1.01, None, Standing::Ahead),
            (1.0, None, Standing::Even),
            (0.999, None, Standing::Even),
            (0.99, None, Standing::Behind),
            (1.0, Some(2.0), Standing::BelowBar),
            (12.0, Some(12.0), Standing::Ahead),
            (11.9, Some(12.0), Standing::BelowBar),
            (0.9, Some(12.0), Standing::Behind),
            (f64::NAN, None, Standing::NotMeasured),
            (0.0, None, Standing::NotMeasured),
        ] {
            assert_eq!(Standing::of(&figure(factor, bar)), standing, "{factor}");
        }
    }

    #[test]
    fn a_limit_is_for_ringmqs_own_value() {
        let memory = |ours| Figure {
            ours,
            factor: 40.0,
            spread: (40.0, 40.0),
            limit: Some(100e6),
            unit: "bytes".to_owned(),
            ..Figure::default()
        };
        assert_eq!(Standing::of(&memory(90e6)), Standing::Ahead);
        assert_eq!(Standing::of(&memory(110e6)), Standing::BelowBar);
        assert_eq!(asked(&memory(90e6)), "own ≤ 100 MB");
        let share = |ours| Figure {
            ours,
            factor: 1.2,
            spread: (1.2, 1.2),
            limit: Some(0.85),
            more_is_better: true,
            ..Figure::default()
        };
        assert_eq!(Standing::of(&share(0.9)), Standing::Ahead);
        assert_eq!(Standing::of(&share(0.8)), Standing::BelowBar);
    }

    #[test]
    fn rounds_on_both_sides_of_a_tie_decide_nothing() {
        for (factor, bar, standing) in [
            (2.0, None, Standing::Even),
            (0.7, None, Standing::Even),
            (2.0, Some(1.5), Standing::Even),
            (2.0, Some(2.5), Standing::BelowBar),
        ] {
            let figure = Figure {
                spread: (0.3, 3.0),
                ..figure(factor, bar)
            };
            assert_eq!(Standing::of(&figure), standing, "{factor} {bar:?}");
        }
    }

    #[test]
    fn where_only_the_limit_counts_the_other_cannot_win() {
        let growth = |ours, factor| Figure {
            ours,
            limit: Some(2.0),
            only_limit: true,
            ..figure(factor, None)
        };
        assert_eq!(Standing::of(&growth(1.1, 0.9)), Standing::BarMet);
        assert_eq!(Standing::of(&growth(1.1, 1.0)), Standing::BarMet);
        assert_eq!(Standing::of(&growth(1.1, 3.0)), Standing::Ahead);
        assert_eq!(Standing::of(&growth(2.1, 3.0)), Standing::BelowBar);
        assert_eq!(Standing::of(&growth(2.1, 0.9)), Standing::Behind);
    }

    #[test]
    fn what_is_asked_is_said_shortly() {
        assert_eq!(asked(&figure(1.0, Some(12.0))), "≥ 12x");
        assert_eq!(asked(&figure(1.0, Some(1.8))), "≥ 1.8x");
        assert_eq!(asked(&figure(1.0, None)), "");
    }
}
