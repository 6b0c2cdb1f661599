//! `tuning/seccomp.json`: a broker lives under it, and not without its io_uring; and what
//! `tuning/check` finds out behind it.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::calls::listed;
use crate::common::{Client, Pull, Send, body, free_port, topic};
use crate::filter::{Condition, Log, Rule, behind, compile, ended, filtered, refused, terminate};
use crate::machine::{finish, script_of};

fn profile() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning/seccomp.json");
    serde_json::from_slice(&fs::read(path).unwrap()).expect("JSON")
}

fn names(profile: &Value, action: &str) -> BTreeSet<String> {
    let rules = profile["syscalls"].as_array().unwrap();
    let chosen = rules.iter().filter(|rule| rule["action"] == action);
    let names = chosen.flat_map(|rule| rule["names"].as_array().unwrap());
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_profile_is_a_list_of_what_is_allowed() {
    let profile = profile();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let allowed = names(&profile, "SCMP_ACT_ALLOW");
    for needed in [
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "futex",
        "mmap",
        "execve",
    ] {
        assert!(allowed.contains(needed), "{needed}");
    }
    for never in [
        "bpf",
        "mount",
        "umount2",
        "ptrace",
        "kexec_load",
        "init_module",
        "unshare",
        "setns",
        "perf_event_open",
        "keyctl",
        "add_key",
        "userfaultfd",
        "reboot",
        "swapon",
        "clone3",
        "open_by_handle_at",
        "process_vm_writev",
        "pivot_root",
        "chroot",
        "mknod",
        "personality",
    ] {
        assert!(!allowed.contains(never), "{never}");
    }
}

/// The profile without the system calls whose names begin so.
fn without(start: &str) -> Value {
    let mut profile = profile();
    for rule in profile["syscalls"].as_array_mut().unwrap() {
        let names = rule["names"].as_array_mut().unwrap();
        names.retain(|name| !name.as_str().unwrap().starts_with(start));
    }
    profile
}

fn result(action: &Value, errno: &Value) -> u32 {
    match action.as_str() {
        Some("SCMP_ACT_ALLOW") => libc::SECCOMP_RET_ALLOW,
        Some("SCMP_ACT_ERRNO") => refused(errno.as_i64().unwrap_or(libc::EPERM.into()) as i32),
        other => panic!("action {other:?}"),
    }
}

fn rules(profile: &Value) -> Vec<Rule> {
    let mut rules = Vec::new();
    for rule in profile["syscalls"].as_array().unwrap() {
        let conditions = rule["args"].as_array().into_iter().flatten().map(|arg| {
            let field = |name: &str| arg[name].as_u64().expect("a number");
            let (index, value) = (field("index") as u32, field("value"));
            match arg["op"].as_str() {
                Some("SCMP_CMP_EQ") => (index, u64::MAX, value),
                Some("SCMP_CMP_MASKED_EQ") => (index, value, field("valueTwo")),
                other => panic!("comparison {other:?}"),
            }
        });
        let conditions: Vec<Condition> = conditions.collect();
        for name in rule["names"].as_array().unwrap() {
            let Some(number) = listed(name.as_str().unwrap()) else {
                continue;
            };
            rules.push(Rule {
                number,
                conditions: conditions.clone(),
                result: result(&rule["action"], &rule["errnoRet"]),
            });
        }
    }
    rules
}

/// The profile as a program of the kernel's filter machine.
fn program(profile: &Value) -> Vec<libc::sock_filter> {
    let otherwise = result(&profile["defaultAction"], &profile["defaultErrnoRet"]);
    compile(rules(profile), otherwise)
}

/// `ringmq server` on ports of its own; the command and its broker's port.
fn server(store: &Path, flush: &str, shards: u16) -> (Command, u16) {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
    command
        .args(["server", "--shards", &shards.to_string(), "--store"])
        .arg(store);
    for set in [
        format!("listenPort={port}"),
        format!("nameserverPort={}", free_port()),
        format!("flushDiskType={flush}"),
        "mappedFileSizeCommitLog=16777216".to_owned(),
    ] {
        command.args(["--set", &set]);
    }
    (command, port)
}

#[test]
fn a_broker_starts_serves_and_stops_behind_the_filter() {
    for (flush, shards) in [("ASYNC_FLUSH", 1), ("SYNC_FLUSH", 1), ("SYNC_FLUSH", 2)] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (command, port) = server(dir.path(), flush, shards);
        let mut child = filtered(command, program(&profile()));
        let mut log = Log::of(&mut child);
        let ready = log.reaches(&mut child, "broker ready");
        assert!(ready, "ended:\n{}", log.text);
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
        let mut client = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        topic(&mut client, "Filtered", 2);
        for queue in [0, 1] {
            for n in 0..25 {
                client
                    .call(Send::new("Filtered", body("f", n, 2000)).queue(queue))
                    .expect(0);
            }
            let reply = client.call(Pull::new("Filtered", queue, 0)).expect(0);
            assert_eq!(reply.records()[0].body, body("f", 0, 2000));
        }
        terminate(&child);
        let flushed = log.reaches(&mut child, "everything acknowledged is on the device");
        assert!(flushed, "{}", log.text);
        assert_eq!(ended(&mut child), Some(0), "{}", log.text);
        let mut check = Command::new(env!("CARGO_BIN_EXE_ringmq"));
        check.args(["store", "check"]).arg(dir.path());
        let (code, told) = finish(behind(check, program(&profile())));
        assert_eq!(code, 0, "{told}");
    }
}

#[test]
fn the_tools_work_behind_the_filter() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
    command
        .args(["tune", "io", "--seconds", "1"])
        .arg(dir.path());
    assert_eq!(ended(&mut filtered(command, program(&profile()))), Some(0));
    assert!(dir.path().join("io-profile.json").exists());
}

#[test]
fn without_its_io_uring_the_filter_is_what_a_start_names() {
    let profile = without("io_uring");
    let dir = tempfile::tempdir().unwrap();
    let (command, _) = server(dir.path(), "ASYNC_FLUSH", 1);
    let mut child = filtered(command, program(&profile));
    let mut log = Log::of(&mut child);
    let started = log.reaches(&mut child, "broker ready");
    let told = &log.text;
    if started {
        let _ = child.kill();
    }
    assert_eq!(ended(&mut child), Some(1), "{told}");
    assert!(
        told.contains("seccomp") && told.contains("io_uring_setup"),
        "{told}"
    );
}

#[test]
fn a_ring_is_tried_behind_the_filter_that_is_there() {
    let tried = |profile: Option<Value>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
        command.args(["tune", "ring"]);
        match profile {
            Some(profile) => finish(behind(command, program(&profile))),
            None => finish(command),
        }
    };
    for profile in [None, Some(profile())] {
        let (code, told) = tried(profile);
        assert_eq!(code, 0, "{told}");
        assert!(told.contains("a ring was made"), "{told}");
    }
    for missing in [
        "io_uring",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ] {
        let (code, told) = tried(Some(without(missing)));
        assert_eq!(code, 1, "without {missing}: {told}");
        assert!(told.contains("a seccomp filter forbids io_uring"), "{told}");
    }
}

/// What `tuning/check` says behind a filter: exit code and report.
fn checked(profile: &Value, store: &Path) -> (i32, Value) {
    let mut command = script_of("check");
    command.env("RINGMQ", env!("CARGO_BIN_EXE_ringmq"));
    command.arg("--json").arg(store);
    let (code, text) = finish(behind(command, program(profile)));
    let report = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    (code, report)
}

fn item<'a>(report: &'a Value, name: &str) -> &'a Value {
    let items = report["items"].as_array().expect("items");
    let mut named = items.iter().filter(|item| item["name"] == name);
    named.next().expect("such an item")
}

#[test]
fn check_tells_a_filter_that_allows_rings_from_one_that_forbids_them() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (code, report) = checked(&profile(), dir.path());
    assert_eq!(
        (code, &report["starts"]),
        (0, &Value::Bool(true)),
        "{report}"
    );
    for name in ["io_uring", "seccomp"] {
        assert_eq!(item(&report, name)["mark"], "ok", "{report}");
    }
    assert_eq!(
        item(&report, "seccomp")["is"],
        "a filter that allows io_uring"
    );
    // As the profiles that container runtimes have by default.
    for missing in ["io_uring", "io_uring_enter"] {
        let (code, report) = checked(&without(missing), dir.path());
        assert_eq!(
            (code, &report["starts"]),
            (1, &Value::Bool(false)),
            "{report}"
        );
        let seccomp = item(&report, "seccomp");
        assert_eq!(seccomp["mark"], "need", "{report}");
        assert!(
            seccomp["better"]
                .as_str()
                .unwrap()
                .contains("tuning/seccomp.json"),
            "{report}"
        );
        let rings = item(&report, "io_uring");
        assert_eq!(rings["mark"], "need", "{report}");
        let told = rings["better"].as_str().unwrap();
        assert!(
            told.contains("a seccomp filter forbids io_uring"),
            "{report}"
        );
    }
}
