//! The systemd units: what systemd says of them, and what they run behind their filters.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use ringmq::wire::command::Request;

use crate::calls::{group, listed, number};
use crate::common::{Client, Pull, Send, body, eventually, free_port, topic};
use crate::filter::{Condition, Log, Rule, compile, ended, filtered, refused, terminate};

/// Set where there is no systemd and that is no fault.
const NO_SYSTEMD: &str = "RINGMQ_TESTS_WITHOUT_SYSTEMD";

const UNITS: [&str; 2] = ["ringmq.service", "ringmq-nameserver.service"];

/// What `systemd-analyze ARGS` says; `None` where it is missing and may be.
fn analyze(args: &[&str]) -> Option<Output> {
    match Command::new("systemd-analyze").args(args).output() {
        Ok(output) => Some(output),
        Err(error) => {
            assert!(
                std::env::var_os(NO_SYSTEMD).is_some(),
                "no systemd-analyze ({error}), so the units are not checked; install systemd, or \
                 set {NO_SYSTEMD}=1 to do without"
            );
            None
        }
    }
}

/// A unit of `tuning/`.
struct Unit(String);

impl Unit {
    fn read(name: &str) -> Unit {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tuning")
            .join(name);
        Unit(fs::read_to_string(path).expect("a unit"))
    }

    /// The words of all lines that set this.
    fn words(&self, key: &str) -> Vec<&str> {
        let lines = self.0.lines().filter_map(|line| line.split_once('='));
        let values = lines.filter(|(found, _)| *found == key);
        values
            .flat_map(|(_, value)| value.split_whitespace())
            .collect()
    }

    /// Names of the system calls that its filter allows.
    fn allowed(&self) -> BTreeSet<&str> {
        let words = self.words("SystemCallFilter").into_iter();
        words
            .flat_map(|word| match word.starts_with('@') {
                true => group(word),
                false => vec![word],
            })
            .collect()
    }

    /// What of its settings systemd makes filters of: SystemCallFilter, MemoryDenyWriteExecute,
    /// RestrictNamespaces and RestrictAddressFamilies.
    fn filter(&self) -> Vec<libc::sock_filter> {
        let mut rules = Vec::new();
        let mut rule = |name: &str, conditions: &[Condition], result: u32| {
            let number = number(name);
            rules.extend(number.map(|number| Rule {
                number,
                conditions: conditions.to_vec(),
                result,
            }));
        };
        // The refusals first: the first rule that holds counts.
        let eperm = refused(libc::EPERM);
        assert_eq!(self.words("SystemCallErrorNumber"), ["EPERM"]);
        assert_eq!(self.words("MemoryDenyWriteExecute"), ["true"]);
        let bits = |index: u32, bits: i32| (index, bits as u64, bits as u64);
        rule(
            "mmap",
            &[bits(2, libc::PROT_WRITE | libc::PROT_EXEC)],
            eperm,
        );
        rule("mprotect", &[bits(2, libc::PROT_EXEC)], eperm);
        rule("shmat", &[bits(2, libc::SHM_EXEC)], eperm);
        assert_eq!(self.words("RestrictNamespaces"), ["true"]);
        for kind in [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWCGROUP,
            libc::CLONE_NEWUTS,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
        ] {
            rule("clone", &[bits(0, kind)], eperm);
        }
        rule("unshare", &[], eperm);
        rule("setns", &[], eperm);
        rule("clone3", &[], refused(libc::ENOSYS));
        let families = self.words("RestrictAddressFamilies");
        for family in &families {
            let domain = match *family {
                "AF_UNIX" => libc::AF_UNIX,
                "AF_INET" => libc::AF_INET,
                "AF_INET6" => libc::AF_INET6,
                "AF_NETLINK" => libc::AF_NETLINK,
                other => panic!("{other}"),
            };
            let is = [(0, u64::MAX, domain as u64)];
            rule("socket", &is, libc::SECCOMP_RET_ALLOW);
        }
        assert!(!families.is_empty());
        rule("socket", &[], refused(libc::EAFNOSUPPORT));
        for name in self.allowed() {
            if listed(name).is_some() {
                rule(name, &[], libc::SECCOMP_RET_ALLOW);
            }
        }
        compile(rules, eperm)
    }

    /// What it starts, with this file and this folder in place of those of its ExecStart.
    fn command(&self, config: &Path, store: &Path) -> Command {
        let words = self.words("ExecStart");
        assert_eq!(words[0], "/usr/local/bin/ringmq");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
        let mut seen = 0;
        for word in &words[1..] {
            if word.starts_with("/etc/ringmq/") {
                command.arg(config);
                seen += 1;
            } else if word.starts_with("/var/lib/ringmq") {
                let folder = word.rsplit('/').next().unwrap();
                assert_eq!(self.words("StateDirectory"), [folder]);
                command.arg(store);
                seen += 1;
            } else {
                command.arg(word);
            }
        }
        assert_eq!(seen, 2, "{words:?}");
        command
    }
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let dir = tempfile::tempdir().unwrap();
    for name in UNITS {
        let Unit(text) = Unit::read(name);
        for line in [
            "LimitMEMLOCK=infinity",
            "NoNewPrivileges=true",
            "SystemCallFilter=io_uring_setup io_uring_enter io_uring_register",
        ] {
            assert!(text.lines().any(|found| found == line), "{name}: {line}");
        }
        let copy = dir.path().join(name);
        // It is installed nowhere.
        let installed = text.replace("/usr/local/bin/ringmq", env!("CARGO_BIN_EXE_ringmq"));
        fs::write(&copy, installed).unwrap();
        let Some(output) = analyze(&["verify", copy.to_str().unwrap()]) else {
            return;
        };
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !told.contains(&format!("{name}:")),
            "{told}"
        );
    }
}

#[test]
fn the_nameserver_is_shut_in_as_the_broker_is() {
    // Everything but what it is called, what it starts, and how much it may take.
    let same = |name: &str| -> BTreeSet<String> {
        let own = [
            "Description=",
            "After=",
            "ExecStart=",
            "StateDirectory=",
            "TimeoutStopSec=",
            "TasksMax=",
        ];
        let Unit(text) = Unit::read(name);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter(|line| !own.iter().any(|key| line.starts_with(key)))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(same(UNITS[0]), same(UNITS[1]));
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning/README.md");
    let readme = fs::read_to_string(readme).unwrap();
    for name in UNITS {
        assert!(readme.contains(name), "{name}");
    }
}

/// The names of a group, with the groups in it taken apart; nothing where systemd has no such.
fn expanded(group: &str) -> Option<BTreeSet<String>> {
    let output = analyze(&["syscall-filter", group])?;
    let mut names = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stdout).lines().skip(1) {
        let word = line.trim();
        match word.chars().next() {
            None | Some('#') => {}
            Some('@') => names.extend(expanded(word)?),
            Some(_) => _ = names.insert(word.to_owned()),
        }
    }
    Some(names)
}

#[test]
fn the_table_of_a_group_allows_no_more_than_systemd() {
    let named: BTreeSet<String> = UNITS
        .iter()
        .flat_map(|name| {
            let unit = Unit::read(name);
            let words = unit.words("SystemCallFilter").into_iter();
            let groups: Vec<_> = words.filter(|word| word.starts_with('@')).collect();
            groups
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(!named.is_empty());
    for name in named {
        let Some(systemd) = expanded(&name) else {
            return;
        };
        assert!(systemd.len() > 200, "{name}: {systemd:?}");
        // Older versions have no io_uring there, so the units name it.
        let more: Vec<_> = group(&name)
            .into_iter()
            .filter(|call| !systemd.contains(*call) && !call.starts_with("io_uring_"))
            .collect();
        assert_eq!(more, [""; 0], "{name}");
    }
}

#[test]
fn what_the_units_start_lives_behind_their_filters() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name);
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let [broker_unit, nameserver_unit] = UNITS.map(Unit::read);
    let (port, nameserver_port) = (free_port(), free_port());

    let text = format!("bindAddress=127.0.0.1\nlistenPort={nameserver_port}\n");
    fs::write(path("namesrv.properties"), text).unwrap();
    let command = nameserver_unit.command(&path("namesrv.properties"), &path("names"));
    let mut nameserver = filtered(command, nameserver_unit.filter());
    let mut nameserver_log = Log::of(&mut nameserver);
    let ready = nameserver_log.reaches(&mut nameserver, "nameserver ready");
    assert!(ready, "ended:\n{}", nameserver_log.text);

    let text = format!(
        "bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nlistenPort={port}\n\
         namesrvAddr=127.0.0.1:{nameserver_port}\nflushDiskType=SYNC_FLUSH\n\
         mappedFileSizeCommitLog=16777216\n"
    );
    fs::write(path("broker.conf"), text).unwrap();
    let mut command = broker_unit.command(&path("broker.conf"), &path("store"));
    command.args(["--shards", "2"]);
    let mut broker = filtered(command, broker_unit.filter());
    let mut log = Log::of(&mut broker);
    let ready = log.reaches(&mut broker, "broker ready");
    assert!(ready, "ended:\n{}", log.text);
    for child in [&broker, &nameserver] {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
    }

    let mut client = Client::connect(at(port));
    topic(&mut client, "Unit", 2);
    for queue in [0, 1] {
        let message = body("u", queue as u64, 3000);
        client
            .call(Send::new("Unit", message.clone()).queue(queue))
            .expect(0);
        let reply = client.call(Pull::new("Unit", queue, 0)).expect(0);
        assert_eq!(reply.records()[0].body, message);
    }
    let mut names = Client::connect(at(nameserver_port));
    let route = || names.call(Request::new(105).with("topic", "Unit")).code == 0;
    eventually("a route", Duration::from_secs(20), route);

    terminate(&broker);
    let flushed = log.reaches(&mut broker, "everything acknowledged is on the device");
    assert!(flushed, "{}", log.text);
    assert_eq!(ended(&mut broker), Some(0), "{}", log.text);
    terminate(&nameserver);
    assert_eq!(ended(&mut nameserver), Some(0), "{}", nameserver_log.text);
}

#[test]
fn the_filter_of_the_units_refuses_what_it_should() {
    for name in UNITS {
        let unit = Unit::read(name);
        for needed in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
            assert!(unit.allowed().contains(needed), "{name}: {needed}");
        }
        for never in [
            "mount",
            "ptrace",
            "bpf",
            "kexec_load",
            "reboot",
            "swapon",
            "chroot",
        ] {
            assert!(!unit.allowed().contains(never), "{name}: {never}");
        }
        // One that runs behind it is refused what others may.
        let output = filtered(
            {
                let mut command = Command::new("unshare");
                command.args(["--uts", "true"]);
                command
            },
            unit.filter(),
        )
        .wait_with_output()
        .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{told}");
        assert!(told.contains("Operation not permitted"), "{told}");
    }
}
