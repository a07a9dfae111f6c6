//! The memory and the slices of a GPU by their state.

use super::Inventory;
use super::gpu_use::GpuState;
use crate::model::{Gpu, MigMode};
use crate::placement::{GpuUse, Occupancy};
use crate::store::{Entry, WHOLE_GPU};

/// Amounts of one GPU, one for each state of [`GpuParts::STATES`]. Their sum is the GPU's. None where it is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuParts {
    /// The memory in bytes.
    pub memory_bytes: Option<[u64; 5]>,
    /// The memory slices. A GPU outside of MIG mode has none.
    pub memory_slices: [u64; 5],
    /// The compute slices. A GPU outside of MIG mode is one.
    pub compute_slices: Option<[u64; 5]>,
}

const LEASED: usize = 0;
const QUARANTINED: usize = 2;
const FOREIGN: usize = 3;
const FREE: usize = 4;

impl GpuParts {
    /// The states, in the order of the amounts.
    pub const STATES: [&'static str; 5] = ["leased", "idle", "quarantined", "foreign", "free"];
}

impl GpuState {
    /// Returns the state of a GPU outside of MIG mode on which nothing is on record. None if it is not known. A GPU
    /// that takes no lease, by its compute mode or until a reset, counts as foreign.
    pub fn word(&self) -> Option<&'static str> {
        match self.usage {
            GpuUse::Free => Some("free"),
            GpuUse::Foreign { .. } | GpuUse::Prohibited | GpuUse::Mig { pending: true } => {
                Some("foreign")
            }
            GpuUse::Exclusive { .. } | GpuUse::Shared { .. } => Some("leased"),
            GpuUse::Mig { pending: false } | GpuUse::Unknown { .. } => None,
        }
    }
}

impl Inventory {
    /// Returns the parts of a GPU by their state. `total_mib` is the memory that the GPU gives out.
    pub fn parts(&self, gpu: &Gpu, state: &GpuState, total_mib: Option<u64>) -> GpuParts {
        match gpu.mig {
            MigMode::Enabled => self.parts_in_mig(gpu, total_mib),
            MigMode::Disabled | MigMode::Unsupported => self.parts_of_whole(gpu, state, total_mib),
        }
    }

    fn parts_in_mig(&self, gpu: &Gpu, total_mib: Option<u64>) -> GpuParts {
        let room = self.room(gpu);
        let (mut memory, mut slices, mut compute) = ([0; 5], [0; 5], [0; 5]);
        // The hold of an apply has the place of all instances.
        let is_held =
            { self.unleased.iter() }.any(|i| i.is_hold() && *i.resource.gpu_uuid() == gpu.uuid);
        let is_hold =
            |at| is_held && at == WHOLE_GPU && !gpu.instances.iter().any(|i| i.placement == at);
        for occupant in room.occupants.iter().filter(|o| !is_hold(o.at)) {
            let state = self.state_at(gpu, occupant.at);
            let at = GpuParts::STATES.iter().position(|s| *s == state);
            // An instance of a layout is an administrator's.
            let at = at.unwrap_or(FOREIGN);
            slices[at] += u64::from(occupant.at.size);
            if let Some(profile) = gpu.profile(occupant.profile_id) {
                memory[at] += profile.memory_mib << 20;
                compute[at] += u64::from(profile.compute_slices);
            }
        }
        let [all_compute, ..] = Occupancy::limit(gpu);
        fill(&mut slices, u64::from(room.total_slices()));
        fill(&mut compute, u64::from(all_compute));
        GpuParts {
            memory_bytes: total_mib.map(|mib| {
                fill(&mut memory, mib << 20);
                memory
            }),
            memory_slices: slices,
            compute_slices: Some(compute),
        }
    }

    fn parts_of_whole(&self, gpu: &Gpu, state: &GpuState, total_mib: Option<u64>) -> GpuParts {
        let is_quarantined = |entry: &Entry| entry.shown_state() == "quarantined";
        let entries = self.entries();
        let here = { entries.iter() }.filter(|e| *e.instance().resource.gpu_uuid() == gpu.uuid);
        let here: Vec<&Entry> = here.collect();
        let is_stuck = self.is_damaged(gpu, WHOLE_GPU) || here.iter().any(|e| is_quarantined(e));
        let word = match state.word() {
            Some("leased") if is_stuck => QUARANTINED,
            Some("leased") => LEASED,
            Some("free") => FREE,
            Some(_) => FOREIGN,
            None => return GpuParts::default(),
        };
        let mut compute = [0; 5];
        compute[word] = 1;
        let memory = total_mib.map(|mib| mib << 20).and_then(|total| {
            let mut memory = [0; 5];
            match &state.usage {
                GpuUse::Shared { .. } => {
                    let stuck = here.iter().filter(|e| is_quarantined(e));
                    let stuck = stuck.filter_map(|e| e.shown().booked_bytes).sum::<u64>();
                    let unread = self.damaged.iter().filter(|d| d.place.gpu_uuid == gpu.uuid);
                    let unread = unread.filter_map(|d| d.share.as_ref()).map(|(_, mib)| mib);
                    let stuck = stuck + (unread.sum::<u64>() << 20);
                    memory[QUARANTINED] = stuck;
                    memory[LEASED] = (state.booked_mib() << 20).saturating_sub(stuck);
                    memory[FOREIGN] = state.foreign_mib? << 20;
                }
                GpuUse::Foreign { .. } => memory[FOREIGN] = state.foreign_mib? << 20,
                GpuUse::Free => memory[FOREIGN] = state.foreign_mib.unwrap_or_default() << 20,
                _ => memory[word] = total,
            }
            fill(&mut memory, total);
            Some(memory)
        });
        GpuParts {
            memory_bytes: memory,
            memory_slices: [0; 5],
            compute_slices: Some(compute),
        }
    }
}

/// Sets the free part, so that the sum is the total.
fn fill(amounts: &mut [u64; 5], total: u64) {
    let taken: u64 = amounts[..FREE].iter().sum();
    amounts[FREE] = total.saturating_sub(taken);
}
