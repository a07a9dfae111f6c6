//! Holders, faults, deaths inside a call, and many at once.

use std::process::{Child, Stdio};

use super::clients::{Holder, Said};
use super::profiles::A100_80GB_PROFILES;
use super::{created, lines, same_rows};

#[test]
fn keeps_held_instance() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19 -C");
    let holder = Holder::of(&smi.machine, "--gpu 0 --gi 13 --ci 0");
    smi.fails(
        "mig -dci",
        19,
        &[
            "Unable to destroy compute instance ID 0 from GPU 0 GPU instance ID 13: In use by another client",
            "Failed to destroy compute instances: In use by another client",
        ],
    );
    drop(holder);
    smi.ok("mig -dci");
    smi.ok("mig -dgi");
}

#[test]
fn refuses_mig_on_held_gpu() {
    // Published output of a GH200 with a profiler on it.
    let smi = smi_on!("--gpu GH200-96GB --mig on");
    let holder = Holder::of(&smi.machine, "--gpu 0");
    smi.fails(
        "mig -cgi 19",
        19,
        &[
            "Unable to create a GPU instance on GPU 0 using profile 19: In use by another client",
            "Failed to create GPU instances: In use by another client",
        ],
    );
    drop(holder);
    smi.ok("mig -cgi 19");
}

#[test]
fn destroy_stops_half_way() {
    // Reported of real hardware: the compute instance goes, then its GPU
    // instance is in use for a while.
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.ok("mig -cgi 19 -C");
    smi.machine.sim(
        "fault",
        "--call nvmlGpuInstanceDestroy --nth 1 --returns IN_USE",
    );
    smi.ok("mig -dci");
    assert_eq!(smi.run("mig -dgi").code, 19);
    assert_eq!(smi.lines("-L").len(), 1);
    assert_eq!(smi.table("mig -lgi"), ["0 MIG 1g.10gb 19 13 6:1"]);
    smi.ok("mig -dgi");
}

#[test]
fn create_stops_half_way() {
    // A failing -C leaves a GPU instance behind that no -L shows.
    let smi = smi_on!("--gpu A100-80GB --mig on");
    smi.machine.sim(
        "fault",
        "--call nvmlGpuInstanceCreateComputeInstance --nth 1 --returns INSUFFICIENT_RESOURCES",
    );
    assert_eq!(smi.run("mig -cgi 19 -C").code, 23);
    assert_eq!(smi.lines("-L").len(), 1);
    assert_eq!(smi.table("mig -lgi"), ["0 MIG 1g.10gb 19 13 6:1"]);
}

#[test]
fn mode_change_fails_beside_success() {
    // Published output: the call succeeds, the status says that it did not.
    let smi = smi_on!("--gpu H100-80GB --mig off");
    smi.machine.sim(
        "fault",
        "--call nvmlDeviceSetMigMode --nth 1 --status IN_USE",
    );
    let out = smi.run("-mig 1").out;
    let first = lines(&out).into_iter().next().unwrap_or_default();
    assert!(
        first.starts_with("Warning: MIG mode is in pending enable state for GPU 00000000:")
            && first.ends_with(":In use by another client"),
        "{out}"
    );
    smi.fails("mig -lgip", 6, &["No MIG-enabled devices found."]);
}

#[test]
fn client_dies_inside_a_call() {
    for (moment, there) in [("before", false), ("during", true), ("after", true)] {
        let smi = smi_on!("--gpu A100-80GB --mig on");
        smi.machine.sim(
            "fault",
            &format!("--call nvmlDeviceCreateGpuInstance --nth 1 --kill {moment}"),
        );
        assert_eq!(smi.run("mig -cgi 19").code, -1, "killed {moment}");
        let listed = smi.run("mig -lgi");
        assert_eq!(listed.code == 0, there, "killed {moment}: {listed:?}");
        if there {
            smi.ok("mig -cci -gi 13");
            assert_eq!(smi.lines("-L").len(), 2, "killed {moment}");
            smi.ok("mig -dci");
            smi.ok("mig -dgi");
        }
        same_rows(smi.table("mig -lgip"), &A100_80GB_PROFILES);
    }
}

#[test]
fn ten_at_once_get_seven() {
    let smi = smi_on!("--gpu A100-80GB --mig on");
    let racers: Vec<Child> = (0..10)
        .map(|_| {
            let mut command = smi.machine.command(&smi.program);
            command
                .args(["mig", "-cgi", "19"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().expect("nvidia-smi")
        })
        .collect();
    let ends: Vec<Said> = racers
        .into_iter()
        .map(|racer| Said::from(racer.wait_with_output().unwrap()))
        .collect();
    let mut ids: Vec<u32> = ends.iter().flat_map(|said| created(&said.out)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13], "{ends:?}");
    assert_eq!(
        ends.iter().filter(|said| said.code == 23).count(),
        3,
        "{ends:?}"
    );
    assert_eq!(smi.table("mig -lgi").len(), 7);
}
