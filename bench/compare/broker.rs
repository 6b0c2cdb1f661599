//! A broker with its nameserver, as a comparison needs it: on free ports of this machine alone,
//! with a new store, frozen while the other is measured.

use super::apache::Apache;
use super::ask;
use super::process::{Folder, Process};
use crate::bench::measure::server;
use crate::bench::target::Target;
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest time that a start may take, on a machine with a slow device.
const START: Duration = Duration::from_secs(180);

/// Longest time until a broker that was frozen for long is known to its nameserver again.
const RETURN: Duration = Duration::from_secs(90);

/// Topic that every broker with automatic topics registers: it is up when this has a route.
const REGISTERED_TOPIC: &str = "TBW102";

/// Heap of Apache's nameserver, as its operators' guide has it for small clusters.
const NAMESERVER_HEAP: &str = "512m";

/// What a broker prints, in its folder.
const BROKER_LOG: &str = "broker.log";

const MIB: u64 = 1 << 20;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This binary.
    RingMq,
    /// The other.
    Apache,
}

/// What an acknowledgement means, on both sides alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The bytes are in memory that outlives the process.
    Async,
    /// The device has them.
    Sync,
}

impl Flush {
    /// Value of the setting `flushDiskType`.
    pub fn setting(self) -> &'static str {
        match self {
            Flush::Async => "ASYNC_FLUSH",
            Flush::Sync => "SYNC_FLUSH",
        }
    }
}

/// What both brokers are started with.
#[derive(Debug)]
pub struct Setup {
    /// The other one's jars.
    pub apache: Apache,
    /// Where the stores are.
    pub parent: PathBuf,
    /// Heap of Apache's broker, in bytes.
    pub heap_bytes: u64,
    /// Further settings of Apache's broker, `key=value`.
    pub apache_settings: Vec<String>,
}

impl Setup {
    /// What a broker is called in results.
    pub fn name(&self, kind: Kind) -> String {
        match kind {
            Kind::RingMq => format!("RingMQ {}", env!("CARGO_PKG_VERSION")),
            Kind::Apache => format!("Apache RocketMQ {}", self.apache.version),
        }
    }
}

/// A broker that runs. It is killed, and its store deleted, when this is dropped.
#[derive(Debug)]
pub struct Broker {
    /// Which of the two.
    pub kind: Kind,
    /// What it is called in results.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// That of its nameserver.
    pub nameserver_port: u16,
    // In the order of the drop: processes end before their files go.
    broker: Process,
    nameserver: Option<Process>,
    folder: Folder,
}

impl Broker {
    /// Starts it with a new store and waits until it serves.
    ///
    /// # Errors
    /// Text with the end of its log.
    pub fn start(kind: Kind, flush: Flush, setup: &Setup) -> Result<Broker, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let label = match kind {
            Kind::RingMq => "bench-ringmq",
            Kind::Apache => "bench-apache",
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::new_in(&setup.parent, &format!("{label}-{number}"))?;
        let (port, nameserver_port) = (free_port()?, free_port()?);
        let home = folder.path();
        let (nameserver, broker) = match kind {
            Kind::RingMq => (None, ringmq(home, flush, port, nameserver_port)?),
            Kind::Apache => {
                let nameserver = apache_nameserver(home, nameserver_port, setup)?;
                let broker = apache_broker(home, flush, port, nameserver_port, setup)?;
                (Some(nameserver), broker)
            }
        };
        let mut broker = Broker {
            kind,
            name: setup.name(kind),
            port,
            nameserver_port,
            broker,
            nameserver,
            folder,
        };
        broker.wait_until_registered(START)?;
        Ok(broker)
    }

    fn wait_until_registered(&mut self, patience: Duration) -> Result<(), String> {
        let until = Instant::now() + patience;
        while !(ask::accepts(self.port) && ask::knows_route(self.nameserver_port, REGISTERED_TOPIC))
        {
            self.alive()?;
            if Instant::now() > until {
                return Err(format!(
                    "{} does not serve after {} s:\n{}",
                    self.name,
                    patience.as_secs(),
                    self.broker.log_end()
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The broker as the harness loads it.
    pub fn target(&self) -> Target {
        Target {
            name: Some(self.name.clone()),
            server_pid: Some(self.broker.pid()),
            ..Target::broker(format!("127.0.0.1:{}", self.port))
        }
    }

    /// What RingMQ measured of the device at its start, and how it flushes for that: with
    /// SYNC_FLUSH all else depends on it. `None` for others, and with ASYNC_FLUSH.
    pub fn way_of_flushing(&self) -> Option<String> {
        let log = fs::read_to_string(self.folder.path().join(BROKER_LOG)).unwrap_or_default();
        let line = log
            .lines()
            .find(|line| line.contains("SYNC_FLUSH: time until"))?;
        let (_, said) = line.split_once("SYNC_FLUSH")?;
        Some(format!("{} at its start, SYNC_FLUSH{said}", self.name))
    }

    /// Its folder, which has more than the store in it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether it runs.
    ///
    /// # Errors
    /// How it ended, with the end of its log.
    pub fn alive(&mut self) -> Result<(), String> {
        if let Some(nameserver) = &mut self.nameserver {
            nameserver.alive()?;
        }
        self.broker.alive()
    }

    /// Stops its clock, and its nameserver's.
    pub fn freeze(&mut self) {
        self.broker.freeze();
        if let Some(nameserver) = &mut self.nameserver {
            nameserver.freeze();
        }
    }

    /// Lets it go on, and waits until it is registered: a nameserver forgets who was silent for
    /// too long.
    ///
    /// # Errors
    /// Text with the end of its log.
    pub fn thaw(&mut self) -> Result<(), String> {
        if let Some(nameserver) = &mut self.nameserver {
            nameserver.thaw();
        }
        self.broker.thaw();
        self.wait_until_registered(RETURN)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.broker.pid()
    }

    /// Resident memory of the broker, in bytes; 0 where it is not running.
    pub fn resident_bytes(&self) -> u64 {
        server::resident(self.broker.pid()).unwrap_or(0)
    }

    /// Bytes that its files take on the device.
    pub fn stored_bytes(&self) -> u64 {
        allocated_bytes(self.folder.path())
    }

    /// Ends it, and deletes its store. A virtual machine takes long to end in order, for a store
    /// that nobody will open: Apache's are killed.
    pub fn stop(mut self) {
        // Not while one of its processes is frozen.
        if let Some(nameserver) = &mut self.nameserver {
            nameserver.thaw();
        }
        self.broker.thaw();
        if self.kind == Kind::RingMq {
            self.broker.stop();
        }
    }
}

fn allocated_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => allocated_bytes(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    });
    bytes.sum()
}

fn ringmq(home: &Path, flush: Flush, port: u16, nameserver_port: u16) -> Result<Process, String> {
    // Not the path of this binary: a build meanwhile would change what is measured.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("ringmq")
        .args(["server", "--store"])
        .arg(home.join("store"))
        .arg("--set")
        .arg(format!("listenPort={port}"))
        .arg("--set")
        .arg(format!("nameserverPort={nameserver_port}"))
        .arg("--set")
        .arg(format!("flushDiskType={}", flush.setting()));
    Process::start("RingMQ", command, &home.join(BROKER_LOG))
}

fn apache_nameserver(home: &Path, port: u16, setup: &Setup) -> Result<Process, String> {
    let settings = home.join("namesrv.properties");
    write(
        &settings,
        &format!("listenPort={port}\nbindAddress=127.0.0.1\n"),
    )?;
    let heap = [
        format!("-Xms{NAMESERVER_HEAP}"),
        format!("-Xmx{NAMESERVER_HEAP}"),
    ];
    let class = "org.apache.rocketmq.namesrv.NamesrvStartup";
    let mut command = setup.apache.java(home, &heap, class);
    command.arg("-c").arg(&settings);
    let log = home.join("nameserver.log");
    let mut process = Process::start("Apache's nameserver", command, &log)?;
    let until = Instant::now() + START;
    while !ask::accepts(port) {
        process.alive()?;
        if Instant::now() > until {
            return Err(format!(
                "Apache's nameserver is not up:\n{}",
                process.log_end()
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(process)
}

fn apache_broker(
    home: &Path,
    flush: Flush,
    port: u16,
    nameserver_port: u16,
    setup: &Setup,
) -> Result<Process, String> {
    let store = home.join("store");
    let mut text = format!(
        "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\nbrokerRole=ASYNC_MASTER\n\
         brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort={port}\n\
         namesrvAddr=127.0.0.1:{nameserver_port}\nstorePathRootDir={store}\n\
         storePathCommitLog={store}/commitlog\nflushDiskType={}\n",
        flush.setting(),
        store = store.display(),
    );
    for setting in &setup.apache_settings {
        let _ = writeln!(text, "{setting}");
    }
    let settings = home.join("broker.conf");
    write(&settings, &text)?;
    let class = "org.apache.rocketmq.broker.BrokerStartup";
    let mut command = setup.apache.java(home, &jvm(setup.heap_bytes), class);
    command.arg("-c").arg(&settings);
    Process::start("Apache's broker", command, &home.join(BROKER_LOG))
}

/// The flags of Apache's `runbroker.sh`, with a heap of this size.
pub fn jvm(heap_bytes: u64) -> Vec<String> {
    let heap = heap_bytes / MIB;
    let mut flags = vec![
        "-server".to_owned(),
        format!("-Xms{heap}m"),
        format!("-Xmx{heap}m"),
    ];
    for fixed in [
        "-XX:+UseG1GC",
        "-XX:G1HeapRegionSize=16m",
        "-XX:G1ReservePercent=25",
        "-XX:InitiatingHeapOccupancyPercent=30",
        "-XX:+AlwaysPreTouch",
    ] {
        flags.push(fixed.to_owned());
    }
    flags.push(format!("-XX:MaxDirectMemorySize={heap}m"));
    flags
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A port outside of the range that the kernel hands out by itself. Its neighbours are free too:
/// an Apache broker also opens `port - 2` and `port + 1`.
fn free_port() -> Result<u16, String> {
    const FIRST: u32 = 12_000;
    const STEP: u32 = 4;
    const COUNT: u32 = 5_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(7919);
    for _ in 0..COUNT {
        let step = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = (FIRST + step * STEP) as u16;
        let is_free = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
        if [port - 2, port, port + 1].into_iter().all(is_free) {
            return Ok(port);
        }
    }
    Err(format!(
        "no free port from {FIRST} to {}",
        FIRST + COUNT * STEP
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_different() {
        let (one, other) = (free_port().expect("a port"), free_port().expect("a port"));
        assert!(one.abs_diff(other) > 3, "{one} {other}");
        for port in [one - 2, one, one + 1] {
            assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        }
    }

    #[test]
    fn a_heap_is_given_in_whole_mebibytes() {
        let flags = jvm(3 << 29);
        for flag in ["-Xms1536m", "-Xmx1536m", "-XX:MaxDirectMemorySize=1536m"] {
            assert!(flags.iter().any(|known| known == flag), "{flags:?}");
        }
    }

    #[test]
    fn files_count_by_what_they_take() {
        let folder = Folder::new_in(&std::env::temp_dir(), "test-sizes").expect("a folder");
        let sparse = fs::File::create(folder.path().join("sparse")).expect("a file");
        sparse.set_len(1 << 30).expect("a hole");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("a folder");
        fs::write(inner.join("full"), vec![7; 1 << 20]).expect("a file");
        sparse.sync_all().expect("sync");
        let bytes = allocated_bytes(folder.path());
        assert!((1 << 20..1 << 24).contains(&bytes), "{bytes}");
    }
}
