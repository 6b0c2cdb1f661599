//! The comparison as a plot: a row a figure, the factor on a logarithmic axis.
//!
//! A standing shows in colour, in the shape of its mark and in words, so that nobody needs the
//! colour.

use super::axis::Axis;
use super::escape::Escaped;
use crate::bench::compare::judge::{HARNESS_WAS_LIMIT, Standing, asked};
use crate::bench::compare::units;
use crate::bench::result::{Cell, Figure};
use std::fmt::Write;

const WIDTH: f64 = 980.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 44.0;
const ROW: f64 = 21.0;
const HEAD: f64 = 28.0;
const BOTTOM: f64 = 34.0;

/// The plot of all figures; nothing where there are none.
pub fn plot(cells: &[Cell]) -> String {
    let shown: Vec<&Cell> = cells.iter().filter(|c| !c.figures.is_empty()).collect();
    if shown.is_empty() {
        return String::new();
    }
    let rows: usize = shown.iter().map(|cell| cell.figures.len()).sum();
    let end = TOP + HEAD * shown.len() as f64 + ROW * rows as f64;
    let axis = axis(&shown);
    let mut svg = format!(
        "<svg class=\"factors\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" \
         aria-label=\"How many times better RingMQ is, by cell and figure\">",
        end + BOTTOM
    );
    grid(&mut svg, &axis, end);
    let mut y = TOP;
    for cell in shown {
        let _ = write!(
            svg,
            "<text class=\"head\" x=\"4\" y=\"{:.1}\">{}</text>",
            y + HEAD - 9.0,
            Escaped(&cell.name)
        );
        y += HEAD;
        for figure in &cell.figures {
            row(&mut svg, &axis, cell, figure, y + ROW / 2.0);
            y += ROW;
        }
    }
    svg += "</svg>";
    svg
}

/// Wide enough for every factor, spread and bar, and for the border between loss and win.
fn axis(cells: &[&Cell]) -> Axis {
    let mut values = vec![0.5, 2.0];
    for figure in cells.iter().flat_map(|cell| &cell.figures) {
        values.extend([figure.factor, figure.spread.0, figure.spread.1]);
        values.extend(figure.bar);
    }
    let usable = values.into_iter().filter(|v| v.is_finite() && *v > 0.0);
    let (low, high) = usable.fold((1.0f64, 1.0f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    Axis::logarithmic((low / 1.15, high * 1.15), (LEFT, RIGHT))
}

fn grid(svg: &mut String, axis: &Axis, end: f64) {
    let one = axis.at(1.0);
    let _ = write!(
        svg,
        "<rect class=\"loss\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
        one - LEFT,
        end - TOP
    );
    for tick in axis.ticks() {
        let x = axis.at(tick);
        let class = if tick == 1.0 { "one" } else { "grid" };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{end:.1}\"/>\
             <text class=\"tick\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            end + 18.0,
            tick_text(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">RingMQ is better &#8594;</text>\
         <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">&#8592; worse</text>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">factor (bar)</text>",
        one + 8.0,
        TOP - 10.0,
        one - 8.0,
        TOP - 10.0,
        RIGHT + 14.0,
        TOP - 10.0,
    );
}

fn tick_text(tick: f64) -> String {
    if tick >= 1.0 {
        format!("{tick:.0}x")
    } else {
        format!("1/{:.0}x", 1.0 / tick)
    }
}

fn row(svg: &mut String, axis: &Axis, cell: &Cell, figure: &Figure, y: f64) {
    let standing = Standing::of(figure);
    if standing == Standing::NotMeasured {
        return row_without_value(svg, cell, figure, y);
    }
    let class = class(standing);
    let x = axis.at(figure.factor);
    let asked = asked(figure);
    let _ = write!(
        svg,
        "<g class=\"{class}\"><title>{}, {}: RingMQ {}, Apache {}: {} ({} rounds, {} to {}), {}{}</title>\
         <rect class=\"hit\" x=\"0\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{ROW}\"/>\
         <text class=\"label\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
         <line class=\"spread\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
        Escaped(&cell.name),
        Escaped(&figure.name),
        Escaped(&units::value(figure.ours, &figure.unit)),
        Escaped(&units::value(figure.theirs, &figure.unit)),
        units::factor(figure.factor),
        figure.rounds,
        units::factor(figure.spread.0),
        units::factor(figure.spread.1),
        standing.name(),
        if asked.is_empty() {
            String::new()
        } else {
            format!("; asked for: {}", Escaped(&asked))
        },
        y - ROW / 2.0,
        LEFT - 12.0,
        y + 4.0,
        Escaped(&figure.name),
        axis.at(figure.spread.0),
        axis.at(figure.spread.1),
    );
    if let Some(bar) = figure.bar {
        let x = axis.at(bar);
        let _ = write!(
            svg,
            "<line class=\"bar\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
            y - ROW * 0.42,
            y + ROW * 0.42
        );
    }
    svg.push_str(&mark(standing, x, y));
    let _ = write!(
        svg,
        "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
         <text class=\"asked\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        RIGHT + 14.0,
        y + 4.0,
        units::factor(figure.factor),
        RIGHT + 80.0,
        y + 4.0,
        Escaped(&words(standing, &asked, figure.harness_was_limit))
    );
    svg.push_str("</g>");
}

/// What stands behind a factor: the standing unless it is a plain win, and what is asked for.
fn words(standing: Standing, asked: &str, harness_was_limit: bool) -> String {
    let mut text = match standing {
        Standing::Ahead => asked.to_owned(),
        other if asked.is_empty() => other.name().to_owned(),
        other => format!("{}: {asked}", other.name()),
    };
    if harness_was_limit {
        if !text.is_empty() {
            text += "; ";
        }
        text += HARNESS_WAS_LIMIT;
    }
    text
}

fn row_without_value(svg: &mut String, cell: &Cell, figure: &Figure, y: f64) {
    let standing = Standing::NotMeasured;
    let _ = write!(
        svg,
        "<g class=\"{}\"><title>{}, {}: {}</title>\
         <text class=\"label\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
         <text class=\"asked\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        class(standing),
        Escaped(&cell.name),
        Escaped(&figure.name),
        standing.name(),
        LEFT - 12.0,
        y + 4.0,
        Escaped(&figure.name),
        RIGHT + 14.0,
        y + 4.0,
        Escaped(&words(standing, &asked(figure), figure.harness_was_limit))
    );
}

/// The class of a standing in the style sheet.
pub fn class(standing: Standing) -> &'static str {
    match standing {
        Standing::Ahead => "ahead",
        Standing::BarMet => "met",
        Standing::Even => "even",
        Standing::BelowBar => "below",
        Standing::Behind => "behind",
        Standing::NotMeasured => "none",
    }
}

/// A filled circle, a filled square, a hollow circle, a hollow diamond, a cross, a dash.
pub fn mark(standing: Standing, x: f64, y: f64) -> String {
    match standing {
        Standing::Ahead => {
            format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>")
        }
        Standing::BarMet => format!(
            "<rect class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>",
            x - 4.0,
            y - 4.0
        ),
        Standing::Even => {
            format!("<circle class=\"mark hollow\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>")
        }
        Standing::NotMeasured => format!(
            "<path class=\"mark\" d=\"M{:.1} {y:.1}L{:.1} {y:.1}\"/>",
            x - 5.0,
            x + 5.0
        ),
        Standing::BelowBar => format!(
            "<path class=\"mark hollow\" d=\"M{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}Z\"/>",
            x - 6.0,
            y - 6.0,
            x + 6.0,
            y + 6.0
        ),
        Standing::Behind => format!(
            "<path class=\"mark cross\" d=\"M{:.1} {:.1}L{:.1} {:.1}M{:.1} {:.1}L{:.1} {:.1}\"/>",
            x - 5.0,
            y - 5.0,
            x + 5.0,
            y + 5.0,
            x - 5.0,
            y + 5.0,
            x + 5.0,
            y - 5.0
        ),
    }
}
