//! What stands against a create: an earlier container of the same id, and the cgroup of another.
//!
//! A cgroup has one set of device rules. A container that is made in another one's cgroup replaces
//! them: the other loses its slice, and can open the new one's. So no slice is given to such a container.

use crate::error::{Error, Result};
use crate::leases::Leases;
use crate::model::{Cgroup, OperationId};
use crate::process::{self, Host};
use crate::reclaim::liveness::{self, A_MOMENT, Liveness, lasting};
use crate::reclaim::{self, Patience, Returned};
use crate::store::{Container, Held, Lease, LeaseState};
use std::sync::Arc;

/// Releases earlier leases of the same container. An error where that container lives, or a process in its cgroup or below
/// that does not end at once.
pub(crate) fn make_way(context: &Leases<'_>, holder: &Container, cgroup: &Cgroup) -> Result<()> {
    release_previous(context, holder)?;
    let Some(path) = &cgroup.path else {
        return Ok(());
    };
    let wanted = [path.clone()];
    let occupant = || match process::in_cgroup(&Host, &wanted) {
        Ok(pid) => pid.map(|pid| format!("process {pid} ({}) runs in it", process::name(pid))),
        Err(e) => Some(format!("runmig cannot read which processes run in it: {e}")),
    };
    match lasting(A_MOMENT, occupant) {
        Some(why) => Err(refusal(holder, path, &why)),
        None => Ok(()),
    }
}

/// An error where another create makes a container of the same id or in the same cgroup, or such a container lives. Creates
/// that choose one after the other see each other so, before either has a process. Returns whether a create that ended has
/// left a lease, which has to go first: it would live by the new container's signs.
pub(super) fn by_others(
    context: &Leases<'_>,
    holder: &Container,
    cgroup: &Cgroup,
    operation: &OperationId,
    leases: &[Held],
) -> Result<bool> {
    let is_left = by_same_id(context, holder, operation, leases)?;
    if let Some(path) = cgroup.path.as_ref().filter(|_| !is_left) {
        by_lease(context, holder, path, leases)?;
    }
    Ok(is_left)
}

/// An error where another container has the cgroup, or is being made in it.
fn by_lease(context: &Leases<'_>, holder: &Container, path: &str, leases: &[Held]) -> Result<()> {
    let own = liveness::namespaces()?.cgroup;
    for Held { lease, .. } in leases {
        let is_same_namespace = lease.namespaces.as_ref().is_some_and(|n| n.cgroup == own);
        let is_others = !lease.is_of(&holder.key) && is_same_namespace;
        if is_others
            && lease.cgroups.iter().any(|theirs| is_within(theirs, path))
            && let Some(life) = lasting(A_MOMENT, || context.sign_of_life(lease))
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

/// An error where another create makes a container of the same id, or such a container lives. Returns whether a create that
/// ended has left a lease.
fn by_same_id(
    context: &Leases<'_>,
    holder: &Container,
    operation: &OperationId,
    leases: &[Held],
) -> Result<bool> {
    let mut is_left = false;
    for held in leases {
        let lease = &held.lease;
        let is_over = lease.state == LeaseState::Releasing;
        if !lease.is_of(&holder.key) || is_over || lease.operation.as_ref() == Some(operation) {
            continue;
        }
        match context.sign_of_life(lease) {
            Some(life) => {
                let and = format!(" and holds {held}");
                return Err(exists_already(holder, &and, &life));
            }
            None => is_left = true,
        }
    }
    by_init(holder).map(|()| is_left)
}

/// Releases earlier leases of the same container; an error where that container lives.
pub(crate) fn release_previous(context: &Leases<'_>, holder: &Container) -> Result<()> {
    reclaim::end_earlier_boot(context, false)?;
    for held in context.of(&holder.key)? {
        let against = |now: &Lease| match now.state {
            LeaseState::Releasing => None,
            _ => context.sign_of_life(now),
        };
        match context.release_unless(&held, Patience::with(held.attempt()), against) {
            Ok(Returned::Yes) => {}
            Ok(Returned::No(life)) => {
                let and = format!(" and holds {held}");
                return Err(exists_already(holder, &and, &life));
            }
            // Its slice stays on record and is tried again; the new container takes another.
            Err(e) => {
                let now = context.store.lease_now(&held.lease);
                let is_marked = |now: Arc<Lease>| now.state == LeaseState::Releasing;
                if !now.ok().flatten().is_none_or(is_marked) {
                    return Err(e);
                }
                tracing::warn!(lease = held.lease.id.as_str(), "{}", e.line());
            }
        }
    }
    by_init(holder)
}

/// An error where the low-level runtime has a living container of this id.
fn by_init(holder: &Container) -> Result<()> {
    // A container without a slice counts too: the create would take its life for that of the new one.
    match Liveness::here().recorded_init(&holder.key) {
        Ok(Some(init)) if process::is_alive(&init) => {
            let life = format!("its init, process {}, runs", init.pid);
            Err(exists_already(holder, "", &life))
        }
        _ => Ok(()),
    }
}

fn exists_already(holder: &Container, and: &str, life: &str) -> Error {
    let id = &holder.key.id;
    Error::new(format!("container {id} exists already{and} ({life})"))
        .hint("delete it first, or use another id")
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
