//! The level of a GPU, by configuration, machine and driver.

use super::*;
use testkit::refusal::refused;

fn configure(setup: &Setup, levels: &str) {
    setup.configure(&format!("sharing.enforcement = {levels}"));
}

#[track_caller]
fn is_refused(setup: &Setup, line: &str) {
    refused(setup, &asking(setup, "2Gi"), line);
}

/// Returns the level that a share would get.
#[track_caller]
fn level(setup: &Setup, levels: &str) -> Value {
    configure(setup, levels);
    let explained = setup.migctl(&["explain", "--share", "2Gi", "-o", "json"]);
    explained.json()["alternatives"][0]["gpus"][0]["enforcement"].clone()
}

#[test]
fn order_of_configuration_decides() {
    let setup = on(Low::Runc, Keeper::Misc);
    assert_eq!(level(&setup, "[\"driver\", \"mps\"]"), "driver");
    assert_eq!(level(&setup, "[\"mps\", \"driver\"]"), "mps");
    assert_eq!(level(&setup, "[\"none\", \"driver\"]"), "none");

    // All shares of a GPU have one level.
    configure(&setup, "[\"driver\"]");
    let (id, first) = (unique(), asking(&setup, "2Gi"));
    setup.create(&first, &id);
    configure(&setup, "[\"none\"]");
    is_refused(
        &setup,
        "cannot allocate a share of 2Gi: no GPU has room for it (GPU 0: its shares have the level driver); hint: run \
         migctl list to see who shares the GPUs, or set runmig.dev/wait to wait",
    );
    // A share at none has no hook that limits it.
    let bundle = asking(&setup, "2Gi");
    setup.delete(&id);
    setup.create(&bundle, &id);
    assert!(bundle.config()["hooks"]["createRuntime"].is_null());
    assert_eq!(limits(&setup), []);
    setup.ends(&[&id]);
}

#[test]
fn older_driver_has_no_limits() {
    let older = Machine::with(&["--gpu", "L4", "--mig", "off", "--mps"]);
    let setup = Setup::on(Low::Runc, older);
    cgroup2::enter();
    assert_eq!(level(&setup, "[\"driver\", \"mps\"]"), "mps");
    configure(&setup, "[\"driver\"]");
    is_refused(
        &setup,
        "cannot allocate a share of 2Gi: no GPU has room for it (GPU 0: no permitted level can hold the limit there \
         (driver: its driver has no memory limits by cgroup, which came with release 615)); hint: as the administrator, \
         fix one of these causes, or add none to sharing.enforcement: then runmig books the memory, and nothing limits it",
    );
    setup.nothing_is_left();
}

/// No driver limits a MIG instance or its GPU.
#[test]
fn mig_mode_has_no_limits() {
    let machine = Machine::with(&["--gpu", "H100-80GB", "--mig", "on", "--driver", "615"]);
    let setup = Setup::on(Low::Runc, machine);
    cgroup2::enter();
    is_refused(
        &setup,
        "cannot allocate a share of 2Gi: no GPU has room for it (GPU 0: in MIG mode); hint: ask for a slice of a GPU in \
         MIG mode (runmig.dev/slice)",
    );
    setup.nothing_is_left();
}

/// Failure: cgroup v1, or a driver before 615
#[test]
fn refuses_hybrid_cgroups() {
    let setup = Setup::on(Low::Runc, machine(Keeper::Misc));
    if nvml_sim::sys::is_cgroup2(std::path::Path::new(cgroup2::ROOT)) {
        return testkit::skip("this machine has no hybrid cgroups");
    }
    assert_eq!(level(&setup, "[\"driver\", \"mps\"]"), "mps");
    configure(&setup, "[\"driver\"]");
    is_refused(
        &setup,
        "no permitted level can hold the memory limit of a share (driver: /sys/fs/cgroup is not cgroup v2); hint: as the administrator, \
         fix one of these causes, or add none to sharing.enforcement: then runmig books the memory, and nothing limits it",
    );
    // Each level has its reason.
    setup.configure("");
    fs::remove_file(setup.machine.dir().join("usr/bin/nvidia-cuda-mps-control")).unwrap();
    is_refused(
        &setup,
        "no permitted level can hold the memory limit of a share (driver: /sys/fs/cgroup is not cgroup v2; mps: there is \
         no control program {machine}/usr/bin/nvidia-cuda-mps-control); hint: as the administrator, fix one of these causes, or add none to \
         sharing.enforcement: then runmig books the memory, and nothing limits it",
    );
    setup.nothing_is_left();
}
