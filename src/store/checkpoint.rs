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
//! | 2088 | u32 | CRC-32 of bytes 2048..2088 |

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILE_BYTES: usize = 4096;
const AT_OWN: usize = 2048;
const OWN_BYTES: usize = 40;
const MAGIC: &[u8; 8] = b"RINGMQCP";

/// How far the files derived from the log reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Position up to which queue files hold the entries, as long as the
    /// machine does not lose power.
    pub written: u64,
    /// Position up to which they hold them whatever happens. The end of a message.
    pub synced: u64,
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
        own[24..32].copy_from_slice(&self.written.to_be_bytes());
        own[32..40].copy_from_slice(&self.synced.to_be_bytes());
        let crc = crc32fast::hash(&own[..OWN_BYTES]);
        own[40..44].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<(Checkpoint, [u8; 16])> {
        let own = bytes.get(AT_OWN..AT_OWN + OWN_BYTES + 4)?;
        let number = |at: usize| -> Option<u64> {
            Some(u64::from_be_bytes(own.get(at..at + 8)?.try_into().ok()?))
        };
        let crc = u32::from_be_bytes(own[40..44].try_into().ok()?);
        if !own.starts_with(MAGIC) || crc != crc32fast::hash(&own[..OWN_BYTES]) {
            return None;
        }
        let checkpoint = Checkpoint {
            written: number(24)?,
            synced: number(32)?,
            message_timestamp: i64::from_be_bytes(bytes[..8].try_into().ok()?),
        };
        Some((checkpoint, own[8..24].try_into().ok()?))
    }

    /// Position from which the log must be read again after a restart in boot
    /// `boot_id`; 0 without a usable file.
    ///
    /// # Errors
    /// Those of reading; a missing or damaged file is not an error.
    pub fn load(path: &Path, boot_id: &[u8; 16]) -> io::Result<u64> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        Ok(match Checkpoint::from_bytes(&bytes) {
            Some((checkpoint, boot)) if boot == *boot_id => checkpoint.written,
            Some((checkpoint, _)) => checkpoint.synced,
            None => 0,
        })
    }

    /// Position that the file at `path` promises whatever happens.
    ///
    /// # Errors
    /// Those of reading; a missing or damaged file is not an error.
    pub fn load_synced(path: &Path) -> io::Result<u64> {
        const NO_BOOT: [u8; 16] = [0; 16];
        Checkpoint::load(path, &NO_BOOT)
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
        assert_eq!(Checkpoint::load(&path, &boot).unwrap(), 0);
        let checkpoint = Checkpoint {
            written: 900,
            synced: 700,
            message_timestamp: 5,
        };
        checkpoint.save(&path, &boot, true).unwrap();
        assert_eq!(Checkpoint::load(&path, &boot).unwrap(), 900);
        assert_eq!(Checkpoint::load(&path, &other).unwrap(), 700);
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), FILE_BYTES);
        bytes[AT_OWN + 30] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Checkpoint::load(&path, &boot).unwrap(), 0);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Checkpoint::load(&path, &boot).unwrap(), 0);
    }
}
