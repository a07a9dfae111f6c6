//! A machine with cgroup v2 alone, for one test: a mount namespace of the test's thread, which all programs that it
//! starts inherit.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::path::Path;

/// The place of the hierarchy.
pub const ROOT: &str = "/sys/fs/cgroup";

/// Puts the hierarchy of version 2 at its place for this thread. Only root can.
pub fn enter() {
    if nvml_sim::sys::is_cgroup2(Path::new(ROOT)) {
        return;
    }
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("none"), ROOT, Some("cgroup2"), MsFlags::empty(), none).unwrap();
}
