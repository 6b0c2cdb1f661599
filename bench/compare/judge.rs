//! What a figure says: won as far as is asked for, won, or lost.

use crate::bench::result::Figure;

/// How RingMQ stands in a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Not worse than the other, and not below what is asked for.
    Ahead,
    /// Not worse than the other, but below what is asked for.
    BelowBar,
    /// Worse than the other.
    Behind,
}

impl Standing {
    /// How RingMQ stands in `figure`.
    pub fn of(figure: &Figure) -> Standing {
        let limit_met = match figure.limit {
            None => true,
            Some(limit) if figure.more_is_better => figure.ours >= limit,
            Some(limit) => figure.ours <= limit,
        };
        let bar_met = figure.bar.is_none_or(|bar| figure.factor >= bar);
        // A factor that is not a number is no win.
        if figure.factor.is_nan() || figure.factor < 1.0 {
            Standing::Behind
        } else if bar_met && limit_met {
            Standing::Ahead
        } else {
            Standing::BelowBar
        }
    }

    /// The words for it.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Ahead => "ahead",
            Standing::BelowBar => "below bar",
            Standing::Behind => "behind",
        }
    }
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
            bar,
            ..Figure::default()
        }
    }

    #[test]
    fn a_loss_is_a_loss_and_a_bar_a_bar() {
        for (factor, bar, standing) in [
            (1.0, None, Standing::Ahead),
            (0.999, None, Standing::Behind),
            (12.0, Some(12.0), Standing::Ahead),
            (11.9, Some(12.0), Standing::BelowBar),
            (0.9, Some(12.0), Standing::Behind),
            (f64::NAN, None, Standing::Behind),
        ] {
            assert_eq!(Standing::of(&figure(factor, bar)), standing, "{factor}");
        }
    }

    #[test]
    fn a_limit_is_for_ringmqs_own_value() {
        let memory = |ours| Figure {
            ours,
            factor: 40.0,
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
            limit: Some(0.85),
            more_is_better: true,
            ..Figure::default()
        };
        assert_eq!(Standing::of(&share(0.9)), Standing::Ahead);
        assert_eq!(Standing::of(&share(0.8)), Standing::BelowBar);
    }

    #[test]
    fn what_is_asked_is_said_shortly() {
        assert_eq!(asked(&figure(1.0, Some(12.0))), "≥ 12x");
        assert_eq!(asked(&figure(1.0, Some(1.8))), "≥ 1.8x");
        assert_eq!(asked(&figure(1.0, None)), "");
    }
}
