//! `ringmq store check` and `repair`: what they find, and what they leave.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Config, Pull, Send, Server, body, max_offset, topic};

const MESSAGES: u64 = 60;

/// Runs `ringmq store ARGS`: exit code, and what it printed.
fn store(args: &[&str], dir: &Path) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ringmq"))
        .arg("store")
        .args(args)
        .arg(dir)
        .output()
        .expect("the binary");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text)
}

/// A stopped broker with messages in one queue, and the folder of its store.
fn filled() -> (Server, PathBuf) {
    filled_by(&Config::server().shards(1))
}

fn filled_by(config: &Config) -> (Server, PathBuf) {
    let server = config.start();
    let mut client = server.connect();
    topic(&mut client, "Command", 1);
    for n in 0..MESSAGES {
        let send = Send::new("Command", body("c", n, 3000)).tag("T").queue(0);
        client.call(send).expect(0);
    }
    assert_eq!(server.stop(), 0);
    let dir = server.store().to_owned();
    (server, dir)
}

/// The first messages are all there, and the next is taken behind them.
fn serves(server: &Server, messages: u64) {
    let mut client = server.connect();
    assert_eq!(max_offset(&mut client, "Command", 0) as u64, messages);
    let mut found = 0;
    while found < messages {
        let reply = client.call(Pull::new("Command", 0, found as i64)).expect(0);
        for record in reply.records() {
            assert_eq!(record.queue_offset as u64, found);
            assert_eq!(record.body, body("c", found, 3000));
            found += 1;
        }
    }
    let send = Send::new("Command", body("c", messages, 3000)).queue(0);
    client.call(send).expect(0);
    assert_eq!(max_offset(&mut client, "Command", 0) as u64, messages + 1);
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("commitlog").join(format!("{:020}", 0))
}

/// Changes a byte in the middle of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 0x55;
    fs::write(path, bytes).expect("written");
}

#[test]
fn a_store_that_is_sound_is_said_to_be_and_left_as_it_is() {
    let (server, dir) = filled();
    let before = fs::read(segment(&dir)).expect("the log");
    let (code, text) = store(&["check"], &dir);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("{MESSAGES} messages")), "{text}");
    assert!(
        text.contains("0 wrong") && text.ends_with("sound\n"),
        "{text}"
    );
    assert!(fs::read(segment(&dir)).expect("the log") == before);
    let mut server = server;
    server.start_again();
    let (code, text) = store(&["check"], &dir);
    assert_eq!(code, 1);
    assert!(text.contains("in use by") && text.contains("pid"), "{text}");
    serves(&server, MESSAGES);
}

#[test]
fn a_folder_without_a_store_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    for command in ["check", "repair"] {
        let (code, text) = store(&[command], dir.path());
        assert_eq!(code, 1);
        let name = dir.path().display().to_string();
        assert!(text.contains(&name) && text.contains("no store"), "{text}");
    }
}

#[test]
fn wrong_entries_are_found_and_made_anew() {
    let (mut server, dir) = filled();
    let queue = dir
        .join("consumequeue/Command/0")
        .join(format!("{:020}", 0));
    flip(&queue, 20 * 20 + 7);
    let (code, text) = store(&["check"], &dir);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("1 wrong") && text.contains("entry 20"),
        "{text}"
    );
    let (code, text) = store(&["repair"], &dir);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains(&format!("{MESSAGES} messages entered")),
        "{text}"
    );
    let (code, text) = store(&["check"], &dir);
    assert_eq!(code, 0, "{text}");
    server.start_again();
    serves(&server, MESSAGES);
}

/// Damage in front of what the device had promised stops the start; nothing is cut but
/// when told to, and what is cut is kept.
#[test]
fn a_damaged_log_is_refused_shown_and_cut_when_told_to() {
    let config = Config::server().shards(1);
    let (mut server, dir) = filled_by(&config);
    let log = segment(&dir);
    let bytes = fs::read(&log).expect("the log");
    let size = i32::from_be_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
    // The body of message 20. The checkpoint is gone too, so that a start reads all of it.
    let before = 20 * size;
    flip(&log, before + size / 2);
    fs::remove_file(dir.join("checkpoint")).expect("a checkpoint");
    let (code, text) = config.start_refused();
    assert_eq!(code, 1);
    assert!(text.contains(&log.display().to_string()), "{text}");
    assert!(text.contains(&format!("byte {before}")), "{text}");
    assert!(text.contains("promised"), "{text}");

    let (code, text) = store(&["check"], &dir);
    assert_eq!(code, 1);
    let behind = format!("{} whole messages lie behind", MESSAGES - 21);
    assert!(
        text.contains(&format!("byte {before}")) && text.contains(&behind),
        "{text}"
    );
    let (code, text) = store(&["repair"], &dir);
    assert_eq!(code, 1);
    assert!(text.contains("--cut"), "{text}");
    assert_eq!(fs::read(&log).expect("the log").len(), bytes.len());

    let (code, text) = store(&["repair", "--cut"], &dir);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("cut at byte {before}")), "{text}");
    let kept = fs::read(dir.join(format!("damaged-{before}"))).expect("a copy");
    assert!(kept[size..10 * size] == bytes[before + size..before + 10 * size]);
    let (code, text) = store(&["check"], &dir);
    assert_eq!(code, 0, "{text}");
    server.start_again();
    serves(&server, 20);
}
