use crate::command::{admin, end, fed, run, start};
use crate::common::{Server, eventually, shared, unique};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn made(server: &Server, queues: i32) -> String {
    let topic = unique("stream");
    admin(
        server,
        &format!("updateTopic -t {topic} -r {queues} -w {queues}"),
    )
    .good();
    topic
}

fn stored(server: &Server, topic: &str) -> i64 {
    let status = admin(server, &format!("topicStatus -t {topic} --output json")).good();
    status.json()["messages"].as_i64().unwrap()
}

#[test]
fn lines_go_in_and_come_out() {
    let server = shared();
    let topic = made(&server, 4);
    let lines: Vec<String> = (0..2000).map(|number| format!("line {number}")).collect();
    let found = fed(
        &server,
        &format!("produce {topic}"),
        lines.join("\n").as_bytes(),
    )
    .good();
    assert!(found.stderr.contains("2,000 stored"), "{}", found.stderr);
    assert_eq!(found.stdout, "");
    let found = run(&server, &format!("consume {topic}")).good();
    let read: BTreeSet<&str> = found.stdout.lines().collect();
    assert_eq!(read, lines.iter().map(String::as_str).collect());
    assert_eq!(found.stdout.lines().count(), 2000);
    let few = run(&server, &format!("consume {topic} --max 7")).good();
    assert_eq!(few.stdout.lines().count(), 7);
    let none = run(&server, &format!("consume {topic} --from last")).good();
    assert_eq!(none.stdout, "");
    let hour = run(&server, &format!("consume {topic} --from -1h")).good();
    assert_eq!(hour.stdout.lines().count(), 2000);
}

#[test]
fn messages_carry_what_they_are_given() {
    let server = shared();
    let topic = made(&server, 1);
    let line = format!("produce {topic} --tag t --key k1 --property shop=x --quiet");
    let found = fed(&server, &line, b"one\n").good();
    assert_eq!(found.stderr, "");
    fed(
        &server,
        &format!("produce {topic} --key-separator : --quiet"),
        b"k2:two\n",
    )
    .good();
    let json = br#"{"bodyBase64":"/wA=","tags":"j","keys":"k3 k4","properties":{"p":"q"}}"#;
    fed(
        &server,
        &format!("produce {topic} --input json --quiet"),
        json,
    )
    .good();
    fed(
        &server,
        &format!("produce {topic} --input raw --quiet"),
        b"a\nb",
    )
    .good();

    let found = run(&server, &format!("consume {topic} --format json")).good();
    let read: Vec<Value> = found
        .stdout
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(read.len(), 4);
    assert_eq!(
        (&read[0]["tags"], &read[0]["keys"]),
        (&json!("t"), &json!("k1"))
    );
    assert_eq!(read[0]["properties"]["shop"], "x");
    assert_eq!(
        (&read[1]["keys"], &read[1]["body"]),
        (&json!("k2"), &json!("two"))
    );
    assert_eq!(
        (&read[2]["bodyBase64"], &read[2]["properties"]["p"]),
        (&json!("/wA="), &json!("q"))
    );
    assert_eq!(read[3]["body"], "a\nb");

    let copy = made(&server, 1);
    fed(
        &server,
        &format!("produce {copy} --input json --quiet"),
        found.stdout.as_bytes(),
    )
    .good();
    let copied = run(&server, &format!("consume {copy} --format json")).good();
    let last: Value = serde_json::from_str(copied.stdout.lines().nth(2).unwrap()).unwrap();
    assert_eq!(
        (&last["bodyBase64"], &last["keys"]),
        (&json!("/wA="), &json!("k3 k4"))
    );

    let tagged = run(
        &server,
        &format!("consume {topic} --tag t --template {{offset}}:{{body}};"),
    );
    assert_eq!(tagged.good().stdout, "0:one;");
}

#[test]
fn a_rate_is_kept() {
    let server = shared();
    let topic = made(&server, 1);
    let began = Instant::now();
    let input = "x\n".repeat(20);
    fed(
        &server,
        &format!("produce {topic} --rate 20"),
        input.as_bytes(),
    )
    .good();
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(stored(&server, &topic), 20);
}

#[test]
fn keyed_lines_stay_in_order() {
    let server = shared();
    let topic = made(&server, 4);
    let input: String = (0..200).map(|n| format!("k{}={n}\n", n % 5)).collect();
    fed(
        &server,
        &format!("produce {topic} --key-separator = --quiet"),
        input.as_bytes(),
    )
    .good();
    let found = run(
        &server,
        &format!("consume {topic} --template {{queue}}|{{keys}}|{{body}}\\n"),
    );
    let mut last = std::collections::HashMap::new();
    let mut queues: std::collections::HashMap<String, BTreeSet<String>> = Default::default();
    for line in found.good().stdout.lines() {
        let parts: Vec<&str> = line.split('|').collect();
        let number: i32 = parts[2].parse().unwrap();
        if let Some(before) = last.insert(parts[1].to_owned(), number) {
            assert!(before < number, "{line}");
        }
        queues
            .entry(parts[1].to_owned())
            .or_default()
            .insert(parts[0].to_owned());
    }
    assert!(
        queues.len() == 5 && queues.values().all(|of_key| of_key.len() == 1),
        "{queues:?}"
    );
}

#[test]
fn what_cannot_be_sent_is_named() {
    let server = shared();
    let topic = made(&server, 1);
    for (line, input, code, text) in [
        (
            format!("produce {topic} --input json"),
            "{\"body\":\"a\"}\nx\n",
            2,
            "line 2",
        ),
        (
            format!("produce {topic} --max-message-size 3"),
            "abcd\n",
            2,
            "longer than 3 bytes",
        ),
        ("produce bad/topic".to_owned(), "x\n", 2, "line 1"),
        (
            format!("produce {topic} -q nobody:0 --timeout 1s"),
            "x\n",
            1,
            "nobody",
        ),
        (
            format!("produce {topic} -f /no/such/file"),
            "",
            2,
            "/no/such/file",
        ),
        (format!("produce {topic} --rate 0"), "", 2, "--rate"),
        (format!("produce {topic} -p a"), "", 2, "NAME=VALUE"),
    ] {
        fed(&server, &line, input.as_bytes()).refused(code, text);
    }
    assert_eq!(
        stored(&server, &topic),
        1,
        "what came before the bad line is stored"
    );
    for (line, code, text) in [
        ("consume none-such".to_owned(), 3, "none-such"),
        (format!("consume {topic} --from soon"), 2, "not a time"),
        (
            format!("consume {topic} --format template"),
            2,
            "--template",
        ),
        (format!("consume {topic} --template {{x}}"), 2, "{x}"),
        (format!("consume {topic} -q nobody:0"), 3, "nobody"),
    ] {
        run(&server, &line).refused(code, text);
    }
}

#[test]
fn who_follows_sees_what_comes() {
    let server = shared();
    let topic = made(&server, 2);
    fed(&server, &format!("produce {topic} --quiet"), b"before\n").good();
    let mut child = start(
        &server,
        &format!("consume {topic} --from last --follow --max 3"),
    );
    // What is sent before it has found the end of the queues is not for it.
    eventually("it has seen three", Duration::from_secs(60), || {
        fed(&server, &format!("produce {topic} --quiet"), b"after").good();
        child.try_wait().expect("a child").is_some()
    });
    let found = end(child).good();
    let read: Vec<&str> = found.stdout.lines().collect();
    assert_eq!(read, ["after"; 3]);
}

#[test]
fn a_group_goes_on_where_it_was() {
    let server = shared();
    let topic = made(&server, 2);
    let group = unique("stream");
    let lines: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    fed(
        &server,
        &format!("produce {topic} --quiet"),
        lines.join("\n").as_bytes(),
    )
    .good();
    let few = run(&server, &format!("consume {topic} --group {group} --max 7")).good();
    assert_eq!(few.stdout.lines().count(), 7);
    let rest = run(&server, &format!("consume {topic} --group {group}")).good();
    let both = few.stdout + &rest.stdout;
    let read: BTreeSet<&str> = both.lines().collect();
    assert_eq!(
        (read.len(), both.lines().count()),
        (100, 100),
        "each once: {}",
        rest.stderr
    );
    let progress = || {
        let line = format!("consumerProgress -g {group} --output json");
        admin(&server, &line).good().json()["totalDiff"].as_i64()
    };
    eventually("all is committed", Duration::from_secs(10), || {
        progress() == Some(0)
    });
    fed(&server, &format!("produce {topic} --quiet"), b"later").good();
    let second = run(&server, &format!("consume {topic} --group {group}")).good();
    assert_eq!(second.stdout, "later\n");
}
