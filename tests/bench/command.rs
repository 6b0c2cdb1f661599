//! The command as a child process, and its result.

use crate::common::{Client, Pull, max_offset, records, unique};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a run of a second or two may take, with everything else that runs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What came of a run.
pub struct Found {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub report: Value,
}

impl Found {
    /// The one run of the report.
    pub fn run(&self) -> &Value {
        &self.report["runs"][0]
    }

    /// A number in it, by its path.
    #[track_caller]
    pub fn number(&self, path: &str) -> f64 {
        let value = self.run().pointer(path);
        let number = value.and_then(Value::as_f64);
        number.unwrap_or_else(|| panic!("no {path} in {}\n{}", self.run(), self.stderr))
    }

    /// Goes on with a run that went well.
    #[track_caller]
    pub fn good(self) -> Found {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        assert!(self.run()["error"].is_null(), "{}", self.run());
        self
    }

    /// Goes on with a run that failed with this text.
    #[track_caller]
    pub fn failed(self, text: &str) -> Found {
        assert_eq!(self.code, 1, "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.contains(text), "{}", self.stderr);
        let error = self.run()["error"].as_str().unwrap_or_default();
        assert!(error.contains(text), "{}", self.run());
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// Every message was found, and nothing else.
    #[track_caller]
    pub fn verified(&self, good: i64) {
        let verified = &self.run()["verified"];
        assert_eq!(verified["good"], good, "{verified}");
        for fault in ["missing", "doubled", "misplaced", "wrong", "misnumbered"] {
            assert_eq!(verified[fault], 0, "{verified}");
        }
    }
}

/// Runs `ringmq bench` with these options and --json.
pub fn bench(options: &[&str]) -> Found {
    let name = format!("bench-{}-{}.json", std::process::id(), unique("report"));
    let json = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_ringmq"))
        .arg("bench")
        .args(options)
        .arg("--json")
        .arg(&json)
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts");
    assert!(began.elapsed() < PATIENCE, "{options:?} took too long");
    let report = read(&json);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Found {
        code: output.status.code().expect("an exit code"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
        report,
    }
}

fn read(json: &PathBuf) -> Value {
    let bytes = std::fs::read(json).unwrap_or_default();
    let _ = std::fs::remove_file(json);
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Messages in a topic, as the broker counts them.
pub fn stored(client: &mut Client, topic: &str, queues: i32) -> i64 {
    (0..queues)
        .map(|queue| max_offset(client, topic, queue))
        .sum()
}

/// The first records of a topic's queue 0, that many. One answer may hold less than there
/// is: what is not in memory comes with the next.
pub fn first_records(client: &mut Client, topic: &str, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let have = records(&bytes).len();
        if have >= count {
            assert_eq!(have, count);
            return bytes;
        }
        let mut pull = Pull::new(topic, 0, have as i64);
        pull.max = (count - have) as i32;
        bytes.extend(client.call(pull).expect(0).body);
    }
}
