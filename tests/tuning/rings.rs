//! What `tuning/check` says of rings, and of processes other than itself.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::check::{assert_mark, by_name, items};
use crate::common::Config;
use crate::machine::{Machine, finish, script_of, set_mode};

const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";
const GROUP: &str = "/proc/sys/kernel/io_uring_group";
const STATUS: &str = "/proc/self/status";

/// Report and exit code, with a program that answers so in place of ringmq.
fn with_answer(machine: &Machine, answer: &str) -> (i32, Value) {
    let program = machine.program("/ringmq", answer);
    let mut command = machine.command("check", &["--json"]);
    command.env("RINGMQ", program);
    let (code, text) = finish(command);
    let report = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    (code, report)
}

#[test]
fn what_a_try_finds_out_is_what_counts() {
    let machine = Machine::untuned();
    machine.write(STATUS, "Seccomp:\t2\nCpus_allowed_list:\t0-3");
    let asked = "[ \"$1 $2\" = 'tune ring' ] || exit 9";
    let (code, report) = with_answer(&machine, asked);
    assert_eq!(
        (code, &report["starts"]),
        (0, &Value::Bool(true)),
        "{report}"
    );
    let found = by_name(&report);
    assert_eq!(found["seccomp"]["mark"], "ok");
    assert_eq!(
        found["io_uring"]["is"],
        "kernel.io_uring_disabled = 0; a ring was made"
    );

    let refusal = "echo 'ringmq: a seccomp filter forbids io_uring' >&2; exit 1";
    let (code, report) = with_answer(&machine, refusal);
    assert_eq!(
        (code, &report["starts"]),
        (1, &Value::Bool(false)),
        "{report}"
    );
    let found = by_name(&report);
    assert_eq!(found["seccomp"]["mark"], "need");
    assert_eq!(
        found["io_uring"]["better"],
        "a seccomp filter forbids io_uring"
    );

    // Another cause is not the filter's.
    let other = "echo 'ringmq: no file descriptor is left for a ring' >&2; exit 1";
    let (code, report) = with_answer(&machine, other);
    assert_eq!(code, 1, "{report}");
    assert_eq!(by_name(&report)["seccomp"]["mark"], "ok", "{report}");

    // One that does not know the question has no answer.
    for useless in ["exit 2", "kill -9 $$", "echo what; exit 1", "sleep 60"] {
        let (code, report) = with_answer(&machine, useless);
        assert_eq!(code, 1, "{useless}: {report}");
        let found = by_name(&report);
        assert_eq!(found["seccomp"]["mark"], "need", "{useless}: {report}");
        let why = found["seccomp"]["why"].as_str().unwrap();
        assert!(why.contains("not tried: "), "{useless}: {why}");
    }
}

#[test]
fn root_runs_only_what_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("ringmq");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    set_mode(&program, 0o755);
    let paths = format!(
        "{}:{}",
        dir.path().display(),
        std::env::var("PATH").unwrap()
    );
    let is = |named: bool| {
        let mut command = script_of("check");
        command.env("PATH", &paths).arg("--json").arg(dir.path());
        if named {
            command.env("RINGMQ", &program);
        }
        let (_, text) = finish(command);
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        by_name(&report)["io_uring"]["is"].to_string()
    };
    assert!(is(true).contains("a ring was made"));
    // SAFETY: a plain system call.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert_eq!(is(false).contains("a ring was made"), !is_root);
}

#[test]
fn a_filter_that_nobody_tried_is_no_start() {
    let machine = Machine::untuned();
    machine.write(STATUS, "Seccomp:\t2\nCpus_allowed_list:\t0-3");
    let (code, text) = machine.run("check", &[]);
    assert_eq!(code, 1, "{text}");
    let seccomp = assert_mark(&machine, "seccomp", "need");
    let is = seccomp["is"].as_str().unwrap();
    assert!(
        is.contains("nobody knows whether it allows io_uring"),
        "{seccomp}"
    );
    let why = seccomp["why"].as_str().unwrap();
    assert!(
        why.contains("there is no ringmq to try it with"),
        "{seccomp}"
    );
}

#[test]
fn rings_for_a_group_are_for_its_members() {
    let machine = Machine::untuned();
    machine.write(DISABLED, "1");
    let of = |capabilities: &str, gid: u32, groups: &str| {
        format!(
            "Gid:\t{gid}\t{gid}\t{gid}\t{gid}\nGroups:\t{groups}\nCapEff:\t{capabilities}\n\
             Seccomp:\t0\nCpus_allowed_list:\t0-3"
        )
    };
    let nobody = "0000000000000000";
    let root = "0000000000200000";
    for (group, status, mark) in [
        ("-1", of(nobody, 1000, "1000 "), "need"),
        ("990", of(nobody, 1000, "1000 99 9901 "), "need"),
        ("990", of(nobody, 1000, "1000 990 "), "ok"),
        ("990", of(nobody, 990, ""), "ok"),
        // RingMQ's user is another.
        ("990", of(root, 0, "0 "), "like"),
        ("990", of(root, 0, "0 990 "), "ok"),
    ] {
        machine.write(GROUP, group);
        machine.write(STATUS, &status);
        assert_mark(&machine, "io_uring", mark);
        let code = i32::from(mark == "need");
        assert_eq!(machine.run("check", &[]).0, code, "{group}: {status}");
    }
}

#[test]
fn another_process_is_looked_at_where_it_is_named() {
    let machine = Machine::untuned();
    let limits = |files: &str, bytes: &str| {
        format!(
            "Max open files            1024  {files}  files\n\
             Max locked memory         65536  {bytes}  bytes"
        )
    };
    machine.write("/proc/4321/limits", &limits("4096", "65536"));
    let status = "Seccomp:\t2\nCapEff:\t0\nCpus_allowed_list:\t2";
    machine.write("/proc/4321/status", status);
    machine.write("/proc/4321/cgroup", "0::/service");
    machine.write("/sys/fs/cgroup/service/memory.max", "104857600");
    for item in ["memlock", "files", "seccomp", "memory"] {
        assert_mark(&machine, item, "ok");
    }
    let other = items(&machine, &["--pid", "4321"]);
    assert_eq!(other["memlock"]["mark"], "need", "{}", other["memlock"]);
    assert_eq!(other["memlock"]["is"], "64 KiB");
    assert_eq!(other["files"]["is"], "4096");
    assert_eq!(other["memory"]["is"], "100 MiB (cgroup)");
    assert_eq!(other["cpus"]["is"], "2 of 0-3; shards on 2");
    assert_eq!(other["seccomp"]["mark"], "need", "{}", other["seccomp"]);
    // One that has rings may make them.
    std::fs::create_dir(machine.path("/proc/4321/fd")).unwrap();
    symlink("/dev/null", machine.path("/proc/4321/fd/0")).unwrap();
    symlink("anon_inode:[io_uring]", machine.path("/proc/4321/fd/7")).unwrap();
    machine.write("/proc/4321/limits", &limits("1048576", "unlimited"));
    let other = items(&machine, &["--pid", "4321"]);
    for item in ["memlock", "files", "seccomp", "io_uring"] {
        assert_eq!(other[item]["mark"], "ok", "{}", other[item]);
    }
}

#[test]
fn the_limits_of_a_broker_that_runs_are_its_own() {
    let server = Config::server().start();
    let limit = libc::rlimit {
        rlim_cur: 9000,
        rlim_max: 9000,
    };
    // SAFETY: a plain system call, with a limit that lives through it.
    let set = unsafe {
        libc::prlimit(
            server.pid(),
            libc::RLIMIT_NOFILE,
            &limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(set, 0);
    let mut command = script_of("check");
    let pid = server.pid().to_string();
    command.args(["--json", "--pid", &pid]).arg(server.store());
    let (code, text) = finish(command);
    assert_eq!(code, 0, "{text}");
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let found = by_name(&report);
    assert_eq!(found["files"]["is"], "9000");
    assert_eq!(found["files"]["mark"], "like");
    let rings = found["io_uring"]["is"].as_str().unwrap();
    assert!(rings.contains("a ring was made"), "{rings}");
    assert_eq!(server.stop(), 0);
}
