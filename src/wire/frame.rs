//! The frame: `length i32 | serialize type u8, header length u24 | header | body`.
//!
//! Source of the rules: `NettyDecoder`, `RemotingCommand.decode`.

use std::fmt;

/// Largest accepted value of the length field, in bytes
/// (`com.rocketmq.remoting.frameMaxLength`).
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes in front of the header: the length field and the header-length field.
pub const PREFIX_BYTES: usize = 8;

/// How the header of a frame is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Serialize {
    /// A JSON object, the default of every official client.
    Json,
    /// RocketMQ's own binary layout (`RocketMQSerializable`).
    Binary,
}

impl Serialize {
    /// The byte that stands for this kind in a frame.
    pub const fn type_byte(self) -> u8 {
        match self {
            Serialize::Json => 0,
            Serialize::Binary => 1,
        }
    }
}

/// One frame, borrowed from the buffer it was read into.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// How `header` is written.
    pub serialize: Serialize,
    /// The header bytes.
    pub header: &'a [u8],
    /// The body bytes; empty where the frame has none.
    pub body: &'a [u8],
}

/// What [`split`] found at the start of a buffer.
#[derive(Debug)]
pub enum Split<'a> {
    /// A whole frame, and the number of bytes it takes.
    Frame(Frame<'a>, usize),
    /// More bytes are needed: the frame takes this many in all, as far as is known.
    Incomplete(usize),
}

/// Why a buffer cannot be a frame. The connection it came from is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The length field is negative, below 4 or above [`FRAME_BYTES_MAX`].
    Length(i32),
    /// The first bytes are the start of an HTTP request or an HTTP/2 preface (gRPC).
    Http,
    /// The first byte is that of a TLS handshake.
    Tls,
    /// The serialize type is neither 0 nor 1.
    SerializeType(u8),
    /// The header is longer than the frame that holds it.
    HeaderLength {
        /// Length of the header that the frame names, in bytes.
        header: usize,
        /// Bytes of the frame that follow the header-length field.
        room: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length(n) => {
                write!(f, "frame length {n} is not within 4..={FRAME_BYTES_MAX}")
            }
            FrameError::Http => {
                f.write_str("looks like HTTP or gRPC; this port speaks RocketMQ remoting")
            }
            FrameError::Tls => f.write_str("looks like TLS; this port speaks plain remoting"),
            FrameError::SerializeType(t) => write!(f, "serialize type {t} is neither 0 nor 1"),
            FrameError::HeaderLength { header, room } => {
                write!(
                    f,
                    "header of {header} bytes in a frame with room for {room}"
                )
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// Looks for one frame at the start of `buf`.
///
/// The length fields are judged as soon as they are there, so that a peer that
/// speaks another protocol is found out before anything is buffered for it.
///
/// # Errors
/// [`FrameError`] when no continuation of `buf` can be a frame.
pub fn split(buf: &[u8]) -> Result<Split<'_>, FrameError> {
    let Some(length) = read_i32(buf, 0) else {
        return Ok(Split::Incomplete(PREFIX_BYTES));
    };
    if length < 4 || length as usize > FRAME_BYTES_MAX {
        return Err(match &buf[..4] {
            b"PRI " | b"GET " | b"POST" | b"PUT " | b"HEAD" | b"OPTI" | b"DELE" => FrameError::Http,
            [0x16, 0x03, ..] => FrameError::Tls,
            _ => FrameError::Length(length),
        });
    }
    let total = 4 + length as usize;
    let Some(mark) = read_i32(buf, 4) else {
        return Ok(Split::Incomplete(total));
    };
    let serialize = match (mark as u32 >> 24) as u8 {
        0 => Serialize::Json,
        1 => Serialize::Binary,
        other => return Err(FrameError::SerializeType(other)),
    };
    let header_len = (mark & 0x00ff_ffff) as usize;
    let room = total - PREFIX_BYTES;
    if header_len > room {
        return Err(FrameError::HeaderLength {
            header: header_len,
            room,
        });
    }
    if buf.len() < total {
        return Ok(Split::Incomplete(total));
    }
    let (header, body) = buf[PREFIX_BYTES..total].split_at(header_len);
    Ok(Split::Frame(
        Frame {
            serialize,
            header,
            body,
        },
        total,
    ))
}

fn read_i32(buf: &[u8], at: usize) -> Option<i32> {
    let bytes = buf.get(at..at + 4)?;
    Some(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Starts a frame in `out` and returns the place that [`finish`] needs.
pub fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    start
}

/// Fills in the lengths of the frame begun at `start`, whose header ends at the
/// end of `out` and whose body of `body_len` bytes is appended by the caller.
pub fn finish(out: &mut [u8], start: usize, serialize: Serialize, body_len: usize) {
    let header_len = out.len() - start - PREFIX_BYTES;
    let length = (4 + header_len + body_len) as u32;
    let mark = (u32::from(serialize.type_byte()) << 24) | header_len as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    out[start + 4..start + 8].copy_from_slice(&mark.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame_of(serialize: Serialize, header: &[u8], body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let start = begin(&mut out);
        out.extend_from_slice(header);
        finish(&mut out, start, serialize, body.len());
        out.extend_from_slice(body);
        out
    }

    proptest! {
        #[test]
        fn what_is_written_is_split_again(
            header in prop::collection::vec(any::<u8>(), 0..300),
            body in prop::collection::vec(any::<u8>(), 0..300),
            rest in prop::collection::vec(any::<u8>(), 0..30),
            binary: bool,
        ) {
            let serialize = if binary { Serialize::Binary } else { Serialize::Json };
            let mut bytes = frame_of(serialize, &header, &body);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert!(matches!(split(&bytes[..cut]), Ok(Split::Incomplete(n)) if n > cut));
            }
            bytes.extend_from_slice(&rest);
            let Ok(Split::Frame(frame, used)) = split(&bytes) else { panic!("no frame") };
            prop_assert_eq!(used, length);
            prop_assert_eq!(frame.serialize, serialize);
            prop_assert_eq!(frame.header, &header[..]);
            prop_assert_eq!(frame.body, &body[..]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = split(&bytes);
        }
    }

    #[test]
    fn bad_lengths_are_refused_before_anything_is_buffered() {
        for length in [-1, 0, 3, FRAME_BYTES_MAX as i32 + 1, i32::MAX, i32::MIN] {
            assert_eq!(
                split(&length.to_be_bytes()).unwrap_err(),
                FrameError::Length(length)
            );
        }
        let mut header_too_long = 8i32.to_be_bytes().to_vec();
        header_too_long.extend_from_slice(&5i32.to_be_bytes());
        assert_eq!(
            split(&header_too_long).unwrap_err(),
            FrameError::HeaderLength { header: 5, room: 4 }
        );
        assert_eq!(
            split(&[0, 0, 0, 8, 2, 0, 0, 0]).unwrap_err(),
            FrameError::SerializeType(2)
        );
    }

    #[test]
    fn other_protocols_are_recognised() {
        assert_eq!(split(b"PRI * HTTP/2.0").unwrap_err(), FrameError::Http);
        assert_eq!(split(b"GET / HTTP/1.1").unwrap_err(), FrameError::Http);
        assert_eq!(split(&[0x16, 3, 1, 2, 0]).unwrap_err(), FrameError::Tls);
    }
}
