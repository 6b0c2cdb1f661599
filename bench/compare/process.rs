//! Child processes that never outlive a comparison, and folders that never outlive it either.
//!
//! A child leads a process group of its own, so that Ctrl-C reaches the harness alone, which then
//! ends the groups and removes the folders.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// Longest time that a process may take to end after SIGTERM.
const STOP: Duration = Duration::from_secs(30);

/// How often an ending process is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Attempts to remove a folder into which a process that is being killed still writes.
const REMOVALS: u32 = 100;

/// Attempts of a panic to learn what is to be cleaned up.
const LOCK_ATTEMPTS: u32 = 100;

/// Lines of a log that are told with an error.
const LOG_LINES: usize = 12;

/// What must go when a signal ends the harness.
static LEFT_BEHIND: Mutex<LeftBehind> = Mutex::new(LeftBehind {
    groups: Vec::new(),
    folders: Vec::new(),
});

struct LeftBehind {
    groups: Vec<i32>,
    folders: Vec<PathBuf>,
}

fn left_behind() -> std::sync::MutexGuard<'static, LeftBehind> {
    LEFT_BEHIND
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl LeftBehind {
    fn clean_up(&self) {
        for &group in &self.groups {
            signal_group(group, libc::SIGKILL);
        }
        for folder in &self.folders {
            remove(folder);
        }
    }
}

/// From now on SIGINT, SIGTERM, SIGHUP and a panic end all children, remove all folders, and then
/// this process.
///
/// # Errors
/// Text, where the handler cannot be installed.
pub fn clean_up_at_a_sudden_end() -> Result<(), String> {
    clean_up_on_panic();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| format!("signals cannot be handled: {error}"))?;
    std::thread::spawn(move || {
        if let Some(number) = signals.forever().next() {
            // The lock is kept: nothing new is started any more.
            let left = left_behind();
            left.clean_up();
            std::process::exit(128 + number);
        }
    });
    Ok(())
}

/// A panic aborts the process, and nothing is dropped: its hook cleans up.
fn clean_up_on_panic() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        told(info);
        // The thread that panics may hold the lock itself.
        for _ in 0..LOCK_ATTEMPTS {
            match LEFT_BEHIND.try_lock() {
                Ok(left) => return left.clean_up(),
                Err(TryLockError::Poisoned(left)) => return left.into_inner().clean_up(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL),
            }
        }
    }));
}

fn signal_group(group: i32, signal: i32) {
    // SAFETY: kill takes no pointers; the group is that of a child that has not been waited for.
    unsafe { libc::kill(-group, signal) };
}

fn remove(folder: &Path) {
    for _ in 0..REMOVALS {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(POLL),
            _ => return,
        }
    }
    // Not eprintln: nobody may be there to read it, and that shall not stop the rest.
    let _ = writeln!(
        io::stderr(),
        "ringmq: {} could not be removed",
        folder.display()
    );
}

/// A folder of its own that goes when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one inside of `parent`, for this process alone.
    ///
    /// # Errors
    /// Text with the path, where it cannot be made.
    pub fn new_in(parent: &Path, name: &str) -> Result<Folder, String> {
        let path = parent.join(format!("ringmq-{name}-{}", std::process::id()));
        let mut left = left_behind();
        fs::create_dir_all(&path)
            .map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
        left.folders.push(path.clone());
        Ok(Folder(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.0);
        left_behind().folders.retain(|folder| *folder != self.0);
    }
}

/// A child that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts it in a group of its own; what it prints goes into `log`. It is killed when the
    /// thread that started it ends.
    ///
    /// # Errors
    /// Text with the program, where it cannot be started.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Process, String> {
        let told = |error| format!("{}: {error}", log.display());
        let out = File::create(log).map_err(told)?;
        let err = out.try_clone().map_err(told)?;
        command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0);
        // SAFETY: prctl is async-signal-safe, and the closure does nothing else.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let mut left = left_behind();
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            format!("{name}: {program} cannot be started: {error}")
        })?;
        left.groups.push(child.id() as i32);
        Ok(Process {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
            ended: None,
        })
    }

    /// Its process id, which is the number of its group too.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn group(&self) -> i32 {
        self.child.id() as i32
    }

    /// Its status once it has ended.
    fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().unwrap_or(None);
            if self.ended.is_some() {
                let group = self.group();
                left_behind().groups.retain(|known| *known != group);
            }
        }
        self.ended
    }

    /// Whether it runs.
    ///
    /// # Errors
    /// How it ended, with the end of its log.
    pub fn alive(&mut self) -> Result<(), String> {
        match self.poll() {
            None => Ok(()),
            Some(status) => Err(format!(
                "{} ended by itself, {status}:\n{}",
                self.name,
                self.log_end()
            )),
        }
    }

    /// The last lines that it printed.
    pub fn log_end(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Stops its clock: it uses no processor until [`Process::thaw`].
    pub fn freeze(&mut self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets it go on.
    pub fn thaw(&mut self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&mut self, signal: i32) {
        if self.poll().is_none() {
            signal_group(self.group(), signal);
        }
    }

    /// Ends it, by force if it does not end when asked; returns when it is gone.
    pub fn stop(&mut self) {
        self.signal(libc::SIGTERM);
        self.signal(libc::SIGCONT);
        if self.wait(STOP).is_none() {
            self.kill();
        }
    }

    /// Its status if it ends in time.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        while self.poll().is_none() && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        self.ended
    }

    fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        while self.poll().is_none() {
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Folder) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("shell", command, &folder.path().join("log")).expect("a shell")
    }

    fn folder(name: &str) -> Folder {
        Folder::new_in(&std::env::temp_dir(), &format!("test-{name}")).expect("a folder")
    }

    /// State letter of a process, from its entry in /proc.
    fn state(pid: u32) -> Option<char> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        text.rsplit(") ").next()?.chars().next()
    }

    fn reaches(pid: u32, wanted: Option<char>) -> bool {
        (0..500).any(|_| {
            let reached = state(pid) == wanted;
            if !reached {
                std::thread::sleep(Duration::from_millis(10));
            }
            reached
        })
    }

    #[test]
    fn a_dropped_process_takes_its_children_with_it() {
        let folder = folder("group");
        let script = "sleep 600 & echo $!; wait";
        let mut process = shell(script, &folder);
        let mut grandchild = None;
        for _ in 0..500 {
            grandchild = process.log_end().trim().parse::<u32>().ok();
            if grandchild.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let grandchild = grandchild.expect("its number");
        process.freeze();
        assert!(reaches(grandchild, Some('T')));
        process.thaw();
        assert!(reaches(grandchild, Some('S')));
        let pid = process.pid();
        drop(process);
        assert_eq!(state(pid), None);
        // Where nobody adopts it, a dead grandchild stays as a zombie.
        assert!(reaches(grandchild, None) || state(grandchild) == Some('Z'));
    }

    #[test]
    fn an_end_is_told_with_the_log() {
        let folder = folder("end");
        let mut process = shell("echo out of luck >&2; exit 3", &folder);
        process.wait(Duration::from_secs(10)).expect("it ends");
        let told = process.alive().expect_err("it ended");
        assert!(
            told.contains("exit status: 3") && told.contains("out of luck"),
            "{told}"
        );
    }

    #[test]
    fn a_frozen_process_can_be_stopped() {
        let folder = folder("frozen");
        let mut process = shell("sleep 600", &folder);
        process.freeze();
        process.stop();
        assert_eq!(state(process.pid()), None);
    }

    /// Folder in which the test of panics leaves something behind; set in its second process only.
    const PANIC_IN: &str = "RINGMQ_TEST_PANIC_IN";

    #[test]
    fn a_panic_leaves_nothing_behind() {
        if let Some(parent) = std::env::var_os(PANIC_IN) {
            leave_behind_and_panic(Path::new(&parent));
        }
        let parent = folder("panic");
        let test = "a_panic_leaves_nothing_behind";
        let status = Command::new(std::env::current_exe().expect("this binary"))
            .arg(test)
            .env(PANIC_IN, parent.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("a second process");
        assert!(!status.success());
        let text = fs::read_to_string(parent.path().join("pid")).expect("it got that far");
        let child: u32 = text.parse().expect("a number");
        assert!(reaches(child, None) || state(child) == Some('Z'));
        let left = fs::read_dir(parent.path()).expect("the folder");
        let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["pid"]);
    }

    fn leave_behind_and_panic(parent: &Path) -> ! {
        clean_up_at_a_sudden_end().expect("handlers");
        let folder = Folder::new_in(parent, "store").expect("a folder");
        let mut process = shell("sleep 600 & echo $!; wait", &folder);
        let mut grandchild = String::new();
        for _ in 0..500 {
            grandchild = process.log_end().trim().to_owned();
            if !grandchild.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        process.alive().expect("it runs");
        fs::write(parent.join("pid"), grandchild).expect("a file");
        // Tests unwind, unlike the program: nothing may be dropped.
        std::mem::forget(process);
        std::mem::forget(folder);
        panic!("as wanted");
    }

    #[test]
    fn a_folder_goes_with_its_owner() {
        let folder = folder("gone");
        let path = folder.path().to_owned();
        fs::write(path.join("file"), "x").expect("a file");
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let folder = folder("none");
        let command = Command::new("/nowhere/at-all");
        let error = Process::start("broker", command, &folder.path().join("log"));
        let error = error.expect_err("no such program");
        assert!(
            error.contains("broker") && error.contains("/nowhere/at-all"),
            "{error}"
        );
    }
}
