//! What `ringmq tune io` found of a store's device, kept in the store's folder for its starts.

use super::device::DeviceIdentity;
use super::io::{Blocks, Case, Figure, LARGE_BYTES, LOG_WRITES, Measurement, SMALL_BYTES, Work};
use super::{FlushCost, Kernel};
use crate::config::limits::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Version of the file that is written here, and the only one that is read. The first one chose
/// by blocks that were never written, which the log does without since its segments are filled
/// with zeros ahead of it, and by one write at a time.
const VERSION: u64 = 2;

/// Largest file that is read, in bytes. One that is written has some 15 KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Smallest and largest write that a profile may choose, in bytes.
pub const WRITE_BYTES: (u32, u32) = (LARGE_BYTES[0], LARGE_BYTES[LARGE_BYTES.len() - 1]);

/// Largest write to the log where no profile chooses one, in bytes.
pub const WRITE_BYTES_DEFAULT: u32 = 4 * 1024 * 1024;

/// Part of the highest throughput that smaller writes must reach to be chosen.
const GOOD_ENOUGH: f64 = 0.95;

/// What a broker takes from a profile under SYNC_FLUSH.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Whether a write and a flush after it keeps bytes sooner than a write through.
    pub flush_after_write: bool,
    /// Largest write to the log, in bytes: within [`WRITE_BYTES`], a multiple of 4096.
    pub write_bytes: u32,
    /// Median time of a 4 KiB write through, in microseconds.
    pub write_through_us: f64,
    /// Median time of a 4 KiB write and a flush, in microseconds.
    pub write_and_flush_us: f64,
}

impl Choice {
    /// Chooses; `None` where the figures that it rests on are not all there.
    ///
    /// All figures are those of blocks that were written before, as the log's are. The way of a
    /// promise is the one that takes less time for 4 KiB; the size of a write is the smallest
    /// with which that way, with as many at a time as the log has, comes near its highest
    /// throughput: smaller writes let each message wait less.
    pub fn from_figures(figures: &[Figure]) -> Option<Choice> {
        let find = |work, bytes, depth| {
            let case = Case {
                work,
                blocks: Blocks::Overwritten,
                bytes,
                depth,
            };
            figures.iter().find(|figure| figure.case == case)
        };
        let small = |work| Some(find(work, SMALL_BYTES, 1)?.p50_us);
        let (through, flush) = (small(Work::WriteThrough)?, small(Work::WriteAndFlush)?);
        let time = |us: f64| Duration::from_secs_f64(us / 1e6);
        let cost = FlushCost {
            write_through: time(through),
            write_and_flush: time(flush),
        };
        let way = if cost.prefers_flush() {
            Work::WriteAndFlush
        } else {
            Work::WriteThrough
        };
        let large: Vec<(u32, f64)> = LARGE_BYTES
            .into_iter()
            .map(|bytes| {
                let figure = find(way, bytes, LOG_WRITES)?;
                Some((bytes, figure.mib_per_second))
            })
            .collect::<Option<_>>()?;
        let highest = large.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        let (write_bytes, _) = large
            .into_iter()
            .find(|(_, speed)| *speed >= highest * GOOD_ENOUGH)?;
        Some(Choice {
            flush_after_write: cost.prefers_flush(),
            write_bytes,
            write_through_us: through,
            write_and_flush_us: flush,
        })
    }

    fn is_valid(&self) -> bool {
        let time = |us: f64| us.is_finite() && us > 0.0;
        (WRITE_BYTES.0..=WRITE_BYTES.1).contains(&self.write_bytes)
            && u64::from(self.write_bytes) % BLOCK_BYTES == 0
            && time(self.write_through_us)
            && time(self.write_and_flush_us)
    }
}

/// The figures of a device, whose they are, and what follows from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoProfile {
    /// Version of this form.
    pub version: u64,
    /// When it was measured, UTC, such as `2026-01-31T12:00:00Z`.
    pub measured: String,
    /// Version of RingMQ that measured.
    pub ringmq: String,
    /// Version of the kernel that ran.
    pub kernel: String,
    /// The device that was measured.
    pub device: DeviceIdentity,
    /// Whether the page cache was passed by.
    pub direct_io: bool,
    /// What a broker takes from it.
    pub choice: Choice,
    /// All figures.
    pub figures: Vec<Figure>,
}

/// Why there is no profile to be used.
#[derive(Debug)]
pub enum ProfileError {
    /// There is no file.
    Missing,
    /// The file cannot be read.
    Io(PathBuf, io::Error),
    /// The file is not a profile, for this reason.
    Garbled(PathBuf, String),
    /// The file is of this version, which is to come.
    Version(PathBuf, u64),
    /// The file is of this version, whose choice no longer holds.
    Outdated(PathBuf, u64),
    /// The file is of another device; the text names the difference.
    OtherDevice(PathBuf, String),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::Missing => f.write_str("there is no profile"),
            ProfileError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            ProfileError::Garbled(path, why) => {
                write!(f, "{} is not a profile: {why}", path.display())
            }
            ProfileError::Version(path, version) => write!(
                f,
                "{} is of version {version}, and {VERSION} is the newest known here",
                path.display()
            ),
            ProfileError::Outdated(path, version) => write!(
                f,
                "{} is of version {version}, which did not measure what the log does now",
                path.display()
            ),
            ProfileError::OtherDevice(path, difference) => {
                write!(f, "{} is of another device: {difference}", path.display())
            }
        }
    }
}

impl std::error::Error for ProfileError {}

impl IoProfile {
    /// Where the profile of a store is kept.
    pub fn path(store: &Path) -> PathBuf {
        store.join("io-profile.json")
    }

    /// A profile of what was just measured in `folder`.
    ///
    /// # Errors
    /// Those of looking at the folder, and a measurement from which nothing can be chosen.
    pub fn new(folder: &Path, measurement: Measurement) -> io::Result<IoProfile> {
        let choice = Choice::from_figures(&measurement.figures)
            .filter(Choice::is_valid)
            .ok_or_else(|| io::Error::other("too little was measured to choose anything"))?;
        Ok(IoProfile {
            version: VERSION,
            measured: utc(SystemTime::now()),
            ringmq: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: Kernel::running().to_string(),
            device: DeviceIdentity::of(folder)?,
            direct_io: measurement.direct,
            choice,
            figures: measurement.figures,
        })
    }

    /// The profile of the store in an existing folder, if it is one of the device that the
    /// folder is on now.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn load(store: &Path) -> Result<IoProfile, ProfileError> {
        let path = IoProfile::path(store);
        let mut text = Vec::new();
        let read =
            File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ProfileError::Missing);
            }
            Err(error) => return Err(ProfileError::Io(path, error)),
            Ok(_) => {}
        }
        let now =
            DeviceIdentity::of(store).map_err(|error| ProfileError::Io(store.into(), error))?;
        judge(path, &text, &now)
    }
}

fn judge(path: PathBuf, text: &[u8], now: &DeviceIdentity) -> Result<IoProfile, ProfileError> {
    let garbled = |why: String| ProfileError::Garbled(path.clone(), why);
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(garbled(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    // The version first: what follows it may have another form.
    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| garbled(error.to_string()))?;
    match value["version"].as_u64() {
        Some(VERSION) => {}
        Some(version) if version > VERSION => return Err(ProfileError::Version(path, version)),
        Some(version) if version > 0 => return Err(ProfileError::Outdated(path, version)),
        _ => return Err(garbled("it has no version".to_owned())),
    }
    let profile: IoProfile =
        serde_json::from_value(value).map_err(|error| garbled(error.to_string()))?;
    if !profile.choice.is_valid() {
        return Err(garbled(format!("{:?} is no choice", profile.choice)));
    }
    match profile.device.difference(now) {
        None => Ok(profile),
        Some(difference) => Err(ProfileError::OtherDevice(path, difference)),
    }
}

/// A time as text, in UTC and to the second.
fn utc(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the day which leap years add is their last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + next,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::super::io::cases;
    use super::*;

    fn here() -> DeviceIdentity {
        DeviceIdentity::of(&std::env::temp_dir()).expect("a folder")
    }

    /// Figures in which a write through takes `through` µs, a write and a flush `flush`, and
    /// throughput is `speed` of the size.
    fn figures(through: f64, flush: f64, speed: impl Fn(Case) -> f64) -> Vec<Figure> {
        let figure = |case: Case| Figure {
            case,
            operations: 1,
            p50_us: if case.work == Work::WriteThrough {
                through
            } else {
                flush
            },
            p99_us: 0.0,
            per_second: 0.0,
            mib_per_second: speed(case),
        };
        cases().into_iter().map(figure).collect()
    }

    fn profile() -> IoProfile {
        let figures = figures(100.0, 200.0, |case| f64::from(case.bytes));
        IoProfile {
            version: VERSION,
            measured: utc(UNIX_EPOCH),
            ringmq: "0".into(),
            kernel: "6.1".into(),
            device: here(),
            direct_io: true,
            choice: Choice::from_figures(&figures).expect("complete"),
            figures,
        }
    }

    fn judged(text: &str) -> Result<IoProfile, String> {
        judge("p.json".into(), text.as_bytes(), &here()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_faster_promise_is_chosen_and_the_smallest_write_that_is_fast_enough() {
        let rising = |case: Case| f64::from(case.bytes);
        let choice = Choice::from_figures(&figures(100.0, 90.0, rising)).expect("complete");
        assert!(!choice.flush_after_write, "not better by a third");
        assert_eq!(choice.write_bytes, 1 << 20);
        let choice = Choice::from_figures(&figures(100.0, 60.0, rising)).expect("complete");
        assert!(choice.flush_after_write);
        assert_eq!(
            (choice.write_through_us, choice.write_and_flush_us),
            (100.0, 60.0)
        );
        let level = |case: Case| if case.bytes < 256 * 1024 { 94.0 } else { 100.0 };
        let choice = Choice::from_figures(&figures(100.0, 200.0, level)).expect("complete");
        assert_eq!(choice.write_bytes, 256 * 1024);
        // One write at a time may need larger ones, which the log does not.
        let two_at_a_time = |case: Case| match case.depth {
            LOG_WRITES => 100.0,
            _ => rising(case),
        };
        let choice = Choice::from_figures(&figures(100.0, 200.0, two_at_a_time)).expect("complete");
        assert_eq!(choice.write_bytes, 128 * 1024);
        // The throughput of the way that was not chosen does not count.
        let other = |case: Case| match case.work {
            Work::WriteAndFlush => f64::from(case.bytes),
            _ => 50.0,
        };
        let choice = Choice::from_figures(&figures(100.0, 200.0, other)).expect("complete");
        assert_eq!(choice.write_bytes, 128 * 1024);
    }

    #[test]
    fn blocks_that_were_never_written_have_no_say() {
        // A write through takes ten times as long there; on average it would be the worse way.
        let mut figures = figures(100.0, 150.0, |_| 1.0);
        for figure in &mut figures {
            let case = figure.case;
            if (case.work, case.blocks) == (Work::WriteThrough, Blocks::Unwritten) {
                figure.p50_us = 1000.0;
            }
        }
        let choice = Choice::from_figures(&figures).expect("complete");
        assert!(!choice.flush_after_write, "{choice:?}");
        assert_eq!(
            (choice.write_through_us, choice.write_and_flush_us),
            (100.0, 150.0)
        );
        // And they can be missing.
        figures.retain(|figure| figure.case.blocks == Blocks::Overwritten);
        assert_eq!(Choice::from_figures(&figures), Some(choice));
    }

    #[test]
    fn nothing_is_chosen_from_half_of_the_figures() {
        let all = figures(1.0, 1.0, |_| 1.0);
        // Those first that the choice rests on; of large writes, those of the way that is chosen.
        assert!(Choice::from_figures(&all[..10]).is_some());
        for missing in [0, 1, 2, 4, 6, 8] {
            let mut some = all.clone();
            some.remove(missing);
            assert!(Choice::from_figures(&some).is_none(), "without {missing}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = serde_json::to_string(&profile()).expect("JSON");
        assert_eq!(judged(&text), Ok(profile()));
    }

    #[test]
    fn what_is_not_a_profile_is_told_with_the_reason() {
        for text in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"version":"1"}"#,
            r#"{"version":0}"#,
            r#"{"version":2}"#,
            "\0\0",
        ] {
            let why = judged(text).expect_err(text);
            assert!(why.starts_with("p.json is not a profile: "), "{why}");
        }
        let long = " ".repeat(FILE_BYTES_MAX as usize + 1);
        assert!(judged(&long).expect_err("long").contains("longer than"));
        let why = judged(r#"{"version":7,"new":{}}"#).expect_err("to come");
        assert_eq!(
            why,
            "p.json is of version 7, and 2 is the newest known here"
        );
        let why = judged(r#"{"version":1,"choice":{}}"#).expect_err("outdated");
        assert!(
            why.starts_with("p.json is of version 1, which did"),
            "{why}"
        );
        for write_bytes in [0, 4096, 128 * 1024 + 1, 1 << 30] {
            let mut bad = profile();
            bad.choice.write_bytes = write_bytes;
            let text = serde_json::to_string(&bad).expect("JSON");
            assert!(judged(&text).expect_err("bad").contains("is no choice"));
        }
    }

    #[test]
    fn the_profile_of_another_device_is_not_taken() {
        let mut other = profile();
        other.device.uuid = Some("other".into());
        other.device.file_system_id = "0".into();
        let text = serde_json::to_string(&other).expect("JSON");
        let why = judged(&text).expect_err("another");
        assert!(
            why.starts_with("p.json is of another device: file system"),
            "{why}"
        );
    }

    #[test]
    fn times_are_told_in_utc() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_210_096), "2024-02-29T12:34:56Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
