//! A run as text.

use crate::bench::result::extra::{LOST_IN_FLIGHT, LOST_LONGEST_MS};
use crate::bench::result::{Latency, Run, ServerUse, Stalls, Verified};
use std::fmt::Write;

/// A number with its thousands apart.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rounded(number: f64) -> String {
    count(number.max(0.0).round() as u64)
}

/// A figure of single workloads, which may be any.
fn figure(number: f64) -> String {
    if number.abs() >= 1000.0 || number.fract() == 0.0 {
        rounded(number)
    } else {
        format!("{number:.3}")
    }
}

const MIB: f64 = 1024.0 * 1024.0;

/// What a run found, as lines for people. Why it failed is left to the caller.
pub fn text(run: &Run) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name:<10}{text}");
    };
    let broker = match run.broker.as_str() {
        "" => "a broker",
        broker => broker,
    };
    line(&run.workload, format!("{broker}: {}", options(run)));
    if run.seconds > 0.0 {
        let rate = run.messages as f64 / run.seconds;
        let bytes = run.body_bytes as f64 / run.seconds / 1e6;
        line(
            "messages",
            format!(
                "{} in {:.2} s: {}/s, {bytes:.1} MB/s",
                count(run.messages),
                run.seconds,
                rounded(rate)
            ),
        );
    }
    if run.counts_what_was_written() {
        let text = "messages are those written to the sockets: --no-verify, so whether they \
                    arrived is not known";
        line("note", text.to_owned());
    }
    if let Some(latency) = &run.latency {
        line("latency", latency_text(latency));
    }
    if let Some(text) = lost_text(run) {
        line("lost", text);
    }
    if run.late > 0 {
        line(
            "late",
            format!("{} sends more than 1 ms after their time", count(run.late)),
        );
    }
    if let Some(server) = &run.server {
        line("server", server_text(run, server));
    }
    if run.seconds > 0.0 {
        line("harness", harness_text(run));
    }
    if let Some(text) = stalls_text(&run.client.stalls) {
        line("machine", text);
    }
    for (name, value) in &run.extra {
        if ![LOST_IN_FLIGHT, LOST_LONGEST_MS].contains(&name.as_str()) {
            line("", format!("{name} {}", figure(*value)));
        }
    }
    if let Some(verified) = &run.verified {
        line("verified", verified_text(verified));
    } else if run.is_unverified() {
        line("verified", "no: --no-verify".to_owned());
    }
    if run.client.is_the_limit {
        line(
            "note",
            if run.client.run_delay > run.client.busiest_thread {
                "the harness was the limit: others were on the processors when it had work (try \
                 another machine)"
            } else {
                "the harness was the limit, not the broker: its busiest thread had no time left \
                 (try --threads)"
            }
            .to_owned(),
        );
    }
    out
}

fn options(run: &Run) -> String {
    let wanted = [
        "topic",
        "topics",
        "queues",
        "connections",
        "in-flight",
        "mode",
        "size",
        "batch",
        "rate",
        "consumers",
        "max",
        "groups",
    ];
    let known = wanted.iter().filter_map(|name| {
        let value = run.options.get(*name)?;
        let is_plain = matches!((*name, value.as_str()), ("topics" | "batch", "1"));
        (!is_plain).then(|| format!("{name} {value}"))
    });
    known.collect::<Vec<_>>().join(", ")
}

fn latency_text(latency: &Latency) -> String {
    format!(
        "p50 {}  p90 {}  p99 {}  p99.9 {}  p99.99 {}  max {} us",
        count(latency.p50_us),
        count(latency.p90_us),
        count(latency.p99_us),
        count(latency.p999_us),
        count(latency.p9999_us),
        count(latency.max_us)
    )
}

/// Which requests the percentiles know nothing of.
fn lost_text(run: &Run) -> Option<String> {
    let (lost, longest_ms) = run.lost_in_flight()?;
    Some(format!(
        "{} requests in flight, not among these latencies; the longest waited {} ms until its \
         sender had a connection again",
        count(lost),
        rounded(longest_ms)
    ))
}

fn server_text(run: &Run, server: &ServerUse) -> String {
    let share = server.cpu_seconds / run.seconds.max(f64::MIN_POSITIVE) * 100.0;
    let per_second = run.messages as f64 / server.cpu_seconds.max(1e-9);
    let mut text = format!(
        "{share:.0} % CPU, {} messages per CPU-second, {:.0} MiB resident at most, {} context switches",
        rounded(per_second),
        server.resident_bytes as f64 / MIB,
        count(server.context_switches)
    );
    if let Some(written) = server.written_bytes {
        let _ = write!(text, ", {:.1} MiB written", written as f64 / MIB);
    }
    let counters = [
        (server.long_turns, "turns above 10 ms"),
        (server.large_allocations, "large allocations"),
    ];
    for (counter, name) in counters {
        if let Some(counter) = counter {
            let _ = write!(text, ", {} {name}", count(counter));
        }
    }
    text
}

fn harness_text(run: &Run) -> String {
    let share = run.client.cpu_seconds / run.seconds * 100.0;
    let each = run.client.cpu_seconds * 1e9 / run.messages.max(1) as f64;
    format!(
        "{share:.0} % CPU, {} ns per message, busiest thread {:.0} %, {:.0} % waiting for a \
         processor",
        rounded(each),
        run.client.busiest_thread * 100.0,
        run.client.run_delay * 100.0
    )
}

/// When the machine stood still, if it did.
pub fn stalls_text(stalls: &Stalls) -> Option<String> {
    (stalls.count > 0).then(|| {
        format!(
            "stood still {} times, for {} ms in all, {} ms at most",
            count(stalls.count),
            count(stalls.total_us / 1000),
            count(stalls.longest_us / 1000)
        )
    })
}

fn verified_text(verified: &Verified) -> String {
    let good = count(verified.good);
    let mut text = if verified.is_good() {
        format!("{good} messages: once each, in order, with their content")
    } else {
        format!(
            "{good} good, {} missing, {} doubled, {} out of order, {} with another content, \
             {} queues misnumbered",
            count(verified.missing),
            count(verified.doubled),
            count(verified.misplaced),
            count(verified.wrong),
            count(verified.misnumbered)
        )
    };
    if verified.overtaken > 0 {
        let overtaken = count(verified.overtaken);
        let _ = write!(text, "; {overtaken} overtaken while in flight");
    }
    if verified.unacknowledged > 0 {
        let there = count(verified.unacknowledged);
        let _ = write!(text, "; {there} there without an acknowledgement");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(figure(0.25), "0.250");
        assert_eq!(figure(12345.6), "12,346");
    }

    #[test]
    fn what_went_wrong_is_in_the_text() {
        let mut run = Run {
            workload: "produce".to_owned(),
            seconds: 2.0,
            messages: 3000,
            verified: Some(Verified {
                good: 2999,
                missing: 1,
                ..Verified::default()
            }),
            ..Run::default()
        };
        run.client.is_the_limit = true;
        run.client.stalls.late(20_500, 0);
        let text = text(&run);
        assert!(text.contains("3,000 in 2.00 s: 1,500/s"), "{text}");
        assert!(text.contains("2,999 good, 1 missing"), "{text}");
        assert!(text.contains("the harness was the limit"), "{text}");
        let stood = "stood still 1 times, for 20 ms in all, 20 ms at most";
        assert!(text.contains(stood), "{text}");
    }

    #[test]
    fn what_was_not_looked_for_is_in_the_text() {
        let with = |options: &[(&str, &str)]| {
            let options = options.iter();
            let options = options.map(|&(name, value)| (name.to_owned(), value.to_owned()));
            text(&Run {
                options: options.collect(),
                ..Run::default()
            })
        };
        let not_looked_for = "verified  no: --no-verify";
        let written = "messages are those written to the sockets";
        let no_verify = ("no-verify", "true");
        let plain = with(&[]);
        assert!(!plain.contains("verified"), "{plain}");
        let unverified = with(&[no_verify]);
        assert!(unverified.contains(not_looked_for), "{unverified}");
        assert!(!unverified.contains(written), "{unverified}");
        let one_way = with(&[no_verify, ("mode", "oneway")]);
        assert!(one_way.contains(not_looked_for), "{one_way}");
        assert!(one_way.contains(written), "{one_way}");
    }

    #[test]
    fn what_the_percentiles_leave_out_stands_below_them() {
        let mut run = Run {
            latency: Some(Latency::default()),
            ..Run::default()
        };
        run.extra.insert(LOST_IN_FLIGHT.to_owned(), 0.0);
        assert!(!text(&run).contains("in flight"));
        run.extra.insert(LOST_IN_FLIGHT.to_owned(), 1_064.0);
        run.extra.insert(LOST_LONGEST_MS.to_owned(), 2_345.6);
        let text = text(&run);
        let mut lines = text.lines().skip_while(|line| !line.starts_with("latency"));
        let below = lines.nth(1).expect("a line below");
        let told =
            "1,064 requests in flight, not among these latencies; the longest waited 2,346 ms";
        assert!(below.contains(told), "{text}");
    }
}
