//! The bytes of an index file (`IndexFile`, `IndexHeader`).
//!
//! | at | width | field |
//! | --- | --- | --- |
//! | 0 | i64 | store time of the first key's record, ms since 1970 |
//! | 8 | i64 | store time of the last key's record |
//! | 16 | i64 | physical offset of the first key's record |
//! | 24 | i64 | physical offset of the last key's record |
//! | 32 | i32 | slots in use |
//! | 36 | i32 | entries, the unused one at number 0 counted |
//! | 40 | i32 each | slots: number of the newest entry of their chain, 0 where there is none |
//! | … | 20 each | entries |
//!
//! An entry: hash of the key i32, physical offset i64, seconds since the first
//! store time i32, number of the next older entry of its chain i32.

/// Bytes of the header.
pub const HEADER_BYTES: usize = 40;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 20;

const SLOT_BYTES: usize = 4;

/// How many slots and entries an index file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexGeometry {
    /// Slots, from 1 on.
    pub slots: u32,
    /// Entries, the unused one at number 0 counted; from 2 on.
    pub entries: u32,
}

impl IndexGeometry {
    /// RocketMQ's: 420 MB, sparse.
    pub const ROCKETMQ: IndexGeometry = IndexGeometry {
        slots: 5_000_000,
        entries: 20_000_000,
    };

    /// Bytes of header and slots.
    pub const fn head_bytes(self) -> usize {
        HEADER_BYTES + self.slots as usize * SLOT_BYTES
    }

    /// Bytes of a file.
    pub const fn file_bytes(self) -> u64 {
        self.entry_at(self.entries)
    }

    /// Byte at which an entry begins.
    pub const fn entry_at(self, number: u32) -> u64 {
        self.head_bytes() as u64 + number as u64 * ENTRY_BYTES as u64
    }

    /// The slot of a hash.
    pub const fn slot(self, hash: i32) -> u32 {
        hash.unsigned_abs() % self.slots
    }

    /// Byte at which a slot begins.
    pub const fn slot_at(self, slot: u32) -> usize {
        HEADER_BYTES + slot as usize * SLOT_BYTES
    }
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(value)
}

/// A slot's value in its four bytes; 0 where it points at none of `count` entries.
pub fn slot_value(bytes: &[u8], count: u32) -> u32 {
    match u32::try_from(i32_at(bytes, 0)) {
        Ok(number) if number < count => number,
        _ => 0,
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub begin_timestamp: i64,
    pub end_timestamp: i64,
    pub begin_physical: i64,
    pub end_physical: i64,
    pub slots_used: u32,
    /// Number of the next entry, from 1 on.
    pub count: u32,
}

impl Header {
    /// The header of a file without keys.
    pub const EMPTY: Header = Header {
        begin_timestamp: 0,
        end_timestamp: 0,
        begin_physical: 0,
        end_physical: 0,
        slots_used: 0,
        count: 1,
    };

    /// Reads a header. Numbers below what they count from count as that.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Header {
        Header {
            begin_timestamp: i64_at(bytes, 0),
            end_timestamp: i64_at(bytes, 8),
            begin_physical: i64_at(bytes, 16),
            end_physical: i64_at(bytes, 24),
            slots_used: u32::try_from(i32_at(bytes, 32)).unwrap_or(0),
            count: u32::try_from(i32_at(bytes, 36)).unwrap_or(0).max(1),
        }
    }

    /// The header's bytes in front of the count, which is written last.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.begin_timestamp.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.end_timestamp.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.begin_physical.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.end_physical.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.slots_used.to_be_bytes());
        bytes[36..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    pub hash: i32,
    pub physical: i64,
    pub seconds: i32,
    /// Number of the next older entry of its chain, 0 where there is none.
    pub prev: u32,
}

impl IndexEntry {
    /// Reads an entry; `None` where a field cannot be one's.
    pub fn from_bytes(bytes: &[u8]) -> Option<IndexEntry> {
        let entry = IndexEntry {
            hash: i32_at(bytes, 0),
            physical: i64_at(bytes, 4),
            seconds: i32_at(bytes, 12),
            prev: u32::try_from(i32_at(bytes, 16)).unwrap_or(0),
        };
        (entry.hash >= 0 && entry.physical >= 0 && entry.seconds >= 0).then_some(entry)
    }

    /// The entry as it lies in its file.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.hash.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.physical.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[16..].copy_from_slice(&self.prev.to_be_bytes());
        bytes
    }

    /// Whether its record can have been stored in `begin..=end`, ms since 1970.
    pub fn may_be_in(&self, first: i64, begin: i64, end: i64) -> bool {
        let (earliest, latest) = self.times(first);
        earliest <= end && latest >= begin
    }

    /// Earliest and latest store time that its seconds stand for in a file that
    /// begins at `first`.
    pub fn times(&self, first: i64) -> (i64, i64) {
        let time = first.saturating_add(i64::from(self.seconds) * 1000);
        match self.seconds {
            // A clock that was set back counts as no time passed.
            0 => (i64::MIN, time.saturating_add(999)),
            i32::MAX => (time, i64::MAX),
            _ => (time, time.saturating_add(999)),
        }
    }
}

/// Whole seconds from `first` to `timestamp`, as entries hold them.
pub fn seconds_since(first: i64, timestamp: i64) -> i32 {
    if first <= 0 {
        return 0;
    }
    let seconds = timestamp.saturating_sub(first) / 1000;
    seconds.clamp(0, i64::from(i32::MAX)) as i32
}

/// The number that names a file made at `timestamp`, ms since 1970: its digits are
/// yyyyMMddHHmmssSSS, in UTC.
pub fn name_of_time(timestamp: i64) -> u64 {
    // Year 9999 ends before that.
    let ms = timestamp.clamp(0, 253_402_300_799_999) as u64;
    let (days, ms_of_day) = (ms / 86_400_000, ms % 86_400_000);
    // Years counted from March 1st of year 0, so that a leap day ends one.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let date = (year * 100 + month) * 100 + day;
    let seconds = ms_of_day / 1000;
    let time = (seconds / 3600 * 100 + seconds / 60 % 60) * 100 + seconds % 60;
    (date * 1_000_000 + time) * 1000 + ms_of_day % 1000
}

/// The name of a file.
pub fn file_name(name: u64) -> String {
    format!("{name:017}")
}

/// The number that a file's name stands for; `None` for other files.
pub fn number_of_name(name: &std::ffi::OsStr) -> Option<u64> {
    let name = name.to_str()?;
    let digits = name.len() == 17 && name.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| name.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_rocketmqs_size_and_places() {
        let geometry = IndexGeometry::ROCKETMQ;
        assert_eq!(geometry.file_bytes(), 40 + 5_000_000 * 4 + 20_000_000 * 20);
        assert_eq!(geometry.entry_at(3), 40 + 20_000_000 + 60);
        assert_eq!((geometry.slot_at(7), geometry.slot(5_000_007)), (68, 7));
    }

    #[test]
    fn names_are_times() {
        let named = |ms| file_name(name_of_time(ms));
        assert_eq!(named(0), "19700101000000000");
        assert_eq!(named(1_709_208_000_123), "20240229120000123");
        assert_eq!(named(1_735_689_599_999), "20241231235959999");
        assert_eq!(named(-5), "19700101000000000");
        assert_eq!(named(i64::MAX), "99991231235959999");
        for name in [
            "2024022912000012",
            "2024022912000012x",
            "202402291200001234",
        ] {
            assert_eq!(number_of_name(name.as_ref()), None);
        }
        let name = name_of_time(1_709_208_000_123);
        assert_eq!(number_of_name(file_name(name).as_ref()), Some(name));
    }

    #[test]
    fn seconds_are_those_of_the_store_time_and_clamped() {
        assert_eq!(seconds_since(10_000, 12_999), 2);
        assert_eq!(seconds_since(10_000, 9_000), 0);
        assert_eq!(seconds_since(1, i64::MAX), i32::MAX);
        assert_eq!(seconds_since(0, 12_999), 0);
        let entry = |seconds| IndexEntry {
            hash: 1,
            physical: 1,
            seconds,
            prev: 0,
        };
        assert!(entry(2).may_be_in(10_000, 12_500, 12_600));
        assert!(!entry(2).may_be_in(10_000, 13_000, 14_000));
        assert!(!entry(2).may_be_in(10_000, 0, 11_999));
        assert!(
            entry(0).may_be_in(10_000, 0, 5),
            "stored when the clock was set back"
        );
        assert!(!entry(0).may_be_in(10_000, 11_000, 12_000));
        assert!(entry(i32::MAX).may_be_in(1, i64::MAX, i64::MAX));
    }
}
