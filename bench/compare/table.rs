//! The comparison as a table: for a terminal, and as Markdown.

use super::judge::{HARNESS_WAS_LIMIT, Standing, asked, counts};
use super::units;
use crate::bench::result::{Cell, Figure, Report};

const HEADS: [&str; 8] = [
    "cell",
    "figure",
    "RingMQ",
    "Apache",
    "factor",
    "rounds",
    "asked for",
    "",
];

/// Columns of numbers, which stand at the right.
const NUMBERS: [bool; 8] = [false, false, true, true, true, false, false, false];

/// For a terminal, with what failed below it and a line that counts.
pub fn text(report: &Report) -> String {
    let rows = rows(&report.cells);
    let mut widths = HEADS.map(|head| head.chars().count());
    for row in &rows {
        for (width, value) in widths.iter_mut().zip(row) {
            *width = (*width).max(value.chars().count());
        }
    }
    let line = |row: &[String; 8]| {
        let mut line = String::new();
        for ((value, width), number) in row.iter().zip(widths).zip(NUMBERS) {
            line += &if number {
                format!("{value:>width$}  ")
            } else {
                format!("{value:<width$}  ")
            };
        }
        line.trim_end().to_owned() + "\n"
    };
    let mut text = line(&HEADS.map(str::to_owned));
    for row in &rows {
        text += &line(row);
    }
    text.push('\n');
    for failure in failures(report) {
        text += &format!("failed: {failure}\n");
    }
    text + &summary(&report.cells) + "\n"
}

/// As Markdown, without what failed.
pub fn markdown(report: &Report) -> String {
    let cell = |value: &String| value.replace('|', "\\|");
    let line = |row: &[String; 8]| {
        let values: Vec<String> = row.iter().map(cell).collect();
        format!("| {} |\n", values.join(" | "))
    };
    let mut text = line(&HEADS.map(str::to_owned));
    let rules = NUMBERS.map(|number| if number { "---:" } else { "---" });
    text += &format!("| {} |\n", rules.join(" | "));
    for row in rows(&report.cells) {
        text += &line(&row);
    }
    text
}

/// Everything that failed, runs that were made again too.
pub fn failures(report: &Report) -> Vec<String> {
    let told = |cell: &Cell| {
        let all = cell.failures.iter();
        all.map(|failure| format!("{}: {failure}", cell.name))
            .collect::<Vec<_>>()
    };
    report.cells.iter().flat_map(told).collect()
}

fn rows(cells: &[Cell]) -> Vec<[String; 8]> {
    let mut rows = Vec::new();
    for cell in cells {
        if cell.figures.is_empty() {
            let mut row: [String; 8] = Default::default();
            row[0] = cell.name.clone();
            row[1] = "not measured".to_owned();
            row[7] = if cell.failures.is_empty() {
                ""
            } else {
                "FAILED"
            }
            .to_owned();
            rows.push(row);
        }
        for (at, figure) in cell.figures.iter().enumerate() {
            let name = if at == 0 {
                cell.name.clone()
            } else {
                String::new()
            };
            rows.push(row(name, figure));
        }
    }
    rows
}

fn row(name: String, figure: &Figure) -> [String; 8] {
    let standing = standing(figure);
    if !figure.is_measured() {
        let mut row: [String; 8] = Default::default();
        row[0] = name;
        row[1].clone_from(&figure.name);
        row[6] = asked(figure);
        row[7] = standing;
        return row;
    }
    [
        name,
        figure.name.clone(),
        units::value(figure.ours, &figure.unit),
        units::value(figure.theirs, &figure.unit),
        units::factor(figure.factor),
        spread(figure, "-"),
        asked(figure),
        standing,
    ]
}

/// Number of the rounds, with the worst and the best of them where there are several.
pub fn spread(figure: &Figure, to: &str) -> String {
    let (least, most) = figure.spread;
    match figure.rounds {
        0 => String::new(),
        1 => "1".to_owned(),
        rounds => format!(
            "{rounds}: {} {to} {}",
            units::factor(least),
            units::factor(most)
        ),
    }
}

fn standing(figure: &Figure) -> String {
    let standing = Standing::of(figure);
    let mut text = match standing {
        Standing::Ahead | Standing::BarMet | Standing::Even => standing.name().to_owned(),
        // Nobody shall have to look for them.
        Standing::BelowBar | Standing::Behind | Standing::NotMeasured => {
            standing.name().to_uppercase()
        }
    };
    if figure.harness_was_limit {
        text += &format!(", {HARNESS_WAS_LIMIT}");
    }
    text
}

/// How many figures stand how.
fn summary(cells: &[Cell]) -> String {
    let figures: usize = cells.iter().map(|cell| cell.figures.len()).sum();
    let mut text = format!("{figures} figures");
    for (at, (standing, number)) in counts(cells).into_iter().enumerate() {
        let before = if at == 0 { ": " } else { ", " };
        text += &format!("{before}{number} {}", standing.name());
    }
    let without = cells.iter().filter(|cell| cell.figures.is_empty()).count();
    if without > 0 {
        text += &format!("; {without} cells without a figure");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let figure = |name: &str, factor: f64, bar| Figure {
            name: name.to_owned(),
            unit: "us".to_owned(),
            ours: 1_000.0,
            theirs: 1_000.0 * factor,
            factor,
            spread: (factor / 1.5, factor * 1.5),
            rounds: 3,
            bar,
            ..Figure::default()
        };
        Report {
            cells: vec![
                Cell {
                    name: "one".to_owned(),
                    figures: vec![
                        figure("p50", 10.0, Some(3.0)),
                        figure("p99", 5.0, Some(8.0)),
                        figure("max", 0.5, None),
                    ],
                    rounds: 3,
                    ..Cell::default()
                },
                Cell {
                    name: "two".to_owned(),
                    failures: vec!["RingMQ 1, round 1: closed".to_owned()],
                    ..Cell::default()
                },
            ],
            ..Report::default()
        }
    }

    #[test]
    fn losses_stand_out_and_nothing_is_left_out() {
        let text = text(&report());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>().join(" "),
            "one p50 1.00 ms 10.0 ms 10.0x 3: 6.67x - 15.0x ≥ 3x ahead"
        );
        assert!(lines[2].contains("≥ 8x") && lines[2].ends_with("BELOW BAR"));
        assert!(lines[3].contains("0.50x") && lines[3].ends_with("BEHIND"));
        assert!(lines[4].contains("not measured") && lines[4].ends_with("FAILED"));
        assert!(text.contains("failed: two: RingMQ 1, round 1: closed"));
        assert!(
            text.ends_with("3 figures: 1 ahead, 1 below bar, 1 behind; 1 cells without a figure\n")
        );
    }

    #[test]
    fn what_was_not_measured_and_what_the_harness_limited_are_said() {
        let mut report = report();
        let figures = &mut report.cells[0].figures;
        figures[1].harness_was_limit = true;
        figures[2] = Figure {
            name: "messages per CPU-second".to_owned(),
            bar: Some(12.0),
            ..Figure::default()
        };
        let text = text(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("BELOW BAR, harness at its limit"));
        assert_eq!(
            lines[3].split_whitespace().collect::<Vec<_>>().join(" "),
            "messages per CPU-second ≥ 12x NOT MEASURED"
        );
        assert!(text.contains("1 ahead, 1 below bar, 1 not measured"));
        let markdown = markdown(&report);
        assert!(markdown.contains("| BELOW BAR, harness at its limit |"));
        assert!(markdown.contains("| NOT MEASURED |"));
    }

    #[test]
    fn columns_stand_below_each_other() {
        let text = text(&report());
        let lines: Vec<Vec<char>> = text.lines().take(4).map(|l| l.chars().collect()).collect();
        let place = |line: usize, word: &str| {
            let line: String = lines[line].iter().collect();
            line[..line.find(word).expect("the word")].chars().count()
        };
        assert_eq!(place(0, "figure"), place(1, "p50"));
        assert_eq!(place(1, "≥ 3x"), place(2, "≥ 8x"));
        assert_eq!(place(0, "asked"), place(2, "≥ 8x"));
    }

    #[test]
    fn markdown_has_as_many_columns_in_every_row() {
        let mut report = report();
        report.cells[0].figures[0].name = "a|b".to_owned();
        let text = markdown(&report);
        assert_eq!(text.lines().count(), 6);
        for line in text.lines() {
            assert_eq!(line.replace("\\|", "").matches('|').count(), 9, "{line}");
        }
    }
}
