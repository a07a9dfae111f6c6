//! Processes by their cgroups.

use super::{Host, Reads, all, dir, look, read_text};
use std::io;

/// The cgroup paths of a process, each once.
pub fn cgroups(pid: i32) -> Vec<String> {
    let mut paths = cgroup_lines(&Host, pid).unwrap_or_default();
    paths.sort();
    paths.dedup();
    paths
}

fn cgroup_lines(reads: &dyn Reads, pid: i32) -> io::Result<Vec<String>> {
    let text = read_text(reads, &dir(pid).join("cgroup"))?.unwrap_or_default();
    let path = |line: &str| Some(line.splitn(3, ':').nth(2)?.to_owned());
    Ok(text.lines().filter_map(path).collect())
}

/// A live process in one of these cgroups or below. An entry with `/` is a path as `/proc/PID/cgroup`
/// has it; one without is a name that any component of the path may have: before a container's init
/// is known, its cgroup is known by name only, wherever it hangs. One too many found keeps a slice
/// longer, nothing worse.
pub fn in_cgroup(reads: &dyn Reads, cgroups: &[String]) -> io::Result<Option<i32>> {
    if cgroups.is_empty() {
        return Ok(None);
    }
    let within = |path: &String| {
        cgroups.iter().any(|wanted| match wanted.contains('/') {
            true => path
                .strip_prefix(wanted.as_str())
                .is_some_and(|r| r.is_empty() || r.starts_with('/')),
            false => path.split('/').any(|part| part == wanted),
        })
    };
    for pid in all(reads)? {
        if cgroup_lines(reads, pid)?.iter().any(within) && look(reads, pid)?.is_some() {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}
