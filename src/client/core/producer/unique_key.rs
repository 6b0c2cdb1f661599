//! The client's own ids of messages, as Java clients make them (`MessageClientIDSetter`).
//!
//! Upper-case hex of: address (4 or 16 bytes), process id (2), a number of the client's
//! (4; a hash of the class loader in Java), ms since the start of the month (4), a counter
//! (2).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::message::MessageId;
use crate::wire::ids::write_hex;

/// Digits of an id with an IPv6 address; one with an IPv4 address has 32.
pub const KEY_CHARS_MAX: usize = 56;

/// Digits behind those that all ids of a generator have in common: of the time, and the counter.
const TIME_CHARS: usize = 8;
const COUNT_CHARS: usize = 4;

/// Makes ids for all producers of a process, on any thread.
#[derive(Debug)]
pub struct UniqueKeys {
    fixed: Vec<u8>,
    /// One ahead for each id made: its lower half is on the wire.
    counter: AtomicU32,
}

impl UniqueKeys {
    /// Ids of the process `pid` on the host `ip`. `number` tells apart what shares both:
    /// generators of one process must have different ones.
    pub fn new(ip: IpAddr, pid: u32, number: u32) -> UniqueKeys {
        let mut fixed = Vec::with_capacity(KEY_CHARS_MAX);
        match ip {
            IpAddr::V4(ip) => write_hex(&mut fixed, &ip.octets()),
            IpAddr::V6(ip) => write_hex(&mut fixed, &ip.octets()),
        }
        write_hex(&mut fixed, &(pid as u16).to_be_bytes());
        write_hex(&mut fixed, &number.to_be_bytes());
        UniqueKeys {
            fixed,
            counter: AtomicU32::new(0),
        }
    }

    /// The next id. `wall_ms`: ms since 1970. Two ids are the same only if 65,536 are made
    /// within one millisecond, or the clock is set back.
    pub fn next(&self, wall_ms: i64) -> MessageId {
        let mut keys = self.next_ones(1, wall_ms);
        let digits = std::str::from_utf8(keys.next_key());
        digits.expect("digits are text").into()
    }

    /// The next `count` ids, all of one time.
    pub fn next_ones(&self, count: usize, wall_ms: i64) -> Keys {
        let count = self.counter.fetch_add(count as u32, Ordering::Relaxed) as u16;
        let since = wall_ms - month_start_ms(wall_ms);
        let at = self.fixed.len();
        let mut digits = [0; KEY_CHARS_MAX];
        digits[..at].copy_from_slice(&self.fixed);
        write_digits(&mut digits[at..at + TIME_CHARS], since as u32);
        let len = at + TIME_CHARS + COUNT_CHARS;
        Keys { digits, len, count }
    }
}

/// Ids one after the other.
#[derive(Debug)]
pub struct Keys {
    digits: [u8; KEY_CHARS_MAX],
    len: usize,
    /// Of the next one.
    count: u16,
}

impl Keys {
    /// The digits of the next one.
    pub fn next_key(&mut self) -> &[u8] {
        let at = self.len - COUNT_CHARS;
        write_digits(&mut self.digits[at..self.len], self.count.into());
        self.count = self.count.wrapping_add(1);
        &self.digits[..self.len]
    }
}

/// The lowest digits of a number, as many as there is room for.
fn write_digits(into: &mut [u8], mut value: u32) {
    for digit in into.iter_mut().rev() {
        *digit = b"0123456789ABCDEF"[(value & 15) as usize];
        value >>= 4;
    }
}

const DAY_MS: i64 = 86_400_000;

/// When the month of a time began, UTC, ms since 1970 (civil-from-days arithmetic; Java
/// takes the month of its own time zone, which nobody reads back exactly).
fn month_start_ms(wall_ms: i64) -> i64 {
    let days = wall_ms.div_euclid(DAY_MS) + 719_468;
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month + 2) / 5;
    (wall_ms.div_euclid(DAY_MS) - day_of_month) * DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn an_id_says_who_made_it_and_when() {
        let keys = UniqueKeys::new([10, 0, 0, 1].into(), 0x1_0203, 0xAABB_CCDD);
        // 2026-11-30T06:09:09Z is 29 days and some into its month.
        let wall = 1_796_018_949_000;
        let since: i64 = ((29 * 24 + 6) * 3_600 + 9 * 60 + 9) * 1_000;
        assert_eq!(
            keys.next(wall),
            format!("0A0000010203AABBCCDD{since:08X}0000")
        );
        assert!(keys.next(wall).ends_with("0001"));
        let v6 = UniqueKeys::new(std::net::Ipv6Addr::LOCALHOST.into(), 1, 1);
        assert_eq!(v6.next(wall).len(), KEY_CHARS_MAX);
        let mut run = keys.next_ones(3, wall);
        let ends = [(); 3].map(|()| run.next_key()[28..].to_vec());
        assert_eq!(ends, [b"0002", b"0003", b"0004"]);
        assert!(keys.next(wall).ends_with("0005"));
    }

    #[test]
    fn months_of_every_length() {
        let day = |days: i64| days * DAY_MS;
        // Days since 1970 of 2024-02-01, 2024-02-29, 2024-03-01, 1970-01-01.
        assert_eq!(month_start_ms(day(19_782) + 5), day(19_754));
        assert_eq!(month_start_ms(day(19_783)), day(19_783));
        assert_eq!(month_start_ms(0), 0);
        assert_eq!(month_start_ms(day(30)), 0);
        assert_eq!(month_start_ms(day(31)), day(31));
    }

    #[test]
    fn ids_of_many_threads_differ() {
        let keys = UniqueKeys::new([127, 0, 0, 1].into(), 1, 2);
        let mut all = HashSet::new();
        std::thread::scope(|scope| {
            let made: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..5_000).map(|_| keys.next(7)).collect::<Vec<_>>()))
                .collect();
            for thread in made {
                all.extend(thread.join().unwrap());
            }
        });
        assert_eq!(all.len(), 20_000);
    }
}
