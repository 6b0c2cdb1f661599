//! The message record: the bytes in the CommitLog, which are the bytes that a
//! pull returns (`MessageExtEncoder`, `MessageDecoder`).
//!
//! | at | width | field |
//! | --- | --- | --- |
//! | 0 | i32 | total size |
//! | 4 | i32 | magic |
//! | 8 | i32 | CRC-32 of the body, top bit cleared |
//! | 12 | i32 | queue id |
//! | 16 | i32 | user flag |
//! | 20 | i64 | queue offset |
//! | 28 | i64 | physical offset |
//! | 36 | i32 | system flag |
//! | 40 | i64 | born timestamp |
//! | 48 | 8 or 20 | born host |
//! | … | i64 | store timestamp |
//! | … | 8 or 20 | store host |
//! | … | i32 | reconsume times |
//! | … | i64 | prepared transaction offset |
//! | … | i32 + n | body |
//! | … | u8 (v1) or i16 (v2) + n | topic |
//! | … | i16 + n | properties |

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Magic of a record whose topic length is one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record whose topic length is two bytes.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic of the filler at the end of a segment.
pub const MAGIC_BLANK: u32 = 0xCBD4_3194;

/// Longest topic of a v1 record, in bytes. Clients other than Java read v1 only.
pub const TOPIC_BYTES_MAX_V1: usize = 127;

/// Size of a v1 record with IPv4 hosts and nothing in it, in bytes: the smallest record.
pub const RECORD_BYTES_MIN: usize = 91;

/// Bytes of the filler that are written: its size and its magic.
pub const BLANK_BYTES: usize = 8;

/// Bits of the system flag (`MessageSysFlag`).
pub mod sys_flag {
    /// The body is compressed.
    pub const COMPRESSED: i32 = 0x1;
    /// The topic's messages carry several tags.
    pub const MULTI_TAGS: i32 = 0x2;
    /// Transaction state: half message.
    pub const PREPARED: i32 = 0x4;
    /// Transaction state: committed.
    pub const COMMIT: i32 = 0x8;
    /// Transaction state: rolled back. Also the mask of the state.
    pub const ROLLBACK: i32 = 0xC;
    /// The born host is an IPv6 address.
    pub const BORN_HOST_V6: i32 = 0x10;
    /// The store host is an IPv6 address.
    pub const STORE_HOST_V6: i32 = 0x20;
}

/// CRC of a body as records hold it (`UtilAll.crc32`).
pub fn body_crc(body: &[u8]) -> i32 {
    (crc32fast::hash(body) & 0x7fff_ffff) as i32
}

/// When the record that begins with `head` was stored, ms since 1970; `None` where it is
/// not one of this physical offset, or `head` ends before the time.
pub fn stored_at(head: &[u8], physical: i64) -> Option<i64> {
    if head.len() < 48 || be_i64(head, 28) != physical {
        return None;
    }
    let magic = be_i32(head, 4) as u32;
    let v6 = be_i32(head, 36) & sys_flag::BORN_HOST_V6 != 0;
    let at = if v6 { 68 } else { 56 };
    let known = (magic == MAGIC_V1 || magic == MAGIC_V2) && head.len() >= at + 8;
    known.then(|| be_i64(head, at))
}

/// What the sender and the broker decide about a record before it has its place.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Queue number.
    pub queue_id: i32,
    /// User flag.
    pub flag: i32,
    /// System flag; the bits of the hosts are set by [`Parts::write`].
    pub sys_flag: i32,
    /// When the sender made it, ms since 1970.
    pub born_timestamp: i64,
    /// The sender's address.
    pub born_host: SocketAddr,
    /// The broker's address.
    pub store_host: SocketAddr,
    /// How often its consumption failed.
    pub reconsume_times: i32,
    /// Physical offset of the half message it commits, else 0.
    pub prepared_offset: i64,
    /// Body, stored as it is.
    pub body: &'a [u8],
    /// [`body_crc`] of `body`.
    pub body_crc: i32,
    /// Topic, at most 32,767 bytes.
    pub topic: &'a [u8],
    /// Properties, at most 32,767 bytes.
    pub properties: &'a [u8],
}

/// What the log decides about a record: its place and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Place in the queue.
    pub queue_offset: i64,
    /// Place in the log.
    pub physical_offset: i64,
    /// When it was stored, ms since 1970.
    pub store_timestamp: i64,
}

fn host_len(host: SocketAddr) -> usize {
    if host.is_ipv4() { 8 } else { 20 }
}

/// Bytes collected on the stack; large enough for all that precedes the body.
struct Head {
    bytes: [u8; 112],
    len: usize,
}

impl Head {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn put_host(&mut self, host: SocketAddr) {
        match host.ip() {
            IpAddr::V4(ip) => self.put(&ip.octets()),
            IpAddr::V6(ip) => self.put(&ip.octets()),
        }
        self.put(&i32::from(host.port()).to_be_bytes());
    }
}

impl Parts<'_> {
    fn is_v2(&self) -> bool {
        self.topic.len() > TOPIC_BYTES_MAX_V1
    }

    /// Size of the record, in bytes.
    pub fn record_len(&self) -> usize {
        RECORD_BYTES_MIN - 16
            + host_len(self.born_host)
            + host_len(self.store_host)
            + self.body.len()
            + usize::from(self.is_v2())
            + self.topic.len()
            + self.properties.len()
    }

    /// Hands the record out in pieces, in order.
    pub fn write(&self, stamp: &Stamp, mut piece: impl FnMut(&[u8])) {
        let magic = if self.is_v2() { MAGIC_V2 } else { MAGIC_V1 };
        let mut sys_flag = self.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6);
        if self.born_host.is_ipv6() {
            sys_flag |= sys_flag::BORN_HOST_V6;
        }
        if self.store_host.is_ipv6() {
            sys_flag |= sys_flag::STORE_HOST_V6;
        }
        let mut head = Head {
            bytes: [0; 112],
            len: 0,
        };
        head.put(&(self.record_len() as i32).to_be_bytes());
        head.put(&magic.to_be_bytes());
        head.put(&self.body_crc.to_be_bytes());
        head.put(&self.queue_id.to_be_bytes());
        head.put(&self.flag.to_be_bytes());
        head.put(&stamp.queue_offset.to_be_bytes());
        head.put(&stamp.physical_offset.to_be_bytes());
        head.put(&sys_flag.to_be_bytes());
        head.put(&self.born_timestamp.to_be_bytes());
        head.put_host(self.born_host);
        head.put(&stamp.store_timestamp.to_be_bytes());
        head.put_host(self.store_host);
        head.put(&self.reconsume_times.to_be_bytes());
        head.put(&self.prepared_offset.to_be_bytes());
        head.put(&(self.body.len() as i32).to_be_bytes());
        piece(&head.bytes[..head.len]);
        piece(self.body);
        if self.is_v2() {
            piece(&(self.topic.len() as i16).to_be_bytes());
        } else {
            piece(&[self.topic.len() as u8]);
        }
        piece(self.topic);
        piece(&(self.properties.len() as i16).to_be_bytes());
        piece(self.properties);
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Fewer bytes than a record has, or than this one says it has.
    Short,
    /// The magic is not that of a record.
    Magic(u32),
    /// A length inside does not fit the record's size.
    Length,
    /// The body does not have the CRC that the record names.
    Crc,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Short => f.write_str("record ends early"),
            RecordError::Magic(magic) => write!(f, "record magic {magic:#010x}"),
            RecordError::Length => f.write_str("record lengths do not add up"),
            RecordError::Crc => f.write_str("record body fails its CRC"),
        }
    }
}

impl std::error::Error for RecordError {}

/// A whole record, borrowed from where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    after_born_host: usize,
    after_store_host: usize,
    body: (usize, usize),
    topic: (usize, usize),
    properties: (usize, usize),
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes`, which may go on behind it.
    ///
    /// # Errors
    /// [`RecordError`], all but `Crc`: the body is not looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        if bytes.len() < 8 {
            return Err(RecordError::Short);
        }
        let size = be_i32(bytes, 0);
        let magic = be_i32(bytes, 4) as u32;
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return Err(RecordError::Magic(magic));
        }
        let size = usize::try_from(size).map_err(|_| RecordError::Length)?;
        if size < RECORD_BYTES_MIN {
            return Err(RecordError::Length);
        }
        let bytes = bytes.get(..size).ok_or(RecordError::Short)?;
        let sys_flag = be_i32(bytes, 36);
        let born = if sys_flag & sys_flag::BORN_HOST_V6 != 0 {
            20
        } else {
            8
        };
        let store = if sys_flag & sys_flag::STORE_HOST_V6 != 0 {
            20
        } else {
            8
        };
        let after_born_host = 48 + born;
        let after_store_host = after_born_host + 8 + store;
        let mut at = after_store_host + 12;
        let mut field = |width: usize| -> Result<(usize, usize), RecordError> {
            let prefix = bytes.get(at..at + width).ok_or(RecordError::Length)?;
            let len = match width {
                1 => i32::from(prefix[0]),
                2 => i32::from(i16::from_be_bytes([prefix[0], prefix[1]])),
                _ => be_i32(prefix, 0),
            };
            let len = usize::try_from(len).map_err(|_| RecordError::Length)?;
            let start = at + width;
            at = start + len;
            if at > size {
                return Err(RecordError::Length);
            }
            Ok((start, at))
        };
        let body = field(4)?;
        let topic = field(if magic == MAGIC_V2 { 2 } else { 1 })?;
        let properties = field(2)?;
        if properties.1 != size {
            return Err(RecordError::Length);
        }
        Ok(Record {
            bytes,
            after_born_host,
            after_store_host,
            body,
            topic,
            properties,
        })
    }

    /// Compares the body with the record's CRC. 0 with an empty body passes.
    ///
    /// # Errors
    /// [`RecordError::Crc`].
    pub fn verify(&self) -> Result<(), RecordError> {
        let stored = be_i32(self.bytes, 8);
        let matches = (self.body().is_empty() && stored == 0) || stored == body_crc(self.body());
        if matches {
            Ok(())
        } else {
            Err(RecordError::Crc)
        }
    }

    /// The record's own bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Queue number.
    pub fn queue_id(&self) -> i32 {
        be_i32(self.bytes, 12)
    }

    /// User flag.
    pub fn flag(&self) -> i32 {
        be_i32(self.bytes, 16)
    }

    /// Place in the queue.
    pub fn queue_offset(&self) -> i64 {
        be_i64(self.bytes, 20)
    }

    /// Place in the log.
    pub fn physical_offset(&self) -> i64 {
        be_i64(self.bytes, 28)
    }

    /// System flag.
    pub fn sys_flag(&self) -> i32 {
        be_i32(self.bytes, 36)
    }

    /// When the sender made it, ms since 1970.
    pub fn born_timestamp(&self) -> i64 {
        be_i64(self.bytes, 40)
    }

    /// The sender's address.
    pub fn born_host(&self) -> SocketAddr {
        host(&self.bytes[48..self.after_born_host])
    }

    /// When it was stored, ms since 1970.
    pub fn store_timestamp(&self) -> i64 {
        be_i64(self.bytes, self.after_born_host)
    }

    /// The address of the broker that stored it.
    pub fn store_host(&self) -> SocketAddr {
        host(&self.bytes[self.after_born_host + 8..self.after_store_host])
    }

    /// How often its consumption failed.
    pub fn reconsume_times(&self) -> i32 {
        be_i32(self.bytes, self.after_store_host)
    }

    /// Physical offset of the half message it commits, else 0.
    pub fn prepared_offset(&self) -> i64 {
        be_i64(self.bytes, self.after_store_host + 4)
    }

    /// Body.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.body.0..self.body.1]
    }

    /// The bytes that nothing else in the record vouches for: no checksum, and no
    /// length that must add up.
    pub fn unvouched(&self) -> [std::ops::Range<usize>; 3] {
        const AT_QUEUE_ID: usize = 12;
        [
            AT_QUEUE_ID..self.body.0 - 4,
            self.topic.0..self.topic.1,
            self.properties.0..self.properties.1,
        ]
    }

    /// Topic.
    pub fn topic(&self) -> &'a [u8] {
        &self.bytes[self.topic.0..self.topic.1]
    }

    /// Properties.
    pub fn properties(&self) -> &'a [u8] {
        &self.bytes[self.properties.0..self.properties.1]
    }
}

fn host(bytes: &[u8]) -> SocketAddr {
    let (ip, port) = bytes.split_at(bytes.len() - 4);
    let ip = match <[u8; 4]>::try_from(ip) {
        Ok(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        Err(_) => IpAddr::V6(<[u8; 16]>::try_from(ip).map_or(Ipv6Addr::UNSPECIFIED, Into::into)),
    };
    SocketAddr::new(ip, be_i32(port, 0) as u16)
}

fn be_i32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be_i64(bytes: &[u8], at: usize) -> i64 {
    i64::from(be_i32(bytes, at)) << 32 | i64::from(be_i32(bytes, at + 4) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = SocketAddr> {
        (any::<bool>(), any::<[u8; 16]>(), any::<u16>()).prop_map(|(v6, ip, port)| {
            let ip = if v6 {
                IpAddr::from(ip)
            } else {
                IpAddr::from([ip[0], ip[1], ip[2], ip[3]])
            };
            SocketAddr::new(ip, port)
        })
    }

    prop_compose! {
        fn bytes(max: usize)(v in prop::collection::vec(any::<u8>(), 0..max)) -> Vec<u8> { v }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            born_host in address(), store_host in address(),
            body in bytes(300), topic in bytes(200), properties in bytes(300),
            queue_id: i32, flag: i32, times: i32, prepared: i64,
            stamps: [i64; 4], rest in bytes(20),
        ) {
            let parts = Parts {
                queue_id, flag, sys_flag: sys_flag::COMPRESSED, born_timestamp: stamps[3],
                born_host, store_host, reconsume_times: times, prepared_offset: prepared,
                body: &body, body_crc: body_crc(&body), topic: &topic, properties: &properties,
            };
            let stamp = Stamp {
                queue_offset: stamps[0], physical_offset: stamps[1], store_timestamp: stamps[2],
            };
            let mut out = Vec::new();
            parts.write(&stamp, |piece| out.extend_from_slice(piece));
            prop_assert_eq!(out.len(), parts.record_len());
            for cut in 0..out.len() {
                prop_assert!(Record::parse(&out[..cut]).is_err());
            }
            let len = out.len();
            out.extend_from_slice(&rest);
            let record = Record::parse(&out).unwrap();
            prop_assert_eq!(record.bytes().len(), len);
            prop_assert!(record.verify().is_ok());
            prop_assert_eq!(record.body(), &body[..]);
            prop_assert_eq!(record.topic(), &topic[..]);
            prop_assert_eq!(record.properties(), &properties[..]);
            prop_assert_eq!(record.born_host(), born_host);
            prop_assert_eq!(record.store_host(), store_host);
            prop_assert_eq!(
                (record.queue_id(), record.flag(), record.reconsume_times()),
                (queue_id, flag, times)
            );
            prop_assert_eq!(record.prepared_offset(), prepared);
            prop_assert_eq!(record.born_timestamp(), stamps[3]);
            let read = Stamp {
                queue_offset: record.queue_offset(),
                physical_offset: record.physical_offset(),
                store_timestamp: record.store_timestamp(),
            };
            prop_assert_eq!(read, stamp);
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in bytes(400), magic: bool, size in 0i32..400) {
            if magic && bytes.len() > 8 {
                bytes[..4].copy_from_slice(&size.to_be_bytes());
                bytes[4..8].copy_from_slice(&MAGIC_V1.to_be_bytes());
            }
            if let Ok(record) = Record::parse(&bytes) {
                let _ = (record.verify(), record.born_host(), record.store_host(), record.topic());
            }
        }
    }
}
