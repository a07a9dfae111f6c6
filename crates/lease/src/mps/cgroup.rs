//! The cgroup of a daemon: one of its own in every hierarchy, outside of the container's, the pod's and the
//! engine's. The end of those does not end the daemon, and its processes are no sign that the container lives.

use super::PREFIX;
use crate::error::{Context, Error, Result};
use crate::process::{self, Host, PidFd};
use crate::{effect, files, paths};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The age at which an empty cgroup is no longer that of a daemon that is being started.
const LEFT_OVER: Duration = Duration::from_secs(600);
/// The most of a list of processes that runmig reads, in bytes.
const MAX_LIST: u64 = 1 << 20;

/// Makes the cgroup in each hierarchy that this process sees.
pub(super) fn make(name: &str) -> Result<()> {
    let points = process::hierarchies();
    if points.is_empty() {
        return Err(Error::new("no cgroup hierarchy is mounted here"));
    }
    for point in &points {
        let group = point.join(name);
        let what = || format!("make cgroup {}", group.display());
        match effect::make_dir(&group, 0o777) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => made.context(what)?,
        }
        // cgroup v1 takes no process into a cgroup without these.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let is_v1 = point.join("cgroup.sane_behavior").exists() && point.join(file).exists();
            if is_v1 {
                let of_all = files::read_text(&point.join(file), MAX_LIST).context(what)?;
                effect::write(&group.join(file), of_all.trim()).context(what)?;
            }
        }
    }
    Ok(())
}

/// Moves a process into the cgroup.
pub(super) fn enter(name: &str, pid: i32) -> Result<()> {
    for point in process::hierarchies() {
        let procs = point.join(name).join("cgroup.procs");
        effect::write(&procs, pid.to_string())
            .context(|| format!("write process {pid} to {}", procs.display()))?;
    }
    // systemd ends a unit with all processes of its cgroup there.
    match process::systemd_cgroup(pid) {
        Some(path) if !path.ends_with(name) => Err(Error::new(format!(
            "process {pid} stays in {path}, since systemd's cgroup hierarchy is not mounted here"
        ))),
        _ => Ok(()),
    }
}

/// Returns a live process of the cgroup, as far as the hierarchies here show it.
pub(super) fn first(name: &str) -> io::Result<Option<i32>> {
    process::in_cgroup(&Host, &[format!("/{name}")])
}

/// Returns a live process whose cgroup has the name. Another cgroup namespace shows another path to it.
pub(super) fn anywhere(name: &str) -> io::Result<Option<i32>> {
    process::in_cgroup(&Host, &[name.to_owned()])
}

/// Kills every process of the cgroup. One that starts meanwhile stays for the next call.
pub(super) fn kill(name: &str) -> io::Result<()> {
    let mut pids = BTreeSet::new();
    for point in process::hierarchies() {
        let group = point.join(name);
        let all = group.join("cgroup.kill");
        if all.exists() && effect::write(&all, "1").is_ok() {
            continue;
        }
        let listed = files::read_text(&group.join("cgroup.procs"), MAX_LIST);
        let listed = files::if_there(listed)?.unwrap_or_default();
        pids.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    for pid in pids {
        kill_in(name, pid);
    }
    Ok(())
}

/// Kills a process if it is in the cgroup. The descriptor names the process even if its number is used again.
fn kill_in(name: &str, pid: i32) {
    let Ok(process) = PidFd::open(pid) else {
        return;
    };
    if process::is_in_cgroup(&Host, pid, &[format!("/{name}")]) {
        let _ = process.kill();
    }
}

/// Removes the empty cgroup from each hierarchy.
pub(super) fn remove(name: &str) -> io::Result<()> {
    for point in process::hierarchies() {
        files::if_there(effect::remove_dir(&point.join(name)))?;
    }
    Ok(())
}

/// Removes empty cgroups of daemons that are long gone. A hook in a mount namespace without one of the hierarchies
/// leaves the cgroup there. The kernel refuses to remove one with a process.
pub(crate) fn remove_left_over() {
    let is_old = |group: &PathBuf| {
        let made = group
            .symlink_metadata()
            .and_then(|meta| meta.modified())
            .ok();
        let age = made.and_then(|made| SystemTime::now().duration_since(made).ok());
        age.is_some_and(|age| age > LEFT_OVER)
    };
    let is_daemons = |group: &PathBuf| {
        let name = group.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    };
    let points = process::hierarchies();
    let groups = points.iter().flat_map(|point| paths::entries(point));
    for group in groups.filter(|group| is_daemons(group) && is_old(group)) {
        let _ = effect::remove_dir(&group);
    }
}

/// Returns whether the cgroup is in a hierarchy.
pub(super) fn exists(name: &str) -> bool {
    let points = process::hierarchies();
    points.iter().any(|point| point.join(name).exists())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A cgroup that ends with its test.
    pub(in crate::mps) struct Made(pub String);

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = remove(&format!("{}/below", self.0));
            let _ = remove(&self.0);
        }
    }

    /// Makes a cgroup. Only root can: none for other users.
    pub(in crate::mps) fn made(name: &str) -> Option<Made> {
        let made = Made(format!("{PREFIX}test-{name}-{}", std::process::id()));
        match make(&made.0) {
            Ok(()) => Some(made),
            Err(e) if crate::trust::is_host_root() => panic!("{e}"),
            Err(_) => None,
        }
    }

    #[test]
    fn makes_a_cgroup_that_may_be_there() {
        if let Some(first) = process::hierarchies().first() {
            let group = first.join("runmig-not-there/a");
            let line = make("runmig-not-there/a").unwrap_err().line();
            let why = format!("cannot make cgroup {}: ", group.display());
            assert!(line.starts_with(&why), "{line}");
        }
        let Some(Made(name)) = &made("twice") else {
            return;
        };
        make(name).unwrap();
        assert!(exists(name));
        remove(name).unwrap();
        assert!(!exists(name));
    }
}
