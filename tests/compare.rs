//! `ringmq bench compare` as far as it goes without Apache RocketMQ; `tests/run` has the rest.

use std::fs;
use std::process::{Command, Output};

fn compare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
    command.args(["bench", "compare"]).args(args);
    command
}

fn run(mut command: Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// A report with one cell that was won, and a run that failed for good if `failed`.
fn report(failed: bool) -> String {
    let error = if failed { "\"closed\"" } else { "null" };
    let run = format!(
        r#"{{"cell":"sync-1x1","workload":"produce","broker":"RingMQ 1","round":1,"options":{{}},
        "error":{error},"seconds":1.0,"messages":9,"body_bytes":9,"failed":0,"late":0,"latency":null,
        "timeline":[],"verified":null,"server":null,
        "client":{{"cpu_seconds":0.1,"busiest_thread":0.1,"is_the_limit":false}},"extra":{{}}}}"#
    );
    format!(
        r#"{{"command":"ringmq bench compare","began_ms":0,"machine":{{"processor":"p","cores":1,
        "memory_bytes":1,"kernel":"k","file_system":"ext4"}},"runs":[{run}],
        "cells":[{{"name":"sync-1x1","title":"t","rounds":1,"failures":[],"figures":[{{"name":"p50",
        "unit":"us","more_is_better":false,"ours":300.0,"theirs":900.0,"factor":3.0,
        "spread":[3.0,3.0],"bar":4.0}}]}}]}}"#
    )
}

#[test]
fn cells_are_listed_with_what_is_asked_for() {
    let (code, out, _) = run(compare(&["--list", "--cells", "sync-1x1"]));
    assert_eq!(code, Some(0));
    assert!(out.starts_with("sync-1x1\n"), "{out}");
    assert!(
        out.lines()
            .any(|line| line.trim().starts_with("p50") && line.ends_with("≥ 3x")),
        "{out}"
    );
    assert!(!out.contains("async"), "{out}");
}

#[test]
fn an_earlier_result_becomes_table_page_and_markdown() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (from, html, markdown) = (path("r.json"), path("r.html"), path("r.md"));
    for (failed, expected) in [(false, 0), (true, 1)] {
        fs::write(&from, report(failed)).expect("a file");
        let args = ["--from", &from, "--html", &html, "--markdown", &markdown];
        let (code, out, err) = run(compare(&args));
        assert_eq!(code, Some(expected), "{out}{err}");
        assert!(out.contains("300 µs") && out.contains("BELOW BAR"), "{out}");
        let page = fs::read_to_string(&html).expect("a page");
        assert!(page.contains("below bar: ≥ 4x"), "{page}");
        assert_eq!(page.contains("closed"), failed);
        let table = fs::read_to_string(&markdown).expect("a table");
        assert!(
            table.contains("| sync-1x1 | p50 | 300 µs | 900 µs | 3.00x |"),
            "{table}"
        );
    }
}

#[test]
fn what_is_in_the_way_is_named() {
    let (code, _, err) = run(compare(&["--cells", "sink-1x1"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("\"sink-1x1\" names no cell"), "{err}");

    let mut without_java = compare(&[]);
    without_java.env("PATH", "/nonexistent");
    let (code, _, err) = run(without_java);
    assert_eq!(code, Some(1));
    assert!(err.contains("java is missing"), "{err}");

    let (code, _, err) = run(compare(&["--from", "/nonexistent.json"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("/nonexistent.json"), "{err}");

    let (code, _, err) = run(compare(&["--html", "/nonexistent/page.html"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("/nonexistent/page.html"), "{err}");
}
