//! Answers of the simulated driver, beside what the simulation knows.

#[path = "../../../../../testkit/src/faults/simulated.rs"]
#[allow(dead_code, unreachable_pub)] // other tests use the rest
mod simulated;

use super::session::Session;
use crate::gpu::{Mig, Queries};
use crate::model::{GpuUuid, MigMode, Placement};
use simulated::Simulated;
use std::fs;
use std::path::PathBuf;

/// Makes a machine with a GPU in MIG mode and one without.
fn machine() -> (tempfile::TempDir, Simulated, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let beside = std::env::current_exe().unwrap();
    let library = dir.path().join("lib/libnvidia-ml.so.1");
    let built = beside.with_file_name("libnvml_sim.so");
    fs::create_dir(dir.path().join("lib")).unwrap();
    fs::copy(built, &library).unwrap();
    let machine = Simulated(dir.path().to_owned());
    machine.make("A30-24GB", 1, 1);
    (dir, machine, library)
}

#[test]
fn tells_what_it_made_as_the_driver_has_it() {
    let (_dir, machine, library) = machine();
    let driver = Session::new(&library, None);
    let gpus = driver.snapshot().unwrap().gpus;
    assert_eq!(
        [gpus[0].mig, gpus[1].mig],
        [MigMode::Enabled, MigMode::Unsupported]
    );
    let gpu = &gpus[0].uuid;
    let named = |name: &str| gpus[0].profiles.iter().find(|p| p.name == name).unwrap();
    let at = Placement { start: 2, size: 2 };
    let gi = driver
        .create_gpu_instance(gpu, named("2g.12gb"), at)
        .unwrap();
    let parts = [1, 1].map(|slices| driver.create_part(gpu, gi, slices).unwrap());
    let whole = named("1g.6gb");
    let at = Placement { start: 0, size: 1 };
    let other = driver.create_gpu_instance(gpu, whole, at).unwrap();
    let filling = driver.create_compute_instance(gpu, other).unwrap();

    let made = machine.instances();
    let shown: Vec<_> = made
        .iter()
        .map(|i| (i.gi, i.profile_id, i.start, i.size, i.uuids.len()))
        .collect();
    let wanted = [
        (gi, named("2g.12gb").id, 2, 2, 2),
        (other, whole.id, 0, 1, 1),
    ];
    assert_eq!(shown, wanted);
    let uuids = parts.map(|ci| driver.mig_uuid(gpu, gi, ci).unwrap());
    assert_eq!(uuids.as_slice(), made[0].uuids);
    assert_eq!(
        driver.mig_uuid(gpu, other, filling).unwrap(),
        made[1].uuids[0]
    );

    let detailed = driver.detailed_gpus().unwrap();
    let listed = &detailed[0].instances;
    let slices = |id| {
        listed
            .iter()
            .find(|i| i.id == id)
            .map(|i| i.compute_instances.iter().map(|ci| ci.slices).collect())
    };
    assert_eq!([gi, other].map(slices), [Some(vec![1, 1]), Some(vec![1])]);
    assert_eq!(
        driver.instances_of(gpu, whole.id).unwrap(),
        listed
            .iter()
            .filter(|i| i.id == other)
            .cloned()
            .collect::<Vec<_>>()
    );
    assert_eq!(driver.free_instances(gpu, whole.id).unwrap(), 1);
    let engine = machine.engine();
    assert_eq!(
        detailed[1].device_id,
        engine.gpus[1].model().pci_device_id()
    );
    assert_eq!(
        driver.load(&gpus[1].uuid).unwrap().memory_mib,
        Some(engine.gpus[1].model().memory_mb - engine.gpus[1].model().reserved_mb)
    );

    driver.destroy_compute_instance(gpu, gi, parts[0]).unwrap();
    assert_eq!(machine.instances()[0].uuids, uuids[1..]);
    driver.destroy_compute_instance(gpu, gi, parts[1]).unwrap();
    driver.destroy_gpu_instance(gpu, gi).unwrap();
    assert_eq!(machine.instances(), made[1..]);
    // What is gone needs no destroy.
    driver.destroy_gpu_instance(gpu, gi).unwrap();
    driver.destroy_compute_instance(gpu, gi, parts[1]).unwrap();
    assert!(driver.device(&GpuUuid::from("GPU-0")).is_err());
}

#[test]
fn sees_a_profile_that_changed() {
    let (_dir, _machine, library) = machine();
    let driver = Session::new(&library, None);
    let gpu = driver.snapshot().unwrap().gpus[0].uuid.clone();
    let device = driver.device(&gpu).unwrap();
    let offers = driver.read_geometry(&device, &gpu).unwrap().0;
    for mut offer in offers {
        assert!(driver.still_has(&device, &gpu, &offer));
        offer.profile.memory_mib *= 2;
        assert!(!driver.still_has(&device, &gpu, &offer));
    }
}
