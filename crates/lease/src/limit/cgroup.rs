//! Finds the directory of a process's cgroup.

use crate::error::{Context, Error, Result};
use crate::files;
use crate::model::Process;
use crate::process;
use crate::store::LimitedCgroup;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The most of a list of processes that runmig reads, in bytes.
const MAX_LIST: u64 = 1 << 20;

/// Returns whether a directory is of a cgroup v2 hierarchy.
pub(super) fn is_v2(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Returns the cgroup of a process.
///
/// # Errors
/// The process has no cgroup that is not also this process's, or its cgroup cannot be found.
pub(super) fn of(root: &Path, pid: i32) -> Result<LimitedCgroup> {
    let what = || format!("find the cgroup of process {pid}");
    let path = process::unified_cgroup(pid).context(what)?;
    let own = process::unified_cgroup(process::current().pid).context(what)?;
    let dir = below(root, &path, &own).map_err(Error::new).context(what)?;
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
pub(super) fn dir(root: &Path, cgroup: &LimitedCgroup) -> PathBuf {
    root.join(cgroup.path.trim_start_matches('/'))
}

/// Returns the directory of a container's limited cgroup. Its first process may have moved below, as systemd does.
///
/// # Errors
/// The cgroup is gone, or the process has left it.
pub(super) fn find(root: &Path, cgroup: &LimitedCgroup, init: Option<&Process>) -> Result<PathBuf> {
    let dir = dir(root, cgroup);
    if inode(&dir) != Some(cgroup.inode) {
        return Err(Error::new(format!("cgroup {} is gone", dir.display())));
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
