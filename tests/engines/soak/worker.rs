//! An engine without mercy: creates containers, ends them, and kills the processes at work on them.

use crate::soak::churn::{Actor, Soak, device, kill_somewhere};
use testkit::prelude::*;

const IDS: usize = 4;
const SLICE: &str = "runmig.dev/slice";
const SHARE: &str = "runmig.dev/share";
const GPU: &str = "runmig.dev/gpu";
/// What a container asks for: the first six of the GPUs in MIG mode, the others of those without.
const ASKS: [&[(&str, &str)]; 10] = [
    &[(SLICE, "1g.10gb")],
    &[(SLICE, "2g.20gb")],
    &[(SLICE, "3g.40gb")],
    &[(SLICE, "20Gi")],
    &[(SLICE, "1g.10gb+me")],
    &[(SLICE, "1g.10gb"), (SHARE, "2Gi")],
    &[(SHARE, "8Gi")],
    &[(SHARE, "1/4")],
    &[(GPU, "1")],
    &[(GPU, "2")],
];

pub struct Worker<'a> {
    soak: &'a Soak,
    random: Random,
    containers: Vec<Container>,
    short: Container,
}

struct Container {
    id: String,
    bundle: Bundle,
    /// A start was killed, by itself or within a run. If its runc had opened the FIFO of init and not removed it, the next
    /// start of runc waits for a second opener for ever.
    start_was_cut: bool,
}

impl<'a> Worker<'a> {
    pub fn new(soak: &'a Soak, n: u64, random: Random) -> Worker<'a> {
        let container = |name: String, script: &str| Container {
            bundle: soak.setup.asking("1g.10gb", script),
            id: name,
            start_was_cut: false,
        };
        let stays = |i: usize| container(format!("w{n}-{i}"), "exec sleep 1000");
        Worker {
            soak,
            random,
            containers: (0..IDS).map(stays).collect(),
            short: container(format!("w{n}-short"), "exec sleep 0.05"),
        }
    }

    /// A call, sometimes with a kill in its course: then it returns true.
    fn call(&mut self, name: &str, mut command: Command, id: &str) -> bool {
        let going = going(command.stdin(Stdio::null()));
        let whom = match self.random.below(14) {
            0 | 1 => "front",
            2 => "runtime",
            3 => "both",
            4 => "everybody",
            _ => "",
        };
        if !whom.is_empty() {
            kill_somewhere(&going, &mut self.random, whom);
        }
        let said = going.end();
        let what = match whom {
            "" => name.to_owned(),
            _ => format!("{name}, {whom} killed"),
        };
        let told = format!("{id} {}", said.stderr.trim());
        self.soak.note(&what, said.status.success(), &told);
        if told.contains("No space left") {
            self.soak.note("found no space on the disk", true, &what);
        }
        !whom.is_empty()
    }

    fn create(&mut self, at: usize) {
        let asks = self.random.of(&ASKS);
        let container = &mut self.containers[at];
        if container.is_ours_to_change() {
            let annotations: BTreeMap<&str, &str> = asks.iter().copied().collect();
            (container.bundle).edit(|config| config["annotations"] = json!(annotations));
            container.start_was_cut = false;
        }
        let id = container.id.clone();
        let verb: &[&str] = self.random.of(&[&["create"], &["run", "-d"]]);
        let mut arguments = verb.to_vec();
        arguments.extend(["-b", self.containers[at].bundle.as_str(), &id]);
        let command = self.soak.setup.command(&arguments);
        let was_cut = self.call(&verb.join(" "), command, &id);
        self.containers[at].start_was_cut |= was_cut && verb[0] == "run";
    }

    fn foreground(&mut self) {
        let id = self.short.id.clone();
        let run = ["run", "-b", self.short.bundle.as_str(), &id];
        let command = self.soak.setup.command(&run);
        self.call("run", command, &id);
        // If it was killed, its container may have stayed.
        let command = self.soak.setup.command(&["delete", "--force", &id]);
        self.call("delete", command, &id);
    }

    fn start(&mut self, at: usize) {
        if !self.containers[at].start_was_cut {
            self.containers[at].start_was_cut = self.on(at, "start", &["start"]);
        }
    }

    fn on(&mut self, at: usize, name: &str, arguments: &[&str]) -> bool {
        let id = self.containers[at].id.clone();
        let mut all = arguments.to_vec();
        all.push(&id);
        let command = self.soak.setup.command(&all);
        self.call(name, command, &id)
    }

    /// No process is told.
    fn kill_container(&mut self, at: usize) {
        let inside = in_cgroup(&self.containers[at].bundle.cgroup());
        for pid in &inside {
            let pid = nix::unistd::Pid::from_raw(*pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        self.soak
            .note("init killed", !inside.is_empty(), &self.containers[at].id);
        if self.random.one_in(3) {
            let dir = self.soak.setup.root("a").join(&self.containers[at].id);
            let gone = fs::remove_dir_all(dir).is_ok();
            self.soak
                .note("state directory gone", gone, &self.containers[at].id);
        }
    }

    /// Behind our back, with or without its hook.
    fn bare_delete(&mut self, at: usize) {
        let id = self.containers[at].id.clone();
        let command = self.soak.setup.bare(&["delete", "--force", &id]);
        self.call("runc delete", command, &id);
    }

    /// A container that lives has its slice, whatever happened.
    fn look(&mut self) {
        for container in &self.containers {
            let Some(uuid) = container.visible() else {
                continue;
            };
            let inside = in_cgroup(&container.bundle.cgroup());
            let Some(witness) = inside.first() else {
                continue;
            };
            let leases = self.soak.setup.leases();
            let instances = self.soak.setup.machine.instances();
            let leased = leases.iter().any(|l| {
                l["container"] == container.id.as_str()
                    && device(l) == uuid
                    && l["state"] != "releasing"
                    && l["state"] != "quarantined"
            });
            let is_gpu = uuid.starts_with("GPU-");
            let exists = is_gpu || instances.iter().any(|i| i.uuid == uuid);
            // It may have died while we looked.
            assert!(
                (leased && exists) || !lives(*witness),
                "{} lives (process {witness} of {inside:?}) and has lost {uuid} (leased: {leased}, \
                 exists: {exists})\n{leases:?}\n{instances:?}",
                container.id
            );
        }
        self.soak.note("look", true, "");
    }
}

impl Container {
    /// The first device in the bundle as it is now, which is that of its container if there is one.
    fn visible(&self) -> Option<String> {
        let config = self.bundle.config();
        let env = config["process"]["env"].as_array()?;
        env.iter().find_map(|e| {
            let uuids = e.as_str()?.strip_prefix("NVIDIA_VISIBLE_DEVICES=")?;
            Some(uuids.split(',').next().unwrap_or_default().to_owned())
        })
    }

    /// An engine writes a bundle before a create, and not again.
    fn is_ours_to_change(&self) -> bool {
        self.visible().is_none() && in_cgroup(&self.bundle.cgroup()).is_empty()
    }
}

impl Actor for Worker<'_> {
    fn act(&mut self) {
        let soak = self.soak;
        let _on = soak.power.read().unwrap();
        let at = self.random.below(IDS as u64) as usize;
        match self.random.below(20) {
            0..=6 => self.create(at),
            7..=9 => self.start(at),
            10 | 11 => {
                let delete: &[&str] = self.random.of(&[&["delete"], &["delete", "--force"]]);
                self.on(at, "delete", delete);
            }
            12 => self.bare_delete(at),
            13 | 14 => self.kill_container(at),
            15 | 16 => self.foreground(),
            _ => self.look(),
        }
    }

    fn finish(&mut self) {
        let soak = self.soak;
        let _on = soak.power.read().unwrap();
        self.look();
    }
}
