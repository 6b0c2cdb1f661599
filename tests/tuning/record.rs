//! The record of `tuning/apply`: root writes what it says, so nobody else may have had a hand in it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::machine::{Machine, TUNABLE, finish, script_of, set_mode};

const HEAD: &str = "ringmq-tuning 1\nboot 11111111-0000-0000-0000-000000000000";
const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
const RPS: &str = "/sys/class/net/eth0/queues/rx-0/rps_cpus";

fn swap_line() -> String {
    format!("{HEAD}\nswap\t{SWAPPINESS}\t60\t10\n")
}

/// Both scripts refuse with this, and change nothing of the machine.
fn refused(machine: &Machine, scripts: &[&str], why: &str) {
    let before = machine.values();
    for script in scripts {
        let (code, told) = machine.run(script, &[]);
        assert_eq!(code, 1, "{script}: {told}");
        assert!(told.contains(why), "{script}: {why}: {told}");
        assert_eq!(machine.values(), before, "{script}");
    }
}

fn tuned_with(record: &str) -> Machine {
    let machine = Machine::untuned();
    machine.write(SWAPPINESS, "10");
    machine.put_record(record);
    machine
}

const BOTH: &[&str] = &["apply", "revert"];

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_record_is_made_for_the_caller_alone() {
    let machine = Machine::untuned();
    assert_eq!(machine.run("apply", &[]).0, 0);
    let folder = machine.state().parent().unwrap().to_owned();
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&machine.state()), 0o600);
    let names: Vec<_> = fs::read_dir(folder).unwrap().collect();
    assert_eq!(names.len(), 1, "no temporary file stays: {names:?}");
}

#[test]
fn a_record_in_which_others_can_write_is_refused() {
    for bits in [0o660, 0o606, 0o602] {
        let machine = tuned_with(&swap_line());
        set_mode(&machine.state(), bits);
        refused(&machine, BOTH, "tuning.state can be written by others");
    }
    for bits in [0o770, 0o707, 0o1777] {
        let machine = tuned_with(&swap_line());
        set_mode(machine.state().parent().unwrap(), bits);
        refused(&machine, BOTH, "ringmq-tuning can be written by others");
    }
    // Whoever can rename the folder can put another in its place.
    let machine = tuned_with(&swap_line());
    set_mode(machine.state().parent().unwrap().parent().unwrap(), 0o777);
    refused(&machine, BOTH, "can be written by others (mode 777)");
    // The same record as it should be is believed.
    let machine = tuned_with(&swap_line());
    let (code, text) = machine.run("revert", &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(machine.value(SWAPPINESS), "60");
}

#[test]
fn a_record_of_another_user_is_refused() {
    // SAFETY: a plain system call.
    if unsafe { libc::geteuid() } != 0 {
        // Nobody but root can give a file away; /proc is a folder of root's.
        let machine = Machine::untuned();
        let mut command = script_of("revert");
        command.env("RINGMQ_TUNING_ROOT", machine.path("/"));
        let (code, text) = finish({
            command.args(["--state", "/proc/version"]);
            command
        });
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("/proc belongs to user 0"), "{text}");
        return;
    }
    let machine = tuned_with(&swap_line());
    let folder = machine.state().parent().unwrap().to_owned();
    std::os::unix::fs::chown(machine.state(), Some(65_534), None).unwrap();
    refused(&machine, BOTH, "tuning.state belongs to user 65534");
    std::os::unix::fs::chown(machine.state(), Some(0), None).unwrap();
    std::os::unix::fs::chown(&folder, Some(65_534), None).unwrap();
    refused(&machine, BOTH, "ringmq-tuning belongs to user 65534");
    std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
    let above = folder.parent().unwrap();
    std::os::unix::fs::chown(above, Some(65_534), None).unwrap();
    refused(&machine, BOTH, "belongs to user 65534");
}

#[test]
fn nothing_is_read_or_written_behind_a_symbolic_link() {
    let machine = tuned_with(&swap_line());
    let state = machine.state();
    let victim = state.with_file_name("victim");
    fs::rename(&state, &victim).unwrap();
    symlink(&victim, &state).unwrap();
    refused(&machine, BOTH, "tuning.state is a symbolic link");
    assert_eq!(fs::read_to_string(&victim).unwrap(), swap_line());
    // One that leads nowhere is no missing record.
    fs::remove_file(&victim).unwrap();
    refused(&machine, BOTH, "tuning.state is a symbolic link");
    assert!(!victim.exists());

    let machine = tuned_with(&swap_line());
    let folder = machine.state().parent().unwrap().to_owned();
    let moved = folder.with_file_name("moved");
    fs::rename(&folder, &moved).unwrap();
    symlink(&moved, &folder).unwrap();
    refused(&machine, BOTH, "ringmq-tuning is a symbolic link");

    // The name that a temporary file once had is nothing special.
    let machine = tuned_with(&swap_line());
    let victim = machine.state().with_file_name("victim");
    fs::write(&victim, "kept").unwrap();
    symlink(&victim, machine.state().with_extension("state.tmp")).unwrap();
    assert_eq!(machine.run("apply", &[]).0, 0);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
}

#[test]
fn only_what_apply_changes_is_brought_back() {
    let disk = "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue";
    let cases = [
        ("swap", "/etc/cron.d/x".to_owned()),
        ("swap", "/proc/../etc/cron.d/x".to_owned()),
        ("swap", "/proc/self/root/etc/cron.d/x".to_owned()),
        ("swap", "/proc/sys/kernel/core_pattern".to_owned()),
        ("swap", "/proc/sys/net/core/somaxconn".to_owned()),
        ("swap", format!("{SWAPPINESS}/../../kernel/core_pattern")),
        ("swap", format!("x{SWAPPINESS}")),
        ("swap", format!("{SWAPPINESS}x")),
        ("sysctl", SWAPPINESS.to_owned()),
        ("scheduler", format!("{disk}/read_ahead_kb")),
        ("scheduler", format!("{disk}/../../queue/scheduler")),
        ("scheduler", format!("{disk}/iosched")),
        ("scheduler", format!("{disk}/iosched/../scheduler")),
        ("scheduler", format!("{disk}/iosched/a/b")),
        ("read-ahead", format!("{disk}/nr_requests")),
        ("scheduler", format!("{disk}/./queue/scheduler")),
        ("scheduler", format!("{disk}//queue/scheduler")),
        ("rps", "/sys/class/net/../queues/rx-0/rps_cpus".to_owned()),
        ("rps", "/sys/class/net/a/b/queues/rx-0/rps_cpus".to_owned()),
        ("disk-irqs", "/proc/irq/x/smp_affinity_list".to_owned()),
        ("governor", "/sys/devices/system/cpu/cpu0/uevent".to_owned()),
        (
            "cstates",
            "/sys/devices/system/cpu/cpu0/cpuidle/state*/disable".to_owned(),
        ),
    ];
    for (item, path) in cases {
        let record = format!("{}{item}\t{path}\t1\t2\n", swap_line());
        let machine = tuned_with(&record);
        let why = format!("line 4: tuning/apply never changes {path} for {item}");
        refused(&machine, BOTH, &why);
        assert_eq!(fs::read_to_string(machine.state()).unwrap(), record);
    }
}

#[test]
fn everything_that_apply_changes_can_be_brought_back() {
    // Paths of machines that the tree of files is not.
    let more = [
        (
            "scheduler",
            "/sys/devices/pci0000:00/0000:3d:00.0/nvme/nvme0/nvme0n1/queue/scheduler",
        ),
        (
            "scheduler",
            "/sys/devices/pci0000:00/0000:3d:00.0/nvme/nvme0/nvme0n1/queue/nr_requests",
        ),
        (
            "scheduler",
            "/sys/devices/virtual/block/md0/queue/iosched/slice_idle_us",
        ),
        (
            "read-ahead",
            "/sys/devices/virtual/block/md0/queue/read_ahead_kb",
        ),
        ("nic-irqs", "/proc/irq/120/smp_affinity_list"),
        ("rps", "/sys/class/net/enp0s3.100/queues/rx-0/rps_cpus"),
    ];
    let tunable = TUNABLE.iter().map(|(item, path, ..)| (*item, *path));
    for (item, path) in tunable.chain(more) {
        let machine = Machine::untuned();
        machine.write(path, "2");
        machine.put_record(&format!("{HEAD}\n{item}\t{path}\t1\t2\n"));
        let (code, text) = machine.run("revert", &[]);
        assert_eq!(code, 0, "{item} {path}: {text}");
        assert_eq!(machine.value(path), "1", "{text}");
    }
}

#[test]
fn a_mask_is_the_same_with_the_zeros_that_the_kernel_writes() {
    for kernels in ["0f", "0000000f", "00000000,0000000f"] {
        let machine = Machine::untuned();
        machine.write(RPS, "00000000,00000000");
        // Writes as the kernel would: what is asked for, in its own form.
        let printf = format!(
            "() {{ [ \"$#:${{2:-}}\" != 2:f ] || set -- \"$1\" {kernels}; builtin printf \"$@\"; }}"
        );
        let mut command = script_of("apply");
        command
            .env("RINGMQ_TUNING_ROOT", machine.path("/"))
            .env("BASH_FUNC_printf%%", printf)
            .args(["--only", "rps", "--state"])
            .arg(machine.state());
        let (code, text) = finish(command);
        assert_eq!(code, 0, "{text}");
        assert_eq!(machine.value(RPS), kernels, "{text}");
        assert!(text.contains(&format!("set {RPS} to f")), "{text}");
        let (code, text) = machine.run("revert", &[]);
        assert_eq!(code, 0, "{text}");
        assert_eq!(machine.value(RPS), "00000000,00000000", "{text}");
    }
    // Another mask is another's.
    let machine = Machine::untuned();
    assert_eq!(machine.run("apply", &["--only", "rps"]).0, 0);
    machine.write(RPS, "00000000,000000f0");
    let (_, text) = machine.run("revert", &[]);
    assert!(text.contains("left alone"), "{text}");
    assert_eq!(machine.value(RPS), "00000000,000000f0");
}
