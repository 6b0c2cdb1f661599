//! `tuning/apply` and `tuning/revert`: what is changed is recorded, and comes back.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;

use crate::machine::{Machine, TUNABLE, script_of};

fn apply(machine: &Machine, args: &[&str]) -> String {
    let (code, text) = machine.run("apply", args);
    assert_eq!(code, 0, "{text}");
    text
}

fn revert(machine: &Machine) -> String {
    let (code, text) = machine.run("revert", &[]);
    assert_eq!(code, 0, "{text}");
    assert!(!machine.state().exists(), "{text}");
    text
}

const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";
const SWAPPINESS: &str = "/proc/sys/vm/swappiness";

#[test]
fn what_differs_is_changed_and_comes_back_exactly() {
    let machine = Machine::untuned();
    let before = machine.values();
    apply(&machine, &[]);
    let mut expected = before.clone();
    for (_, path, is, better) in TUNABLE {
        let was = expected.insert((*path).to_owned(), (*better).to_owned());
        assert_eq!(was.as_deref(), Some(*is), "{path}");
    }
    assert_eq!(machine.values(), expected);
    revert(&machine);
    assert_eq!(machine.values(), before);
}

#[test]
fn a_dry_run_tells_and_changes_nothing() {
    let machine = Machine::untuned();
    let before = machine.values();
    let text = apply(&machine, &["--dry-run"]);
    for (_, path, is, better) in TUNABLE {
        assert!(
            text.contains(&format!("would set {path} to {better} (is {is})")),
            "{path}: {text}"
        );
    }
    assert_eq!(machine.values(), before);
    assert!(!machine.state().exists());
}

#[test]
fn only_what_is_asked_for_is_changed_and_recorded() {
    let machine = Machine::untuned();
    let before = machine.values();
    apply(&machine, &["--only", "swap,somaxconn"]);
    let changed: Vec<_> = machine
        .values()
        .into_iter()
        .filter(|(path, value)| before[path] != *value)
        .collect();
    let value = |path: &str, value: &str| (path.to_owned(), value.to_owned());
    assert_eq!(changed, [value(SOMAXCONN, "1024"), value(SWAPPINESS, "10")]);
    let record = fs::read_to_string(machine.state()).unwrap();
    let lines: Vec<_> = record.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            format!("swap\t{SWAPPINESS}\t60\t10"),
            format!("somaxconn\t{SOMAXCONN}\t128\t1024")
        ]
    );
    let (code, text) = machine.run("apply", &["--only", "everything"]);
    assert_eq!(code, 2);
    assert!(
        text.contains("there is no such item") && text.contains("somaxconn"),
        "{text}"
    );
}

#[test]
fn a_second_run_keeps_the_oldest_values() {
    let machine = Machine::untuned();
    let before = machine.values();
    apply(&machine, &[]);
    let record = fs::read(machine.state()).unwrap();
    let tuned = machine.values();
    // The tree does not show where the kernel serves interrupts, so they are set once more.
    apply(&machine, &[]);
    assert_eq!(machine.values(), tuned);
    assert_eq!(fs::read(machine.state()).unwrap(), record);
    // Someone sets one back halfway, and it is applied again.
    machine.write(SOMAXCONN, "512");
    apply(&machine, &[]);
    assert_eq!(machine.value(SOMAXCONN), "1024");
    revert(&machine);
    assert_eq!(machine.values(), before);
}

#[test]
fn what_someone_else_has_changed_is_left_alone() {
    let machine = Machine::untuned();
    let mut before = machine.values();
    apply(&machine, &[]);
    machine.write(SOMAXCONN, "65535");
    let text = revert(&machine);
    let told = format!("{SOMAXCONN} is 65535, which tuning/apply did not set: left alone");
    assert!(text.contains(&told), "{text}");
    before.insert(SOMAXCONN.to_owned(), "65535".to_owned());
    assert_eq!(machine.values(), before);
}

#[test]
fn the_last_change_comes_back_first() {
    let machine = Machine::untuned();
    let applied = apply(&machine, &[]);
    let reverted = revert(&machine);
    let paths = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("set "));
        lines
            .map(|line| line.split(' ').nth(1).unwrap().to_owned())
            .collect()
    };
    let mut expected = paths(&applied);
    expected.reverse();
    assert!(expected.len() >= TUNABLE.len());
    assert_eq!(paths(&reverted), expected);
}

#[test]
fn a_run_that_was_interrupted_can_be_brought_back_and_gone_on_with() {
    // Recorded, and not yet changed: what a kill between the two leaves.
    for go_on in [false, true] {
        let machine = Machine::untuned();
        let before = machine.values();
        apply(&machine, &["--only", "swap"]);
        let mut record = fs::read_to_string(machine.state()).unwrap();
        record += &format!("somaxconn\t{SOMAXCONN}\t128\t1024\n");
        fs::write(machine.state(), &record).unwrap();
        if go_on {
            apply(&machine, &[]);
            assert_eq!(machine.value(SOMAXCONN), "1024");
        }
        revert(&machine);
        assert_eq!(machine.values(), before);
    }
    // A line that is cut off is of a change that was not made.
    let machine = Machine::untuned();
    let before = machine.values();
    apply(&machine, &["--only", "swap"]);
    let mut record = fs::read_to_string(machine.state()).unwrap();
    record += &format!("somaxconn\t{SOMAXCONN}\t12");
    fs::write(machine.state(), &record).unwrap();
    let text = revert(&machine);
    assert!(text.contains("line 4 was cut off"), "{text}");
    assert_eq!(machine.values(), before);
}

#[test]
fn a_record_that_is_garbled_stops_both_before_anything_is_changed() {
    let line = format!("swap\t{SWAPPINESS}\t60\t10");
    let head = "ringmq-tuning 1\nboot 11111111-0000-0000-0000-000000000000";
    let garbled = [
        String::new(),
        "\n".to_owned(),
        "\0\0\0\n".to_owned(),
        "ringmq-tuning 2\n".to_owned(),
        format!("ringmq-tuning 1\n{line}\n"),
        format!("{head}\nswap {SWAPPINESS} 60 10\n{line}\n"),
        format!("{head}\n{line}\tmore\n"),
        format!("{head}\nswap\t/etc/passwd\t60\t10\n"),
        format!("{head}\nswap\t/proc/../etc/passwd\t60\t10\n"),
        format!("{head}\n\n{line}\n"),
    ];
    for text in garbled {
        let machine = Machine::untuned();
        machine.write(SWAPPINESS, "10");
        let before = machine.values();
        fs::write(machine.state(), &text).unwrap();
        for script in ["apply", "revert"] {
            let (code, told) = machine.run(script, &[]);
            assert_eq!(code, 1, "{script} {text:?}: {told}");
            assert!(told.contains("tuning.state"), "{script} {text:?}: {told}");
            assert_eq!(machine.values(), before, "{script} {text:?}");
            assert_eq!(fs::read_to_string(machine.state()).unwrap(), text);
        }
    }
}

#[test]
fn a_record_of_an_earlier_boot_is_void() {
    let machine = Machine::untuned();
    let before = machine.values();
    apply(&machine, &["--only", "swap"]);
    machine.write("/proc/sys/kernel/random/boot_id", "2222");
    // After its start the machine has the old value by itself; here it shows that nobody touched it.
    let text = revert(&machine);
    assert!(text.contains("earlier boot"), "{text}");
    assert_eq!(machine.value(SWAPPINESS), "10");
    machine.write(SWAPPINESS, "60");
    apply(&machine, &["--only", "swap"]);
    machine.write("/proc/sys/kernel/random/boot_id", "3333");
    machine.write(SWAPPINESS, "50");
    let text = apply(&machine, &["--only", "swap"]);
    assert!(text.contains("begun anew"), "{text}");
    revert(&machine);
    assert_eq!(machine.value(SWAPPINESS), "50");
    assert_eq!(before[SWAPPINESS], "60");
}

#[test]
fn what_the_kernel_refuses_is_named_and_not_recorded() {
    let machine = Machine::untuned();
    // A number below 1024 that nobody can write.
    let path = machine.path(SOMAXCONN);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/proc/sys/kernel/cap_last_cap", &path).unwrap();
    let (code, text) = machine.run("apply", &[]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("somaxconn: the kernel did not take 1024"),
        "{text}"
    );
    let record = fs::read_to_string(machine.state()).unwrap();
    assert!(!record.contains("somaxconn"), "{record}");
    assert!(
        record.contains("syn-backlog"),
        "what follows is done all the same: {record}"
    );
    revert(&machine);
}

#[test]
fn a_setting_that_is_gone_is_no_fault() {
    let machine = Machine::untuned();
    apply(&machine, &["--only", "swap,somaxconn"]);
    fs::remove_file(machine.path(SOMAXCONN)).unwrap();
    let text = revert(&machine);
    assert!(text.contains(&format!("{SOMAXCONN} is gone")), "{text}");
    assert_eq!(machine.value(SWAPPINESS), "60");
}

#[test]
fn two_do_not_work_at_once() {
    let machine = Machine::untuned();
    apply(&machine, &["--only", "swap"]);
    let folder = fs::File::open(machine.state().parent().unwrap()).unwrap();
    // SAFETY: a plain system call on an open descriptor.
    assert_eq!(unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX) }, 0);
    for script in ["apply", "revert"] {
        let (code, text) = machine.run(script, &[]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("another tuning script is at work"), "{text}");
    }
    drop(folder);
    revert(&machine);
}

#[test]
fn without_changes_there_is_nothing_to_bring_back() {
    let machine = Machine::untuned();
    let text = revert(&machine);
    assert!(text.contains("nothing to bring back"), "{text}");
}

#[test]
fn whoever_may_not_change_the_machine_is_told() {
    // SAFETY: a plain system call.
    let is_root = unsafe { libc::geteuid() } == 0;
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("tuning.state");
    for script in ["apply", "revert"] {
        let mut command = script_of(script);
        command.arg("--state").arg(&state);
        if is_root {
            command.uid(65_534);
        }
        let output = match command.output() {
            // The source tree is where only root may read.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return,
            output => output.expect("it runs"),
        };
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("run it as root"), "{text}");
    }
    assert!(!state.exists());
}
