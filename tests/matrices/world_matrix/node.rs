//! The machine that a world is entered from: a container runs on it throughout, and must never notice.

use std::cell::RefCell;
use std::ops::Deref;
use testkit::faults::World as Machine;
use testkit::faults::machine::Instance;
use testkit::faults::operations::{HOLDER, ID, PEER};
use testkit::prelude::*;

/// Half of the GPU.
const HALF: &str = "2g.12gb";
/// Its holder.
pub const FILLER: &str = "filler";
/// A container that is gone with its slice still on record.
pub const GONE: &str = "gone";

pub struct Node {
    machine: Machine,
    /// The time that a create waits for room.
    pub wait: &'static str,
    settings: RefCell<Vec<String>>,
    /// Those that were made in the normal world: a low-level runtime that is misled may forget one that
    /// runs.
    inits: RefCell<Vec<(String, i32)>>,
}

impl Deref for Node {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Node {
    /// With a ledger on a small file system of its own, as on real machines, and a container.
    pub fn new(wait: &'static str) -> Node {
        let node = Node {
            machine: Machine::small(),
            wait,
            settings: RefCell::default(),
            inits: RefCell::default(),
        };
        fs::create_dir(node.state()).unwrap();
        node.mount(
            &[
                "-t",
                "tmpfs",
                "-o",
                "size=512k,nr_inodes=96,mode=700",
                "state",
            ],
            "state",
        );
        fs::write(node.root().join("test"), std::process::id().to_string()).unwrap();
        node.set("");
        node.create(PEER);
        node
    }

    pub fn mount(&self, options: &[&str], at: &str) {
        said(Command::new("mount").args(options).arg(self.path(at))).ok();
    }

    /// Sets a key of the configuration until `tidy_up`.
    pub fn set(&self, line: &str) {
        let mut settings = self.settings.borrow_mut();
        let key = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        settings.retain(|set| key(set) != key(line));
        settings.push(line.to_owned());
        self.configure(&settings.join("\n"));
        // crun is called for more than runc is: what engines send with an update.
        let file = self.path("config.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("/runc\"", "/crun\"", 1)).unwrap();
    }

    pub fn set_nothing(&self) {
        self.settings.borrow_mut().clear();
        self.set("");
    }

    /// A container that lives, made in the normal world.
    pub fn create(&self, id: &str) {
        self.machine.create(id);
        let init = self.init(id).expect("an init");
        self.inits.borrow_mut().push((id.to_owned(), init));
    }

    /// Fills the machine.
    pub fn fill(&self) {
        self.bundle_asking(FILLER, HALF);
        self.create(FILLER);
        self.create(HOLDER);
    }

    /// The process that the low-level runtime has on record, if it has one and that lives.
    pub fn init(&self, id: &str) -> Option<i32> {
        let text = fs::read(self.root().join(id).join("state.json")).ok()?;
        let state: Value = serde_json::from_slice(&text).ok()?;
        let pid = i32::try_from(state["init_process_pid"].as_i64()?).ok()?;
        runmig_lease::process::of(pid).map(|init| init.pid)
    }

    fn lives(&self, id: &str) -> bool {
        let inits = self.inits.borrow();
        let mut of_it = inits.iter().filter(|(of, _)| of == id);
        of_it.any(|(_, pid)| runmig_lease::process::of(*pid).is_some()) || self.init(id).is_some()
    }

    pub fn has_lease(&self, id: &str) -> bool {
        self.leases().iter().any(|l| l["container"] == id)
    }

    pub fn has_idle(&self) -> bool {
        self.leases().iter().any(|l| !l["idleSince"].is_null())
    }

    pub fn log_of_call(&self) -> std::path::PathBuf {
        self.path("call.log")
    }

    /// `runmig` as engines call it, with a file for its errors.
    pub fn runmig(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("runmig");
        command.arg("--root").arg(self.root());
        command.arg("--log").arg(self.log_of_call()).args(arguments);
        command
    }

    /// After a collection in the normal world: who lives has its slices, and nothing has two owners or
    /// none.
    pub fn check(&self) -> Result<(), String> {
        self.collect();
        if !self.lives(PEER) {
            return Err("the neighbour is dead".to_owned());
        }
        for id in [PEER, FILLER, HOLDER, ID] {
            if self.lives(id) {
                self.has_its_slices(id)?;
            }
        }
        self.nothing_lost_nothing_given_twice()
    }

    pub fn collect(&self) {
        self.gc().ok();
    }

    /// Everything but the neighbour goes, by the engine and the collector.
    pub fn tidy_up(&self) -> Result<(), String> {
        self.behave("");
        for id in [ID, HOLDER, FILLER] {
            if self.root().join(id).exists() {
                self.delete(id);
            }
        }
        // Those of whom the low-level runtime has lost track.
        for (_, pid) in self.inits.borrow_mut().extract_if(.., |(id, _)| id != PEER) {
            if runmig_lease::process::of(pid).is_some() {
                testkit::process::kill(pid);
            }
        }
        self.set_nothing();
        self.collect();
        let leases = self.leases();
        if leases.iter().any(|l| l["container"] != PEER) || leases.len() != 1 {
            let left = |l: &Value| format!("{} {} {}", l["container"], l["state"], l["error"]);
            let left: Vec<String> = leases.iter().map(left).collect();
            return Err(format!("left in the ledger: {left:?}"));
        }
        let instances: Vec<Instance> = self.instances();
        if instances.len() != 1 {
            return Err(format!("left behind: {instances:#?}"));
        }
        let queue = self.queue();
        if !queue.is_empty() {
            return Err(format!("left in the queue: {queue:?}"));
        }
        Ok(())
    }

    /// The neighbour goes too, and with it everything.
    pub fn end(self) -> Result<(), String> {
        // A bundle that could not be put right is put right by the next create of it.
        for id in [ID, GONE] {
            if id == ID || self.path("bundles").join(id).exists() {
                self.create(id);
                self.delete(id);
            }
        }
        self.delete(PEER);
        self.collect();
        self.as_if_nothing_had_been()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let umount = ["-R", "-l"];
        let _ = Command::new("umount")
            .args(umount)
            .arg(self.state())
            .output();
    }
}
