//! The stamp at the head of each body: which message it is, and a checksum of all of it.
//!
//! | at | width | field |
//! | --- | --- | --- |
//! | 0 | u32 | run |
//! | 4 | u32 | producer |
//! | 8 | u32 | place |
//! | 12 | u32 | sequence |
//! | 16 | u32 | floor |
//! | 20 | u64 | due |
//! | 28 | u32 | CRC-32 of what follows the stamp, and of the stamp up to here |

use crc32fast::Hasher;

/// Size of a stamp, and so of the smallest body that can be verified.
pub const STAMP_BYTES: usize = 32;

/// Bytes of the stamp that its checksum covers.
const COVERED: usize = STAMP_BYTES - 4;

/// Which message a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The run that sent it: a random number.
    pub run: u32,
    /// The connection that sent it.
    pub producer: u32,
    /// The queue that it was sent to, as a number among all queues of the run.
    pub place: u32,
    /// Its number among the messages of this producer to this place.
    pub sequence: u32,
    /// Messages below this sequence had been answered when this one was sent.
    pub floor: u32,
    /// When it was to be sent: [`crate::bench::load::clock::now`] of the sender.
    pub due: u64,
}

impl Stamp {
    /// The bytes. `hasher` has seen what follows the stamp; without one there is no checksum.
    pub fn encode(&self, hasher: Option<Hasher>) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        let words = [
            self.run,
            self.producer,
            self.place,
            self.sequence,
            self.floor,
        ];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes[20..COVERED].copy_from_slice(&self.due.to_be_bytes());
        if let Some(mut hasher) = hasher {
            hasher.update(&bytes[..COVERED]);
            bytes[COVERED..].copy_from_slice(&hasher.finalize().to_be_bytes());
        }
        bytes
    }

    /// The stamp of a body, whether or not its checksum is right; `None` where the body
    /// has no room for one.
    pub fn peek(body: &[u8]) -> Option<Stamp> {
        let bytes = body.get(..STAMP_BYTES)?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Some(Stamp {
            run: word(0),
            producer: word(4),
            place: word(8),
            sequence: word(12),
            floor: word(16),
            due: u64::from(word(20)) << 32 | u64::from(word(24)),
        })
    }

    /// The stamp of a body that passes its checksum.
    pub fn decode(body: &[u8]) -> Option<Stamp> {
        let stamp = Stamp::peek(body)?;
        let (head, rest) = body.split_at(STAMP_BYTES);
        let mut hasher = Hasher::new();
        hasher.update(rest);
        hasher.update(&head[..COVERED]);
        (hasher.finalize().to_be_bytes() == head[COVERED..]).then_some(stamp)
    }
}
