//! Processes of CUDA in NVML's lists, and the GPUs that a process may use. The rows are those of
//! sharing.md, "Memory of a GPU", measured on an H100 with driver 580.

mod common;

use std::fs;

use common::{Client, Daemon, Machine, h100};

const COMPUTING: &str = "nvmlDeviceGetComputeRunningProcesses_v3";
const MPS_CLIENTS: &str = "nvmlDeviceGetMPSComputeRunningProcesses_v3";

/// The first list has "MPS servers, MPS clients and plain CUDA processes", the second "the MPS
/// clients alone"; "NVML lists it with 66".
#[test]
fn lists_processes_by_kind() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    assert_eq!(machine.processes(COMPUTING), []);
    let (mut client, mut plain) = (daemon.client(), machine.plain_client());
    assert_eq!(client.ask("alloc 1024"), "ok");
    assert_eq!(plain.ask("alloc 100"), "ok");
    let mut all = vec![
        (daemon.server(), 66),
        (client.pid(), 1540),
        (plain.pid(), 616),
    ];
    all.sort_unstable();
    assert_eq!(machine.processes(COMPUTING), all);
    assert_eq!(machine.processes(MPS_CLIENTS), [(client.pid(), 1540)]);
    assert_eq!(plain.free(), 81079 - 72 - 1540 - 616);
    client.kill();
    assert_eq!(machine.processes(MPS_CLIENTS), []);
    assert_eq!(plain.free(), 81079 - 72 - 616);
}

/// "no GPU memory was left after" the end of a daemon.
#[test]
fn end_of_daemon_frees_memory() {
    let machine = h100();
    let mut daemon = Daemon::start(&machine, "-M");
    let mut client = daemon.client();
    assert_eq!(client.ask("alloc 1024"), "ok");
    let mut server = common::wait_handle(daemon.server());
    daemon.end(libc::SIGKILL);
    client.kill();
    server.wait();
    assert_eq!(machine.processes(COMPUTING), []);
}

/// "Pids are the host's, also for containers with a pid namespace".
#[test]
fn lists_host_pids_of_namespace() {
    let machine = h100();
    let daemon = Daemon::start(&machine, "-M").limited("4G");
    let program = "mount --bind /proc \"$0/host-proc\" && exec unshare --pid --fork --kill-child \
                   --mount-proc \"$0/usr/bin/cuda-client\" -";
    let client = |pipes: &std::path::Path| {
        let mut command = std::process::Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", program])
            .arg(machine.dir());
        let of_client = machine.client_program(pipes);
        command.envs(
            of_client
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        Client::start(&mut command)
    };
    let (mut inside, mut plain) = (client(&daemon.pipes), client("/nonexistent".as_ref()));
    assert_eq!(inside.ask("alloc 100"), "ok");
    assert_eq!(plain.ask("alloc 200"), "ok");
    let computing = machine.processes(COMPUTING);
    let mps = machine.processes(MPS_CLIENTS);
    assert_eq!(mps.iter().map(|p| p.1).collect::<Vec<_>>(), [616]);
    assert_eq!(computing.len(), 3, "{computing:?}");
    for (pid, mib) in computing {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        let expected = if mib == 66 {
            "nvidia-cuda-mps"
        } else {
            "cuda-client"
        };
        assert_eq!(name.trim_end(), expected);
    }
}

/// Compute modes as nvml-sim's holders have them: an MPS server is the one process.
#[test]
fn obeys_compute_mode() {
    let unavailable = "error CUDA_ERROR_DEVICE_UNAVAILABLE";
    let machine = Machine::new("--gpu H100-80GB --mig off --compute-mode exclusive-process");
    let daemon = Daemon::start(&machine, "-M");
    let (mut one, mut other) = (daemon.client(), daemon.client());
    assert_eq!(one.ask("sync"), "ok");
    assert_eq!(other.ask("sync"), "ok");
    assert_eq!(machine.plain_client().answer(), unavailable);
    let machine = Machine::new("--gpu H100-80GB --mig off --compute-mode prohibited");
    assert_eq!(machine.plain_client().answer(), unavailable);
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

/// `CUDA_VISIBLE_DEVICES` by index and UUID. A GPU without a node has no index.
#[test]
fn chooses_visible_devices() {
    let machine = Machine::new("--gpu L4-24GB --gpu H100-80GB --mig off");
    let (l4, h100) = ("total 22522 free 22272", "total 81079 free 80563");
    let info = |variable: &str| {
        let mut program = machine.client_program("/nonexistent".as_ref());
        program.env("CUDA_VISIBLE_DEVICES", variable);
        Client::start(&mut program).ask("info")
    };
    assert_eq!(machine.plain_client().ask("info"), l4);
    assert_eq!(info("1"), h100);
    assert_eq!(info(&machine.gpu_uuid(1)), h100);
    assert_eq!(info("2"), "error CUDA_ERROR_NO_DEVICE");
    fs::remove_file(machine.dir().join("dev/nvidia0")).unwrap();
    assert_eq!(machine.plain_client().ask("info"), h100);
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

/// Without `--mps` a machine has neither program nor library.
#[test]
fn installs_mps_on_request() {
    let machine = h100();
    let program = machine.dir().join("usr/bin/nvidia-cuda-mps-control");
    assert!(program.exists() && machine.dir().join("lib/libcuda.so.1").exists());
    assert!(machine.dir().join("host-proc").is_dir());
    let plain = machine.dir().join("plain");
    let made = common::nvml_sim()
        .arg("new")
        .arg(&plain)
        .args(["--gpu", "L4"])
        .output()
        .unwrap();
    assert!(made.status.success());
    for name in ["usr", "lib/libcuda.so.1", "host-proc"] {
        assert!(!plain.join(name).exists(), "{name}");
    }
}
