//! From values to places in a drawing, and the ticks between.

/// One axis of a plot.
#[derive(Clone, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

/// Decades up to which a logarithmic axis has ticks at 2 and 5 too.
const DECADES_FINE: f64 = 2.2;

impl Axis {
    /// From zero to a round value at or above `high`, drawn from `from` to `to`.
    pub fn linear(high: f64, (from, to): (f64, f64)) -> Axis {
        let high = if high > 0.0 { high } else { 1.0 };
        let step = step(high);
        Axis {
            low: 0.0,
            high: (high / step - 1e-9).ceil() * step,
            from,
            to,
            logarithmic: false,
        }
    }

    /// From `low` to `high`, evenly, without rounding.
    pub fn exact((low, high): (f64, f64), (from, to): (f64, f64)) -> Axis {
        let high = if high > low { high } else { low + 1.0 };
        Axis {
            low,
            high,
            from,
            to,
            logarithmic: false,
        }
    }

    /// The logarithm from `low` to `high`, both above zero.
    pub fn logarithmic((low, high): (f64, f64), (from, to): (f64, f64)) -> Axis {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { low * 10.0 };
        Axis {
            low,
            high,
            from,
            to,
            logarithmic: true,
        }
    }

    /// The place of a value. Values outside of the axis are drawn at its end.
    pub fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Values that get a line and a number.
    pub fn ticks(&self) -> Vec<f64> {
        let within =
            |value: &f64| *value >= self.low * 0.999_999 && *value <= self.high * 1.000_001;
        if !self.logarithmic {
            let step = step(self.high - self.low);
            let steps = ((self.high - self.low) / step + 1e-9) as u32;
            return (0..=steps)
                .map(|n| self.low + f64::from(n) * step)
                .collect();
        }
        let steps: &[f64] = if (self.high / self.low).log10() <= DECADES_FINE {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        decades
            .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
            .filter(within)
            .collect()
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `length` into three to eight.
fn step(length: f64) -> f64 {
    let rough = length / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    match rough / power {
        digits if digits < 1.5 => power,
        digits if digits < 3.5 => 2.0 * power,
        digits if digits < 7.5 => 5.0 * power,
        _ => 10.0 * power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_factors_are_equally_far_apart_on_a_logarithmic_axis() {
        let axis = Axis::logarithmic((0.1, 1000.0), (0.0, 400.0));
        let places: Vec<f64> = axis.ticks().iter().map(|&tick| axis.at(tick)).collect();
        assert_eq!(axis.ticks().len(), 5);
        for (place, expected) in places.iter().zip([0.0, 100.0, 200.0, 300.0, 400.0]) {
            assert!((place - expected).abs() < 1e-6, "{places:?}");
        }
    }

    #[test]
    fn short_axes_have_finer_ticks() {
        let axis = Axis::logarithmic((0.5, 20.0), (0.0, 1.0));
        assert_eq!(axis.ticks(), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        let axis = Axis::linear(47_292.0, (0.0, 1.0));
        assert_eq!(
            axis.ticks(),
            [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]
        );
    }

    #[test]
    fn no_value_is_drawn_outside() {
        let axis = Axis::logarithmic((1.0, 10.0), (0.0, 100.0));
        assert_eq!(axis.at(0.0), 0.0);
        assert_eq!(axis.at(1e9), 100.0);
        let flat = Axis::linear(0.0, (100.0, 0.0));
        assert_eq!(flat.at(0.0), 100.0);
        assert!(flat.ticks().len() > 1);
    }
}
