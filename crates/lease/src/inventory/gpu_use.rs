//! The use of a GPU outside of slices: by the records, by the driver's answers, and by the processes on it.

use super::Inventory;
use super::around::Owners;
use crate::gpu::Queries;
use crate::model::{ComputeMode, Gpu, GpuProcess, GpuUuid, Level, MigMode};
use crate::mps::Home;
use crate::placement::{GpuUse, Occupancy};
use crate::store::{Held, Instance, Lease, LeaseState, Resource, WHOLE_GPU};

/// The use of a GPU at one moment.
#[derive(Debug, Clone)]
pub struct GpuState {
    /// The use.
    pub usage: GpuUse,
    /// The memory that the GPU gives out, in MiB, if it is known.
    pub memory_mib: Option<u64>,
    /// The memory of processes without a lease, in MiB. None if it is not known.
    pub foreign_mib: Option<u64>,
    /// The compute mode, if the driver was asked.
    pub compute_mode: Option<ComputeMode>,
    /// Why the driver did not tell the rest, although it can.
    pub error: Option<String>,
}

impl GpuState {
    fn of(usage: GpuUse, memory_mib: Option<u64>) -> GpuState {
        GpuState {
            usage,
            memory_mib,
            foreign_mib: None,
            compute_mode: None,
            error: None,
        }
    }

    /// Returns the memory that shares have booked, in MiB.
    pub fn booked_mib(&self) -> u64 {
        match self.usage {
            GpuUse::Shared { booked_mib, .. } => booked_mib,
            _ => 0,
        }
    }
}

impl Inventory {
    /// Returns the use of a GPU. The driver is asked only about a GPU outside of MIG mode that nobody holds
    /// whole.
    pub fn use_of(&self, driver: &impl Queries, gpu: &Gpu) -> GpuState {
        let is_on = gpu.mig == MigMode::Enabled;
        if is_on || gpu.mig_pending == Some(MigMode::Enabled) {
            return GpuState::of(GpuUse::Mig { pending: !is_on }, None);
        }
        let shared = self.shares_on(&gpu.uuid);
        let on_record = self.instances().find_map(|i| match &i.resource {
            Resource::Gpu(whole) if whole.gpu_uuid == gpu.uuid => whole.known_mib(),
            _ => None,
        });
        if shared.is_none()
            && let Some(holder) = self.holder_on(&gpu.uuid)
        {
            return GpuState::of(GpuUse::Exclusive { holder }, on_record);
        }
        if self.unread.is_some() {
            let why = "runmig cannot read its ledger".to_owned();
            return GpuState::of(GpuUse::Unknown { why }, None);
        }
        let load = match driver.load(&gpu.uuid) {
            Ok(load) => load,
            Err(e) => {
                let why = e.to_string();
                return GpuState {
                    error: (!e.is_not_supported()).then(|| why.clone()),
                    ..GpuState::of(shared.unwrap_or(GpuUse::Unknown { why }), on_record)
                };
            }
        };
        let owners = Owners::new();
        let daemons = self.daemon_cgroups(&gpu.uuid);
        let leases: Vec<&Lease> = self.leases_at(&gpu.uuid).map(|h| &*h.lease).collect();
        // A process of which nothing can be found out counts as one without a lease.
        let is_foreign = |p: &&GpuProcess| {
            !owners.has_ended(p.pid)
                && !owners.is_in(p.pid, &daemons)
                && !leases.iter().any(|lease| owners.is_of(p.pid, lease))
        };
        let computing: Vec<&GpuProcess> = load.processes.iter().filter(is_foreign).collect();
        let drawing = load.graphics.iter().filter(is_foreign);
        let foreign_mib = memory_of(computing.iter().copied().chain(drawing));
        let pids: Vec<u32> = computing.iter().map(|p| p.pid).collect();
        let usage = match shared {
            Some(shared) => shared,
            None if load.compute_mode == ComputeMode::Prohibited => GpuUse::Prohibited,
            None if pids.is_empty() => GpuUse::Free,
            None => GpuUse::Foreign { pids },
        };
        GpuState {
            foreign_mib,
            compute_mode: Some(load.compute_mode),
            ..GpuState::of(usage, load.memory_mib)
        }
    }

    /// Returns the leases that share a GPU at a level, and could take one more beside them.
    pub(crate) fn sharers(&self, gpu: &GpuUuid, level: Level) -> impl Iterator<Item = &Held> {
        self.leases.iter().filter(move |held| {
            matches!(&held.instance.resource, Resource::Gpu(on) if on.gpu_uuid == *gpu)
                && held.lease.level() == Some(level)
                && held.lease.state != LeaseState::Releasing
        })
    }

    /// Returns the use of a GPU by shares, if all records on it are of shares at one level.
    fn shares_on(&self, gpu: &GpuUuid) -> Option<GpuUse> {
        let (mut holders, mut booked_mib, mut levels) = (Vec::new(), 0, Vec::new());
        for held in self.leases_at(gpu) {
            let share = { held.lease.share() }.filter(|_| held.instance.slice().is_none())?;
            levels.push(share.enforcement.level());
            holders.push(held.lease.holder.shown());
            booked_mib += share.booked_mib;
        }
        let level = *levels.first()?;
        let all_share =
            levels.iter().all(|l| *l == level) && self.without_lease_at(gpu).next().is_none();
        all_share.then_some(GpuUse::Shared {
            holders,
            booked_mib,
            level,
        })
    }

    /// Returns the cgroups of all MPS daemons on a GPU.
    fn daemon_cgroups(&self, gpu: &GpuUuid) -> Vec<String> {
        let on_record = self.leases_at(gpu).filter(|h| h.lease.daemon().is_some());
        { on_record.map(|h| Home::cgroup_path_of(&h.lease.id)) }.collect()
    }

    /// Returns the holder of a record on a GPU, whatever the record's kind; none without a record. The name is
    /// none if no container has it.
    fn holder_on(&self, gpu: &GpuUuid) -> Option<Option<String>> {
        let holder = { self.leases_at(gpu).next() }.map(|held| held.lease.holder.shown());
        (holder.is_some() || self.without_lease_at(gpu).next().is_some()).then_some(holder)
    }
}

/// Returns the memory of processes, in MiB, rounded up. None if the driver does not tell one's.
fn memory_of<'a>(processes: impl Iterator<Item = &'a GpuProcess>) -> Option<u64> {
    let bytes: Option<u64> = processes.map(|p| p.used_bytes).sum();
    bytes.map(|bytes| bytes.div_ceil(1 << 20))
}

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
        let is_held = self.without_lease_at(&gpu.uuid).any(Instance::is_hold);
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
        let mut stuck = self.entries();
        stuck.retain(|entry| {
            let is_here = *entry.instance().resource.gpu_uuid() == gpu.uuid;
            is_here && entry.shown_state() == "quarantined"
        });
        let word = match state.word() {
            Some("leased") if !stuck.is_empty() => QUARANTINED,
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
                    let stuck = stuck.iter().filter_map(|e| e.shown().booked_bytes).sum();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_gpu_without_mig_are_its_memory() {
        let gpu = Gpu {
            mig: MigMode::Disabled,
            ..Gpu::default()
        };
        let foreign = || GpuUse::Foreign { pids: vec![7] };
        let held = || GpuUse::Exclusive { holder: None };
        for (usage, foreign_mib, memory) in rows! {
            GpuUse::Free, None => Some([0, 0, 0, 0, 9]);
            GpuUse::Free, Some(2) => Some([0, 0, 0, 2, 7]);
            foreign(), Some(2) => Some([0, 0, 0, 2, 7]);
            foreign(), None => None;
            GpuUse::Prohibited, Some(2) => Some([0, 0, 0, 9, 0]);
            held(), Some(2) => Some([9, 0, 0, 0, 0]);
        } {
            let state = GpuState {
                foreign_mib,
                ..GpuState::of(usage, None)
            };
            let parts = Inventory::default().parts(&gpu, &state, Some(9));
            let memory = memory.map(|parts| parts.map(|mib: u64| mib << 20));
            assert_eq!(parts.memory_bytes, memory, "{state:?}");
        }
    }
}
