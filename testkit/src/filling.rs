//! Random instances on a simulated GPU.

use crate::random::Random;
use nvml_sim::engine::{GiProfile, Machine, Mode, Model, Placement, Unheld};

/// Returns the compute instance profile with so many slices, the full one for all.
pub fn part(model: &Model, profile: &GiProfile, slices: u32) -> u32 {
    if slices == profile.compute_slices {
        return profile.full_ci;
    }
    let parts = model.ci_profiles(profile);
    let part = parts.iter().find(|part| part.slices == slices);
    part.expect("a compute instance profile").id
}

/// Fills a GPU at random places, with parts of instances where `whole` is false.
pub fn fill(machine: &mut Machine, gpu: u32, random: &mut Random, whole: bool) {
    let (model, mode) = (
        machine.gpus[gpu as usize].model(),
        machine.gpus[gpu as usize].mode,
    );
    if mode == Mode::Off || !model.has_mig() {
        return;
    }
    for _ in 0..random.below(9) {
        let profile = &model.profiles[random.below(model.profiles.len() as u64) as usize];
        let places: Vec<Placement> = profile.placements().collect();
        let at = Some(random.of(&places));
        let Ok(gi) = machine.create_gpu_instance(gpu, profile.id, at, &Unheld) else {
            continue;
        };
        if !whole && random.one_in(4) {
            for _ in 0..3 {
                let parts = machine.gpus[gpu as usize].ci_profiles_of(&gi);
                let part = parts[random.below(parts.len() as u64) as usize].id;
                let _ = machine.create_compute_instance(gpu, gi.id, part, None);
            }
            continue;
        }
        let mut sizes = vec![profile.compute_slices];
        if !whole && random.one_in(2) {
            sizes = match random.below(3) {
                0 => Vec::new(),
                1 => vec![1; 1 + random.below(u64::from(profile.compute_slices)) as usize],
                _ => vec![2.min(profile.compute_slices); 1],
            };
        }
        for slices in sizes {
            let part = part(model, profile, slices);
            let _ = machine.create_compute_instance(gpu, gi.id, part, None);
        }
    }
}
