//! An administrator's work with nvidia-smi.

use nvml_sim::holders::Files;
use nvml_sim::state::Store;
use testkit::prelude::*;

/// Makes a small instance and destroys it again. They leave a place free: who waits for it would find it
/// taken, and nobody tells of an administrator's instance that goes.
pub fn makes_and_destroys(machine: &Path) {
    let store = Store::open(machine).unwrap();
    let mut locked = store.lock().unwrap();
    let before = locked.machine.clone();
    let files = Files {
        dir: store.dir(),
        machine: &before,
    };
    let gpu = locked.machine.gpu(0).unwrap();
    let taken: u32 = gpu.gpu_instances.iter().map(|gi| gi.placement.size).sum();
    if taken > 2 {
        drop(locked);
        return std::thread::sleep(Duration::from_millis(5));
    }
    let profile = locked.machine.gpu(0).unwrap().model().profiles[0].id;
    let made = locked.machine.create_gpu_instance(0, profile, None, &files);
    locked.commit(None, false).unwrap();
    let Ok(instance) = made else {
        return std::thread::sleep(Duration::from_millis(5));
    };
    std::thread::sleep(Duration::from_millis(2));
    let mut locked = store.lock().unwrap();
    let before = locked.machine.clone();
    let files = Files {
        dir: store.dir(),
        machine: &before,
    };
    // Gone already where it lay in the place, and had the id, of one that runmig was destroying.
    let _ = locked.machine.destroy_gpu_instance(0, instance.id, &files);
    locked.commit(None, false).unwrap();
    std::thread::sleep(Duration::from_millis(3));
}
