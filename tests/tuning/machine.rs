//! A tree of files in place of `/proc` and `/sys`, and the scripts run on it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Four cores and a disk, with most that can be tuned as it should not be.
pub struct Machine {
    dir: tempfile::TempDir,
}

/// The queue of its disk.
pub const QUEUE: &str = "sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue";

/// Everything that apply can change on [`Machine::untuned`]: item, path, value as it is, and as
/// it should be.
pub const TUNABLE: &[(&str, &str, &str, &str)] = &[
    (
        "governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "powersave",
        "performance",
    ),
    (
        "governor",
        "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "powersave",
        "performance",
    ),
    (
        "cstates",
        "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable",
        "0",
        "1",
    ),
    (
        "numa-balancing",
        "/proc/sys/kernel/numa_balancing",
        "1",
        "0",
    ),
    (
        "thp",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "always",
        "madvise",
    ),
    (
        "thp-defrag",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "always",
        "madvise",
    ),
    ("swap", "/proc/sys/vm/swappiness", "60", "10"),
    (
        "scheduler",
        "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/scheduler",
        "bfq",
        "none",
    ),
    (
        "read-ahead",
        "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/read_ahead_kb",
        "8192",
        "1024",
    ),
    (
        "rq-affinity",
        "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/rq_affinity",
        "0",
        "1",
    ),
    ("disk-irqs", "/proc/irq/37/smp_affinity_list", "0-3", "0"),
    ("disk-irqs", "/proc/irq/38/smp_affinity_list", "0-3", "1"),
    ("rps", "/sys/class/net/eth0/queues/rx-0/rps_cpus", "0", "f"),
    ("somaxconn", "/proc/sys/net/core/somaxconn", "128", "1024"),
    (
        "syn-backlog",
        "/proc/sys/net/ipv4/tcp_max_syn_backlog",
        "256",
        "1024",
    ),
];

impl Machine {
    pub fn untuned() -> Machine {
        let machine = Machine {
            dir: tempfile::tempdir().expect("a folder"),
        };
        let files = [
            ("proc/sys/kernel/osrelease", "6.1.0-9-amd64"),
            ("proc/sys/kernel/io_uring_disabled", "0"),
            (
                "proc/sys/kernel/random/boot_id",
                "11111111-0000-0000-0000-000000000000",
            ),
            ("proc/sys/kernel/numa_balancing", "1"),
            ("proc/sys/vm/swappiness", "60"),
            ("proc/sys/net/core/somaxconn", "128"),
            ("proc/sys/net/ipv4/tcp_max_syn_backlog", "256"),
            (
                "proc/self/status",
                "Seccomp:\t0\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3",
            ),
            (
                "proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max open files            1024                 1048576              files\n\
                 Max locked memory         8388608              unlimited            bytes",
            ),
            ("proc/self/cgroup", "0::/a"),
            (
                "proc/self/mountinfo",
                "27 1 254:1 / / rw,noatime shared:1 - ext4 /dev/vda1 rw",
            ),
            ("proc/cpuinfo", "flags\t\t: fpu hypervisor"),
            ("proc/stat", "cpu  1000 0 1000 8000 0 0 0 0 0 0"),
            (
                "proc/swaps",
                "Filename Type Size Used Priority\n/dev/vda2 partition 1 0 -2",
            ),
            ("proc/17/comm", "bash"),
            ("sys/fs/cgroup/a/cpu.max", "max 100000"),
            ("sys/fs/cgroup/a/memory.max", "max"),
            ("sys/devices/system/cpu/online", "0-3"),
            ("sys/devices/system/node/online", "0-1"),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc",
            ),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "powersave",
            ),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors",
                "performance powersave",
            ),
            (
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "powersave",
            ),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "2"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "C1"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "300"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "0"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state2/name", "C6"),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "[always] madvise never",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/defrag",
                "[always] defer madvise never",
            ),
            ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
            ("sys/class/net/eth0/device/vendor", "0x1af4"),
            (
                "sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/vda1/partition",
                "1",
            ),
        ];
        for (path, text) in files {
            machine.write(&format!("/{path}"), text);
        }
        for (name, text) in [
            ("scheduler", "none mq-deadline [bfq]"),
            ("read_ahead_kb", "8192"),
            ("rq_affinity", "0"),
            ("rotational", "1"),
            ("write_cache", "write back"),
            ("fua", "0"),
            ("nr_requests", "256"),
        ] {
            machine.write(&format!("/{QUEUE}/{name}"), text);
        }
        // Of the disk's interrupts the first is no queue's. The others are those of a driver that
        // leaves it to others where they are served, unlike virtio's.
        for (number, name) in [(36, "virtio1-config"), (37, "ahci0"), (38, "ahci1")] {
            let pci = "/sys/devices/pci0000:00/0000:00:02.0/msi_irqs";
            machine.write(&format!("{pci}/{number}"), "msix");
            machine.write(&format!("/proc/irq/{number}/smp_affinity_list"), "0-3");
            machine.write(&format!("/proc/irq/{number}/effective_affinity_list"), "0");
            fs::create_dir(machine.path(&format!("/proc/irq/{number}/{name}"))).unwrap();
        }
        let numbers = machine.path("/sys/dev/block");
        fs::create_dir_all(&numbers).unwrap();
        let partition = format!("../../../{}/vda1", QUEUE.strip_suffix("/queue").unwrap());
        std::os::unix::fs::symlink(partition, numbers.join("254:1")).unwrap();
        machine
    }

    /// Where a file of the kernel stands in the tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Puts a program into the tree, and returns where it is.
    pub fn program(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // By another process: a file that this one has open for writing cannot be run, and a
        // child that a thread starts meanwhile has it open, too.
        let mut shell = Command::new("sh")
            .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .expect("it runs");
        let text = format!("#!/bin/sh\n{text}\n");
        let mut stdin = shell.stdin.take().expect("piped");
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        assert!(shell.wait().unwrap().success());
        path
    }

    /// The value of a setting: the one in brackets where there are several.
    pub fn value(&self, path: &str) -> String {
        let text = fs::read_to_string(self.path(path)).unwrap();
        match text.split_once('[') {
            Some((_, rest)) => rest.split(']').next().unwrap().to_owned(),
            None => text.trim().to_owned(),
        }
    }

    /// The value of every file of the tree.
    pub fn values(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.root()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let (kind, path) = (entry.file_type().unwrap(), entry.path());
                if kind.is_dir() {
                    open.push(path);
                } else if kind.is_file() {
                    let path = path.strip_prefix(self.root()).unwrap();
                    let path = format!("/{}", path.display());
                    found.insert(path.clone(), self.value(&path));
                }
            }
        }
        found
    }

    /// The record of what was changed.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("ringmq-tuning/tuning.state")
    }

    /// Puts a record there that nobody else can have written.
    pub fn put_record(&self, text: &str) {
        let folder = self.state().parent().unwrap().to_owned();
        fs::create_dir_all(&folder).unwrap();
        set_mode(&folder, 0o700);
        fs::write(self.state(), text).unwrap();
        set_mode(&self.state(), 0o600);
    }

    /// Runs `tuning/SCRIPT ARGS` on the tree: exit code, and what it printed.
    pub fn run(&self, script: &str, args: &[&str]) -> (i32, String) {
        finish(self.command(script, args))
    }

    /// The same with a function of the shell in place of `printf`, with which the scripts write
    /// settings: what the kernel does along with a write.
    pub fn run_with(&self, printf: &str, script: &str, args: &[&str]) -> (i32, String) {
        let mut command = self.command(script, args);
        command.env("BASH_FUNC_printf%%", format!("() {{ {printf}\n}}"));
        finish(command)
    }

    /// `tuning/SCRIPT ARGS` on the tree.
    pub fn command(&self, script: &str, args: &[&str]) -> Command {
        let mut command = script_of(script);
        command.env("RINGMQ_TUNING_ROOT", self.root()).args(args);
        if script != "check" {
            command.arg("--state").arg(self.state());
        }
        if script != "revert" {
            command.arg(self.dir.path());
        }
        command
    }
}

/// The rights of a file or folder.
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// `tuning/SCRIPT`, without arguments.
pub fn script_of(script: &str) -> Command {
    let tuning = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning");
    let mut command = Command::new(tuning.join(script));
    command.current_dir(std::env::temp_dir());
    command.env_remove("RINGMQ_TUNING_ROOT");
    command.env_remove("RINGMQ");
    command
}

/// Runs it: exit code, and what it printed.
pub fn finish(mut command: Command) -> (i32, String) {
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text)
}
