//! New leases that are not on record yet, and the places of slices.

use super::context::{LeaseContext, now};
use crate::error::{Context, Result};
use crate::files;
use crate::model::Process;
use crate::placement::Slot;
use crate::store::{Holder, Lease, Slice, State};
use std::path::Path;

/// Returns a random lease id.
pub(crate) fn random_id() -> Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/uuid";
    let uuid = files::read_text(Path::new(FILE), 64).context(|| format!("read {FILE}"))?;
    Ok(uuid.trim().replace('-', ""))
}

/// Returns a lease of no container on a slice of this boot, to be released.
pub(crate) fn of_nobody(context: &LeaseContext<'_>, slice: Slice) -> Result<Lease> {
    Ok(Lease {
        id: random_id()?,
        state: State::Releasing,
        boot_id: context.boot_id.clone(),
        created: now(),
        holder: Holder::default(),
        slice,
        // No process makes a container of it.
        creator: Process {
            pid: 0,
            start_time: 0,
        },
        runtime_process: None,
        init: None,
        cgroups: Vec::new(),
        attempt: None,
        idle_since: None,
        adopted: false,
        shared_in: None,
        namespaces: None,
        unknown: serde_json::Map::new(),
    })
}

/// Returns the place of a slice.
pub(crate) fn slot_of(slice: &Slice) -> Slot {
    Slot {
        gpu: slice.gpu_uuid.clone(),
        profile_id: slice.profile_id,
        placement: slice.placement,
    }
}
