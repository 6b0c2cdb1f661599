//! The checkpoint file: from where on a restart must look at the log again.
//!
//! The first 40 bytes are RocketMQ's (`StoreCheckpoint`); RingMQ's own numbers
//! lie in the second half of the file, where RocketMQ reads nothing:
//!
//! | at | width | field |
//! | --- | --- | --- |
//! | 2048 | 8 | magic `RINGMQCP` |
//! | 2056 | 16 | boot id |
//! | 2072 | u64 | position up to which the queue files were written in that boot |
//! | 2080 | u64 | position up to which they were synced |
//! | 2088 | u64 | entries in front of the first position |
//! | 2096 | u64 | entries in front of the second |
//! | 2104 | u64 | position up to which the device has promised the log |
//! | 2112 | i64 | the timestamp of the first 40 bytes: another one is another broker's |
//! | 2120 | u64 | starts |
//! | 2128 | u64 ×3 | what the index files held with the first position: position, file, count |
//! | 2152 | u64 ×3 | what they held with the second |
//! | 2176 | u32 | CRC-32 of bytes 2048..2176 |

use std::io;
use std::path::Path;

use super::edge::{Files, Mode};

const FILE_BYTES: usize = 4096;
const AT_OWN: usize = 2048;
const OWN_BYTES: usize = 128;

/// What RocketMQ's timestamps may be ahead of what they vouch for, ms.
/// (`StoreCheckpoint.getMinTimestamp`)
const FOREIGN_SLACK_MS: i64 = 3000;
const MAGIC: &[u8; 8] = b"RINGMQCP";

/// A position of the log and the entries that queue files hold for it: a queue
/// file that is gone or cut shows in their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vouched {
    /// Position in the log.
    pub position: u64,
    /// Sum over all queues of the offset behind the last entry in front of it.
    pub entries: u64,
    /// What the index files hold, of records in front of it.
    pub index: IndexMark,
}

/// How far the index files reach: all keys of records in front of `position` are in
/// them. All zero where nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexMark {
    /// Position in the log.
    pub position: u64,
    /// The newest file's name; 0 where there is none.
    pub file: u64,
    /// Its entries, the unused one at its start counted.
    pub count: u64,
}

impl IndexMark {
    /// The mark where it says something.
    pub fn known(self) -> Option<IndexMark> {
        (self != IndexMark::default()).then_some(self)
    }
}

/// What a checkpoint says of the index files that a process before left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexVouched {
    /// What they hold; `None`: nothing is known.
    pub mark: Option<IndexMark>,
    /// What they hold whatever happens, as in a checkpoint.
    pub synced: IndexMark,
    /// Whether their pages are as that process left them, and no entry is of a record
    /// that the log lost before another process saw it.
    pub intact: bool,
}

/// How far the log and the files derived from it reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// What queue files hold as long as the machine does not lose power.
    pub written: Vouched,
    /// What they hold whatever happens.
    pub synced: Vouched,
    /// Position up to which the device has promised the log.
    pub durable: u64,
    /// Most that the sum over all queues of the offsets that their files begin at may
    /// be: it is written before files are removed. Another one that is gone shows.
    pub starts: u64,
    /// Store time of the newest message on the device, ms since 1970.
    pub message_timestamp: i64,
}

/// What a checkpoint file says. Nothing in it is believed that is not whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    own: Option<(Checkpoint, [u8; 16])>,
    foreign: Option<i64>,
    is_there: bool,
}

impl Stored {
    /// Reads the file at `path`; a missing or damaged one says nothing.
    ///
    /// # Errors
    /// Those of reading.
    pub fn load(files: &dyn Files, path: &Path) -> io::Result<Stored> {
        let bytes = files.read_if_there(path)?.unwrap_or_default();
        let own = own_part(&bytes);
        let time = |at: usize| -> Option<i64> {
            Some(i64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let foreign = match (time(0), time(8)) {
            // A broker that ran for less than a minute leaves no time of its queues.
            (Some(log), Some(queues)) if log > 0 && queues >= 0 => {
                let ours = own.is_some_and(|(own, _)| {
                    own.message_timestamp == log && own.message_timestamp == queues
                });
                (!ours).then_some(log.min(queues) - FOREIGN_SLACK_MS)
            }
            _ => None,
        };
        Ok(Stored {
            own,
            foreign,
            is_there: !bytes.is_empty(),
        })
    }

    /// What queue files hold after a restart in boot `boot_id`. `proven` is the
    /// position up to which this boot's log is known to be whole: what was written,
    /// but not synced, counts only below it.
    pub fn vouched(&self, boot_id: &[u8; 16], proven: u64) -> Vouched {
        match self.own {
            Some((own, boot)) if boot == *boot_id && own.written.position <= proven => own.written,
            Some((own, _)) => own.synced,
            None => Vouched::default(),
        }
    }

    /// What index files hold after a restart in boot `boot_id`. `proven` is as with
    /// [`Stored::vouched`]; the log ends at `end`. A process before that did not come so
    /// far as to look at the files vouches for what was synced, no more.
    pub fn index(
        &self,
        boot_id: &[u8; 16],
        after_crash: bool,
        proven: u64,
        end: u64,
    ) -> IndexVouched {
        let Some((own, boot)) = self.own.filter(|_| self.foreign.is_none()) else {
            return IndexVouched {
                intact: !after_crash,
                ..IndexVouched::default()
            };
        };
        // Of a log that lost its end entries may stay that its new end makes look true.
        let whole = !after_crash || (boot == *boot_id && own.written.position <= proven);
        let synced = own.synced.index.known().filter(|m| m.position <= end);
        let written = own.written.index.known().filter(|_| whole);
        IndexVouched {
            mark: written.or(synced),
            synced: synced.unwrap_or_default(),
            intact: written.is_some(),
        }
    }

    /// What the checkpoint must say from now on, where it speaks of this boot's log and
    /// more of that was written than is `proven` to be left: only what was synced.
    pub fn without_written(&self, boot_id: &[u8; 16], proven: u64) -> Option<Checkpoint> {
        let (own, _) = self.own.filter(|(own, boot)| {
            self.foreign.is_none() && boot == boot_id && own.written.position > proven
        })?;
        let mut written = own.synced;
        written.index = IndexMark::default();
        Some(Checkpoint { written, ..own })
    }

    /// What queue files hold whatever happened.
    pub fn synced(&self) -> Vouched {
        self.own.map_or(Vouched::default(), |(own, _)| own.synced)
    }

    /// Position up to which the device had promised the log, at least.
    pub fn durable(&self) -> u64 {
        self.own.map_or(0, |(own, _)| own.durable)
    }

    /// Most that the offsets sum up to that queue files begin at.
    pub fn starts(&self) -> u64 {
        self.own.map_or(0, |(own, _)| own.starts)
    }

    /// Where another broker wrote the file last: store time up to which its queue
    /// files hold everything whatever happened, ms since 1970; negative where it
    /// does not say.
    pub fn foreign(&self) -> Option<i64> {
        self.foreign
    }

    /// Who wrote the file last, for the log.
    pub fn left_by(&self) -> &'static str {
        match self {
            Stored {
                is_there: false, ..
            } => "nobody",
            Stored {
                own: Some(_),
                foreign: None,
                ..
            } => "RingMQ",
            _ => "another broker",
        }
    }

    /// Whether the file speaks of a log longer than `end`.
    pub fn is_beyond(&self, end: u64) -> bool {
        self.own.is_some_and(|(own, _)| {
            own.written
                .position
                .max(own.synced.position)
                .max(own.durable)
                > end
        })
    }
}

fn own_part(bytes: &[u8]) -> Option<(Checkpoint, [u8; 16])> {
    let own = bytes.get(AT_OWN..AT_OWN + OWN_BYTES + 4)?;
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_be_bytes(own.get(at..at + 8)?.try_into().ok()?))
    };
    let mark = |at: usize| -> Option<IndexMark> {
        Some(IndexMark {
            position: number(at)?,
            file: number(at + 8)?,
            count: number(at + 16)?,
        })
    };
    let crc = u32::from_be_bytes(own[OWN_BYTES..].try_into().ok()?);
    if !own.starts_with(MAGIC) || crc != crc32fast::hash(&own[..OWN_BYTES]) {
        return None;
    }
    let checkpoint = Checkpoint {
        written: Vouched {
            position: number(24)?,
            entries: number(40)?,
            index: mark(80)?,
        },
        synced: Vouched {
            position: number(32)?,
            entries: number(48)?,
            index: mark(104)?,
        },
        durable: number(56)?,
        starts: number(72)?,
        message_timestamp: number(64)? as i64,
    };
    Some((checkpoint, own[8..24].try_into().ok()?))
}

impl Checkpoint {
    fn to_bytes(self, boot_id: &[u8; 16]) -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES];
        for at in [0, 8, 16] {
            bytes[at..at + 8].copy_from_slice(&self.message_timestamp.to_be_bytes());
        }
        let own = &mut bytes[AT_OWN..];
        own[..8].copy_from_slice(MAGIC);
        own[8..24].copy_from_slice(boot_id);
        let numbers = [
            self.written.position,
            self.synced.position,
            self.written.entries,
            self.synced.entries,
            self.durable,
            self.message_timestamp as u64,
            self.starts,
            self.written.index.position,
            self.written.index.file,
            self.written.index.count,
            self.synced.index.position,
            self.synced.index.file,
            self.synced.index.count,
        ];
        for (slot, number) in own[24..].chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_be_bytes());
        }
        let crc = crc32fast::hash(&own[..OWN_BYTES]);
        own[OWN_BYTES..OWN_BYTES + 4].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Writes the checkpoint; `sync` makes it durable.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub fn save(
        self,
        files: &dyn Files,
        path: &Path,
        boot_id: &[u8; 16],
        sync: bool,
    ) -> io::Result<()> {
        let file = files.open(path, Mode::Create)?;
        file.write_at(&self.to_bytes(boot_id), 0)?;
        if sync { file.sync() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::edge::Disk;

    #[test]
    fn what_was_not_synced_counts_only_in_the_same_boot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let (boot, other) = ([1; 16], [2; 16]);
        let load = || Stored::load(&Disk, &path).unwrap();
        assert_eq!(load(), Stored::default());
        assert_eq!(load().left_by(), "nobody");
        let vouched = |position| Vouched {
            position,
            entries: position / 10,
            index: IndexMark {
                position: position - 1,
                file: 20_261_129_000_000_000 + position,
                count: position / 5,
            },
        };
        let checkpoint = Checkpoint {
            written: vouched(900),
            synced: vouched(700),
            durable: 800,
            starts: 7,
            message_timestamp: 5,
        };
        checkpoint.save(&Disk, &path, &boot, true).unwrap();
        assert_eq!(load().vouched(&boot, 900), vouched(900));
        assert_eq!(load().vouched(&boot, 899), vouched(700));
        assert_eq!(load().vouched(&other, 900), vouched(700));
        let synced = vouched(700).index;
        let all = IndexVouched {
            mark: Some(vouched(900).index),
            synced,
            intact: true,
        };
        let safe = IndexVouched {
            mark: Some(synced),
            intact: false,
            ..all
        };
        assert_eq!(load().index(&boot, true, 900, 900), all);
        assert_eq!(load().index(&boot, true, 899, 899), safe);
        assert_eq!(load().index(&other, true, 900, 900), safe);
        assert_eq!(load().index(&other, false, 0, 900), all);
        let nothing = IndexVouched::default();
        assert_eq!(load().index(&other, true, 0, 698), nothing);
        assert_eq!(load().without_written(&boot, 900), None);
        assert_eq!(load().without_written(&other, 0), None);
        let less = load().without_written(&boot, 899).unwrap();
        assert_eq!(less.written.position, 700);
        assert_eq!(less.written.index, IndexMark::default());
        assert_eq!((less.synced, less.starts), (vouched(700), 7));
        assert_eq!((load().durable(), load().foreign()), (800, None));
        assert_eq!(load().left_by(), "RingMQ");
        assert!(load().is_beyond(899) && !load().is_beyond(900));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), FILE_BYTES);
        let mut damaged = bytes.clone();
        damaged[AT_OWN + 30] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(load().vouched(&boot, 900), Vouched::default());
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(load().vouched(&boot, 900), Vouched::default());
        assert_eq!((load().durable(), load().foreign()), (0, None));
        // Another broker wrote its times into the file.
        let mut taken = bytes;
        taken[..8].copy_from_slice(&90_000i64.to_be_bytes());
        taken[8..16].copy_from_slice(&80_000i64.to_be_bytes());
        std::fs::write(&path, &taken).unwrap();
        assert_eq!(load().foreign(), Some(77_000));
        assert_eq!(load().synced(), vouched(700));
        assert_eq!(load().left_by(), "another broker");
        assert_eq!(load().index(&boot, true, 900, 900), nothing);
        let left = IndexVouched {
            intact: true,
            ..nothing
        };
        assert_eq!(load().index(&boot, false, 900, 900), left);
        // One that had no time to write that of its queues.
        taken[8..16].fill(0);
        std::fs::write(&path, taken).unwrap();
        assert_eq!(load().foreign(), Some(-FOREIGN_SLACK_MS));
    }
}
