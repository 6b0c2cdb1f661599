//! The binary as a child process: started, watched, stopped, killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use super::{Client, eventually};

/// Longest time that a start may take, with everything else that runs.
const START: Duration = Duration::from_secs(30);

/// Longest time that a clean stop may take.
const STOP: Duration = Duration::from_secs(20);

/// Lines of the log that are shown when a test fails.
const SHOWN_LINES: usize = 60;

/// What to run, and where.
#[derive(Clone)]
pub struct Config {
    role: &'static str,
    shards: Option<u16>,
    sets: Vec<(String, String)>,
    store: Arc<StoreDir>,
    port: u16,
    nameserver_port: u16,
}

/// A folder that goes with its last user.
struct StoreDir(PathBuf);

impl Drop for StoreDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Config {
    /// A nameserver and a broker with one shard and small segments, on ports and in a
    /// folder of their own.
    pub fn server() -> Config {
        Config::of("server")
            .shards(1)
            .set("mappedFileSizeCommitLog", 16 * 1024 * 1024)
            .set("mappedFileSizeConsumeQueue", 200_000)
    }

    /// The same with each of its shards as a broker of its own, `broker-a`, `broker-a-1`, ...
    pub fn per_shard(shards: u16) -> Config {
        Config::server().brokers(shards)
    }

    /// With each of its shards as a broker of its own.
    pub fn brokers(mut self, shards: u16) -> Config {
        self.port = free_ports(shards);
        self.shards(shards)
            .set("routeMode", "perShard")
            .set("brokerName", "broker-a")
    }

    /// A broker alone.
    pub fn broker(nameserver: SocketAddr) -> Config {
        let mut config = Config::server().set("namesrvAddr", nameserver);
        config.role = "broker";
        config
            .set("brokerIP1", "127.0.0.1")
            .set("bindAddress", "127.0.0.1")
    }

    /// A nameserver alone.
    pub fn nameserver() -> Config {
        Config::of("nameserver")
            .set("bindAddress", "127.0.0.1")
            .set("brokerIP1", "127.0.0.1")
    }

    fn of(role: &'static str) -> Config {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringmq-{}-{number}", std::process::id());
        Config {
            role,
            shards: None,
            sets: Vec::new(),
            store: Arc::new(StoreDir(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))),
            port: free_port(),
            nameserver_port: free_port(),
        }
    }

    pub fn shards(mut self, shards: u16) -> Config {
        self.shards = Some(shards);
        self
    }

    pub fn set(mut self, key: &str, value: impl ToString) -> Config {
        self.sets.retain(|(known, _)| known != key);
        self.sets.push((key.to_owned(), value.to_string()));
        self
    }

    /// The folder of the store.
    pub fn store(&self) -> &Path {
        &self.store.0
    }

    /// The same store with another number of shards.
    pub fn any_shards(mut self) -> Config {
        self.shards = None;
        self
    }

    /// The same store on other ports.
    pub fn other_ports(mut self) -> Config {
        self.port = free_port();
        self.nameserver_port = free_port();
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
        command.arg(self.role).arg("--store").arg(self.store());
        if let Some(shards) = self.shards {
            command.arg("--shards").arg(shards.to_string());
        }
        let own = [
            ("listenPort", self.port),
            ("nameserverPort", self.nameserver_port),
        ];
        let own = own.map(|(key, port)| (key.to_owned(), port.to_string()));
        let own = own
            .iter()
            .filter(|(key, _)| !self.sets.iter().any(|(set, _)| set == key));
        for (key, value) in own.chain(&self.sets) {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command
    }

    /// Starts it and waits until it serves.
    pub fn start(&self) -> Server {
        let server = self.launch();
        let ready = match self.role {
            "nameserver" => "nameserver ready",
            _ => "broker ready",
        };
        let began = Instant::now();
        while !server.log().contains(ready) {
            if let Some(status) = server.exited() {
                panic!("ended at its start with {status}:\n{}", server.log());
            }
            assert!(began.elapsed() < START, "not ready:\n{}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// The same with its store in another folder.
    pub fn store_at(mut self, store: &Path) -> Config {
        self.store = Arc::new(StoreDir(store.to_owned()));
        self
    }

    /// Starts it with its store in a folder that the caller owns.
    pub fn start_in(self, store: &Path) -> Server {
        self.store_at(store).start()
    }

    /// Starts it where it must refuse to: its exit code, and what it said.
    pub fn start_refused(&self) -> (i32, String) {
        let server = self.launch();
        let status = server.wait(START);
        eventually("end of log", START, || {
            server.child.lock().unwrap().log_ended()
        });
        (status.code().expect("an exit code"), server.log())
    }

    /// Starts it and waits for nothing.
    pub fn launch_only(&self) -> Server {
        self.launch()
    }

    fn launch(&self) -> Server {
        fs::create_dir_all(self.store()).expect("a folder for the store");
        Server {
            config: self.clone(),
            child: Mutex::new(Running::spawn(self.command())),
        }
    }
}

/// Distance between the ports of shards that are brokers.
const SHARD_PORT_STEP: u16 = 10;

/// A port outside the range that the kernel hands out by itself, and free now.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of the ports of so many shards, all free now and nobody else's in this process.
fn free_ports(shards: u16) -> u16 {
    const FIRST: u32 = 10_240;
    const COUNT: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(7919);
    let width = u32::from((shards - 1) * SHARD_PORT_STEP) + 1;
    loop {
        let step = NEXT.fetch_add(width, Ordering::Relaxed);
        let first = (FIRST + start.wrapping_add(step) % (COUNT - width)) as u16;
        let mut ports = (0..shards).map(|shard| first + shard * SHARD_PORT_STEP);
        if ports.all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return first;
        }
    }
}

struct Running {
    child: Child,
    status: Option<ExitStatus>,
    log: Arc<Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

impl Running {
    fn spawn(mut command: Command) -> Running {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // SAFETY: prctl is async-signal-safe, and the closure does nothing else.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let mut child = spawn_for_good(command);
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().expect("piped");
        let sink = log.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = sink.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Running {
            child,
            status: None,
            log,
            reader,
        }
    }

    fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("wait");
        }
        self.status
    }

    fn log_ended(&self) -> bool {
        self.reader.is_finished()
    }
}

/// Spawns from a thread that lives as long as the process: the signal at the parent's
/// death is tied to the thread that forked, and threads of tests end before the tests do.
fn spawn_for_good(command: Command) -> Child {
    type Job = (Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    let (answer, child) = mpsc::channel();
    spawner
        .lock()
        .unwrap()
        .send((command, answer))
        .expect("the spawner lives");
    child.recv().expect("an answer").expect("the binary starts")
}

/// The binary while it runs, and its store when it does not.
pub struct Server {
    pub config: Config,
    child: Mutex<Running>,
}

impl Server {
    /// Address of the broker, or of the nameserver where that is alone.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.config.port).into()
    }

    /// Address of the nameserver.
    pub fn nameserver(&self) -> SocketAddr {
        match self.config.role {
            "nameserver" => self.address(),
            _ => (Ipv4Addr::LOCALHOST, self.config.nameserver_port).into(),
        }
    }

    /// Address of the broker that a shard is, where each is one.
    pub fn shard_address(&self, shard: u16) -> SocketAddr {
        (
            Ipv4Addr::LOCALHOST,
            self.config.port + SHARD_PORT_STEP * shard,
        )
            .into()
    }

    /// A connection to [`Server::shard_address`].
    pub fn connect_shard(&self, shard: u16) -> Client {
        Client::connect(self.shard_address(shard))
    }

    /// A connection to [`Server::address`].
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// A connection to [`Server::nameserver`].
    pub fn connect_nameserver(&self) -> Client {
        Client::connect(self.nameserver())
    }

    pub fn store(&self) -> &Path {
        self.config.store()
    }

    pub fn pid(&self) -> i32 {
        self.child.lock().unwrap().child.id() as i32
    }

    /// Everything logged since the start of the process.
    pub fn log(&self) -> String {
        self.child.lock().unwrap().log.lock().unwrap().clone()
    }

    /// The last log line that has `text`.
    pub fn log_line(&self, text: &str) -> Option<String> {
        let log = self.log();
        log.lines()
            .rev()
            .find(|line| line.contains(text))
            .map(str::to_owned)
    }

    pub fn exited(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().poll()
    }

    fn wait(&self, limit: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(began.elapsed() < limit, "still running:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the child is not yet waited for.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Asks it to stop; its exit code.
    pub fn stop(&self) -> i32 {
        self.signal(libc::SIGTERM);
        self.wait(STOP).code().unwrap_or(-1)
    }

    /// Takes it away without a word.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
        self.wait(STOP);
    }

    /// Starts a new process on the same store and ports; the old one must have ended.
    pub fn start_again(&mut self) {
        assert!(self.exited().is_some(), "still running");
        *self = self.config.clone().start();
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("alive");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .expect("VmRSS");
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024
    }

    /// Whether it runs and has logged no panic.
    pub fn assert_healthy(&self) {
        assert!(self.exited().is_none(), "ended: {:?}", self.exited());
        assert!(!self.log().contains("panicked"), "panicked");
    }

    /// The end of the log, for a test that fails.
    pub fn show_log(&self) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(SHOWN_LINES);
        eprintln!("--- log of {} on {}", self.config.role, self.address());
        lines[from..].iter().for_each(|line| eprintln!("{line}"));
        eprintln!("---");
    }

    /// Ends the process and removes its folder, at the end of the test process.
    pub fn clear(&self) {
        self.signal(libc::SIGKILL);
        let _ = fs::remove_dir_all(self.store());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_log();
        }
        if let Ok(mut running) = self.child.lock() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}
