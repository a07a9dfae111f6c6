//! A simulated machine with GPUs, gone when dropped.

use crate::prelude::*;
use nvml_sim::engine;
use nvml_sim::state::{self, Store};
use std::sync::Arc;

pub struct Machine {
    home: TempDir,
}

/// A MIG device as the driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub gpu: u32,
    pub gpu_uuid: String,
    pub gi: u32,
    pub ci: u32,
    pub profile: String,
    pub start: u64,
    pub size: u64,
    pub uuid: String,
}

impl Machine {
    pub fn new(gpu: &str, count: u32) -> Machine {
        Machine::with(&["--gpu", gpu, "--count", &count.to_string(), "--mig", "on"])
    }

    /// As `nvml-sim new DIR ARGUMENTS` makes it.
    pub fn with(arguments: &[&str]) -> Machine {
        let machine = Machine::to_be();
        machine.sim("new", arguments);
        machine
    }

    /// The same with the arguments in one text.
    pub fn of(arguments: &str) -> Machine {
        Machine::with(&arguments.split(' ').collect::<Vec<_>>())
    }

    /// A machine that another program makes.
    pub fn to_be() -> Machine {
        let home = crate::temporary("runmig-sim-", &std::env::temp_dir());
        Machine { home }
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join("machine")
    }

    /// What the simulation keeps of it.
    pub fn state(&self) -> Arc<engine::Machine> {
        Store::open(&self.dir()).unwrap().load().unwrap()
    }

    /// Does what neither the driver nor nvidia-smi does.
    pub fn change<T>(&self, change: impl FnOnce(&mut engine::Machine) -> T) -> T {
        state::change(&self.dir(), |machine, _| change(machine)).unwrap()
    }

    pub fn library(&self) -> PathBuf {
        self.dir().join("lib/libnvidia-ml.so.1")
    }

    /// `nvml-sim VERB DIR ARGUMENTS`, which has to succeed.
    pub fn sim(&self, verb: &str, arguments: &[&str]) -> String {
        said(self.sim_command(verb).args(arguments)).ok().stdout
    }

    /// Starts a process that computes on a GPU, until it is killed.
    pub fn hold(&self, options: &[&str]) -> Going {
        let mut hold = self.sim_command("hold");
        let mut hold = going(hold.args(options).stdin(Stdio::null()));
        hold.until("holding");
        hold
    }

    pub fn sim_command(&self, verb: &str) -> Command {
        let mut command = Command::new(crate::program("nvml-sim"));
        command.arg(verb).arg(self.dir());
        command
    }

    pub fn gpu_uuid(&self, index: usize) -> String {
        self.state().gpus[index].uuid.clone()
    }

    /// Returns the driver's instances, one for each compute instance. A GPU instance without one,
    /// which nothing of ours may leave behind, stands here with an empty UUID.
    pub fn instances(&self) -> Vec<Instance> {
        let mut all = Vec::new();
        for (index, gpu) in (0..).zip(&self.state().gpus) {
            let devices = gpu.mig_devices();
            for gi in &gpu.gpu_instances {
                let with = |ci: u32, uuid: String| Instance {
                    gpu: index,
                    gpu_uuid: gpu.uuid.clone(),
                    gi: gi.id,
                    ci,
                    profile: gpu.profile_of(gi).name.clone(),
                    start: gi.placement.start.into(),
                    size: gi.placement.size.into(),
                    uuid,
                };
                let of_it = devices.iter().filter(|d| d.gi.id == gi.id);
                all.extend(of_it.map(|d| with(d.ci.id, d.uuid())));
                if gi.compute_instances.is_empty() {
                    all.push(with(u32::MAX, String::new()));
                }
            }
        }
        all
    }

    #[track_caller]
    pub fn the_instance(&self) -> Instance {
        let all = self.instances();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }

    #[track_caller]
    pub fn is_empty(&self) {
        assert_eq!(self.instances(), []);
    }

    /// Every node that a container with this instance has to have, by path below `/dev`.
    pub fn nodes_of(&self, of: &Instance) -> BTreeMap<String, (u32, u32)> {
        let (nvidia, uvm) = (self.major("nvidia"), self.major("nvidia-uvm"));
        let caps = self.major("nvidia-caps");
        let gi = self.capability(&format!("gpu{}/gi{}/access", of.gpu, of.gi));
        let ci = self.capability(&format!("gpu{}/gi{}/ci{}/access", of.gpu, of.gi, of.ci));
        BTreeMap::from([
            ("nvidiactl".into(), (nvidia, 255)),
            ("nvidia-uvm".into(), (uvm, 0)),
            ("nvidia-uvm-tools".into(), (uvm, 1)),
            (format!("nvidia{}", of.gpu), (nvidia, of.gpu)),
            (format!("nvidia-caps/nvidia-cap{gi}"), (caps, gi)),
            (format!("nvidia-caps/nvidia-cap{ci}"), (caps, ci)),
        ])
    }

    fn major(&self, name: &str) -> u32 {
        self.table("proc/devices", |words| match words {
            [major, found] if *found == name => major.parse().ok(),
            _ => None,
        })
    }

    fn capability(&self, name: &str) -> u32 {
        self.table("proc/driver/nvidia-caps/mig-minors", |words| match words {
            [found, minor] if *found == name => minor.parse().ok(),
            _ => None,
        })
    }

    fn table(&self, file: &str, row: impl Fn(&[&str]) -> Option<u32>) -> u32 {
        let text = fs::read_to_string(self.dir().join(file)).unwrap();
        text.lines()
            .find_map(|line| row(&line.split_whitespace().collect::<Vec<_>>()))
            .unwrap_or_else(|| panic!("not in {file}:\n{text}"))
    }
}
