//! The page of reports, small and hostile ones.

use super::page;
use crate::bench::result::{Cell, Figure, Latency, Report, Run, Second, ServerUse, Verified};
use std::collections::BTreeMap;

/// Markup that must not survive, in every place that text can come from.
const HOSTILE: &str = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&";

fn run(cell: &str, broker: &str, round: u32) -> Run {
    let ours = broker.starts_with("RingMQ");
    let scale = if ours { 1 } else { 8 };
    Run {
        cell: cell.to_owned(),
        workload: "produce".to_owned(),
        broker: broker.to_owned(),
        round,
        options: BTreeMap::from([("in-flight".to_owned(), "16".to_owned())]),
        seconds: 3.0,
        messages: 240_000 / scale,
        latency: Some(Latency {
            count: 240_000,
            p50_us: 180 * scale,
            p99_us: 600 * scale,
            p999_us: 900 * scale,
            max_us: 4_000 * scale,
            curve: vec![
                (0.0, 90 * scale),
                (0.5, 180 * scale),
                (0.99, 600 * scale),
                (1.0, 4_000 * scale),
            ],
            ..Latency::default()
        }),
        timeline: (0..3)
            .map(|second| Second {
                messages: 80_000 / scale + second,
                p99_us: 600 * scale,
                max_us: 900 * scale,
            })
            .collect(),
        verified: Some(Verified {
            good: 240_000,
            ..Verified::default()
        }),
        server: Some(ServerUse {
            cpu_seconds: 2.0,
            ..ServerUse::default()
        }),
        ..Run::default()
    }
}

fn figure(name: &str, factor: f64, bar: Option<f64>) -> Figure {
    Figure {
        name: name.to_owned(),
        unit: "us".to_owned(),
        ours: 100.0,
        theirs: 100.0 * factor,
        factor,
        spread: (factor * 0.8, factor * 1.2),
        rounds: 3,
        bar,
        ..Figure::default()
    }
}

fn report() -> Report {
    Report {
        command: "ringmq bench compare".to_owned(),
        runs: vec![
            run("one", "Apache RocketMQ 5.5.0", 1),
            run("one", "RingMQ 0.1.0", 1),
        ],
        cells: vec![Cell {
            name: "one".to_owned(),
            title: "one cell".to_owned(),
            figures: vec![
                figure("p50", 12.0, Some(3.0)),
                figure("p99", 1.4, Some(8.0)),
                figure("max", 0.6, None),
            ],
            rounds: 1,
            failures: Vec::new(),
        }],
        ..Report::default()
    }
}

/// Tags of a page; everything between `<` and `>`.
fn tags(html: &str) -> Vec<&str> {
    let parts = html.split('<').skip(1);
    parts
        .map(|part| part.split('>').next().expect("a first part"))
        .collect()
}

#[test]
fn nothing_from_outside_becomes_markup() {
    let mut report = report();
    report.command = HOSTILE.to_owned();
    report.notes = vec![HOSTILE.to_owned()];
    report.machine.processor = HOSTILE.to_owned();
    report.machine.kernel = HOSTILE.to_owned();
    report.machine.file_system = HOSTILE.to_owned();
    let mut failed = run(HOSTILE, HOSTILE, 1);
    failed.error = Some(HOSTILE.to_owned());
    let mut good = run(HOSTILE, HOSTILE, 2);
    good.workload = HOSTILE.to_owned();
    good.options = BTreeMap::from([(HOSTILE.to_owned(), HOSTILE.to_owned())]);
    good.extra = BTreeMap::from([(HOSTILE.to_owned(), 1.0)]);
    report.runs.extend([failed, good]);
    report.cells.push(Cell {
        name: HOSTILE.to_owned(),
        title: HOSTILE.to_owned(),
        figures: vec![Figure {
            name: HOSTILE.to_owned(),
            unit: HOSTILE.to_owned(),
            ..figure("", 0.5, Some(1.0))
        }],
        rounds: 2,
        failures: vec![HOSTILE.to_owned()],
    });
    report.cells.push(Cell {
        name: HOSTILE.to_owned(),
        failures: vec![HOSTILE.to_owned()],
        ..Cell::default()
    });
    let html = page(&report);
    assert!(html.matches("&lt;script&gt;").count() > 15, "{html}");
    for tag in tags(&html) {
        // Every other part stands in quotes.
        let outside: String = tag.split('"').step_by(2).collect();
        for word in ["script", "img", "onerror"] {
            assert!(!outside.contains(word), "<{tag}>");
        }
    }
}

#[test]
fn the_page_needs_no_network() {
    let html = page(&report());
    for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn every_standing_shows_in_words_and_shape() {
    let mut report = report();
    report.cells[0].figures.extend([
        Figure {
            ours: 1.1,
            limit: Some(2.0),
            only_limit: true,
            ..figure("growth of p99", 0.6, None)
        },
        Figure {
            harness_was_limit: true,
            ..figure("messages", 1.1, None)
        },
        figure("p99.9", 0.0, Some(15.0)),
    ]);
    let html = page(&report);
    // In the table and in the plot, beside its explanation.
    assert_eq!(html.matches("even, harness at its limit").count(), 1);
    assert_eq!(html.matches("even; harness at its limit").count(), 1);
    assert!(html.contains("not measured: ≥ 15x"));
    assert!(html.contains(
        "6 figures: <b>1</b> ahead, <b>1</b> bar met, <b>1</b> even, <b>1</b> below bar, \
             <b>1</b> behind, <b>1</b> not measured"
    ));
    for (class, shape) in [
        ("ahead", "<circle class=\"mark\""),
        ("met", "<rect class=\"mark\""),
        ("even", "<circle class=\"mark hollow\""),
        ("below", "mark hollow"),
        ("behind", "mark cross"),
    ] {
        let row = html
            .split("<g class=\"")
            .find(|row| row.starts_with(&format!("{class}\"")));
        assert!(row.is_some_and(|row| row.contains(shape)), "{class}");
    }
    assert!(html.contains("behind</text>") || html.contains(">behind<"));
}

#[test]
fn failed_runs_stand_at_the_top_and_in_no_plot() {
    let mut report = report();
    let mut failed = run("one", "RingMQ 0.1.0", 2);
    failed.error = Some("connection reset by 127.0.0.1:1".to_owned());
    report.runs.push(failed);
    let html = page(&report);
    let alert = html.find("class=\"alert\"").expect("an alert");
    assert!(alert < html.find("class=\"factors\"").expect("the plot"));
    assert_eq!(html.matches("connection reset by 127.0.0.1:1").count(), 2);
    assert!(!html.contains("RingMQ 0.1.0, round 2</title>"));
    assert!(html.contains("RingMQ 0.1.0, round 1</title>"));
}

#[test]
fn reports_with_little_in_them_are_pages_too() {
    let empty = page(&Report::default());
    assert!(empty.ends_with("</html>\n"));
    let single = Report {
        runs: vec![Run {
            cell: "produce".to_owned(),
            broker: "RingMQ 0.1.0".to_owned(),
            ..Run::default()
        }],
        ..Report::default()
    };
    let html = page(&single);
    assert!(html.contains("Load of RingMQ 0.1.0"));
    for wrong in ["NaN", "inf"] {
        assert!(!html.contains(wrong), "{wrong}");
    }
}

#[test]
fn elements_are_closed_in_the_order_they_were_opened() {
    let html = page(&report());
    let body = html.split("</style>").nth(1).expect("a body");
    let mut open = vec!["html", "head"];
    for tag in tags(body) {
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().expect("a name"));
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
