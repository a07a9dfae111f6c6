//! The programs of runmig, the low-level runtime, and the configuration.

use super::host::Host;
use crate::cli::{command, configure};
use nix::sys::statvfs::{FsFlags, statvfs};
use runmig_lease::config::{Config, DIRECTORY};
use runmig_lease::error::printable;
use runmig_lease::files;
use runmig_lease::finding::{Finding, Found, Status};
use runmig_lease::model::Gpu;
use runmig_lease::paths;
use runmig_lease::policy::GpuName;
use runmig_lease::programs::{self, FRONT, HOOK, SLICE};
use runmig_lease::trust;
use std::path::{Path, PathBuf};

const MAX_FEATURES: u64 = 1 << 20;

const INSTALL: &str = "install runmig again: its package, or scripts/install";
/// CRI-O brings a crun of its own, in a folder where runmig does not look.
const CRUN_OF_CRIO: &str = "/usr/libexec/crio/crun";

pub fn programs(host: &Host) -> Found {
    for name in [FRONT, SLICE, HOOK, "migctl"] {
        let path = host.folder.join(name);
        let shown = path.display();
        if let Err(e) = trust::program(&path) {
            let text = format!("cannot trust {shown}: {}", e.reason());
            return Err(Finding::fail(text, INSTALL));
        }
        let mount = statvfs(&path)
            .map_err(|e| Finding::skip(format!("cannot read the mount flags of {shown}: {e}")))?;
        if mount.flags().contains(FsFlags::ST_NOEXEC) {
            let text = format!("the file system of {shown} is mounted noexec");
            let target = format!("\"$(findmnt -n -o TARGET -T {shown})\"");
            let repair = format!("mount -o remount,bind,exec {target}");
            return Err(Finding::fail(text, repair));
        }
    }
    // runmig-slice answers as runmig, so the hook stands for both.
    let hook = host.folder.join(HOOK);
    let said = command::output(&hook, &["--version"], &[])?;
    let ours = env!("CARGO_PKG_VERSION");
    if said.split([' ', ':']).nth(1) != Some(ours) {
        let (hook, said) = (hook.display(), said.lines().next().unwrap_or_default());
        let text = format!("migctl is of version {ours}, and {hook} says {said}");
        return Err(Finding::fail(text, INSTALL));
    }
    Ok(Vec::new())
}

/// Asks runmig under each configuration, so that it finds and trusts the low-level runtime as in a create.
pub fn runtimes(host: &Host) -> Found {
    let front = host.folder.join(FRONT);
    if trust::program(&front).is_err() {
        let text = format!("{} is not trusted, see programs.files", front.display());
        return Err(Finding::skip(text));
    }
    let read = |file: &PathBuf| Config::read(file).ok();
    let others = handlers().iter().filter_map(read).collect::<Vec<_>>();
    let mut found = Vec::new();
    for config in [host.config()?].into_iter().chain(&others) {
        let file = config.file.as_ref().map(|file| file.to_string_lossy());
        let variable = file.as_deref().map(|file| ("RUNMIG_CONFIG", file));
        let variables = variable.as_slice();
        let (status, said, complaint) = command::run(&front, &["--version"], variables)?;
        let version = said.lines().next().unwrap_or_default();
        if !status.success() {
            if config.file.as_deref().is_none_or(is_there) {
                found.push(unanswered(config, &complaint));
            }
        } else if version.starts_with("crun")
            && command::output(&front, &["features"], variables).is_err()
        {
            let text = format!(
                "{version} is old: it refuses the specifications of containerd 2, CRI-O and podman 5"
            );
            let repair = "install crun 1.21 or newer, or set runtime to runc";
            found.push(Finding::warn(text, repair));
        } else if version.starts_with("runc")
            && programs::version(version).is_some_and(|(_, its)| its < (1, 2, 0))
            && has_time_namespaces()
        {
            let text = format!("docker gives containers time namespaces, which {version} refuses");
            let repair = "install runc 1.2 or newer, or add \"features\": {\"time-namespaces\": false} to /etc/docker/daemon.json";
            found.push(Finding::warn(text, repair));
        }
    }
    // Handlers mostly have the same one.
    found.dedup_by(|a, b| a.text == b.text);
    Ok(found)
}

/// Says whether docker gives containers time namespaces of their own, as from 29.5 on, and no feature says otherwise.
fn has_time_namespaces() -> bool {
    let said = configure::search("dockerd").map(|it| command::output(&it, &["--version"], &[]));
    let version = said.and_then(|said| Some(programs::version(&said.ok()?)?.1));
    let features = files::read_text("/etc/docker/daemon.json".as_ref(), MAX_FEATURES);
    let is_told = features.is_ok_and(|text| text.contains("time-namespaces"));
    version.is_some_and(|version| version >= (29, 5, 0)) && !is_told
}

/// Returns a failure in the words that runmig itself has printed.
fn unanswered(config: &Config, complaint: &str) -> Finding {
    let line = complaint.lines().last();
    let line = line.unwrap_or("runmig --version fails without a reason");
    let line = line.strip_prefix("runmig: ").unwrap_or(line);
    let mut finding = Finding::in_words(Status::Fail, line);
    if config.runtime.is_none() && trust::program(CRUN_OF_CRIO.as_ref()).is_ok() {
        let repair = format!("set runtime = \"{CRUN_OF_CRIO}\", which CRI-O brings");
        finding.repair = Some(repair);
    }
    finding
}

/// Returns the files of other handlers, sorted.
fn handlers() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = paths::entries(Path::new(DIRECTORY)).collect();
    let is_other = |file: &PathBuf| !file.ends_with("config.toml");
    files.retain(|file| file.extension().is_some_and(|e| e == "toml") && is_other(file));
    files.sort();
    files
}

/// Returns whether a file that could not be read is still there. Others may remove one while this looks.
fn is_there(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
}

pub fn configurations(host: &Host) -> Found {
    let own = { host.config.as_ref().err() }.map(|e| Finding::in_words(Status::Fail, &e.line()));
    let others = { handlers().into_iter() }
        .filter_map(|file| Config::read(&file).err().filter(|_| is_there(&file)));
    Ok(own.into_iter().chain(others.map(Finding::from)).collect())
}

pub fn rules(host: &Host) -> Found {
    let (config, seen) = (host.config()?, host.seen()?);
    let gpus = &seen.inventory.snapshot.gpus;
    let file = config.file.as_deref().unwrap_or(Path::new(DIRECTORY));
    let mut found = Vec::new();
    let mut warn = |text: String, repair: &str| {
        let repair = format!("{repair} in {}", file.display());
        found.push(Finding::warn(text, repair));
    };
    let absent = config.absent_gpus(gpus);
    if !absent.is_empty() {
        let absent = absent.join(", ");
        let text = format!("rules name GPUs that this machine lacks: {absent}");
        warn(text, "change exclude_gpus, reserve or kubernetes.gpus");
    }
    let is_index = |gpu: &&Gpu| {
        let mut names = config.named_gpus();
        names.any(|name| *name == GpuName::Index(gpu.index))
    };
    let today: Vec<String> = { gpus.iter().filter(is_index) }
        .map(|gpu| format!("{} is {} ({})", gpu.index, printable(&gpu.name), gpu.uuid))
        .collect();
    if !today.is_empty() {
        let today = today.join(", ");
        let may = "which may be another GPU after a reboot";
        let text = format!("rules name GPUs by index, {may}; today {today}");
        warn(text, "name them by UUID");
    }
    let is_offered = |gpu: &Gpu| !gpu.profiles.is_empty();
    let mut profiles = gpus.iter().flat_map(|gpu| &gpu.profiles);
    let denied = config.policy.denied_profiles(gpus);
    if gpus.iter().any(is_offered) && profiles.all(|profile| denied.contains(&profile.name)) {
        let text = "policy.profiles permits no profile that this machine offers, so it refuses every slice";
        warn(text.to_owned(), "change policy.profiles");
    }
    // Engines run as root, and only the login uid stays that of the caller.
    let users = { config.policy.limit.iter() }.map(|rule| &rule.user);
    let users = users.chain(config.policy.reserve.iter().map(|rule| &rule.user));
    let uid = files::read_text(Path::new("/proc/self/loginuid"), 64);
    let keeps_uids = uid.is_ok_and(|text| text.trim().parse::<u32>().is_ok());
    if !keeps_uids && { users }.any(Option::is_some) {
        let text = "rules name users, and the kernel tells no login uid, so they never apply";
        warn(text.to_owned(), "name namespaces or pods instead of users");
    }
    Ok(found)
}
