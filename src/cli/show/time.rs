//! Points in time as people and RocketMQ's tools write them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// Local time: `2026-11-30 06:10:11.123`.
pub fn local_time(ms: i64) -> String {
    let Some(parts) = local_parts(ms) else {
        return ms.to_string();
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}",
        i64::from(parts.tm_year) + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec,
        ms.rem_euclid(1000)
    )
}

fn local_parts(ms: i64) -> Option<libc::tm> {
    let seconds: libc::time_t = ms.div_euclid(1000);
    // SAFETY: zero is a valid `tm`.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to what they must for the call.
    let done = unsafe { libc::localtime_r(&seconds, &mut parts) };
    (!done.is_null()).then_some(parts)
}

/// The beginning of the local month that a time is in, `back` months before.
pub fn month_start(ms: i64, back: i32) -> i64 {
    let Some(parts) = local_parts(ms) else {
        return 0;
    };
    from_parts([parts.tm_year + 1900, parts.tm_mon + 1 - back, 1, 0, 0, 0]).unwrap_or(0)
}

/// Local year, month, day, hour, minute and second as milliseconds since 1970.
fn from_parts([year, month, day, hour, minute, second]: [i32; 6]) -> Option<i64> {
    // SAFETY: zero is a valid `tm`.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    parts.tm_year = year - 1900;
    parts.tm_mon = month - 1;
    parts.tm_mday = day;
    parts.tm_hour = hour;
    parts.tm_min = minute;
    parts.tm_sec = second;
    parts.tm_isdst = -1;
    // SAFETY: it points to what it must for the call.
    let seconds = unsafe { libc::mktime(&mut parts) };
    (seconds != -1).then(|| seconds * 1000)
}

/// Reads a time as milliseconds since 1970: `now`, milliseconds, `-90m` (so long ago), or local time
/// as `2026-11-30`, `2026-11-30 06:10:11`, with `T` or `#` between, and `.123` or `:123` at its end.
///
/// # Errors
/// Text with the forms.
pub fn parse_time(text: &str) -> Result<i64, String> {
    let text = text.trim();
    if text == "now" {
        return Ok(now_ms());
    }
    if let Ok(ms) = text.parse::<i64>()
        && (ms >= 0 || text == "-1")
    {
        return Ok(ms);
    }
    if let Some(ago) = text.strip_prefix('-')
        && let Ok(ms) = parse_span(ago)
    {
        return Ok(now_ms().saturating_sub(ms));
    }
    calendar(text).ok_or_else(|| {
        "not a time: now, milliseconds since 1970, -90m (so long ago), 2026-11-30 or \
         2026-11-30#06:10:11:123"
            .to_owned()
    })
}

fn calendar(text: &str) -> Option<i64> {
    let (date, time) = match text.find(['#', 'T', ' ']) {
        Some(at) => (&text[..at], text[at + 1..].trim_end_matches('Z')),
        None => (text, "00:00:00"),
    };
    // A time that says that it is of another place is not taken for one of here.
    if text.ends_with('Z') || time.contains('+') || time.contains('-') {
        return None;
    }
    let whole = |text: &str, digits: usize| -> Option<i32> {
        let fits = text.len() <= digits && text.bytes().all(|b| b.is_ascii_digit());
        fits.then(|| text.parse().ok()).flatten()
    };
    let date: Vec<&str> = date.split('-').collect();
    let time: Vec<&str> = time.split([':', '.', ',']).collect();
    let ([year, month, day], 2..=4) = (&date[..], time.len()) else {
        return None;
    };
    let part = |at: usize, digits| time.get(at).map_or(Some(0), |text| whole(text, digits));
    let parts = [
        whole(year, 4)?,
        whole(month, 2)?,
        whole(day, 2)?,
        part(0, 2)?,
        part(1, 2)?,
        part(2, 2)?,
    ];
    let sound = (1970..=9999).contains(&parts[0])
        && (1..=12).contains(&parts[1])
        && (1..=31).contains(&parts[2])
        && parts[3] < 24
        && parts[4] < 60
        && parts[5] < 60;
    let milliseconds = part(3, 3)?;
    sound.then(|| from_parts(parts).map(|ms| ms + i64::from(milliseconds)))?
}

/// Reads a length of time as milliseconds: `90s`, `5m`, `2h`, `1d`, `500ms`, a number alone is
/// seconds.
///
/// # Errors
/// Text with the forms.
pub fn parse_span(text: &str) -> Result<i64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let number = number.parse::<i64>().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .filter(|_| factor != 0)
        .ok_or_else(|| "not a length of time: 90s, 5m, 2h, 1d or 500ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_in_every_form() {
        let ms = parse_time("2026-11-30#06:10:11:123").unwrap();
        for same in [
            "2026-11-30 06:10:11.123",
            "2026-11-30T06:10:11,123",
            &ms.to_string(),
        ] {
            assert_eq!(parse_time(same), Ok(ms), "{same}");
        }
        assert_eq!(parse_time("2026-11-30T06:10"), Ok(ms - 11_123));
        let midnight = parse_time("2026-11-30").unwrap();
        assert_eq!(ms - midnight, ((6 * 60 + 10) * 60 + 11) * 1000 + 123);
        assert!((now_ms() - parse_time("now").unwrap()).abs() < 10_000);
        assert!((now_ms() - 5_400_000 - parse_time("-90m").unwrap()).abs() < 10_000);
        assert_eq!(parse_time("-1"), Ok(-1));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in [
            "",
            "x",
            "-5x",
            "2026-13-01",
            "2026-11-30T25:00:00",
            "2026-11-30T06",
            "2026-11-30T06:10:11Z",
            "2026-11-30T06:10:11+01:00",
            "2026-11-30T06:10:11.1234",
            "+2026-11-30",
            "2026-11-30#1:2:3:4:5",
            "é",
        ] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        for bad in [
            "",
            "s",
            "5x",
            "99999999999999999999s",
            "9223372036854775807d",
            "1.5s",
        ] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_span("500ms"), Ok(500));
        assert_eq!(parse_span("3"), Ok(3000));
    }

    #[test]
    fn months_begin_at_their_first_midnight() {
        let start = month_start(parse_time("2026-01-15 10:00").unwrap(), 1);
        assert_eq!(local_time(start), "2025-12-01 00:00:00.000");
    }

    proptest! {
        #[test]
        fn local_times_are_read_as_they_are_shown(ms in 86_400_000i64..4_000_000_000_000) {
            let again = parse_time(&local_time(ms)).unwrap();
            // The hour that comes twice in autumn.
            prop_assert!((again - ms).abs() <= 3_600_000);
        }

        #[test]
        fn any_time_can_be_shown(ms: i64) {
            let _ = (local_time(ms), month_start(ms, 1));
        }
    }
}
