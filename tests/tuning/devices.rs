//! What `tuning/check` says of interrupts, network cards and the caches of disks.

use std::fs;

use serde_json::Value;

use crate::check::{assert_mark, items};
use crate::machine::{Machine, QUEUE, set_mode};

const PCI: &str = "/sys/devices/pci0000:00/0000:00:02.0/msi_irqs";

/// A machine of two cores whose disk has interrupts with these names, from number 60 on.
fn with_interrupts(names: &[&str]) -> Machine {
    let machine = Machine::untuned();
    machine.write("/proc/self/status", "Seccomp:\t0\nCpus_allowed_list:\t0-1");
    fs::remove_dir_all(machine.path(PCI)).unwrap();
    for (number, name) in (60..).zip(names) {
        machine.write(&format!("{PCI}/{number}"), "msix");
        machine.write(&format!("/proc/irq/{number}/smp_affinity_list"), "0-1");
        machine.write(&format!("/proc/irq/{number}/effective_affinity_list"), "0");
        fs::create_dir(machine.path(&format!("/proc/irq/{number}/{name}"))).unwrap();
    }
    machine
}

#[test]
fn interrupts_that_the_kernel_places_are_left_to_it() {
    for names in [
        &["nvme0q0", "nvme0q1", "nvme0q2"][..],
        &["virtio1-config", "virtio1-req.0", "virtio1-req.1"],
        &["virtio0-control", "virtio0-event", "virtio0-request"],
    ] {
        let machine = with_interrupts(names);
        let irqs = assert_mark(&machine, "disk-irqs", "ok");
        let is = irqs["is"].as_str().unwrap();
        assert!(is.contains("placed by the kernel itself"), "{is}");
        assert!(is.contains("62 on 0") && !is.contains("60 on 0"), "{is}");
        let before = machine.values();
        for _ in 0..2 {
            let (code, text) = machine.run("apply", &["--only", "disk-irqs"]);
            assert_eq!(code, 0, "{text}");
            assert!(text.contains("nothing to change"), "{text}");
        }
        assert_eq!(machine.values(), before);
    }
    // Newer kernels say so themselves, of all drivers.
    let machine = with_interrupts(&["mpt3sas0-msix0", "mpt3sas0-msix1"]);
    assert_mark(&machine, "disk-irqs", "like");
    set_mode(&machine.path("/proc/irq/60/smp_affinity_list"), 0o444);
    let irqs = assert_mark(&machine, "disk-irqs", "like");
    assert_eq!(
        irqs["is"],
        "61 on 0; 60 on 0 (placed by the kernel itself, which lets nobody move them)"
    );
    set_mode(&machine.path("/proc/irq/61/smp_affinity_list"), 0o444);
    assert_mark(&machine, "disk-irqs", "ok");
    // Where all queues share the one vector that there is, it can be moved.
    let machine = with_interrupts(&["nvme0q0"]);
    fs::create_dir(machine.path("/proc/irq/60/nvme0q1")).unwrap();
    assert_mark(&machine, "disk-irqs", "like");
}

#[test]
fn an_interrupt_that_turns_out_to_be_the_kernels_is_no_failure() {
    for error in ["Input/output error", "Operation not permitted"] {
        let machine = with_interrupts(&["hpsa0-msix0", "hpsa0-msix1"]);
        let before = machine.values();
        // The shell has emptied the file.
        let refuse = format!(
            "if [ \"$#:$1\" != '2:%s\\n' ]; then builtin printf \"$@\"; return; fi\n\
             builtin printf '0-1\\n'; echo 'printf: write error: {error}' >&2; return 1"
        );
        let (code, text) = machine.run_with(&refuse, "apply", &["--only", "disk-irqs"]);
        assert_eq!(code, 0, "{text}");
        for number in [60, 61] {
            let told = format!("/proc/irq/{number}/smp_affinity_list is the kernel's own");
            assert!(text.contains(&told), "{text}");
        }
        assert_eq!(machine.values(), before);
        assert!(!machine.state().exists());
    }
    let machine = with_interrupts(&["hpsa0-msix0"]);
    let refuse = "[ \"$#:$1\" = '2:%s\\n' ] || { builtin printf \"$@\"; return; }\n\
                  echo 'printf: write error: No space left on device' >&2; return 1";
    let (code, text) = machine.run_with(refuse, "apply", &["--only", "disk-irqs"]);
    assert_eq!(code, 1, "{text}");
}

/// A machine with so many cores and a card with so many queues.
fn with_queues(cores: u32, queues: u32) -> Machine {
    let machine = Machine::untuned();
    let status = format!("Seccomp:\t0\nCpus_allowed_list:\t0-{}", cores - 1);
    machine.write("/proc/self/status", &status);
    for queue in 0..queues {
        machine.write(&rps(queue), "00000000,00000000");
    }
    machine
}

fn rps(queue: u32) -> String {
    format!("/sys/class/net/eth0/queues/rx-{queue}/rps_cpus")
}

#[test]
fn a_card_has_a_queue_for_four_cores_or_rps() {
    for (cores, queues, mask) in [
        (4, 1, Some("f")),
        (32, 2, Some("ffffffff")),
        (40, 1, Some("ff,ffffffff")),
        (64, 8, Some("ffffffff,ffffffff")),
        (96, 1, Some("ffffffff,ffffffff,ffffffff")),
        (2, 1, None),
        (8, 4, None),
        (64, 32, None),
    ] {
        let machine = with_queues(cores, queues);
        let mark = if mask.is_some() { "like" } else { "ok" };
        let found = assert_mark(&machine, "rps", mark);
        assert_eq!(
            found["apply"].as_bool().unwrap_or(false),
            mask.is_some(),
            "{found}"
        );
        let before = machine.values();
        let (code, text) = machine.run("apply", &["--only", "rps"]);
        assert_eq!(code, 0, "{text}");
        for queue in 0..queues {
            let expected = mask.unwrap_or("00000000,00000000");
            assert_eq!(
                machine.value(&rps(queue)),
                expected,
                "{cores} cores: {text}"
            );
        }
        machine.run("revert", &[]);
        assert_eq!(machine.values(), before);
        // With a mask for all of them nothing is missing.
        for queue in 0..queues {
            machine.write(&rps(queue), "00000000,00000003");
        }
        assert_mark(&machine, "rps", "ok");
    }
}

/// A card as ethtool shows it: channels and receive ring, each the most and now.
fn with_ethtool(channels: (&str, &str), ring: (&str, &str)) -> Machine {
    let machine = with_queues(8, 4);
    let program = format!(
        "case \"$*\" in\n\
         '-l eth0') printf 'Channel parameters for eth0:\\nPre-set maximums:\\nRX:\\t\\tn/a\\n\
         TX:\\t\\tn/a\\nOther:\\t\\t1\\nCombined:\\t{}\\nCurrent hardware settings:\\nRX:\\t\\tn/a\\n\
         TX:\\t\\tn/a\\nOther:\\t\\t1\\nCombined:\\t{}\\n' ;;\n\
         '-g eth0') printf 'Ring parameters for eth0:\\nPre-set maximums:\\nRX:\\t\\t\\t{}\\n\
         RX Mini:\\t\\tn/a\\nTX:\\t\\t\\t4096\\nCurrent hardware settings:\\nRX:\\t\\t\\t{}\\n\
         RX Mini:\\t\\tn/a\\nTX:\\t\\t\\t256\\n' ;;\n\
         '-k eth0') echo 'generic-receive-offload: on' ;;\n\
         *) exit 1 ;;\n\
         esac",
        channels.0, channels.1, ring.0, ring.1
    );
    machine.program("/usr/sbin/ethtool", &program);
    machine
}

#[test]
fn channels_and_rings_of_a_card_are_judged_where_there_is_ethtool() {
    let found = |machine: &Machine, item: &str| -> Value { items(machine, &[])[item].clone() };
    for ((most, now), better) in [
        (("16", "4"), Some("ethtool -L eth0 combined 8")),
        (("4", "2"), Some("ethtool -L eth0 combined 4")),
        (("4", "4"), None),
        (("64", "8"), None),
        (("n/a", "n/a"), None),
    ] {
        let queues = found(&with_ethtool((most, now), ("1024", "1024")), "nic-queues");
        match better {
            Some(better) => assert_eq!(queues["better"], better, "{queues}"),
            None => assert_eq!(queues["mark"], "ok", "{queues}"),
        }
    }
    for ((most, now), better) in [
        (("4096", "256"), Some("ethtool -G eth0 rx 1024")),
        (("512", "256"), Some("ethtool -G eth0 rx 512")),
        (("256", "256"), None),
        (("8192", "1024"), None),
        (("n/a", "n/a"), None),
    ] {
        let rings = found(&with_ethtool(("8", "8"), (most, now)), "nic-rings");
        match better {
            Some(better) => assert_eq!(rings["better"], better, "{rings}"),
            None => assert_eq!(rings["mark"], "ok", "{rings}"),
        }
    }
    let machine = with_ethtool(("8", "8"), ("1024", "1024"));
    assert_eq!(
        found(&machine, "offloads")["is"],
        "segmentation and receive offload"
    );
    let without = Machine::untuned();
    for item in ["nic-queues", "nic-rings", "offloads"] {
        let item = found(&without, item);
        assert_eq!(item["is"], "not visible without ethtool", "{item}");
    }
}

#[test]
fn a_volatile_cache_without_fua_is_named_with_its_price() {
    let machine = Machine::untuned();
    for (cache, fua, mark) in [
        ("write back", "0", "like"),
        ("write back", "1", "ok"),
        ("write through", "0", "ok"),
    ] {
        machine.write(&format!("/{QUEUE}/write_cache"), cache);
        machine.write(&format!("/{QUEUE}/fua"), fua);
        let found = assert_mark(&machine, "write-cache", mark);
        assert_eq!(found["is"], format!("vda: {cache}, fua {fua}"));
        if mark == "like" {
            assert!(
                found["why"].as_str().unwrap().contains("SYNC_FLUSH"),
                "{found}"
            );
            assert!(
                found["effect"].as_str().unwrap().contains("full flush"),
                "{found}"
            );
            assert_eq!(found["apply"], false);
        }
    }
    fs::remove_file(machine.path(&format!("/{QUEUE}/fua"))).unwrap();
    machine.write(&format!("/{QUEUE}/write_cache"), "write back");
    assert_mark(&machine, "write-cache", "ok");
}
