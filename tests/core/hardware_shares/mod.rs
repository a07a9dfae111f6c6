//! `scripts/hardware-shares` on a simulated machine. The outcomes are those that were measured on an H100.

use testkit::cgroup2;
use testkit::prelude::*;

/// The outcomes that an H100 gave to the same steps, one after the other and without this script.
const MEASURED: &str = include_str!("outcomes.txt");

/// The outcomes that NVIDIA documents for limits by cgroup. No driver with them was at hand.
const DOCUMENTED: &str = include_str!("driver.txt");

fn without_comments(text: &str) -> Vec<&str> {
    text.lines().filter(|l| !l.starts_with('#')).collect()
}

#[track_caller]
fn gives(machine: &Machine, options: &[&str], expected: &str) {
    let mut script = crate::installs("hardware-shares");
    script.arg("--library").arg(machine.library());
    script.arg("--driver-root").arg(machine.dir()).args(options);
    let output = said(&mut script).ok().stdout;
    assert_eq!(without_comments(&output), without_comments(expected));
}

fn can_make_containers() -> bool {
    let can = Low::Runc.find().is_some() && nix::unistd::geteuid().is_root();
    if !can {
        testkit::skip("containers are made by root, with runc");
    }
    can
}

#[test]
fn simulation_gives_measured_outcomes() {
    if can_make_containers() {
        let machine = Machine::with(&["--gpu", "H100-80GB", "--mig", "off", "--mps"]);
        gives(&machine, &[], MEASURED);
    }
}

#[test]
fn driver_615_gives_documented_outcomes() {
    if can_make_containers() {
        cgroup2::enter();
        let machine = Machine::of("--gpu H100-80GB --mig off --driver 615 --mps");
        // A machine of tests has no controllers of cgroup v2, which a case of `mps` wants.
        gives(&machine, &["--level=driver"], DOCUMENTED);
    }
}

#[test]
fn says_there_is_no_gpu() {
    let nothing = tempfile::TempDir::new().unwrap();
    let mut script = Command::new(testkit::repository().join("scripts/hardware-shares"));
    let refused = said(script.arg("--driver-root").arg(nothing.path())).exits(3);
    refused.warns("no NVIDIA GPU on this machine");
}
