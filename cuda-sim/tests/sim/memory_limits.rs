//! Clients under memory limits by cgroup: sharing.md, "Limits by cgroup".

use std::path::Path;

use crate::common::cgroups::{Cgroup, dmem, enable_dmem, hierarchy, misc};
use crate::common::{Machine, Nvml};

const MIB: u64 = 1 << 20;
const NO_MEMORY: &str = "error CUDA_ERROR_OUT_OF_MEMORY";
/// Free MiB of an H100 without processes, and the MiB of a context.
const WHOLE: u64 = 81079;
const CONTEXT: u64 = 516;

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
        // "Managed memory is not limited".
        assert_eq!(client.ask("managed 8192"), "ok");
        assert_eq!(used(&machine, &cgroup), 30_000);
        assert_eq!(client.ask("free"), "ok");
        assert_eq!(client.free(), free);
        // The context counts inside of the limit.
        limit(&machine, &cgroup, CONTEXT - 1);
        assert_eq!(cgroup.client(&machine).ask("info"), NO_MEMORY);
        // A limit above the size of the GPU changes nothing.
        limit(&machine, &cgroup, 100_000);
        let whole = WHOLE - CONTEXT;
        assert_eq!(client.ask("info"), format!("total {WHOLE} free {whole}"));
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
