//! Runs the cases of one target: in bounded time and memory, and so that a
//! failing one can be run again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::alloc::peak_of;
use super::mutate::{Dice, mutate};

/// A case that takes longer does not end.
const CASE_SECONDS: u64 = 20;

/// What is thrown at bytes.
pub struct Target {
    pub name: &'static str,
    /// Folders of `corpus/` that it begins with.
    pub corpus: &'static [&'static str],
    /// Makes an input of a file of the corpus, where it is one for this target.
    pub prepare: fn(Vec<u8>) -> Option<Vec<u8>>,
    /// Words that inputs of this kind are made of.
    pub words: &'static [&'static [u8]],
    /// Makes an input pass the first checks again, now and then.
    pub repair: fn(&mut Vec<u8>, &mut Dice),
    /// Most bytes that a case may hold.
    pub bytes_max: usize,
    pub run: fn(&[u8]),
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Seconds for each target.
pub fn seconds() -> u64 {
    number("RINGMQ_FUZZ_SECONDS").unwrap_or(3)
}

fn seed() -> u64 {
    number("RINGMQ_FUZZ_SEED").unwrap_or(1)
}

/// The files of a corpus folder, in an order that is the same everywhere.
pub fn corpus(folder: &str) -> Vec<Vec<u8>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fuzz/corpus")
        .join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Runs a target on its corpus and then on changes of it.
pub fn fuzz(target: &Target) {
    if let Some(path) = std::env::var_os("RINGMQ_FUZZ_INPUT") {
        (target.run)(&std::fs::read(path).unwrap());
        return;
    }
    let read = target.corpus.iter().flat_map(|folder| corpus(folder));
    let corpus: Vec<_> = read.filter_map(|input| (target.prepare)(input)).collect();
    assert!(!corpus.is_empty());
    for (number, input) in corpus.iter().enumerate() {
        check(
            target.name,
            &format!("corpus-{number}"),
            target.bytes_max,
            input,
            || {
                (target.run)(input);
            },
        );
    }
    cases(target.name, |dice, watch| {
        let mut input = dice.pick(&corpus).clone();
        mutate(&mut input, &corpus, target.words, dice);
        (target.repair)(&mut input, dice);
        watch.set(&input);
        check(target.name, &watch.case(), target.bytes_max, &input, || {
            (target.run)(&input)
        });
    });
}

/// Runs `case` again and again until the time is over.
pub fn cases(name: &'static str, mut case: impl FnMut(&mut Dice, &Watch)) {
    let seed = seed();
    let watch = Watch::start(name, seed);
    let began = Instant::now();
    let only = number("RINGMQ_FUZZ_CASE");
    let mut number = only.unwrap_or(0);
    println!("{name}: seed {seed}");
    while began.elapsed() < Duration::from_secs(seconds()) {
        watch.begin(number);
        case(&mut Dice::new(seed, number), &watch);
        number += 1;
        if only.is_some() {
            break;
        }
    }
    watch.end();
    println!("{name}: {number} cases");
}

/// Runs one case; on a panic or too much memory, writes its input down and fails.
pub fn check(name: &str, case: &str, bytes_max: usize, input: &[u8], work: impl FnOnce()) {
    let (result, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(work)));
    if result.is_ok() && peak <= bytes_max {
        return;
    }
    let path = keep(name, case, input);
    let what = if result.is_ok() {
        format!("held {peak} bytes")
    } else {
        "panicked".to_owned()
    };
    panic!("{name}: case {case} {what}; its input: {}", path.display());
}

fn keep(name: &str, case: &str, input: &[u8]) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join(format!("{name}-{case}"));
    std::fs::write(&path, input).unwrap();
    path
}

struct Running {
    case: u64,
    since: Instant,
    input: Vec<u8>,
    over: bool,
}

/// Ends the process when a case does not end.
pub struct Watch {
    running: Arc<Mutex<Running>>,
    seed: u64,
}

impl Watch {
    fn start(name: &'static str, seed: u64) -> Watch {
        let running = Arc::new(Mutex::new(Running {
            case: 0,
            since: Instant::now(),
            input: Vec::new(),
            over: false,
        }));
        let seen = running.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let running = seen.lock().unwrap();
                if running.over {
                    return;
                }
                if running.since.elapsed() > Duration::from_secs(CASE_SECONDS) {
                    let case = format!("{seed}-{}", running.case);
                    let path = keep(name, &case, &running.input);
                    eprintln!(
                        "{name}: case {case} does not end; its input: {}",
                        path.display()
                    );
                    std::process::abort();
                }
            }
        });
        Watch { running, seed }
    }

    fn begin(&self, case: u64) {
        let mut running = self.running.lock().unwrap();
        (running.case, running.since) = (case, Instant::now());
    }

    fn end(&self) {
        self.running.lock().unwrap().over = true;
    }

    /// The input of the case that runs.
    pub fn set(&self, input: &[u8]) {
        let mut running = self.running.lock().unwrap();
        running.input.clear();
        running.input.extend_from_slice(input);
    }

    /// Seed and number of the case that runs.
    pub fn case(&self) -> String {
        format!("{}-{}", self.seed, self.running.lock().unwrap().case)
    }
}
