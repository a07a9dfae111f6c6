//! Events of a machine: a driver that fails, others that use it, collectors, and reboots.

use crate::soak::churn::{Actor, Soak, kill_somewhere};
use testkit::Instance;
use testkit::prelude::*;

const CALLS: [&str; 8] = [
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
    "nvmlDeviceGetGpuInstances",
    "nvmlGpuInstanceGetComputeInstances",
    "nvmlInit_v2",
    "*",
];
/// Codes that say that nothing was done, and codes that say nothing about that.
const CODES: [&str; 5] = ["IN_USE", "UNKNOWN", "TIMEOUT", "GPU_IS_LOST", "MEMORY"];

pub struct World<'a> {
    soak: &'a Soak,
    random: Random,
    podman: Option<Podman<'a>>,
    /// Made by hand.
    admins: Vec<Instance>,
    held: Vec<Going>,
    /// Leases of boots that are over: the same UUIDs come again.
    void: BTreeSet<String>,
}

impl<'a> World<'a> {
    pub fn new(soak: &'a Soak, random: Random) -> World<'a> {
        World {
            soak,
            random,
            podman: Podman::new(&soak.setup),
            admins: Vec::new(),
            held: Vec::new(),
            void: BTreeSet::new(),
        }
    }

    fn sim(&self, verb: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = self.soak.setup.machine.sim_command(verb);
        let said = going(command.args(arguments).stdin(Stdio::null())).end();
        (said.status.success(), said.stdout)
    }

    fn fault(&mut self) {
        let call = self.random.of(&CALLS);
        let nth = self.random.below(4).to_string();
        let mut arguments = vec!["--call", call];
        let to = (1 + self.random.below(5)).to_string();
        match &*nth {
            "0" => arguments.extend(["--to", &to]),
            nth => arguments.extend(["--nth", nth]),
        }
        let moment = self.random.of(&["before", "during", "after"]);
        let code = self.random.of(&CODES);
        match self.random.below(5) {
            0 => arguments.extend(["--kill", moment]),
            1 => arguments.extend(["--takes", "50ms"]),
            2 if call != "nvmlInit_v2" => arguments.extend(["--returns", code, "--after"]),
            _ => arguments.extend(["--returns", code]),
        }
        let (well, _) = self.sim("fault", &arguments);
        self.soak.note("fault", well, &arguments[1..].join(" "));
    }

    fn clear_faults(&mut self) {
        let (well, _) = self.sim("fault", &["--clear"]);
        self.soak.note("faults cleared", well, "");
    }

    fn hold(&mut self) {
        let instances = self.soak.setup.machine.instances();
        if instances.is_empty() {
            return;
        }
        let one = &instances[self.random.below(instances.len() as u64) as usize];
        let (gpu, gi) = (one.gpu.to_string(), one.gi.to_string());
        let mut command = self.soak.setup.machine.sim_command("hold");
        command.args(["--gpu", &gpu, "--gi", &gi, "--seconds", "1"]);
        self.held.push(going(command.stdin(Stdio::null())));
        let told = format!("gi {gi} of GPU {gpu}");
        self.soak.note("hold", true, &told);
        if self.held.len() > 5 {
            drop(self.held.remove(0));
        }
    }

    /// An administrator does what he likes with his own, and they are his as long as he likes.
    fn admin(&mut self) {
        self.admins_are_there();
        if self.admins.len() > 2 || (!self.admins.is_empty() && self.random.one_in(2)) {
            let at = self.random.below(self.admins.len() as u64) as usize;
            let one = &self.admins[at];
            let (gpu, gi) = (one.gpu.to_string(), one.gi.to_string());
            let (well, _) = self.sim("destroy", &["--gpu", &gpu, "--gi", &gi]);
            if well {
                self.admins.remove(at);
            }
            let told = format!("gi {gi} of GPU {gpu}");
            return self.soak.note("destroy by hand", well, &told);
        }
        let gpu = self.random.of(&["0", "1"]);
        let profile = self.random.of(&["1g.10gb", "2g.20gb"]);
        let (well, said) = self.sim("create", &["--gpu", gpu, "--profile", profile]);
        if well {
            let all = self.soak.setup.machine.instances();
            let is_it = |i: &Instance| !i.uuid.is_empty() && said.contains(&i.uuid);
            let made = all.into_iter().find(is_it);
            let made = made.unwrap_or_else(|| panic!("gone at once: {said}"));
            self.admins.push(made);
        }
        let told = format!("{profile} on GPU {gpu}: {}", said.trim());
        self.soak.note("create by hand", well, &told);
    }

    fn admins_are_there(&self) {
        let all = self.soak.setup.machine.instances();
        for one in &self.admins {
            let is_there = all.contains(one);
            assert!(is_there, "the administrator's is gone: {one:?}\n{all:?}");
        }
        for lease in self.soak.setup.leases() {
            let theirs = |i: &&Instance| lease["migUUID"] == i.uuid.as_str();
            // A slice on its way out may be gone already, and its UUID have come again.
            let is_live = lease["state"] == "ready" || lease["state"] == "creating";
            let is_void = self.void.contains(lease["id"].as_str().unwrap());
            if !is_live || is_void {
                continue;
            }
            if let Some(one) = self.admins.iter().find(theirs) {
                panic!("the administrator's {one:?} is leased: {lease}");
            }
        }
    }

    fn gc(&mut self) {
        let dry = self.random.one_in(4);
        let mut command = self.soak.setup.plain(&self.soak.setup.program("migctl"));
        command.arg("gc").args(dry.then_some("--dry-run"));
        let going = going(command.stdin(Stdio::null()));
        let killed = self.random.one_in(4);
        if killed {
            kill_somewhere(&going, &mut self.random, "front");
        }
        let well = going.end().status.success();
        let what = match (dry, killed) {
            (true, _) => "gc --dry-run",
            (false, true) => "gc, killed",
            (false, false) => "gc",
        };
        self.soak.note(what, well, "");
    }

    fn podman(&mut self) {
        let Some(podman) = &self.podman else { return };
        let rootfs = podman.rootfs();
        let detach = self.random.one_in(2);
        let mut run = vec!["run", "--annotation=runmig.dev/slice=1g.10gb"];
        run.push(if detach { "--detach" } else { "--rm" });
        let time = if detach { "1000" } else { "0.1" };
        run.extend(["--rootfs", &rootfs, "sleep", time]);
        let running = going(podman.command(&run).stdin(Stdio::null()));
        let kill = self.random.one_in(2);
        if kill {
            std::thread::sleep(Duration::from_millis(self.random.below(600)));
            let whom = self.random.of(&["front", "everybody"]);
            kill_somewhere(&running, &mut self.random, whom);
        }
        let well = running.end().status.success();
        let killed = if kill { ", killed" } else { "" };
        self.soak.note(&format!("podman run{killed}"), well, "");
        let well = self.podman_rm();
        self.soak.note("podman rm", well, "");
    }

    fn podman_rm(&self) -> bool {
        let rm = ["rm", "--all", "--force", "--time=0"];
        let podman = self.podman.as_ref();
        podman.is_none_or(|podman| podman.podman(&rm).status.success())
    }

    /// Nothing that ran runs after it, and nothing that lay in memory is there.
    fn reboot(&mut self) {
        let soak = self.soak;
        let _off = soak.power.write().unwrap();
        self.held.clear();
        self.podman_rm();
        crate::soak::judge::kill_everybody(soak);
        let (well, _) = self.sim("reboot", &[]);
        for entry in fs::read_dir(soak.setup.root("a")).into_iter().flatten() {
            let _ = fs::remove_dir_all(entry.unwrap().path());
        }
        self.admins.clear();
        let id = |lease: &serde_json::Value| lease["id"].as_str().unwrap().to_owned();
        self.void.extend(soak.setup.leases().iter().map(id));
        soak.boots
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        soak.note("reboot", well, "");
    }
}

impl Actor for World<'_> {
    fn act(&mut self) {
        let soak = self.soak;
        if self.random.one_in(150) {
            return self.reboot();
        }
        let _on = soak.power.read().unwrap();
        match self.random.below(20) {
            0..=5 => self.fault(),
            6 | 7 => self.clear_faults(),
            8..=10 => self.hold(),
            11..=14 => self.admin(),
            15 if self.random.one_in(3) => self.podman(),
            _ => self.gc(),
        }
    }

    fn finish(&mut self) {
        self.clear_faults();
        self.held.clear();
        until("podman's are gone", || self.podman_rm());
        self.admins_are_there();
        for one in std::mem::take(&mut self.admins) {
            let (gpu, gi) = (one.gpu.to_string(), one.gi.to_string());
            // So that what is left in the end can only be ours. The GPU may be off the bus for a moment more.
            until("the administrator's is gone", || {
                self.sim("destroy", &["--gpu", &gpu, "--gi", &gi]).0
            });
        }
    }
}
