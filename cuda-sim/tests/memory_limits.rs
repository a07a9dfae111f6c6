//! Clients under memory limits by cgroup: sharing.md, "Limits by cgroup".

mod common;

use std::path::Path;
use std::process::Command;

use common::cgroups::{Cgroup, enable_dmem, hierarchy};
use common::{Client, Daemon, Machine, Nvml};

const MIB: u64 = 1 << 20;
const NO_MEMORY: &str = "error CUDA_ERROR_OUT_OF_MEMORY";
/// Free MiB of an H100 without processes, and the MiB of a context.
const WHOLE: u64 = 81079;
const CONTEXT: u64 = 516;

fn misc() -> Machine {
    Machine::new("--gpu H100-80GB --mig off --driver 615")
}

fn dmem() -> Machine {
    let machine = Machine::new("--gpu H100-80GB --mig off --driver 615 --limits dmem");
    enable_dmem(&machine, &[&hierarchy()]);
    machine
}

/// Sets a hard limit in MiB.
fn limit(machine: &Machine, cgroup: &Path, mib: u64) {
    let nvml = Nvml::open(machine);
    assert_eq!(nvml.set_limits(nvml.gpu(), cgroup, [0, mib * MIB]), 0);
}

/// Returns the MiB that a cgroup uses.
fn used(machine: &Machine, cgroup: &Path) -> u64 {
    let nvml = Nvml::open(machine);
    nvml.limits(nvml.gpu(), cgroup).unwrap()[2] / MIB
}

/// "`cuMemGetInfo` reports the limit as total and the rest under it as free".
#[test]
fn shows_limit_as_total() {
    for machine in [misc(), dmem()] {
        let cgroup = Cgroup::new();
        limit(&machine, &cgroup, 30_000);
        let mut client = cgroup.client(&machine);
        let free = 30_000 - CONTEXT;
        assert_eq!(client.ask("info"), format!("total 30000 free {free}"));
        assert_eq!(client.ask(&format!("alloc {}", free + 1)), NO_MEMORY);
        assert_eq!(client.ask(&format!("alloc {free}")), "ok");
        assert_eq!(client.ask("info"), "total 30000 free 0");
        assert_eq!(client.ask("alloc 1"), NO_MEMORY);
        assert_eq!(used(&machine, &cgroup), 30_000);
        assert_eq!(client.ask("free"), "ok");
        assert_eq!(client.free(), free);
        // A limit above the size of the GPU changes nothing.
        limit(&machine, &cgroup, 100_000);
        let whole = WHOLE - CONTEXT;
        assert_eq!(client.ask("info"), format!("total {WHOLE} free {whole}"));
        drop(client);
    }
}

/// The context counts inside the limit.
#[test]
fn refuses_context_above_limit() {
    for machine in [misc(), dmem()] {
        let cgroup = Cgroup::new();
        limit(&machine, &cgroup, CONTEXT - 1);
        assert_eq!(cgroup.client(&machine).ask("info"), NO_MEMORY);
        limit(&machine, &cgroup, CONTEXT);
        assert_eq!(cgroup.client(&machine).free(), 0);
    }
}

/// All processes of the cgroup and below share the limit, and no others.
#[test]
fn limits_processes_together() {
    for machine in [misc(), dmem()] {
        let cgroup = Cgroup::new();
        let child = cgroup.child("deeper");
        limit(&machine, &cgroup, 4096);
        let mut one = cgroup.client(&machine);
        let mut other = child.client(&machine);
        let mut outside = machine.plain_client();
        assert_eq!(outside.ask("alloc 5000"), "ok");
        assert_eq!(one.ask("alloc 2000"), "ok");
        let left = 4096 - 2000 - CONTEXT;
        assert_eq!(other.ask(&format!("alloc {left}")), NO_MEMORY);
        assert_eq!(other.ask(&format!("alloc {}", left - CONTEXT)), "ok");
        assert_eq!(one.ask("alloc 1"), NO_MEMORY);
        assert_eq!(used(&machine, &cgroup), 4096);
        other.kill();
        assert_eq!(one.free(), left);
        drop(one);
    }
}

/// "Managed memory is not limited".
#[test]
fn leaves_managed_memory_unlimited() {
    for machine in [misc(), dmem()] {
        let cgroup = Cgroup::new();
        limit(&machine, &cgroup, 1024);
        let mut client = cgroup.client(&machine);
        assert_eq!(client.ask("managed 8192"), "ok");
        assert_eq!(client.free(), 1024 - CONTEXT);
        assert_eq!(client.ask("alloc 512"), NO_MEMORY);
        assert_eq!(client.ask("alloc 256"), "ok");
        assert_eq!(used(&machine, &cgroup), CONTEXT + 256);
        drop(client);
    }
}

/// "A limit on a parent only is enforced as well, but the container sees the whole GPU".
#[test]
fn dmem_hides_limit_of_parent() {
    let machine = dmem();
    let parent = Cgroup::new();
    let leaf = parent.child("leaf");
    limit(&machine, &parent, 4096);
    let mut client = leaf.client(&machine);
    let free = WHOLE - CONTEXT;
    assert_eq!(client.ask("info"), format!("total {WHOLE} free {free}"));
    assert_eq!(client.ask("alloc 4096"), NO_MEMORY);
    assert_eq!(client.ask("fill 64"), "filled 3520");
    drop(client);
}

/// "dmem is hierarchical": a limit above holds beside the leaf's own.
#[test]
fn dmem_limits_nest() {
    let machine = dmem();
    let parent = Cgroup::new();
    enable_dmem(&machine, &[&hierarchy(), &parent]);
    let leaf = parent.child("leaf");
    limit(&machine, &parent, 2048);
    limit(&machine, &leaf, 4096);
    let mut client = leaf.client(&machine);
    let free = 4096 - CONTEXT;
    assert_eq!(client.ask("info"), format!("total 4096 free {free}"));
    assert_eq!(client.ask("alloc 2048"), NO_MEMORY);
    assert_eq!(client.ask("alloc 1024"), "ok");
    assert_eq!(used(&machine, &leaf), CONTEXT + 1024);
    assert_eq!(used(&machine, &parent), CONTEXT + 1024);
    drop(client);
}

/// "misc: the nearest limited ancestor counts, limits do not nest".
#[test]
fn misc_limits_do_not_nest() {
    let machine = misc();
    let parent = Cgroup::new();
    let (limited, free) = (parent.child("limited"), parent.child("free"));
    limit(&machine, &parent, 2048);
    limit(&machine, &limited, 4096);
    let mut one = limited.client(&machine);
    let mut other = free.client(&machine);
    assert_eq!(one.ask("alloc 3000"), "ok");
    let left = 2048 - CONTEXT;
    assert_eq!(other.ask("info"), format!("total 2048 free {left}"));
    assert_eq!(other.ask(&format!("alloc {}", left + 1)), NO_MEMORY);
    assert_eq!(used(&machine, &limited), CONTEXT + 3000);
    assert_eq!(used(&machine, &parent), CONTEXT);
    drop((one, other));
}

/// "beside an MPS namespace: both hold".
#[test]
fn holds_beside_mps_limit() {
    for machine in [misc(), dmem()] {
        let cgroup = Cgroup::new();
        limit(&machine, &cgroup, 6144);
        let daemon = Daemon::start(&machine, "-m").limited("4G");
        let mut one = cgroup.mps_client(&machine, &daemon.pipes);
        assert_eq!(one.ask("info"), "total 6144 free 3580");
        assert_eq!(one.ask("alloc 3581"), NO_MEMORY);
        assert_eq!(one.ask("alloc 3580"), "ok");
        let mut other = cgroup.mps_client(&machine, &daemon.pipes);
        assert_eq!(other.ask("info"), "total 6144 free 1532");
        assert_eq!(other.ask("alloc 1533"), NO_MEMORY);
        assert_eq!(other.ask("alloc 1532"), "ok");
        assert_eq!(used(&machine, &cgroup), 6144);
        drop((one, other));
    }
}

/// A new limit holds for processes that run, and takes no memory from them.
#[test]
fn limits_running_processes() {
    for machine in [misc(), dmem()] {
        let cgroup = Cgroup::new();
        let mut client = cgroup.client(&machine);
        assert_eq!(client.ask("alloc 2000"), "ok");
        limit(&machine, &cgroup, 1024);
        assert_eq!(client.ask("info"), "total 1024 free 0");
        assert_eq!(client.ask("alloc 1"), NO_MEMORY);
        assert_eq!(client.ask("managed 1"), "ok");
        assert_eq!(used(&machine, &cgroup), CONTEXT + 2000);
        assert_eq!(client.ask("free"), "ok");
        assert_eq!(client.free(), 1024 - CONTEXT);
        drop(client);
    }
}

/// A process whose namespace hides its cgroup is held all the same, from Linux 6.13 on.
#[test]
fn limits_in_cgroup_namespace() {
    if nvml_sim::sys::own_cgroup().is_none() {
        return;
    }
    let machine = misc();
    let cgroup = Cgroup::new();
    limit(&machine, &cgroup, 1024);
    let program = machine.client_program(Path::new("/nonexistent"));
    let mut unshare = Command::new("unshare");
    unshare.arg("--cgroup").arg(program.get_program());
    for (name, value) in program.get_envs() {
        unshare.env(name, value.unwrap());
    }
    let mut client = Client::start(&mut cgroup.run(&unshare));
    assert_eq!(client.ask("info"), "total 1024 free 508");
    assert_eq!(client.ask("alloc 509"), NO_MEMORY);
    drop(client);
}

/// A client that may not write to the machine is held, and is in no list.
#[test]
fn limits_unlisted_process() {
    for machine in [misc(), dmem()] {
        let cgroup = Cgroup::new();
        limit(&machine, &cgroup, 1024);
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", "1000", "--clear-groups"]);
        let program = machine.client_program(Path::new("/nonexistent"));
        setpriv.arg(program.get_program());
        for (name, value) in program.get_envs() {
            setpriv.env(name, value.unwrap());
        }
        let mut client = Client::start(&mut cgroup.run(&setpriv));
        assert_eq!(client.ask("info"), "total 1024 free 508");
        assert_eq!(client.ask("alloc 509"), NO_MEMORY);
        assert_eq!(client.ask("managed 2000"), "ok");
        assert_eq!(client.ask("alloc 508"), "ok");
        assert_eq!(client.free(), 0);
        drop(client);
    }
}
