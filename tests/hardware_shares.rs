//! `scripts/hardware-shares` on a simulated machine. The outcomes are those that were measured on an H100.

mod support;

use std::process::Command;
use support::process::said;
use support::{Low, Machine};

/// The outcomes that an H100 gave to the same steps, one after the other and without this script.
const MEASURED: &str = include_str!("hardware_shares/outcomes.txt");

#[test]
fn simulation_gives_measured_outcomes() {
    if Low::Runc.find().is_none() || !nix::unistd::geteuid().is_root() {
        support::skip("containers are made by root, with runc");
        return;
    }
    let machine = Machine::with(&["--gpu", "H100-80GB", "--mig", "off", "--mps"]);
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_runmig"))
        .parent()
        .unwrap();
    let mut script = Command::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/scripts/hardware-shares"
    ));
    script.arg("--from").arg(programs);
    script.arg("--library").arg(machine.library());
    script.arg("--driver-root").arg(machine.dir());
    let output = said(&mut script).ok().stdout;
    let outcomes: Vec<&str> = output.lines().filter(|l| !l.starts_with('#')).collect();
    let measured: Vec<&str> = MEASURED.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(outcomes, measured);
}

#[test]
fn says_there_is_no_gpu() {
    let nothing = tempfile::TempDir::new().unwrap();
    let mut script = Command::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/scripts/hardware-shares"
    ));
    script.arg("--driver-root").arg(nothing.path());
    let refused = said(&mut script).exits(3);
    assert!(
        refused.stderr.contains("no NVIDIA GPU on this machine"),
        "{}",
        refused.stderr
    );
}
