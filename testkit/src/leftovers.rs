//! The remains of engines: mounts and cgroups.

use crate::prelude::*;

/// The innermost first. A thread may have mounts of its own (`cgroup2::enter`).
pub fn unmount_below(dir: &str) {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let ours: Vec<&str> = points.filter(|at| Path::new(at).starts_with(dir)).collect();
    for mount in ours.into_iter().rev() {
        let _ = Command::new("umount").arg(mount).output();
    }
}

/// One of this name, and those below it, in every hierarchy; what is in use stays.
pub fn remove_cgroup(name: &str) {
    let root = Path::new("/sys/fs/cgroup");
    for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
        remove(&hierarchy.path().join(name));
    }
    remove(&root.join(name));
}

fn remove(at: &Path) {
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(at);
}
