//! `tuning/seccomp.json`: a broker lives under it, and not without its io_uring.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Client, Pull, Send, body, topic};

/// Longest time that a start or a stop may take, with everything else that runs.
const LIMIT: Duration = Duration::from_secs(30);

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

/// What a rule compares an argument with: its number, the bits that count, their value.
type Condition = (u32, u64, u64);

/// One system call of the profile.
struct Rule {
    number: u32,
    conditions: Vec<Condition>,
    result: u32,
}

fn result(action: &Value, errno: &Value) -> u32 {
    match action.as_str() {
        Some("SCMP_ACT_ALLOW") => libc::SECCOMP_RET_ALLOW,
        Some("SCMP_ACT_ERRNO") => {
            libc::SECCOMP_RET_ERRNO | errno.as_u64().unwrap_or(libc::EPERM as u64) as u32
        }
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
            let name = name.as_str().unwrap();
            let Some(number) = number(name) else {
                if cfg!(target_arch = "x86_64") {
                    panic!("{name} is no system call");
                }
                continue;
            };
            rules.push(Rule {
                number: number as u32,
                conditions: conditions.clone(),
                result: result(&rule["action"], &rule["errnoRet"]),
            });
        }
    }
    rules
}

/// The profile as a program of the kernel's filter machine.
fn compile(profile: &Value) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    /// Places in `struct seccomp_data`.
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const ARGUMENTS: u32 = 16;
    #[cfg(target_arch = "x86_64")]
    const HERE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const HERE: u32 = 0xc000_00b7;
    let step = |code: u32, value: u32, no: usize| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: no as u8,
        k: value,
    };
    let mut program = vec![
        step(LOAD, ARCHITECTURE, 0),
        step(EQUAL, HERE, 1),
        // Over the end of the process, to what follows.
        step(libc::BPF_JMP | libc::BPF_JA, 1, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0),
    ];
    for rule in rules(profile) {
        // From behind, as each comparison jumps over all that is left of the rule.
        let mut steps = vec![step(RETURN, rule.result, 0)];
        for (index, mask, value) in rule.conditions.into_iter().rev() {
            for high in [1, 0] {
                let part = |number: u64| (number >> (32 * high)) as u32;
                let left = steps.len();
                let place = ARGUMENTS + 8 * index + 4 * high;
                let load = [
                    step(LOAD, place, 0),
                    step(AND, part(mask), 0),
                    step(EQUAL, part(value), left),
                ];
                steps.splice(0..0, load);
            }
        }
        let left = steps.len();
        steps.splice(
            0..0,
            [step(LOAD, NUMBER, 0), step(EQUAL, rule.number, left)],
        );
        program.extend(steps);
    }
    program.push(step(
        RETURN,
        result(&profile["defaultAction"], &profile["defaultErrnoRet"]),
        0,
    ));
    assert!(program.len() < 4096, "{} steps", program.len());
    program
}

/// Everything that the program starts from here on is behind the filter.
fn filtered(mut command: Command, program: Vec<libc::sock_filter>) -> Child {
    let install = move || {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: prctl is async-signal-safe; `filter` and its program live through the call, in
        // memory that was taken before the fork.
        let done = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &filter,
                    0,
                    0,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(install) };
    command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// `ringmq server` on ports of its own; the command and its broker's port.
fn server(store: &Path, flush: &str) -> (Command, u16) {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
    command
        .args(["server", "--shards", "1", "--store"])
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

fn ended(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code();
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_broker_starts_serves_and_stops_behind_the_filter() {
    for flush in ["ASYNC_FLUSH", "SYNC_FLUSH"] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (command, port) = server(dir.path(), flush);
        let mut child = filtered(command, compile(&profile()));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut log = String::new();
        while !log.contains("broker ready") {
            let line = lines.next().unwrap_or_else(|| panic!("not ready:\n{log}"));
            log += &line.unwrap();
            log.push('\n');
        }
        let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
        let mut client = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        topic(&mut client, "Filtered", 1);
        for n in 0..50 {
            client
                .call(Send::new("Filtered", body("f", n, 2000)).queue(0))
                .expect(0);
        }
        let reply = client.call(Pull::new("Filtered", 0, 0)).expect(0);
        assert_eq!(reply.records()[0].body, body("f", 0, 2000));
        // SAFETY: a plain system call; the child is not yet waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        assert_eq!(ended(&mut child), Some(0), "{log}");
        let rest = rest.join().unwrap().join("\n");
        assert!(
            rest.contains("everything acknowledged is on the device"),
            "{rest}"
        );
    }
}

#[test]
fn the_tools_work_behind_the_filter() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmq"));
    command
        .args(["tune", "io", "--seconds", "1"])
        .arg(dir.path());
    assert_eq!(ended(&mut filtered(command, compile(&profile()))), Some(0));
    assert!(dir.path().join("io-profile.json").exists());
}

#[test]
fn without_its_io_uring_the_filter_is_what_a_start_names() {
    let mut profile = profile();
    for rule in profile["syscalls"].as_array_mut().unwrap() {
        let names = rule["names"].as_array_mut().unwrap();
        names.retain(|name| !name.as_str().unwrap().starts_with("io_uring"));
    }
    let dir = tempfile::tempdir().unwrap();
    let (command, _) = server(dir.path(), "ASYNC_FLUSH");
    let mut child = filtered(command, compile(&profile));
    let mut told = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert_eq!(ended(&mut child), Some(1), "{told}");
    assert!(
        told.contains("seccomp") && told.contains("io_uring_setup"),
        "{told}"
    );
}

macro_rules! numbers {
    ($($name:ident)*) => {
        &[$((stringify!($name), libc::$name)),*]
    };
}

/// The number of a system call on this architecture, where it has one.
fn number(name: &str) -> Option<libc::c_long> {
    let wanted = format!("SYS_{name}");
    let all = [EVERYWHERE, OLDER].concat();
    all.iter()
        .find(|(name, _)| *name == wanted)
        .map(|(_, number)| *number)
}

/// Those that every architecture has.
const EVERYWHERE: &[(&str, libc::c_long)] = numbers! {
    SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_getres
    SYS_clock_gettime SYS_clock_nanosleep SYS_clone SYS_clone3 SYS_close SYS_close_range
    SYS_connect SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl
    SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_exit SYS_exit_group
    SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchdir SYS_fchmod SYS_fchown
    SYS_fcntl SYS_fdatasync SYS_flock SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex
    SYS_futex_waitv SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getitimer
    SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getrandom SYS_getrlimit SYS_getrusage
    SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid SYS_io_uring_enter
    SYS_io_uring_register SYS_io_uring_setup SYS_ioctl SYS_kill SYS_listen SYS_lseek SYS_madvise
    SYS_membarrier SYS_mincore SYS_mkdirat SYS_mlock SYS_mlock2 SYS_mmap SYS_mprotect SYS_mremap
    SYS_msync SYS_munlock SYS_munmap SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2
    SYS_pipe2 SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_pselect6
    SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readlinkat SYS_readv SYS_recvfrom
    SYS_recvmmsg SYS_recvmsg SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getparam SYS_sched_getscheduler
    SYS_sched_setaffinity SYS_sched_yield SYS_seccomp SYS_sendfile SYS_sendmmsg SYS_sendmsg
    SYS_sendto SYS_set_robust_list SYS_set_tid_address SYS_setgid SYS_setgroups SYS_setpgid
    SYS_setresgid SYS_setresuid SYS_setrlimit SYS_setsid SYS_setsockopt SYS_setuid SYS_shutdown
    SYS_sigaltstack SYS_socket SYS_socketpair SYS_splice SYS_statfs SYS_statx
    SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_tgkill SYS_timerfd_create SYS_timerfd_settime
    SYS_times SYS_tkill SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_wait4 SYS_waitid
    SYS_write SYS_writev
};

/// Those that newer architectures do without.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(&str, libc::c_long)] = numbers! {
    SYS_access SYS_arch_prctl SYS_chmod SYS_dup2 SYS_epoll_create SYS_epoll_wait SYS_eventfd
    SYS_getpgrp SYS_lstat SYS_mkdir SYS_open SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_rmdir
    SYS_select SYS_stat SYS_time SYS_unlink
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(&str, libc::c_long)] = &[];
