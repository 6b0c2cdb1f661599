//! `tuning/check`: what it says of machines, and that it changes none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringmq::probe::{KERNEL_BETTER, KERNEL_MIN, Kernel, MEMLOCK_BYTES_MIN};
use serde_json::Value;

use crate::machine::{Machine, TUNABLE, finish, script_of};

/// The items of a machine, by name.
pub fn items(machine: &Machine, args: &[&str]) -> BTreeMap<String, Value> {
    let (_, text) = machine.run("check", &[&["--json"], args].concat());
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    by_name(&report)
}

pub fn by_name(report: &Value) -> BTreeMap<String, Value> {
    let items = report["items"].as_array().expect("items");
    let named = |item: &Value| {
        (
            item["name"].as_str().expect("a name").to_owned(),
            item.clone(),
        )
    };
    items.iter().map(named).collect()
}

pub fn assert_mark(machine: &Machine, item: &str, mark: &str) -> Value {
    let items = items(machine, &[]);
    assert_eq!(items[item]["mark"], mark, "{}", items[item]);
    items[item].clone()
}

#[test]
fn this_machine_is_looked_at_at_once_and_ringmq_starts_here() {
    let began = Instant::now();
    let mut command = script_of("check");
    let dir = tempfile::tempdir().unwrap();
    command.env("RINGMQ", env!("CARGO_BIN_EXE_ringmq"));
    command.arg("--json").arg(dir.path());
    let (code, text) = finish(command);
    // A second when the machine has nothing else to do.
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(code, 0, "{text}");
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(report["starts"], true);
    let items = by_name(&report);
    let mark = if Kernel::running() < KERNEL_BETTER {
        "like"
    } else {
        "ok"
    };
    assert_eq!(items["kernel"]["mark"], mark);
    for item in items.values() {
        let mark = item["mark"].as_str().expect("a mark");
        assert!(["need", "like", "ok"].contains(&mark), "{item}");
        assert!(!item["is"].as_str().expect("what is").is_empty(), "{item}");
        for told in ["better", "why", "effect"] {
            let told = item[told].as_str().unwrap_or("");
            assert_eq!(told.is_empty(), mark == "ok", "{item}");
        }
    }
    let rings = items["io_uring"]["is"].as_str().unwrap();
    assert!(rings.contains("a ring was made"), "{rings}");
    let mut command = script_of("check");
    command.env("RINGMQ", env!("CARGO_BIN_EXE_ringmq"));
    command.arg(dir.path());
    let (code, text) = finish(command);
    assert_eq!(code, 0);
    for name in items.keys() {
        assert!(
            text.lines()
                .any(|line| line.split_whitespace().nth(1) == Some(name)),
            "{name}"
        );
    }
}

#[test]
fn what_can_be_better_is_marked_and_nothing_is_changed() {
    let machine = Machine::untuned();
    let before = machine.values();
    let items = items(&machine, &[]);
    for (item, ..) in TUNABLE {
        assert_eq!(items[*item]["mark"], "like", "{}", items[*item]);
        assert_eq!(items[*item]["apply"], true, "{}", items[*item]);
    }
    for item in [
        "kernel",
        "memlock",
        "files",
        "cpu-quota",
        "memory",
        "mount-options",
        "disk",
    ] {
        assert_eq!(items[item]["mark"], "ok", "{}", items[item]);
    }
    assert_eq!(machine.run("check", &[]).0, 0);
    assert_eq!(machine.values(), before);
}

#[test]
fn what_keeps_it_from_starting_is_an_exit_code() {
    let cases = [
        ("kernel", "/proc/sys/kernel/osrelease", "5.10.0-28-amd64"),
        ("io_uring", "/proc/sys/kernel/io_uring_disabled", "2"),
        (
            "memlock",
            "/proc/self/limits",
            "Max locked memory         65536  65536  bytes",
        ),
    ];
    for (item, path, text) in cases {
        let machine = Machine::untuned();
        machine.write(path, text);
        let (code, text) = machine.run("check", &[]);
        assert_eq!(code, 1, "{item}: {text}");
        assert!(
            text.lines()
                .any(|line| line.starts_with(&format!("need  {item}"))),
            "{text}"
        );
        assert_mark(&machine, item, "need");
    }
}

#[test]
fn the_locked_memory_and_the_kernel_that_are_needed_are_those_of_a_start() {
    let machine = Machine::untuned();
    for (bytes, mark) in [(MEMLOCK_BYTES_MIN, "ok"), (MEMLOCK_BYTES_MIN - 1, "need")] {
        let limit = format!("Max locked memory         {bytes}  {bytes}  bytes");
        machine.write("/proc/self/limits", &limit);
        assert_mark(&machine, "memlock", mark);
    }
    let Kernel { major, minor } = KERNEL_MIN;
    for (release, mark) in [
        (format!("{major}.{}.0", minor - 1), "need"),
        (format!("{major}.{minor}.0"), "like"),
        ("5.18.19".to_owned(), "like"),
        ("6.0.9".to_owned(), "like"),
        (format!("{KERNEL_BETTER}.0"), "ok"),
    ] {
        machine.write("/proc/sys/kernel/osrelease", &release);
        let kernel = assert_mark(&machine, "kernel", mark);
        if mark == "need" {
            assert_eq!(kernel["better"], format!("{KERNEL_MIN} or newer"));
        } else if mark == "like" {
            let better = kernel["better"].as_str().expect("what is better");
            assert!(better.contains(&KERNEL_BETTER.to_string()), "{kernel}");
        }
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let memory = format!("{} KiB", MEMLOCK_BYTES_MIN / 1024);
    for (name, told) in [
        ("README.md", format!("Linux {KERNEL_MIN} or newer")),
        (
            "tuning/README.md",
            format!("{KERNEL_MIN} needed, {KERNEL_BETTER} better"),
        ),
        ("tuning/README.md", format!("{memory} needed")),
        ("tuning/ringmq.service", memory.clone()),
    ] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        assert!(text.contains(&told), "{name}: {told}");
    }
}

#[test]
fn a_cdpath_of_the_caller_changes_nothing() {
    let machine = Machine::untuned();
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::create_dir(elsewhere.path().join("tuning")).unwrap();
    let mut command = std::process::Command::new("bash");
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CDPATH", elsewhere.path())
        .env("RINGMQ_TUNING_ROOT", machine.path("/"))
        .args(["tuning/check", "--json"])
        .arg(elsewhere.path());
    let (code, text) = finish(command);
    assert_eq!(code, 0, "{text}");
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(report["starts"], true);
}

#[test]
fn a_store_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = script_of("check");
    command.arg(file.path());
    let (code, text) = finish(command);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("is no folder"), "{text}");
}

#[test]
fn limits_of_containers_are_seen() {
    let machine = Machine::untuned();
    machine.write("/sys/fs/cgroup/a/cpu.max", "150000 100000");
    machine.write("/sys/fs/cgroup/memory.max", "104857600");
    machine.write("/proc/self/status", "Seccomp:\t2\nCpus_allowed_list:\t0-3");
    assert_eq!(
        assert_mark(&machine, "cpu-quota", "like")["is"],
        "1.5 processors"
    );
    assert_eq!(
        assert_mark(&machine, "memory", "like")["is"],
        "100 MiB (cgroup)"
    );
    // Whether the filter allows rings is known only by trying, and nobody has.
    assert_mark(&machine, "seccomp", "need");
    // Of one and a half processors one shard is made, on the first core.
    assert_eq!(
        assert_mark(&machine, "cpus", "ok")["is"],
        "0-3 of 0-3; shards on 0"
    );
    let old = Machine::untuned();
    old.write("/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/x\n0::/");
    old.write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "200000");
    old.write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
    old.write(
        "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
        "9223372036854771712",
    );
    assert_eq!(
        assert_mark(&old, "cpu-quota", "like")["is"],
        "2.0 processors"
    );
    assert_mark(&old, "memory", "ok");
}

#[test]
fn file_systems_and_mount_options_are_judged() {
    let with = |mount: &str| {
        let machine = Machine::untuned();
        machine.write("/proc/self/mountinfo", mount);
        machine
    };
    let machine = with("27 1 254:1 / / rw - ext4 /dev/vda1 rw,discard,nobarrier");
    let options = assert_mark(&machine, "mount-options", "like");
    assert_eq!(options["is"], "nobarrier discard atime");
    let machine = with("27 1 0:30 / / rw,relatime - overlay overlay rw");
    assert_mark(&machine, "file-system", "like");
    assert_mark(&machine, "disk", "ok");
    // Copy-on-write is nothing for a log that is filled ahead, unless it is switched off.
    for (options, kind, mark) in [
        ("rw,noatime", "btrfs", "like"),
        ("rw,noatime,nodatacow", "btrfs", "ok"),
        ("rw,noatime", "zfs", "like"),
        ("rw,noatime", "bcachefs", "like"),
        ("rw,noatime", "ext4", "ok"),
        ("rw,noatime", "xfs", "ok"),
    ] {
        let machine = with(&format!(
            "27 1 254:1 / / rw,relatime - {kind} /dev/vda1 {options}"
        ));
        let found = assert_mark(&machine, "file-system", mark);
        if mark == "like" {
            assert!(
                found["why"].as_str().unwrap().contains("copy-on-write"),
                "{found}"
            );
        }
    }
    let zfs = with("27 1 254:1 / / rw,noatime - zfs tank rw");
    let why = assert_mark(&zfs, "file-system", "like")["why"].clone();
    assert!(
        why.as_str().unwrap().contains("before 2.3 O_DIRECT"),
        "{why}"
    );
    // The deepest mount counts, the last of several in one place, and a blank in its name.
    let deep = "27 1 8:1 / / rw,noatime - xfs /dev/sda1 rw\n\
                28 27 0:31 / /tmp rw,noatime - ext4 /dev/a rw\n\
                29 27 0:32 / /tmp rw,noatime - tmpfs tmpfs rw\n\
                30 27 0:33 / /tm\\040p rw,noatime - nfs a:/b rw";
    let (_, text) = {
        let machine = with(deep);
        let mut command = script_of("check");
        command
            .env("RINGMQ_TUNING_ROOT", machine.path("/"))
            .arg("/tmp");
        finish(command)
    };
    assert!(text.contains("tmpfs at /tmp"), "{text}");
}

#[test]
fn a_steal_of_one_in_a_hundred_is_named() {
    let machine = Machine::untuned();
    machine.write(
        "/proc/stat",
        "cpu  1000 0 1000 7850 0 0 0 150 0 0\ncpu0 1 1 1 1 1 1 1 1",
    );
    let steal = assert_mark(&machine, "steal", "like");
    assert_eq!(steal["is"], "1.5 % of all time since the start");
    machine.write("/proc/stat", "cpu  1000 0 1000 7950 0 0 0 50 0 0");
    assert_eq!(assert_mark(&machine, "steal", "ok")["is"], "0.5 %");
}

#[test]
fn interrupts_belong_to_cores_without_a_shard() {
    let machine = Machine::untuned();
    machine.write("/proc/self/status", "Seccomp:\t0\nCpus_allowed_list:\t0-1");
    // One shard, on core 0, where the interrupts are.
    let irqs = assert_mark(&machine, "disk-irqs", "like");
    assert_eq!(irqs["is"], "37 on 0, 38 on 0");
    assert_eq!(irqs["better"], "core 1");
    for number in [37, 38] {
        machine.write(&format!("/proc/irq/{number}/effective_affinity_list"), "1");
    }
    assert_mark(&machine, "disk-irqs", "ok");
    // With as many shards as cores, all on one core is wrong, one each is right.
    let shards =
        |machine: &Machine| items(machine, &["--shards", "2"])["disk-irqs"]["mark"].clone();
    assert_eq!(shards(&machine), "like");
    machine.write("/proc/irq/37/effective_affinity_list", "0");
    assert_eq!(shards(&machine), "ok");
}

#[test]
fn interrupts_are_left_to_irqbalance_where_it_runs() {
    let machine = Machine::untuned();
    machine.write("/proc/99/comm", "irqbalance");
    let irqs = assert_mark(&machine, "disk-irqs", "like");
    assert_eq!(irqs["apply"], false);
    assert!(
        irqs["better"].as_str().unwrap().contains("irqbalance"),
        "{irqs}"
    );
}

#[test]
fn a_machine_that_shows_nothing_is_no_fault() {
    let machine = Machine::untuned();
    for dir in ["/sys", "/proc/irq", "/proc/sys/net", "/proc/sys/vm"] {
        std::fs::remove_dir_all(machine.path(dir)).unwrap();
    }
    for file in [
        "stat",
        "swaps",
        "cpuinfo",
        "self/mountinfo",
        "self/cgroup",
        "self/limits",
        "self/status",
    ] {
        std::fs::remove_file(machine.path(&format!("/proc/{file}"))).unwrap();
    }
    let (code, text) = machine.run("check", &[]);
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("line "), "a message of the shell: {text}");
    assert!(items(&machine, &[]).len() > 25);
}

#[test]
fn what_is_not_understood_is_refused() {
    for args in [
        &["--jason"][..],
        &["--shards"],
        &["--shards", "x"],
        &["--pid"],
        &["--pid", "../1"],
        &["--pid", "4194305"],
    ] {
        let mut command = script_of("check");
        command.args(args);
        let (code, text) = finish(command);
        assert_eq!(code, 2, "{args:?}: {text}");
    }
    for script in ["check", "apply", "revert", "iotune"] {
        let mut command = script_of(script);
        command.arg("--help");
        let (code, text) = finish(command);
        assert_eq!(code, 0, "{script}");
        assert!(text.contains(&format!("tuning/{script}")), "{text}");
    }
}
