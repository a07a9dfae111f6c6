//! Containers with a share or a whole GPU under an engine. A kind, such as a share at one level, is a value of `Kind`,
//! and all of them take the same course.

use super::cuda::{self, CLIENT};
use super::process::{lives, until};
use super::{Bundle, Low, Machine, Setup, unique};
use serde_json::Value;

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
}

pub const SHARE_AT_NONE: Kind = Kind {
    row: "a share at none",
    key: "runmig.dev/share",
    value: "8Gi",
    machine: &["--gpu", "L4", "--mps"],
    config: "sharing.enforcement = [\"none\"]",
    info: "total 22522 free 22272",
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
    ..SHARE_AT_NONE
};

pub const WHOLE_GPU: Kind = Kind {
    row: "a whole GPU",
    key: "runmig.dev/gpu",
    value: "1",
    config: "",
    ..SHARE_AT_NONE
};

/// An engine under test.
pub trait Engine {
    /// Starts a container with a request that stays, and with what a CUDA client needs.
    fn start(&mut self, key: &str, value: &str) -> String;
    /// Runs a shell script in it. Returns its output.
    fn exec(&self, id: &str, script: &str) -> String;
    /// Gives it other resources.
    fn update(&self, id: &str);
    /// Starts it again. Returns its id from then on.
    fn restart(&mut self, id: &str) -> String;
    /// Kills the engine, or its part that watches the container.
    fn kill(&mut self, id: &str);
    /// Starts the engine again.
    fn back(&mut self);
    fn remove(&self, id: &str);
    /// Records a row of the table of engines.
    fn passed(&self, case: &str);
}

impl Kind {
    pub fn setup(&self, low: Low) -> Option<Setup> {
        let setup = Setup::on(low, Machine::with(self.machine))?;
        setup.configure(self.config);
        Some(setup)
    }

    /// A process of `exec` sees the GPU, and as much of it as the level promises.
    #[track_caller]
    fn holds(&self, setup: &Setup, engine: &impl Engine, id: &str) {
        let script = format!("{} {CLIENT} info 2>&1", cuda::library(&setup.machine));
        assert_eq!(engine.exec(id, &script).trim_end(), self.info);
    }

    pub fn exec_update_restart(&self, setup: &Setup, engine: &mut impl Engine) {
        self.through_restart(setup, engine, Engine::update);
        engine.passed(&format!("{}: exec, update, restart", self.row));
    }

    /// The same where no controller of cgroups has a limit to update.
    pub fn exec_restart(&self, setup: &Setup, engine: &mut impl Engine) {
        self.through_restart(setup, engine, |_, _| {});
        engine.passed(self.row);
    }

    fn through_restart<E: Engine>(&self, setup: &Setup, engine: &mut E, update: fn(&E, &str)) {
        let id = engine.start(self.key, self.value);
        self.holds(setup, engine, &id);
        let before = ready(setup, &id);
        update(engine, &id);
        self.holds(setup, engine, &id);
        assert_eq!(ready(setup, &id)["id"], before["id"]);

        let again = engine.restart(&id);
        // CRI-O deletes the ended container later.
        setup.migctl(&["gc"]).ok();
        let after = setup.the_lease();
        assert_eq!(after, ready(setup, &again));
        assert_ne!(after["id"], before["id"]);
        if let Some(daemon) = daemon(&before) {
            assert!(!lives(daemon));
        }
        self.holds(setup, engine, &again);
        engine.remove(&again);
        // CRI-O still has the ended one.
        engine.remove(&id);
        setup.nothing_is_left();
    }

    pub fn killed_engine(&self, setup: &Setup, engine: &mut impl Engine) {
        let id = engine.start(self.key, self.value);
        let before = ready(setup, &id);
        engine.kill(&id);
        setup.migctl(&["gc"]).ok();
        assert_eq!(ready(setup, &id)["id"], before["id"]);
        engine.back();
        self.holds(setup, engine, &id);
        let after = ready(setup, &id);
        assert_eq!(daemon(&after), daemon(&before));
        engine.remove(&id);
        let init = i32::try_from(before["initPid"].as_i64().unwrap()).unwrap();
        until("the container has ended", || !lives(init));
        setup.migctl(&["gc"]).ok();
        setup.nothing_is_left();
        engine.passed(&format!("{}: the engine is killed", self.row));
    }
}

/// An H100 that could do MIG, and an L4 that cannot.
pub fn mixed() -> Machine {
    Machine::with(&["--gpu", "H100-80GB", "--gpu", "L4", "--mig", "off"])
}

/// Creates a container with a request, and returns its id.
pub fn create(setup: &Setup, key: &str, value: &str) -> String {
    let (id, bundle) = (unique(), setup.bundle("exec sleep 1000"));
    bundle.annotate(key, value);
    setup.runmig(&["create", "-b", bundle.as_str(), &id]).ok();
    id
}

pub fn delete(setup: &Setup, id: &str) {
    setup.runmig(&["delete", "--force", id]).ok();
}

/// Returns the line of a create that is refused and leaves its bundle as it was.
#[track_caller]
pub fn refused_bundle(setup: &Setup, bundle: &Bundle) -> String {
    let before = bundle.bytes();
    let line = setup
        .runmig(&["create", "-b", bundle.as_str(), &unique()])
        .refused();
    assert_eq!(bundle.bytes(), before);
    line
}

/// The same for a new bundle with these annotations.
#[track_caller]
pub fn refused(setup: &Setup, annotations: &[(&str, &str)]) -> String {
    let bundle = setup.bundle("true");
    for (key, value) in annotations {
        bundle.annotate(key, value);
    }
    refused_bundle(setup, &bundle)
}

/// The same on a machine on which no other container has anything.
#[track_caller]
pub fn refusal(setup: &Setup, annotations: &[(&str, &str)]) -> String {
    let line = refused(setup, annotations);
    setup.nothing_is_left();
    line
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

/// Returns the lease of a container.
#[track_caller]
pub fn lease(setup: &Setup, id: &str) -> Value {
    let leases = setup.leases();
    let found = leases.iter().find(|lease| lease["container"] == id);
    found.unwrap_or_else(|| panic!("{leases:?}")).clone()
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
