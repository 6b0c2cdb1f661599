//! A disk that fills up: sends are refused and say why, everything that was acknowledged
//! is there, and sends go on by themselves when there is space.

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Client, Config, Pull, Send, Server, body, eventually, max_offset, topic};
use ringmq::wire::command::Request;

const MIB: u64 = 1024 * 1024;
const SOON: Duration = Duration::from_secs(20);
/// Set where file systems cannot be mounted and that is no fault.
const NO_MOUNT: &str = "RINGMQ_TESTS_WITHOUT_MOUNT";

/// A file system in memory, of a size.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where nothing can be mounted and the environment says that this is so.
    fn mount(name: &str, bytes: u64) -> Option<SmallDisk> {
        let name = format!("disk-{}-{name}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        let at = CString::new(path.as_os_str().as_bytes()).unwrap();
        let options = CString::new(format!("size={bytes}")).unwrap();
        let kind = c"tmpfs".as_ptr();
        // SAFETY: all four point to texts that end in NUL and live through the call.
        let mounted = unsafe { libc::mount(kind, at.as_ptr(), kind, 0, options.as_ptr().cast()) };
        if mounted == 0 {
            return Some(SmallDisk(path));
        }
        let error = std::io::Error::last_os_error();
        assert!(
            std::env::var_os(NO_MOUNT).is_some(),
            "no tmpfs can be mounted ({error}); run as root, or set {NO_MOUNT}=1 to do without"
        );
        let _ = fs::remove_dir(&path);
        None
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Takes all space but `leave` bytes.
    fn fill(&self, leave: u64) {
        let mut filler = fs::File::create(self.filler()).unwrap();
        let page = [7; 4096];
        let mut size = 0;
        // To the last page, then some back.
        while filler.write_all(&page).is_ok() {
            size += page.len() as u64;
        }
        filler.set_len(size.saturating_sub(leave)).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let at = CString::new(self.0.as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends in NUL.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
        let _ = fs::remove_dir(&self.0);
    }
}

/// Levels out of the way: the file system itself says no.
fn config() -> Config {
    Config::server()
        .set("mappedFileSizeCommitLog", 4 * MIB)
        .set("maxMessageSize", 1024 * 1024)
        .set("tailFileBytes", 8 * MIB)
        .set("diskMaxUsedSpaceRatio", 99)
        .set("diskSpaceCleanForciblyRatio", 99)
        .set("diskSpaceWarningLevelRatio", 99)
}

/// Sends until one is refused; messages that were acknowledged, and the remark.
fn send_until_refused(client: &mut Client, name: &str, from: u64) -> (u64, String) {
    for n in from..from + 20_000 {
        let reply = client.call(Send::new(name, body(name, n, 20_000)));
        if reply.code != 0 {
            return (n, reply.expect(14).remark);
        }
        assert_eq!(reply.int("queueOffset"), n as i64);
    }
    panic!("never refused");
}

/// All messages up to `count`, from the first on.
fn read_all(client: &mut Client, name: &str, count: u64) {
    assert!(max_offset(client, name, 0) as u64 >= count);
    let mut at = 0;
    while at < count {
        for record in client
            .call(Pull::new(name, 0, at as i64))
            .expect(0)
            .records()
        {
            assert_eq!(record.queue_offset as u64, at);
            assert!(record.body == body(name, at, 20_000), "message {at}");
            at += 1;
        }
    }
}

fn sends_resume(server: &Server, name: &str, next: u64) {
    let mut client = server.connect();
    eventually("sends are taken again", SOON, || {
        let reply = client.call(Send::new(name, body(name, next, 20_000)));
        if reply.code != 0 {
            assert_eq!(reply.code, 14, "{}", reply.remark);
            std::thread::sleep(Duration::from_millis(100));
            return false;
        }
        assert_eq!(reply.int("queueOffset") as u64, next);
        true
    });
}

fn fills_and_is_freed(flush: &str) {
    let Some(disk) = SmallDisk::mount(flush, 64 * MIB) else {
        return;
    };
    let mut server = config()
        .set("flushDiskType", flush)
        .start_in(&disk.0.join("store"));
    let mut client = server.connect();
    topic(&mut client, "Full", 1);
    let mut next = 0;
    for round in 0..3 {
        for n in next..next + 20 {
            client
                .call(Send::new("Full", body("Full", n, 20_000)))
                .expect(0);
        }
        next += 20;
        disk.fill(round * 300_000);
        let (sent, remark) = send_until_refused(&mut client, "Full", next);
        next = sent;
        let root = disk.0.display().to_string();
        assert!(remark.contains(&root), "{remark}");
        assert!(remark.contains("bytes"), "{remark}");
        // What was kept for the queue files may have gone to the log.
        std::thread::sleep(Duration::from_millis(2500));
        let (sent, remark) = send_until_refused(&mut client, "Full", next);
        next = sent;
        assert!(remark.contains(&root), "{remark}");
        // A refused message is not stored, and nothing ends.
        assert_eq!(max_offset(&mut client, "Full", 0) as u64, next);
        read_all(&mut client, "Full", next);
        server.assert_healthy();
        if round == 1 {
            // The bytes that the file system has no place for outlive the process.
            server.kill();
            disk.free();
            server.start_again();
            client = server.connect();
        } else {
            disk.free();
        }
        sends_resume(&server, "Full", next);
        next += 1;
        read_all(&mut client, "Full", next);
    }
    let complaints = server.log().matches("not written").count();
    assert!(
        complaints <= 4,
        "{complaints} complaints:\n{}",
        server.log()
    );
    assert_eq!(server.stop(), 0);
    server.start_again();
    read_all(&mut server.connect(), "Full", next);
    drop(server);
}

#[test]
fn a_full_disk_is_no_end_under_async_flush() {
    fills_and_is_freed("ASYNC_FLUSH");
}

#[test]
fn a_full_disk_that_stays_full_does_not_hold_up_a_stop() {
    let Some(disk) = SmallDisk::mount("stop", 48 * MIB) else {
        return;
    };
    let mut server = config().start_in(&disk.0.join("store"));
    let mut client = server.connect();
    topic(&mut client, "Full", 1);
    client
        .call(Send::new("Full", body("Full", 0, 20_000)))
        .expect(0);
    disk.fill(0);
    let (sent, _) = send_until_refused(&mut client, "Full", 1);
    assert_ne!(server.stop(), 0, "not everything is in its place");
    disk.free();
    server.start_again();
    read_all(&mut server.connect(), "Full", sent);
}

#[test]
fn a_store_without_space_for_its_ring_does_not_start() {
    let Some(disk) = SmallDisk::mount("ring", 6 * MIB) else {
        return;
    };
    let (code, log) = config().store_at(&disk.0.join("store")).start_refused();
    assert_ne!(code, 0);
    assert!(
        log.contains("tail") && log.contains("cannot be reserved"),
        "{log}"
    );
}

#[test]
fn levels_refuse_and_admit_sends_and_change_at_run_time() {
    let server = Config::server()
        .set("diskSpaceWarningLevelBytes", 1)
        .start();
    let mut client = server.connect();
    topic(&mut client, "Level", 1);
    let send = || Send::new("Level", b"x".to_vec());
    eventually("sends are refused", SOON, || client.call(send()).code == 14);
    let reply = client.call(send()).expect(14);
    let root = server.store().display().to_string();
    for part in [&root, "diskSpaceWarningLevelBytes) is 1"] {
        assert!(reply.remark.contains(part), "{}", reply.remark);
    }
    // Reading goes on.
    let end = max_offset(&mut client, "Level", 0);
    client.call(Pull::new("Level", 0, end)).expect(19);
    let update = |text: &str| Request::new(25).with_body(text.as_bytes().to_vec());
    client
        .call(update("diskSpaceWarningLevelBytes=0"))
        .expect(0);
    eventually("sends are taken", SOON, || client.call(send()).code == 0);
    client
        .call(update("diskSpaceWarningLevelBytes=1"))
        .expect(0);
    eventually("sends are refused again", SOON, || {
        client.call(send()).code == 14
    });
    server.assert_healthy();
}

#[test]
fn above_the_forced_level_segments_go_before_their_time() {
    let Some(disk) = SmallDisk::mount("forced", 64 * MIB) else {
        return;
    };
    let server = Config::server()
        .set("mappedFileSizeCommitLog", MIB)
        .set("maxMessageSize", 256 * 1024)
        .set("tailFileBytes", 8 * MIB)
        .set("diskMaxUsedSpaceRatio", 40)
        .set("diskSpaceCleanForciblyRatio", 50)
        .set("diskSpaceWarningLevelRatio", 80)
        .start_in(&disk.0.join("store"));
    let mut client = server.connect();
    topic(&mut client, "Stream", 1);
    // Twice what the disk has: deletion keeps up with what comes in.
    let mut refused = 0;
    for n in 0..6500 {
        let reply = client.call(Send::new("Stream", body("Stream", n, 20_000)));
        if reply.code == 14 {
            refused += 1;
            assert!(refused < 100, "{}", reply.remark);
            std::thread::sleep(Duration::from_millis(200));
        } else {
            reply.expect(0);
        }
    }
    let first = crate::common::min_offset(&mut client, "Stream", 0);
    assert!(first > 1000, "{first}, {refused} refused");
    server.assert_healthy();
}
