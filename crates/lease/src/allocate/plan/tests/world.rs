//! Random worlds for a plan: a machine, a request, rules and limits.

use super::machine::{MODELS, filling, machine};
use super::reference::{Span, memory_held};
use crate::allocate::admit::Limits;
use crate::allocate::found::Denial;
use crate::allocate::plan::{Plan, Planner};
use crate::allocate::requester::Tried;
use crate::draft::slot_of;
use crate::inventory::Inventory;
use crate::model::{Gpu, GpuInstance, GpuUuid, MigMode, Profile};
use crate::placement::{Constraints, Rejection, Reservation, Slot};
use crate::policy::{Limit, Policy, Subject};
use crate::request::{self, Alternative};
use crate::store::Instance;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[derive(Debug)]
pub(super) struct World {
    pub inventory: Inventory,
    pub alternatives: Vec<Alternative>,
    pub min_compute: u32,
    pub excluded: Vec<(GpuUuid, String)>,
    pub denied: Vec<String>,
    pub blockers: Vec<Reservation>,
    pub limit: Option<Limit>,
    pub tried: Tried,
    pub adopts: bool,
}

impl World {
    pub(super) fn plan(&self) -> Result<Plan, Denial<Rejection>> {
        let slices: Vec<request::Slice> = { self.alternatives.iter() }
            .map(|a| a.slice.clone())
            .collect();
        let ours = self.inventory.ours();
        let wanted = Constraints {
            alternatives: &slices,
            min_compute: self.min_compute,
            excluded: &self.excluded,
            denied_profiles: &self.denied,
            blockers: &self.blockers,
            ours: &ours,
            ..Constraints::default()
        };
        let policy = Policy {
            limit: self.limit.iter().cloned().collect(),
            ..Policy::default()
        };
        let planner = Planner {
            inventory: &self.inventory,
            wanted: &wanted,
            limits: &Limits::new(&policy, Subject::default(), self.inventory.usage()),
            tried: &self.tried,
            adopts: self.adopts,
        };
        planner.plan(&self.alternatives)
    }

    pub(super) fn gpu(&self, uuid: &GpuUuid) -> &Gpu {
        let mut gpus = self.inventory.snapshot.gpus.iter();
        gpus.find(|gpu| gpu.uuid == *uuid).unwrap()
    }

    /// Returns the idle slices that a plan may reuse or evict.
    pub(super) fn spare(&self) -> Vec<&Instance> {
        let is_tried = |l: &&Instance| self.tried.idle.contains(&l.id);
        { self.inventory.usable_idle() }
            .filter(|l| !is_tried(l))
            .collect()
    }

    /// Returns everything that lies on a GPU or is promised there, without spare idle slices.
    pub(super) fn staying(&self, gpu: &Gpu) -> Vec<Span> {
        let spare: Vec<Slot> = self
            .spare()
            .iter()
            .map(|l| slot_of(l.slice().unwrap()))
            .collect();
        let mut all: Vec<Span> = Vec::new();
        all.extend(gpu.instances.iter().map(|i| (i.profile_id, i.placement)));
        let taken = self.inventory.taken().into_iter();
        let taken = taken.filter(|slot| slot.gpu == gpu.uuid);
        all.extend(taken.map(|slot| (slot.profile_id, slot.placement)));
        let spare = spare.iter().filter(|slot| slot.gpu == gpu.uuid);
        let spare: Vec<Span> = spare.map(|s| (s.profile_id, s.placement)).collect();
        all.retain(|span| !spare.contains(span));
        all.sort();
        all.dedup();
        all
    }
}

/// One of the filled places, or else a GPU and one of its profiles.
type Pick = (Option<Index>, Index, Index);

fn picks() -> impl Strategy<Value = Pick> {
    (
        weighted(0.6, any::<Index>()),
        any::<Index>(),
        any::<Index>(),
    )
}

prop_compose! {
    pub(super) fn worlds()(
        models in vec(select(MODELS), 1..4),
        filling in vec(filling(), 0..16),
        asked in vec((picks(), weighted(0.3, 1u64..60), vec(picks(), 0..3)), 1..4),
        min_compute in weighted(0.2, 1u32..4),
        excluded in weighted(0.2, any::<Index>()),
        off in weighted(0.1, any::<Index>()),
        denied in weighted(0.2, picks()),
        blockers in weighted(0.2, vec(picks(), 1..3)),
        limit in weighted(0.3, (weighted(0.5, 0u32..6), weighted(0.5, vec(picks(), 0..4)))),
        adopts in any::<bool>(),
    ) -> World {
        let mut world = machine(&models, &filling);
        let pick = |pick: &Pick| picked(&world, pick);
        let alternatives = { asked.iter() }.map(|(profile, memory, others)| {
            let slice = |profile| request::Slice::Profile(pick(profile).1.name.parse().unwrap());
            Alternative {
                slice: match memory {
                    Some(gib) => request::Slice::Memory(gib << 30),
                    None => slice(profile),
                },
                others: others.iter().map(slice).collect(),
            }
        }).collect();
        let denied = denied.iter().map(|denied| pick(denied).1.name).collect();
        let blockers = { blockers.iter().flatten() }.map(|blocker| {
            let (gpu, profile) = pick(blocker);
            Reservation { gpu, profile_id: profile.id }
        }).collect();
        // The limit leaves just the memory of some slices.
        let memory = |some: &Vec<Pick>| {
            let more: u64 = some.iter().map(|one| pick(one).1.memory_mib).sum();
            (memory_held(&world) + more) << 20
        };
        let limit = limit.map(|(slices, more)| Limit {
            namespace: None, pod: None, user: None, slices, shares: None, gpus: None, memory: more.as_ref().map(memory),
        });
        let gpus = &mut world.inventory.snapshot.gpus;
        let excluded = { excluded.iter() }
            .map(|gpu| (gpu.get(gpus).uuid.clone(), "a rule".to_owned())).collect();
        if let Some(gpu) = off {
            let count = gpus.len();
            gpus[gpu.index(count)].mig = MigMode::Disabled;
        }
        World { alternatives, min_compute: min_compute.unwrap_or(0), excluded, denied, blockers, limit, adopts, ..world }
    }
}

fn picked(world: &World, pick: &Pick) -> (GpuUuid, Profile) {
    let (filled, gpu, profile) = pick;
    let gpus = &world.inventory.snapshot.gpus;
    let filled = filled.and_then(|which| {
        let all = gpus
            .iter()
            .flat_map(|gpu| gpu.instances.iter().map(move |i| (gpu, i)));
        let all: Vec<(&Gpu, &GpuInstance)> = all.collect();
        let (gpu, instance) = (!all.is_empty()).then(|| which.get(&all))?;
        Some((*gpu, gpu.profile(instance.profile_id)?))
    });
    let (gpu, profile) = filled.unwrap_or_else(|| {
        let gpu = gpu.get(gpus);
        (gpu, profile.get(&gpu.profiles))
    });
    (gpu.uuid.clone(), profile.clone())
}
