//! The memory limit of a container in the driver, on the container's own cgroup. Drivers from release 615 on have it,
//! and it needs cgroup v2.
//!
//! The driver keeps the limit itself, or through the kernel's controller `dmem`. A cgroup has that controller's files
//! only if every cgroup above hands the controller down.

use crate::error::{Context, Error, Result};
use crate::gpu::{
    DriverError, FUNCTION_NOT_FOUND, MemoryLimits, NOT_FOUND, NOT_SUPPORTED, Queries, Session,
};
use crate::model::{ChangedLimit, GpuUuid, Process};
use crate::store::{Enforcement, Held, Limit, LimitedCgroup, Share};
use crate::{effect, files, process};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The place of the hierarchy, which the driver expects.
const ROOT: &str = "/sys/fs/cgroup";

/// The way out where the driver or the kernel cannot limit a cgroup.
const HINT: &str = "set sharing.enforcement = [\"mps\"], so that an MPS daemon holds the limit";

/// Returns why this machine has no such limits; none if it has them.
pub(crate) fn machine_obstacle() -> Option<String> {
    let is_v2 = is_v2(Path::new(ROOT));
    (!is_v2).then(|| format!("{ROOT} is not cgroup v2"))
}

/// Returns why a GPU has no such limits; none if it has them.
///
/// # Errors
/// The driver does not answer.
pub(crate) fn gpu_obstacle(
    driver: &impl Queries,
    gpu: &GpuUuid,
) -> std::result::Result<Option<String>, DriverError> {
    match driver.memory_limits(gpu, ROOT.into()) {
        Ok(_) => Ok(None),
        Err(e) => match e.code() {
            Some(FUNCTION_NOT_FOUND) => Ok(Some(
                "its driver has no memory limits by cgroup, which came with release 615".to_owned(),
            )),
            // The root has no limits of its own.
            Some(NOT_SUPPORTED | NOT_FOUND) => Ok(None),
            _ => Err(e),
        },
    }
}

/// Limits the memory of a process's cgroup on a GPU, and confirms the limit with the driver.
///
/// # Errors
/// The process has no cgroup of its own, the kernel or the driver refuses a step, or the driver has another limit
/// afterwards.
pub(crate) fn set(
    driver: &Session<'_>,
    gpu: &GpuUuid,
    pid: i32,
    memory_mib: u64,
) -> Result<LimitedCgroup> {
    let found = cgroup_of(pid)?;
    let dir = dir_of(&found);
    provide_controller(Path::new(ROOT), &dir).map_err(|e| e.hint(HINT))?;
    set_on(driver, gpu, &dir, memory_mib)?;
    Ok(found)
}

fn set_on(driver: &Session<'_>, gpu: &GpuUuid, dir: &Path, memory_mib: u64) -> Result<()> {
    let limits = MemoryLimits {
        soft: 0,
        hard: memory_mib << 20,
    };
    let set = driver.set_memory_limits(gpu, dir, limits);
    let found = set.and_then(|()| driver.memory_limits(gpu, dir.to_owned()));
    let found = found.map_err(|e| refused(e, dir))?;
    if found != limits {
        let MemoryLimits { soft, hard } = found;
        let (shown, wanted) = (dir.display(), limits.hard);
        return Err(Error::new(format!(
            "the driver has soft {soft} and hard {hard} for cgroup {shown} after it took 0 and {wanted}"
        ))
        .hint(HINT));
    }
    Ok(())
}

/// Returns the limit of a share's container, if it is not that of the share. A container that has ended has none that
/// matters.
///
/// # Errors
/// The container has left the cgroup of its limit, or the driver does not answer.
pub(crate) fn changed(driver: &impl Queries, held: &Held) -> Result<Option<ChangedLimit>> {
    let Some(share) = held.lease.share() else {
        return Ok(None);
    };
    let changed = |told_mib| ChangedLimit {
        told_mib,
        share_mib: share.memory_mib,
    };
    let Enforcement::Driver(Some(Limit::Set(limited))) = &share.enforcement else {
        return Ok(Some(changed(0)));
    };
    let is_over = || held.lease.init.is_none_or(|init| !process::is_alive(&init));
    let dir = match current_dir(limited, held.lease.init.as_ref()) {
        Ok(dir) => dir,
        Err(_) if is_over() => return Ok(None),
        Err(e) => return Err(e),
    };
    let told_mib = match driver.memory_limits(held.instance.resource.gpu_uuid(), dir) {
        Ok(limits) if limits.hard == u64::MAX => 0,
        // Less than 1 MiB is a limit too.
        Ok(limits) => (limits.hard >> 20).max(1),
        // The driver keeps no limit for the cgroup.
        Err(e) if matches!(e.code(), Some(NOT_SUPPORTED | NOT_FOUND)) => 0,
        Err(e) => return Err(e.into()),
    };
    let is_changed = told_mib != share.memory_mib && !is_over();
    Ok(is_changed.then(|| changed(told_mib)))
}

/// Sets the limit of a share's container again, on the cgroup that the hook found.
///
/// # Errors
/// The container has left that cgroup, or the driver does not take the limit.
pub(crate) fn set_back(driver: &Session<'_>, held: &Held) -> Result<()> {
    let Some(Share {
        memory_mib,
        enforcement: Enforcement::Driver(Some(Limit::Set(limited))),
        ..
    }) = held.lease.share()
    else {
        return Err(
            Error::new("no cgroup of the container is on record").hint("restart the container")
        );
    };
    let dir = current_dir(limited, held.lease.init.as_ref())?;
    let gpu = held.instance.resource.gpu_uuid();
    set_on(driver, gpu, &dir, *memory_mib)
}

/// Returns the error for an answer of the driver, with the way out where that is another level.
fn refused(e: DriverError, cgroup: &Path) -> Error {
    match e.code() {
        Some(NOT_FOUND) => Error::new(format!(
            "cgroup {} has no dmem files, because a cgroup above does not hand dmem down",
            cgroup.display()
        ))
        .caused_by(e)
        .hint(HINT),
        Some(NOT_SUPPORTED | FUNCTION_NOT_FOUND) => Error::from(e).hint(HINT),
        _ => e.into(),
    }
}

/// The most of a list of processes that runmig reads, in bytes.
const MAX_LIST: u64 = 1 << 20;

/// Returns whether a directory is of a cgroup v2 hierarchy.
fn is_v2(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Returns the cgroup of a process.
///
/// # Errors
/// The process has no cgroup that is not also this process's, or its cgroup cannot be found.
fn cgroup_of(pid: i32) -> Result<LimitedCgroup> {
    let what = || format!("find the cgroup of process {pid}");
    let path = process::unified_cgroup(pid).context(what)?;
    let own = process::unified_cgroup(process::current().pid).context(what)?;
    let dir = below(Path::new(ROOT), &path, &own);
    let dir = dir.map_err(Error::new).context(what)?;
    let shown = dir.display();
    // The path leads to another cgroup if the mount is of another cgroup namespace.
    let list = files::read_text(&dir.join("cgroup.procs"), MAX_LIST);
    let list = list
        .context(|| format!("read the processes of cgroup {shown}"))
        .context(what)?;
    match inode(&dir).filter(|_| list.lines().any(|line| line == pid.to_string())) {
        Some(inode) => Ok(LimitedCgroup { path, inode }),
        None => Err(Error::new(format!("cgroup {shown} does not list it"))).context(what),
    }
}

/// Returns the directory of a cgroup.
fn dir_of(cgroup: &LimitedCgroup) -> PathBuf {
    Path::new(ROOT).join(cgroup.path.trim_start_matches('/'))
}

/// Returns the directory of a container's limited cgroup. Its first process may have moved below, as systemd does.
///
/// # Errors
/// The cgroup is gone, or the process has left it.
fn current_dir(cgroup: &LimitedCgroup, init: Option<&Process>) -> Result<PathBuf> {
    let dir = dir_of(cgroup);
    if inode(&dir) != Some(cgroup.inode) {
        return Err(
            Error::new(format!("cgroup {} is gone", dir.display())).hint("restart the container")
        );
    }
    let init = init.filter(|init| process::is_alive(init));
    let now = init.map(|init| process::unified_cgroup(init.pid));
    match now.transpose().context(|| "find the container's cgroup")? {
        Some(now) if !Path::new(&now).starts_with(&cgroup.path) => Err(Error::new(format!(
            "the container's first process has left cgroup {} for {now}",
            cgroup.path
        ))
        .hint("restart the container, without a writable mount of the host's cgroups")),
        _ => Ok(dir),
    }
}

fn inode(dir: &Path) -> Option<u64> {
    let meta = std::fs::metadata(dir).ok()?;
    is_v2(dir).then(|| meta.ino())
}

/// Returns the directory of a cgroup, given as `/proc/PID/cgroup` shows it. A limit there must not hold for the engine.
fn below(root: &Path, path: &str, own: &str) -> std::result::Result<PathBuf, String> {
    let Some(rest) = path.strip_prefix('/').filter(|rest| !rest.is_empty()) else {
        return Err("the process is in the root cgroup".to_owned());
    };
    let is_name = |part| matches!(part, Component::Normal(_));
    if !Path::new(rest).components().all(is_name) {
        return Err(format!("cgroup {path} is outside of this cgroup namespace"));
    }
    if Path::new(own).starts_with(path) {
        return Err(format!(
            "cgroup {path} is not the container's own: the low-level runtime is in that cgroup too"
        ));
    }
    Ok(root.join(rest))
}

const CONTROLLER: &str = "dmem";
/// The most of a list of controllers, in bytes.
const MAX_CONTROLLERS: u64 = 4096;

/// Hands the kernel's controller down to a cgroup, from the root of the hierarchy on. Systemd does not know the controller, and
/// low-level runtimes differ. Without the controller the driver keeps limits by itself.
///
/// # Errors
/// A cgroup above refuses the controller, as one does that has processes.
fn provide_controller(root: &Path, cgroup: &Path) -> Result<()> {
    if !lists(&root.join("cgroup.controllers"))? {
        return Ok(());
    }
    let mut above: Vec<&Path> = cgroup.ancestors().skip(1).collect();
    above.retain(|dir| dir.starts_with(root));
    for dir in above.into_iter().rev() {
        let list = dir.join("cgroup.subtree_control");
        if !lists(&list)? {
            let opened = effect::open(OpenOptions::new().write(true), &list);
            let written = opened.and_then(|mut file| effect::write_all(&mut file, b"+dmem"));
            written.context(|| format!("enable {CONTROLLER} in {}", list.display()))?;
        }
    }
    match cgroup.join("dmem.max").exists() {
        true => Ok(()),
        false => Err(Error::new(format!(
            "cgroup {} has no {CONTROLLER}.max",
            cgroup.display()
        ))),
    }
}

fn lists(file: &Path) -> Result<bool> {
    let text =
        files::read_text(file, MAX_CONTROLLERS).context(|| format!("read {}", file.display()))?;
    Ok(text.split_whitespace().any(|word| word == CONTROLLER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn takes_own_cgroup_of_container_alone() {
        let root = Path::new("/sys/fs/cgroup");
        let found = |path, own| below(root, path, own);
        assert_eq!(found("/a/b", "/a"), Ok(root.join("a/b")));
        assert_eq!(found("/a/b", "/a/bc"), Ok(root.join("a/b")));
        for (path, own) in [("/", "/x"), ("", "/x"), ("/../a", "/x"), ("/a/../b", "/x")] {
            assert!(found(path, own).is_err(), "{path}");
        }
        for own in ["/a", "/a/b"] {
            assert!(
                found("/a", own)
                    .unwrap_err()
                    .contains("not the container's own")
            );
        }
    }

    /// A tree of files in the place of the kernel's, whose answers it does not give.
    #[test]
    fn hands_controller_down_where_it_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let leaf = root.join("a/b");
        fs::create_dir_all(&leaf).unwrap();
        let list = |dir: &str| root.join(dir).join("cgroup.subtree_control");
        for (dir, text) in [("", "cpu dmem\n"), ("a", "cpu\n"), ("a/b", "\n")] {
            fs::write(list(dir), text).unwrap();
        }
        let controllers = root.join("cgroup.controllers");
        fs::write(&controllers, "cpu memory\n").unwrap();
        provide_controller(root, &leaf).unwrap();
        assert_eq!(fs::read_to_string(list("a")).unwrap(), "cpu\n");

        fs::write(&controllers, "cpu dmem memory\n").unwrap();
        let missing = provide_controller(root, &leaf).unwrap_err().line();
        assert!(missing.ends_with("a/b has no dmem.max"), "{missing}");
        fs::write(leaf.join("dmem.max"), "").unwrap();
        provide_controller(root, &leaf).unwrap();
        assert_eq!(fs::read_to_string(list("")).unwrap(), "cpu dmem\n");
        assert_eq!(fs::read_to_string(list("a")).unwrap(), "+dmem");
        assert_eq!(fs::read_to_string(list("a/b")).unwrap(), "\n");

        fs::remove_file(list("a")).unwrap();
        let unread = provide_controller(root, &leaf).unwrap_err().line();
        assert!(unread.contains("a/cgroup.subtree_control"), "{unread}");
    }
}
