//! Kinds of requests, each a value of `Kind`, and the leases of shares.

use crate::prelude::*;

/// A kind of request, and a machine that can grant it.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The row in the table of engines.
    pub row: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    /// As `nvml-sim new` takes it.
    pub machine: &'static [&'static str],
    pub config: &'static str,
    /// CUDA's memory in a process of the container.
    pub info: &'static str,
    /// Whether its machine has a controller of cgroups whose limit an engine can update.
    pub updates: bool,
}

pub const SLICE: Kind = Kind {
    row: "a slice by annotation",
    key: "runmig.dev/slice",
    value: "1g.10gb",
    machine: &["--gpu", "A100-80GB", "--mig", "on"],
    config: "",
    info: "",
    updates: true,
};

pub const SHARE_AT_NONE: Kind = Kind {
    row: "a share at none",
    key: "runmig.dev/share",
    value: "8Gi",
    machine: &["--gpu", "L4", "--mps"],
    config: "sharing.enforcement = [\"none\"]",
    info: "total 22522 free 22272",
    updates: true,
};

pub const SHARE_AT_MPS: Kind = Kind {
    row: "a share at mps",
    config: "sharing.enforcement = [\"mps\"]",
    info: "total 22522 free 7942",
    ..SHARE_AT_NONE
};

/// It wants a machine with cgroup v2 alone. CUDA's total is the share, which has the context too.
pub const SHARE_AT_DRIVER: Kind = Kind {
    row: "a share at driver",
    machine: &["--gpu", "L4", "--mps", "--driver", "615"],
    config: "sharing.enforcement = [\"driver\"]",
    info: "total 8192 free 7942",
    updates: false,
    ..SHARE_AT_NONE
};

pub const WHOLE_GPU: Kind = Kind {
    row: "a whole GPU",
    key: "runmig.dev/gpu",
    value: "1",
    config: "",
    ..SHARE_AT_NONE
};

impl Kind {
    pub fn setup(&self, low: Low) -> Setup {
        let setup = Setup::on(low, Machine::with(self.machine));
        setup.configure(self.config);
        setup
    }
}

/// An H100 that could do MIG, and an L4 that cannot.
pub fn mixed() -> Machine {
    Machine::with(&["--gpu", "H100-80GB", "--gpu", "L4", "--mig", "off"])
}

/// Returns the GPU's index and the memory of each share, in MiB.
pub fn shares(setup: &Setup) -> Vec<(u64, u64)> {
    let leases = setup.leases();
    let number = |l: &Value, key: &str| l[key].as_u64().unwrap();
    let of = |l: &Value| (number(l, "gpuIndex"), number(l, "bookedBytes") >> 20);
    let mut all: Vec<(u64, u64)> = leases.iter().map(of).collect();
    all.sort_unstable();
    all
}

/// Waits until the lease of a container is ready, and returns it.
#[track_caller]
pub fn ready(setup: &Setup, id: &str) -> Value {
    let mut found = None;
    until("the lease is ready", || {
        let is_its = |lease: &Value| lease["container"] == id && lease["state"] == "ready";
        found = setup.leases().into_iter().find(is_its);
        found.is_some()
    });
    let lease = found.unwrap();
    if lease["enforcement"] == "mps" {
        assert_eq!(lease["daemon"]["alive"], true, "{lease}");
    }
    lease
}

/// Returns the process of the MPS daemon of a lease.
pub fn daemon(lease: &Value) -> Option<i32> {
    let pid = lease["daemon"]["pid"].as_i64()?;
    Some(i32::try_from(pid).unwrap())
}
