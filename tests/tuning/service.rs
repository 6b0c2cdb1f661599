//! The systemd unit.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn systemd_finds_no_fault_in_the_unit() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning/ringmq.service");
    let text = fs::read_to_string(unit).unwrap();
    for line in [
        "LimitMEMLOCK=infinity",
        "NoNewPrivileges=true",
        "StateDirectory=ringmq",
        "SystemCallFilter=io_uring_setup io_uring_enter io_uring_register",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("ringmq.service");
    // It is installed nowhere.
    let installed = text.replace("/usr/local/bin/ringmq", env!("CARGO_BIN_EXE_ringmq"));
    fs::write(&copy, installed).unwrap();
    let verify = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&copy)
        .output();
    let Ok(output) = verify else {
        eprintln!("left out: there is no systemd-analyze");
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !told.contains("ringmq.service:"),
        "{told}"
    );
}
