//! The world before a release, and its state after one.

use nvml_sim::engine::Machine as Engine;
use runmig_lease::store::Store;
use testkit::faults::check::{names, records};
use testkit::faults::machine::Instance;
use testkit::faults::operations::{ID, PEER};
use testkit::prelude::*;

/// The world before a release: one container that is gone, and one of which the slice is in use.
pub struct Before {
    pub world: World,
    machine: Engine,
    pub lease: String,
    /// The id of its instance.
    pub instance: String,
    peer: Instance,
    pub peer_pid: i32,
    /// The init of the container that is gone. It stays a zombie, because a process that goes away would
    /// move the reads.
    pub gone_pid: i32,
}

/// The folders that a release may write.
const CHANGES: [&str; 3] = ["state", "bundles", "root"];

impl Before {
    pub fn new() -> Before {
        // Of a process that `alone` started.
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        let world = World::small();
        world.create(PEER);
        let peer = world.the_instance();
        let peer_pid = world.living_init(PEER).unwrap();
        world.create(ID);
        let gone_pid = world.living_init(ID).unwrap();
        let pid = nix::unistd::Pid::from_raw(gone_pid);
        nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).unwrap();
        until("init is gone", || world.living_init(ID).is_none());
        let lease = world.lease_of(ID)["id"].as_str().unwrap().to_owned();
        let store = Store::open(&world.state(), Duration::from_secs(10)).unwrap();
        let held = store.get(&lease.as_str().into()).unwrap().unwrap();
        world.behave("no-hooks");
        let machine = (*world.engine()).clone();
        for name in CHANGES {
            copy(&world.path(name), &world.path(&format!("saved-{name}")));
        }
        Before {
            world,
            machine,
            lease,
            instance: held.instance.id.to_string(),
            peer,
            peer_pid,
            gone_pid,
        }
    }

    pub fn restore(&self) {
        let machine = self.machine.clone();
        self.world.change(|now, _| *now = machine);
        for name in CHANGES {
            let at = self.world.path(name);
            fs::remove_dir_all(&at).unwrap();
            copy(&self.world.path(&format!("saved-{name}")), &at);
        }
    }

    /// Returns whether a record is of the container that is gone: its lease, or its instance.
    fn is_of_gone(&self, name: &str) -> bool {
        name.ends_with(&self.lease) || name.ends_with(&self.instance)
    }

    /// Checks that the container that lives has its slice, whatever failed.
    pub fn peer_has_its_slice(&self) -> Result<(), String> {
        let there = self.world.instances();
        if !there.contains(&self.peer) {
            return Err(format!("took the slice of a living container: {there:?}"));
        }
        let leases = records(&self.world.state());
        let saved = records(&self.world.path("saved-state"));
        let mut of_peer = saved.iter().filter(|name| !self.is_of_gone(name));
        if !of_peer.all(|name| leases.contains(name)) {
            let what = "struck off the lease of a living container";
            return Err(format!("{what}: {leases:?}"));
        }
        Ok(())
    }

    /// Checks that nothing is left of the container that is gone.
    pub fn nothing_is_left(&self) -> Result<(), String> {
        let there = self.world.instances();
        if there != [self.peer.clone()] {
            return Err(format!("left behind: {there:?}"));
        }
        let leases = records(&self.world.state());
        if leases.iter().any(|name| self.is_of_gone(name)) {
            return Err(format!("left in the ledger: {leases:?}"));
        }
        if self.world.bundle_is_edited(ID) {
            return Err("config.json is not the original".to_owned());
        }
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let mode = fs::metadata(from).unwrap().permissions();
    fs::set_permissions(to, mode).unwrap();
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(&from, &to).unwrap()),
        }
    }
}
