//! A trial of a plan: `choose` places the request, and then each moved slice.

use crate::model::{GpuInstance, GpuUuid, Placement, Snapshot};
use crate::placement::occupancy::Slot;
use crate::placement::plan::Constraints;
use crate::placement::plan::{Decision, DefragPlan, Movable, Move, Site};
use crate::placement::several::choose_several;
use crate::request::{Alternative, Slice};

#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub which: usize,
    pub profile: String,
    pub gpu: u32,
    pub gpu_uuid: GpuUuid,
    pub from: Placement,
}

/// The machine, the request and the movable slices of a trial.
pub(crate) struct Simulation<'a> {
    pub snapshot: &'a Snapshot,
    pub reserved: &'a [Slot],
    pub movable: &'a [Movable],
    pub constraints: &'a Constraints<'a>,
    pub request: &'a Alternative,
}

impl Simulation<'_> {
    /// Removes the moved slices, places the request, and places the moved slices again.
    pub(super) fn run(&self, moved: &[&Moved]) -> Option<DefragPlan> {
        let is_moved =
            |gpu: &GpuUuid, at: Placement| moved.iter().any(|m| m.gpu_uuid == *gpu && m.from == at);
        let mut snapshot = self.snapshot.clone();
        for gpu in &mut snapshot.gpus {
            let uuid = gpu.uuid.clone();
            gpu.instances.retain(|i| !is_moved(&uuid, i.placement));
        }
        let mut reserved = self.reserved.to_vec();
        reserved.retain(|r| !is_moved(&r.gpu, r.placement));
        let mut place = |request: &Alternative, constraints: &Constraints<'_>| {
            let found = choose_several(&snapshot, &reserved, request, constraints).ok()?;
            let sites: Vec<Site> = found.iter().map(Site::from).collect();
            let slots: Vec<Slot> = found.iter().map(Decision::slot).collect();
            for slot in slots {
                let instance = GpuInstance {
                    id: u32::MAX,
                    profile_id: slot.profile_id,
                    placement: slot.placement,
                };
                let gpu = snapshot.gpus.iter_mut().find(|g| g.uuid == slot.gpu)?;
                gpu.instances.push(instance);
                reserved.retain(|r| r.gpu != slot.gpu || !r.placement.overlaps(slot.placement));
            }
            Some(sites)
        };
        let sites = place(self.request, self.constraints)?;
        let mut moves = Vec::new();
        for m in moved {
            let again = Alternative {
                slice: Slice::Profile(m.profile.parse().ok()?),
                count: 1,
            };
            let own = Constraints {
                min_compute: 0,
                excluded: &self.movable[m.which].excluded,
                ..*self.constraints
            };
            let to = place(&again, &own)?.pop()?;
            moves.push(Move {
                which: m.which,
                profile: m.profile.clone(),
                from_gpu: m.gpu,
                from: m.from,
                to_gpu: to.gpu_index,
                to: to.placement,
            });
        }
        Some(DefragPlan { sites, moves })
    }
}

/// Returns the given order, and then every other order of few slices, or every exchange of two of many. The
/// order matters where rules exclude GPUs from some of them.
pub(crate) fn orders(given: Vec<&Moved>) -> Vec<Vec<&Moved>> {
    let n = given.len();
    let mut all = vec![given];
    if n <= FEW {
        for first in 0..n {
            // Each order so far continues with every choice for `first`.
            for i in 0..all.len() {
                for other in first + 1..n {
                    let mut order = all[i].clone();
                    order[first..=other].rotate_right(1);
                    all.push(order);
                }
            }
        }
        return all;
    }
    for (a, b) in (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))) {
        let mut order = all[0].clone();
        order.swap(a, b);
        all.push(order);
    }
    all
}

/// So many slices have 120 orders.
const FEW: usize = 5;
