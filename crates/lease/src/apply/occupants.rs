//! The instances on each GPU, with the records, leases and processes that hold them.

use super::in_use::{InUse, WHOLE};
use crate::error::Result;
use crate::gpu::{DetailedGpu, Session};
use crate::leases::Leases;
use crate::model::{ComputeInstance, ListedInstance, OperationId, Placement};
use crate::placement::Standing;
use crate::store::{Entry, Instance, InstanceState, LeaseState, Listing, Slice};
use std::sync::Arc;

/// A GPU with all that lies on it or is promised there.
pub(super) struct GpuState {
    pub gpu: DetailedGpu,
    pub present: Vec<Present>,
    /// The holders of leases on the GPU as a whole, or on a share of it.
    pub holders: Vec<String>,
    /// Another apply that changes the MIG mode of the GPU.
    pub changing: Option<String>,
    /// The processes on a GPU outside of MIG mode, as far as they were looked at.
    pub processes: Vec<String>,
}

/// An instance on a GPU, or a place on record.
#[derive(Default)]
pub(super) struct Present {
    pub profile_id: u32,
    pub placement: Placement,
    /// The driver's id. None where only a record tells of the instance.
    pub id: Option<u32>,
    pub compute: Vec<ComputeInstance>,
    /// The record, unless it cannot be read.
    pub record: Option<Instance>,
    /// The holders of its leases, and the processes that have it open.
    pub holders: Vec<String>,
    /// Whether its leases are on parts of its memory.
    pub has_seats: bool,
    /// Whether a release of it has begun: it cannot stay.
    pub is_going: bool,
    /// Whether the record of another instance claims its place.
    pub is_unread: bool,
}

impl Present {
    /// Returns the instance as the plan sees it.
    pub(super) fn standing(&self, gpu: &DetailedGpu) -> Standing {
        let profile = gpu.offered(self.profile_id);
        Standing {
            profile_id: self.profile_id,
            placement: self.placement,
            parts: match self.id {
                Some(_) if !self.compute.is_empty() || self.holders.is_empty() => {
                    self.compute.iter().map(|ci| ci.slices).collect()
                }
                // A slice that is promised or being made will be whole, and one that is held is, also if the driver
                // does not tell its compute instance at this moment.
                _ => profile
                    .map(|profile| profile.compute_slices)
                    .into_iter()
                    .collect(),
            },
            is_held: !self.holders.is_empty(),
        }
    }

    /// Returns the slice as a record has it.
    pub(super) fn slice(&self, gpu: &DetailedGpu) -> Option<Slice> {
        let profile = gpu.offered(self.profile_id)?;
        let compute = match self.compute.as_slice() {
            [only] => Some(only.id),
            _ => None,
        };
        Some(Slice {
            gpu_instance: self.id,
            compute_instance: compute,
            ..Slice::planned(&gpu.gpu, profile, self.placement)
        })
    }
}

/// Returns the driver's answer and the ledger after it. Returns none if an instance on record ended in between: it would look
/// like an administrator's.
pub(super) fn read(
    context: &Leases<'_>,
    driver: &Session<'_>,
) -> Result<Option<(Vec<DetailedGpu>, Listing)>> {
    let before = context.store.state()?;
    let (gpus, listing) = (driver.detailed_gpus()?, context.store.list()?);
    let after = context.store.state()?;
    let is_there = |one: &Arc<Instance>| after.instance(&one.id).is_some();
    let is_same = before.instances.iter().all(is_there);
    Ok(is_same.then_some((gpus, listing)))
}

/// Returns the state of each GPU. The GPUs that `own` holds as a whole count as free.
pub(super) fn look(
    context: &Leases<'_>,
    gpus: Vec<DetailedGpu>,
    mut listing: Listing,
    in_use: &InUse,
    own: Option<&OperationId>,
) -> Vec<GpuState> {
    let is_own = |instance: &Instance| instance.is_hold() && instance.operation.as_ref() == own;
    if own.is_some() {
        listing.entries.retain(|entry| !is_own(entry.instance()));
    }
    let state = |gpu: DetailedGpu| {
        let is_here = |entry: &&Entry| *entry.instance().resource.gpu_uuid() == gpu.gpu.uuid;
        let entries = listing.entries.iter().filter(is_here).collect();
        Records { entries }.state(context, gpu, in_use)
    };
    gpus.into_iter().map(state).collect()
}

/// The records of one GPU.
struct Records<'l> {
    entries: Vec<&'l Entry>,
}

impl Records<'_> {
    fn state(&self, context: &Leases<'_>, gpu: DetailedGpu, in_use: &InUse) -> GpuState {
        let there = |one: &ListedInstance| {
            let is_it = |slice: &Slice| {
                slice.placement == one.placement
                    && slice.profile_id == one.profile_id
                    && slice.gpu_instance.is_none_or(|id| id == one.id)
            };
            // A planned instance is not made yet, so this one is another.
            let is_on_record =
                |instance: &Instance| !instance.planned && instance.slice().is_some_and(is_it);
            let mut present = self.present(context, (one.profile_id, one.placement), is_on_record);
            // An instance in the place of a leased one, which an administrator destroyed, counts as leased.
            let is_there = |slice: &Slice| slice.placement.overlaps(one.placement) && !is_it(slice);
            for entry in &self.entries {
                if let Some(lease) = entry.lease()
                    && entry.instance().slice().is_some_and(is_there)
                {
                    present.holders.push(lease.holder.title());
                    present.is_unread = true;
                }
            }
            present.id = Some(one.id);
            present.compute.clone_from(&one.compute_instances);
            let processes = in_use.of(&gpu.gpu.uuid, one.id);
            present.holders.extend(processes.iter().cloned());
            present
        };
        let mut present: Vec<Present> = gpu.instances.iter().map(there).collect();
        // Places on record without hardware: promised, being made, or of an instance that has gone.
        for entry in &self.entries {
            let (instance, is_leased) = (entry.instance(), entry.lease().is_some());
            let place_of = |slice: &Slice| (slice.profile_id, slice.placement);
            let Some(place) = instance.slice().map(place_of) else {
                continue;
            };
            // A second record of a place goes, too.
            let is_it = |p: &Present| match is_leased {
                true => (p.profile_id, p.placement) == place,
                false => p.record.as_ref().is_some_and(|r| r.id == instance.id),
            };
            if !present.iter().any(is_it) {
                let is_there = |other: &Instance| other.slice().map(place_of) == Some(place);
                let mut one = self.present(context, place, is_there);
                if !is_leased {
                    one.record = Some(instance.clone());
                }
                one.is_going |= one.holders.is_empty();
                present.push(one);
            }
        }
        let whole = { self.entries.iter() }.filter(|entry| entry.instance().slice().is_none());
        let whole: Vec<&&Entry> = whole.collect();
        let holders = whole.iter().filter_map(|entry| entry.lease());
        let mut unleased = whole.iter().filter(|entry| entry.lease().is_none());
        GpuState {
            holders: holders.map(|lease| lease.holder.title()).collect(),
            changing: unleased.find_map(|entry| at_work(context, entry.instance())),
            processes: in_use.of(&gpu.gpu.uuid, WHOLE).to_vec(),
            gpu,
            present,
        }
    }

    /// Returns a place with the records and leases that `is_it` accepts.
    fn present(
        &self,
        context: &Leases<'_>,
        place: (u32, Placement),
        is_it: impl Fn(&Instance) -> bool,
    ) -> Present {
        let mut present = Present {
            profile_id: place.0,
            placement: place.1,
            ..Present::default()
        };
        let (mut is_leased, mut stays) = (false, false);
        for entry in &self.entries {
            let instance = entry.instance();
            if !is_it(instance) {
                continue;
            }
            match entry.lease() {
                Some(lease) => {
                    is_leased = true;
                    present.has_seats |= lease.share().is_some();
                    stays |= lease.state != LeaseState::Releasing;
                    present.holders.push(lease.holder.title());
                }
                None => present.holders.extend(at_work(context, instance)),
            }
            present.is_going = match entry.lease() {
                Some(_) => instance.is_ending(),
                None => is_going(instance),
            };
            present.record = Some(instance.clone());
        }
        // A release that has begun may be destroying it.
        present.is_going |= is_leased && !stays;
        present
    }
}

/// Returns another apply that works on an instance without a lease.
fn at_work(context: &Leases<'_>, instance: &Instance) -> Option<String> {
    context
        .is_at_work(instance)
        .then(|| "another apply".to_owned())
}

/// Returns whether an instance without a lease is on its way out.
fn is_going(instance: &Instance) -> bool {
    match instance.state {
        InstanceState::Idle { .. } => false,
        _ => !instance.outlives_leases(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::geometry::Offer;
    use crate::model::Profile;

    #[test]
    fn held_slice_stands_whole_while_it_is_made() {
        let profile = Profile {
            id: 19,
            compute_slices: 3,
            ..Profile::default()
        };
        let gpu = DetailedGpu {
            gpu: Default::default(),
            device_id: 0,
            subsystem_id: 0,
            offers: vec![Offer { number: 0, profile }],
            instances: Vec::new(),
        };
        for (id, slices, holder, parts) in rows! {
            Some(1), &[1, 2][..], None => &[1, 2][..];
            Some(1), &[1, 2], Some("web") => &[1, 2];
            Some(1), &[3], None => &[3];
            Some(1), &[], None => &[];
            Some(1), &[], Some("web") => &[3];
            None, &[], None => &[3];
            None, &[], Some("web") => &[3];
        } {
            let compute = |slices: &u32| ComputeInstance {
                id: 0,
                profile_id: 0,
                slices: *slices,
            };
            let present = Present {
                profile_id: 19,
                id,
                compute: slices.iter().map(compute).collect(),
                holders: holder
                    .iter()
                    .map(|name: &&str| (*name).to_owned())
                    .collect(),
                ..Present::default()
            };
            let standing = present.standing(&gpu);
            assert_eq!(standing.parts, parts, "{id:?} {holder:?}");
            assert_eq!(standing.is_held, holder.is_some());
            // The record of a slice has one compute instance, or none.
            let record = present.slice(&gpu).unwrap();
            assert_eq!(record.compute_instance, (slices.len() == 1).then_some(0));
        }
    }

    #[test]
    fn idle_slice_stays_until_it_is_destroyed() {
        let since = "2026-01-01T00:00:00Z".into();
        for (state, goes) in [
            (InstanceState::Idle { since }, false),
            (InstanceState::Creating, true),
            (InstanceState::Releasing, true),
        ] {
            let instance = Instance {
                state,
                ..crate::store::tests::instance("one")
            };
            assert_eq!(is_going(&instance), goes, "{:?}", instance.state);
        }
    }
}
