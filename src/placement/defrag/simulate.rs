//! The result of a plan when it is followed: `choose` places the request and then each moved slice.

use crate::model::{GpuInstance, Placement, Snapshot};
use crate::placement::constraints::Constraints;
use crate::placement::occupancy::Slot;
use crate::placement::plan::{Decision, DefragPlan, Movable, Move, Site};
use crate::placement::several::choose_several;
use crate::request::{Alternative, Slice};

#[derive(Clone, Debug)]
pub struct Moved {
    pub which: usize,
    pub profile: String,
    pub gpu: u32,
    pub gpu_uuid: String,
    pub from: Placement,
}

/// The machine in which the moves are made.
pub struct Simulation<'a> {
    pub snapshot: &'a Snapshot,
    pub reserved: &'a [Slot],
    pub movable: &'a [Movable],
    pub constraints: &'a Constraints<'a>,
    pub request: &'a Alternative,
}

impl Simulation<'_> {
    /// Takes them down, lets the request in, and lets them come again.
    pub fn play(&self, moved: &[&Moved]) -> Option<DefragPlan> {
        let evicted =
            |gpu: &str, at: Placement| moved.iter().any(|m| m.gpu_uuid == gpu && m.from == at);
        let mut snapshot = self.snapshot.clone();
        for gpu in &mut snapshot.gpus {
            let uuid = gpu.uuid.clone();
            gpu.instances.retain(|i| !evicted(&uuid, i.placement));
        }
        let mut reserved = self.reserved.to_vec();
        reserved.retain(|r| !evicted(&r.gpu, r.placement));
        let mut come = |request: &Alternative, constraints: &Constraints<'_>| {
            let found = choose_several(&snapshot, &reserved, request, constraints).ok()?;
            let sites: Vec<Site> = found.iter().map(Site::from).collect();
            let places: Vec<Slot> = found.iter().map(Decision::slot).collect();
            for place in places {
                let instance = GpuInstance {
                    id: u32::MAX,
                    profile_id: place.profile_id,
                    placement: place.placement,
                };
                let gpu = snapshot.gpus.iter_mut().find(|g| g.uuid == place.gpu)?;
                gpu.instances.push(instance);
                reserved.retain(|r| r.gpu != place.gpu || !r.placement.overlaps(place.placement));
            }
            Some(sites)
        };
        let sites = come(self.request, self.constraints)?;
        let mut moves = Vec::new();
        for m in moved {
            let again = Alternative {
                slice: Slice::Profile(m.profile.parse().ok()?),
                count: 1,
            };
            let as_it_may = Constraints {
                min_compute: 0,
                excluded: &self.movable[m.which].excluded,
                ..*self.constraints
            };
            let to = come(&again, &as_it_may)?.pop()?;
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

/// Returns the order given, then every other if they are few: rules make it matter which of two
/// comes first. With many, it returns the orders after an exchange of two.
pub fn orders(given: Vec<&Moved>) -> Vec<Vec<&Moved>> {
    let n = given.len();
    let mut all = vec![given];
    if n <= FEW {
        for first in 0..n {
            // All that agree before `first` are there: each of them goes on in every way.
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

/// 120 orders.
const FEW: usize = 5;
