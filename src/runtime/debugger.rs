//! Tells a container that joins the processes of another one of its pod: an ephemeral one of `kubectl debug --target`.

use std::collections::BTreeMap;

/// Returns whether a container of a pod, which joins namespaces with these paths by type, has the PID namespace of another one,
/// and not that of the sandbox.
pub fn joins_container(namespaces: &BTreeMap<String, String>) -> bool {
    let process = |path: &String| {
        path.strip_prefix("/proc/")?
            .split('/')
            .next()
            .map(str::to_owned)
    };
    let of_sandbox = ["ipc", "uts", "network"].iter();
    let sandbox = { of_sandbox }.find_map(|kind| process(namespaces.get(*kind)?));
    match namespaces.get("pid").map(process) {
        // containerd names each by a process.
        Some(Some(pid)) => sandbox.is_some_and(|sandbox| pid != sandbox),
        // CRI-O pins that of a target, and names that of a sandbox by a process.
        Some(None) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_processes_of_containers_from_those_of_sandboxes() {
        let joins = |pairs: &[(&str, &str)]| {
            let all = { pairs.iter() }.map(|(kind, path)| ((*kind).into(), (*path).into()));
            joins_container(&all.collect())
        };
        let (pinned, own) = (("ipc", "/run/ipcns/x"), ("uts", "/proc/42/ns/uts"));
        assert!(joins(&[("pid", "/proc/7/ns/pid"), own]));
        assert!(joins(&[("pid", "/run/pidns/pid7"), pinned]));
        assert!(!joins(&[("pid", "/proc/42/ns/pid"), own]));
        assert!(!joins(&[("pid", "/proc/42/ns/pid"), own, pinned]));
        assert!(!joins(&[("pid", "/proc/42/ns/pid"), pinned]));
        assert!(!joins(&[("pid", "/proc/42/ns/pid")]));
        assert!(!joins(&[pinned, own]));
    }
}
