//! System calls by name, and the groups of them that the units name.

macro_rules! numbers {
    ($($name:ident)*) => {
        &[$((stringify!($name), libc::$name)),*]
    };
}

/// The number of a system call on this architecture, where it has one.
pub fn number(name: &str) -> Option<u32> {
    let all = EVERYWHERE.iter().chain(OLDER);
    let mut named = all.filter(|(known, _)| known.strip_prefix("SYS_") == Some(name));
    named.next().map(|(_, number)| *number as u32)
}

/// The number of a system call that is in a profile or a group. Every name must be known here on
/// x86-64, so that none is left out by mistake; `None` where the architecture does without.
pub fn listed(name: &str) -> Option<u32> {
    let found = number(name);
    if cfg!(target_arch = "x86_64") {
        let elsewhere = ELSEWHERE.split_whitespace().any(|known| known == name);
        assert!(found.is_some() != elsewhere, "{name} is no system call");
    }
    found
}

/// What systemd means by a group, the groups in it taken apart (systemd 252).
pub fn group(name: &str) -> Vec<&'static str> {
    match name {
        "@system-service" => SYSTEM_SERVICE.split_whitespace().collect(),
        other => panic!("no table of {other}"),
    }
}

const SYSTEM_SERVICE: &str = "\
    _llseek _newselect accept accept4 access add_key alarm arch_prctl arm_fadvise64_64 bind brk
    cacheflush capget capset chdir chmod chown chown32 clock_getres clock_getres_time64
    clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 clone clone3 close
    close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
    epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve
    execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fchdir fchmod
    fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr
    flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate
    ftruncate64 futex futex_time64 futex_waitv futimesat get_mempolicy get_robust_list
    get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid
    getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid
    getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid
    getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr inotify_add_watch
    inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
    io_pgetevents_time64 io_setup io_submit io_uring_enter io_uring_register io_uring_setup ioctl
    ioprio_get ioprio_set ipc kcmp keyctl kill lchown lchown32 lgetxattr link linkat listen
    listxattr llistxattr lremovexattr lseek lsetxattr lstat lstat64 madvise mbind membarrier
    memfd_create migrate_pages mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2
    move_pages mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64
    mq_timedsend mq_timedsend_time64 mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock
    munlockall munmap name_to_handle_at nanosleep newfstatat nice oldfstat oldlstat oldolduname
    oldstat olduname open openat openat2 pause personality pidfd_open pidfd_send_signal pipe
    pipe2 poll ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_madvise
    process_vm_readv process_vm_writev pselect6 pselect6_time64 pwrite64 pwritev pwritev2 read
    readahead readdir readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg
    remap_file_pages removexattr rename renameat renameat2 request_key restart_syscall
    riscv_flush_icache riscv_hwprobe rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
    rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam
    sched_setscheduler sched_yield select semctl semget semop semtimedop semtimedop_time64 send
    sendfile sendfile64 sendmmsg sendmsg sendto set_mempolicy set_mempolicy_home_node
    set_robust_list set_thread_area set_tid_address set_tls setfsgid setfsgid32 setfsuid
    setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setns setpgid setpriority setregid
    setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid
    setsockopt setuid setuid32 setxattr shmat shmctl shmdt shmget shutdown sigaction sigaltstack
    signal signalfd signalfd4 sigpending sigprocmask sigreturn sigsuspend socket socketcall
    socketpair splice stat stat64 statfs statfs64 statx swapcontext symlink symlinkat sync
    sync_file_range sync_file_range2 syncfs sysinfo tee tgkill time timer_create timer_delete
    timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create
    timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate
    truncate64 ugetrlimit umask uname unlink unlinkat unshare uretprobe userfaultfd utime
    utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev";

/// Names of these that have no number here on x86-64: older forms, and those of other architectures.
const ELSEWHERE: &str = "\
    _llseek _newselect arm_fadvise64_64 cacheflush chown32 clock_getres_time64 clock_gettime64
    clock_nanosleep_time64 fadvise64_64 fchown32 fcntl64 fstat64 fstatat64 fstatfs64 ftruncate64
    futex_time64 getegid32 geteuid32 getgid32 getgroups32 getresgid32 getresuid32 getuid32
    io_pgetevents io_pgetevents_time64 ipc lchown32 lstat64 mmap2 mq_timedreceive_time64
    mq_timedsend_time64 nice oldfstat oldlstat oldolduname oldstat olduname ppoll_time64
    pselect6_time64 readdir recv recvmmsg_time64 riscv_flush_icache riscv_hwprobe
    rt_sigtimedwait_time64 sched_rr_get_interval_time64 semtimedop_time64 send sendfile64 set_tls
    setfsgid32 setfsuid32 setgid32 setgroups32 setregid32 setresgid32 setresuid32 setreuid32
    setuid32 sigaction signal sigpending sigprocmask sigreturn sigsuspend socketcall stat64
    statfs64 swapcontext sync_file_range2 timer_gettime64 timer_settime64 timerfd_gettime64
    timerfd_settime64 truncate64 ugetrlimit uretprobe utimensat_time64 waitpid";

/// Those that every architecture has.
const EVERYWHERE: &[(&str, libc::c_long)] = numbers! {
    SYS_accept SYS_accept4 SYS_add_key SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir
    SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_clone SYS_clone3 SYS_close
    SYS_close_range SYS_connect SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1
    SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_execveat SYS_exit
    SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchdir SYS_fchmod
    SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr
    SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate
    SYS_futex SYS_futex_waitv SYS_get_mempolicy SYS_get_robust_list SYS_getcpu SYS_getcwd
    SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer SYS_getpeername
    SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid
    SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid
    SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch SYS_io_cancel
    SYS_io_destroy SYS_io_getevents SYS_io_setup SYS_io_submit SYS_io_uring_enter
    SYS_io_uring_register SYS_io_uring_setup SYS_ioctl SYS_ioprio_get SYS_ioprio_set SYS_kcmp
    SYS_keyctl SYS_kill SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr
    SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_madvise SYS_mbind SYS_membarrier SYS_memfd_create
    SYS_migrate_pages SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall
    SYS_mmap SYS_move_pages SYS_mprotect SYS_mq_getsetattr SYS_mq_notify SYS_mq_open
    SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget SYS_msgrcv
    SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_name_to_handle_at SYS_nanosleep
    SYS_newfstatat SYS_openat SYS_openat2 SYS_personality SYS_pidfd_open SYS_pidfd_send_signal
    SYS_pipe2 SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64
    SYS_process_madvise SYS_process_vm_readv SYS_process_vm_writev SYS_pselect6 SYS_pwrite64
    SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv SYS_recvfrom
    SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages SYS_removexattr SYS_renameat2 SYS_request_key
    SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask
    SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_rt_tgsigqueueinfo SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam SYS_sched_getscheduler
    SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam
    SYS_sched_setscheduler SYS_sched_yield SYS_seccomp SYS_semctl SYS_semget SYS_semop
    SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_mempolicy
    SYS_set_mempolicy_home_node SYS_set_robust_list SYS_set_tid_address SYS_setfsgid SYS_setfsuid
    SYS_setgid SYS_setgroups SYS_setitimer SYS_setns SYS_setpgid SYS_setpriority SYS_setregid
    SYS_setresgid SYS_setresuid SYS_setreuid SYS_setsid SYS_setsockopt SYS_setuid SYS_setxattr
    SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown SYS_sigaltstack SYS_signalfd4
    SYS_socket SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync SYS_syncfs
    SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete SYS_timer_getoverrun
    SYS_timer_gettime SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime
    SYS_times SYS_tkill SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_unshare SYS_userfaultfd
    SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
};

/// Those that newer architectures do without, or have no name for.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(&str, libc::c_long)] = numbers! {
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create
    SYS_epoll_ctl_old SYS_epoll_wait SYS_epoll_wait_old SYS_eventfd SYS_fchmodat2 SYS_fork
    SYS_futimesat SYS_get_thread_area SYS_getdents SYS_getpgrp SYS_getrlimit SYS_inotify_init
    SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_open SYS_pause SYS_pipe SYS_poll
    SYS_readlink SYS_rename SYS_renameat SYS_rmdir SYS_select SYS_set_thread_area SYS_setrlimit
    SYS_signalfd SYS_stat SYS_symlink SYS_sync_file_range SYS_time SYS_unlink SYS_utime SYS_utimes
    SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(&str, libc::c_long)] = &[];
