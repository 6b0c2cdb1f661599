//! Keys entered from the log: after a start, a damaged file, or a full disk.

use std::io;

use super::super::dispatch::{Acted, index_keys};
use super::super::edge::Files;
use super::super::segments::{Found, Segments};
use super::file::BATCH_KEYS;
use super::set::READ_FAILURES_MAX;
use super::{IndexFiles, PendingKey};

/// Bytes of the log that one step reads, about.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

impl IndexFiles {
    /// Enters keys of records in front of `target`, a position up to which segments
    /// hold the log: a bounded step.
    ///
    /// # Errors
    /// Those of the file system; may be tried again.
    pub fn catch_up(&mut self, files: &dyn Files, target: u64) -> io::Result<()> {
        let (shard, bytes) = (self.shard, self.start.segment_bytes);
        let dir = self.shard_dir.clone();
        let segments = Segments::list(files, &dir, shard, bytes)
            .map_err(|error| io::Error::other(error.to_string()))?;
        if self.next < segments.min() {
            (self.next, self.begun) = (segments.min().min(target), None);
        }
        let (mut keys, mut at) = (Vec::new(), self.next);
        if let Err(error) = self.read_keys(&segments, target, &mut keys, &mut at) {
            if self.log_failures < READ_FAILURES_MAX {
                self.log_failures += 1;
                return Err(error);
            }
            tracing::error!(
                %shard, position = at, %error,
                "the log cannot be read here: the rest of its segment is not indexed again"
            );
            at = segments.base(at) + segments.bytes();
        }
        self.log_failures = 0;
        self.enter(files, [&keys[..]], at.min(target))
    }

    fn read_keys(
        &self,
        segments: &Segments<'_>,
        target: u64,
        keys: &mut Vec<PendingKey>,
        at: &mut u64,
    ) -> io::Result<()> {
        let stop = target.min(*at + STEP_BYTES);
        while *at < stop {
            let base = segments.base(*at);
            let next = base + segments.bytes();
            let mut reader = segments.reader(base)?;
            while *at < stop.min(next) && keys.len() < BATCH_KEYS {
                let found = reader.at(*at)?;
                // What this process appends may have reached the segments in part.
                let is_whole = match &found {
                    Found::Record(record) => *at + record.bytes().len() as u64 <= target,
                    Found::SegmentEnd => next <= target,
                    Found::Clear | Found::Damage(_) => false,
                };
                if *at >= self.start.end && !is_whole {
                    return Ok(());
                }
                match found {
                    Found::Record(record) => {
                        let physical = record.physical_offset();
                        let begun = self.begun.filter(|(begun, _)| *begun == physical);
                        let mut skip = begun.map_or(0, |(_, keys)| keys);
                        let timestamp = record.store_timestamp();
                        let (topic, properties) = (record.topic(), record.properties());
                        index_keys(topic, &Acted::of(properties), record.sys_flag(), |hash| {
                            if skip > 0 {
                                skip -= 1;
                                return;
                            }
                            keys.push(PendingKey {
                                hash,
                                physical,
                                timestamp,
                            });
                        });
                        *at += record.bytes().len() as u64;
                    }
                    Found::SegmentEnd => *at = next,
                    Found::Clear => *at = next,
                    Found::Damage(_) => *at = segments.next_record(*at + 1)?.unwrap_or(next),
                }
            }
            if keys.len() >= BATCH_KEYS {
                break;
            }
        }
        Ok(())
    }
}
