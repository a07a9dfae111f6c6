//! Finds processes by their cgroups.

use super::{Host, Reads, all, dir, hierarchies, look, read_text};
use std::io;

/// Returns the cgroup paths of a process, each once.
pub fn cgroups(pid: i32) -> Vec<String> {
    let mut paths = cgroup_lines(&Host, pid).unwrap_or_default();
    paths.sort();
    paths.dedup();
    paths
}

fn cgroup_lines(reads: &dyn Reads, pid: i32) -> io::Result<Vec<String>> {
    let text = read_text(reads, &dir(pid).join("cgroup"))?.unwrap_or_default();
    Ok(lines(&text).map(|(_, path)| path.to_owned()).collect())
}

/// Returns the controllers of each hierarchy, none for that of cgroup v2, with the path of the cgroup there.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
}

/// Returns the path in the hierarchy of these controllers.
fn path_in(text: &str, controllers: &str) -> Option<String> {
    let mut lines = lines(text);
    let (_, path) = lines.find(|(its, _)| *its == controllers)?;
    Some(path.to_owned())
}

/// The cgroup to which the device rules of this process belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnCgroup {
    /// The path in cgroup v1's hierarchy for devices.
    V1(String),
    /// The path in cgroup v2's hierarchy.
    V2(String),
}

/// Returns the cgroup of this process. Returns none if the kernel does not tell, or if it lies outside this
/// cgroup namespace.
pub fn own_cgroup() -> Option<OwnCgroup> {
    let text = read_text(&Host, &dir(std::process::id() as i32).join("cgroup"));
    parse_own(&text.ok()??)
}

/// Returns the cgroup of a process in systemd's own hierarchy of cgroup v1. None without such a hierarchy.
pub(crate) fn systemd_cgroup(pid: i32) -> Option<String> {
    let text = read_text(&Host, &dir(pid).join("cgroup")).ok()??;
    path_in(&text, "name=systemd")
}

/// Returns the cgroup of a process in the hierarchy of cgroup v2, as the kernel shows it.
///
/// # Errors
/// The process is gone, or has no such cgroup.
pub(crate) fn unified_cgroup(pid: i32) -> io::Result<String> {
    let text = read_text(&Host, &dir(pid).join("cgroup"))?;
    let text = text.ok_or_else(|| io::Error::other("the process is gone"))?;
    path_in(&text, "").ok_or_else(|| io::Error::other("the process has no cgroup of version 2"))
}

fn parse_own(text: &str) -> Option<OwnCgroup> {
    let mut unified = None;
    for (controllers, path) in lines(text) {
        if path.split('/').any(|part| part == "..") {
            continue;
        }
        if controllers.split(',').any(|name| name == "devices") {
            return Some(OwnCgroup::V1(path.to_owned()));
        }
        if controllers.is_empty() {
            unified = Some(OwnCgroup::V2(path.to_owned()));
        }
    }
    unified
}

/// Returns a live process in one of these cgroups or below. An entry with `/` is a path, as in
/// `/proc/PID/cgroup`. An entry without `/` is a name that any component of the path may have. Before
/// runmig knows a container's init, it knows only the name of its cgroup, not the parent. A false match
/// only keeps a slice longer.
pub fn in_cgroup(reads: &dyn Reads, cgroups: &[String]) -> io::Result<Option<i32>> {
    if cgroups.is_empty() || hierarchies::have_none(reads, cgroups) {
        return Ok(None);
    }
    for pid in all(reads)? {
        let lines = cgroup_lines(reads, pid)?;
        if lines.iter().any(|path| is_within(path, cgroups)) && look(reads, pid)?.is_some() {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// Returns whether a process is in one of these cgroups or below. An unreadable one is not.
pub(crate) fn is_in_cgroup(reads: &dyn Reads, pid: i32, cgroups: &[String]) -> bool {
    let lines = cgroup_lines(reads, pid).unwrap_or_default();
    lines.iter().any(|path| is_within(path, cgroups))
}

fn is_within(path: &str, cgroups: &[String]) -> bool {
    cgroups.iter().any(|wanted| match wanted.contains('/') {
        true => path
            .strip_prefix(wanted.as_str())
            .is_some_and(|r| r.is_empty() || r.starts_with('/')),
        false => path.split('/').any(|part| part == wanted),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_cgroup_of_device_rules() {
        let v1 = |path: &str| Some(OwnCgroup::V1(path.to_owned()));
        let v2 = |path: &str| Some(OwnCgroup::V2(path.to_owned()));
        for (text, own) in [
            ("0::/user.slice/a:b\n", v2("/user.slice/a:b")),
            ("3:cpu:/x\n2:blkio,devices:/d\n0::/u\n", v1("/d")),
            ("3:cpu:/x\n0::/\n", v2("/")),
            ("0::/../out\n", None),
            ("2:devices:/../out\n", None),
            ("", None),
        ] {
            assert_eq!(parse_own(text), own, "{text}");
        }
    }

    #[test]
    fn kernel_tells_cgroups_of_this_process() {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        assert_eq!(own_cgroup(), parse_own(&text));
        let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
        let found = unified_cgroup(std::process::id() as i32);
        assert_eq!(found.ok().as_deref(), unified);
        let gone = unified_cgroup(i32::MAX).unwrap_err();
        assert_eq!(gone.to_string(), "the process is gone");
    }
}
