//! Values as people read them, the same in tables and pages.

/// A value of a figure: `29,126/s`, `1.60 ms` (of `us`), `4.61 GB` (of `bytes`), or the bare number.
pub fn value(value: f64, unit: &str) -> String {
    match unit {
        "us" => duration_us(value),
        "bytes" => bytes(value),
        "/s" => format!("{}/s", count(value)),
        "" => rounded(value),
        _ => format!("{} {unit}", rounded(value)),
    }
}

/// Microseconds in the unit that leaves one to three digits in front of the point.
pub fn duration_us(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} µs", rounded(us)),
        us if us < 1e6 => format!("{} ms", rounded(us / 1e3)),
        _ => format!("{} s", rounded(us / 1e6)),
    }
}

/// Bytes in powers of a thousand.
pub fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{bytes:.0} B"),
        bytes if bytes < 1e6 => format!("{} kB", rounded(bytes / 1e3)),
        bytes if bytes < 1e9 => format!("{} MB", rounded(bytes / 1e6)),
        _ => format!("{} GB", rounded(bytes / 1e9)),
    }
}

/// A whole number with its thousands apart.
pub fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    if value < 0.0 && digits != "0" {
        text.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many times better: `12.3x`.
pub fn factor(factor: f64) -> String {
    format!("{}x", rounded(factor))
}

/// Three digits that say something.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5 => count(value),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        size if size > 0.0 => format!("{value:.3}"),
        _ => "0".to_owned(),
    }
}

/// A point in time as UTC, `2026-11-30 02:31`.
pub fn utc(ms_since_1970: u64) -> String {
    let minutes = ms_since_1970 / 60_000;
    let (days, minute) = (minutes / 1440, minutes % 1440);
    // The calendar of 400 years that begins in March, so that a leap day is the last of a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let leaps = day_of_era / 1460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524 - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}",
        minute / 60,
        minute % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_their_unit() {
        let cases = [
            (29_126.4, "/s", "29,126/s"),
            (850.0, "us", "850 µs"),
            (1_604.0, "us", "1.60 ms"),
            (34_000.0, "us", "34.0 ms"),
            (1_230_000.0, "us", "1.23 s"),
            (4_612_000_000.0, "bytes", "4.61 GB"),
            (512.0, "bytes", "512 B"),
            (0.856, "", "0.86"),
            (0.0, "us", "0 µs"),
        ];
        for (number, unit, text) in cases {
            assert_eq!(value(number, unit), text);
        }
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1_000.0, "1,000"),
            (12_345_678.0, "12,345,678"),
            (-1_234.0, "-1,234"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn factors_keep_what_matters() {
        for (number, text) in [
            (0.054, "0.054x"),
            (0.987, "0.99x"),
            (1.0, "1.00x"),
            (12.34, "12.3x"),
            (123.4, "123x"),
        ] {
            assert_eq!(factor(number), text);
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400_000, "2000-02-29 00:00"),
            (1_709_251_199_000, "2024-02-29 23:59"),
            (1_796_005_860_000, "2026-11-30 02:31"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }
}
