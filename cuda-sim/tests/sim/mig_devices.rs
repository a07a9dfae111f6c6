//! MIG devices: the documented choice of one, and what is inferred of limits in it. Nothing here was measured.

use std::process::Command;

use crate::common::{Daemon, Machine};

/// The memory of a 3g.40gb and of a 1g.10gb of an H100, and of a context, in MiB.
const LARGE: u64 = 40_448;
const SMALL: u64 = 9_984;
const CONTEXT: u64 = 516;

/// Returns an H100 with a large and a small MIG device, and their UUIDs.
fn machine() -> (Machine, [String; 2]) {
    let machine = Machine::new("--gpu H100-80GB --mig on");
    let uuids = ["3g.40gb", "1g.10gb"].map(|profile| {
        let said = machine.sim("create", &format!("--gpu 0 --profile {profile}"));
        let uuid = said.split_whitespace().last().unwrap();
        assert!(uuid.starts_with("MIG-"), "{said}");
        uuid.to_owned()
    });
    (machine, uuids)
}

fn plain(machine: &Machine) -> Command {
    machine.client_program(std::path::Path::new("/nonexistent"))
}

fn info(command: &mut Command) -> String {
    let said = command.arg("info").output().unwrap().stdout;
    String::from_utf8(said).unwrap().trim_end().to_owned()
}

#[test]
fn process_uses_one_mig_device() {
    let (machine, [large, small]) = machine();
    let seen = |memory: u64| format!("total {memory} free {}", memory - CONTEXT);
    for (uuid, memory) in [(&large, LARGE), (&small, SMALL)] {
        let visible = ("CUDA_VISIBLE_DEVICES", uuid);
        assert_eq!(info(plain(&machine).envs([visible])), seen(memory));
    }
    // Without the variable it is one of them.
    let first = info(&mut plain(&machine));
    assert!([seen(LARGE), seen(SMALL)].contains(&first), "{first}");
}

#[test]
fn needs_capability_nodes_of_device() {
    let (machine, [large, small]) = machine();
    let minors = machine.dir().join("proc/driver/nvidia-caps/mig-minors");
    let minors = std::fs::read_to_string(minors).unwrap();
    let node = |name: &str| {
        let mut lines = minors.lines().filter_map(|line| line.split_once(' '));
        let (_, minor) = lines.find(|(known, _)| *known == name).unwrap();
        let node = format!("dev/nvidia-caps/nvidia-cap{minor}");
        machine.dir().join(node)
    };
    let store = nvml_sim::state::Store::open(machine.dir()).unwrap();
    let known = store.load().unwrap();
    let devices = known.gpus[0].mig_devices();
    let of_large = devices.iter().find(|d| d.uuid() == large).unwrap();
    std::fs::remove_file(node(&format!("gpu0/gi{}/access", of_large.gi.id))).unwrap();
    let with = |uuid: &String| info(plain(&machine).env("CUDA_VISIBLE_DEVICES", uuid));
    assert_eq!(with(&large), "error CUDA_ERROR_NO_DEVICE");
    assert!(with(&small).starts_with("total "));
}

/// The limit of a daemon on a MIG device shows in the free memory, and the size of the device in the total.
#[test]
fn daemon_serves_its_mig_device() {
    let (machine, [large, _]) = machine();
    let pipes = machine.dir().join("pipes");
    let visible = [("CUDA_VISIBLE_DEVICES", large.as_str())];
    let daemon = Daemon::start_in(&machine, &pipes, "-M", &visible).limited("4G");
    let mut client = daemon.client();
    let info = format!("total {LARGE} free {}", 4096 - CONTEXT);
    assert_eq!(client.ask("info"), info);
    assert_eq!(client.ask("alloc 4000"), "error CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(client.ask("alloc 3000"), "ok");
}
