//! Leases without a driver, for the tests of what decides about them.

use super::liveness;
use crate::bundles::NoBundles;
use crate::config::Config;
use crate::leases::Leases;
use crate::model::Process;
use crate::store::{
    Container, Held, Holder, InstanceState, Key, Lease, Origin, Resource, WholeGpu,
};
use crate::{draft, process};
use std::process::{Child, Command, Stdio};

/// A process that has ended: its pid is another one's by now.
pub(crate) const GONE: Process = Process {
    pid: 1,
    start_time: u64::MAX,
};

/// Returns the configuration of a machine without a driver, with all state in a folder of its own.
pub(crate) fn config(more: &str) -> (tempfile::TempDir, Config) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = format!(
        "state_dir = {:?}\ndata_dir = {:?}\n{more}\n[driver]\nlibrary = {:?}\n",
        at("state"),
        at("data"),
        at("no-library")
    );
    let config = Config::parse(&text).unwrap();
    (dir, config)
}

pub(crate) fn open(config: &Config) -> Leases<'_> {
    Leases::open(config, Box::new(NoBundles)).unwrap()
}

/// Returns a *pending* lease of a container on a whole GPU, whose create has been killed.
pub(crate) fn of_killed(leases: &Leases<'_>, id: &str) -> Held {
    let root = leases.store.dir().join("root");
    let container = Container {
        key: Key::new(root, id.to_owned()),
        ..Container::default()
    };
    let gpu = WholeGpu::of(&Default::default(), 0);
    let instance = draft::instance(Resource::Gpu(gpu), Origin::Ours, InstanceState::Ready).unwrap();
    let holder = Holder::Container(container);
    let lease = Lease {
        creator: GONE,
        namespaces: Some(liveness::namespaces().unwrap()),
        ..draft::lease(&instance, holder, "1 GPU".to_owned()).unwrap()
    };
    Held {
        lease: lease.into(),
        instance: instance.into(),
    }
}

/// Puts such a lease on record, with this change.
pub(crate) fn put(leases: &Leases<'_>, id: &str, change: impl FnOnce(&mut Lease)) -> Held {
    let mut held = of_killed(leases, id);
    change(std::sync::Arc::make_mut(&mut held.lease));
    leases.store.lock("test").unwrap().put_new(&held).unwrap();
    held
}

/// A process that lives until it is dropped, or this one ends.
pub(crate) struct Living(Child);

impl Living {
    pub(crate) fn new() -> (Living, Process) {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = process::of(child.id() as i32).unwrap();
        (Living(child), process)
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records the first process of a container as its low-level runtime does.
pub(crate) fn record_init(held: &Held, init: Process) {
    let key = &held.lease.container().unwrap().key;
    let folder = key.root.join(&key.id);
    std::fs::create_dir_all(&folder).unwrap();
    let Process { pid, start_time } = init;
    let text = format!("{{\"init_process_pid\":{pid},\"init_process_start\":{start_time}}}");
    std::fs::write(folder.join("state.json"), text).unwrap();
}
