//! The segments of a log that is being opened: read, written and cleared as one
//! run of bytes. Waits for the disk.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::edge::{Files, Mode, Patience, StoreFile};
use super::recovery::OpenError;
use super::{BLOCK_BYTES, POSITION_BITS, ShardId, segment};
use crate::wire::message::{BLANK_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Record};

/// Longest record, in bytes: the largest body that can be set, and room to spare.
pub const RECORD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Fewest bytes of the log that a message takes: those of one in a batch that is
/// stored as one record. So a queue offset is bounded by the place of its record.
pub const MESSAGE_BYTES_MIN: u64 = 22;

/// Bytes of the log that are read at once.
const WINDOW_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of a record up to the end of its physical offset.
const HEAD_BYTES: usize = 36;

/// What a device writes as a whole or not at all, in bytes.
const SECTOR_BYTES: u64 = 512;

/// The segment files of a shard: adjoining, of one size.
pub struct Segments<'a> {
    pub files: &'a dyn Files,
    dir: &'a Path,
    shard: ShardId,
    bytes: u64,
    positions: Vec<u64>,
}

/// What lies at a place of the log.
pub enum Found<'a> {
    /// A whole record, and its bytes.
    Record(Record<'a>),
    /// The segment is full to its end.
    SegmentEnd,
    /// Nothing was written here.
    Clear,
    /// Something else: what is wrong with it.
    Damage(String),
}

/// Where a log ends.
pub struct LogEnd {
    /// Position behind the last record.
    pub position: u64,
    /// What is there, where it is not clear space.
    pub fault: Option<String>,
}

impl<'a> Segments<'a> {
    /// Lists the segments. A store keeps the segment size it was made with,
    /// whatever the setting says now; `bytes` is for one that has none.
    ///
    /// # Errors
    /// [`OpenError`]: a segment is missing, or a name is none.
    pub fn list(
        files: &'a dyn Files,
        dir: &'a Path,
        shard: ShardId,
        bytes: u64,
    ) -> Result<Segments<'a>, OpenError> {
        let mut segments = Segments {
            files,
            dir,
            shard,
            bytes,
            positions: segment::list(files, dir, shard)?,
        };
        match segments.positions[..] {
            [] => {}
            [first, second, ..] => {
                // Only the last one may be shorter than the others.
                let len = files.len(&segments.path(first))?;
                let whole = len > 0 && len % BLOCK_BYTES as u64 == 0;
                segments.bytes = if whole {
                    len.min(second - first)
                } else {
                    second - first
                };
            }
            [only] => {
                let len = files.len(&segments.path(only))?;
                if len > 0 && len % BLOCK_BYTES as u64 == 0 {
                    segments.bytes = len;
                }
            }
        }
        let bytes = segments.bytes;
        if bytes < BLOCK_BYTES as u64 || bytes % BLOCK_BYTES as u64 != 0 {
            return Err(OpenError::Damaged {
                path: segments.path(segments.positions[segments.positions.len() - 1]),
                byte: 0,
                reason: "the name is not that of a segment".to_owned(),
            });
        }
        for pair in segments.positions.windows(2) {
            if pair[1] - pair[0] != segments.bytes {
                return Err(OpenError::Damaged {
                    path: segments.path(pair[0] + segments.bytes),
                    byte: 0,
                    reason: "the segment is missing".to_owned(),
                });
            }
        }
        Ok(segments)
    }

    /// Makes the first segment of an empty store, and brings short ones (of a broker
    /// that grows its files as it writes) to their size, without taking blocks that
    /// may not be there.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn complete(&mut self) -> io::Result<()> {
        if self.positions.is_empty() {
            segment::create(self.files, self.dir, self.shard, 0, self.bytes)?;
            self.positions.push(0);
        }
        for &position in &self.positions {
            let path = self.path(position);
            if self.files.len(&path)? < self.bytes {
                self.files.open(&path, Mode::Write)?.set_len(self.bytes)?;
            }
        }
        Ok(())
    }

    /// Position of the oldest byte; 0 in an empty store.
    pub fn min(&self) -> u64 {
        self.positions.first().copied().unwrap_or(0)
    }

    /// Position behind the newest segment.
    pub fn end(&self) -> u64 {
        self.positions.last().map_or(0, |last| last + self.bytes)
    }

    /// Bytes of a segment.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Positions of the segments, ascending.
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Whether a segment that is there, or the next, begins or holds `position`.
    pub fn contains(&self, position: u64) -> bool {
        (self.min()..=self.end()).contains(&position)
    }

    /// Position of the segment that holds `position`.
    pub fn base(&self, position: u64) -> u64 {
        position - position % self.bytes
    }

    /// Path of a segment.
    pub fn path(&self, base: u64) -> PathBuf {
        segment::path(self.dir, self.shard, base)
    }

    /// The physical offset of a position.
    pub fn physical(&self, position: u64) -> u64 {
        u64::from(self.shard.0) << POSITION_BITS | position
    }

    fn open(&self, base: u64, mode: Mode) -> io::Result<Box<dyn StoreFile>> {
        self.files.open(&self.path(base), mode)
    }

    /// Writes bytes to the log, making segments where they are missing, and
    /// makes them durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&mut self, start: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (start, bytes);
        while !rest.is_empty() {
            let base = self.base(at);
            if base == self.end() {
                segment::create(self.files, self.dir, self.shard, base, self.bytes)?;
                self.positions.push(base);
            }
            let file = self.open(base, Mode::Write)?;
            // First of all, as this waits for writes of the killed process.
            let clear = (at - base).next_multiple_of(BLOCK_BYTES as u64);
            file.clear(clear, self.bytes)?;
            let len = rest.len().min((base + self.bytes - at) as usize);
            file.write_at(&rest[..len], at - base)?;
            file.sync()?;
            at += len as u64;
            rest = &rest[len..];
        }
        Ok(())
    }

    /// The `len` bytes at `position`, of one segment.
    ///
    /// # Errors
    /// Those of reading; a segment that ends early.
    pub fn read(&self, position: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if len > 0 {
            let base = self.base(position);
            let file = self.open(base, Mode::Read)?;
            let read = file.read_at(&mut bytes, position - base, Patience::Wait)?;
            if read < len {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!(
                        "{}: ends at byte {}",
                        self.path(base).display(),
                        position - base + read as u64
                    ),
                ));
            }
        }
        Ok(bytes)
    }

    /// Whether the log has these bytes at `start`, as far as its segments reach back.
    ///
    /// # Errors
    /// Those of reading.
    pub fn holds(&self, start: u64, bytes: &[u8]) -> io::Result<bool> {
        let skip = self.min().saturating_sub(start).min(bytes.len() as u64);
        let (mut at, mut rest) = (start + skip, &bytes[skip as usize..]);
        while !rest.is_empty() {
            let left = (self.base(at) + self.bytes - at) as usize;
            let (here, behind) = rest.split_at(left.min(rest.len()));
            if self.read(at, here.len())? != here {
                return Ok(false);
            }
            at += here.len() as u64;
            rest = behind;
        }
        Ok(true)
    }

    /// Whether the log has messages from `start` on that are not those of `bytes`, or lie
    /// behind them: another broker's. What `bytes` have, or a beginning of that, is what
    /// writes of a killed process leave.
    ///
    /// # Errors
    /// Those of reading.
    pub fn has_another(&self, start: u64, bytes: &[u8]) -> io::Result<bool> {
        let mut at = start;
        while at < self.end() {
            let base = self.base(at);
            let mut reader = self.reader(base)?;
            loop {
                let ours = bytes.get((at - start) as usize..).unwrap_or_default();
                match reader.at(at)? {
                    Found::Record(record) => {
                        let here = record.bytes();
                        let same = here.iter().zip(ours).take_while(|(a, b)| a == b).count();
                        if same < here.len() {
                            return Ok(ours.is_empty() || here[same..].iter().any(|&b| b != 0));
                        }
                        at += here.len() as u64;
                    }
                    Found::SegmentEnd => break,
                    Found::Clear | Found::Damage(_) => return Ok(false),
                }
            }
            if at < base + self.bytes {
                let ours = bytes.get((at - start) as usize..).unwrap_or_default();
                let blank = self.read(at, BLANK_BYTES)?;
                if !ours.starts_with(&blank) {
                    return Ok(true);
                }
            }
            at = base + self.bytes;
        }
        Ok(false)
    }

    /// Whether the message at `position`, of which the device had promised a part up to
    /// `promised`, ends behind that: it was never promised as a whole.
    ///
    /// # Errors
    /// Those of reading.
    pub fn is_half_promised(&self, position: u64, promised: u64) -> io::Result<bool> {
        let have = promised - position;
        if have < BLANK_BYTES as u64 {
            return Ok(true);
        }
        let base = self.base(position);
        let head_bytes = HEAD_BYTES.min((base + self.bytes - position) as usize);
        let head = self.read(position, head_bytes)?;
        let word = |i: usize| u32::from_be_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let size = u64::from(word(0));
        if !matches!(word(4), MAGIC_V1 | MAGIC_V2) || position + size <= promised {
            return Ok(false);
        }
        let physical = self.physical(position).to_be_bytes();
        Ok(size <= base + self.bytes - position
            && (have < HEAD_BYTES as u64 || head.get(28..36) == Some(&physical[..])))
    }

    /// Whether a record, a filler or clear space begins at `position`.
    ///
    /// # Errors
    /// Those of reading.
    pub fn is_boundary(&self, position: u64) -> io::Result<bool> {
        if position == self.end() {
            return Ok(true);
        }
        let mut reader = self.reader(self.base(position))?;
        Ok(!matches!(reader.at(position)?, Found::Damage(_)))
    }

    /// Reads the segment that begins at `base`.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn reader(&self, base: u64) -> io::Result<SegmentReader> {
        Ok(SegmentReader {
            file: self.open(base, Mode::Read)?,
            physical: self.physical(base),
            base,
            len: self.bytes,
            window_at: 0,
            window: Vec::new(),
        })
    }

    /// Hands out every record from `from` on, up to what is none. Behind `sure` a record
    /// may be torn, and is none then.
    ///
    /// # Errors
    /// Those of reading, and of `each`.
    pub fn walk(
        &self,
        from: u64,
        sure: u64,
        each: &mut dyn FnMut(&Record<'_>) -> io::Result<()>,
    ) -> io::Result<LogEnd> {
        let mut position = from;
        while position < self.end() {
            let base = self.base(position);
            let mut reader = self.reader(base)?;
            loop {
                let fault = match reader.at(position)? {
                    Found::Record(record) => {
                        let len = record.bytes().len() as u64;
                        if position + len <= sure {
                            each(&record)?;
                            position += len;
                            continue;
                        }
                        let parts = record.unvouched();
                        if !reader.is_torn(position, &parts)? {
                            if let Found::Record(record) = reader.at(position)? {
                                each(&record)?;
                            }
                            position += len;
                            continue;
                        }
                        Some("a message that was written in part".to_owned())
                    }
                    Found::SegmentEnd => break,
                    Found::Clear => None,
                    Found::Damage(fault) => Some(fault),
                };
                return Ok(LogEnd { position, fault });
            }
            position = base + self.bytes;
        }
        Ok(LogEnd {
            position,
            fault: None,
        })
    }

    /// First position at or behind `from`, in the segment of `from`, where a whole
    /// record of this place begins.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next_record(&self, from: u64) -> io::Result<Option<u64>> {
        let base = self.base(from);
        if base == self.end() {
            return Ok(None);
        }
        let mut reader = self.reader(base)?;
        let mut at = from;
        let end = base + self.bytes;
        while at < end {
            let len = WINDOW_BYTES.min((end - at) as usize);
            let window = self.read(at, len)?;
            for magic in [MAGIC_V1, MAGIC_V2] {
                let magic = magic.to_be_bytes();
                for hit in memchr::memmem::find_iter(&window, &magic) {
                    let Some(place) = (at + hit as u64).checked_sub(4).filter(|&p| p >= from)
                    else {
                        continue;
                    };
                    if matches!(reader.at(place)?, Found::Record(_)) {
                        return Ok(Some(place));
                    }
                }
            }
            if len < WINDOW_BYTES {
                break;
            }
            // The magic may lie across the edge.
            at += len as u64 - 7;
        }
        Ok(None)
    }

    /// Keeps a copy of what lies behind the end of the log in its segment, and
    /// returns where.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn set_aside(&self, end: u64) -> io::Result<PathBuf> {
        let base = self.base(end);
        let path = free_name(self.files, &self.dir.join(format!("damaged-{end}")))?;
        let copy = self.files.open(&path, Mode::Empty)?;
        let stop = base + self.bytes;
        let mut at = end;
        while at < stop {
            let len = WINDOW_BYTES.min((stop - at) as usize);
            copy.write_at(&self.read(at, len)?, at - end)?;
            at += len as u64;
        }
        copy.sync()?;
        Ok(path)
    }

    /// Clears the segment of `end` from there on.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn truncate(&self, end: u64) -> io::Result<()> {
        let base = self.base(end);
        if base == self.end() {
            return Ok(());
        }
        let file = self.open(base, Mode::Write)?;
        file.clear(end - base, self.bytes)?;
        file.sync()
    }

    /// Has the device promise the bytes from `from` to `to`.
    ///
    /// # Errors
    /// Those of the device.
    pub fn promise(&self, from: u64, to: u64) -> io::Result<()> {
        for &base in &self.positions {
            if base < to && base + self.bytes > from {
                self.open(base, Mode::Write)?.sync()?;
            }
        }
        Ok(())
    }

    /// Clears all that lies behind the end of the log (`all`: without looking whether
    /// it is clear) and has the device promise everything from `promised` on.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn settle(&self, promised: u64, end: u64, all: bool) -> io::Result<()> {
        for &base in self.positions.iter().rev() {
            if base + self.bytes <= promised.min(end) {
                break;
            }
            let file = self.open(base, Mode::Write)?;
            let from = end.saturating_sub(base).min(self.bytes);
            let block = from.next_multiple_of(BLOCK_BYTES as u64).min(self.bytes);
            // First of all, as this waits for writes of a killed process.
            if all || !is_clear(&*file, block, self.bytes)? {
                file.clear(block, self.bytes)?;
            }
            if from < block {
                file.write_at(&vec![0; (block - from) as usize], from)?;
            }
            file.sync()?;
        }
        Ok(())
    }
}

/// `path`, or the first of `path-2`, `path-3`, ... that is not there.
///
/// # Errors
/// Those of the file system.
pub fn free_name(files: &dyn Files, path: &Path) -> io::Result<PathBuf> {
    let mut free = path.to_owned();
    let mut number = 2;
    while files.exists(&free)? {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("-{number}"));
        free = PathBuf::from(name);
        number += 1;
    }
    Ok(free)
}

/// Whether the start of a range is clear. Enough where nothing was found behind
/// the checkpoint: the process before this one had cleared it, or never wrote it.
fn is_clear(file: &dyn StoreFile, from: u64, bytes: u64) -> io::Result<bool> {
    let mut probe = vec![0; (bytes - from).min(64 * 1024) as usize];
    let read = file.read_at(&mut probe, from, Patience::Wait)?;
    Ok(probe[..read].iter().all(|&byte| byte == 0))
}

/// Reads one segment, record by record, through a window.
pub struct SegmentReader {
    file: Box<dyn StoreFile>,
    physical: u64,
    base: u64,
    len: u64,
    /// Byte of the segment that the window begins at.
    window_at: u64,
    window: Vec<u8>,
}

impl SegmentReader {
    /// What lies at `position`, which is in this segment.
    ///
    /// # Errors
    /// Those of reading.
    pub fn at(&mut self, position: u64) -> io::Result<Found<'_>> {
        let at = position - self.base;
        let rest = self.len - at;
        if rest == 0 {
            return Ok(Found::SegmentEnd);
        }
        if rest < BLANK_BYTES as u64 {
            return Ok(Found::Damage("no filler ends the segment".to_owned()));
        }
        let head = self.bytes(at, BLANK_BYTES)?;
        let word = |i: usize| u32::from_be_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let (size, magic) = (word(0), word(4));
        if magic == MAGIC_BLANK && u64::from(size) == rest {
            return Ok(Found::SegmentEnd);
        }
        if size == 0 && magic == 0 {
            return Ok(Found::Clear);
        }
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return Ok(Found::Damage(format!("no message: magic {magic:#010x}")));
        }
        if u64::from(size) > rest || size as usize > RECORD_BYTES_MAX {
            return Ok(Found::Damage(format!("a message of {size} bytes")));
        }
        // Looked at before the whole of it is read: a body may be full of magics.
        let physical = self.physical + at;
        let head = self.bytes(at, (size as usize).min(HEAD_BYTES))?;
        if head.get(28..36) != Some(&physical.to_be_bytes()[..]) {
            return Ok(Found::Damage("the message of another place".to_owned()));
        }
        let bytes = self.bytes(at, size as usize)?;
        match Record::parse(bytes).and_then(|r| r.verify().map(|()| r)) {
            Ok(record) => Ok(Found::Record(record)),
            Err(fault) => Ok(Found::Damage(fault.to_string())),
        }
    }

    /// Whether a sector that holds some of `parts`, bytes of the record at `position`,
    /// was never written: it is clear from its start to its end. Only the body of a
    /// record has a checksum, so that this is how a record shows that the device was
    /// stopped while it wrote it.
    ///
    /// # Errors
    /// Those of reading.
    pub fn is_torn(&mut self, position: u64, parts: &[Range<usize>]) -> io::Result<bool> {
        let start = position - self.base;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let last = (start + part.end as u64 - 1) / SECTOR_BYTES;
            for sector in (start + part.start as u64) / SECTOR_BYTES..=last {
                let at = sector * SECTOR_BYTES;
                let len = SECTOR_BYTES.min(self.len - at) as usize;
                if self.bytes(at, len)?.iter().all(|&byte| byte == 0) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// `len` bytes of the segment at `at`, zeros behind the file's end.
    fn bytes(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let have = self.window_at..self.window_at + self.window.len() as u64;
        if at < have.start || at + len as u64 > have.end {
            let want = len.max(WINDOW_BYTES).min((self.len - at) as usize);
            self.window.clear();
            self.window.resize(want, 0);
            self.file.read_at(&mut self.window, at, Patience::Wait)?;
            self.window_at = at;
        }
        let skip = (at - self.window_at) as usize;
        Ok(&self.window[skip..skip + len])
    }
}
