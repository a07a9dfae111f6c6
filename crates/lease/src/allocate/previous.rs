//! The previous lease of the container that a create is for: it is released first.

use crate::context::LeaseContext;
use crate::error::{Error, Result};
use crate::process;
use crate::reclaim::{self, Patience, Returned, holder, liveness};
use crate::store::{Container, Lease, LeaseState};

/// Releases earlier leases of the same container; an error where that container lives.
pub(crate) fn release_previous(context: &LeaseContext<'_>, holder: &Container) -> Result<()> {
    for held in context.leases_of(&holder.key)? {
        let against = |now: &Lease| {
            let is_over = now.boot_id != context.boot_id || now.state == LeaseState::Releasing;
            (!is_over)
                .then(|| holder::sign_of_life(&context.store, now))
                .flatten()
        };
        match reclaim::release_unless(context, &held, Patience::with(&held.instance), against) {
            Ok(Returned::Yes) => {}
            Ok(Returned::No(life)) => {
                let and = format!(" and holds {}", held.instance.resource);
                return Err(exists_already(holder, &and, &life));
            }
            // Its slice stays on record and is tried again; the new container takes another.
            Err(e) => tracing::warn!(lease = held.lease.id.as_str(), "{}", e.line()),
        }
    }
    // A container without a slice counts too: the create would take its life for that of the new one.
    match liveness::recorded_init(&holder.key) {
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
