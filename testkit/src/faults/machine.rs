//! The simulated machine of a world, with its programs and its faults.

use super::World;
pub use super::simulated::Instance;
use super::simulated::Simulated;
use crate::cgroup2;
use crate::prelude::*;
use crate::process::copy_program;
use nix::fcntl::{Flock, FlockArg};
use nvml_sim::engine::{Driver, MEMORY_LIMITS_SINCE, Target, context_bytes};
use nvml_sim::fault::{self, Rule};
use nvml_sim::holders::{self, Hold};
use nvml_sim::state::Store;
use std::ops::Deref;

/// Makes a machine with the driver's library.
pub fn new(dir: PathBuf, model: &str, gpus: u32, without_mig: u32) -> Simulated {
    fs::create_dir_all(dir.join("lib")).unwrap();
    fs::copy(library(), dir.join("lib/libnvidia-ml.so.1")).unwrap();
    let machine = Simulated(dir);
    machine.make(model, gpus, without_mig);
    machine
}

impl Deref for World {
    type Target = Simulated;

    fn deref(&self) -> &Simulated {
        &self.simulated
    }
}

/// Installs a simulated program of NVIDIA's on the machine in a directory.
pub fn install(machine: &Path, name: &str) {
    let program = machine.join("usr/bin").join(name);
    if !program.exists() {
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        copy_program(&crate::program(name), &program);
    }
}

/// The one that cargo built for this test, whichever way it was asked to.
fn library() -> std::path::PathBuf {
    let beside = crate::programs();
    let places = ["deps/libnvml_sim.so", "libnvml_sim.so"].map(|place| beside.join(place));
    let made = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    let newest = places
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(made);
    newest.expect("the simulated driver is built: cargo build -p nvml-sim")
}

impl World {
    /// Installs NVIDIA's control program, as far as it is simulated.
    pub fn install_mps(&self) {
        install(&self.machine(), "nvidia-cuda-mps-control");
    }

    /// Has a driver that limits the memory of cgroups, and a machine with cgroup v2 alone for the test's thread.
    pub fn install_limits(&self) {
        cgroup2::enter();
        self.change(|machine, _| {
            machine.driver = Driver::of_branch(MEMORY_LIMITS_SINCE).unwrap();
        });
    }

    pub fn forget_memory_limits(&self) {
        self.change(|machine, _| machine.memory_limits.clear());
    }

    /// Returns the memory limit of a container's cgroup, in bytes.
    pub fn memory_limit(&self, id: &str) -> Option<u64> {
        let inode = fs::metadata(super::cgroup_of(self, id)).ok()?.ino();
        let engine = self.engine();
        let mut limits = engine.memory_limits.iter();
        Some(limits.find(|limit| limit.inode == inode)?.hard)
    }

    #[track_caller]
    pub fn the_instance(&self) -> Instance {
        let mut all = self.instances();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Makes an instance at a place for good: the checks want it to stay. Gives its MIG UUID.
    #[track_caller]
    pub fn admin_leaves(&self, gpu: u32, profile: &str, start: u32) -> String {
        let gi = self.admin_creates(gpu, profile, start, true);
        let mut made = self.instances();
        made.retain(|i| (i.gpu, i.gi) == (gpu, gi));
        self.theirs.lock().unwrap().push(made[0].generation);
        made[0].uuids[0].clone()
    }

    pub fn theirs(&self) -> Vec<u64> {
        self.theirs.lock().unwrap().clone()
    }

    /// The generation of one that has gone, or lost its compute instance.
    pub fn lost_of_theirs(&self) -> Option<u64> {
        let instances = self.instances();
        let is_there = |g: &u64| {
            let mut whole = instances.iter().filter(|i| i.uuids.len() == 1);
            whole.any(|i| i.generation == *g)
        };
        self.theirs().into_iter().find(|g| !is_there(g))
    }

    /// Removes the instances that administrators left.
    pub fn admin_tidies_up(&self) {
        let theirs = std::mem::take(&mut *self.theirs.lock().unwrap());
        for instance in self.instances() {
            if theirs.contains(&instance.generation) {
                self.admin_destroys(instance.gpu, instance.gi);
            }
        }
    }

    /// This process holds an instance, as one that runs CUDA would, until the value is dropped.
    pub fn hold(&self, gpu: u32, gi: u32, ci: Option<u32>) -> Hold {
        let gi = Some(gi);
        let store = Store::open(&self.machine()).unwrap();
        let target = Target { gpu, gi, ci };
        holders::hold(&store, target, context_bytes()).unwrap()
    }

    pub fn lose(&self, gpu: usize, lost: bool) {
        self.change(|machine, _| machine.gpus[gpu].lost = lost);
    }

    /// The driver's answer to the calls `from` to `to` of a function.
    pub fn fault(&self, call: &str, from: u64, to: Option<u64>, outcome: Outcome) {
        let rule = Rule {
            to,
            ..Rule::nth(call, from, outcome)
        };
        fault::add(&self.machine(), rule).unwrap();
    }

    /// Kills a command at its first call of a function.
    #[track_caller]
    pub fn kills(&self, call: &str, moment: Moment, command: &mut Command) {
        self.fault(call, 1, Some(1), Outcome::Kill(moment));
        let killed = said(command);
        assert_eq!(killed.status.code(), None, "{killed:?}");
        self.no_faults();
    }

    /// Holds the lock of a GPU, as an operation at work there does.
    pub fn lock_gpu(&self, gpu: usize) -> Flock<File> {
        let lock = File::create(self.gpu_lock(gpu)).unwrap();
        Flock::lock(lock, FlockArg::LockExclusive).unwrap()
    }

    /// Returns the lock file of a GPU.
    pub fn gpu_lock(&self, gpu: usize) -> PathBuf {
        let name = format!("gpu-{}.lock", self.engine().gpus[gpu].uuid);
        self.state().join(name)
    }

    /// Switches MIG off on a GPU, with all that is there.
    pub fn switch_mig_off(&self, gpu: usize) {
        self.change(|machine, _| {
            let gpu = &mut machine.gpus[gpu];
            gpu.gpu_instances.clear();
            (gpu.mode, gpu.pending) = (Mode::Off, Mode::Off);
        });
    }

    pub fn takes(&self, call: &str, takes_ms: u64) {
        let rule = Rule {
            takes_ms,
            ..Rule::every(call)
        };
        fault::add(&self.machine(), rule).unwrap();
    }

    pub fn no_faults(&self) {
        fault::clear(&self.machine()).unwrap();
    }

    /// The driver calls that a command makes, in their order.
    pub fn driver_calls(&self, during: impl FnOnce()) -> Vec<String> {
        let calls = self.driver_calls_by(during);
        calls.into_iter().map(|(_, call)| call).collect()
    }

    /// The same, and by which process.
    pub fn driver_calls_by(&self, during: impl FnOnce()) -> Vec<(u32, String)> {
        nvml_sim::trace::on(&self.machine()).unwrap();
        during();
        nvml_sim::trace::off(&self.machine()).unwrap();
        let log = nvml_sim::trace::read(&self.machine()).unwrap();
        let call = |line: &str| {
            let mut words = line.split(' ');
            Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
        };
        log.lines().filter_map(call).collect()
    }

    /// How often the driver has refused to destroy what is in use, as far as calls are logged.
    pub fn refusals(&self) -> usize {
        let log = nvml_sim::trace::read(&self.machine()).unwrap();
        let refused = |line: &&str| line.contains("Destroy") && line.ends_with(" 19");
        log.lines().filter(refused).count()
    }
}
