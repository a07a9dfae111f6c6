//! An administrator's work with nvidia-smi.

use nvml_sim::engine::Machine;
use nvml_sim::holders::Files;
use nvml_sim::state;
use testkit::prelude::*;

/// Makes a small instance and destroys it again. They leave a place free: who waits for it would find it
/// taken, and nobody tells of an administrator's instance that goes.
pub fn makes_and_destroys(machine: &Path) {
    let made = state::change(machine, |machine, files| {
        let gpu = machine.gpu(0).unwrap();
        let taken: u32 = gpu.gpu_instances.iter().map(|gi| gi.placement.size).sum();
        let profile = gpu.model().profiles[0].id;
        match taken > 2 {
            true => None,
            false => machine.create_gpu_instance(0, profile, None, files).ok(),
        }
    });
    let Some(instance) = made.unwrap() else {
        return std::thread::sleep(Duration::from_millis(5));
    };
    std::thread::sleep(Duration::from_millis(2));
    // Gone already where it lay in the place, and had the id, of one that runmig was destroying.
    let destroys = |machine: &mut Machine, files: &Files<'_>| {
        let _ = machine.destroy_gpu_instance(0, instance.id, files);
    };
    state::change(machine, destroys).unwrap();
    std::thread::sleep(Duration::from_millis(3));
}
