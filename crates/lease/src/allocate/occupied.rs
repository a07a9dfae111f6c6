//! A cgroup has one set of device rules. A container that is made in another one's cgroup replaces
//! them: the other loses its slice, and can open the new one's. So no slice is given to such a container.

use crate::error::{Error, Result};
use crate::process::{self, Host};
use crate::reclaim::holder;
use crate::reclaim::liveness::{self, A_MOMENT, lasting};
use crate::store::{Container, Held, Store};

/// An error where a process lives in the cgroup or below, and does not end at once.
pub(crate) fn by_process(holder: &Container, path: &str) -> Result<()> {
    let wanted = [path.to_owned()];
    let occupant = || match process::in_cgroup(&Host, &wanted) {
        Ok(pid) => pid.map(|pid| format!("process {pid} ({}) runs in it", process::name(pid))),
        Err(e) => Some(format!("runmig cannot read which processes run in it: {e}")),
    };
    match lasting(A_MOMENT, occupant) {
        Some(why) => Err(refusal(holder, path, &why)),
        None => Ok(()),
    }
}

/// An error where another container has the cgroup, or is being made in it. Creates that choose one after
/// the other see each other so, before either has a process.
pub(super) fn by_lease(
    store: &Store,
    holder: &Container,
    path: &str,
    leases: &[Held],
) -> Result<()> {
    let own = liveness::namespaces()?.cgroup;
    for Held { lease, .. } in leases {
        let is_same_namespace = lease.namespaces.as_ref().is_some_and(|n| n.cgroup == own);
        let is_others = !lease.is_of(&holder.key) && is_same_namespace;
        if is_others
            && lease.cgroups.iter().any(|theirs| is_within(theirs, path))
            && let Some(life) = lasting(A_MOMENT, || holder::sign_of_life(store, lease))
        {
            let why = format!("{} has it ({life})", lease.holder.title());
            return Err(refusal(holder, path, &why));
        }
    }
    Ok(())
}

fn is_within(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn refusal(holder: &Container, path: &str, why: &str) -> Error {
    let id = &holder.key.id;
    Error::new(format!(
        "cannot create container {id}: its cgroup {path} is in use, and would get other device rules: {why}"
    ))
    .hint("end that, or give the container a cgroup of its own (linux.cgroupsPath)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_neighbours_from_children() {
        for (path, is_inside) in [
            ("/a/b", true),
            ("/a/b/c", true),
            ("/a/bc", false),
            ("/a", false),
            ("/a/c", false),
            ("b", false),
        ] {
            assert_eq!(is_within(path, "/a/b"), is_inside, "{path}");
        }
    }
}
