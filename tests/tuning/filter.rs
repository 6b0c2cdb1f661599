//! Filters of system calls, and what runs behind them.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest time that a start or a stop may take, with everything else that runs.
const LIMIT: Duration = Duration::from_secs(30);

/// What a rule compares an argument with: its number, the bits that count, their value.
pub type Condition = (u32, u64, u64);

/// What becomes of one system call, where all conditions hold.
pub struct Rule {
    pub number: u32,
    pub conditions: Vec<Condition>,
    pub result: u32,
}

/// It fails with this error.
pub fn refused(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// Rules as a program of the kernel's filter machine: the first that holds counts, and `otherwise`
/// where none does.
pub fn compile(rules: Vec<Rule>, otherwise: u32) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    /// Places in `struct seccomp_data`.
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const ARGUMENTS: u32 = 16;
    #[cfg(target_arch = "x86_64")]
    const HERE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const HERE: u32 = 0xc000_00b7;
    let step = |code: u32, value: u32, no: usize| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: no as u8,
        k: value,
    };
    let mut program = vec![
        step(LOAD, ARCHITECTURE, 0),
        step(EQUAL, HERE, 1),
        // Over the end of the process, to what follows.
        step(libc::BPF_JMP | libc::BPF_JA, 1, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0),
    ];
    for rule in rules {
        // From behind, as each comparison jumps over all that is left of the rule.
        let mut steps = vec![step(RETURN, rule.result, 0)];
        for (index, mask, value) in rule.conditions.into_iter().rev() {
            for high in [1, 0] {
                let part = |number: u64| (number >> (32 * high)) as u32;
                let left = steps.len();
                let place = ARGUMENTS + 8 * index + 4 * high;
                let load = [
                    step(LOAD, place, 0),
                    step(AND, part(mask), 0),
                    step(EQUAL, part(value), left),
                ];
                steps.splice(0..0, load);
            }
        }
        let left = steps.len();
        steps.splice(
            0..0,
            [step(LOAD, NUMBER, 0), step(EQUAL, rule.number, left)],
        );
        program.extend(steps);
    }
    program.push(step(RETURN, otherwise, 0));
    assert!(program.len() < 4096, "{} steps", program.len());
    program
}

/// Everything that the program starts from here on is behind the filter.
pub fn behind(mut command: Command, program: Vec<libc::sock_filter>) -> Command {
    let install = move || {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: prctl is async-signal-safe; `filter` and its program live through the call, in
        // memory that was taken before the fork.
        let done = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &filter,
                    0,
                    0,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(install) };
    command
}

/// Starts a server behind a filter.
pub fn filtered(command: Command, program: Vec<libc::sock_filter>) -> Child {
    behind(command, program)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// What a child writes to its standard error, as it comes.
pub struct Log {
    lines: Receiver<String>,
    pub text: String,
}

impl Log {
    pub fn of(child: &mut Child) -> Log {
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Log {
            lines,
            text: String::new(),
        }
    }

    /// Reads on until a line has `what`; false where the child ends before.
    pub fn reaches(&mut self, child: &mut Child, what: &str) -> bool {
        let began = Instant::now();
        loop {
            match self
                .lines
                .recv_timeout(LIMIT.saturating_sub(began.elapsed()))
            {
                Ok(line) => {
                    self.text += &line;
                    self.text.push('\n');
                    if line.contains(what) {
                        return true;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = child.kill();
                    panic!("no {what:?} in {LIMIT:?}:\n{}", self.text);
                }
            }
        }
    }
}

/// The exit code of a child that ends by itself, or was asked to.
pub fn ended(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code();
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asks a server to stop.
pub fn terminate(child: &Child) {
    // SAFETY: a plain system call; the child is not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
}
