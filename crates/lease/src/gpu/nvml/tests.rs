//! Answers of the simulated driver, beside what the simulation knows.

#[path = "../../../../../testkit/src/faults/simulated.rs"]
#[allow(dead_code, unreachable_pub)] // other tests use the rest
mod simulated;

use super::session::Session;
use crate::gpu::{
    DriverError, FUNCTION_NOT_FOUND, GPU_IS_LOST, INSUFFICIENT_SIZE, MemoryLimits, Mig, NOT_FOUND,
    NOT_SUPPORTED, Queries, RESET_REQUIRED,
};
use crate::model::{GpuUuid, MigMode, Placement, SignKind};
use nvml_sim::engine::{Driver, Mode};
use nvml_sim::fault::{self, Outcome, Rule};
use simulated::Simulated;
use std::fs;
use std::path::PathBuf;

/// Makes a machine with a GPU in MIG mode and one without.
pub(crate) fn machine() -> (tempfile::TempDir, Simulated, PathBuf) {
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

/// Any code that answers no question.
const UNKNOWN: u32 = 999;

/// Calls the driver while the first call of a function fails.
fn with_failure<T>(machine: &Simulated, call: &str, code: u32, then: impl Fn() -> T) -> T {
    fault::add(&machine.0, Rule::nth(call, 1, Outcome::Return(code))).unwrap();
    let answer = then();
    fault::clear(&machine.0).unwrap();
    answer
}

fn code<T>(answer: Result<T, DriverError>) -> Option<u32> {
    answer.err().and_then(|e| e.code())
}

#[test]
fn finds_functions_that_the_library_lacks() {
    let (_dir, _machine, library) = machine();
    let missing = |library| Session::new(library, None).missing_functions().unwrap();
    assert_eq!(missing(&library), [""; 0]);
    let (_dir, _machine, older) = machine();
    let mut bytes = fs::read(&older).unwrap();
    let name = b"\0nvmlDeviceGetIndex\0";
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&bytes[from..], name) {
        from += at + name.len() - 1;
        bytes[from - 1] = b'_';
    }
    fs::write(&older, bytes).unwrap();
    assert_eq!(missing(&older), ["nvmlDeviceGetIndex"]);
}

#[test]
fn no_instance_is_an_answer_only_where_mig_is_off() {
    let (_dir, machine, library) = machine();
    let driver = Session::new(&library, None);
    let gpus = driver.snapshot().unwrap().gpus;
    let (gpu, profile) = (&gpus[0].uuid, gpus[0].profiles[0].id);
    let list = || driver.instances_of(gpu, profile);
    let fails = |with| {
        code(with_failure(
            &machine,
            "nvmlDeviceGetGpuInstances",
            with,
            list,
        ))
    };
    assert_eq!(list(), Ok(vec![]));
    let failures = [NOT_SUPPORTED, UNKNOWN];
    assert_eq!(failures.map(fails), failures.map(Some));
    machine.change(|machine, _| {
        let gpu = &mut machine.gpus[0];
        (gpu.mode, gpu.pending) = (Mode::Off, Mode::Off);
    });
    assert_eq!(failures.map(fails), [None, Some(UNKNOWN)]);
    // It would offer the same with MIG on.
    assert_eq!(driver.offered_profiles(gpu).unwrap(), gpus[0].profiles);
}

#[test]
fn profiles_of_a_gone_instance_are_none() {
    let (_dir, machine, library) = machine();
    let id = machine.admin_creates(0, "1g.6gb", 0, true);
    let driver = Session::new(&library, None);
    let gpu = &driver.snapshot().unwrap().gpus[0].uuid;
    let gi = driver.existing_gpu_instance(gpu, id).unwrap();
    let count = || driver.compute_profiles(&gi).map(|all| all.len());
    let call = "nvmlGpuInstanceGetComputeInstanceProfileInfo";
    assert_eq!(count(), Ok(1));
    assert_eq!(with_failure(&machine, call, NOT_FOUND, count), Ok(0));
    let failed = with_failure(&machine, call, UNKNOWN, count);
    assert_eq!(code(failed), Some(UNKNOWN));
}

#[test]
fn list_of_processes_may_outgrow_its_room_once() {
    let (_dir, machine, library) = machine();
    let driver = Session::new(&library, None);
    let gpu = &driver.snapshot().unwrap().gpus[1].uuid;
    let call = "nvmlDeviceGetComputeRunningProcesses_v3";
    let load = || driver.load(gpu);
    let grown = with_failure(&machine, call, INSUFFICIENT_SIZE, load);
    assert_eq!(grown, load());
    let failed = with_failure(&machine, call, UNKNOWN, load);
    assert_eq!(code(failed), Some(UNKNOWN));
    let always = Rule {
        outcome: Some(Outcome::Return(INSUFFICIENT_SIZE)),
        ..Rule::every(call)
    };
    fault::add(&machine.0, always).unwrap();
    let line = load().unwrap_err().to_string();
    assert!(line.ends_with("more of them start all the time"), "{line}");
}

#[test]
fn lost_gpu_is_a_sign_where_its_health_cannot_be_read() {
    let (_dir, machine, library) = machine();
    let driver = Session::new(&library, None);
    let gpu = &driver.snapshot().unwrap().gpus[0].uuid;
    for (code, signs) in [
        (GPU_IS_LOST, vec![(SignKind::Lost, 15)]),
        (RESET_REQUIRED, vec![(SignKind::Lost, 16)]),
        (NOT_SUPPORTED, vec![]),
        (UNKNOWN, vec![]),
    ] {
        let read = || driver.signs(gpu, false).unwrap();
        let read = with_failure(&machine, "nvmlDeviceGetFieldValues", code, read);
        let read: Vec<_> = read.iter().map(|sign| (sign.kind, sign.amount)).collect();
        assert_eq!(read, signs, "{code}");
    }
}

#[test]
fn cgroup_without_limits_is_not_a_driver_without_them() {
    let (dir, machine, library) = machine();
    let driver = Session::new(&library, None);
    let gpu = &driver.snapshot().unwrap().gpus[1].uuid;
    let no_cgroup = dir.path();
    for (branch, answer) in [(580, FUNCTION_NOT_FOUND), (615, NOT_SUPPORTED)] {
        machine.change(|machine, _| machine.driver = Driver::of_branch(branch).unwrap());
        let set = driver.set_memory_limits(gpu, no_cgroup, MemoryLimits::default());
        let read = driver.memory_limits(gpu, no_cgroup.to_owned());
        assert_eq!(
            (code(set), code(read)),
            (Some(answer), Some(answer)),
            "{branch}"
        );
    }
}
