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
//! | 2104 | u32 | CRC-32 of bytes 2048..2104 |

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::layout::sync_dir;

const FILE_BYTES: usize = 4096;
const AT_OWN: usize = 2048;
const OWN_BYTES: usize = 56;
const MAGIC: &[u8; 8] = b"RINGMQCP";

/// A position of the log and the entries that queue files hold for it: a queue
/// file that is gone or cut shows in their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vouched {
    /// Position in the log.
    pub position: u64,
    /// Sum over all queues of the offset behind the last entry in front of it.
    pub entries: u64,
}

/// How far the files derived from the log reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// What queue files hold as long as the machine does not lose power.
    pub written: Vouched,
    /// What they hold whatever happens.
    pub synced: Vouched,
    /// Store time of the newest message on the device, ms since 1970.
    pub message_timestamp: i64,
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
        let (written, synced) = (self.written, self.synced);
        own[24..32].copy_from_slice(&written.position.to_be_bytes());
        own[32..40].copy_from_slice(&synced.position.to_be_bytes());
        own[40..48].copy_from_slice(&written.entries.to_be_bytes());
        own[48..56].copy_from_slice(&synced.entries.to_be_bytes());
        let crc = crc32fast::hash(&own[..OWN_BYTES]);
        own[OWN_BYTES..OWN_BYTES + 4].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<(Checkpoint, [u8; 16])> {
        let own = bytes.get(AT_OWN..AT_OWN + OWN_BYTES + 4)?;
        let number = |at: usize| -> Option<u64> {
            Some(u64::from_be_bytes(own.get(at..at + 8)?.try_into().ok()?))
        };
        let crc = u32::from_be_bytes(own[OWN_BYTES..].try_into().ok()?);
        if !own.starts_with(MAGIC) || crc != crc32fast::hash(&own[..OWN_BYTES]) {
            return None;
        }
        let checkpoint = Checkpoint {
            written: Vouched {
                position: number(24)?,
                entries: number(40)?,
            },
            synced: Vouched {
                position: number(32)?,
                entries: number(48)?,
            },
            message_timestamp: i64::from_be_bytes(bytes[..8].try_into().ok()?),
        };
        Some((checkpoint, own[8..24].try_into().ok()?))
    }

    /// What queue files hold after a restart in boot `boot_id`; nothing without a
    /// usable file. `proven` is the position up to which this boot's log is
    /// known to be whole: what was written, but not synced, counts only below it.
    ///
    /// # Errors
    /// Those of reading; a missing or damaged file is not an error.
    pub fn load(path: &Path, boot_id: &[u8; 16], proven: u64) -> io::Result<Vouched> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vouched::default()),
            Err(error) => return Err(error),
        };
        Ok(match Checkpoint::from_bytes(&bytes) {
            Some((checkpoint, boot))
                if boot == *boot_id && checkpoint.written.position <= proven =>
            {
                checkpoint.written
            }
            Some((checkpoint, _)) => checkpoint.synced,
            None => Vouched::default(),
        })
    }

    /// What the file at `path` promises whatever happens.
    ///
    /// # Errors
    /// Those of reading; a missing or damaged file is not an error.
    pub fn load_synced(path: &Path) -> io::Result<Vouched> {
        const NO_BOOT: [u8; 16] = [0; 16];
        Checkpoint::load(path, &NO_BOOT, 0)
    }

    /// Forgets a checkpoint that speaks of a log longer than this one: it would be
    /// taken for true when the log has grown as long again.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn refuse_beyond(path: &Path, end: u64) -> io::Result<()> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let beyond = Checkpoint::from_bytes(&bytes).is_some_and(|(checkpoint, _)| {
            checkpoint.written.position.max(checkpoint.synced.position) > end
        });
        if beyond {
            std::fs::remove_file(path)?;
            sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        }
        Ok(())
    }

    /// Writes the checkpoint; `sync` makes it durable.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub fn save(self, path: &Path, boot_id: &[u8; 16], sync: bool) -> io::Result<()> {
        let save = || -> io::Result<()> {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            file.write_all_at(&self.to_bytes(boot_id), 0)?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        save().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_synced_counts_only_in_the_same_boot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let (boot, other) = ([1; 16], [2; 16]);
        let load = |boot, proven| Checkpoint::load(&path, boot, proven).unwrap();
        assert_eq!(load(&boot, 900), Vouched::default());
        let vouched = |position| Vouched {
            position,
            entries: position / 10,
        };
        let checkpoint = Checkpoint {
            written: vouched(900),
            synced: vouched(700),
            message_timestamp: 5,
        };
        checkpoint.save(&path, &boot, true).unwrap();
        assert_eq!(load(&boot, 900), vouched(900));
        assert_eq!(load(&boot, 899), vouched(700));
        assert_eq!(load(&other, 900), vouched(700));
        Checkpoint::refuse_beyond(&path, 900).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), FILE_BYTES);
        Checkpoint::refuse_beyond(&path, 899).unwrap();
        assert!(!path.exists());
        bytes[AT_OWN + 30] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(load(&boot, 900), Vouched::default());
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(load(&boot, 900), Vouched::default());
    }
}
