//! A machine with cgroup v2 alone, for one test: a mount namespace of the test's thread, which all programs that it
//! starts inherit.

use nix::mount::{MsFlags, mount};
use std::fs;
use std::path::Path;

/// The place of the hierarchy.
pub const ROOT: &str = "/sys/fs/cgroup";

/// Returns whether this thread has cgroup v2 alone, and none of the controllers for limits that engines set.
pub fn lacks_controllers() -> bool {
    let all = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers"));
    all.is_ok_and(|all| !all.split_whitespace().any(|one| one == "cpu"))
}

/// Puts the hierarchy of version 2 at its place for this thread. Only root can.
pub fn enter() {
    if nvml_sim::sys::is_cgroup2(Path::new(ROOT)) {
        return;
    }
    crate::mounted::own_mounts();
    let (none, cgroup2) = (None::<&str>, Some("cgroup2"));
    mount(Some("none"), ROOT, cgroup2, MsFlags::empty(), none).unwrap();
}
