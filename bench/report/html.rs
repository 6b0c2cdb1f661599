//! A report as one page that needs nothing else: no network, no script, light and dark.

mod axis;
mod curves;
mod escape;
mod factors;
mod tables;

use crate::bench::compare::judge::{HARNESS_WAS_LIMIT, counts};
use crate::bench::compare::units;
use crate::bench::result::{Cell, Report, Run};
use escape::Escaped;
use std::fmt::Write;

const STYLE: &str = include_str!("html/page.css");

/// Classes of brokers in the style sheet; a fifth broker shares the last.
const BROKER_CLASSES: usize = 4;

/// The page.
pub fn page(report: &Report) -> String {
    let brokers = brokers(report);
    let title = title(report, &brokers);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n",
        title = Escaped(&title)
    );
    let _ = writeln!(
        html,
        "<p class=\"soft\">{} UTC &middot; {} runs</p>",
        units::utc(report.began_ms),
        report.runs.len()
    );
    failures(&mut html, report);
    comparison(&mut html, report);
    groups(&mut html, report, &brokers);
    html += "<h2>All runs</h2>\n";
    html += &tables::runs(&report.runs);
    machine(&mut html, report, &brokers);
    html += "</body></html>\n";
    html
}

/// Brokers in the order of their first run, RingMQ first.
fn brokers(report: &Report) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for run in &report.runs {
        if !found.contains(&run.broker.as_str()) {
            found.push(&run.broker);
        }
    }
    found.sort_by_key(|name| !name.starts_with("RingMQ"));
    found
}

fn title(report: &Report, brokers: &[&str]) -> String {
    match brokers {
        [] => "RingMQ bench".to_owned(),
        [ours, theirs] if !report.cells.is_empty() => format!("{ours} and {theirs}"),
        all => format!("Load of {}", all.join(", ")),
    }
}

/// What failed stands above all figures.
fn failures(html: &mut String, report: &Report) {
    let mut lines: Vec<String> = Vec::new();
    for run in &report.runs {
        if let Some(error) = &run.error {
            let round = match run.round {
                0 => String::new(),
                round => format!(", round {round}"),
            };
            lines.push(format!("{}, {}{round}: {error}", run.cell, run.broker));
        }
    }
    for cell in &report.cells {
        let told = |failure: &&String| !lines.iter().any(|line| line.contains(failure.as_str()));
        let more: Vec<String> = cell
            .failures
            .iter()
            .filter(told)
            .map(|failure| format!("{}: {failure}", cell.name))
            .collect();
        lines.extend(more);
    }
    if lines.is_empty() {
        return;
    }
    let _ = write!(
        html,
        "<div class=\"alert\"><b>{} failed</b><ul>",
        lines.len()
    );
    for line in lines {
        let _ = write!(html, "<li>{}</li>", Escaped(&line));
    }
    *html += "</ul></div>\n";
}

fn comparison(html: &mut String, report: &Report) {
    let figures: usize = report.cells.iter().map(|cell| cell.figures.len()).sum();
    if figures == 0 {
        return;
    }
    let counts = counts(&report.cells);
    let told: Vec<String> = counts
        .iter()
        .map(|(standing, number)| format!("<b>{number}</b> {}", standing.name()))
        .collect();
    let _ = write!(
        html,
        "<h2>How many times better RingMQ is</h2>\n\
         <p>{figures} figures: {}. \
         A mark is the median of the rounds, the line through it goes from the worst to the best of them, \
         and the upright stroke is the bar: what RingMQ asks of itself. Below bar is ahead or even, but not as far as that; \
         even is a tie, or rounds on both sides of it. At a rate with &#8220;{HARNESS_WAS_LIMIT}&#8221; the harness, \
         not the broker, set the pace.</p>\n<ul class=\"legend\">",
        told.join(", "),
    );
    for (standing, _) in counts {
        let _ = write!(
            html,
            "<li><svg class=\"{}\" viewBox=\"0 0 30 14\">{}</svg>{}</li>",
            factors::class(standing),
            factors::mark(standing, 15.0, 7.0),
            standing.name()
        );
    }
    *html += "</ul>\n<figure>";
    *html += &factors::plot(&report.cells);
    *html += "</figure>\n<h2>Figures</h2>\n";
    *html += &tables::cells(&report.cells);
}

/// Plots of the runs of one cell, all brokers and rounds in one.
fn groups(html: &mut String, report: &Report, brokers: &[&str]) {
    let mut names: Vec<&str> = Vec::new();
    for run in &report.runs {
        if !names.contains(&run.cell.as_str()) {
            names.push(&run.cell);
        }
    }
    let mut sections = String::new();
    for name in names {
        let drawn: Vec<curves::Drawn<'_>> = report
            .runs
            .iter()
            .filter(|run| run.cell == name && run.error.is_none())
            .map(|run| (run, broker_class(run, brokers)))
            .collect();
        let plots = curves::latency(&drawn) + &curves::throughput(&drawn) + &curves::stalls(&drawn);
        if plots.is_empty() {
            continue;
        }
        let cell = report.cells.iter().find(|cell| cell.name == name);
        let _ = writeln!(
            sections,
            "<h3>{}</h3>\n<p class=\"soft\">{}</p>\n<div class=\"plots\">{plots}</div>",
            Escaped(name),
            Escaped(cell.map_or("", |cell: &Cell| &cell.title))
        );
    }
    if sections.is_empty() {
        return;
    }
    *html += "<h2>Latency and throughput</h2>\n<ul class=\"legend\">";
    for (at, broker) in brokers.iter().enumerate() {
        let _ = write!(
            html,
            "<li><svg class=\"{}\" viewBox=\"0 0 30 14\"><g class=\"{0}\">\
             <polyline points=\"0,7 30,7\"/></g></svg>{}</li>",
            class_at(at),
            Escaped(broker)
        );
    }
    *html += "</ul>\n";
    *html += &sections;
}

fn broker_class(run: &Run, brokers: &[&str]) -> String {
    class_at(
        brokers
            .iter()
            .position(|name| *name == run.broker)
            .unwrap_or(0),
    )
}

fn class_at(at: usize) -> String {
    format!("b{}", at.min(BROKER_CLASSES - 1))
}

fn machine(html: &mut String, report: &Report, brokers: &[&str]) {
    let machine = &report.machine;
    let rows = [
        ("processor", machine.processor.clone()),
        ("cores", machine.cores.to_string()),
        ("memory", units::bytes(machine.memory_bytes as f64)),
        ("kernel", machine.kernel.clone()),
        ("file system", machine.file_system.clone()),
        ("brokers", brokers.join(", ")),
        (
            "harness",
            format!("ringmq bench {}", env!("CARGO_PKG_VERSION")),
        ),
    ];
    *html += "<h2>Machine and command</h2>\n<dl>";
    for (name, value) in rows {
        if !value.is_empty() {
            let _ = write!(html, "<dt>{name}</dt><dd>{}</dd>", Escaped(&value));
        }
    }
    let _ = writeln!(html, "</dl>\n<pre>{}</pre>", Escaped(&report.command));
    for note in &report.notes {
        let _ = writeln!(html, "<p>{}</p>", Escaped(note));
    }
}

#[cfg(test)]
mod tests;
