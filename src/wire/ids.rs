//! Message ids: the broker's offset id and the client's unique key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Longest offset id, in characters: that of an IPv6 host.
pub const OFFSET_ID_CHARS_MAX: usize = 56;

/// The digits of one offset message id, without allocation.
#[derive(Clone, Copy, Debug)]
pub struct OffsetId {
    digits: [u8; OFFSET_ID_CHARS_MAX],
    len: usize,
}

impl OffsetId {
    /// The id: upper-case hex of the store host's address, its port (i32) and the
    /// physical offset; 32 or 56 characters (`MessageDecoder.createMessageId`).
    pub fn new(host: SocketAddr, physical_offset: i64) -> OffsetId {
        let mut id = OffsetId {
            digits: [0; OFFSET_ID_CHARS_MAX],
            len: 0,
        };
        match host.ip() {
            IpAddr::V4(ip) => id.push(&ip.octets()),
            IpAddr::V6(ip) => id.push(&ip.octets()),
        }
        id.push(&i32::from(host.port()).to_be_bytes());
        id.push(&physical_offset.to_be_bytes());
        id
    }

    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.digits[self.len] = HEX[usize::from(byte >> 4)];
            self.digits[self.len + 1] = HEX[usize::from(byte & 15)];
            self.len += 2;
        }
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[..self.len]
    }
}

/// The 16 digits that end an offset id.
pub fn hex_digits(physical_offset: i64) -> [u8; 16] {
    let mut digits = [0; 16];
    for (pair, byte) in digits
        .chunks_exact_mut(2)
        .zip(physical_offset.to_be_bytes())
    {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    digits
}

/// The offset message id as a string; see [`OffsetId`].
pub fn offset_id(host: SocketAddr, physical_offset: i64) -> String {
    let id = OffsetId::new(host, physical_offset);
    id.as_bytes()
        .iter()
        .map(|&digit| char::from(digit))
        .collect()
}

/// Reads an offset message id back; `None` when it is not one.
pub fn parse_offset_id(id: &str) -> Option<(SocketAddr, i64)> {
    let mut bytes = [0u8; OFFSET_ID_CHARS_MAX / 2];
    let digits = id.as_bytes();
    if digits.len() != 32 && digits.len() != 56 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    let (ip, rest) = if digits.len() == 32 {
        let octets: [u8; 4] = bytes[..4].try_into().ok()?;
        (IpAddr::V4(Ipv4Addr::from(octets)), &bytes[4..16])
    } else {
        let octets: [u8; 16] = bytes[..16].try_into().ok()?;
        (IpAddr::V6(Ipv6Addr::from(octets)), &bytes[16..28])
    };
    let port = i32::from_be_bytes(rest[..4].try_into().ok()?);
    let offset = i64::from_be_bytes(rest[4..].try_into().ok()?);
    Some((SocketAddr::new(ip, u16::try_from(port).ok()?), offset))
}

/// Appends `bytes` as upper-case hex.
pub fn write_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_offset_id_names_its_host_and_offset(v6: bool, ip: [u8; 16], port: u16, offset: i64) {
            let ip = if v6 {
                IpAddr::from(ip)
            } else {
                IpAddr::from([ip[0], ip[1], ip[2], ip[3]])
            };
            let host = SocketAddr::new(ip, port);
            let id = offset_id(host, offset);
            prop_assert_eq!(id.len(), if v6 { 56 } else { 32 });
            prop_assert_eq!(parse_offset_id(&id), Some((host, offset)));
            prop_assert_eq!(parse_offset_id(&id.to_lowercase()), Some((host, offset)));
        }

        #[test]
        fn arbitrary_ids_never_panic(id in "\\PC{0,60}") {
            let _ = parse_offset_id(&id);
        }
    }

    #[test]
    fn an_id_as_java_writes_it() {
        let host = SocketAddr::from(([127, 0, 0, 1], 10911));
        assert_eq!(offset_id(host, 1234), "7F00000100002A9F00000000000004D2");
    }
}
