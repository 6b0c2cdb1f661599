//! The screen: as many rows as there are, the most important first.

use super::collect::Snapshot;
use super::history::{History, Line, spark};
use crate::cli::show::{
    Cell, Colour, Failure, Style, clean, count, fit, layout, local_time, now_ms, rate, span,
};
use std::time::Duration;

/// Puts the terminal's own text aside.
pub const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Brings it back.
pub const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Bars of a line.
const BARS: usize = 20;

/// What is known besides the cluster.
pub struct About<'a> {
    /// Who is asked.
    pub nameservers: &'a str,
    /// Time between refreshes.
    pub interval: Duration,
    /// Rows and columns of the terminal.
    pub size: (usize, usize),
    /// Colour.
    pub style: Style,
}

/// A whole screen, from its upper left corner.
pub fn draw(snapshot: &Result<Snapshot, Failure>, history: &History, about: &About<'_>) -> String {
    let mut lines = vec![head(about)];
    match snapshot {
        Ok(snapshot) => body(&mut lines, snapshot, history, about),
        Err(failure) => {
            lines.push(String::new());
            for line in failure.to_string().lines() {
                lines.push(about.style.paint(line, Colour::Red));
            }
            lines.push("It is asked again.".to_owned());
        }
    }
    lines.truncate(about.size.0);
    let mut out = String::from("\x1b[H");
    for (at, line) in lines.iter().enumerate() {
        out.push_str(line);
        out.push_str("\x1b[K");
        if at + 1 < lines.len() {
            out.push_str("\r\n");
        }
    }
    out.push_str("\x1b[J");
    out
}

fn head(about: &About<'_>) -> String {
    let left = format!("ringmq status  {}", clean(about.nameservers));
    let time = local_time(now_ms());
    let right = format!(
        "{}  every {}  Ctrl-C ends",
        &time[..time.len().saturating_sub(4)],
        span(about.interval.as_millis() as i64)
    );
    let blanks = about
        .size
        .1
        .saturating_sub(left.chars().count() + right.len())
        .max(2);
    let line = format!("{left}{}{right}", " ".repeat(blanks));
    about.style.paint(&fit(&line, about.size.1), Colour::Bold)
}

fn body(lines: &mut Vec<String>, snapshot: &Snapshot, history: &History, about: &About<'_>) {
    let sum = |is_part: fn(&Line) -> bool| {
        let points = history.sum(is_part);
        let last = points.back().copied().unwrap_or(0.0);
        format!("{:>12} {}", rate(last), spark(&points, BARS))
    };
    let incoming = sum(|line| matches!(line, Line::BrokerIn(_)));
    let outgoing = sum(|line| matches!(line, Line::BrokerOut(_)));
    let total = format!(
        "in {incoming}   out {outgoing}   behind {}",
        count(snapshot.behind())
    );
    lines.push(fit(&total, about.size.1));
    for fault in snapshot.faults.iter().take(3) {
        let fault = fit(&clean(fault), about.size.1);
        lines.push(about.style.paint(&fault, Colour::Red));
    }

    let tables = [
        brokers(snapshot, history, about.style),
        shards(snapshot, history, about.style),
        topics(snapshot, history, about.style),
        groups(snapshot, history, about.style),
    ];
    let left = about.size.0.saturating_sub(lines.len());
    let wanted: Vec<usize> = tables
        .iter()
        .map(|table| match table.lines().count() {
            0 => 0,
            lines => lines + 1,
        })
        .collect();
    for (table, rows) in tables.iter().zip(share(&wanted, left)) {
        if rows < 3 {
            continue;
        }
        lines.push(String::new());
        let all: Vec<&str> = table.lines().collect();
        let shown = rows - 1;
        if all.len() <= shown {
            lines.extend(all.iter().map(|line| (*line).to_owned()));
        } else {
            let rest = all.len() - (shown - 1);
            lines.extend(all[..shown - 1].iter().map(|line| (*line).to_owned()));
            let more = format!("... and {rest} more");
            lines.push(about.style.paint(&more, Colour::Dim));
        }
    }
}

/// Gives each what it wants where there is enough, else the same to all that want more.
fn share(wanted: &[usize], total: usize) -> Vec<usize> {
    let mut given = vec![0; wanted.len()];
    let mut left = total;
    loop {
        let open: Vec<usize> = (0..wanted.len())
            .filter(|&at| given[at] < wanted[at])
            .collect();
        if open.is_empty() || left == 0 {
            return given;
        }
        for at in open {
            if left > 0 {
                given[at] += 1;
                left -= 1;
            }
        }
    }
}

fn brokers(snapshot: &Snapshot, history: &History, style: Style) -> String {
    let headings = [
        "BROKER", "ID", "ADDRESS", "VERSION", "SHARDS", "IN", "", "OUT", "", "DISK",
    ];
    let rows = snapshot.brokers.iter().map(|now| {
        let line = |line: fn(String) -> Line| line(now.broker.address.clone());
        let (incoming, outgoing) = (line(Line::BrokerIn), line(Line::BrokerOut));
        vec![
            Cell::text(&now.broker.name),
            Cell::Plain(now.broker.id),
            Cell::text(&now.broker.address),
            match &now.version {
                Some(version) => Cell::Good(version.clone()),
                None => Cell::Bad("unreachable".to_owned()),
            },
            Cell::of(now.shards, Cell::Count),
            Cell::of(history.last(&incoming), Cell::Rate),
            bars(history, &incoming),
            Cell::of(history.last(&outgoing), Cell::Rate),
            bars(history, &outgoing),
            Cell::of(now.disk, |share| match share > 0.85 {
                true => Cell::Bad(Cell::Share(share).show()),
                false => Cell::Share(share),
            }),
        ]
    });
    layout(&headings, &rows.collect::<Vec<_>>(), style)
}

/// Nothing where no broker tells of its shards.
fn shards(snapshot: &Snapshot, history: &History, style: Style) -> String {
    let mut rows = Vec::new();
    for now in &snapshot.brokers {
        for (number, shard) in &now.by_shard {
            let line = Line::ShardIn(now.broker.address.clone(), *number);
            rows.push(vec![
                Cell::text(&now.broker.name),
                Cell::Plain((*number).into()),
                Cell::of(history.last(&line), Cell::Rate),
                bars(history, &line),
                Cell::of(shard.put, Cell::Count),
                Cell::of(shard.log_bytes, Cell::Bytes),
                Cell::of(shard.connections, Cell::Count),
                Cell::of(shard.long_turns, Cell::Count),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let headings = [
        "BROKER",
        "SHARD",
        "IN",
        "",
        "STORED",
        "LOG",
        "CONNECTIONS",
        "LONG TURNS",
    ];
    layout(&headings, &rows, style)
}

fn topics(snapshot: &Snapshot, history: &History, style: Style) -> String {
    if snapshot.topics.is_empty() {
        return "no topics\n".to_owned();
    }
    let mut topics: Vec<_> = snapshot.topics.iter().collect();
    let rate_of = |name: &str| history.last(&Line::Topic(name.to_owned())).unwrap_or(0.0);
    topics.sort_by(|a, b| {
        let rates = rate_of(b.0).total_cmp(&rate_of(a.0));
        rates.then(b.1.messages.cmp(&a.1.messages))
    });
    let rows = topics.into_iter().map(|(name, now)| {
        let line = Line::Topic(name.clone());
        vec![
            Cell::text(name),
            Cell::Count(now.queues),
            Cell::Count(now.messages),
            Cell::of(history.last(&line), Cell::Rate),
            bars(history, &line),
        ]
    });
    let headings = ["TOPIC", "QUEUES", "MESSAGES", "IN", ""];
    layout(&headings, &rows.collect::<Vec<_>>(), style)
}

fn groups(snapshot: &Snapshot, history: &History, style: Style) -> String {
    if snapshot.groups.is_empty() {
        return "no groups\n".to_owned();
    }
    let mut groups: Vec<_> = snapshot.groups.iter().collect();
    groups.sort_by_key(|(_, now)| std::cmp::Reverse(now.behind));
    let rows = groups.into_iter().map(|(name, now)| {
        let (consumed, behind) = (Line::Group(name.clone()), Line::Behind(name.clone()));
        vec![
            Cell::text(name),
            match (now.members.len(), now.behind) {
                (0, 1..) => Cell::Bad("offline".to_owned()),
                (0, _) => Cell::text("offline"),
                (members, _) => Cell::text(count(members as i64)),
            },
            Cell::of(history.last(&consumed), Cell::Rate),
            bars(history, &consumed),
            Cell::Count(now.behind),
            bars(history, &behind),
        ]
    });
    let headings = ["GROUP", "MEMBERS", "CONSUMED", "", "BEHIND", ""];
    layout(&headings, &rows.collect::<Vec<_>>(), style)
}

/// Bars of a line, always as wide.
fn bars(history: &History, line: &Line) -> Cell {
    Cell::text(format!("{:<BARS$}", history.spark(line, BARS)))
}

#[cfg(test)]
mod tests {
    use super::super::collect::{GroupNow, TopicNow};
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Instant;

    fn about(rows: usize) -> About<'static> {
        About {
            nameservers: "a:1",
            interval: Duration::from_secs(2),
            size: (rows, 80),
            style: Style {
                colour: false,
                width: Some(80),
            },
        }
    }

    fn snapshot() -> Snapshot {
        let topics = (0..30).map(|n| {
            let now = TopicNow {
                messages: n,
                ..TopicNow::default()
            };
            (format!("topic-{n}\x1b[2J"), now)
        });
        let group = GroupNow {
            behind: 1234,
            ..GroupNow::default()
        };
        Snapshot {
            at: Instant::now(),
            brokers: Vec::new(),
            topics: topics.collect(),
            groups: BTreeMap::from([("g".to_owned(), group)]),
            faults: vec!["broker \"b\": silent\n".to_owned()],
        }
    }

    #[test]
    fn a_screen_has_no_more_rows_than_the_terminal() {
        let taken = snapshot();
        let mut history = History::default();
        history.add(&taken);
        for rows in [5, 12, 24, 100] {
            let screen = draw(&Ok(snapshot()), &history, &about(rows));
            let lines: Vec<&str> = screen.split("\r\n").collect();
            assert!(lines.len() <= rows, "{rows}: {}", lines.len());
            assert!(
                lines[0].starts_with("\x1b[Hringmq status  a:1"),
                "{}",
                lines[0]
            );
            let own = screen.matches("\x1b[K").count() + 2;
            assert_eq!(
                screen.matches('\x1b').count(),
                own,
                "nobody else's are in it"
            );
        }
        let screen = draw(&Ok(snapshot()), &history, &about(100));
        for text in ["behind 1,234", "offline", "topic-29\\u{1b}[2J", "silent\\n"] {
            assert!(screen.contains(text), "{text} in {screen}");
        }
        let screen = draw(&Ok(snapshot()), &history, &about(24));
        assert!(screen.contains("more"), "{screen}");
        assert!(screen.contains("1,234"), "groups are there, too: {screen}");
    }

    #[test]
    fn what_cannot_be_asked_is_said() {
        let failure = Failure::failed("no nameserver answers").hint("is it running?");
        let screen = draw(&Err(failure), &History::default(), &about(24));
        assert!(screen.contains("no nameserver answers") && screen.contains("is it running?"));
    }

    #[test]
    fn rows_are_shared() {
        assert_eq!(share(&[3, 30, 4], 20), [3, 13, 4]);
        assert_eq!(share(&[3, 30, 40], 20), [3, 9, 8]);
        assert_eq!(share(&[3, 4], 20), [3, 4]);
    }
}
