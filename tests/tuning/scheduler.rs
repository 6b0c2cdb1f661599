//! Settings that a disk loses with its I/O scheduler come back with it.

use std::collections::BTreeMap;
use std::fs;

use crate::machine::{Machine, QUEUE};

/// What the kernel does with a queue when its scheduler is written: `nr_requests` and the
/// scheduler's own settings are made anew.
const KERNEL: &str = r#"
    builtin printf "$@" || return
    [ "$#:$1" = '2:%s\n' ] || return 0
    local queue=$root/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue
    case $2 in
    none | mq-deadline | kyber | bfq) rm -rf "$queue/iosched" ;;
    *) return 0 ;;
    esac
    case $2 in
    none) builtin printf '1023\n' >"$queue/nr_requests" ;;
    *) builtin printf '64\n' >"$queue/nr_requests" ;;
    esac
    case $2 in
    bfq) mkdir "$queue/iosched"
        builtin printf '8\n' >"$queue/iosched/slice_idle"
        builtin printf '8000\n' >"$queue/iosched/slice_idle_us"
        builtin printf '1\n' >"$queue/iosched/low_latency" ;;
    kyber) mkdir "$queue/iosched"
        builtin printf '2000000\n' >"$queue/iosched/read_lat_nsec" ;;
    esac
    return 0"#;

fn setting(name: &str) -> String {
    format!("/{QUEUE}/{name}")
}

/// A machine whose administrator has made much of bfq.
fn machine() -> Machine {
    let machine = Machine::untuned();
    for (name, value) in [
        ("nr_requests", "512"),
        ("iosched/slice_idle", "0"),
        ("iosched/slice_idle_us", "700"),
        ("iosched/low_latency", "1"),
    ] {
        machine.write(&setting(name), value);
    }
    machine
}

fn run(machine: &Machine, script: &str) -> String {
    let (code, text) = machine.run_with(KERNEL, script, &[]);
    assert_eq!(code, 0, "{text}");
    text
}

/// Applied on [`machine`]: what it was, and the machine as it is.
fn applied() -> (BTreeMap<String, String>, Machine) {
    let machine = machine();
    let before = machine.values();
    run(&machine, "apply");
    assert_eq!(machine.value(&setting("scheduler")), "none");
    assert_eq!(machine.value(&setting("nr_requests")), "1023");
    assert!(!machine.path(&setting("iosched")).exists());
    (before, machine)
}

#[test]
fn what_the_kernel_made_anew_comes_back() {
    let (before, machine) = applied();
    let text = run(&machine, "revert");
    assert_eq!(machine.values(), before, "{text}");
    assert!(!machine.state().exists());
    let told = format!("set {} to 512 (was 64)", setting("nr_requests"));
    assert!(text.contains(&told), "{text}");
    // In this order: each sets along what comes behind it.
    let place = |name: &str| {
        let told = format!("set {} to", setting(name));
        text.find(&told).unwrap_or_else(|| panic!("{told}: {text}"))
    };
    assert!(place("scheduler") < place("nr_requests"), "{text}");
    assert!(place("nr_requests") < place("iosched/slice_idle"), "{text}");
    assert!(
        place("iosched/slice_idle") < place("iosched/slice_idle_us"),
        "{text}"
    );
}

#[test]
fn the_oldest_values_come_back_after_a_second_run() {
    let (before, machine) = applied();
    // Someone tries another scheduler, and applies again.
    machine.write(&setting("scheduler"), "none [kyber] bfq");
    machine.write(&setting("nr_requests"), "64");
    machine.write(&setting("iosched/read_lat_nsec"), "2000000");
    run(&machine, "apply");
    assert_eq!(machine.value(&setting("nr_requests")), "1023");
    let text = run(&machine, "revert");
    assert_eq!(machine.values(), before, "{text}");
}

#[test]
fn what_someone_else_has_set_since_is_kept() {
    let (mut before, machine) = applied();
    machine.write(&setting("nr_requests"), "800");
    let text = run(&machine, "revert");
    let told = format!(
        "{} is 800, which tuning/apply did not set: kept",
        setting("nr_requests")
    );
    assert!(text.contains(&told), "{text}");
    before.insert(setting("nr_requests"), "800".to_owned());
    assert_eq!(machine.values(), before);
}

#[test]
fn with_another_scheduler_all_of_it_is_left_alone() {
    let (_, machine) = applied();
    machine.write(&setting("scheduler"), "none [kyber] bfq");
    machine.write(&setting("iosched/read_lat_nsec"), "2000000");
    let text = run(&machine, "revert");
    assert_eq!(machine.value(&setting("scheduler")), "kyber", "{text}");
    assert_eq!(machine.value(&setting("nr_requests")), "1023", "{text}");
    let told = format!(
        "{} is 1023: left alone with its scheduler",
        setting("nr_requests")
    );
    assert!(text.contains(&told), "{text}");
    assert!(!machine.path(&setting("iosched/slice_idle")).exists());
    assert!(!machine.state().exists());
}

#[test]
fn what_was_interrupted_is_brought_back_all_the_same() {
    // Recorded, and not yet changed.
    let (before, tuned) = applied();
    let record = fs::read_to_string(tuned.state()).unwrap();
    let unknown = record
        .replace("\t1023\n", "\t-\n")
        .replace("\tgone\n", "\t-\n");
    assert_eq!(unknown.matches("\t-\n").count(), 4, "{record}");
    let machine = machine();
    machine.put_record(&unknown);
    run(&machine, "revert");
    assert_eq!(machine.values(), before);
    // Changed, and the record not yet told what became of the rest.
    fs::write(tuned.state(), &unknown).unwrap();
    run(&tuned, "revert");
    assert_eq!(tuned.values(), before);
    // Brought back, but for the rest.
    let (before, machine) = applied();
    let kernel = format!(
        "if [ \"$#:$1:$2\" = '2:%s\\n:512' ]; then builtin printf '64\\n'; kill -9 $$; exit; fi\n{KERNEL}"
    );
    let (code, text) = machine.run_with(&kernel, "revert", &[]);
    assert_eq!(code, -1, "{text}");
    assert_eq!(machine.value(&setting("scheduler")), "bfq");
    assert_eq!(machine.value(&setting("nr_requests")), "64");
    run(&machine, "revert");
    assert_eq!(machine.values(), before);
}

/// A kernel that does not take a scheduler, but keeps another.
fn refusing(scheduler: &str, kept: &str) -> String {
    // The shell has emptied the file.
    let keep = format!("builtin printf '{kept}\\n'; return 1");
    format!("if [ \"$#:$1:$2\" = '2:%s\\n:{scheduler}' ]; then {keep}; fi\n{KERNEL}")
}

#[test]
fn a_scheduler_that_is_refused_keeps_the_rest_in_the_record() {
    let (before, machine) = applied();
    let kernel = refusing("bfq", "none");
    let (code, text) = machine.run_with(&kernel, "revert", &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("the kernel did not take bfq"), "{text}");
    assert_eq!(machine.value(&setting("nr_requests")), "1023");
    let record = fs::read_to_string(machine.state()).unwrap();
    assert_eq!(record.lines().count(), 2 + 5, "{record}");
    run(&machine, "revert");
    assert_eq!(machine.values(), before);
    // And one that is refused to begin with leaves nothing there.
    let machine = self::machine();
    let before = machine.values();
    let kernel = refusing("none", "bfq");
    let (code, text) = machine.run_with(&kernel, "apply", &["--only", "scheduler"]);
    assert_eq!(code, 1, "{text}");
    assert!(!machine.state().exists(), "{text}");
    assert_eq!(machine.values(), before);
}
