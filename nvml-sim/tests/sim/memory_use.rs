//! Processes use GPU memory, and the compute mode says which of them may.

use crate::common::{Holder, Nvml, Sim, zeroed};
use nvml_sim::abi::types::*;

const MIB: u64 = 1 << 20;

/// Returns total, reserved, free and used MiB.
fn memory(nvml: &Nvml, device: u64) -> [u64; 4] {
    let it = nvml.memory(device);
    [it.total, it.reserved, it.free, it.used].map(|bytes| bytes / MIB)
}

fn refused(sim: &Sim, args: &str) -> String {
    // Bounded, so that a hold that should fail ends the test and not only begins.
    let output = sim.try_run("hold", &format!("{args} --seconds 1"));
    assert!(!output.status.success(), "{args}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn processes_use_memory() {
    let sim = Sim::new("--gpu H100-80GB --mig off");
    let nvml = sim.init();
    let gpu = nvml.gpu(0);
    assert_eq!(memory(&nvml, gpu), [81559, 480, 81079, 0]);
    let first = Holder::new(&sim, "--gpu 0 --memory 3Gi");
    let second = Holder::new(&sim, "--gpu 0");
    assert_eq!(memory(&nvml, gpu), [81559, 480, 77751, 3328]);
    // The first version of the call counts reserved memory as used.
    let old = nvml.ask("nvmlDeviceGetMemoryInfo", &[gpu], zeroed());
    let old: Memory = old.unwrap();
    assert_eq!([old.free / MIB, old.used / MIB], [77751, 3808]);
    let said = refused(&sim, "--gpu 0 --memory 76Gi");
    assert!(said.contains("out of memory: 77751 MiB are free"), "{said}");

    let (mut infos, mut count) = ([0_u64; 6], 2_u32);
    let args = [gpu, &raw mut count as u64, infos.as_mut_ptr() as u64];
    let list = "nvmlDeviceGetComputeRunningProcesses_v3";
    assert_eq!(nvml.call(list, &args), 0);
    let listed = [infos[0] as u32, infos[3] as u32];
    assert_eq!(listed, [first.pid(), second.pid()]);
    assert_eq!([infos[1] / MIB, infos[4] / MIB], [3072, 256]);
    drop(first);
    assert_eq!(memory(&nvml, gpu), [81559, 480, 80823, 256]);
}

#[test]
fn instance_limits_memory() {
    let sim = Sim::new("--gpu A100-80GB");
    let nvml = sim.init();
    let gpu = nvml.gpu(0);
    sim.run("create", "--gpu 0 --profile 1g.10gb");
    let gi = sim.gpu_instances(0)[0];
    let mig = nvml.mig_device(gpu, 0).unwrap();
    let free = memory(&nvml, mig)[2];
    let holder = Holder::new(&sim, &format!("--gpu 0 --gi {gi} --ci 0 --memory 9Gi"));
    assert_eq!(memory(&nvml, mig)[2..], [free - 9216, 9216]);
    assert_eq!(memory(&nvml, gpu)[3], 9216);
    let said = refused(&sim, &format!("--gpu 0 --gi {gi} --ci 0 --memory 1Gi"));
    assert!(said.contains("out of memory"), "{said}");
    // A process of the whole GPU leaves less for the instance.
    drop(holder);
    let _whole = Holder::new(&sim, "--gpu 0 --memory 76Gi");
    let said = refused(&sim, &format!("--gpu 0 --gi {gi} --ci 0 --memory 9Gi"));
    assert!(said.contains("out of memory"), "{said}");
    assert_eq!(memory(&nvml, gpu)[3], 76 << 10);
}

/// Which processes it lets in is in the session `nvml_sim`.
#[test]
fn tells_compute_mode() {
    for (mode, number) in [("default", 0), ("exclusive-process", 3), ("prohibited", 2)] {
        let sim = Sim::new(&format!("--gpu T4-16GB --compute-mode {mode}"));
        let nvml = sim.init();
        let told = nvml.ask("nvmlDeviceGetComputeMode", &[nvml.gpu(0)], 9_u32);
        assert_eq!(told, Ok(number), "{mode}");
    }
}
