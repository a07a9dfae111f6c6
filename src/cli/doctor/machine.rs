//! The state directory, and what the kernel and systemd have to offer.

use super::host::Host;
use crate::cli::command;
use crate::cli::configure::{self, Engine};
use nix::sys::statvfs::statvfs;
use runmig_lease::error::Error;
use runmig_lease::files;
use runmig_lease::finding::{Finding, Found};
use runmig_lease::process;
use runmig_lease::store::Store;
use runmig_lease::trust;
use std::path::Path;

/// Room for some thousand records.
const LEAST_BYTES: u64 = 16 << 20;
const LEAST_INODES: u64 = 1000;
const MAX_VALUE: u64 = 4096;

pub fn rights(_: &Host) -> Found {
    if trust::is_host_root() {
        return Ok(Vec::new());
    }
    let text = "this process is not root on the host, so it cannot see the ledger or make slices";
    Err(Finding::fail(text, "sudo migctl doctor"))
}

pub fn boot(host: &Host) -> Found {
    process::boot_id(&host.config()?.driver.root)?;
    Ok(Vec::new())
}

pub fn cgroups(_: &Host) -> Found {
    let at = |file: &str| Path::new("/sys/fs/cgroup").join(file).exists();
    if at("cgroup.controllers") || at("devices") {
        return Ok(Vec::new());
    }
    Err(Finding::fail(
        "no devices controller at /sys/fs/cgroup, so nothing keeps a container from devices of others",
        "mount cgroup v2 at /sys/fs/cgroup",
    ))
}

/// SELinux denies containers the host's devices by default. AppArmor's profiles of containers leave devices to cgroups, but
/// one of the engine itself, as snap gives docker one, can keep it from running runmig.
pub fn confinement(_: &Host) -> Found {
    let is = |file: &str, value: &str| {
        files::read_text(Path::new(file), MAX_VALUE).is_ok_and(|text| text.trim() == value)
    };
    let mut found = Vec::new();
    if is("/sys/fs/selinux/enforce", "1") {
        found.push(Finding::warn(
            "SELinux enforces its rules, and by default a container may not use devices of the host",
            "setsebool -P container_use_xserver_devices=true, which opens /dev/nvidia* alone",
        ));
    }
    if !is("/sys/module/apparmor/parameters/enabled", "Y") {
        return Ok(found);
    }
    let engines: Vec<&str> = Engine::all().filter_map(Engine::process).collect();
    let running = process::commands().into_iter();
    for (pid, name) in running.filter(|(_, name)| engines.contains(&name.as_str())) {
        let file = format!("/proc/{pid}/attr/current");
        let text = files::read_text(Path::new(&file), MAX_VALUE).unwrap_or_default();
        if let Some(profile) = text.trim().strip_suffix(" (enforce)") {
            found.push(Finding::warn(
                format!("AppArmor confines {name} (process {pid}) by the profile {profile}, which may keep it from running runmig"),
                format!("aa-complain {profile}, or install {name} without a profile"),
            ));
        }
    }
    Ok(found)
}

pub fn gc(_: &Host) -> Found {
    if !Path::new("/run/systemd/system").is_dir() {
        let text = "this machine does not run systemd; call migctl gc by other means";
        return Err(Finding::skip(text));
    }
    let systemctl =
        configure::search("systemctl").ok_or_else(|| Finding::skip("systemctl is not on PATH"))?;
    let show = |unit: &str, property: &str| {
        let arguments = ["show", "--value", "--property", property, unit];
        command::output(&systemctl, &arguments, &[]).map_err(Finding::warned)
    };
    let state = show("runmig-gc.timer", "ActiveState")?;
    if state != "active" {
        let text = format!(
            "runmig-gc.timer is {state}, so only creates and migctl gc release leases of dead containers"
        );
        let repair = "systemctl enable --now runmig-gc.timer";
        return Err(Finding::warn(text, repair));
    }
    let result = show("runmig-gc.service", "Result")?;
    if matches!(result.as_str(), "success" | "") {
        return Ok(Vec::new());
    }
    let text = format!("the last run of runmig-gc.service ended with {result}");
    let repair = "journalctl -u runmig-gc.service says why";
    Err(Finding::warn(text, repair))
}

pub fn folder(host: &Host) -> Found {
    Store::check_place(&host.config()?.state_dir)?;
    Ok(Vec::new())
}

pub fn space(host: &Host) -> Found {
    let dir = &host.config()?.state_dir;
    if !dir.exists() {
        return Err(Finding::skip("the state directory does not exist yet"));
    }
    let shown = dir.display();
    let of = statvfs(dir.as_path())
        .map_err(|e| Finding::skip(format!("cannot read the room of {shown}: {e}")))?;
    let repair = "remove other files of this file system, or set state_dir to another";
    let bytes = of.blocks_available() * of.fragment_size();
    let left = if bytes < LEAST_BYTES {
        format!("{} MiB", bytes >> 20)
    } else if of.files() > 0 && of.files_available() < LEAST_INODES {
        // Some file systems count none, and say 0.
        format!("{} inodes", of.files_available())
    } else {
        return Ok(Vec::new());
    };
    let text = format!("only {left} are left for {shown}");
    Err(Finding::fail(text, repair))
}

pub fn records(host: &Host) -> Found {
    let config = host.config()?;
    let existing = Store::existing(&config.state_dir, config.lock_timeout);
    let why = "the state directory cannot be opened, see state.folder";
    let existing = existing.map_err(|e| folder(host).map_or(Finding::skip(why), |_| e.into()));
    let Some(store) = existing? else {
        return Err(Finding::skip("there is no ledger yet"));
    };
    let Some(why) = store.damage()? else {
        return Ok(Vec::new());
    };
    let dir = config.state_dir.display();
    let damaged = Error::new(format!("the ledger in {dir} is damaged")).caused_by(why);
    Err(damaged.hint("run migctl gc --repair as root").into())
}
