//! The text forms of a setting's value, and which values are allowed.

use super::limits::{DELAY_LEVELS_MAX, DELAY_MS_MAX, NAME_BYTES_MAX, NAMESERVERS_MAX};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// When a message counts as kept (`FlushDiskType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushDiskType {
    /// Acknowledged when the bytes outlive the process.
    Async,
    /// Acknowledged when the device has promised the bytes.
    Sync,
}

/// Part of a broker in its group (`BrokerRole`). `SLAVE` is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerRole {
    /// Does not wait for replicas.
    AsyncMaster,
    /// Waits for its replicas, of which there are none yet.
    SyncMaster,
}

/// What the shards of a process are to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMode {
    /// One broker: every shard listens on its port, and a request for a queue of
    /// another shard crosses to that.
    Single,
    /// Each shard is a broker of its own, with a name, a port and a store of its own.
    PerShard,
}

/// Values that a setting may have. Displayed as the second half of "must be ...".
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// `true` or `false`, in any case.
    Bool,
    /// A decimal number within both bounds.
    Number {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
        /// What the value must be a multiple of; 1 for any.
        multiple_of: u64,
    },
    /// A decimal number; one outside the bounds is moved to the nearer bound.
    Clamped {
        /// Smallest value that is used.
        min: u64,
        /// Largest value that is used.
        max: u64,
    },
    /// A power of two within both bounds.
    PowerOfTwo {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// Anything that its type can read, described in words.
    Form(&'static str),
}

impl Allowed {
    /// Any number within both bounds.
    pub const fn range(min: u64, max: u64) -> Allowed {
        Allowed::Number {
            min,
            max,
            multiple_of: 1,
        }
    }

    fn number(&self, text: &str) -> Option<u64> {
        let value: u64 = text.parse().ok()?;
        match *self {
            Allowed::Clamped { min, max } => Some(value.clamp(min, max)),
            Allowed::Number {
                min,
                max,
                multiple_of,
            } => ((min..=max).contains(&value) && value % multiple_of == 0).then_some(value),
            Allowed::PowerOfTwo { min, max } => {
                ((min..=max).contains(&value) && value.is_power_of_two()).then_some(value)
            }
            Allowed::Bool | Allowed::Form(_) => Some(value),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Allowed::Bool => f.write_str("true or false"),
            Allowed::Number {
                min,
                max,
                multiple_of: 1,
            } if min == max => write!(f, "{min}"),
            Allowed::Number {
                min,
                max,
                multiple_of: 1,
            } => write!(f, "a number from {min} to {max}"),
            Allowed::Number {
                min,
                max,
                multiple_of,
            } => write!(f, "a multiple of {multiple_of} from {min} to {max}"),
            Allowed::Clamped { .. } => f.write_str("a number"),
            Allowed::PowerOfTwo { min, max } => write!(f, "a power of two from {min} to {max}"),
            Allowed::Form(words) => f.write_str(words),
        }
    }
}

/// A type that a setting can have.
pub(super) trait Value: Sized {
    /// The value that `text` stands for, or nothing where `allowed` excludes it.
    fn read(text: &str, allowed: &Allowed) -> Option<Self>;

    /// The text that [`Value::read`] takes for this value.
    fn text(&self) -> String;
}

macro_rules! number {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn read(text: &str, allowed: &Allowed) -> Option<Self> {
                allowed.number(text)?.try_into().ok()
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
number!(u8 u16 u32 u64 usize);

impl Value for bool {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        if text.eq_ignore_ascii_case("true") {
            Some(true)
        } else if text.eq_ignore_ascii_case("false") {
            Some(false)
        } else {
            None
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// An empty text stands for "not set".
impl<T: Value> Value for Option<T> {
    fn read(text: &str, allowed: &Allowed) -> Option<Self> {
        if text.is_empty() {
            Some(None)
        } else {
            T::read(text, allowed).map(Some)
        }
    }

    fn text(&self) -> String {
        self.as_ref().map(T::text).unwrap_or_default()
    }
}

impl Value for IpAddr {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        text.parse().ok()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// A name: of a broker, a cluster, a region.
impl Value for String {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        is_name(text).then(|| text.to_owned())
    }

    fn text(&self) -> String {
        self.clone()
    }
}

impl Value for PathBuf {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        (!text.is_empty() && !text.contains('\0')).then(|| text.into())
    }

    fn text(&self) -> String {
        self.to_string_lossy().into_owned()
    }
}

/// Nameserver addresses, `host:port;host:port`.
impl Value for Vec<String> {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        let parts = text.split(';').map(str::trim).filter(|s| !s.is_empty());
        let all: Option<Vec<String>> = parts
            .map(|part| is_host_port(part).then(|| part.to_owned()))
            .collect();
        all.filter(|all| all.len() <= NAMESERVERS_MAX)
    }

    fn text(&self) -> String {
        self.join(";")
    }
}

impl Value for FlushDiskType {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        match text {
            "ASYNC_FLUSH" => Some(FlushDiskType::Async),
            "SYNC_FLUSH" => Some(FlushDiskType::Sync),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            FlushDiskType::Async => "ASYNC_FLUSH".to_owned(),
            FlushDiskType::Sync => "SYNC_FLUSH".to_owned(),
        }
    }
}

impl Value for RouteMode {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        match text {
            "single" => Some(RouteMode::Single),
            "perShard" => Some(RouteMode::PerShard),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            RouteMode::Single => "single".to_owned(),
            RouteMode::PerShard => "perShard".to_owned(),
        }
    }
}

impl Value for BrokerRole {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        match text {
            "ASYNC_MASTER" => Some(BrokerRole::AsyncMaster),
            "SYNC_MASTER" => Some(BrokerRole::SyncMaster),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            BrokerRole::AsyncMaster => "ASYNC_MASTER".to_owned(),
            BrokerRole::SyncMaster => "SYNC_MASTER".to_owned(),
        }
    }
}

const DELAY_UNITS: [(char, u64); 4] = [
    ('d', 24 * 3600 * 1000),
    ('h', 3600 * 1000),
    ('m', 60 * 1000),
    ('s', 1000),
];

/// Delay levels, `1s 5s 2m 1h 1d` (`ScheduleMessageService.parseDelayLevel`). Level 1 is the
/// first.
impl Value for Vec<Duration> {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        let levels: Option<Vec<Duration>> = text.split_ascii_whitespace().map(delay).collect();
        levels.filter(|levels| (1..=DELAY_LEVELS_MAX).contains(&levels.len()))
    }

    fn text(&self) -> String {
        let levels: Vec<String> = self.iter().map(|level| delay_text(*level)).collect();
        levels.join(" ")
    }
}

fn delay(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let (_, unit_ms) = DELAY_UNITS.iter().find(|(name, _)| *name == unit)?;
    let count: u64 = text[..text.len() - unit.len_utf8()].parse().ok()?;
    let ms = count.checked_mul(*unit_ms)?;
    (ms <= DELAY_MS_MAX).then(|| Duration::from_millis(ms))
}

fn delay_text(level: Duration) -> String {
    let ms = level.as_millis() as u64;
    let fits = |unit_ms: u64| ms % unit_ms == 0 && ms >= unit_ms;
    let (name, unit_ms) = DELAY_UNITS
        .into_iter()
        .find(|&(_, unit_ms)| fits(unit_ms))
        .unwrap_or(('s', 1000));
    format!("{}{name}", ms / unit_ms)
}

/// Hours of the day, `04` or `04;16` (`UtilAll.isItTimeToDo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours(
    /// Each from 0 to 23, local time.
    pub Vec<u8>,
);

impl Value for Hours {
    fn read(text: &str, _: &Allowed) -> Option<Self> {
        let parts = text.split(';').map(str::trim).filter(|s| !s.is_empty());
        let hours: Option<Vec<u8>> = parts
            .map(|part| part.parse().ok().filter(|hour| *hour < 24))
            .collect();
        hours
            .filter(|hours| (1..=24).contains(&hours.len()))
            .map(Hours)
    }

    fn text(&self) -> String {
        let hours: Vec<String> = self.0.iter().map(|hour| format!("{hour:02}")).collect();
        hours.join(";")
    }
}

/// Whether a text can name a broker, a cluster or a region: it stands in lists that are
/// separated by blanks, commas, semicolons and colons, and in logs.
fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.%|@".contains(&b))
}

/// The nearest text to `text` that can name a broker: other bytes become `-`.
pub(super) fn to_name(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take(NAME_BYTES_MAX)
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => c,
            _ => '-',
        })
        .collect();
    (is_name(&name) && name.bytes().any(|b| b.is_ascii_alphanumeric())).then_some(name)
}

fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let port_fits = port.parse::<u16>().is_ok_and(|port| port > 0);
    let host_fits = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(v6) => v6
            .split('%')
            .next()
            .is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            (1..=253).contains(&host.len())
                && host
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        }
    };
    port_fits && host_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Allowed = Allowed::Form("");

    #[test]
    fn delay_levels_have_units_and_keep_their_text() {
        let text = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";
        let levels = Vec::<Duration>::read(text, &FORM).expect("readable");
        assert_eq!(levels.len(), 18);
        assert_eq!(levels[17], Duration::from_secs(7200));
        assert_eq!(levels.text(), text);
        for bad in [
            "",
            "1",
            "1x",
            "s",
            "-1s",
            "1s,5s",
            "999999d",
            "18446744073709551615h",
            "1日",
        ] {
            assert!(Vec::<Duration>::read(bad, &FORM).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn nameservers_are_host_and_port() {
        let read = |text| Vec::<String>::read(text, &FORM);
        assert_eq!(
            read(" 10.0.0.1:9876; ns-2.example:9877 ;[fe80::1%eth0]:9876;"),
            Some(vec![
                "10.0.0.1:9876".into(),
                "ns-2.example:9877".into(),
                "[fe80::1%eth0]:9876".into()
            ])
        );
        assert_eq!(read(""), Some(vec![]));
        for bad in [
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "http://a:1",
            "a b:1",
            "[::g]:1",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn numbers_outside_are_refused_or_moved() {
        let port = Allowed::range(1, 65_535);
        assert_eq!(u16::read("65535", &port), Some(65_535));
        for bad in ["0", "65536", "-1", "1.5", "", "0x10", "1e3"] {
            assert_eq!(u16::read(bad, &port), None, "{bad:?}");
        }
        let clamped = Allowed::Clamped { min: 10, max: 60 };
        assert_eq!(u64::read("1", &clamped), Some(10));
        assert_eq!(u64::read("100", &clamped), Some(60));
        let power = Allowed::PowerOfTwo { min: 8, max: 64 };
        assert_eq!(u64::read("32", &power), Some(32));
        assert_eq!(u64::read("33", &power), None);
        let blocks = Allowed::Number {
            min: 20,
            max: 100,
            multiple_of: 20,
        };
        assert_eq!(u64::read("40", &blocks), Some(40));
        assert_eq!(u64::read("50", &blocks), None);
        assert_eq!(blocks.to_string(), "a multiple of 20 from 20 to 100");
    }

    #[test]
    fn hours_are_of_one_day() {
        assert_eq!(Hours::read("04;16", &FORM), Some(Hours(vec![4, 16])));
        assert_eq!(Hours(vec![4, 16]).text(), "04;16");
        assert_eq!(Hours::read("24", &FORM), None);
        assert_eq!(Hours::read(";", &FORM), None);
    }

    #[test]
    fn a_host_name_becomes_a_broker_name() {
        assert_eq!(to_name("web 1/日").as_deref(), Some("web-1--"));
        assert_eq!(to_name("a.b-c_d").as_deref(), Some("a.b-c_d"));
        assert_eq!(to_name(""), None);
        assert_eq!(to_name(".."), None);
    }
}
