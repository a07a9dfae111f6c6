//! The library as a client sees it.

use crate::common::{Sim, zeroed};
use nvml_sim::abi::types::*;

pub const ONE_G: u64 = 19;
const TWO_G: u64 = 14;
const THREE_G: u64 = 9;

fn span(start: u32, size: u32) -> Span {
    Span { start, size }
}

#[test]
fn refuses_calls_outside_a_session() {
    let sim = Sim::new("--gpu A30");
    let nvml = sim.load();
    assert_eq!(nvml.ask("nvmlDeviceGetCount_v2", &[], 0_u32), Err(1));
    assert_eq!(nvml.call("nvmlShutdown", &[]), 1);
    assert_eq!(nvml.call("nvmlInit_v2", &[]), 0);
    assert_eq!(nvml.call("nvmlInitWithFlags", &[0]), 0);
    assert_eq!(nvml.call("nvmlShutdown", &[]), 0);
    assert_eq!(nvml.ask("nvmlDeviceGetCount_v2", &[], 0_u32), Ok(1));
    assert_eq!(nvml.call("nvmlShutdown", &[]), 0);
    assert_eq!(nvml.ask("nvmlDeviceGetCount_v2", &[], 0_u32), Err(1));
}

#[test]
fn reports_driver_not_loaded_without_machine() {
    let sim = Sim::new("--gpu A30");
    std::fs::remove_file(sim.dir().join("state.json")).unwrap();
    assert_eq!(sim.load().call("nvmlInit_v2", &[]), 9);
}

#[test]
fn creates_and_destroys_an_instance() {
    let sim = Sim::new("--gpu A100-80GB --count 2");
    let nvml = sim.init();
    let gpu = nvml.gpu(1);
    let gi = nvml.create_gi(gpu, TWO_G).unwrap();
    let info = nvml.gi_info(gi).unwrap();
    assert_eq!((info.id, info.profile_id), (5, 14));
    assert_eq!((info.placement.start, info.placement.size), (4, 2));
    let ci = nvml.create_ci(gi, 1).unwrap();
    let info = nvml.ci_info(ci).unwrap();
    assert_eq!((info.id, info.profile_id, info.placement.size), (0, 1, 2));
    // The device is the parent.
    assert_eq!(info.device.bits(), gpu);

    let mig = nvml.mig_device(gpu, 0).unwrap();
    assert_eq!(nvml.mig_device(gpu, 1), Err(6));
    assert_eq!(nvml.mig_device(gpu, 7), Err(2));
    let name = nvml.ask_text("nvmlDeviceGetName", &[mig]).unwrap();
    assert_eq!(name, "NVIDIA A100-SXM4-80GB MIG 2g.20gb");
    for (call, device, answer) in [
        ("nvmlDeviceGetGpuInstanceId", mig, Ok(5)),
        ("nvmlDeviceGetComputeInstanceId", mig, Ok(0)),
        ("nvmlDeviceIsMigDeviceHandle", mig, Ok(1)),
        ("nvmlDeviceIsMigDeviceHandle", gpu, Ok(0)),
        ("nvmlDeviceGetGpuInstanceId", gpu, Err(2)),
    ] {
        assert_eq!(nvml.ask(call, &[device], 9_u32), answer, "{call}");
    }
    let parent = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle";
    assert_eq!(nvml.ask(parent, &[mig], 0), Ok(gpu));

    let uuid = nvml.ask_text("nvmlDeviceGetUUID", &[mig]).unwrap();
    assert!(uuid.starts_with("MIG-") && uuid.len() == 40, "{uuid}");
    let parent = nvml.ask_text("nvmlDeviceGetUUID", &[gpu]).unwrap();
    assert_eq!(nvml.by_uuid(&uuid), Ok(mig));
    assert_eq!(nvml.by_uuid(&format!("MIG-{parent}/5/0")), Ok(mig));
    assert_eq!(nvml.by_uuid(&parent), Ok(gpu));

    assert_eq!(nvml.call("nvmlGpuInstanceDestroy", &[gi]), 19);
    assert_eq!(nvml.call("nvmlComputeInstanceDestroy", &[ci]), 0);
    assert_eq!(nvml.call("nvmlGpuInstanceDestroy", &[gi]), 0);
    assert_eq!(nvml.by_uuid(&uuid), Err(6));
    let gone = nvml.ask("nvmlDeviceGetGpuInstanceById", &[gpu, 5], 0_u64);
    assert_eq!(gone, Err(6));

    // The UUID comes back, the handle does not.
    let again = nvml.create_gi(gpu, TWO_G).unwrap();
    nvml.create_ci(again, 1).unwrap();
    let again_mig = nvml.mig_device(gpu, 0).unwrap();
    let uuid_of = |device| nvml.ask_text("nvmlDeviceGetUUID", &[device]);
    assert_ne!((again, again_mig), (gi, mig));
    assert_eq!(nvml.call("nvmlGpuInstanceDestroy", &[gi]), 6);
    assert_eq!(nvml.call("nvmlComputeInstanceDestroy", &[ci]), 6);
    let found = [again_mig, mig, 0, gi].map(uuid_of);
    assert_eq!(found, [Ok(uuid), Err(6), Err(2), Err(2)]);
    assert_eq!(nvml.gi_info(gpu).unwrap_err(), 2);
}

#[test]
fn refusals_have_their_codes() {
    let sim = Sim::new("--gpu A100-80GB --gpu A100-80GB");
    sim.run("mig", "--gpu 1 off");
    let nvml = sim.init();
    let (gpu, off) = (nvml.gpu(0), nvml.gpu(1));
    assert_eq!(nvml.create_gi(off, ONE_G), Err(3));
    assert_eq!(nvml.create_gi(gpu, 77), Err(2));
    assert_eq!(nvml.create_gi_at(gpu, ONE_G, span(7, 1)), Err(2));
    assert_eq!(nvml.create_gi_at(gpu, ONE_G, span(0, 2)), Err(2));
    let gi = nvml.create_gi_at(gpu, THREE_G, span(4, 4)).unwrap();
    assert_eq!(nvml.create_gi_at(gpu, ONE_G, span(5, 1)), Err(23));
    nvml.create_gi(gpu, 20).unwrap();
    assert_eq!(nvml.create_gi(gpu, 20), Err(23));
    assert_eq!(nvml.create_ci(gi, 4), Err(3));
    assert_eq!(nvml.create_ci(gi, 99), Err(3));
    nvml.create_ci(gi, 2).unwrap();
    assert_eq!(nvml.create_ci(gi, 0), Err(23));
    for call in ["RemainingCapacity", "PossiblePlacements_v2"] {
        let call = format!("nvmlDeviceGetGpuInstance{call}");
        let mut count = 0_u32;
        let count = &raw mut count as u64;
        assert_eq!(nvml.call(&call, &[gpu, 77, count, count]), 3, "{call}");
    }
    let most = |gpu| nvml.ask("nvmlDeviceGetMaxMigDeviceCount", &[gpu], 9_u32);
    assert_eq!((most(off), most(gpu)), (Ok(0), Ok(7)));
    let third = nvml.ask("nvmlDeviceGetHandleByIndex_v2", &[2], 0_u64);
    assert_eq!(third, Err(2));
    assert_eq!(nvml.call("nvmlDeviceGetCount_v2", &[0]), 2);
    let nowhere = nvml.call("nvmlDeviceCreateGpuInstance", &[gpu, ONE_G, 0]);
    assert_eq!(nowhere, 2);
    assert_eq!(sim.gpu_instances(0).len(), 2);
}

#[test]
fn mig_devices_are_ordered_and_compact() {
    let sim = Sim::new("--gpu A100-80GB");
    let nvml = sim.init();
    let gpu = nvml.gpu(0);
    let high = nvml.create_gi_at(gpu, ONE_G, span(6, 1)).unwrap();
    let low = nvml.create_gi_at(gpu, THREE_G, span(0, 4)).unwrap();
    nvml.create_ci(high, 0).unwrap();
    let first = nvml.create_ci(low, 0).unwrap();
    nvml.create_ci(low, 1).unwrap();
    let names = || -> Vec<String> {
        let devices = (0..7).map_while(|i| nvml.mig_device(gpu, i).ok());
        let name = |mig| nvml.ask_text("nvmlDeviceGetName", &[mig]).unwrap();
        let names = devices.map(name);
        names
            .map(|n| n.split_once("MIG ").unwrap().1.to_string())
            .collect()
    };
    assert_eq!(names(), ["1c.3g.40gb", "2c.3g.40gb", "1g.10gb"]);
    let last = nvml.mig_device(gpu, 2).unwrap();
    assert_eq!(nvml.call("nvmlComputeInstanceDestroy", &[first]), 0);
    assert_eq!(names(), ["2c.3g.40gb", "1g.10gb"]);
    assert_eq!(nvml.ask("nvmlDeviceGetIndex", &[last], 0_u32), Ok(1));
    // The lowest id that is free.
    let again = nvml.create_ci(low, 0).unwrap();
    assert_eq!(nvml.ci_info(again).unwrap().id, 0);
}

#[test]
fn answers_other_client_calls() {
    let sim = Sim::new("--gpu H100");
    let nvml = sim.init();
    let gpu = nvml.gpu(0);
    let version = |call| nvml.ask_text(call, &[]).unwrap();
    assert_eq!(version("nvmlSystemGetDriverVersion"), "580.95.05");
    assert_eq!(version("nvmlSystemGetNVMLVersion"), "13.580.95.05");
    let mut short = [0_u8; 3];
    let args = [gpu, short.as_mut_ptr() as u64, 3];
    assert_eq!(nvml.call("nvmlDeviceGetName", &args), 7);
    let bus = c"00000000:07:00.0".as_ptr() as u64;
    let found = nvml.ask("nvmlDeviceGetHandleByPciBusId_v2", &[bus], 0_u64);
    assert_eq!(found, Ok(gpu));
    assert_eq!(nvml.memory(gpu).total, 81559 << 20);
    let mut fields: [FieldValue; 2] = [zeroed(); 2];
    let args = [gpu, 2, fields.as_mut_ptr() as u64];
    assert_eq!(nvml.call("nvmlDeviceGetFieldValues", &args), 0);
    assert_eq!(fields.map(|f| f.nvml_return), [3, 3]);
    (fields[0].field_id, fields[1].field_id) = (144, 31);
    assert_eq!(nvml.call("nvmlDeviceGetFieldValues", &args), 0);
    assert_eq!(fields.map(|f| f.nvml_return), [0, 3]);
    assert_eq!(nvml.ask("nvmlDeviceGetFanSpeed", &[gpu], 0_u32), Err(3));
    let set = nvml.ask("nvmlEventSetCreate", &[], 0_u64).unwrap();
    assert_eq!(nvml.call("nvmlDeviceRegisterEvents", &[gpu, 8, set]), 0);
    let mut event = [0_u8; size_of::<EventData>()];
    let args = [set, event.as_mut_ptr() as u64, 1];
    assert_eq!(nvml.call("nvmlEventSetWait_v2", &args), 10);
    assert_eq!(nvml.call("nvmlEventSetFree", &[set]), 0);
}
