//! Keys looked up in the files, from the newest to the oldest.

use std::io;

use super::super::edge::{Files, Mode};
use super::IndexFiles;
use super::file::{Entries, Newest, Sealed, chain_start};

/// Entries looked at in one step.
const STEPS_MAX: usize = 16 * 1024;

/// Hits of one step.
const HITS_MAX: usize = 64;

/// How far the clock may have been set back between two records, ms: an entry
/// older than that is the end of a search.
const CLOCK_SLACK_MS: i64 = 60_000;

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct KeyQuery {
    /// [`super::super::key_hash`] of the key.
    pub hash: i32,
    /// Earliest store time, ms since 1970.
    pub begin: i64,
    /// Latest store time.
    pub end: i64,
}

/// Where a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexCursor {
    file: u64,
    entry: u32,
}

impl IndexFiles {
    /// Adds to `hits` the physical offsets of records that may have the key and the
    /// time, newest first: a bounded step. Other keys have the same hash, and times
    /// are whole seconds here: the caller looks at the records. Returns where to go
    /// on, `None` at the end.
    pub fn find(
        &self,
        files: &dyn Files,
        query: &KeyQuery,
        from: Option<IndexCursor>,
        hits: &mut Vec<i64>,
    ) -> Option<IndexCursor> {
        let mut steps = 0;
        let newest = self
            .newest
            .iter()
            .map(|newest| (newest.sealed(), Some(newest)));
        let sealed = self
            .sealed
            .iter()
            .rev()
            .map(|sealed| (sealed.clone(), None));
        for (file, newest) in newest.chain(sealed) {
            let begin = file.header.begin_timestamp.saturating_sub(CLOCK_SLACK_MS);
            let end = file.header.end_timestamp.saturating_add(CLOCK_SLACK_MS);
            if from.is_some_and(|from| file.name > from.file)
                || begin > query.end
                || end < query.begin
            {
                continue;
            }
            let entry = from
                .filter(|from| from.file == file.name)
                .map(|from| from.entry);
            match self.find_in(files, query, (&file, newest), entry, &mut steps, hits) {
                Ok(None) => {}
                Ok(Some(entry)) => {
                    let file = file.name;
                    return Some(IndexCursor { file, entry });
                }
                Err(error) => tracing::warn!(%error, "an index file cannot be read"),
            }
        }
        None
    }

    fn find_in(
        &self,
        files: &dyn Files,
        query: &KeyQuery,
        (sealed, newest): (&Sealed, Option<&Newest>),
        entry: Option<u32>,
        steps: &mut usize,
        hits: &mut Vec<i64>,
    ) -> io::Result<Option<u32>> {
        let opened;
        let file = match newest {
            Some(newest) => newest.file(),
            None => {
                opened = files.open(&self.path(sealed.name), Mode::Read)?;
                &*opened
            }
        };
        let start = || match newest {
            Some(newest) => Ok(newest.chain_start(query.hash)),
            None => chain_start(file, self.geometry, query.hash, sealed.header.count),
        };
        let mut number = entry.map_or_else(start, Ok)?;
        let mut entries = Entries::new(file, self.geometry);
        let first = sealed.header.begin_timestamp;
        while number > 0 {
            if *steps >= STEPS_MAX || hits.len() >= HITS_MAX {
                return Ok(Some(number));
            }
            *steps += 1;
            let Some(entry) = entries.at(number)? else {
                break;
            };
            let is_hit = entry.hash == query.hash && entry.may_be_in(first, query.begin, query.end);
            if is_hit && hits.last() != Some(&entry.physical) {
                hits.push(entry.physical);
            }
            let latest = entry.times(first).1;
            // Chains lead to older entries; one that does not is damaged.
            if entry.prev >= number || latest.saturating_add(CLOCK_SLACK_MS) < query.begin {
                break;
            }
            number = entry.prev;
        }
        Ok(None)
    }
}
