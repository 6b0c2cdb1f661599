//! `ringmq tune io`, and what a broker makes of the profile that it leaves.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ringmq::probe::profile::WRITE_BYTES_DEFAULT;
use serde_json::{Value, json};

use crate::common::{Config, Pull, Send, Server, body, eventually, topic, unique};
use crate::machine::{finish, script_of};

/// Set where file systems cannot be mounted and that is no fault.
const NO_MOUNT: &str = "RINGMQ_TESTS_WITHOUT_MOUNT";

const PROFILE: &str = "io-profile.json";

/// A folder on the file system that the stores of tests are on, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let name = format!("tune-{}-{}", std::process::id(), unique("dir"));
        Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tune(dir: &Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
    command
        .args(["tune", "io", "--seconds", "1"])
        .arg(dir)
        .args(args);
    finish(command)
}

/// A profile of the device that the stores of tests are on; measured once.
fn profile() -> Value {
    static MEASURED: OnceLock<Value> = OnceLock::new();
    let measured = MEASURED.get_or_init(|| {
        let folder = Folder::new();
        let (code, text) = tune(&folder.0, &[]);
        assert_eq!(code, 0, "{text}");
        serde_json::from_slice(&fs::read(folder.0.join(PROFILE)).unwrap()).expect("JSON")
    });
    measured.clone()
}

#[test]
fn a_device_is_measured_and_only_the_profile_is_left() {
    let folder = Folder::new();
    let (code, text) = tune(&folder.0, &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(folder.names(), [PROFILE]);
    let profile: Value =
        serde_json::from_slice(&fs::read(folder.0.join(PROFILE)).unwrap()).unwrap();
    assert_eq!(profile["version"], 2);
    assert!(
        profile["measured"].as_str().unwrap().starts_with("20"),
        "{profile}"
    );
    let figures = profile["figures"].as_array().unwrap();
    for figure in figures {
        assert!(figure["operations"].as_u64().unwrap() > 0, "{figure}");
        assert!(figure["p50_us"].as_f64() > Some(0.0), "{figure}");
        assert!(
            figure["p99_us"].as_f64() >= figure["p50_us"].as_f64(),
            "{figure}"
        );
    }
    let has = |work: &str, blocks: &str, bytes: u64| {
        figures.iter().any(|figure| {
            figure["work"] == work && figure["blocks"] == blocks && figure["bytes"] == bytes
        })
    };
    // As the log writes: to blocks that were written before, and large writes two at a time.
    for work in ["write_through", "write_and_flush"] {
        for bytes in [128 << 10, 256 << 10, 512 << 10, 1 << 20] {
            let deciding = figures.iter().filter(|figure| {
                figure["work"] == work
                    && figure["blocks"] == "overwritten"
                    && figure["bytes"] == bytes
                    && figure["depth"] == 2
            });
            assert_eq!(deciding.count(), 1, "{work} {bytes}");
        }
        let small = figures.iter().find(|figure| {
            figure["work"] == work && figure["blocks"] == "overwritten" && figure["bytes"] == 4096
        });
        let chosen = &profile["choice"][format!("{}_us", work)];
        assert_eq!(chosen, &small.expect("measured")["p50_us"], "{work}");
    }
    for work in ["write_through", "write_and_flush"] {
        assert!(
            has(work, "unwritten", 4096) && has(work, "overwritten", 1 << 20),
            "{work}"
        );
    }
    let choice = match profile["choice"]["flush_after_write"].as_bool() {
        Some(true) => "choice: fdatasync",
        Some(false) => "choice: O_DSYNC",
        None => panic!("{profile}"),
    };
    assert!(text.contains(choice), "{text}");
}

#[test]
fn a_reader_that_goes_away_costs_no_profile() {
    let folder = Folder::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringmq"))
        .args(["tune", "io", "--seconds", "1"])
        .arg(&folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("a line");
    assert!(line.contains("p99 us"), "{line}");
    drop(stdout);
    let output = child.wait_with_output().expect("ended");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(told, "");
    assert_eq!(folder.names(), [PROFILE]);
}

#[test]
fn the_profile_goes_where_it_is_asked_for() {
    let folder = Folder::new();
    fs::create_dir_all(&folder.0).unwrap();
    let store = folder.0.join("store");
    let (code, text) = tune(
        &store,
        &["--output", folder.0.join("p.json").to_str().unwrap()],
    );
    assert_eq!(code, 0, "{text}");
    assert_eq!(folder.names(), ["p.json", "store"]);
    assert_eq!(fs::read_dir(&store).unwrap().count(), 0);
}

#[test]
fn the_script_hands_everything_on() {
    let folder = Folder::new();
    let mut command = script_of("iotune");
    command.env("RINGMQ", env!("CARGO_BIN_EXE_ringmq"));
    command.arg(&folder.0).args(["--seconds", "1"]);
    let (code, text) = finish(command);
    assert_eq!(code, 0, "{text}");
    assert_eq!(folder.names(), [PROFILE]);
}

#[test]
fn nothing_is_left_by_one_that_is_interrupted() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
    command
        .args(["tune", "io", "--seconds", "60"])
        .arg(&folder.0)
        .stdout(Stdio::null());
    // Where the tests run in the background of a shell children ignore it.
    // SAFETY: between fork and exec nothing but a system call is made.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().expect("it runs");
    let opened = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", child.id()))
            .into_iter()
            .flatten();
        let links = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        links
            .filter(|link| link.to_string_lossy().contains(".io-probe-"))
            .count()
            > 8
    };
    eventually("it measures", Duration::from_secs(20), opened);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        folder.names(),
        [""; 0],
        "files have no name while it measures"
    );
    // SAFETY: a plain system call; the child is not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert!(!child.wait().expect("ended").success());
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_slow_or_a_senseless_wish_is_refused() {
    let folder = Folder::new();
    for seconds in ["0", "x", "3601"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
        command
            .args(["tune", "io", "--seconds", seconds])
            .arg(&folder.0);
        let (code, text) = finish(command);
        assert_eq!(code, 2, "{text}");
        assert!(!folder.0.exists());
    }
    let (code, text) = tune(Path::new("/proc/none"), &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("/proc/none"), "{text}");
}

#[test]
fn a_full_file_system_is_not_measured() {
    let folder = Folder::new();
    fs::create_dir_all(&folder.0).unwrap();
    let at = CString::new(folder.0.as_os_str().as_bytes()).unwrap();
    let kind = c"tmpfs".as_ptr();
    // SAFETY: all four point to texts that end in NUL and live through the call.
    let mounted = unsafe { libc::mount(kind, at.as_ptr(), kind, 0, c"size=64m".as_ptr().cast()) };
    if mounted != 0 {
        let error = std::io::Error::last_os_error();
        assert!(
            std::env::var_os(NO_MOUNT).is_some(),
            "no tmpfs can be mounted ({error}); run as root, or set {NO_MOUNT}=1 to do without"
        );
        return;
    }
    let (code, text) = tune(&folder.0, &[]);
    let names = folder.names();
    // SAFETY: the text ends in NUL.
    unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("64 MiB are free, and a measurement asks for 288 MiB"),
        "{text}"
    );
    assert_eq!(names, [""; 0]);
}

/// Under SYNC_FLUSH with this in place of a profile; a message is sent and read.
fn started_with(profile: Option<&[u8]>) -> Server {
    let config = Config::server().set("flushDiskType", "SYNC_FLUSH");
    fs::create_dir_all(config.store()).unwrap();
    if let Some(profile) = profile {
        fs::write(config.store().join(PROFILE), profile).unwrap();
    }
    let server = config.start();
    let mut client = server.connect();
    topic(&mut client, "Tuned", 1);
    for n in 0..20 {
        client
            .call(Send::new("Tuned", body("t", n, 3000)).queue(0))
            .expect(0);
    }
    let reply = client.call(Pull::new("Tuned", 0, 0)).expect(0);
    assert_eq!(reply.records()[0].body, body("t", 0, 3000));
    server
}

fn line(server: &Server) -> String {
    server
        .log_line("time until the device keeps a write")
        .expect("a line")
}

fn text(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

#[test]
fn a_broker_takes_the_choice_of_the_profile() {
    for (after_write, chosen, write_bytes) in
        [(true, "fdatasync", 131_072), (false, "O_DSYNC", 524_288)]
    {
        let mut profile = profile();
        profile["choice"] = json!({
            "flush_after_write": after_write,
            "write_bytes": write_bytes,
            "write_through_us": 1234.5,
            "write_and_flush_us": 4321.5,
        });
        let server = started_with(Some(&text(&profile)));
        let line = line(&server);
        for told in [
            chosen,
            PROFILE,
            "write_through_us=1234",
            "write_and_flush_us=4321",
        ] {
            assert!(line.contains(told), "{told}: {line}");
        }
        assert!(
            line.contains(&format!("write_bytes_max={write_bytes}")),
            "{line}"
        );
        assert!(
            line.contains(profile["measured"].as_str().unwrap()),
            "{line}"
        );
        assert_eq!(server.log_line("a profile is ignored"), None);
        assert_eq!(server.stop(), 0);
    }
}

/// The profile is ignored with a line that has `why`, and the device is probed.
fn ignored(profile: &[u8], why: &str) {
    let server = started_with(Some(profile));
    let told = server.log_line("a profile is ignored").expect("a line");
    assert!(
        told.contains(why) && told.contains(PROFILE),
        "{why}: {told}"
    );
    let log = server.log();
    assert_eq!(log.matches("a profile is ignored").count(), 1, "{log}");
    assert!(line(&server).contains("a probe at this start"), "{log}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_profile_of_no_use_is_ignored_with_the_reason() {
    for garbled in [&b""[..], b"{\"version\": 2}", b"\0\xff\xfe", b"[1]"] {
        ignored(garbled, "is not a profile");
    }
    ignored(b"{\"version\": 3, \"all\": \"new\"}", "is of version 3");
    // It chose by blocks that the log no longer writes to.
    let mut outdated = profile();
    outdated["version"] = json!(1);
    ignored(&text(&outdated), "is of version 1");
    let mut cut = text(&profile());
    cut.truncate(cut.len() / 2);
    ignored(&cut, "is not a profile");
    let mut other = profile();
    other["device"]["file_system_id"] = json!("1");
    other["device"]["uuid"] = json!("00000000-1111-2222-3333-444444444444");
    other["device"]["bytes"] = json!(512);
    ignored(&text(&other), "is of another device");
    let mut senseless = profile();
    senseless["choice"]["write_bytes"] = json!(1000);
    ignored(&text(&senseless), "is no choice");
}

#[test]
fn a_profile_that_cannot_be_read_is_ignored() {
    let config = Config::server().set("flushDiskType", "SYNC_FLUSH");
    fs::create_dir_all(config.store().join(PROFILE)).unwrap();
    let server = config.start();
    assert!(
        server
            .log_line("a profile is ignored")
            .expect("a line")
            .contains(PROFILE)
    );
    assert!(line(&server).contains("a probe at this start"));
}

#[test]
fn without_a_profile_the_device_is_probed() {
    let server = started_with(None);
    let line = line(&server);
    assert!(line.contains("a probe at this start"));
    let default = format!("write_bytes_max={WRITE_BYTES_DEFAULT}");
    assert!(line.contains(&default), "{line}");
    assert_eq!(server.log_line("profile is ignored"), None);
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning/README.md");
    let told = format!("and {} MiB is the second", WRITE_BYTES_DEFAULT >> 20);
    assert!(
        fs::read_to_string(readme).unwrap().contains(&told),
        "{told}"
    );
}

#[test]
fn where_nobody_waits_for_the_device_no_profile_is_read() {
    let config = Config::server();
    fs::create_dir_all(config.store()).unwrap();
    fs::write(config.store().join(PROFILE), "garbled").unwrap();
    let server = config.start();
    assert!(!server.log().contains("profile"), "{}", server.log());
}

#[test]
fn a_store_is_measured_while_no_broker_uses_it_and_is_left_as_it_is() {
    let mut server = started_with(None);
    let began = Instant::now();
    let (code, told) = tune(server.store(), &[]);
    assert_eq!(code, 1, "{told}");
    assert!(
        told.contains("in use") && told.contains("stop it first"),
        "{told}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(server.stop(), 0);
    let log = server.store().join("commitlog").join(format!("{:020}", 0));
    let before = fs::read(&log).unwrap();
    let (code, told) = tune(server.store(), &[]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(fs::read(&log).unwrap(), before);
    server.start_again();
    assert!(line(&server).contains(PROFILE), "{}", server.log());
    let mut client = server.connect();
    let reply = client.call(Pull::new("Tuned", 0, 0)).expect(0);
    assert_eq!(reply.records()[0].body, body("t", 0, 3000));
}
