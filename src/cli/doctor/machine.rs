//! The kernel's part: cgroups, inotify, the login uid.

use super::finding::Finding;
use runmig_lease::files;
use std::path::Path;

const MAX_NUMBER: u64 = 64;
/// Each create that waits watches the queue, and runmig-dra the ledger.
const LEAST_INSTANCES: u64 = 64;

pub fn findings() -> Vec<Finding> {
    vec![cgroups(), inotify(), login(), security(), docker()]
}

fn cgroups() -> Finding {
    let at = |file: &str| Path::new("/sys/fs/cgroup").join(file).exists();
    match (at("cgroup.controllers"), at("unified"), at("devices")) {
        (true, _, _) => Finding::ok(
            "cgroups",
            "cgroup v2, where a program of the kernel holds device rules",
        ),
        (false, true, true) => Finding::ok(
            "cgroups",
            "cgroup v1 and v2 (hybrid), where the devices controller of v1 holds device rules",
        ),
        (false, false, true) => Finding::ok(
            "cgroups",
            "cgroup v1, where the devices controller holds device rules",
        ),
        _ => Finding::fail(
            "cgroups",
            "no devices controller at /sys/fs/cgroup, so nothing keeps a container from devices of others",
            "mount cgroup v2 at /sys/fs/cgroup",
        ),
    }
}

fn inotify() -> Finding {
    const FILE: &str = "/proc/sys/fs/inotify/max_user_instances";
    let number = files::read_text(Path::new(FILE), MAX_NUMBER).ok();
    match number.and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(most) if most < LEAST_INSTANCES => Finding::warn(
            "inotify",
            format!(
                "a user may have {most} inotify instances; without one a waiting create looks once a second"
            ),
            format!("sysctl fs.inotify.max_user_instances={LEAST_INSTANCES}"),
        ),
        Some(most) => Finding::ok(
            "inotify",
            format!("a user may have {most} inotify instances"),
        ),
        None => Finding::warn("inotify", format!("cannot read {FILE}"), "mount /proc"),
    }
}

/// Rules by user need it: engines run as root, and the login uid stays that of the caller.
fn login() -> Finding {
    match Path::new("/proc/self/loginuid").exists() {
        true => Finding::ok(
            "login-uid",
            "the kernel keeps login uids, so rules by user apply",
        ),
        false => Finding::warn(
            "login-uid",
            "the kernel keeps no login uids, so rules by user never apply",
            "boot a kernel with CONFIG_AUDIT, or write the rules by namespace or pod",
        ),
    }
}

fn security() -> Finding {
    const ENFORCE: &str = "/sys/fs/selinux/enforce";
    let is_enforced = files::read_text(Path::new(ENFORCE), MAX_NUMBER);
    match is_enforced.map(|text| text.trim() == "1") {
        Ok(true) => Finding::warn(
            "selinux",
            "SELinux enforces its rules, and by default a container may not use devices of the host",
            "setsebool -P container_use_devices=true",
        ),
        _ => Finding::ok("selinux", "SELinux keeps no container from its devices"),
    }
}

/// In a user namespace the low-level runtime binds the host's nodes, which must then be open to all.
fn docker() -> Finding {
    const FILE: &str = "/etc/docker/daemon.json";
    const MAX: u64 = 1024 * 1024;
    let remaps =
        files::read_text(Path::new(FILE), MAX).is_ok_and(|text| text.contains("\"userns-remap\""));
    match remaps {
        true => Finding::warn(
            "userns-remap",
            format!(
                "{FILE} maps the users of containers, so containers get the host's own device nodes"
            ),
            "nvidia-modprobe -u -c 0 makes them with the modes that this needs",
        ),
        false => Finding::ok(
            "userns-remap",
            "docker does not map the users of containers",
        ),
    }
}
