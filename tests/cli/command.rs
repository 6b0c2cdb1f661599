//! The command as a child process, and what it says.

use crate::common::Server;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What came of a command.
pub struct Found {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Found {
    /// Goes on with a command that did what it should.
    #[track_caller]
    pub fn good(self) -> Found {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self
    }

    /// Goes on with a command that ended with this code and said this on standard error.
    #[track_caller]
    pub fn refused(self, code: i32, text: &str) -> Found {
        let (out, err) = (&self.stdout, &self.stderr);
        assert_eq!(self.code, code, "{out}{err}");
        assert!(err.contains(text), "{text:?} is not in {err}");
        assert!(!err.contains("panicked"), "{err}");
        self
    }

    /// Standard output has all of these.
    #[track_caller]
    pub fn shows(self, texts: &[&str]) -> Found {
        for text in texts {
            assert!(
                self.stdout.contains(text),
                "{text:?} is not in\n{}",
                self.stdout
            );
        }
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// `ringmq` with the words of a line, asking a nameserver.
pub fn prepare(nameserver: SocketAddr, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
    command
        .args(line.split(' '))
        .env("NAMESRV_ADDR", nameserver.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn found(output: std::process::Output) -> Found {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Found {
        code: output.status.code().expect("an exit code"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Runs `ringmq` with the words of a line, against a nameserver.
pub fn ask(nameserver: SocketAddr, line: &str) -> Found {
    found(
        prepare(nameserver, line)
            .output()
            .expect("the binary starts"),
    )
}

/// Runs `ringmq` with the words of a line.
pub fn run(server: &Server, line: &str) -> Found {
    ask(server.nameserver(), line)
}

/// Runs `ringmq admin`.
pub fn admin(server: &Server, line: &str) -> Found {
    run(server, &format!("admin {line}"))
}

/// Runs `ringmq admin` twice: the table must show all of these, and the JSON is returned.
#[track_caller]
pub fn both(server: &Server, line: &str, texts: &[&str]) -> Value {
    admin(server, line).good().shows(texts);
    admin(server, &format!("{line} --output json"))
        .good()
        .json()
}

/// Runs `ringmq` with an input.
pub fn fed(server: &Server, line: &str, input: &[u8]) -> Found {
    let mut child = prepare(server.nameserver(), line)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        // A command that has stopped reads no more.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    feeder.join().expect("fed");
    found(output)
}

/// Starts `ringmq`, to be watched.
pub fn start(server: &Server, line: &str) -> Child {
    prepare(server.nameserver(), line)
        .spawn()
        .expect("the binary starts")
}

/// Starts `ringmq` with an input that is written to while it runs.
pub fn open(server: &Server, line: &str) -> (Watched, ChildStdin) {
    let mut child = prepare(server.nameserver(), line)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let stdin = child.stdin.take().expect("piped");
    (Watched::of(child), stdin)
}

/// Waits for a started command.
pub fn end(child: Child) -> Found {
    found(child.wait_with_output().expect("it ends"))
}

/// A command while it runs, and what it has written so far. It ends with its watcher.
pub struct Watched {
    child: Child,
    stdout: Gathered,
    stderr: Gathered,
}

impl Watched {
    /// Watches a command that was started.
    pub fn of(mut child: Child) -> Watched {
        let stdout = gathered(child.stdout.take().expect("piped"));
        let stderr = gathered(child.stderr.take().expect("piped"));
        Watched {
            child,
            stdout,
            stderr,
        }
    }

    /// Lines of standard output.
    pub fn lines(&self) -> Vec<String> {
        self.stdout.lines.lock().unwrap().clone()
    }

    /// Waits until a line of standard output holds this.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.until(text, || self.lines().iter().any(|line| line.contains(text)));
    }

    /// Waits until standard error holds this.
    #[track_caller]
    pub fn says(&self, text: &str) {
        self.until(text, || self.errors().contains(text));
    }

    /// Everything on standard error.
    pub fn errors(&self) -> String {
        self.stderr.lines.lock().unwrap().join("\n")
    }

    #[track_caller]
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            let (out, err) = (self.lines().len(), self.errors());
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "no {what:?} within 60 s; {out} lines, and {err:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the child is not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits for its end, and for all that it has written: its exit code.
    #[track_caller]
    pub fn ended(&mut self, limit: Duration) -> Option<i32> {
        let began = Instant::now();
        loop {
            let is_read = self.stdout.reader.is_finished() && self.stderr.reader.is_finished();
            let status = self.child.try_wait().expect("a child");
            if let Some(status) = status.filter(|_| is_read) {
                return status.code();
            }
            let errors = self.errors();
            assert!(began.elapsed() < limit, "still running: {errors}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What comes out of a pipe, line by line.
struct Gathered {
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

fn gathered(from: impl Read + Send + 'static) -> Gathered {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            sink.lock().unwrap().push(line);
        }
    });
    Gathered { lines, reader }
}
