//! The command as a child process, and what it says.

use crate::common::Server;
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

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
fn prepare(nameserver: SocketAddr, line: &str) -> Command {
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

/// Waits for a started command.
pub fn end(child: Child) -> Found {
    found(child.wait_with_output().expect("it ends"))
}
