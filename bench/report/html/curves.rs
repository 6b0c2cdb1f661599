//! Latency by percentile, and what happened from second to second.

use super::axis::Axis;
use super::escape::Escaped;
use crate::bench::compare::units;
use crate::bench::result::Run;
use std::fmt::Write;

const WIDTH: f64 = 390.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 26.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 42.0;

/// Nines that an axis of percentiles shows at least: up to 99.9 %.
const NINES_MIN: f64 = 3.0;

/// One line of a plot.
struct Series {
    /// Class of its broker in the style sheet.
    class: String,
    /// What it is, for a pointer that rests on it.
    name: String,
    points: Vec<(f64, f64)>,
}

/// A run and the class of its broker in the style sheet.
pub type Drawn<'a> = (&'a Run, String);

fn series(runs: &[Drawn<'_>], points: impl Fn(&Run) -> Vec<(f64, f64)>) -> Vec<Series> {
    let all = runs.iter().map(|(run, class)| Series {
        class: class.clone(),
        name: match run.round {
            0 => run.broker.clone(),
            round => format!("{}, round {round}", run.broker),
        },
        points: points(run),
    });
    all.filter(|series| !series.points.is_empty()).collect()
}

/// Latency over the logarithm of `1 - quantile`, as HdrHistogram draws it.
pub fn latency(runs: &[Drawn<'_>]) -> String {
    let all = series(runs, |run| {
        let Some(latency) = &run.latency else {
            return Vec::new();
        };
        // The greatest of n values is the quantile 1 - 1/n, as far as can be known.
        let nines_max = (latency.count.max(10) as f64).log10();
        let nines = |quantile: f64| match 1.0 - quantile {
            rest if rest > 0.0 => (-rest.log10()).min(nines_max),
            _ => nines_max,
        };
        let curve = latency.curve.iter();
        curve
            .map(|&(quantile, us)| (nines(quantile), us.max(1) as f64))
            .collect()
    });
    let Some((low, high)) = range(&all) else {
        return String::new();
    };
    let nines = all.iter().flat_map(|s| &s.points).map(|point| point.0);
    let nines_max = nines.fold(NINES_MIN, f64::max);
    let x = Axis::exact((0.0, nines_max), (LEFT, RIGHT));
    let y = Axis::logarithmic((low / 1.2, high * 1.2), (BOTTOM, TOP));
    let ticks: Vec<(f64, String)> = (0..=nines_max as u32)
        .map(|nines| (f64::from(nines), percentile(nines)))
        .collect();
    plot(&Plot {
        title: "Latency by percentile",
        below: "percent of the messages at or below",
        x: (&x, ticks),
        y: (&y, units::duration_us),
        series: &all,
    })
}

/// Percent of a number of nines: `0`, `90`, `99`, `99.9` ...
fn percentile(nines: u32) -> String {
    match nines {
        0 => "0".to_owned(),
        1 => "90".to_owned(),
        2 => "99".to_owned(),
        more => format!("99.{}", "9".repeat(more as usize - 2)),
    }
}

/// Messages of each second.
pub fn throughput(runs: &[Drawn<'_>]) -> String {
    let all = series(runs, |run| timeline(run, |second| second.messages as f64));
    let high = range(&all).map_or(0.0, |(_, high)| high);
    let y = Axis::linear(high, (BOTTOM, TOP));
    over_time("Messages per second", &all, &y, units::count)
}

/// The p99 of each second.
pub fn stalls(runs: &[Drawn<'_>]) -> String {
    let all = series(runs, |run| {
        if run.latency.is_none() {
            return Vec::new();
        }
        timeline(run, |second| second.p99_us.max(1) as f64)
    });
    let (low, high) = range(&all).unwrap_or((1.0, 10.0));
    let y = Axis::logarithmic((low / 1.2, high * 1.2), (BOTTOM, TOP));
    over_time("p99 of each second", &all, &y, units::duration_us)
}

fn timeline(run: &Run, value: impl Fn(&crate::bench::result::Second) -> f64) -> Vec<(f64, f64)> {
    let seconds = run.timeline.iter().enumerate();
    seconds
        .map(|(at, second)| (at as f64 + 1.0, value(second)))
        .collect()
}

fn over_time(title: &str, all: &[Series], y: &Axis, text: fn(f64) -> String) -> String {
    let seconds = all.iter().flat_map(|s| &s.points).map(|point| point.0);
    let Some(last) = seconds.reduce(f64::max) else {
        return String::new();
    };
    let x = Axis::exact((0.0, last), (LEFT, RIGHT));
    let whole = x.ticks().into_iter().filter(|tick| tick.fract() == 0.0);
    plot(&Plot {
        title,
        below: "second",
        x: (&x, whole.map(|tick| (tick, format!("{tick:.0}"))).collect()),
        y: (y, text),
        series: all,
    })
}

/// Smallest and greatest value of all lines.
fn range(all: &[Series]) -> Option<(f64, f64)> {
    let values = all.iter().flat_map(|s| &s.points).map(|point| point.1);
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

struct Plot<'a> {
    title: &'a str,
    below: &'a str,
    x: (&'a Axis, Vec<(f64, String)>),
    y: (&'a Axis, fn(f64) -> String),
    series: &'a [Series],
}

fn plot(plot: &Plot<'_>) -> String {
    let (x, x_ticks) = &plot.x;
    let (y, y_text) = &plot.y;
    let mut svg = format!(
        "<figure><figcaption>{title}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">",
        title = Escaped(plot.title)
    );
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            tick_text(&y_text(tick))
        );
    }
    for (tick, text) in x_ticks {
        let at = x.at(*tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>\
             <text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            BOTTOM + 17.0,
            Escaped(text)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        (LEFT + RIGHT) / 2.0,
        BOTTOM + 34.0,
        Escaped(plot.below)
    );
    for line in plot.series {
        draw(&mut svg, line, x, y);
    }
    svg += "</svg></figure>";
    svg
}

/// A tick's number without zeros behind the point: `10 ms`, not `10.0 ms`.
fn tick_text(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{} {}", Escaped(number), Escaped(unit))
        }
        _ => Escaped(text).to_string(),
    }
}

fn draw(svg: &mut String, line: &Series, x: &Axis, y: &Axis) {
    let _ = write!(
        svg,
        "<g class=\"{}\"><title>{}</title>",
        Escaped(&line.class),
        Escaped(&line.name)
    );
    if let [(only, value)] = line.points[..] {
        let _ = write!(
            svg,
            "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
            x.at(only),
            y.at(value)
        );
    } else {
        svg.push_str("<polyline points=\"");
        for &(at, value) in &line.points {
            let _ = write!(svg, "{:.1},{:.1} ", x.at(at), y.at(value));
        }
        svg.push_str("\"/>");
    }
    svg.push_str("</g>");
}
