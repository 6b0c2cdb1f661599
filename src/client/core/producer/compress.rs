//! Compression of message bodies (`CompressorFactory`): zlib, LZ4 frames, Zstandard.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::client::settings::Compression;
use crate::wire::message::sys_flag;

/// Bits of the system flag that name the way of compression
/// (`MessageSysFlag.COMPRESSION_TYPE_COMPARATOR`).
pub const COMPRESSION_MASK: i32 = 0x700;

const LZ4: i32 = 0x100;
const ZSTD: i32 = 0x200;
const ZLIB: i32 = 0x300;

/// Largest body that is made of a compressed one, bytes. A message of 4 MiB that is all
/// zeros becomes a few KiB: the limit is what one message may cost its reader.
pub const DECOMPRESSED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Compresses a body; the bits of the system flag say how. `None` where nothing is to be
/// compressed, or it would not become smaller.
pub fn compress(body: &[u8], how: Compression, level: u32) -> Option<(Bytes, i32)> {
    let (packed, bits) = match how {
        Compression::None => return None,
        Compression::Zlib => {
            let room = Vec::with_capacity(body.len() / 2);
            let mut encoder = ZlibEncoder::new(room, flate2::Compression::new(level.min(9)));
            encoder.write_all(body).ok()?;
            (encoder.finish().ok()?, ZLIB)
        }
        Compression::Lz4 => {
            let room = Vec::with_capacity(body.len() / 2);
            let mut encoder = lz4_flex::frame::FrameEncoder::new(room);
            encoder.write_all(body).ok()?;
            (encoder.finish().ok()?, LZ4)
        }
        Compression::Zstd => (zstd::bulk::compress(body, level as i32).ok()?, ZSTD),
    };
    (packed.len() < body.len()).then(|| (packed.into(), sys_flag::COMPRESSED | bits))
}

/// Gets a body back, of at most `max` bytes. `flags` is the message's system flag.
///
/// # Errors
/// What is wrong with it.
pub fn decompress(body: &[u8], flags: i32, max: usize) -> Result<Bytes, &'static str> {
    match flags & COMPRESSION_MASK {
        // Old clients did not say how: there was but one way.
        0 | ZLIB => read_all(ZlibDecoder::new(body), max),
        LZ4 => read_all(lz4_flex::frame::FrameDecoder::new(body), max),
        ZSTD => match zstd::stream::read::Decoder::with_buffer(body) {
            Ok(decoder) => read_all(decoder, max),
            Err(_) => Err("zstd cannot be started"),
        },
        _ => Err("it is compressed in a way that is not known"),
    }
}

fn read_all(from: impl Read, max: usize) -> Result<Bytes, &'static str> {
    let mut out = Vec::new();
    from.take(max as u64 + 1)
        .read_to_end(&mut out)
        .map_err(|_| "it cannot be decompressed")?;
    if out.len() > max {
        return Err("it is larger than the limit once it is decompressed");
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WAYS: [Compression; 3] = [Compression::Zlib, Compression::Lz4, Compression::Zstd];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_is_compressed_is_got_back(
            words in prop::collection::vec("[a-c]{1,3}", 100..800), level in 0u32..10, way in 0..3usize,
        ) {
            let body = words.join(" ");
            let packed = compress(body.as_bytes(), WAYS[way], level);
            // Level 0 of zlib stores.
            prop_assume!(packed.is_some() || level == 0);
            if let Some((packed, flags)) = packed {
                let back = decompress(&packed, flags, body.len()).unwrap();
                prop_assert_eq!(back.as_ref(), body.as_bytes());
                prop_assert!(decompress(&packed, flags, body.len() - 1).is_err());
                let half = &packed[..packed.len() / 2];
                prop_assert!(decompress(half, flags, body.len()).is_err());
            }
        }

        #[test]
        fn garbage_is_an_error_or_some_bytes(body in prop::collection::vec(any::<u8>(), 0..200), flags: i32) {
            if let Ok(out) = decompress(&body, flags, 1_000) {
                prop_assert!(out.len() <= 1_000);
            }
        }
    }

    #[test]
    fn each_way_has_its_magic() {
        let body = [7u8; 10_000];
        let (zlib, flags) = compress(&body, Compression::Zlib, 5).unwrap();
        assert_eq!((zlib[0], flags), (0x78, 0x301));
        let (lz4, flags) = compress(&body, Compression::Lz4, 5).unwrap();
        assert_eq!((&lz4[..4], flags), (&[0x04, 0x22, 0x4D, 0x18][..], 0x101));
        let (zstd, flags) = compress(&body, Compression::Zstd, 5).unwrap();
        assert_eq!((&zstd[..4], flags), (&[0x28, 0xB5, 0x2F, 0xFD][..], 0x201));
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        let zeros = vec![0u8; 4 * 1024 * 1024];
        for way in WAYS {
            let (bomb, flags) = compress(&zeros, way, 9).unwrap();
            assert!(bomb.len() < 20_000, "{way:?}");
            assert!(decompress(&bomb, flags, 1_024).is_err(), "{way:?}");
        }
    }

    #[test]
    fn what_does_not_become_smaller_is_left_alone() {
        let noise: Vec<u8> = (0..5_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (n >> 3) as u8)
            .collect();
        let packed = compress(&noise, Compression::Lz4, 5);
        assert!(packed.is_none_or(|(packed, _)| packed.len() < noise.len()));
        assert!(compress(b"short", Compression::Zlib, 5).is_none());
    }
}
