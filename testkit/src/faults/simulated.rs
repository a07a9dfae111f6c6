//! A simulated machine in a folder: what the driver has, and what an administrator or the hardware does. Without the rest of the
//! tests' kit, since `tests/matrices/kills` has this file too.

use nvml_sim::engine::{Machine, Mode, Model, NewGpu, Placement};
use nvml_sim::holders::Files;
use nvml_sim::state::{self, Store};
use std::path::PathBuf;
use std::sync::Arc;

/// A GPU instance as the driver has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub gpu: u32,
    pub gpu_uuid: String,
    pub gi: u32,
    pub profile_id: u32,
    pub start: u32,
    pub size: u32,
    /// No two that were ever made have the same.
    pub generation: u64,
    /// The UUIDs of its compute instances.
    pub uuids: Vec<String>,
}

/// The folder of a machine.
pub struct Simulated(pub PathBuf);

impl Simulated {
    /// Makes it with so many GPUs in MIG mode, and so many that do not support it.
    pub fn make(&self, model: &str, gpus: u32, without_mig: u32) {
        let new = |name: &str, mode| NewGpu {
            model: Model::find(name).unwrap_or_else(|| panic!("no model {name}")),
            floor_swept: false,
            mode,
        };
        let with_mig = (0..gpus).map(|_| new(model, Mode::On));
        let without = (0..without_mig).map(|_| new("T4", Mode::Off));
        let gpus: Vec<NewGpu> = with_mig.chain(without).collect();
        let machine = Machine::new(&self.0.to_string_lossy(), &gpus);
        state::create(&self.0, &machine).unwrap();
    }

    pub fn engine(&self) -> Arc<Machine> {
        Store::open(&self.0).unwrap().load().unwrap()
    }

    pub fn instances(&self) -> Vec<Instance> {
        let engine = self.engine();
        let mut all = Vec::new();
        for (index, gpu) in (0..).zip(&engine.gpus) {
            for gi in &gpu.gpu_instances {
                let mut devices = gpu.mig_devices();
                devices.retain(|d| d.gi.id == gi.id);
                all.push(Instance {
                    gpu: index,
                    gpu_uuid: gpu.uuid.clone(),
                    gi: gi.id,
                    profile_id: gi.profile_id,
                    start: gi.placement.start,
                    size: gi.placement.size,
                    generation: gi.generation,
                    uuids: devices.iter().map(|d| d.uuid()).collect(),
                });
            }
        }
        all
    }

    /// Does an administrator's work with nvidia-smi.
    #[track_caller]
    pub fn change<T>(&self, change: impl FnOnce(&mut Machine, &Files<'_>) -> T) -> T {
        state::change(&self.0, change).unwrap()
    }

    /// Makes an instance at a place, with or without the compute instance that fills it.
    #[track_caller]
    pub fn admin_creates(&self, gpu: u32, profile: &str, start: u32, with_ci: bool) -> u32 {
        self.change(|machine, holds| {
            let model = machine.gpu(gpu).unwrap().model();
            let profile = model.profiles.iter().find(|p| p.name == profile).unwrap();
            let size = profile.memory_slices;
            let at = Some(Placement { start, size });
            let gi = machine.create_gpu_instance(gpu, profile.id, at, holds);
            let gi = gi.unwrap().id;
            if with_ci {
                let ci = machine.create_compute_instance(gpu, gi, profile.full_ci, None);
                ci.unwrap();
            }
            gi
        })
    }

    #[track_caller]
    pub fn admin_destroys(&self, gpu: u32, gi: u32) {
        self.change(|machine, holds| {
            machine.destroy_whole(gpu, gi, holds).unwrap();
        });
    }

    pub fn reboot(&self) {
        self.change(|machine, _| {
            machine.reboot();
            for gpu in &mut machine.gpus {
                if gpu.model().has_mig() {
                    (gpu.mode, gpu.pending) = (Mode::On, Mode::On);
                }
            }
        });
    }
}
