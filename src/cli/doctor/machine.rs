//! The kernel's part: cgroups, inotify, the login uid.

use super::check::Check;
use super::finding::Finding;
use super::host::Host;
use crate::cli::configure::Engine;
use crate::cli::processes;
use clap::ValueEnum;
use runmig_lease::files;
use std::io::ErrorKind;
use std::path::Path;

const MAX_NUMBER: u64 = 64;
const MAX_PROFILE: u64 = 4096;
/// Each create that waits watches the queue, and runmig-dra the ledger.
const LEAST_INSTANCES: u64 = 64;

pub const CHECKS: &[Check] = &[
    Check::new(
        "machine.cgroups",
        "cgroups can hold device rules",
        "mount cgroup v2 at /sys/fs/cgroup",
    ),
    Check::new(
        "machine.inotify",
        "creates that wait can watch the queue",
        "sysctl fs.inotify.max_user_instances=64",
    ),
    Check::new(
        "machine.login-uid",
        "the kernel keeps login uids, where a rule names users",
        "boot a kernel with CONFIG_AUDIT, or write rules by namespace or pod",
    ),
    Check::new(
        "machine.selinux",
        "SELinux keeps no container from its devices",
        "setsebool -P container_use_devices=true",
    ),
    Check::new(
        "machine.apparmor",
        "AppArmor confines no engine",
        "aa-complain PROFILE, or an engine without a profile",
    ),
    Check::new(
        "machine.userns-remap",
        "docker does not map the users of containers",
        "nvidia-modprobe -u -c 0",
    ),
];

pub fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![cgroups(), inotify(), login(host), selinux()];
    findings.extend(apparmor());
    findings.push(docker());
    findings
}

fn cgroups() -> Finding {
    let at = |file: &str| Path::new("/sys/fs/cgroup").join(file).exists();
    match (at("cgroup.controllers"), at("unified"), at("devices")) {
        (true, _, _) => Finding::ok(
            "machine.cgroups",
            "cgroup v2, where a program of the kernel holds device rules",
        ),
        (false, true, true) => Finding::ok(
            "machine.cgroups",
            "cgroup v1 and v2 (hybrid), where the devices controller of v1 holds device rules",
        ),
        (false, false, true) => Finding::ok(
            "machine.cgroups",
            "cgroup v1, where the devices controller holds device rules",
        ),
        _ => Finding::fail(
            "machine.cgroups",
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
            "machine.inotify",
            format!(
                "a user may have {most} inotify instances; without one a waiting create looks once a second"
            ),
            format!("sysctl fs.inotify.max_user_instances={LEAST_INSTANCES}"),
        ),
        Some(most) => Finding::ok(
            "machine.inotify",
            format!("a user may have {most} inotify instances"),
        ),
        None => Finding::warn(
            "machine.inotify",
            format!("cannot read {FILE}"),
            "mount /proc",
        ),
    }
}

/// Rules by user need it: engines run as root, and the login uid stays that of the caller.
fn login(host: &Host) -> Finding {
    const ID: &str = "machine.login-uid";
    let policy = host.configured().policy;
    let limits = policy.limit.iter().map(|rule| &rule.user);
    let reserves = policy.reserve.iter().map(|rule| &rule.user);
    if !limits.chain(reserves).any(Option::is_some) {
        return Finding::skip(ID, "no rule names a user");
    }
    let text = files::read_text(Path::new("/proc/self/loginuid"), MAX_NUMBER);
    match text.ok().and_then(|text| text.trim().parse::<u32>().ok()) {
        Some(_) => Finding::ok(ID, "the kernel keeps login uids, so rules by user apply"),
        None => Finding::warn(
            ID,
            "rules name users, and the kernel tells no login uid, so they never apply",
            "boot a kernel with CONFIG_AUDIT, or write the rules by namespace or pod",
        ),
    }
}

fn selinux() -> Finding {
    const ID: &str = "machine.selinux";
    const ENFORCE: &str = "/sys/fs/selinux/enforce";
    match files::read_text(Path::new(ENFORCE), MAX_NUMBER) {
        Ok(text) if text.trim() == "1" => Finding::warn(
            ID,
            "SELinux enforces its rules, and by default a container may not use devices of the host",
            "setsebool -P container_use_devices=true",
        ),
        Ok(_) => Finding::ok(ID, "SELinux does not enforce its rules"),
        Err(e) if e.kind() == ErrorKind::NotFound => Finding::ok(ID, "the kernel has no SELinux"),
        Err(e) => Finding::skip(ID, format!("cannot read {ENFORCE}: {e}")),
    }
}

/// The profiles of containers leave devices to cgroups. A profile of the engine itself, as snap gives docker one, can keep
/// it from running runmig.
fn apparmor() -> Vec<Finding> {
    const ID: &str = "machine.apparmor";
    const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
    match files::read_text(Path::new(ENABLED), MAX_NUMBER) {
        Ok(text) if text.trim() == "Y" => {}
        Ok(_) => return vec![Finding::ok(ID, "AppArmor is off")],
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return vec![Finding::ok(ID, "the kernel has no AppArmor")];
        }
        Err(e) => return vec![Finding::skip(ID, format!("cannot read {ENABLED}: {e}"))],
    }
    let engines: Vec<&str> = { Engine::value_variants().iter() }
        .filter_map(|engine| engine.process())
        .collect();
    let running = processes::commands().into_iter();
    let confined = running.filter(|(_, name)| engines.contains(&name.as_str()));
    let confined: Vec<Finding> = confined
        .filter_map(|(pid, name)| {
            let file = format!("/proc/{pid}/attr/current");
            let text = files::read_text(Path::new(&file), MAX_PROFILE).ok()?;
            let profile = text.trim().strip_suffix(" (enforce)")?.to_owned();
            Some(Finding::warn(
                ID,
                format!(
                    "AppArmor confines {name} (process {pid}) by the profile {profile}, which may keep it from running runmig"
                ),
                format!("aa-complain {profile}, or install {name} without a profile"),
            ))
        })
        .collect();
    match confined.is_empty() {
        true => vec![Finding::ok(
            ID,
            "AppArmor is enforcing, and confines no engine",
        )],
        false => confined,
    }
}

/// In a user namespace the low-level runtime binds the host's nodes, which must then be open to all.
fn docker() -> Finding {
    const ID: &str = "machine.userns-remap";
    const FILE: &str = "/etc/docker/daemon.json";
    const MAX: u64 = 1024 * 1024;
    let text = match files::read_text(Path::new(FILE), MAX) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        Err(e) => return Finding::skip(ID, format!("cannot read {FILE}: {e}")),
    };
    match text.contains("\"userns-remap\"") {
        true => Finding::warn(
            ID,
            format!(
                "{FILE} maps the users of containers, so containers get the host's own device nodes"
            ),
            "nvidia-modprobe -u -c 0 makes them with the modes that this needs",
        ),
        false => Finding::ok(ID, "docker does not map the users of containers"),
    }
}
