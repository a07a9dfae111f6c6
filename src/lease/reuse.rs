//! A slice that is there already instead of one that is made: an idle one of ours (`idle`), an
//! administrator's (`adopt`), another container's (`share`).

use super::{Leases, Patience};
use crate::error::{Error, Result};
use crate::gpu::Inventory;
use crate::model::Snapshot;
use crate::placement::{Constraints, Slot};
use crate::store::{Lease, Slice};

pub(super) fn slot_of(slice: &Slice) -> Slot {
    Slot {
        gpu: slice.gpu_uuid.clone(),
        profile_id: slice.profile_id,
        placement: slice.placement,
    }
}

/// Whether the driver shows the very instance of a slice.
pub(super) fn is_there(snapshot: &Snapshot, slice: &Slice) -> bool {
    let here = snapshot.gpus.iter().filter(|g| g.uuid == slice.gpu_uuid);
    here.flat_map(|g| &g.instances).any(|i| {
        (Some(i.id), i.profile_id, i.placement)
            == (slice.gpu_instance, slice.profile_id, slice.placement)
    })
}

/// The same, of slices that are there: what has to stay free for others is not asked.
pub(super) fn of_what_is_there<'a>(wanted: &Constraints<'a>) -> Constraints<'a> {
    Constraints {
        idle: &[],
        blockers: &[],
        ours: &[],
        ..*wanted
    }
}

/// As if these places were all the room there is.
pub(super) fn only(snapshot: &Snapshot, places: &[Slot]) -> Snapshot {
    let mut only = snapshot.clone();
    for gpu in &mut only.gpus {
        gpu.instances.clear();
        for profile in &mut gpu.profiles {
            let is_it =
                |p: &Slot, at| (&p.gpu, p.profile_id, p.placement) == (&gpu.uuid, profile.id, at);
            let placements = &mut profile.placements;
            placements.retain(|at| places.iter().any(|p| is_it(p, *at)));
        }
    }
    only
}

impl Leases<'_> {
    /// Once it is ours alone to hand out: whether it is still what it was and nobody uses it; else it
    /// is given up, and the place told. So is one of which that cannot be found out: there may be room
    /// for another.
    pub(super) fn look_over(
        &self,
        driver: &impl Inventory,
        lease: &Lease,
        patience: Patience,
    ) -> std::result::Result<Lease, Slot> {
        let wrong = match self.what_is_wrong(driver, lease) {
            Ok(Ok(lease)) => return Ok(lease),
            Ok(Err(why)) => why,
            Err(e) => e.line(),
        };
        tracing::warn!(lease = lease.id, "not handed out: {wrong}");
        // What is in use stays on record, and is tried again by whoever comes next.
        if let Err(e) = self.give_up(lease, patience) {
            tracing::warn!("{}", e.line());
        }
        Err(slot_of(&lease.slice))
    }

    /// What the container would have had, and never did, is not shown as its own.
    fn give_up(&self, lease: &Lease, patience: Patience) -> Result<()> {
        if lease.adopted {
            return self.release(&lease.id, patience);
        }
        let nobodys = self.nobodys(lease.slice.clone())?;
        self.store.lock("create")?.replace(lease, &nobodys)?;
        self.release(&nobodys.id, patience)
    }

    fn what_is_wrong(
        &self,
        driver: &impl Inventory,
        lease: &Lease,
    ) -> Result<std::result::Result<Lease, String>> {
        let slice = &lease.slice;
        let (Some(gi), Some(ci)) = (slice.gpu_instance, slice.compute_instance) else {
            return Err(Error::new("the lease has no instance"));
        };
        let Some(instance) = self.find(driver, lease)? else {
            return Ok(Err("its instance is gone, or another one".to_owned()));
        };
        if instance.compute_instances.iter().map(|c| c.id).ne([ci]) {
            return Ok(Err("it has other compute instances than ours".to_owned()));
        }
        let computing = driver.processes(&slice.gpu_uuid, gi, ci)?;
        if let Some(pid) = computing.first() {
            return Ok(Err(format!("process {pid} computes on it")));
        }
        let holders = self.holders(lease);
        if let Some((pid, name)) = holders.seen.first() {
            return Ok(Err(format!("process {pid} {name} has it open")));
        }
        if let Some(why) = holders.unseen {
            return Ok(Err(format!(
                "whether anybody has it open cannot be seen: {why}"
            )));
        }
        if slice.mig_uuid.is_some() && lease.shared_in.is_none() {
            return Ok(Ok(lease.clone()));
        }
        let uuid = driver.mig_uuid(&slice.gpu_uuid, gi, ci)?;
        let lease = self.record(lease, |l| l.slice.mig_uuid = Some(uuid))?;
        Ok(Ok(lease))
    }
}
