//! Processes of CUDA in NVML's lists, and the GPUs that a process may use: "Memory of a GPU", with driver 580.

use std::fs;

use crate::common::{Client, Daemon, h100};

const COMPUTING: &str = "nvmlDeviceGetComputeRunningProcesses_v3";
const MPS_CLIENTS: &str = "nvmlDeviceGetMPSComputeRunningProcesses_v3";

/// The first list has "MPS servers, MPS clients and plain CUDA processes", the second "the MPS
/// clients alone"; "NVML lists it with 66".
#[test]
fn lists_processes_by_kind() {
    let machine = h100();
    let daemon = Daemon::start(&machine).limited("4G");
    assert_eq!(machine.processes(COMPUTING), []);
    let (mut client, mut plain) = (daemon.client(), machine.plain_client());
    assert_eq!(client.ask("alloc 1024"), "ok");
    assert_eq!(plain.ask("alloc 100"), "ok");
    let (server, of_client) = ((daemon.server(), 66), (client.pid(), 1540));
    let mut all = [server, of_client, (plain.pid(), 616)];
    all.sort_unstable();
    assert_eq!(machine.processes(COMPUTING), all);
    assert_eq!(machine.processes(MPS_CLIENTS), [of_client]);
    assert_eq!(plain.free(), 81079 - 72 - 1540 - 616);
    client.kill();
    assert_eq!(machine.processes(MPS_CLIENTS), []);
    assert_eq!(plain.free(), 81079 - 72 - 616);
}

/// The kernel decides by the nodes which GPUs there are.
#[test]
fn needs_device_nodes() {
    let rows = [
        ("nvidia0", "error CUDA_ERROR_NO_DEVICE"),
        ("nvidiactl", "error CUDA_ERROR_NO_DEVICE"),
        ("nvidia-uvm", "error CUDA_ERROR_UNKNOWN"),
    ];
    for (node, answer) in rows {
        let machine = h100();
        fs::remove_file(machine.dir().join("dev").join(node)).unwrap();
        assert_eq!(machine.plain_client().answer(), answer, "{node}");
    }
}

/// A plain process that may not change the machine computes all the same, and is in no list.
#[test]
fn runs_without_write_access() {
    use std::os::unix::process::CommandExt;
    let machine = h100();
    let mut program = machine.client_program("/nonexistent".as_ref());
    let mut client = Client::start(program.uid(1000));
    assert_eq!(client.ask("alloc 1024"), "ok");
    assert_eq!(client.free(), 81079 - 516 - 1024);
    assert_eq!(client.ask("alloc 80000"), "error CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(machine.processes(COMPUTING), []);
}
