//! Tables: the figures of a comparison, and every run.

use super::escape::Escaped;
use super::factors::class;
use crate::bench::compare::judge::{HARNESS_WAS_LIMIT, Standing, asked};
use crate::bench::compare::table::spread;
use crate::bench::compare::units;
use crate::bench::report::table::stalls_text;
use crate::bench::result::{Cell, Run};
use std::fmt::Write;

/// All figures of all cells.
pub fn cells(cells: &[Cell]) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th class=\"text\">cell</th><th class=\"text\">figure</th>\
         <th>RingMQ</th><th>Apache</th><th>factor</th><th>rounds</th><th class=\"text\">asked for</th>\
         <th class=\"text\">standing</th></tr></thead><tbody>\n",
    );
    for cell in cells {
        if cell.figures.is_empty() {
            let why = match &cell.failures[..] {
                [] => "nothing was measured".to_owned(),
                failures => failures.join("; "),
            };
            let _ = writeln!(
                html,
                "<tr class=\"first failed\"><td class=\"text\">{}</td><td class=\"text wrap\" colspan=\"7\">{}</td></tr>",
                Escaped(&cell.name),
                Escaped(&why)
            );
        }
        for (at, figure) in cell.figures.iter().enumerate() {
            let standing = Standing::of(figure);
            let (first, name) = if at == 0 {
                ("first", cell.name.as_str())
            } else {
                ("more", "")
            };
            let value = |value, unit: &str| match standing {
                Standing::NotMeasured => String::new(),
                _ => units::value(value, unit),
            };
            let _ = writeln!(
                html,
                "<tr class=\"{first} {class}\"><td class=\"text\" title=\"{}\">{}</td><td class=\"text\">{}</td>\
                 <td>{}</td><td>{}</td><td class=\"{class}\">{}</td><td>{}</td><td class=\"text\">{}</td>\
                 <td class=\"text {class}\">{}{}</td></tr>",
                Escaped(&cell.title),
                Escaped(name),
                Escaped(&figure.name),
                Escaped(&value(figure.ours, &figure.unit)),
                Escaped(&value(figure.theirs, &figure.unit)),
                match standing {
                    Standing::NotMeasured => String::new(),
                    _ => units::factor(figure.factor),
                },
                Escaped(&spread(figure, "–")),
                Escaped(&asked(figure)),
                standing.name(),
                match figure.harness_was_limit {
                    true => format!(", {HARNESS_WAS_LIMIT}"),
                    false => String::new(),
                },
                class = class(standing),
            );
        }
    }
    html += "</tbody></table></div>\n";
    html
}

/// Heads of the table of runs, in the order of `row`.
const HEADS: &[&str] = &[
    "cell",
    "broker",
    "round",
    "s",
    "messages/s",
    "per server CPU-s",
    "p50",
    "p99",
    "p99.9",
    "p99.99",
    "max",
    "lost in flight",
    "refused",
    "late",
    "read back",
    "server CPU",
    "most resident",
    "written",
    "switches",
    "harness CPU",
    "busiest thread",
    "more",
];

/// Columns of text, which stand at the left.
const TEXT: &[&str] = &["cell", "broker", "read back", "more"];

/// Every run, failed ones too.
pub fn runs(runs: &[Run]) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><thead><tr>");
    for head in HEADS {
        let _ = write!(html, "<th{}>{head}</th>", text_class(head));
    }
    html += "</tr></thead><tbody>\n";
    for run in runs {
        match &run.error {
            None => {
                html += "<tr>";
                for (head, text) in HEADS.iter().zip(row(run)) {
                    let _ = write!(html, "<td{}>{}</td>", text_class(head), Escaped(&text));
                }
            }
            Some(error) => {
                let _ = write!(
                    html,
                    "<tr class=\"failed\"><td class=\"text\">{}</td><td class=\"text\">{}</td><td>{}</td>\
                     <td class=\"text wrap\" colspan=\"{}\"><div class=\"error\">failed: {}</div></td>",
                    Escaped(&run.cell),
                    Escaped(&run.broker),
                    round(run),
                    HEADS.len() - 3,
                    Escaped(error)
                );
            }
        }
        html += "</tr>\n";
    }
    html += "</tbody></table></div>\n";
    html += &options(runs);
    html
}

fn text_class(head: &str) -> &'static str {
    if TEXT.contains(&head) {
        " class=\"text\""
    } else {
        ""
    }
}

fn round(run: &Run) -> String {
    match run.round {
        0 => String::new(),
        round => round.to_string(),
    }
}

fn row(run: &Run) -> Vec<String> {
    let per = |divisor: f64| match run.messages as f64 / divisor {
        rate if rate.is_finite() => units::count(rate),
        _ => String::new(),
    };
    let latency = |value: fn(&crate::bench::result::Latency) -> u64| {
        let latency = run.latency.as_ref();
        latency.map_or(String::new(), |l| units::duration_us(value(l) as f64))
    };
    let server = run.server.as_ref();
    let of_server = |text: &dyn Fn(&crate::bench::result::ServerUse) -> String| {
        server.map_or(String::new(), text)
    };
    let client = &run.client;
    vec![
        run.cell.clone(),
        run.broker.clone(),
        round(run),
        format!("{:.1}", run.seconds),
        per(run.seconds),
        server.map_or(String::new(), |server| per(server.cpu_seconds)),
        latency(|l| l.p50_us),
        latency(|l| l.p99_us),
        latency(|l| l.p999_us),
        latency(|l| l.p9999_us),
        latency(|l| l.max_us),
        lost_in_flight(run),
        units::count(run.failed as f64),
        units::count(run.late as f64),
        verified(run),
        of_server(&|server| format!("{:.1} s", server.cpu_seconds)),
        of_server(&|server| units::bytes(server.resident_bytes as f64)),
        of_server(&|server| {
            server
                .written_bytes
                .map_or(String::new(), |written| units::bytes(written as f64))
        }),
        of_server(&|server| units::count(server.context_switches as f64)),
        format!("{:.1} s", client.cpu_seconds),
        format!(
            "{:.0} %{}",
            client.busiest_thread * 100.0,
            if client.is_the_limit {
                ", the limit"
            } else {
                ""
            }
        ),
        more(run),
    ]
}

/// Requests that the percentiles beside them know nothing of.
fn lost_in_flight(run: &Run) -> String {
    let lost = run.lost_in_flight();
    lost.map_or(String::new(), |(count, longest_ms)| {
        let longest = units::duration_us(longest_ms * 1e3);
        format!("{}, up to {longest}", units::count(count as f64))
    })
}

fn verified(run: &Run) -> String {
    let Some(found) = &run.verified else {
        return match run.counts_what_was_written() {
            true => "no: messages are those written".to_owned(),
            false => "no".to_owned(),
        };
    };
    let faults = [
        ("missing", found.missing),
        ("doubled", found.doubled),
        ("misplaced", found.misplaced),
        ("wrong", found.wrong),
    ];
    let mut text = format!("{} good", units::count(found.good as f64));
    for (name, number) in faults.into_iter().filter(|(_, number)| *number > 0) {
        text += &format!(", {} {name}", units::count(number as f64));
    }
    text
}

fn more(run: &Run) -> String {
    let mut parts: Vec<String> = run
        .extra
        .iter()
        .map(|(name, value)| format!("{name} {}", units::value(*value, "")))
        .collect();
    if let Some(server) = &run.server {
        let counters = [
            ("long turns", server.long_turns),
            ("large allocations", server.large_allocations),
        ];
        for (name, counter) in counters {
            if let Some(counter) = counter {
                parts.push(format!("{name} {counter}"));
            }
        }
    }
    if let Some(text) = stalls_text(&run.client.stalls) {
        parts.push(format!("machine {text}"));
    }
    parts.join(", ")
}

/// What each cell was asked for; rounds share it.
fn options(runs: &[Run]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for run in runs.iter().filter(|run| !run.options.is_empty()) {
        let options: Vec<String> = run
            .options
            .iter()
            .map(|(name, value)| format!("--{} {value}", name.trim_start_matches('-')))
            .collect();
        let line = format!("{}: {} {}", run.cell, run.workload, options.join(" "));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "<details><summary>options of the runs</summary><pre>{}</pre></details>\n",
        Escaped(&lines.join("\n"))
    )
}
