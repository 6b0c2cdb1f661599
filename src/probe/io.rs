//! What the device below a folder does: small and large writes, promises in both ways, reads, by
//! one to eight at a time.
//!
//! Works on files that lose their name as soon as they are open: whatever ends the process,
//! their space is given back. Takes [`SPACE_BYTES_MAX`] at most.

use super::store::{DirectIo, direct_io, free_bytes};
use memmap2::MmapMut;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Most bytes that a measurement takes of the file system.
pub const SPACE_BYTES_MAX: u64 = (DEPTH_MAX as u64 + 1) * FILE_BYTES;

/// Free bytes without which nothing is measured: a store beside it must not run out of space.
pub const FREE_BYTES_MIN: u64 = 2 * SPACE_BYTES_MAX;

/// Most operations at a time, each by a thread of its own in a file of its own.
const DEPTH_MAX: usize = 8;

/// Bytes of one thread's file. The ninth is that of unwritten blocks.
const FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Writes of the log that are under way at a time where it writes the most: what comes during
/// one forms the next, and two overlap as soon as there is enough for both.
pub const LOG_WRITES: u32 = 2;

/// Bytes of the write that tells what a promise costs: that of a small message.
pub const SMALL_BYTES: u32 = 4 * KIB;

/// Bytes of the writes that a largest one is chosen from.
pub const LARGE_BYTES: [u32; 4] = [128 * KIB, 256 * KIB, 512 * KIB, MIB];

/// Fewest operations of a case that the choice rests on, whatever the time.
const DECIDING_OPERATIONS: usize = 16;

const _: () = assert!(SPACE_BYTES_MAX <= 256 << 20);

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A write without a promise; the device is asked for it once, at the end.
    Write,
    /// A write that completes when its bytes are kept (O_DSYNC; FUA where the device has it).
    WriteThrough,
    /// A write and a flush of the device's cache (fdatasync).
    WriteAndFlush,
    /// A read past the page cache: from a position by chance, or one after the other from 1 MiB on.
    Read,
}

/// What a write finds at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocks {
    /// Blocks that were written before, as those in front of the log are: zeros fill its
    /// segments ahead of it.
    Overwritten,
    /// Blocks that are reserved only, as those of a segment are where there was no time yet to
    /// fill it.
    Unwritten,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The operation.
    pub work: Work,
    /// What it finds.
    pub blocks: Blocks,
    /// Bytes of one operation.
    pub bytes: u32,
    /// Operations at a time.
    pub depth: u32,
}

impl Case {
    /// Whether the choice rests on it: a small write alone, and large ones as the log overlaps
    /// them, both to blocks that were written before.
    pub fn decides(&self) -> bool {
        let is_promise = matches!(self.work, Work::WriteThrough | Work::WriteAndFlush);
        let is_small = (self.bytes, self.depth) == (SMALL_BYTES, 1);
        let is_large = self.depth == LOG_WRITES && LARGE_BYTES.contains(&self.bytes);
        is_promise && self.blocks == Blocks::Overwritten && (is_small || is_large)
    }
}

/// What was found of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    #[serde(flatten)]
    pub case: Case,
    /// Operations done.
    pub operations: u64,
    /// Median time of one, in microseconds.
    pub p50_us: f64,
    /// Time of one that one in a hundred takes longer than, in microseconds.
    pub p99_us: f64,
    /// Operations a second, all threads together.
    pub per_second: f64,
    /// Bytes a second, all threads together, in MiB.
    pub mib_per_second: f64,
}

/// What was measured of a device.
#[derive(Debug)]
pub struct Measurement {
    /// Whether the page cache was passed by.
    pub direct: bool,
    /// One a case, in the order in which they were measured.
    pub figures: Vec<Figure>,
    /// Cases that were left out, as the device took too long for the others.
    pub left_out: usize,
}

/// All cases, those first that a choice rests on.
pub fn cases() -> Vec<Case> {
    let case = |work, blocks, bytes, depth| Case {
        work,
        blocks,
        bytes,
        depth,
    };
    let promises = [Work::WriteThrough, Work::WriteAndFlush];
    let mut all = Vec::new();
    all.extend(promises.map(|work| case(work, Blocks::Overwritten, SMALL_BYTES, 1)));
    for bytes in LARGE_BYTES {
        all.extend(promises.map(|work| case(work, Blocks::Overwritten, bytes, LOG_WRITES)));
    }
    all.extend(promises.map(|work| case(work, Blocks::Unwritten, SMALL_BYTES, 1)));
    for bytes in [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB] {
        all.extend(promises.map(|work| case(work, Blocks::Overwritten, bytes, 1)));
    }
    for bytes in [4 * KIB, 64 * KIB, 256 * KIB, MIB] {
        for depth in [1, 2, 4, 8] {
            all.push(case(Work::Write, Blocks::Overwritten, bytes, depth));
            let more = promises.map(|work| case(work, Blocks::Overwritten, bytes, depth));
            all.extend(more.iter().filter(|case| depth > 1 && !case.decides()));
        }
    }
    for (bytes, depth) in [
        (4 * KIB, 1),
        (4 * KIB, 8),
        (64 * KIB, 1),
        (MIB, 1),
        (MIB, 4),
    ] {
        all.push(case(Work::Read, Blocks::Overwritten, bytes, depth));
    }
    all
}

/// Measures the device below an existing folder, for about `time`; `tell` is given each figure
/// as it is found. On a device so slow that single operations outlast their share of the time,
/// what is not begun after twice the time is left out.
///
/// # Errors
/// Those of the file system, and too little free space.
pub fn measure(
    folder: &Path,
    time: Duration,
    mut tell: impl FnMut(&Figure),
) -> io::Result<Measurement> {
    enough_space(folder, free_bytes(folder)?)?;
    let began = Instant::now();
    let direct = matches!(direct_io(folder), DirectIo::Aligned(_));
    let files = (0..DEPTH_MAX)
        .map(|number| ProbeFile::make(folder, number, direct))
        .collect::<io::Result<Vec<_>>>()?;
    let region = fill(&files, time / 4)?;
    let cases = cases();
    let share = time.saturating_sub(began.elapsed()) / cases.len() as u32;
    let mut figures: Vec<Figure> = Vec::new();
    for case in &cases {
        if began.elapsed() > 2 * time && !case.decides() {
            break;
        }
        let fewest = if case.decides() {
            DECIDING_OPERATIONS
        } else {
            1
        };
        let figure = match case.blocks {
            Blocks::Overwritten => {
                let files = &files[..case.depth as usize];
                run(case, files, region, share, fewest)?
            }
            Blocks::Unwritten => {
                let file = ProbeFile::make(folder, DEPTH_MAX, direct)?;
                reserve(&file.plain, FILE_BYTES)?;
                run(case, &[file], FILE_BYTES, share, fewest)?
            }
        };
        tell(&figure);
        figures.push(figure);
    }
    Ok(Measurement {
        direct,
        left_out: cases.len() - figures.len(),
        figures,
    })
}

fn enough_space(folder: &Path, free: u64) -> io::Result<()> {
    if free >= FREE_BYTES_MIN {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        format!(
            "{}: {} MiB are free, and a measurement asks for {} MiB",
            folder.display(),
            free >> 20,
            FREE_BYTES_MIN >> 20
        ),
    ))
}

/// A file without a name, opened in both ways.
struct ProbeFile {
    plain: File,
    through: File,
}

impl ProbeFile {
    fn make(folder: &Path, number: usize, direct: bool) -> io::Result<ProbeFile> {
        let path = folder.join(format!(".io-probe-{}-{number}", std::process::id()));
        let direct = if direct { libc::O_DIRECT } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let made = options
            .clone()
            .create_new(true)
            .custom_flags(direct)
            .open(&path);
        let opened = made.and_then(|plain| {
            let through = options.custom_flags(direct | libc::O_DSYNC).open(&path);
            let _ = fs::remove_file(&path);
            Ok(ProbeFile {
                plain,
                through: through?,
            })
        });
        opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

/// Reserves a file's blocks without writing them; only sets its size where that is all there is.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: a plain system call on an open descriptor.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => file.set_len(bytes),
        _ => Err(error),
    }
}

/// Writes all files, a MiB of each in turn, until they are full or the time is over; returns
/// how many bytes of each can be used.
fn fill(files: &[ProbeFile], time: Duration) -> io::Result<u64> {
    let buffer = noise(MIB as usize)?;
    let began = Instant::now();
    let mut filled = 0;
    while filled < FILE_BYTES && (filled == 0 || began.elapsed() < time) {
        for file in files {
            file.plain.write_all_at(&buffer, filled)?;
        }
        filled += buffer.len() as u64;
    }
    for file in files {
        file.plain.sync_all()?;
    }
    Ok(filled)
}

/// Bytes that no device can store in less, at the begin of a page as direct I/O wants it.
pub(super) fn noise(bytes: usize) -> io::Result<MmapMut> {
    let mut buffer = MmapMut::map_anon(bytes)?;
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&dice.roll().to_le_bytes());
    }
    Ok(buffer)
}

/// xorshift64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Does a case: one thread a file, all at once, until the time is over. Unwritten blocks are
/// passed over once, others again and again.
fn run(
    case: &Case,
    files: &[ProbeFile],
    region: u64,
    time: Duration,
    fewest: usize,
) -> io::Result<Figure> {
    let start = Barrier::new(files.len());
    let outcome: Vec<io::Result<(Vec<Duration>, Duration)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .map(|file| {
                let start = &start;
                scope.spawn(move || {
                    let buffer = noise(case.bytes as usize);
                    start.wait();
                    operate(case, file, region, buffer?, time, fewest)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    let mut times = Vec::new();
    let mut longest = Duration::ZERO;
    for of_thread in outcome {
        let (of_thread, elapsed) = of_thread?;
        times.extend(of_thread);
        longest = longest.max(elapsed);
    }
    Ok(figure(*case, times, longest))
}

fn operate(
    case: &Case,
    file: &ProbeFile,
    region: u64,
    mut buffer: MmapMut,
    time: Duration,
    fewest: usize,
) -> io::Result<(Vec<Duration>, Duration)> {
    let bytes = u64::from(case.bytes);
    let places = region / bytes;
    let by_chance = case.work == Work::Read && case.bytes < MIB;
    let mut dice = Dice(u64::from(std::process::id()) << 32 | 1);
    let mut times = Vec::new();
    let began = Instant::now();
    let mut place = 0;
    while times.len() < fewest || began.elapsed() < time {
        if place == places && case.blocks == Blocks::Unwritten {
            break;
        }
        let at = bytes
            * if by_chance {
                dice.roll() % places
            } else {
                place % places
            };
        place += 1;
        let asked = Instant::now();
        match case.work {
            Work::Write => file.plain.write_all_at(&buffer, at)?,
            Work::WriteThrough => file.through.write_all_at(&buffer, at)?,
            Work::WriteAndFlush => {
                file.plain.write_all_at(&buffer, at)?;
                file.plain.sync_data()?;
            }
            Work::Read => file.plain.read_exact_at(&mut buffer, at)?,
        }
        times.push(asked.elapsed());
    }
    if case.work == Work::Write {
        // What is only in the device's cache is not yet written.
        file.plain.sync_data()?;
    }
    Ok((times, began.elapsed()))
}

fn figure(case: Case, mut times: Vec<Duration>, elapsed: Duration) -> Figure {
    times.sort_unstable();
    let at = |part: usize| {
        let time = times[(times.len() * part / 100).min(times.len() - 1)];
        round(time.as_secs_f64() * 1e6)
    };
    let per_second = times.len() as f64 / elapsed.as_secs_f64().max(1e-9);
    Figure {
        case,
        operations: times.len() as u64,
        p50_us: at(50),
        p99_us: at(99),
        per_second: round(per_second),
        mib_per_second: round(per_second * f64::from(case.bytes) / f64::from(MIB)),
    }
}

/// To one digit behind the point.
fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_measured_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut told = 0;
        let time = Duration::from_millis(300);
        let measured = measure(dir.path(), time, |_| told += 1).expect("a device");
        assert_eq!(told, measured.figures.len());
        assert_eq!(told + measured.left_out, cases().len());
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);
        for (figure, case) in measured.figures.iter().zip(cases()) {
            assert_eq!(figure.case, case);
            assert!(figure.operations >= u64::from(case.depth), "{figure:?}");
            assert!(
                figure.p50_us > 0.0 && figure.p99_us >= figure.p50_us,
                "{figure:?}"
            );
            assert!(figure.per_second > 0.0, "{figure:?}");
        }
    }

    #[test]
    fn what_the_choice_rests_on_comes_first_and_cases_are_told_apart() {
        let all = cases();
        let deciding = all.iter().filter(|case| case.decides()).count();
        assert_eq!(deciding, 2 + 2 * LARGE_BYTES.len());
        assert!(all[..deciding].iter().all(Case::decides));
        for (n, case) in all.iter().enumerate() {
            assert!(!all[..n].contains(case), "twice: {case:?}");
            assert!(case.depth as usize <= DEPTH_MAX);
            assert_eq!(FILE_BYTES % u64::from(case.bytes), 0);
        }
    }

    #[test]
    fn too_little_space_is_refused_with_both_figures() {
        let folder = Path::new("/store");
        assert!(enough_space(folder, FREE_BYTES_MIN).is_ok());
        let error = enough_space(folder, FREE_BYTES_MIN - 1).expect_err("refused");
        let text = error.to_string();
        assert!(text.starts_with("/store: 287 MiB are free"), "{text}");
        assert!(text.contains("asks for 288 MiB"), "{text}");
    }

    #[test]
    fn a_figure_has_the_median_and_the_slow_hundredth() {
        let case = cases()[0];
        let times = (1..=200).rev().map(Duration::from_micros).collect();
        let figure = figure(case, times, Duration::from_secs(2));
        assert_eq!((figure.p50_us, figure.p99_us), (101.0, 199.0));
        assert_eq!((figure.operations, figure.per_second), (200, 100.0));
        assert_eq!(figure.mib_per_second, 0.4);
    }
}
