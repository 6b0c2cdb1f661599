//! One value and its unit.

use super::{clean, local_time};
use serde_json::Value;

/// A value in a table or beside a label.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Not known, or nothing.
    None,
    /// Text, also from the network.
    Text(String),
    /// A number of things: `1,234`.
    Count(i64),
    /// A number that names a place, to be copied: `1234`.
    Plain(i64),
    /// So many a second.
    Rate(f64),
    /// Bytes.
    Bytes(i64),
    /// Milliseconds since 1970; below 1 is not known.
    Time(i64),
    /// Milliseconds.
    Span(i64),
    /// A share of 1.
    Share(f64),
    /// Yes or no.
    Flag(bool),
    /// Text that says that all is well.
    Good(String),
    /// Text that says that something is not.
    Bad(String),
    /// Several texts.
    List(Vec<String>),
    /// What has no form of its own.
    Json(Value),
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// A cell for a value that may be missing.
    pub fn of<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell) -> Cell {
        value.map_or(Cell::None, cell)
    }

    /// For programs.
    pub fn json(&self) -> Value {
        match self {
            Cell::None => Value::Null,
            Cell::Text(text) | Cell::Good(text) | Cell::Bad(text) => text.as_str().into(),
            Cell::Time(time) if *time <= 0 => Value::Null,
            Cell::Count(number)
            | Cell::Plain(number)
            | Cell::Bytes(number)
            | Cell::Time(number)
            | Cell::Span(number) => (*number).into(),
            Cell::Rate(number) | Cell::Share(number) => (*number).into(),
            Cell::Flag(flag) => (*flag).into(),
            Cell::List(texts) => texts.clone().into(),
            Cell::Json(value) => value.clone(),
        }
    }

    /// For people, on one line.
    pub fn show(&self) -> String {
        match self {
            Cell::None => "-".to_owned(),
            Cell::Text(text) | Cell::Good(text) | Cell::Bad(text) => match text.is_empty() {
                true => "-".to_owned(),
                false => clean(text).into_owned(),
            },
            Cell::Count(number) => count(*number),
            Cell::Plain(number) => number.to_string(),
            Cell::Rate(number) => rate(*number),
            Cell::Bytes(number) => bytes(*number),
            Cell::Time(time) if *time <= 0 => "-".to_owned(),
            Cell::Time(time) => local_time(*time),
            Cell::Span(ms) => span(*ms),
            Cell::Share(share) => format!("{:.1} %", share * 100.0),
            Cell::Flag(true) => "yes".to_owned(),
            Cell::Flag(false) => "no".to_owned(),
            Cell::List(texts) if texts.is_empty() => "-".to_owned(),
            Cell::List(texts) => clean(&texts.join(", ")).into_owned(),
            Cell::Json(value) => clean(&value.to_string()).into_owned(),
        }
    }

    /// Whether it stands at the right of its column.
    pub fn is_number(&self) -> bool {
        matches!(
            self,
            Cell::Count(_)
                | Cell::Plain(_)
                | Cell::Rate(_)
                | Cell::Bytes(_)
                | Cell::Span(_)
                | Cell::Share(_)
        )
    }
}

/// `1,234,567`.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1,234/s`, below ten `1.2/s`.
pub fn rate(number: f64) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    if number != 0.0 && number.abs() < 9.95 {
        return format!("{number:.1}/s");
    }
    format!("{}/s", count(number.round() as i64))
}

/// `1.5 MiB`.
pub fn bytes(number: i64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = number as f64;
    if value.abs() < 1024.0 {
        return format!("{number} B");
    }
    let mut unit = "B";
    for next in UNITS {
        if value.abs() < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let digits = if value.abs() < 10.0 { 1 } else { 0 };
    format!("{value:.digits$} {unit}")
}

/// `1.5 s`, `3 min 20 s`, `2 d 3 h`.
pub fn span(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let ms = ms.unsigned_abs();
    let (s, min, h) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    let text = match ms {
        0..1000 => format!("{ms} ms"),
        1000..10_000 => format!("{}.{} s", s, ms % 1000 / 100),
        10_000..60_000 => format!("{s} s"),
        60_000..3_600_000 => format!("{min} min {} s", s % 60),
        3_600_000..86_400_000 => format!("{h} h {} min", min % 60),
        _ => format!("{} d {} h", h / 24, h % 24),
    };
    format!("{sign}{text}")
}

/// `rw` for the bits of a topic's permission; `-` is none.
pub fn permissions(bits: i32) -> Cell {
    let mut text = String::new();
    for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'i')] {
        if bits & bit != 0 {
            text.push(letter);
        }
    }
    match bits & 6 {
        6 => Cell::Text(text),
        _ if text.is_empty() => Cell::Bad("none".to_owned()),
        _ => Cell::Bad(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_have_their_units() {
        for (cell, text, value) in [
            (Cell::None, "-", json!(null)),
            (Cell::text(""), "-", json!("")),
            (Cell::text("a\n"), "a\\n", json!("a\n")),
            (Cell::Count(-1234567), "-1,234,567", json!(-1234567)),
            (Cell::Plain(1234567), "1234567", json!(1234567)),
            (Cell::Rate(0.0), "0/s", json!(0.0)),
            (Cell::Rate(9.87), "9.9/s", json!(9.87)),
            (Cell::Rate(12345.6), "12,346/s", json!(12345.6)),
            (Cell::Bytes(1023), "1023 B", json!(1023)),
            (Cell::Bytes(1536), "1.5 KiB", json!(1536)),
            (Cell::Bytes(i64::MAX), "8.0 EiB", json!(i64::MAX)),
            (Cell::Time(0), "-", json!(null)),
            (Cell::Span(999), "999 ms", json!(999)),
            (Cell::Span(1234), "1.2 s", json!(1234)),
            (Cell::Span(200_000), "3 min 20 s", json!(200_000)),
            (Cell::Span(184_000_000), "2 d 3 h", json!(184_000_000)),
            (Cell::Span(i64::MIN), "-106751991167 d 7 h", json!(i64::MIN)),
            (Cell::Share(0.1234), "12.3 %", json!(0.1234)),
            (Cell::Flag(true), "yes", json!(true)),
            (Cell::List(vec![]), "-", json!([])),
            (
                Cell::List(vec!["a".into(), "b\n".into()]),
                "a, b\\n",
                json!(["a", "b\n"]),
            ),
        ] {
            assert_eq!((cell.show(), cell.json()), (text.to_owned(), value));
        }
        assert_eq!(permissions(7), Cell::text("rwi"));
        assert_eq!(permissions(4), Cell::Bad("r".into()));
        assert_eq!(permissions(0), Cell::Bad("none".into()));
    }
}
