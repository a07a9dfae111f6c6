//! The fate of the machine: its mode, its boots, its GPUs that fall off the bus.

use crate::common::Sim;
use crate::library::ONE_G;
use nvml_sim::state::{self, Store};
use std::process::Command;

#[test]
fn mig_mode_by_architecture() {
    let sim = Sim::new("--gpu A100-80GB --gpu H100 --mig off");
    let nvml = sim.init();
    let mode = |gpu| {
        let (mut current, mut pending) = (9_u32, 9_u32);
        let args = [gpu, &raw mut current as u64, &raw mut pending as u64];
        assert_eq!(nvml.call("nvmlDeviceGetMigMode", &args), 0);
        (current, pending)
    };
    let set = |gpu, mode| nvml.ask("nvmlDeviceSetMigMode", &[gpu, mode], 99_u32);
    let (ampere, hopper) = (nvml.gpu(0), nvml.gpu(1));
    assert_eq!(set(ampere, 1), Ok(16));
    assert_eq!(mode(ampere), (0, 1));
    sim.run("reset", "--gpu 0");
    assert_eq!(mode(ampere), (1, 1));
    assert_eq!(set(hopper, 1), Ok(0));
    assert_eq!(mode(hopper), (1, 1));
    assert_eq!(set(hopper, 2), Err(2));
    nvml.create_gi(hopper, ONE_G).unwrap();
    assert_eq!(set(hopper, 0), Ok(19));
    assert_eq!(mode(hopper), (1, 1));
    // The other forms that are seen in the field.
    let fault = "--call nvmlDeviceSetMigMode";
    sim.run("fault", &format!("{fault} --nth 1 --returns IN_USE"));
    assert_eq!(set(ampere, 0), Err(19));
    sim.run("fault", "--clear");
    sim.run("fault", &format!("{fault} --status IN_USE"));
    assert_eq!(set(ampere, 0), Ok(19));
    assert_eq!(mode(ampere), (1, 1));
}

#[test]
fn lost_gpu_answers_nothing_else() {
    let sim = Sim::new("--gpu A100-80GB --count 2");
    let nvml = sim.init();
    let gpu = nvml.gpu(1);
    sim.run("lose", "--gpu 1");
    assert_eq!(nvml.ask("nvmlDeviceGetCount_v2", &[], 0_u32), Ok(2));
    let lost = nvml.ask("nvmlDeviceGetHandleByIndex_v2", &[1], 0_u64);
    assert_eq!(lost, Err(15));
    assert_eq!(nvml.ask_text("nvmlDeviceGetUUID", &[gpu]), Err(15));
    assert_eq!(nvml.create_gi(gpu, ONE_G), Err(15));
    assert!(nvml.create_gi(nvml.gpu(0), ONE_G).is_ok());
    sim.run("restore", "--gpu 1");
    assert!(nvml.create_gi(gpu, ONE_G).is_ok());
}

/// Changes that follow one another at once, in files of one length: neither a time nor a length tells them apart.
#[test]
fn sees_each_of_many_quick_changes() {
    let sim = Sim::new("--gpu A30");
    let reader = Store::open(sim.dir()).unwrap();
    for bus in 100..400 {
        for bus in [bus, bus + 100] {
            state::change(sim.dir(), |machine, _| machine.gpus[0].pci_bus = bus).unwrap();
        }
        assert_eq!(reader.load().unwrap().gpus[0].pci_bus, bus + 100);
    }
}

/// What reads the machine without a session, as an MPS daemon does, keeps no GPU from its reset.
#[test]
fn sessions_alone_keep_gpus_from_resets() {
    let sim = Sim::new("--gpu A30");
    let program = sim.dir().join("usr/bin/nvidia-smi");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_nvidia-smi"), &program).unwrap();
    let resets = || {
        let mut reset = Command::new(&program);
        let said = reset.args(["--gpu-reset", "-i", "0"]).output().unwrap();
        said.status.success()
    };
    let reader = Store::open(sim.dir()).unwrap();
    reader.load().unwrap();
    assert!(resets());
    let session = sim.init();
    assert!(!resets());
    assert_eq!(session.call("nvmlShutdown", &[]), 0);
    assert!(resets());
}
